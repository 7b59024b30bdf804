//! The last process of the start: it takes its limits upon itself and becomes the program.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::caps;
use crate::descriptors::{self, ProgramEnds};
use crate::files::WriteMode;
use crate::inside::{InnerEnd, Message};
use crate::jail::Plan;
use crate::keeper::{ENV_KEEPER, KEEPER_FD};
use crate::landlock::{self, Memory, Writes};
use crate::limits;
use crate::report::{Confinement, FilesystemGuard, NetworkReach, ProcessCap, Step};
use crate::rlimits;
use crate::seccomp::{self, Sockets};
use crate::signals_in;
use crate::steps::StepError;
use crate::sys::{self, best_effort};

/// What is executed.
#[derive(Debug, Clone)]
pub(crate) struct ProgramCall {
    /// The program, a path or a name to look up in PATH.
    pub(crate) program: OsString,
    /// Its arguments, without its own name.
    pub(crate) args: Vec<OsString>,
    /// Its environment; without one, this process's own.
    pub(crate) env: Option<Vec<(OsString, OsString)>>,
}

impl ProgramCall {
    /// The file that is going to be executed, as far as it can be told beforehand.
    pub(crate) fn file(&self) -> PathBuf {
        let candidates = candidates(&self.program, &self.path());
        let found = candidates
            .iter()
            .find(|path| path.exists())
            .or(candidates.first());
        found.cloned().unwrap_or_default()
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        self.env
            .clone()
            .unwrap_or_else(|| std::env::vars_os().collect())
    }

    /// The PATH that the program itself will have.
    fn path(&self) -> OsString {
        let environment = self.environment();
        let path = environment.into_iter().find(|(name, _)| name == "PATH");
        path.map(|(_, value)| value).unwrap_or_default()
    }
}

/// Whether the program may start without Landlock's scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeNeed {
    /// It may, with a gap.
    Wanted,
    /// It may not: nothing else keeps it from its jail.
    Mandatory,
}

/// A process that is about to become a program.
#[derive(Debug)]
pub(crate) struct Becoming<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ends: &'a ProgramEnds,
    pub(crate) inner: &'a InnerEnd,
    /// The socket to the keeper, if there is one.
    pub(crate) keeper: Option<&'a OwnedFd>,
    pub(crate) scope: ScopeNeed,
}

impl Becoming<'_> {
    /// Sets this freshly forked process up, waits for the jail's word and executes the program.
    ///
    /// Every signal must be blocked; they are let through just before the program begins, so that
    /// one that comes early ends it and is not lost.
    pub(crate) fn become_program(&self, mut confinement: Confinement) -> ! {
        let error = match self.prepare(&mut confinement) {
            Ok(image) => {
                confinement.gaps = shortened(confinement.gaps);
                self.inner.tell(&Message::Ready(confinement));
                if !self.inner.wait_for_go() {
                    sys::exit_now(limits::EXIT_NOT_STARTED);
                }
                image.execute()
            }
            Err(error) => error,
        };
        let code = error.exit_code();
        self.inner.tell(&Message::Failed(error));
        sys::exit_now(code)
    }

    fn prepare(&self, confinement: &mut Confinement) -> Result<Image, StepError> {
        let policy = &self.plan.policy;
        sys::reset_dispositions();
        nix::unistd::setsid()
            .map_err(|errno| StepError::errno(Step::Session, errno, "make a session"))?;
        self.ends.install()?;
        rlimits::apply(policy)?;
        if confinement.procs == ProcessCap::Uid
            && let Some(gap) = rlimits::cap_tasks_of_user(policy.process_cap)
        {
            confinement.procs = ProcessCap::None;
            confinement.gaps.push(gap);
        }
        // Init hid itself before the fork, and with that one's own files in /proc from oneself.
        best_effort(nix::sys::prctl::set_dumpable(true));
        confinement.gaps.extend(rlimits::offer_to_oom_killer());
        caps::drop_all()?;
        if let Some(directory) = policy.directory() {
            // By its path and after the mounts: an inherited directory would still be the one
            // below them, and `..` from there leads around every mask. After the capabilities, so
            // that what the program can't enter is told here.
            nix::unistd::chdir(directory.as_path()).map_err(|errno| {
                StepError::errno(Step::Chdir, errno, "enter the working directory").at(directory)
            })?;
        }
        if let Some(fd) = policy.keep_fd.filter(|&fd| !descriptors::is_open(fd)) {
            let what = format!("keep descriptor {fd}, which is not open");
            return Err(StepError::new(Step::Descriptors, what));
        }
        let image = Image::new(&self.plan.call, self.keeper.is_some())?;
        if let Some(socket) = self.keeper {
            self.plan.placeholder.replace(socket)?;
        }
        self.restrict(confinement)?;
        Ok(image)
    }

    /// The last restrictions, after which nothing of the start could be done any more.
    fn restrict(&self, confinement: &mut Confinement) -> Result<(), StepError> {
        let files = self.plan.policy.files.as_ref();
        let memory = match confinement.filesystem {
            FilesystemGuard::None => Memory::Shared(self.plan.policy.workspace.as_deref()),
            _ => Memory::Private,
        };
        let restricted = landlock::restrict(files, memory);
        match (restricted.scopes, self.scope) {
            (Ok(()), _) => {}
            (Err(error), ScopeNeed::Wanted) => {
                confinement.gaps.push(format!("{NO_SHIELD}: {error}"));
            }
            (Err(error), ScopeNeed::Mandatory) => {
                let what = format!("shield the jail: {error}");
                return Err(StepError::new(Step::Landlock, what));
            }
        }
        if let Some(files) = files {
            let stood = confinement.filesystem;
            let (stands, gap) = second_layer(stood, files.mode, restricted.writes);
            confinement.filesystem = stands;
            confinement.gaps.extend(gap);
            confinement.gaps.extend(memory.closed().map(|place| {
                format!(
                    "the machine's `{place}` holds the workspace, so commands can't write there"
                )
            }));
        }
        filter_calls(confinement);
        Ok(())
    }
}

/// What holds writes once Landlock has been tried on top of what stood, and what is lacking.
fn second_layer(
    stood: FilesystemGuard,
    mode: WriteMode,
    writes: Writes,
) -> (FilesystemGuard, Option<String>) {
    let by_mounts = matches!(stood, FilesystemGuard::Workspace | FilesystemGuard::Scope);
    match (writes, by_mounts) {
        (Writes::Held, true) | (Writes::NotAsked, _) => (stood, None),
        (Writes::Held, false) => (stood.with_landlock(mode), Some(NO_MOUNTS.to_owned())),
        (Writes::HeldInPart, _) => {
            let gap = "Landlock of this kernel knows some rights alone, all need Linux 6.10";
            (stood.with_landlock(mode), Some(gap.to_owned()))
        }
        (Writes::NotHeld(why), true) => (
            stood,
            Some(format!("devices may be written, no Landlock: {why}")),
        ),
        (Writes::NotHeld(why), false) => (
            stood,
            Some(format!("writes are not held at all, no Landlock: {why}")),
        ),
    }
}

/// Installs the filter of calls. Where it is all that could cut the network off and can't be had,
/// the network is open.
fn filter_calls(confinement: &mut Confinement) {
    let Err(errno) = seccomp::install(Sockets::of(confinement.network)) else {
        return;
    };
    let why = errno.desc();
    confinement
        .gaps
        .push(format!("calls are not filtered, io_uring is open: {why}"));
    if confinement.network == NetworkReach::Nothing {
        confinement.network = NetworkReach::Full;
        confinement
            .gaps
            .push("the network is not cut off".to_owned());
    }
}

/// What Landlock alone leaves open.
const NO_MOUNTS: &str = "no mounts of its own hold files: what is protected in the workspace may be \
                         written by commands, secrets are in sight, modes, owners and times may \
                         be changed everywhere, and `/tmp` and `/dev/shm` are the machine's";

/// What is lost without Landlock's scopes.
const NO_SHIELD: &str =
    "no shield for signals and abstract sockets, which needs Landlock as of Linux 6.12";

/// At most so many gaps, the last one telling how many were left out.
fn shortened(mut gaps: Vec<String>) -> Vec<String> {
    if gaps.len() > limits::GAPS_MAX {
        let more = gaps.len() - (limits::GAPS_MAX - 1);
        gaps.truncate(limits::GAPS_MAX - 1);
        gaps.push(format!("and {more} more"));
    }
    gaps
}

/// Everything that execve(2) needs.
struct Image {
    candidates: Vec<PathBuf>,
    argv: Vec<CString>,
    envp: Vec<CString>,
}

impl Image {
    fn new(call: &ProgramCall, with_keeper: bool) -> Result<Image, StepError> {
        let mut argv = vec![c_string(&call.program)?];
        for argument in &call.args {
            argv.push(c_string(argument)?);
        }
        let mut envp = Vec::new();
        // The variable says that 3 is the keeper's socket, so it must not be there by chance.
        let inherited = call
            .environment()
            .into_iter()
            .filter(|(name, _)| name != ENV_KEEPER);
        let keeper = with_keeper.then(|| (ENV_KEEPER.into(), KEEPER_FD.to_string().into()));
        for (mut pair, value) in inherited.chain(keeper) {
            pair.push("=");
            pair.push(value);
            envp.push(c_string(&pair)?);
        }
        Ok(Image {
            candidates: candidates(&call.program, &call.path()),
            argv,
            envp,
        })
    }

    /// Executes the first candidate there is; returns only the failure that tells most.
    ///
    /// Not execvp(3): it would hand a file that is no program to the shell.
    fn execute(&self) -> StepError {
        let mut telling = Errno::ENOENT;
        let mut at = self.candidates.first().cloned().unwrap_or_default();
        for candidate in &self.candidates {
            let path = match c_string(candidate.as_os_str()) {
                Ok(path) => path,
                Err(error) => return error,
            };
            if let Err(errno) = signals_in::unblock_all() {
                return StepError::errno(Step::Signals, errno, "let signals through");
            }
            let errno = match nix::unistd::execve(&path, &self.argv, &self.envp) {
                Ok(never) => match never {},
                Err(errno) => errno,
            };
            if errno != Errno::ENOENT && errno != Errno::ENOTDIR || self.candidates.len() == 1 {
                telling = errno;
                at = candidate.clone();
            }
            if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) {
                break;
            }
        }
        StepError::errno(Step::Exec, telling, "execute").at(&at)
    }
}

/// Where a program may lie: a name without a slash is looked up in PATH.
fn candidates(program: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.into()];
    }
    let found: Vec<PathBuf> = std::env::split_paths(path)
        .filter(|directory| !directory.as_os_str().is_empty())
        .map(|directory| directory.join(program))
        .collect();
    if found.is_empty() {
        vec![Path::new(program).to_owned()]
    } else {
        found
    }
}

fn c_string(text: &OsStr) -> Result<CString, StepError> {
    CString::new(text.as_bytes())
        .map_err(|_| StepError::new(Step::Exec, "pass an argument that holds a zero byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_name_is_looked_up_and_never_in_an_empty_path_entry() {
        let find = |program: &str, path: &str| candidates(program.as_ref(), path.as_ref());
        assert_eq!(
            find("sh", "/a::/b"),
            [PathBuf::from("/a/sh"), "/b/sh".into()]
        );
        assert_eq!(find("./sh", "/a"), [PathBuf::from("./sh")]);
        assert_eq!(find("/x/sh", "/a"), [PathBuf::from("/x/sh")]);
    }

    #[test]
    fn a_long_list_of_gaps_ends_with_their_number() {
        let gaps = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(gaps(32)), gaps(32));
        let mut expected = gaps(31);
        expected.push("and 2 more".to_owned());
        assert_eq!(shortened(gaps(33)), expected);
    }
}
