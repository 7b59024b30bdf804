//! Pid 1 of the tree: forks the program, passes signals on, reaps everybody, and by ending takes
//! the whole namespace with it.

use std::os::fd::AsFd;

use nix::poll::PollTimeout;
use nix::sys::signal::Signal;
use nix::unistd::ForkResult;

use crate::descriptors::ProgramEnds;
use crate::inside::{InnerEnd, Message};
use crate::jail::Plan;
use crate::mounts;
use crate::namespaces::{self, Ids, Privilege};
use crate::program;
use crate::report::{
    Confinement, EndReason, FilesystemGuard, KillReach, MemoryCap, NetworkReach, ProcessCap, Rung,
    Step,
};
use crate::signal::{self, Delivery, PidFd};
use crate::signals_in::SignalQueue;
use crate::steps::StepError;
use crate::sys;
use crate::sys::best_effort;
use crate::verdict::{self, Verdict};
use crate::watch::{self, Source};

/// What init is born with.
#[derive(Debug)]
pub(crate) struct Birth<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) ids: Ids,
    pub(crate) privilege: Privilege,
    pub(crate) ends: ProgramEnds,
    pub(crate) inner: InnerEnd,
    /// The jail's pidfd, opened by the jail itself before the clone.
    pub(crate) jail: PidFd,
}

/// Runs as pid 1 until the program, the jail or the leader ends. Every signal must be blocked.
pub(crate) fn run(birth: Birth<'_>) -> ! {
    let inner = match start(birth) {
        Ok((tree, inner)) => {
            let (verdict, reason) = tree.tend();
            inner.tell(&Message::Ended(verdict, reason));
            sys::exit_now(0)
        }
        Err((error, inner)) => {
            inner.tell(&Message::Failed(error));
            inner
        }
    };
    drop(inner);
    sys::exit_now(crate::limits::EXIT_NOT_STARTED)
}

/// Sets the namespace up and forks the program.
fn start(birth: Birth<'_>) -> Result<(Tree<'_>, InnerEnd), (StepError, InnerEnd)> {
    let Birth {
        plan,
        ids,
        privilege,
        ends,
        inner,
        jail,
    } = birth;
    match fork_program(plan, ids, privilege, ends, &inner, &jail) {
        Ok((program, queue)) => Ok((
            Tree {
                program,
                queue,
                leader: plan.leader.as_ref(),
            },
            inner,
        )),
        Err(error) => Err((error, inner)),
    }
}

fn fork_program(
    plan: &Plan,
    ids: Ids,
    privilege: Privilege,
    ends: ProgramEnds,
    inner: &InnerEnd,
    jail: &PidFd,
) -> Result<(u32, SignalQueue), StepError> {
    sys::reset_dispositions();
    match privilege {
        Privilege::Own => {}
        Privilege::UserNamespace => ids.map_identity()?,
    }
    follow_jail(jail)?;
    nix::unistd::setsid()
        .map_err(|errno| StepError::errno(Step::Session, errno, "make a session"))?;
    let confinement = build(plan);
    let queue = SignalQueue::open()?;
    // SAFETY: this process has one thread, so the child may use everything it inherits.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Parent { child }) => {
            // The program must not look into init, which alone may speak for it. Not earlier: a
            // process that is not dumpable owns nothing in /proc, where the maps are written.
            best_effort(nix::sys::prctl::set_dumpable(false));
            Ok((u32::try_from(child.as_raw()).unwrap_or(0), queue))
        }
        Ok(ForkResult::Child) => {
            drop(queue);
            program::become_program(&plan.policy, &plan.call, &ends, inner, confinement)
        }
        Err(errno) => Err(StepError::errno(Step::Fork, errno, "fork the program")),
    }
}

/// Asks to die with the jail. It lies outside this PID namespace, where getppid(2) says 0 whether
/// it lives or not, so that it had not ended before is seen by its pidfd.
fn follow_jail(jail: &PidFd) -> Result<(), StepError> {
    sys::die_with_parent()
        .map_err(|errno| StepError::errno(Step::Signals, errno, "follow the jail"))?;
    match jail.has_ended() {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => sys::exit_now(crate::limits::EXIT_NOT_STARTED),
    }
}

/// Makes what the namespace holds and says what of it stands.
fn build(plan: &Plan) -> Confinement {
    let mut gaps = Vec::new();
    match mounts::cut_propagation() {
        Ok(()) => gaps.extend(mounts::private_proc()),
        // A mount now would show on the machine, so none is made.
        Err(errno) => gaps.push(format!("no mounts of its own: {}", errno.desc())),
    }
    let uncapped = namespaces::cap_processes(plan.policy.process_cap);
    let procs = match &uncapped {
        None => ProcessCap::Tree,
        Some(_) => ProcessCap::None,
    };
    gaps.extend(uncapped);
    Confinement {
        rung: Rung::Pidns,
        kill: KillReach::Complete,
        procs,
        memory: MemoryCap::None,
        network: NetworkReach::Full,
        filesystem: FilesystemGuard::None,
        gaps,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Signal,
    LeaderGone,
}

/// The running tree, as init sees it.
#[derive(Debug)]
struct Tree<'a> {
    program: u32,
    queue: SignalQueue,
    leader: Option<&'a PidFd>,
}

impl Tree<'_> {
    /// Serves the tree until it is to end.
    fn tend(&self) -> (Verdict, EndReason) {
        let killed = Verdict::Signalled(libc::SIGKILL);
        loop {
            if let Some(verdict) = self.reap() {
                return (verdict, EndReason::Program);
            }
            let mut sources = vec![Source::readable(Event::Signal, self.queue.as_fd())];
            if let Some(leader) = self.leader {
                sources.push(Source::readable(Event::LeaderGone, leader.as_fd()));
            }
            let Ok(events) = watch::wait(&sources, PollTimeout::NONE) else {
                return (killed, EndReason::KilledFromOutside);
            };
            if events.contains(&Event::LeaderGone) {
                return (killed, EndReason::LeaderGone);
            }
            while let Some(signal) = self.queue.next() {
                self.pass_on(signal);
            }
        }
    }

    /// Reaps every process that has ended; gives the program's end when it is among them.
    fn reap(&self) -> Option<Verdict> {
        while let Ok(Some((pid, verdict))) = verdict::reap(-1, libc::WNOHANG) {
            if pid == self.program {
                return Some(verdict);
            }
        }
        None
    }

    fn pass_on(&self, signal: Signal) {
        if signal == Signal::SIGCHLD {
            return;
        }
        pass_to_program(self.program, signal);
    }
}

/// Passes a signal to the program's group, and after SIGTERM lets a stopped one act on it.
///
/// The program is a child that is not reaped, so its number is its own. Before its setsid(2) there
/// is no such group, and the signal goes to the process alone.
pub(crate) fn pass_to_program(program: u32, signal: Signal) {
    let signals: &[Signal] = match signal {
        Signal::SIGTERM => &[Signal::SIGTERM, Signal::SIGCONT],
        _ => &[signal],
    };
    for &signal in signals {
        if matches!(signal::signal_group(program, signal), Ok(Delivery::Gone))
            && let Ok(process) = PidFd::open(program)
        {
            best_effort(process.send(signal));
        }
    }
}
