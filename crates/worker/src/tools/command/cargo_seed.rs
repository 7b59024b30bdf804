//! Shows cargo in its confined place what the user's own has downloaded, so that a build works
//! without the network.
//!
//! The user's place can't be used as it is: it is read-only, and a build with a new dependency
//! would fail. So the confined place gets links to the packages and to the pieces of the index;
//! what is new goes beside them. Nothing is copied but the short description of each registry.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Links that are made at most; who has more packages than this downloads the rest again.
const LINKS_MAX: usize = 20_000;
/// A registry's description as large as this is none.
const DESCRIPTION_BYTES_MAX: u64 = 64 * 1024;
/// Says that it was done.
const MARK: &str = ".seeded";

/// Whether a command is likely to need it: it names cargo, or runs where a crate is.
pub(super) fn is_wanted(command: &str, directory: &Path, ours: &Path) -> bool {
    let likely = command.contains("cargo") || directory.join("Cargo.toml").exists();
    likely && !ours.join(MARK).exists()
}

/// Links what `users` has into `ours`. Whatever can't be linked is downloaded again, so a failure is
/// told to nobody but the log.
pub(super) fn seed(users: &Path, ours: &Path) {
    let mut left = LINKS_MAX;
    if let Err(error) = seed_all(users, ours, &mut left) {
        tracing::debug!(%error, "the user's cargo packages could not all be linked");
    }
}

fn seed_all(users: &Path, ours: &Path, left: &mut usize) -> io::Result<()> {
    fs::create_dir_all(ours)?;
    for name in ["config.toml", "config"] {
        if users.join(name).exists() {
            link(&users.join(name), &ours.join(name), left)?;
        }
    }
    let (users_all, ours_all) = (users.join("registry"), ours.join("registry"));
    for registry in names_in(&users_all.join("cache")) {
        let (from, to) = (
            users_all.join("cache").join(&registry),
            ours_all.join("cache").join(&registry),
        );
        link_all(&from, &to, left)?;
    }
    for registry in names_in(&users_all.join("index")) {
        let (from, to) = (
            users_all.join("index").join(&registry),
            ours_all.join("index").join(&registry),
        );
        link_all(&from.join(".cache"), &to.join(".cache"), left)?;
        describe(&from.join("config.json"), &to.join("config.json"))?;
    }
    fs::write(ours.join(MARK), "")
}

/// Links everything in a directory by its name.
fn link_all(from: &Path, to: &Path, left: &mut usize) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in names_in(from) {
        link(&from.join(&name), &to.join(&name), left)?;
    }
    Ok(())
}

fn link(from: &Path, to: &Path, left: &mut usize) -> io::Result<()> {
    *left = left
        .checked_sub(1)
        .ok_or_else(|| io::Error::other("there are too many packages"))?;
    match symlink(from, to) {
        // Another agent of the workspace was there first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Copies a registry's description, which cargo writes anew in its place.
fn describe(from: &Path, to: &Path) -> io::Result<()> {
    let is_small = from
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() < DESCRIPTION_BYTES_MAX);
    if is_small && !to.exists() {
        fs::write(to, fs::read(from)?)?;
    }
    Ok(())
}

/// The names in a directory; none where there is no such thing.
fn names_in(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_index_are_linked_once_and_what_is_new_goes_beside_them() {
        let place = tempfile::tempdir().unwrap();
        let (users, ours) = (place.path().join("users"), place.path().join("w/cargo"));
        let file = |name: &str| {
            let path = users.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        file("config.toml");
        file("credentials.toml");
        file("registry/cache/reg-1/a-1.0.0.crate");
        file("registry/index/reg-1/.cache/se/rd/serde");
        file("registry/index/reg-1/config.json");
        assert!(is_wanted("cargo build", place.path(), &ours));
        assert!(!is_wanted("make", place.path(), &ours));
        seed(&users, &ours);
        for name in [
            "config.toml",
            "registry/cache/reg-1/a-1.0.0.crate",
            "registry/index/reg-1/.cache/se/rd/serde",
            "registry/index/reg-1/config.json",
        ] {
            assert_eq!(fs::read_to_string(ours.join(name)).unwrap(), name);
        }
        assert!(!ours.join("credentials.toml").exists());
        fs::write(ours.join("registry/cache/reg-1/b-1.0.0.crate"), "").unwrap();
        assert!(!users.join("registry/cache/reg-1/b-1.0.0.crate").exists());
        assert!(!is_wanted("cargo build", place.path(), &ours));
        // A second agent at the same moment finds the links there.
        seed(&users, &ours);
    }
}
