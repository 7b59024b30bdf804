//! What an agent left in its deliverables dir, listed within bounds and without following links.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::job::AGENT_DIR;
use protocol::limits;
use protocol::place::is_temporary;
use protocol::result::{Deliverables, SkippedFile};
use walkdir::WalkDir;

use crate::os::files::{Dir, special_word};

/// Skipped entries that are named; the rest is only left out.
const SKIPPED_NAMES_MAX: usize = 100;
/// Directories below one another that are entered.
const DEPTH_MAX: usize = 256;
/// Entries between two looks at whether time is over.
const ENTRIES_PER_CHECK: usize = 1_024;

/// Lists the files of a deliverables dir: relative names in byte order, at most
/// [`limits::RESULT_NAMES_MAX`] of them with the count of all. Links are listed as what they are,
/// the run's own folder is left out, what is no file is named as skipped. Stops, with what it has,
/// after [`limits::DELIVERABLES_ENTRIES_MAX`] entries or when `time_is_over` says so.
pub fn list(dir: &Dir, mut time_is_over: impl FnMut() -> bool) -> Deliverables {
    let root = dir.path();
    let mut names = SmallestNames::default();
    let mut skipped = Vec::new();
    let mut cut_short = false;
    let walk = WalkDir::new(&root)
        .follow_links(false)
        .min_depth(1)
        .max_depth(DEPTH_MAX)
        .into_iter()
        .filter_entry(|entry| entry.depth() != 1 || entry.file_name() != AGENT_DIR);
    for (visited, entry) in walk.enumerate() {
        if visited >= limits::DELIVERABLES_ENTRIES_MAX
            || (visited % ENTRIES_PER_CHECK == ENTRIES_PER_CHECK - 1 && time_is_over())
        {
            cut_short = true;
            break;
        }
        match entry {
            Ok(entry) => {
                let kind = entry.file_type();
                if kind.is_dir() {
                    // Its content follows; an empty directory is no deliverable.
                } else if kind.is_file() && entry.file_name().to_str().is_some_and(is_temporary) {
                    // A kill in the middle of a write left it, and nobody will finish it.
                    skip(&mut skipped, relative(entry.path(), &root), "half_written");
                } else if kind.is_file() || kind.is_symlink() {
                    names.add(relative(entry.path(), &root));
                } else {
                    skip(
                        &mut skipped,
                        relative(entry.path(), &root),
                        special_word(kind),
                    );
                }
            }
            Err(error) => {
                let name = error.path().map(|path| relative(path, &root));
                skip(&mut skipped, name.unwrap_or_default(), "unreadable");
            }
        }
    }
    skipped.sort_by(|a: &SkippedFile, b: &SkippedFile| a.name.cmp(&b.name));
    Deliverables {
        truncated: cut_short || names.count > names.kept.len() as u64,
        count: names.count,
        files: names.kept.into_iter().collect(),
        skipped,
    }
}

fn skip(skipped: &mut Vec<SkippedFile>, name: String, why: &str) {
    if skipped.len() < SKIPPED_NAMES_MAX {
        skipped.push(SkippedFile {
            name,
            why: why.to_owned(),
        });
    }
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// The first names in byte order of any number, in bounded memory.
#[derive(Default)]
struct SmallestNames {
    kept: BTreeSet<String>,
    count: u64,
}

impl SmallestNames {
    fn add(&mut self, name: String) {
        self.count += 1;
        self.kept.insert(name);
        if self.kept.len() > limits::RESULT_NAMES_MAX {
            self.kept.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn listed(place: &Path) -> Deliverables {
        list(&Dir::open(place).unwrap(), || false)
    }

    #[test]
    fn link_loops_are_listed_as_links_and_not_walked() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        fs::create_dir(at.join("d1")).unwrap();
        fs::create_dir(at.join("d2")).unwrap();
        fs::create_dir(at.join(AGENT_DIR)).unwrap();
        fs::write(at.join(".subagent/journal.jsonl"), "x").unwrap();
        fs::write(at.join("d1/a.md"), "x").unwrap();
        for (target, link) in [
            (".", "loop"),
            ("../d2", "d1/l"),
            ("../d1", "d2/l"),
            ("/", "root"),
            ("nowhere", "dangling"),
        ] {
            symlink(target, at.join(link)).unwrap();
        }
        let expected = Deliverables {
            files: ["d1/a.md", "d1/l", "d2/l", "dangling", "loop", "root"]
                .map(str::to_owned)
                .to_vec(),
            skipped: Vec::new(),
            truncated: false,
            count: 6,
        };
        assert_eq!(listed(at), expected);
    }

    #[test]
    fn what_is_no_file_is_skipped_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        nix::unistd::mkfifo(&at.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at.join("sock")).unwrap();
        fs::write(at.join("a"), "").unwrap();
        let found = listed(at);
        assert_eq!(found.files, ["a"]);
        let skipped: Vec<(&str, &str)> = found
            .skipped
            .iter()
            .map(|file| (file.name.as_str(), file.why.as_str()))
            .collect();
        assert_eq!(skipped, [("pipe", "fifo"), ("sock", "socket")]);
    }

    #[test]
    fn what_a_kill_left_half_written_is_no_deliverable() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("whole.md"), "x").unwrap();
        fs::write(place.path().join(".muster-4711-3.tmp"), "ha").unwrap();
        let found = listed(place.path());
        assert_eq!(found.files, ["whole.md"]);
        let why = "half_written".to_owned();
        let name = ".muster-4711-3.tmp".to_owned();
        assert_eq!(found.skipped, [SkippedFile { name, why }]);
    }

    #[test]
    fn names_beyond_the_limit_are_counted() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..=limits::RESULT_NAMES_MAX {
            fs::write(place.path().join(format!("{number:05}")), "").unwrap();
        }
        let found = listed(place.path());
        assert_eq!(found.files.len(), limits::RESULT_NAMES_MAX);
        assert_eq!(found.files.first().unwrap(), "00000");
        assert_eq!(found.files.last().unwrap(), "00999");
        assert_eq!((found.count, found.truncated), (1_001, true));
        fs::remove_file(place.path().join("00500")).unwrap();
        let found = listed(place.path());
        assert_eq!((found.count, found.truncated), (1_000, false));
    }

    #[test]
    fn a_walk_ends_when_time_is_over() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..ENTRIES_PER_CHECK + 10 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let found = list(&Dir::open(place.path()).unwrap(), || true);
        assert!(found.truncated);
        assert_eq!(found.count, ENTRIES_PER_CHECK as u64 - 1);
    }
}
