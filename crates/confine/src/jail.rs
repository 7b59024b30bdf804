//! The outer process: takes over descriptors and signals, starts the tree on the highest rung that
//! can be had, and tells the end.

use crate::descriptors::{self, Channel, ProgramEnds};
use crate::exit_file::ExitFile;
use crate::guard::{Conclusion, Running};
use crate::init::{self, Birth};
use crate::inside::{self, InnerEnd};
use crate::namespaces::{Ids, Privilege};
use crate::policy::JailPolicy;
use crate::program::{self, ProgramCall};
use crate::report::{
    Confinement, FilesystemGuard, JailLine, KillReach, MemoryCap, NetworkReach, Outcome,
    ProcessCap, Rung, Step,
};
use crate::signal::PidFd;
use crate::signals_in::{self, SignalPipe};
use crate::steps::StepError;
use crate::sys::best_effort;
use crate::sys::{self, Cloned};
use crate::verdict::Verdict;
use crate::watch;

/// What every process of the start needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) policy: JailPolicy,
    pub(crate) call: ProgramCall,
    /// The leader to follow, if it is to be followed by its pidfd.
    pub(crate) leader: Option<PidFd>,
    /// What stood in the way of each boundary that was tried in vain.
    pub(crate) obstacles: Vec<String>,
}

/// The jail before and between its attempts at a rung.
#[derive(Debug)]
pub(crate) struct Jail {
    pub(crate) plan: Plan,
    pub(crate) channel: Channel,
    pub(crate) signals: SignalPipe,
    exit_file: Option<ExitFile>,
    ends: ProgramEnds,
}

/// One way to bound the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// A PID namespace with an init.
    Namespaces(Privilege),
    /// The program's process group.
    Group,
}

impl Boundary {
    fn rung(self) -> Rung {
        match self {
            Boundary::Namespaces(_) => Rung::Pidns,
            Boundary::Group => Rung::Group,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Boundary::Namespaces(Privilege::Own) => "namespaces by own privilege",
            Boundary::Namespaces(Privilege::UserNamespace) => "namespaces inside a user namespace",
            Boundary::Group => "a process group",
        }
    }
}

/// The boundaries a policy allows, strongest first.
fn boundaries(policy: &JailPolicy) -> Vec<Boundary> {
    let [own, user] = Privilege::ORDER;
    [
        Boundary::Namespaces(own),
        Boundary::Namespaces(user),
        Boundary::Group,
    ]
    .into_iter()
    .filter(|boundary| (policy.require..=policy.highest).contains(&boundary.rung()))
    .collect()
}

/// Starts `call` under `policy`, waits for the end of the tree, reports it and returns the verdict.
pub(crate) fn run(policy: JailPolicy, call: ProgramCall) -> Verdict {
    let claimed =
        descriptors::close_strangers(policy.keep_fd).and_then(|()| Channel::claim(policy.kind));
    let (channel, ends) = match claimed {
        Ok(claimed) => claimed,
        // Without a channel there is nobody to tell but by the exit code.
        Err(error) => return Verdict::Exited(error.exit_code()),
    };
    let exit_file = match policy.exit_file.as_deref().map(ExitFile::open).transpose() {
        Ok(exit_file) => exit_file,
        Err(error) => return conclude(&channel, None, Conclusion::failed(error)),
    };
    let listening = watch::leader(policy.leader_pid)
        .and_then(|leader| SignalPipe::open().map(|signals| (leader, signals)));
    let (leader, signals) = match listening {
        Ok(listening) => listening,
        Err(error) => return conclude(&channel, exit_file.as_ref(), Conclusion::failed(error)),
    };
    let boundaries = boundaries(&policy);
    let plan = Plan {
        policy,
        call,
        leader,
        obstacles: Vec::new(),
    };
    Jail {
        plan,
        channel,
        signals,
        exit_file,
        ends,
    }
    .run(&boundaries)
}

/// Tells the end in every way there is.
fn conclude(channel: &Channel, exit_file: Option<&ExitFile>, conclusion: Conclusion) -> Verdict {
    let line = match &conclusion.outcome {
        Outcome::Failed(failed) => JailLine::Failed(failed.clone()),
        Outcome::Ended(ended) => JailLine::Ended(*ended),
    };
    if let Some(Err(error)) = exit_file.map(|file| file.write(conclusion.outcome)) {
        // The line and the wait status still tell; the caller's log of descriptor 2 has this.
        best_effort(nix::unistd::write(
            std::io::stderr(),
            format!("jail: {error}\n").as_bytes(),
        ));
    }
    channel.last_line(&line);
    conclusion.verdict
}

/// What became of one attempt.
enum Attempt {
    /// The boundary can't be had here; the next may be tried.
    Lost(Jail, StepError),
    /// The tree has ended or failed for a reason that no other boundary changes.
    Over(Jail, Conclusion),
}

impl Jail {
    fn run(mut self, boundaries: &[Boundary]) -> Verdict {
        let mut last = None;
        for &boundary in boundaries {
            match self.attempt(boundary) {
                Attempt::Over(jail, conclusion) => {
                    return conclude(&jail.channel, jail.exit_file.as_ref(), conclusion);
                }
                Attempt::Lost(jail, error) => {
                    self = jail;
                    self.plan
                        .obstacles
                        .push(format!("no {}: {error}", boundary.name()));
                    last = Some(error);
                }
            }
        }
        let refused = self.refusal(last);
        conclude(
            &self.channel,
            self.exit_file.as_ref(),
            Conclusion::failed(refused),
        )
    }

    /// No allowed rung can be had: says which one was wanted and what stood in the way of each.
    fn refusal(&self, last: Option<StepError>) -> StepError {
        let what = format!(
            "reach the required rung `{}` ({})",
            self.plan.policy.require,
            self.plan.obstacles.join("; ")
        );
        let errno = last.and_then(|error| error.errno);
        StepError {
            errno,
            ..StepError::new(Step::Require, what)
        }
    }

    fn attempt(self, boundary: Boundary) -> Attempt {
        let (jail_end, inner) = match inside::line() {
            Ok(line) => line,
            Err(error) => return Attempt::Over(self, Conclusion::failed(error)),
        };
        let myself = match PidFd::open(std::process::id()) {
            Ok(myself) => myself,
            Err(error) => {
                let error = StepError::new(Step::Fork, format!("fork: {error}"));
                return Attempt::Over(self, Conclusion::failed(error));
            }
        };
        let ids = Ids::current();
        if let Err(errno) = signals_in::block_all() {
            let error = StepError::errno(Step::Signals, errno, "block signals for the fork");
            return Attempt::Over(self, Conclusion::failed(error));
        }
        let cloned = match boundary {
            Boundary::Namespaces(privilege) => sys::clone_into(privilege.flags(), None),
            Boundary::Group => sys::fork_with_pidfd(),
        };
        if let Ok(Cloned::Child) = cloned {
            drop(jail_end);
            self.become_inside(boundary, ids, inner, myself)
        }
        drop(inner);
        // An empty mask is always valid, so this can't fail; if it could, signals would only wait.
        best_effort(signals_in::unblock_all());
        match cloned {
            Ok(Cloned::Parent(pid, pidfd)) => {
                self.guard(boundary, PidFd::from_creation(pid, pidfd), jail_end)
            }
            Ok(Cloned::Child) => sys::exit_now(crate::limits::EXIT_NOT_STARTED),
            Err(errno) => Attempt::Lost(
                self,
                StepError::errno(Step::Unshare, errno, "fork into namespaces"),
            ),
        }
    }

    /// In the child: gives up what is the jail's and goes on as init or as the program.
    fn become_inside(self, boundary: Boundary, ids: Ids, inner: InnerEnd, myself: PidFd) -> ! {
        let Jail {
            plan,
            channel,
            signals,
            exit_file,
            ends,
        } = self;
        drop((channel, signals, exit_file));
        match boundary {
            Boundary::Namespaces(privilege) => init::run(Birth {
                plan: &plan,
                ids,
                privilege,
                ends,
                inner,
                jail: myself,
            }),
            Boundary::Group => {
                let confinement = group_confinement(&plan);
                if sys::die_with_parent().is_err() || !matches!(myself.has_ended(), Ok(false)) {
                    sys::exit_now(crate::limits::EXIT_NOT_STARTED);
                }
                drop(myself);
                program::become_program(&plan.policy, &plan.call, &ends, &inner, confinement)
            }
        }
    }

    /// In the jail: stands guard until the tree has ended.
    fn guard(self, boundary: Boundary, below: PidFd, inside: inside::JailEnd) -> Attempt {
        let Jail {
            plan,
            channel,
            signals,
            exit_file,
            ends,
        } = self;
        let mut running = Running::new(boundary, below, inside);
        let told = running.guard(&plan, &channel, &signals);
        let jail = Jail {
            plan,
            channel,
            signals,
            exit_file,
            ends,
        };
        match told {
            Ok(conclusion) => Attempt::Over(jail, conclusion),
            Err(lost) => Attempt::Lost(jail, lost),
        }
    }
}

fn group_confinement(plan: &Plan) -> Confinement {
    let mut gaps = plan.obstacles.clone();
    gaps.push("a process that calls setsid escapes a kill".to_owned());
    Confinement {
        rung: Rung::Group,
        kill: KillReach::Group,
        procs: ProcessCap::None,
        memory: MemoryCap::None,
        network: NetworkReach::Full,
        filesystem: FilesystemGuard::None,
        gaps,
    }
}
