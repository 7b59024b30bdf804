//! Claims of live agents on directories, seen by every leader of one workspace.
//!
//! Each claim is a file in `.muster/claims/` that its leader holds locked: when a leader dies, the
//! kernel lets go of its locks, and the next claim sweeps its files away.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{ConversationId, TaskId};
use serde::{Deserialize, Serialize};

use crate::os::files::Dir;

/// The folder of the claims, relative to the workspace.
pub const CLAIMS_DIR: &str = ".muster/claims";
/// The `format` number of a claim that this version writes.
pub const CLAIM_FORMAT: u32 = 1;
/// Held while claims are compared and one is added.
const GATE_FILE: &str = "gate.lock";
/// How often the gate is tried before giving up.
const GATE_TRIES_MAX: u32 = 500;
/// Between two tries of the gate, in milliseconds. The kernel tells nobody that a lock is free;
/// its blocking call has no time limit and so could hang for ever with a leader that is stopped.
const GATE_PAUSE_MS: u64 = 10;
/// A claim as large as this is no claim.
const CLAIM_BYTES_MAX: u64 = 1024 * 1024;

/// What one agent claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimText {
    /// Version of this shape.
    pub format: u32,
    /// Whose leader.
    pub conversation: ConversationId,
    /// The agent's name.
    pub display_name: String,
    /// Which run.
    pub task_id: TaskId,
    /// Absolute, links resolved.
    pub deliverables: PathBuf,
    /// Absolute, links resolved.
    #[serde(default)]
    pub write_paths: Vec<PathBuf>,
}

/// A claim that is held. Dropping it lets go of it.
#[derive(Debug)]
pub struct Claim {
    claims: Dir,
    name: PathBuf,
    /// Locked for as long as it is open.
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A file that stays is swept away by the next claim, for nobody holds its lock.
        drop(self.claims.remove_file(&self.name));
    }
}

impl Claim {
    /// Takes a claim, unless it overlaps the live claim of another conversation. Overlaps inside
    /// one conversation are its own supervisor's business. Blocks while another leader is at it,
    /// for a few seconds at most.
    ///
    /// # Errors
    /// [`ErrorCode::DeliverablesOverlap`] or [`ErrorCode::ScopeOverlap`] naming the other agent
    /// and its conversation; [`ErrorCode::Io`] when the claims can't be read or written.
    pub fn take(workspace: &Path, text: &ClaimText) -> Result<Claim, ToolError> {
        let claims = Dir::open(workspace)
            .and_then(|workspace| workspace.make_below(Path::new(CLAIMS_DIR)))
            .map_err(|error| failed(&error))?;
        let gate = pass_gate(&claims).map_err(|error| failed(&error))?;
        for other in live_claims(&claims).map_err(|error| failed(&error))? {
            if other.conversation != text.conversation {
                check_overlap(text, &other)?;
            }
        }
        let claim = Claim::write(claims, text).map_err(|error| failed(&error));
        drop(gate);
        claim
    }

    fn write(claims: Dir, text: &ClaimText) -> io::Result<Claim> {
        let name = PathBuf::from(format!("{}.json", text.task_id));
        let mut file = claims.create_new(&name)?;
        // Nobody else looks while the gate is held, so the lock is free and the text whole.
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("a new file is locked already"),
        })?;
        file.write_all(&serde_json::to_vec(text)?)?;
        Ok(Claim {
            claims,
            name,
            _file: file,
        })
    }
}

fn failed(error: &io::Error) -> ToolError {
    ToolError::new(
        ErrorCode::Io,
        format!("could not claim the agent's directories in `{CLAIMS_DIR}`: {error}"),
    )
    .hint("make the workspace's `.muster` folder writable, or remove what is in its way")
}

/// Locks the gate, with patience: it is held for the time of a few small reads.
#[expect(
    clippy::disallowed_methods,
    reason = "no event tells that the lock is free, and no task of a runtime is on this thread"
)]
fn pass_gate(claims: &Dir) -> io::Result<File> {
    let gate = claims.open_or_create(Path::new(GATE_FILE))?;
    for _ in 0..GATE_TRIES_MAX {
        match gate.try_lock() {
            Ok(()) => return Ok(gate),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(GATE_PAUSE_MS));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("another leader holds `{GATE_FILE}`"),
    ))
}

/// Reads every claim that is held, and removes what dead leaders left.
fn live_claims(claims: &Dir) -> io::Result<Vec<ClaimText>> {
    let mut live = Vec::new();
    for entry in std::fs::read_dir(claims.path())? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // A claim may be let go of between the listing and the opening.
        let Ok((file, size)) = claims.open_file(&name) else {
            continue;
        };
        match file.try_lock() {
            Ok(()) => claims.remove_file(&name)?,
            Err(TryLockError::WouldBlock) if size <= CLAIM_BYTES_MAX => {
                let mut bytes = Vec::new();
                (&file).take(CLAIM_BYTES_MAX).read_to_end(&mut bytes)?;
                if let Ok(text) = serde_json::from_slice(&bytes) {
                    live.push(text);
                }
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(live)
}

fn nested(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Compares two claims: whether one's directories are, hold or lie in the other's.
fn check_overlap(wanted: &ClaimText, held: &ClaimText) -> Result<(), ToolError> {
    let by = format!(
        "{} of conversation {}",
        held.display_name, held.conversation
    );
    let overlap = |code, what: &str, mine: &Path, theirs: &Path| {
        let message = format!(
            "{what} `{}` overlaps `{}` of {by}, which is live",
            mine.display(),
            theirs.display()
        );
        Err(ToolError::new(code, message)
            .hint("choose another directory, or wait until that agent has ended"))
    };
    if nested(&wanted.deliverables, &held.deliverables) {
        let code = ErrorCode::DeliverablesOverlap;
        return overlap(
            code,
            "deliverables_dir",
            &wanted.deliverables,
            &held.deliverables,
        );
    }
    let all = |claim: &ClaimText| -> Vec<PathBuf> {
        std::iter::once(&claim.deliverables)
            .chain(&claim.write_paths)
            .cloned()
            .collect()
    };
    for mine in all(wanted) {
        for theirs in all(held) {
            if nested(&mine, &theirs) {
                return overlap(ErrorCode::ScopeOverlap, "write scope", &mine, &theirs);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(conversation: &str, task: &str, deliverables: &str, write: &[&str]) -> ClaimText {
        ClaimText {
            format: CLAIM_FORMAT,
            conversation: ConversationId::new(format!("conv_{conversation}")).unwrap(),
            display_name: "Sub-agent 1".into(),
            task_id: TaskId::new(format!("sub_{task}")).unwrap(),
            deliverables: deliverables.into(),
            write_paths: write.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn another_leaders_directories_are_refused_while_its_agent_lives() {
        let place = tempfile::tempdir().unwrap();
        let take = |text: &ClaimText| Claim::take(place.path(), text);
        let first = text("aaaaaaaa", "00000001", "/w/docs", &["/w/src"]);
        let held = take(&first).unwrap();
        for (deliverables, write, code) in [
            ("/w/docs", &[][..], ErrorCode::DeliverablesOverlap),
            ("/w/docs/api", &[], ErrorCode::DeliverablesOverlap),
            ("/w", &[], ErrorCode::DeliverablesOverlap),
            ("/w/out", &["/w/src/lib.rs"], ErrorCode::ScopeOverlap),
            ("/w/src/gen", &[], ErrorCode::ScopeOverlap),
            ("/w/out", &["/w/docs/x"], ErrorCode::ScopeOverlap),
        ] {
            let other = text("bbbbbbbb", "00000002", deliverables, write);
            let error = take(&other).unwrap_err();
            assert_eq!(error.code, code, "{deliverables}");
            assert!(
                error
                    .message
                    .contains("Sub-agent 1 of conversation conv_aaaaaaaa")
            );
        }
        let beside = text("bbbbbbbb", "00000003", "/w/docs2", &["/w/srcs"]);
        drop(take(&beside).unwrap());
        drop(held);
        drop(take(&text("bbbbbbbb", "00000004", "/w/docs", &[])).unwrap());
        let left: Vec<_> = std::fs::read_dir(place.path().join(CLAIMS_DIR))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [GATE_FILE]);
    }

    #[test]
    fn a_dead_leaders_claim_is_free_at_once() {
        let place = tempfile::tempdir().unwrap();
        let dead = text("aaaaaaaa", "00000001", "/w/docs", &[]);
        // What a leader that was killed leaves: the file without its lock.
        let folder = place.path().join(CLAIMS_DIR);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("sub_00000001.json");
        std::fs::write(&file, serde_json::to_vec(&dead).unwrap()).unwrap();
        let next = text("bbbbbbbb", "00000002", "/w/docs", &[]);
        let _held = Claim::take(place.path(), &next).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn claims_taken_at_once_never_both_hold() {
        let place = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(8);
        let taken: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number| {
                    let (place, start) = (place.path(), &start);
                    scope.spawn(move || {
                        let conversation = format!("{number:08}");
                        let text = text(&conversation, &conversation, "/w/docs", &[]);
                        start.wait();
                        Claim::take(place, &text)
                    })
                })
                .collect();
            // Each result is kept until all have tried, so that none lets go before another tries.
            let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            results.iter().map(Result::is_ok).collect()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    }
}
