//! Which skills an agent has: the folders of its workspace first, then those of its user.
//!
//! A skill of a workspace is reached without following a link out of it; in the user's own folder
//! a link is the user's will. What is wrong with a skill is a warning that names it.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::front;
use crate::tools::failure::Doing;
use crate::tools::limits;
use crate::tools::paths::{Kind, resolve};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";
/// The folders of a workspace that hold skills; of two skills of one name the first is taken.
const WORKSPACE_FOLDERS: &[&str] = &[".muster/skills", ".claude/skills"];

/// A skill that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// By which it is read.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What its files may not lead out of, absolute.
    pub root: PathBuf,
    /// Its folder, relative to `root`; empty where they are the same.
    pub folder: PathBuf,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// By place, then by folder.
    pub skills: Vec<Skill>,
    /// What is odd, in sentences.
    pub warnings: Vec<String>,
}

/// Where a user's own skills lie, if there is such a place.
pub fn user_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".config")))
        .map(|config| config.join("muster/skills"))
}

/// Looks for skills. `workspace` is absolute with its links resolved.
pub fn find(workspace: &Path, user: Option<&Path>) -> Found {
    let mut found = Found::default();
    for folder in WORKSPACE_FOLDERS {
        let Ok(place) = resolve(workspace, folder, Doing::Read) else {
            let warning = format!("skills: `{folder}` leads out of the workspace and is left out");
            found.warnings.push(warning);
            continue;
        };
        if place.kind == Some(Kind::Directory) {
            for name in found.names(&workspace.join(&place.relative), folder) {
                let own = place.relative.join(&name);
                found.take(workspace.to_owned(), own, &name, folder);
            }
        }
    }
    let Some(user) = user.filter(|user| user.is_dir()) else {
        return found;
    };
    let shown = user.display().to_string();
    for name in found.names(user, &shown) {
        // The user's own links are followed, once, here.
        if let Ok(root) = std::fs::canonicalize(user.join(&name)) {
            found.take(root, PathBuf::new(), &name, &shown);
        }
    }
    found
}

impl Found {
    /// The names of the skills in a folder, sorted.
    fn names(&mut self, folder: &Path, shown: &str) -> Vec<String> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                let warning = format!("skills: `{shown}` can't be read: {error}");
                self.warnings.push(warning);
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for (at, entry) in entries.filter_map(Result::ok).enumerate() {
            if at == limits::SKILLS_MAX {
                self.warnings.push(format!(
                    "skills: `{shown}` holds more than {} entries; the others are left out",
                    limits::SKILLS_MAX
                ));
                break;
            }
            // Through a link too: whether it leads out is seen when the file is read.
            if entry.path().join(SKILL_FILE).exists() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        names
    }

    fn take(&mut self, root: PathBuf, folder: PathBuf, name: &str, shown: &str) {
        match read(&root, &folder, name) {
            Ok(skill) if self.skills.iter().any(|known| known.name == skill.name) => {}
            Ok(skill) => self.skills.push(skill),
            Err(why) => {
                let warning = format!("skill `{shown}/{name}` is left out: {why}");
                self.warnings.push(warning);
            }
        }
    }
}

fn read(root: &Path, folder: &Path, name: &str) -> Result<Skill, String> {
    let path = folder.join(SKILL_FILE);
    let text = path.to_str().ok_or("its path is no UTF-8")?;
    let place = resolve(root, text, Doing::Read).map_err(|error| error.message)?;
    let (file, _) = place.open_file().map_err(|error| error.message)?;
    let mut start = Vec::new();
    // What is beyond is the body, which is read on demand.
    file.take(limits::SKILL_FRONT_BYTES_MAX as u64 * 2)
        .read_to_end(&mut start)
        .map_err(|error| error.to_string())?;
    let front = front::read(&String::from_utf8_lossy(&start))?;
    let name = front.name.unwrap_or_else(|| name.to_owned());
    if !is_name(&name) {
        return Err(format!(
            "its name `{}` must be 1 to {} letters, digits, `-`, `_`, `.` or `:`",
            name.chars().take(80).collect::<String>(),
            limits::SKILL_NAME_CHARS_MAX
        ));
    }
    Ok(Skill {
        name,
        description: front.description,
        root: root.to_owned(),
        folder: folder.to_owned(),
    })
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "-_.:".contains(c);
    (1..=limits::SKILL_NAME_CHARS_MAX).contains(&name.chars().count()) && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;

    fn skill(ground: &Ground, folder: &str, front: &str) {
        ground.file(format!("{folder}/{SKILL_FILE}"), front.as_bytes());
    }

    fn named(name: &str, description: &str) -> String {
        format!("---\nname: {name}\ndescription: {description}\n---\nbody\n")
    }

    #[test]
    fn the_workspaces_skills_come_before_the_users_and_the_first_of_a_name_wins() {
        let ground = Ground::new();
        skill(&ground, ".muster/skills/b", &named("two", "of muster"));
        skill(
            &ground,
            ".muster/skills/a",
            "---\ndescription: by folder\n---\n",
        );
        skill(&ground, ".claude/skills/x", &named("two", "of claude"));
        ground.file(".muster/skills/no-skill/README.md", b"x");
        let user = ground.outside.join("skills");
        let own = user.join("own");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join(SKILL_FILE), named("own", "the user's")).unwrap();
        std::os::unix::fs::symlink(&own, user.join("linked")).unwrap();
        let found = find(&ground.context.workspace, Some(&user));
        let told: Vec<(&str, &str)> = found
            .skills
            .iter()
            .map(|skill| (skill.name.as_str(), skill.description.as_str()))
            .collect();
        let wanted = [
            ("a", "by folder"),
            ("two", "of muster"),
            ("own", "the user's"),
        ];
        assert_eq!(told, wanted);
        assert_eq!(found.warnings, Vec::<String>::new());
        assert_eq!(found.skills[0].folder, Path::new(".muster/skills/a"));
    }

    #[test]
    fn a_bad_skill_is_a_warning_that_names_it_and_costs_no_other() {
        let ground = Ground::new();
        skill(&ground, ".muster/skills/bad", "# no front matter");
        skill(&ground, ".muster/skills/evil", &named("a/../b", "d"));
        skill(&ground, ".muster/skills/good", &named("good", "d"));
        let secret = ground.outside.join("secret");
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(secret.join(SKILL_FILE), named("stolen", "d")).unwrap();
        std::os::unix::fs::symlink(&secret, ground.path(".muster/skills/out")).unwrap();
        ground.file(".claude/x", b"");
        std::os::unix::fs::symlink(&ground.outside, ground.path(".claude/skills")).unwrap();
        let found = find(&ground.context.workspace, None);
        let names: Vec<&str> = found.skills.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let words = ["skills/bad", "skills/evil", "skills/out", ".claude/skills"];
        assert_eq!(found.warnings.len(), words.len(), "{:?}", found.warnings);
        for (warning, words) in found.warnings.iter().zip(words) {
            assert!(warning.contains(words), "{warning}");
        }
    }

    #[test]
    fn a_place_without_skills_says_nothing() {
        let ground = Ground::new();
        let nowhere = ground.outside.join("nowhere");
        let found = find(&ground.context.workspace, Some(&nowhere));
        assert_eq!(found, Found::default());
    }

    #[test]
    fn the_users_folder_follows_the_variables() {
        let with = |config: Option<&str>, home: Option<&str>| {
            user_folder(|name| match name {
                "XDG_CONFIG_HOME" => config.map(PathBuf::from),
                _ => home.map(PathBuf::from),
            })
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(with(Some("/c"), Some("/h")), path("/c/muster/skills"));
        assert_eq!(
            with(Some("c"), Some("/h")),
            path("/h/.config/muster/skills")
        );
        assert_eq!(with(None, None), None);
    }
}
