//! Reads the texts that stand in for the built-in prompts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use protocol::status::Language;
use protocol::text::Prompts;

use crate::exit::StartError;
use crate::io::job::read_text;

/// One text, in bytes.
const PROMPT_BYTES_MAX: usize = 256 * 1024;
/// Files in one folder of prompts.
const FILES_MAX: usize = 1_000;
/// Folders in folders: `notices/` and `tools/`.
const DEPTH_MAX: usize = 2;

/// The texts of a language: built in, or with what `{dir}/{language}/` holds in their places.
///
/// # Errors
/// When a file can't be read, is none of the known ones, or has other placeholders.
pub fn load(language: Language, dir: Option<&Path>) -> Result<Prompts, StartError> {
    let Some(dir) = dir else {
        return Ok(Prompts::builtin(language));
    };
    if !dir.is_dir() {
        return Err(StartError::new(format!(
            "the folder of prompts `{}` does not exist",
            dir.display()
        ))
        .hint("check `prompts_dir` in the configuration"));
    }
    let root = dir.join(language.as_str());
    let mut files = BTreeMap::new();
    if root.is_dir() {
        collect(&root, "", DEPTH_MAX, &mut files)?;
    }
    Prompts::with_overrides(language, &files)
        .map_err(|error| StartError::new(format!("prompts in `{}`: {error}", root.display())))
}

fn collect(
    root: &Path,
    prefix: &str,
    depth: usize,
    files: &mut BTreeMap<String, String>,
) -> Result<(), StartError> {
    let folder = root.join(prefix);
    let fail = |error: std::io::Error| {
        StartError::new(format!("cannot read `{}`: {error}", folder.display()))
    };
    for entry in fs::read_dir(&folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let file_name = entry.file_name();
        let file_name = file_name.to_string_lossy();
        // Editors and file managers leave such files; they are no texts.
        if file_name.starts_with('.') || file_name.ends_with('~') {
            continue;
        }
        let name = format!("{prefix}{file_name}");
        if entry.path().is_dir() {
            if depth > 1 {
                collect(root, &format!("{name}/"), depth - 1, files)?;
            }
            continue;
        }
        if files.len() == FILES_MAX {
            return Err(StartError::new(format!(
                "`{}` holds more than {FILES_MAX} files",
                root.display()
            )));
        }
        let text = read_text(&entry.path(), "prompt file", PROMPT_BYTES_MAX)?;
        files.insert(name, text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_replaces_what_it_holds() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("en");
        fs::create_dir_all(path.join("tools")).unwrap();
        fs::write(path.join("reminder.md"), "Go on.\n").unwrap();
        fs::write(path.join("tools/read_file.md"), "Reads.\n").unwrap();
        fs::write(path.join("reminder.md~"), "old").unwrap();
        let prompts = load(Language::En, Some(root.path())).unwrap();
        assert_eq!(prompts.reminder(), "Go on.");
        assert_eq!(prompts.tool_description("read_file"), "Reads.");
        let other = load(Language::Zh, Some(root.path())).unwrap();
        assert_eq!(other.reminder(), Prompts::builtin(Language::Zh).reminder());
    }

    #[test]
    fn a_folder_that_is_not_there_and_a_file_that_is_no_text_are_errors() {
        let root = tempfile::tempdir().unwrap();
        let nowhere = root.path().join("nowhere");
        let error = load(Language::En, Some(&nowhere)).unwrap_err();
        assert!(error.message.contains("nowhere"), "{error}");
        fs::create_dir(root.path().join("en")).unwrap();
        fs::write(root.path().join("en/remind.md"), "x").unwrap();
        let error = load(Language::En, Some(root.path())).unwrap_err();
        assert!(error.message.contains("remind.md"), "{error}");
    }
}
