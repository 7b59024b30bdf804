//! Pid 1 of a tree or of one command in it: forks the program, passes signals on, reaps everybody,
//! and by ending takes the whole namespace with it.

use std::os::fd::OwnedFd;

use nix::sys::signal::Signal;
use nix::unistd::ForkResult;

use crate::confinement::{self, Facts, Hold};
use crate::descriptors::ProgramEnds;
use crate::inside::{InnerEnd, Message};
use crate::jail::Plan;
use crate::keeper;
use crate::limits;
use crate::mounts::{self, Ground, MountWatch};
use crate::namespaces::{self, Ids, Privilege};
use crate::policy::{JailKind, JailPolicy};
use crate::program::{Becoming, ScopeNeed};
use crate::report::{Confinement, EndReason, FilesystemGuard, NetworkReach, ProcessCap, Step};
use crate::signal::{self, Delivery, PidFd};
use crate::signals_in::SignalQueue;
use crate::steps::StepError;
use crate::sys::{self, best_effort};
use crate::tend::Tree;

/// Whose init it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A tree's, below a jail.
    Tree(Privilege, Ids),
    /// A command's, below the keeper, in namespaces inside the tree's.
    Command(&'a Ground),
}

/// What init is born with.
#[derive(Debug)]
pub(crate) struct Birth<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) place: Place<'a>,
    pub(crate) ends: ProgramEnds,
    pub(crate) inner: InnerEnd,
    /// The parent's pidfd, opened by the parent itself before the clone.
    pub(crate) parent: PidFd,
}

/// Runs as pid 1 until the program, the parent or the leader ends. Every signal must be blocked.
pub(crate) fn run(birth: Birth<'_>) -> ! {
    let Birth {
        plan,
        place,
        ends,
        inner,
        parent,
    } = birth;
    match start(plan, place, ends, &inner, &parent) {
        Ok(Begun {
            program,
            queue,
            mounts,
        }) => {
            let mut tree = Tree {
                program,
                queue,
                leader: plan.leader.as_ref(),
                asked_to_end: false,
                mounts,
                inner: &inner,
                fallen_told: 0,
            };
            let (verdict, reason) = tree.tend();
            let ended = |left_behind| Message::Ended {
                verdict,
                reason,
                left_behind,
            };
            let lingers = match plan.policy.kind {
                JailKind::Command => reason == EndReason::Program && tree.has_others(),
                JailKind::Worker => false,
            };
            if lingers {
                // Should it be killed while it waits, the program's own end is known.
                inner.tell(&ended(true));
            }
            if !lingers || tree.others_end_within(linger_ms(&plan.policy, tree.asked_to_end)) {
                inner.tell(&ended(false));
            }
            sys::exit_now(0)
        }
        Err(error) => {
            inner.tell(&Message::Failed(error));
            sys::exit_now(limits::EXIT_NOT_STARTED)
        }
    }
}

/// How long what a command's program left running may go on: a moment to bring its output to an
/// end, or the grace of those that were asked to end together with the program.
pub(crate) fn linger_ms(policy: &JailPolicy, asked_to_end: bool) -> u64 {
    if asked_to_end && policy.linger_ms > 0 {
        policy.linger_ms.max(limits::COMMAND_GRACE_MS)
    } else {
        policy.linger_ms
    }
}

/// A program that was forked, and what init needs to tend it.
struct Begun {
    program: u32,
    queue: SignalQueue,
    mounts: Option<MountWatch>,
}

/// Sets the namespace up and forks the keeper and the program.
fn start(
    plan: &Plan,
    place: Place<'_>,
    ends: ProgramEnds,
    inner: &InnerEnd,
    parent: &PidFd,
) -> Result<Begun, StepError> {
    sys::reset_dispositions();
    match place {
        Place::Tree(Privilege::UserNamespace, ids) => ids.map_identity()?,
        Place::Tree(Privilege::Own, _) | Place::Command(_) => {}
    }
    follow(parent)?;
    nix::unistd::setsid()
        .map_err(|errno| StepError::errno(Step::Session, errno, "make a session"))?;
    let (ground, confinement) = build(plan, place);
    hide();
    let (ends, keeper) = match (place, plan.policy.kind) {
        (Place::Tree(..), JailKind::Worker) => fork_keeper(plan, ground.get(), ends)?,
        (Place::Tree(..), JailKind::Command) | (Place::Command(_), _) => (ends, None),
    };
    let queue = SignalQueue::open()?;
    // SAFETY: this process has one thread, so the child may use everything it inherits.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Parent { child }) => Ok(Begun {
            program: u32::try_from(child.as_raw()).unwrap_or(0),
            queue,
            mounts: MountWatch::open(ground.get().steps.clone()),
        }),
        Ok(ForkResult::Child) => {
            drop(queue);
            let scope = ScopeNeed::Wanted;
            let becoming = Becoming {
                plan,
                ends: &ends,
                inner,
                keeper: keeper.as_ref(),
                scope,
            };
            becoming.become_program(confinement)
        }
        Err(errno) => Err(StepError::errno(Step::Fork, errno, "fork the program")),
    }
}

/// Hides this process and the keeper: the program must not look into one that speaks for it or holds
/// capabilities. Not before the maps are written: a process that is not dumpable owns nothing in
/// /proc.
fn hide() {
    best_effort(nix::sys::prctl::set_dumpable(false));
}

/// Forks the keeper before the program, so that it keeps what the program gives up; gives the
/// program's end of their socket.
fn fork_keeper(
    plan: &Plan,
    ground: &Ground,
    ends: ProgramEnds,
) -> Result<(ProgramEnds, Option<OwnedFd>), StepError> {
    let (theirs, ours) = keeper::socket()?;
    // SAFETY: this process has one thread, so the child may use everything it inherits.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Parent { .. }) => Ok((ends, Some(theirs))),
        Ok(ForkResult::Child) => {
            // It must not hold the channel, or the program could not close it.
            drop((ends, theirs));
            keeper::serve(plan, ground, ours)
        }
        Err(errno) => Err(StepError::errno(Step::Fork, errno, "fork the keeper")),
    }
}

/// Asks to die with the parent. It lies outside this PID namespace, where getppid(2) says 0 whether
/// it lives or not, so that it had not ended before is seen by its pidfd.
fn follow(parent: &PidFd) -> Result<(), StepError> {
    sys::die_with_parent()
        .map_err(|errno| StepError::errno(Step::Signals, errno, "follow the jail"))?;
    match parent.has_ended() {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => sys::exit_now(limits::EXIT_NOT_STARTED),
    }
}

/// Makes what the namespace holds and says what of it stands.
fn build<'a>(plan: &Plan, place: Place<'a>) -> (Mounted<'a>, Confinement) {
    let policy = &plan.policy;
    let (ground, mut gaps) = match place {
        Place::Tree(..) => {
            let (ground, gaps) = mounts::build(policy, &plan.call);
            (Mounted::Here(ground), gaps)
        }
        Place::Command(ground) => {
            let gaps = mounts::build_for_command(ground, policy.files.as_ref());
            (Mounted::Around(ground), gaps)
        }
    };
    let filesystem = match (ground.get().guard, &ground) {
        (FilesystemGuard::PrivateMounts, Mounted::Around(_)) if !gaps.is_empty() => {
            FilesystemGuard::None
        }
        (guard, _) => guard,
    };
    gaps.extend(plan.cgroup_lost.clone());
    let uncapped = namespaces::cap_processes(policy.process_cap);
    let procs = match &uncapped {
        None => ProcessCap::Tree,
        // In a user namespace the kernel counts the user's tasks in there alone.
        Some(_) if !nix::unistd::geteuid().is_root() => ProcessCap::Uid,
        Some(_) => ProcessCap::None,
    };
    gaps.extend(uncapped);
    gaps.extend(mounts::seal_proc(ground.get().view));
    match policy.network {
        NetworkReach::Full | NetworkReach::Nothing => {}
        NetworkReach::Loopback => gaps.extend(namespaces::raise_loopback()),
    }
    let confinement = confinement::report(Facts {
        hold: Hold::Namespace,
        cgroup: plan.cgroup.as_ref().map(|group| group.bounds),
        procs,
        network: policy.network,
        filesystem,
        gaps,
    });
    (ground, confinement)
}

/// The mounts that a program has: made for its tree here, or those of the tree around a command.
enum Mounted<'a> {
    Here(Ground),
    Around(&'a Ground),
}

impl Mounted<'_> {
    fn get(&self) -> &Ground {
        match self {
            Mounted::Here(ground) => ground,
            Mounted::Around(ground) => ground,
        }
    }
}

/// Passes a signal to the program's group, and after SIGTERM lets a stopped one act on it.
///
/// The program is a child that is not reaped, so its number is its own. Before its setsid(2) there
/// is no such group, and the signal goes to the process alone.
pub(crate) fn pass_to_program(program: u32, signal: Signal) {
    let signals: &[Signal] = match signal {
        Signal::SIGTERM => &[Signal::SIGTERM, Signal::SIGCONT],
        // Outside a terminal's control SIGTSTP would stop nothing: the group is orphaned.
        Signal::SIGTSTP => &[Signal::SIGSTOP],
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
