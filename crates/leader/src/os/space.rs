//! What lies in some directories, counted within bounds.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use walkdir::WalkDir;

use crate::core::usage::Space;

/// Counts what lies in these directories: bytes as they are on the disk, so that the holes of a
/// sparse file are nothing, and each file once, however many names and roots lead to it. No link is
/// followed and no other file system entered. What can't be read is passed over.
///
/// It stops at the first entry beyond `entries_max`. Blocks for as long as the walk takes.
pub fn count(roots: &[PathBuf], entries_max: u64) -> Space {
    let mut space = Space::default();
    let mut seen = HashSet::new();
    for root in roots {
        let entries = WalkDir::new(root)
            .same_file_system(true)
            .follow_links(false);
        for entry in entries.into_iter().filter_map(Result::ok) {
            if space.entries > entries_max {
                return space;
            }
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if seen.insert((found.dev(), found.ino())) {
                space.entries += 1;
                space.bytes = space
                    .bytes
                    .saturating_add(found.blocks().saturating_mul(512));
            }
        }
    }
    space
}

/// What has been added since the start; what was taken away is nothing.
pub fn added(now: Space, at_start: Space) -> Space {
    Space {
        bytes: now.bytes.saturating_sub(at_start.bytes),
        entries: now.entries.saturating_sub(at_start.entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn each_file_counts_once_and_a_hole_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("in")).unwrap();
        let roots = [at("in"), at("in"), at("missing")];
        let before = count(&roots, 10);
        assert_eq!(before.entries, 1);
        fs::write(at("in/a"), vec![b'x'; 100_000]).unwrap();
        fs::hard_link(at("in/a"), at("in/b")).unwrap();
        fs::write(at("outside"), vec![b'x'; 1_000_000]).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("in/link")).unwrap();
        File::create(at("in/hole"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let space = added(count(&roots, 10), before);
        assert_eq!(space.entries, 3);
        assert!((100_000..300_000).contains(&space.bytes), "{space:?}");
        assert_eq!(count(&roots, 2).entries, 3);
        assert_eq!(count(&roots, 4).entries, 4);
    }

    #[test]
    fn what_was_there_is_not_the_agents() {
        let space = |bytes, entries| Space { bytes, entries };
        assert_eq!(added(space(9, 5), space(4, 3)), space(5, 2));
        assert_eq!(added(space(1, 1), space(4, 3)), space(0, 0));
    }
}
