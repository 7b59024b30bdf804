//! What the jail tells: lines on the channel, the record `exit.json`, and what is enforced.
//!
//! The lines are JSON-RPC 2.0 notifications. They are details: the verdict is the wait status of
//! `jail` itself, which the program inside can't forge.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::files::WriteMode;
use crate::path_text;

/// How much of a tree a kill reaches; higher is better, so rungs compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// A process group: whatever calls `setsid` escapes.
    Group,
    /// A subreaper that walks its descendants until none is left.
    Subreaper,
    /// A PID namespace whose init is killed: complete, needs no cooperation.
    Pidns,
    /// A delegated cgroup v2 directory, and the namespace where that can be had too.
    Cgroup2,
}

impl Rung {
    /// The name on the wire and in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Group => "group",
            Rung::Subreaper => "subreaper",
            Rung::Pidns => "pidns",
            Rung::Cgroup2 => "cgroup2",
        }
    }

    /// Every rung, weakest first.
    pub const ALL: [Rung; 4] = [Rung::Group, Rung::Subreaper, Rung::Pidns, Rung::Cgroup2];

    /// The rung of that name.
    pub fn of_name(name: &str) -> Option<Rung> {
        Rung::ALL.into_iter().find(|rung| rung.name() == name)
    }
}

impl std::fmt::Display for Rung {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a kill of the jail promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillReach {
    /// Nothing of the tree survives.
    Complete,
    /// Nothing survives unless the jail itself is killed first.
    BestEffort,
    /// What left the process group survives.
    Group,
}

/// What bounds the number of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessCap {
    /// The whole tree, whoever runs it.
    Tree,
    /// All processes of the user together.
    Uid,
    /// Nothing.
    None,
}

/// What bounds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryCap {
    /// The whole tree, by its cgroup.
    Tree,
    /// Nothing in the kernel.
    None,
}

/// What the tree reaches of the network; more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkReach {
    /// Nothing: only sockets of the file system can be made where there is no network namespace.
    Nothing,
    /// A loopback of its own.
    Loopback,
    /// Everything the machine reaches.
    Full,
}

impl NetworkReach {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            NetworkReach::Nothing => "nothing",
            NetworkReach::Loopback => "loopback",
            NetworkReach::Full => "full",
        }
    }
}

/// What guards files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesystemGuard {
    /// Nothing beyond the user's own rights.
    None,
    /// Its own mounts: private `/proc`, `/dev/pts`, `/dev/shm` and `/tmp`; the rest is shared.
    PrivateMounts,
    /// Writes are held to the workspace by Landlock alone; modes, owners and times are not.
    LandlockWorkspace,
    /// Writes are held to what was given by Landlock alone; modes, owners and times are not.
    LandlockScope,
    /// Its own mounts, of which only the workspace may be written, and Landlock as the second layer.
    Workspace,
    /// Its own mounts, of which only what was given may be written, and Landlock as the second layer.
    Scope,
}

impl FilesystemGuard {
    /// What read-only mounts come to.
    pub(crate) fn held_by_mounts(mode: WriteMode) -> FilesystemGuard {
        match mode {
            WriteMode::Workspace => FilesystemGuard::Workspace,
            WriteMode::Scope => FilesystemGuard::Scope,
        }
    }

    /// The same with Landlock's rules on top of what stood without them.
    pub(crate) fn with_landlock(self, mode: WriteMode) -> FilesystemGuard {
        match (self, mode) {
            (FilesystemGuard::Workspace | FilesystemGuard::Scope, _) => self,
            (_, WriteMode::Workspace) => FilesystemGuard::LandlockWorkspace,
            (_, WriteMode::Scope) => FilesystemGuard::LandlockScope,
        }
    }
}

/// What is enforced on one tree, as opposed to what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The rung that stands.
    pub rung: Rung,
    /// What a kill promises on it.
    pub kill: KillReach,
    /// What bounds the number of processes.
    pub procs: ProcessCap,
    /// What bounds memory.
    pub memory: MemoryCap,
    /// What the tree reaches of the network.
    pub network: NetworkReach,
    /// What guards files.
    pub filesystem: FilesystemGuard,
    /// Each thing that was meant to hold and does not, in words.
    pub gaps: Vec<String>,
}

/// The step of the start at which something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reading the command line or the policy.
    Policy,
    /// Taking over descriptors.
    Descriptors,
    /// Opening the directory of `exit.json`.
    ExitFile,
    /// Watching the leader, or finding it gone already.
    LeaderWatch,
    /// Handling signals.
    Signals,
    /// Reaching the rung that the policy requires.
    Require,
    /// Making the namespaces.
    Unshare,
    /// Mapping user and group ids into the user namespace.
    UserMap,
    /// Joining the delegated cgroup.
    Cgroup,
    /// Forking.
    Fork,
    /// Making a mount.
    Mount,
    /// Making a session.
    Session,
    /// Setting resource limits.
    Limits,
    /// Dropping capabilities.
    Capabilities,
    /// Restricting signals, abstract sockets and writes.
    Landlock,
    /// Filtering system calls.
    Seccomp,
    /// Entering the working directory.
    Chdir,
    /// Executing the program.
    Exec,
}

/// `jail/started`: the jail stands and the program is about to be executed.
///
/// It precedes every line of the program. An execution that then fails is still told by
/// `jail/failed`, for the kernel finds a bad binary only in the act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The process below the jail, numbered as the jail's caller sees it: init where there is a
    /// namespace, else the program itself. For display; signals go to the jail.
    pub init_pid: u32,
    /// What is enforced.
    pub confinement: Confinement,
}

/// `jail/failed`: the program did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Where it failed.
    pub step: Step,
    /// The kernel's error number, if the kernel refused.
    pub errno: Option<i32>,
    /// Its name, such as `ENOENT`.
    pub errno_name: Option<String>,
    /// The path concerned, if there is one.
    #[serde(with = "path_text::optional", default)]
    pub path: Option<PathBuf>,
    /// The whole failure in words, with what to try.
    pub message: String,
}

/// Why a tree ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The program ended by itself, or by a signal it got.
    Program,
    /// The leader was gone, so the tree was killed.
    LeaderGone,
    /// Init or the program's keeper was killed by someone else.
    KilledFromOutside,
    /// The time-out of a command passed.
    TimedOut,
    /// The kernel killed the tree, which had used up the memory of its cgroup.
    OutOfMemory,
}

/// `jail/ended`: the program ended, and its tree with it as far as the rung reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code, when it exited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The signal it died of, when it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// Why.
    pub reason: EndReason,
    /// For a command: whether something that it started still ran after it, past the time to
    /// linger, and was ended.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub left_behind: bool,
}

/// `jail/fallen`: somebody outside replaced a path that the tree was kept from, or could write, and
/// with the path its mount was gone.
///
/// It comes on standard error, for on the channel it could land in the middle of a line of the
/// program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallen {
    /// The path.
    #[serde(with = "path_text::one")]
    pub path: PathBuf,
    /// Whether it is protected again. What could be written before stays read-only.
    pub again: bool,
}

/// What `exit.json` says about the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program never started.
    Failed(Failed),
    /// The program ended.
    Ended(Ended),
}

/// The content of `exit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Version of this file; 1.
    pub format: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// One line of the jail on the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JailLine {
    /// `jail/started`.
    Started(Started),
    /// `jail/failed`.
    Failed(Failed),
    /// `jail/ended`.
    Ended(Ended),
    /// `jail/fallen`.
    Fallen(Fallen),
}

const METHOD_STARTED: &str = "jail/started";
const METHOD_FAILED: &str = "jail/failed";
const METHOD_ENDED: &str = "jail/ended";
const METHOD_FALLEN: &str = "jail/fallen";

/// A JSON-RPC notification; what else a line holds is ignored.
#[derive(Serialize, Deserialize)]
struct Notification<P> {
    jsonrpc: String,
    method: String,
    params: P,
}

impl JailLine {
    /// Renders the line, its newline included.
    pub fn to_line(&self) -> String {
        match self {
            JailLine::Started(params) => render(METHOD_STARTED, params),
            JailLine::Failed(params) => render(METHOD_FAILED, params),
            JailLine::Ended(params) => render(METHOD_ENDED, params),
            JailLine::Fallen(params) => render(METHOD_FALLEN, params),
        }
    }

    /// Reads a line; `None` when it is none of the jail's.
    pub fn parse(line: &str) -> Option<JailLine> {
        let note: Notification<serde_json::Value> = serde_json::from_str(line).ok()?;
        JailLine::from_method(&note.method, note.params)
    }

    /// Reads a notification that is already taken apart; `None` when it is none of the jail's.
    pub fn from_method(method: &str, params: serde_json::Value) -> Option<JailLine> {
        match method {
            METHOD_STARTED => serde_json::from_value(params).ok().map(JailLine::Started),
            METHOD_FAILED => serde_json::from_value(params).ok().map(JailLine::Failed),
            METHOD_ENDED => serde_json::from_value(params).ok().map(JailLine::Ended),
            METHOD_FALLEN => serde_json::from_value(params).ok().map(JailLine::Fallen),
            _ => None,
        }
    }
}

fn render<P: Serialize>(method: &str, params: P) -> String {
    let note = Notification {
        jsonrpc: "2.0".to_owned(),
        method: method.to_owned(),
        params,
    };
    let mut line = to_json(&note);
    line.push('\n');
    line
}

/// Serialises one of this crate's own types, none of which can fail to.
pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) => text,
        Err(error) => {
            unreachable!("types with string keys and no custom failure serialise: {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_ordered_from_weak_to_strong() {
        let mut rungs = [Rung::Cgroup2, Rung::Group, Rung::Pidns, Rung::Subreaper];
        rungs.sort();
        assert_eq!(
            rungs.map(Rung::name),
            ["group", "subreaper", "pidns", "cgroup2"]
        );
        assert_eq!(rungs, Rung::ALL);
        assert_eq!(
            rungs.map(|rung| Rung::of_name(rung.name())),
            rungs.map(Some)
        );
        assert_eq!(Rung::of_name("none"), None);
    }

    #[test]
    fn lines_have_the_documented_form_and_read_back() {
        let ended = JailLine::Ended(Ended {
            exit_code: Some(3),
            signal: None,
            reason: EndReason::Program,
            left_behind: false,
        });
        assert_eq!(
            ended.to_line(),
            "{\"jsonrpc\":\"2.0\",\"method\":\"jail/ended\",\"params\":{\"exit_code\":3,\"reason\":\"program\"}}\n"
        );
        let failed = JailLine::Failed(Failed {
            step: Step::Exec,
            errno: Some(2),
            errno_name: Some("ENOENT".to_owned()),
            path: Some("/no/such".into()),
            message: "m".to_owned(),
        });
        let started = JailLine::Started(Started {
            init_pid: 7,
            confinement: Confinement {
                rung: Rung::Pidns,
                kill: KillReach::Complete,
                procs: ProcessCap::Tree,
                memory: MemoryCap::None,
                network: NetworkReach::Full,
                filesystem: FilesystemGuard::None,
                gaps: vec!["g".to_owned()],
            },
        });
        let fallen = JailLine::Fallen(Fallen {
            path: "/w/.git".into(),
            again: true,
        });
        for line in [ended, failed, started, fallen] {
            assert_eq!(JailLine::parse(&line.to_line()), Some(line));
        }
    }

    #[test]
    fn foreign_lines_are_none_of_ours() {
        for line in [
            "",
            "{",
            "{\"jsonrpc\":\"2.0\",\"method\":\"jail/other\",\"params\":{}}",
        ] {
            assert_eq!(JailLine::parse(line), None, "{line}");
        }
    }
}
