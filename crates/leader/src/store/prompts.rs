//! Reads the folder whose texts stand in for built-in prompts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use protocol::status::Language;
use protocol::text::Prompts;

/// The texts of one language: built in, or from `folder/{language}/` where that has them.
///
/// # Errors
/// With the file and what is wrong with it, in words.
pub fn load(folder: Option<&Path>, language: Language) -> Result<Prompts, String> {
    let Some(folder) = folder else {
        return Ok(Prompts::builtin(language));
    };
    let root = folder.join(language.as_str());
    let mut files = BTreeMap::new();
    for name in Prompts::names() {
        let path = root.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                files.insert(name.to_owned(), text);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("`{}` can't be read: {error}", path.display())),
        }
    }
    if files.is_empty() && !folder.is_dir() {
        return Err("there is no such folder".to_owned());
    }
    Prompts::with_overrides(language, &files).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_in_for_what_it_holds() {
        let place = tempfile::tempdir().unwrap();
        let built_in = Prompts::builtin(Language::En);
        let loaded = load(Some(place.path()), Language::En).unwrap();
        assert_eq!(loaded.reminder(), built_in.reminder());
        fs::create_dir(place.path().join("en")).unwrap();
        fs::write(place.path().join("en/reminder.md"), "Report now.").unwrap();
        let loaded = load(Some(place.path()), Language::En).unwrap();
        assert_eq!(loaded.reminder().trim(), "Report now.");
        fs::write(place.path().join("en/reminder.md"), "{odd}").unwrap();
        assert!(load(Some(place.path()), Language::En).is_err());
        assert!(load(Some(&place.path().join("none")), Language::En).is_err());
    }
}
