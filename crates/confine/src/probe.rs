//! What this machine can hold, found out by doing it.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use serde::{Deserialize, Serialize};

use crate::files::{FilePolicy, WriteMode};
use crate::limits;
pub use crate::obstacles::Obstacle;
use crate::obstacles::{self, Machine};
use crate::policy::JailPolicy;
use crate::report::{Confinement, JailLine, KillReach, Rung, to_json};
use crate::signal::{PidFd, Signal};
use crate::sys::best_effort;

/// What this machine holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What was enforced on the probe's tree; `kill` is what its kill was seen to reach.
    pub confinement: Confinement,
    /// What stands in the way of more, nearest first, with the way to change it.
    #[serde(default)]
    pub obstacles: Vec<Obstacle>,
}

/// Why nothing could be found out.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// `jail` did not run.
    #[error("could not run `{}` (hint: it must lie beside `leader` and be executable)", path.display())]
    Run {
        /// The executable.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It ran too long.
    #[error("the probe did not end within {} ms", limits::PROBE_BUDGET_MS)]
    TooSlow,
    /// It could not set its own canary up.
    #[error("the probe could not be set up")]
    SetUp(#[source] std::io::Error),
    /// It ended without an answer.
    #[error("the probe gave no answer; it said: {said}")]
    NoAnswer {
        /// What it wrote instead.
        said: String,
    },
}

/// Starts `jail --probe`, which builds the highest rung, lets a canary escape inside and kills it.
///
/// Blocks for a few milliseconds, and at most [`limits::PROBE_BUDGET_MS`]; call it once.
///
/// # Errors
/// When `jail` can't be run, hangs, or has no answer.
pub fn probe(jail: &Path) -> Result<Probe, ProbeError> {
    probe_up_to(jail, Rung::Cgroup2, None)
}

/// As [`probe`], with nothing above `highest`; `cgroup` is a delegated cgroup v2 directory to try.
///
/// # Errors
/// As [`probe`].
#[expect(
    clippy::disallowed_methods,
    reason = "the probe starts the jail that it asks"
)]
pub fn probe_up_to(jail: &Path, highest: Rung, cgroup: Option<&Path>) -> Result<Probe, ProbeError> {
    let failed = |source| ProbeError::Run {
        path: jail.to_owned(),
        source,
    };
    let mut child = Command::new(jail)
        .args(["--probe", "--highest", highest.name()])
        .args(cgroup)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // The answer fits into a pipe, so it may be read after the end.
    end_within_budget(&mut child)?;
    let said = read_all(child.stdout.take()).map_err(failed)?;
    match serde_json::from_str(&said) {
        Ok(probe) => Ok(probe),
        Err(_) => {
            let complaint = read_all(child.stderr.take()).map_err(failed)?;
            Err(ProbeError::NoAnswer {
                said: format!("{said}{complaint}"),
            })
        }
    }
}

/// The work of `jail --probe`: starts itself as a jail around a canary and looks what is left.
#[expect(
    clippy::disallowed_methods,
    reason = "the probe starts itself as a jail"
)]
pub(crate) fn measure(highest: Rung, cgroup: Option<PathBuf>) -> Result<String, ProbeError> {
    let (mine, theirs) = liveness().map_err(ProbeError::SetUp)?;
    let keep = theirs.as_raw_fd();
    let policy = JailPolicy {
        leader_pid: Some(std::process::id()),
        keep_fd: Some(keep),
        highest,
        cgroup,
        // Whether writes can be held at all; where an agent may write is its own business.
        files: Some(FilePolicy::closed(WriteMode::Workspace)),
        ..JailPolicy::default()
    };
    let canary = [
        std::ffi::OsString::from("--canary"),
        keep.to_string().into(),
    ];
    let mut child = Command::new(MYSELF)
        .args(policy.to_args(MYSELF.as_ref(), &canary))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ProbeError::Run {
            path: MYSELF.into(),
            source,
        })?;
    drop(theirs);
    // Its stdin stays open: the end of that would be the end of the tree.
    let stdin = child.stdin.take();
    end_within_budget(&mut child)?;
    drop(stdin);
    let said = read_all(child.stdout.take()).map_err(ProbeError::SetUp)?;
    let survived = !hangs_up(&mine).map_err(ProbeError::SetUp)?;
    let mut started = said
        .lines()
        .filter_map(JailLine::parse)
        .find_map(|line| match line {
            JailLine::Started(started) => Some(started.confinement),
            JailLine::Failed(_) | JailLine::Ended(_) | JailLine::Fallen(_) => None,
        });
    match &mut started {
        Some(confinement) if survived && confinement.kill != KillReach::Group => {
            confinement.kill = KillReach::Group;
            confinement
                .gaps
                .push("a process that escaped survived the probe's kill".to_owned());
        }
        Some(_) | None => {}
    }
    match started {
        Some(confinement) => {
            let obstacles = obstacles::explain(&confinement, &Machine::look());
            Ok(to_json(&Probe {
                confinement,
                obstacles,
            }) + "\n")
        }
        None => Err(ProbeError::NoAnswer { said }),
    }
}

/// This very executable, also when its file was replaced meanwhile.
const MYSELF: &str = "/proc/self/exe";

/// A pair of sockets; the second one is inherited, under a number that is free in every jail.
fn liveness() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (mine, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let high = fcntl(theirs.as_fd(), FcntlArg::F_DUPFD(limits::KEEP_FD_MIN))?;
    // SAFETY: F_DUPFD made this descriptor just now.
    let high = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(high) };
    fcntl(high.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok((mine, high))
}

/// Whether the other side of a socket is closed by everybody within the budget.
fn hangs_up(socket: &OwnedFd) -> std::io::Result<bool> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let ready = nix::poll::poll(&mut fds, PollTimeout::from(limits::PROBE_EMPTY_BUDGET_MS))?;
    Ok(ready > 0)
}

fn end_within_budget(child: &mut Child) -> Result<(), ProbeError> {
    let hold =
        PidFd::open(child.id()).map_err(|error| ProbeError::SetUp(std::io::Error::other(error)))?;
    let budget = Duration::from_millis(limits::PROBE_BUDGET_MS);
    let timeout = PollTimeout::try_from(budget).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(hold.as_fd(), PollFlags::POLLIN)];
    let ended = matches!(nix::poll::poll(&mut fds, timeout), Ok(ready) if ready > 0);
    if !ended {
        best_effort(hold.send(Signal::SIGKILL));
    }
    child.wait().map_err(ProbeError::SetUp)?;
    if ended {
        Ok(())
    } else {
        Err(ProbeError::TooSlow)
    }
}

fn read_all(pipe: Option<impl Read>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(limits::PROBE_OUTPUT_BYTES_MAX)
            .read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
