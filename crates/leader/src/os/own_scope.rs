//! A scope of the leader's own: the user's service manager hands a cgroup directory over to whoever
//! asks for it, which brings the rung `cgroup2` without any configuration (systemd-run(1), option
//! `--scope`).
//!
//! In that mode `systemd-run` becomes its command in its own process, so that the leader goes there
//! by executing it, keeps its number, terminal and descriptors, and finds itself inside. Whether
//! that works is tried with another command before. It takes some tens of milliseconds, and
//! [`SCOPE_VARIABLE`] or a lower `confinement.highest` leaves it out.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use confine::cgroup::{ScopeError, take_over_scope};

use crate::os::clock;

/// What became of the scope so far: [`INSIDE`] in a leader that was started in one; anything else
/// that is not empty, such as `off`, and none is tried.
pub const SCOPE_VARIABLE: &str = "MUSTER_SCOPE";
/// The value of [`SCOPE_VARIABLE`] in a leader that went into a scope.
pub const INSIDE: &str = "inside";
/// The program that asks the manager.
const ASKER: &str = "systemd-run";
/// The socket below `XDG_RUNTIME_DIR` at which a user's manager listens.
const MANAGER_SOCKET: &str = "systemd/private";
/// How long the manager may take to start a command in a scope, in milliseconds.
const ASKING_MS_MAX: u64 = 2_000;
/// How often its end is looked for, in milliseconds.
const LOOK_EVERY_MS: u64 = 2;

/// What decides about a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The value of [`SCOPE_VARIABLE`].
    pub state: Option<&'a str>,
    /// `XDG_RUNTIME_DIR`, where the user's manager has its socket.
    pub runtime_dir: Option<&'a str>,
    /// Whether the rung `cgroup2` may be tried, and no directory is named for it.
    pub wanted: bool,
}

/// What is to be done about a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// The manager is to be asked for one, if this socket of its is there.
    Ask(PathBuf),
    /// This process is in one, whose directory is to be used.
    TakeOver,
}

/// What to do about a scope.
pub fn step(facts: Facts<'_>) -> Step {
    match (facts.state, facts.runtime_dir) {
        (Some(INSIDE), _) => Step::TakeOver,
        (None | Some(""), Some(runtime_dir)) if facts.wanted && runtime_dir.starts_with('/') => {
            Step::Ask(Path::new(runtime_dir).join(MANAGER_SOCKET))
        }
        (Some(_) | None, _) => Step::Stay,
    }
}

/// Executes this program once more, in a scope; gives why that can't be done where it can't. Nothing
/// has changed then.
pub fn go_inside(socket: &Path, arguments: &[OsString]) -> String {
    if !socket.exists() {
        return "no service manager of this user is running".to_owned();
    }
    if let Err(why) = try_out() {
        return why;
    }
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return format!("this program's own path is not known: {error}"),
    };
    let error = asker()
        .arg(own)
        .args(arguments.iter().skip(1))
        .env(SCOPE_VARIABLE, INSIDE)
        .exec();
    format!("{ASKER}: {error}")
}

/// Lets the manager start a command that does nothing.
fn try_out() -> Result<(), String> {
    let mut child = asker()
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{ASKER}: {error}"))?;
    let start = clock::now();
    while start.elapsed() < Duration::from_millis(ASKING_MS_MAX) {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{ASKER} gave no scope: {status}")),
            Ok(None) => pause(),
            Err(error) => return Err(format!("{ASKER}: {error}")),
        }
    }
    let ended = child.kill().and_then(|()| child.wait());
    drop(ended);
    Err(format!("{ASKER} gave no scope within {ASKING_MS_MAX} ms"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "no runtime runs yet, and the end of a child has no event here but its exit"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(LOOK_EVERY_MS));
}

/// `systemd-run` up to the command that it is to become.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that asks the service manager"
)]
fn asker() -> Command {
    let mut command = Command::new(ASKER);
    command.args(["--user", "--scope", "--quiet", "--collect"]);
    command.args(["--property", "Delegate=yes", "--"]);
    command
}

/// Makes the scope that this process is in its own, and gives its directory.
///
/// # Errors
/// When this process is in none, or may not use it.
pub fn take_over() -> Result<PathBuf, ScopeError> {
    take_over_scope()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_asked_once_and_only_for_what_is_wanted() {
        let step = |state, runtime_dir, wanted| {
            step(Facts {
                state,
                runtime_dir,
                wanted,
            })
        };
        let ask = || Step::Ask("/run/user/1/systemd/private".into());
        let runtime_dir = Some("/run/user/1");
        assert_eq!(step(None, runtime_dir, true), ask());
        assert_eq!(step(Some(""), runtime_dir, true), ask());
        assert_eq!(step(None, runtime_dir, false), Step::Stay);
        assert_eq!(step(None, None, true), Step::Stay);
        assert_eq!(step(None, Some("run"), true), Step::Stay);
        assert_eq!(step(Some("off"), runtime_dir, true), Step::Stay);
        for wanted in [true, false] {
            assert_eq!(step(Some(INSIDE), runtime_dir, wanted), Step::TakeOver);
        }
    }

    #[test]
    fn without_a_manager_nothing_is_asked() {
        let place = tempfile::tempdir().unwrap();
        let why = go_inside(&place.path().join("private"), &[]);
        assert_eq!(why, "no service manager of this user is running");
    }
}
