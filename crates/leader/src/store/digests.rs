//! What an ended agent delivered, file by file, with the digest of each.

use std::io::{self, Read};
use std::path::Path;

use protocol::manifest::ManifestFile;
use protocol::result::Deliverables;

use crate::core::batch::digest::Summing;
use crate::os::files::Dir;
use crate::store::deliverables;

/// Bytes of one item's files that are read for their digests; files beyond have none.
const DIGEST_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Bytes read in one go.
const READ_BYTES: usize = 256 * 1024;

/// The digests of the named files of a deliverables dir, which is relative to the workspace. No
/// link is followed and no FIFO waited for. Blocks for as long as the reading takes.
pub fn of_files(workspace: &Path, deliverables_dir: &Path, names: &[String]) -> Vec<ManifestFile> {
    let dir = Dir::open(workspace).and_then(|workspace| workspace.open_below(deliverables_dir));
    let mut left = DIGEST_BYTES_MAX;
    names
        .iter()
        .map(|name| match &dir {
            Ok(dir) => of_file(dir, name, &mut left),
            Err(_) => without(name, None, "gone"),
        })
        .collect()
}

/// Lists a deliverables dir anew, for an end whose listing is not known whole any more.
pub fn listing(workspace: &Path, deliverables_dir: &Path) -> Deliverables {
    Dir::open(workspace)
        .and_then(|workspace| workspace.open_below(deliverables_dir))
        .map(|dir| deliverables::list(&dir, || false))
        .unwrap_or_default()
}

fn of_file(dir: &Dir, name: &str, left: &mut u64) -> ManifestFile {
    let (file, size) = match open(dir, Path::new(name)) {
        Ok(opened) => opened,
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "gone",
                _ if error.raw_os_error() == Some(libc::ELOOP) => "link",
                _ => "unreadable",
            };
            return without(name, None, why);
        }
    };
    if size > *left {
        return without(name, Some(size), "too_large");
    }
    let mut sum = Summing::default();
    match drain(file.take(size), &mut sum) {
        Ok(read) if read == size => {
            *left -= size;
            ManifestFile {
                path: name.to_owned(),
                bytes: Some(size),
                sha256: Some(sum.finish()),
                skipped: None,
            }
        }
        Ok(read) => without(name, Some(read), "changed"),
        Err(_) => without(name, Some(size), "unreadable"),
    }
}

fn open(dir: &Dir, name: &Path) -> io::Result<(std::fs::File, u64)> {
    let parent = name.parent().unwrap_or(Path::new(""));
    let last = name.file_name().ok_or(io::ErrorKind::NotFound)?;
    dir.open_below(parent)?.open_file(Path::new(last))
}

fn drain(mut reader: impl Read, sum: &mut Summing) -> io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let mut total = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(length) => {
                sum.add(&buffer[..length]);
                total += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn without(name: &str, bytes: Option<u64>, why: &str) -> ManifestFile {
    ManifestFile {
        path: name.to_owned(),
        bytes,
        sha256: None,
        skipped: Some(why.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_have_their_digests_and_everything_else_its_reason() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        fs::create_dir_all(out.join("deep")).unwrap();
        fs::write(out.join("deep/a"), "abc").unwrap();
        fs::write(out.join("empty"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", out.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", out.join("dir")).unwrap();
        nix::unistd::mkfifo(&out.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let names = ["deep/a", "dir/passwd", "empty", "gone", "link", "pipe"].map(str::to_owned);
        let found = of_files(place.path(), Path::new("out"), &names);
        let seen: Vec<_> = found
            .iter()
            .map(|file| {
                (
                    file.bytes,
                    file.sha256.as_deref().map(|sum| &sum[..8]),
                    file.skipped.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (Some(3), Some("ba7816bf"), None),
                (None, None, Some("unreadable")),
                (Some(0), Some("e3b0c442"), None),
                (None, None, Some("gone")),
                (None, None, Some("link")),
                (None, None, Some("unreadable")),
            ]
        );
        assert_eq!(listing(place.path(), Path::new("out")).count, 4);
        let gone = of_files(place.path(), Path::new("none"), &names[..1]);
        assert_eq!(gone, [without("deep/a", None, "gone")]);
    }

    #[test]
    fn what_is_too_much_is_told_and_not_read() {
        let place = tempfile::tempdir().unwrap();
        let file = fs::File::create(place.path().join("huge")).unwrap();
        file.set_len(DIGEST_BYTES_MAX + 1).unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let mut left = DIGEST_BYTES_MAX;
        let told = of_file(&dir, "huge", &mut left);
        assert_eq!(
            told,
            without("huge", Some(DIGEST_BYTES_MAX + 1), "too_large")
        );
    }
}
