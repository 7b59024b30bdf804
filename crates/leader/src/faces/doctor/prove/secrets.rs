//! A key that every agent of the stage has for its model, and where it is looked for: in what its
//! commands can read, and in the files of the run.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use uuid::Uuid;
use walkdir::WalkDir;

/// The variable that holds the key for the leader of the stage.
pub const VARIABLE: &str = "MUSTER_PROVE_KEY";
/// What every such key begins with; digits and letters of a number follow.
const PREFIX: &str = "muster-prove-key-";
/// The script that looks for it.
const LOOK: &str = "look.sh";
/// Files of a run that are looked through; a stage has a few dozen.
const FILES_MAX: usize = 10_000;
/// The most that is read of one.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The most that is read of what a look has written.
const FOUND_BYTES_MAX: u64 = 1_024;

/// How often the key was found, and where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Agents whose commands looked.
    pub looks: usize,
    /// In the environment of a command.
    pub environment: usize,
    /// In the environments of all processes that a command sees.
    pub environ: usize,
    /// In their command lines.
    pub cmdline: usize,
    /// Files of the run that hold it.
    pub files: usize,
    /// Files that were looked through.
    pub files_looked_at: usize,
}

impl Found {
    /// All of it.
    pub fn times(&self) -> usize {
        self.environment + self.environ + self.cmdline + self.files
    }
}

/// A fresh key. Nobody else has it, so that it is found nowhere by chance.
pub fn new_key() -> String {
    format!("{PREFIX}{}", Uuid::now_v7().simple())
}

/// Writes the script into `folder`. It knows what keys look like, not the key; and the pattern
/// does not find itself.
///
/// # Errors
/// When the system refuses.
pub fn write_script(folder: &Path) -> io::Result<()> {
    let count = format!("tr '\\0' '\\n' | grep -c '{PREFIX}[0-9a-f]'");
    let script = format!(
        "env | {count}\ncat /proc/[0-9]*/environ 2>/dev/null | {count}\n\
         cat /proc/[0-9]*/cmdline 2>/dev/null | {count}\n"
    );
    std::fs::write(folder.join(LOOK), script)
}

/// The shell command that looks and writes what it found; both texts go into it as they are.
pub fn command(folder: &str, agent: &str) -> String {
    format!("sh {folder}/{LOOK} > {folder}/{agent}-found")
}

/// Adds what the commands of one agent found.
///
/// # Errors
/// When they have not looked.
pub fn add_look(found: &mut Found, folder: &Path, agent: u32) -> io::Result<()> {
    let path = folder.join(format!("{agent}-found"));
    let mut text = String::new();
    File::open(path)?
        .take(FOUND_BYTES_MAX)
        .read_to_string(&mut text)?;
    let counts: Vec<usize> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let [environment, environ, cmdline] = counts[..] else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a look for the key wrote {text:?}"),
        ));
    };
    found.looks += 1;
    found.environment += environment;
    found.environ += environ;
    found.cmdline += cmdline;
    Ok(())
}

/// Looks through all files below `place`. What can't be read is passed over.
pub fn add_files(found: &mut Found, place: &Path, key: &str) {
    let files = WalkDir::new(place).into_iter().filter_map(Result::ok);
    for entry in files
        .filter(|entry| entry.file_type().is_file())
        .take(FILES_MAX)
    {
        let mut bytes = Vec::new();
        let read = File::open(entry.path())
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        if read.is_ok() {
            found.files_looked_at += 1;
            let holds = bytes.windows(key.len()).any(|part| part == key.as_bytes());
            found.files += usize::from(holds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_finds_something_counts_and_one_that_failed_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("1-found"), "0\n0\n0\n").unwrap();
        std::fs::write(at("2-found"), "1\n4\n2\n").unwrap();
        std::fs::write(at("3-found"), "0\n").unwrap();
        let mut found = Found::default();
        add_look(&mut found, place.path(), 1).unwrap();
        assert_eq!((found.looks, found.times()), (1, 0));
        add_look(&mut found, place.path(), 2).unwrap();
        assert_eq!((found.looks, found.times()), (2, 7));
        assert!(add_look(&mut found, place.path(), 3).is_err());
        assert!(add_look(&mut found, place.path(), 4).is_err());
    }

    #[test]
    fn a_file_that_holds_the_key_is_found_wherever_it_lies() {
        let place = tempfile::tempdir().unwrap();
        let key = new_key();
        let mut found = Found::default();
        std::fs::create_dir(place.path().join("deep")).unwrap();
        std::fs::write(place.path().join("deep/other"), PREFIX).unwrap();
        add_files(&mut found, place.path(), &key);
        assert_eq!((found.files, found.files_looked_at), (0, 1));
        std::fs::write(place.path().join("deep/log"), format!("x{key}y")).unwrap();
        add_files(&mut found, place.path(), &key);
        assert_eq!((found.files, found.files_looked_at), (1, 3));
    }
}
