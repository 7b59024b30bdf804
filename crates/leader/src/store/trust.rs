//! The user's acceptances of workspaces' files, one record a file, in the user's state folder.
//!
//! A record is worth something only where no agent writes, so a state folder inside the workspace
//! is not used at all.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::config::{FileTrust, TrustRecord, record_name, trust_dir};
use protocol::limits::TRUST_RECORD_BYTES_MAX;

use crate::os::files::Dir;

/// Acceptances that a list shows.
pub const LISTED_MAX: usize = 1_000;

/// Where acceptances are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    dir: PathBuf,
}

/// Why there is no place for acceptances.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStore {
    /// No variable names one.
    #[error("there is no state folder: neither XDG_STATE_HOME nor HOME holds an absolute path")]
    NoHome,
    /// Agents that work in the workspace could write there.
    #[error("the state folder `{}` lies in the workspace, where agents write", .0.display())]
    InWorkspace(PathBuf),
}

impl TrustStore {
    /// The store of this environment, for a command in this workspace, which is absolute and
    /// without links.
    ///
    /// # Errors
    /// When there is no place for it that agents of the workspace can't reach.
    pub fn of(
        variable: impl Fn(&str) -> Option<String>,
        workspace: &Path,
    ) -> Result<TrustStore, NoStore> {
        let dir = trust_dir(variable).ok_or(NoStore::NoHome)?;
        if resolved(&dir).starts_with(workspace) {
            return Err(NoStore::InWorkspace(dir));
        }
        Ok(TrustStore { dir })
    }

    /// Where the acceptance of a file lies or would lie.
    pub fn record_path(&self, file: &Path) -> PathBuf {
        self.dir.join(record_name(file))
    }

    /// How far a content of a file is trusted. A record that can't be read is none.
    pub fn judge(&self, file: &Path, content: &[u8]) -> FileTrust {
        let name = PathBuf::from(record_name(file));
        let record = Dir::open(&self.dir).and_then(|dir| read_record(&dir, &name));
        match record {
            Ok(record) => record.judge(file, content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileTrust::Never,
            Err(error) => {
                let path = self.record_path(file);
                tracing::warn!(path = %path.display(), %error, "an acceptance can't be read");
                FileTrust::Never
            }
        }
    }

    /// Remembers that exactly this content was accepted; `at` is RFC 3339, UTC.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn accept(&self, file: &Path, content: &[u8], at: String) -> io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        // It may have been there before, open to others.
        std::fs::set_permissions(&self.dir, std::fs::Permissions::from_mode(0o700))?;
        let record = TrustRecord::new(file, content, at);
        let text = serde_json::to_string(&record).map_err(io::Error::other)?;
        let name = PathBuf::from(record_name(file));
        Dir::open(&self.dir)?.replace_file(&name, format!("{text}\n").as_bytes())
    }

    /// Takes an acceptance back; says whether there was one.
    ///
    /// # Errors
    /// When it can't be removed.
    pub fn revoke(&self, file: &Path) -> io::Result<bool> {
        match std::fs::remove_file(self.record_path(file)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// At most [`LISTED_MAX`] acceptances, by path. What is no record is passed over.
    ///
    /// # Errors
    /// When the folder is there and can't be read.
    pub fn list(&self) -> io::Result<Vec<TrustRecord>> {
        let dir = match Dir::open(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            dir => dir?,
        };
        let mut records: Vec<TrustRecord> = std::fs::read_dir(dir.path())?
            .take(LISTED_MAX)
            .filter_map(|entry| read_record(&dir, Path::new(&entry.ok()?.file_name())).ok())
            .collect();
        records.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(records)
    }
}

fn read_record(dir: &Dir, name: &Path) -> io::Result<TrustRecord> {
    let (file, _) = dir.open_file(name)?;
    let mut bytes = Vec::new();
    file.take(TRUST_RECORD_BYTES_MAX as u64)
        .read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

/// The path with the links of that part of it resolved that is there.
fn resolved(path: &Path) -> PathBuf {
    let there = path
        .ancestors()
        .find_map(|part| Some((part, part.canonicalize().ok()?)));
    match there {
        Some((part, real)) => real.join(path.strip_prefix(part).unwrap_or(Path::new(""))),
        None => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn store(home: &Path) -> TrustStore {
        let home = home.display().to_string();
        let variable = |name: &str| (name == "HOME").then(|| home.clone());
        TrustStore::of(variable, Path::new("/w")).unwrap()
    }

    #[test]
    fn an_acceptance_is_remembered_until_the_content_changes_or_it_is_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        let file = Path::new("/w/muster.toml");
        assert_eq!(store.judge(file, b"a"), FileTrust::Never);
        assert_eq!(store.list().unwrap(), Vec::new());
        store.accept(file, b"a", "then".to_owned()).unwrap();
        let at = "then".to_owned();
        assert_eq!(
            store.judge(file, b"a"),
            FileTrust::Accepted { at: at.clone() }
        );
        assert_eq!(store.judge(file, b"b"), FileTrust::Changed { at });
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.dir), 0o700);
        let other = Path::new("/v/muster.toml");
        store.accept(other, b"a", "later".to_owned()).unwrap();
        fs::write(store.dir.join("junk.json"), "{").unwrap();
        let paths: Vec<String> = store
            .list()
            .unwrap()
            .into_iter()
            .map(|it| it.path)
            .collect();
        assert_eq!(paths, ["/v/muster.toml", "/w/muster.toml"]);
        assert!(store.revoke(file).unwrap());
        assert!(!store.revoke(file).unwrap());
        assert_eq!(store.judge(file, b"a"), FileTrust::Never);
    }

    #[test]
    fn what_lies_in_the_place_of_a_record_and_is_none_says_nothing() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        let file = Path::new("/w/muster.toml");
        store.accept(file, b"a", "then".to_owned()).unwrap();
        let path = store.record_path(file);
        let real = home.path().join("elsewhere");
        fs::rename(&path, &real).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        assert_eq!(store.judge(file, b"a"), FileTrust::Never, "a link");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(store.judge(file, b"a"), FileTrust::Never, "a pipe");
    }

    /// An agent that works in a home directory could write its own acceptance.
    #[test]
    fn a_state_folder_inside_the_workspace_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&workspace, workspace.join("alias")).unwrap();
        for state in ["state", "alias/state"] {
            let state = workspace.join(state).display().to_string();
            let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| state.clone());
            let refused = TrustStore::of(variable, &workspace).unwrap_err();
            assert!(matches!(refused, NoStore::InWorkspace(_)), "{refused}");
        }
        assert_eq!(TrustStore::of(|_| None, &workspace), Err(NoStore::NoHome));
    }
}
