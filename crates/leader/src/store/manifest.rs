//! The file of a batch's manifest: one writer, and whole at every moment.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::limits::MANIFEST_BYTES_MAX;
use protocol::manifest::{MANIFEST_FORMAT, Manifest};

use crate::core::batch::digest;
use crate::os::failure::code_of;
use crate::os::files::{Dir, Kind};

/// Where the locks of manifests lie, relative to the workspace. A manifest is replaced with each
/// writing, so that a lock of its own file would be gone with the first.
const LOCKS_DIR: &str = ".muster/manifests";
/// Digits of a path's digest that name its lock.
const LOCK_NAME_CHARS: usize = 32;

/// The place of a manifest, held for as long as the value lives.
#[derive(Debug)]
pub struct ManifestFile {
    dir: Dir,
    name: PathBuf,
    shown: String,
    // Opened close-on-exec; the kernel lets go of the lock with the process.
    _lock: File,
}

impl ManifestFile {
    /// Takes the place of a manifest; `path` counts from the workspace. Nothing is written.
    ///
    /// # Errors
    /// When its directory is missing, something else than a file has its name, or another leader
    /// writes it.
    pub fn hold(workspace: &Path, path: &Path) -> Result<ManifestFile, ToolError> {
        let shown = path.display().to_string();
        let absolute = workspace.join(path);
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(not_a_file(&shown, "it names no file"));
        };
        let parent = parent.canonicalize().map_err(|error| {
            ToolError::new(
                ErrorCode::NotFound,
                format!("the folder of the manifest `{shown}` can't be used: {error}"),
            )
            .hint("make the folder first; the path is relative to the workspace")
        })?;
        let failed = |error: io::Error| {
            ToolError::new(
                code_of(&error),
                format!("the manifest `{shown}` can't be used: {error}"),
            )
        };
        let dir = Dir::open(&parent).map_err(failed)?;
        let name = PathBuf::from(name);
        match dir.kind(&name).map_err(failed)? {
            Kind::Missing | Kind::File => {}
            other @ (Kind::Dir | Kind::Link | Kind::Special) => {
                return Err(not_a_file(&shown, &format!("it is {}", other.words())));
            }
        }
        let lock = lock(workspace, &parent.join(&name)).map_err(failed)?;
        match lock {
            Some(lock) => Ok(ManifestFile {
                dir,
                name,
                shown,
                _lock: lock,
            }),
            None => Err(ToolError::new(
                ErrorCode::NoLeader,
                format!("the manifest `{shown}` belongs to a batch whose leader runs"),
            )
            .hint("`leader ps` shows it; wait for its end, or name another manifest")),
        }
    }

    /// As it was named.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What it holds; none where it is missing or empty.
    ///
    /// # Errors
    /// When it holds something that is no manifest of this version.
    pub fn read(&self) -> Result<Option<Manifest>, ToolError> {
        let (file, size) = match self.dir.open_file(&self.name) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unfit(&error.to_string())),
        };
        if size == 0 {
            return Ok(None);
        }
        if size > MANIFEST_BYTES_MAX {
            return Err(self.unfit(&format!("it has {size} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(MANIFEST_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| self.unfit(&error.to_string()))?;
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| self.unfit(&error.to_string()))?;
        match manifest.format {
            MANIFEST_FORMAT => Ok(Some(manifest)),
            other => Err(self.unfit(&format!(
                "it has format {other}; this version knows {MANIFEST_FORMAT}"
            ))),
        }
    }

    fn unfit(&self, why: &str) -> ToolError {
        ToolError::new(
            ErrorCode::InvalidParameters,
            format!("`{}` is no manifest of a batch: {why}", self.shown),
        )
        .hint("name another file; this one is left as it is")
    }

    /// Writes it: a reader sees the old one or the whole new one, also after a loss of power.
    /// Blocks for as long as the disk does.
    ///
    /// # Errors
    /// When the disk refuses; the old one is whole then.
    pub fn write(&self, manifest: &Manifest) -> Result<(), ToolError> {
        let written = serde_json::to_vec_pretty(manifest)
            .map_err(io::Error::other)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                self.dir.replace_file(&self.name, &bytes)
            });
        written.map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("the manifest `{}` could not be written: {error}", self.shown),
            )
            .hint("its folder must be writable and not full; `--resume` takes the ends from the event log")
        })
    }
}

fn not_a_file(shown: &str, why: &str) -> ToolError {
    ToolError::new(
        ErrorCode::NotAFile,
        format!("the manifest `{shown}` can't be used: {why}"),
    )
    .hint("name a file; `--json` prints the same to stdout")
}

/// The lock of a manifest; none when another process has it.
fn lock(workspace: &Path, manifest: &Path) -> io::Result<Option<File>> {
    let locks = Dir::open(workspace)?.make_below(Path::new(LOCKS_DIR))?;
    let sum = digest::of_parts(&[manifest.as_os_str().as_encoded_bytes()]);
    let name = format!("{}.lock", &sum[..LOCK_NAME_CHARS]);
    let file = locks.open_or_create(Path::new(&name))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::ConversationId;
    use std::fs;

    fn manifest() -> Manifest {
        Manifest {
            format: MANIFEST_FORMAT,
            conversation: ConversationId::new("conv_00000001").unwrap(),
            earlier_conversations: Vec::new(),
            started_at: "2026-11-30T12:00:00Z".to_owned(),
            ended_at: None,
            success: None,
            exit_code: None,
            items: Vec::new(),
            other: serde_json::Map::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_one_writer_holds_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("out")).unwrap();
        let held = ManifestFile::hold(place.path(), Path::new("out/m.json")).unwrap();
        assert_eq!(held.read(), Ok(None));
        held.write(&manifest()).unwrap();
        assert_eq!(held.read(), Ok(Some(manifest())));
        // The same file by another name is the same file.
        let other = ManifestFile::hold(place.path(), Path::new("out/../out/m.json")).unwrap_err();
        assert_eq!(other.code, ErrorCode::NoLeader);
        drop(held);
        assert!(ManifestFile::hold(place.path(), Path::new("out/m.json")).is_ok());
        let names: Vec<_> = fs::read_dir(place.path().join("out")).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn what_is_no_manifest_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let hold = |name: &str| ManifestFile::hold(place.path(), Path::new(name));
        assert_eq!(hold(".").unwrap_err().code, ErrorCode::NotAFile);
        assert_eq!(hold("none/m.json").unwrap_err().code, ErrorCode::NotFound);
        fs::write(place.path().join("empty"), "").unwrap();
        assert_eq!(hold("empty").unwrap().read(), Ok(None));
        for text in ["{}", "notes", "{\"format\":1"] {
            fs::write(place.path().join("f"), text).unwrap();
            let error = hold("f").unwrap().read().unwrap_err();
            assert!(error.message.starts_with("`f` is no manifest"), "{error}");
        }
        let newer = Manifest {
            format: 2,
            ..manifest()
        };
        hold("f").unwrap().write(&newer).unwrap();
        let error = hold("f").unwrap().read().unwrap_err();
        assert!(error.message.contains("format 2"), "{error}");
    }
}
