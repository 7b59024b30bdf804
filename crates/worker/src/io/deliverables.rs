//! What lies in a deliverables dir, for the result of a worker that runs alone.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use protocol::job::AGENT_DIR;
use protocol::limits::{DELIVERABLES_ENTRIES_MAX, RESULT_NAMES_MAX};
use protocol::result::{Deliverables, SkippedFile};

/// Folders below the deliverables dir, one in the other.
const DEPTH_MAX: usize = 100;

/// Lists the files below `dir`, without the run's own folder. Links are listed and never
/// followed, so a link to a parent can't make the walk endless.
pub fn list(dir: &Path) -> Deliverables {
    let mut found = Deliverables::default();
    let mut visited = 0;
    let mut open: Vec<(PathBuf, usize)> = vec![(PathBuf::new(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let Ok(entries) = fs::read_dir(dir.join(&folder)) else {
            if depth > 0 {
                skip(&mut found, &folder, "unreadable");
            }
            continue;
        };
        for entry in entries.flatten() {
            visited += 1;
            if visited > DELIVERABLES_ENTRIES_MAX {
                found.truncated = true;
                return finish(found);
            }
            let name = folder.join(entry.file_name());
            if depth == 0 && name == Path::new(AGENT_DIR) {
                continue;
            }
            let Ok(kind) = entry.file_type() else {
                skip(&mut found, &name, "unreadable");
                continue;
            };
            if kind.is_dir() {
                if depth == DEPTH_MAX {
                    skip(&mut found, &name, "unreadable");
                } else {
                    open.push((name, depth + 1));
                }
            } else if kind.is_file() || kind.is_symlink() {
                found.count += 1;
                found.files.push(name.to_string_lossy().into_owned());
            } else if kind.is_fifo() {
                skip(&mut found, &name, "fifo");
            } else if kind.is_socket() {
                skip(&mut found, &name, "socket");
            } else {
                skip(&mut found, &name, "device");
            }
        }
    }
    finish(found)
}

fn skip(found: &mut Deliverables, name: &Path, why: &str) {
    if found.skipped.len() < RESULT_NAMES_MAX {
        found.skipped.push(SkippedFile {
            name: name.to_string_lossy().into_owned(),
            why: why.to_owned(),
        });
    }
}

fn finish(mut found: Deliverables) -> Deliverables {
    found.files.sort();
    found.skipped.sort_by(|a, b| a.name.cmp(&b.name));
    if found.files.len() > RESULT_NAMES_MAX {
        found.files.truncate(RESULT_NAMES_MAX);
        found.truncated = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_links_are_listed_and_nothing_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        fs::create_dir_all(dir.join("b/c")).unwrap();
        fs::create_dir_all(dir.join(AGENT_DIR)).unwrap();
        fs::write(dir.join(AGENT_DIR).join("journal.jsonl"), "").unwrap();
        fs::write(dir.join("b/c/z.txt"), "").unwrap();
        fs::write(dir.join("a.txt"), "").unwrap();
        std::os::unix::fs::symlink("..", dir.join("b/loop")).unwrap();
        nix::unistd::mkfifo(&dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(
            list(dir),
            Deliverables {
                files: ["a.txt", "b/c/z.txt", "b/loop"].map(String::from).into(),
                skipped: vec![SkippedFile {
                    name: "pipe".into(),
                    why: "fifo".into()
                }],
                truncated: false,
                count: 3,
            }
        );
        assert_eq!(list(&dir.join("nowhere")), Deliverables::default());
    }

    #[test]
    fn names_are_bounded_and_all_are_counted() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..=RESULT_NAMES_MAX {
            fs::write(root.path().join(format!("{n:05}")), "").unwrap();
        }
        let found = list(root.path());
        assert_eq!(found.files.len(), RESULT_NAMES_MAX);
        assert_eq!(found.count, RESULT_NAMES_MAX as u64 + 1);
        assert!(found.truncated);
    }
}
