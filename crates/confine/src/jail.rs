//! The outer process: takes over descriptors and signals, starts the tree on the highest rung that
//! can be had, and tells the end.

use nix::errno::Errno;

use crate::cgroup::Cgroup;
use crate::confinement::{self, Facts, Hold};
use crate::descriptors::{self, Channel, Placeholder, ProgramEnds};
use crate::exit_file::ExitFile;
use crate::guard::{Conclusion, Running};
use crate::init::{self, Birth, Place};
use crate::inside::{self, InnerEnd, Message};
use crate::limits;
use crate::namespaces::{Ids, Privilege};
use crate::policy::JailPolicy;
use crate::program::{Becoming, ProgramCall, ScopeNeed};
use crate::report::{
    Confinement, FilesystemGuard, JailLine, NetworkReach, Outcome, ProcessCap, Rung, Step,
};
use crate::signal::PidFd;
use crate::signals_in::{self, SignalPipe};
use crate::steps::StepError;
use crate::sys::{self, Cloned, best_effort};
use crate::verdict::Verdict;
use crate::walk;
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
    /// The group that everything is started in.
    pub(crate) cgroup: Option<Cgroup>,
    /// Why there is none, although one was asked for.
    pub(crate) cgroup_lost: Option<String>,
    pub(crate) placeholder: Placeholder,
}

/// The jail before and between its attempts at a rung.
#[derive(Debug)]
struct Jail {
    plan: Plan,
    channel: Channel,
    signals: SignalPipe,
    exit_file: Option<ExitFile>,
    ends: ProgramEnds,
}

/// One way to bound the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// A PID namespace with an init.
    Namespaces(Privilege),
    /// The jail, to which all orphans below it come.
    Subreaper,
    /// The program's process group.
    Group,
}

impl Boundary {
    fn rung(self) -> Rung {
        match self {
            Boundary::Namespaces(_) => Rung::Pidns,
            Boundary::Subreaper => Rung::Subreaper,
            Boundary::Group => Rung::Group,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Boundary::Namespaces(Privilege::Own) => "namespaces by own privilege",
            Boundary::Namespaces(Privilege::UserNamespace) => "namespaces inside a user namespace",
            Boundary::Subreaper => "subreaper",
            Boundary::Group => "process group",
        }
    }
}

/// The boundaries a policy allows, strongest first. In a cgroup each of them is good enough for
/// the rung `cgroup2`.
fn boundaries(policy: &JailPolicy, in_cgroup: bool) -> Vec<Boundary> {
    let [own, user] = Privilege::ORDER;
    let all = [
        Boundary::Namespaces(own),
        Boundary::Namespaces(user),
        Boundary::Subreaper,
        Boundary::Group,
    ];
    all.into_iter()
        .filter(|boundary| boundary.rung() <= policy.highest)
        .filter(|boundary| in_cgroup || boundary.rung() >= policy.require)
        .collect()
}

/// Starts `call` under `policy`, waits for the end of the tree, reports it and returns the verdict.
pub(crate) fn run(mut policy: JailPolicy, call: ProgramCall) -> Verdict {
    let claimed = descriptors::close_strangers(policy.keep_fd)
        .and_then(|()| Placeholder::take())
        .and_then(|placeholder| Ok((placeholder, Channel::claim(policy.kind)?)));
    let (placeholder, (channel, ends)) = match claimed {
        Ok(claimed) => claimed,
        // Without a channel there is nobody to tell but by the exit code.
        Err(error) => return Verdict::Exited(error.exit_code()),
    };
    let workspace = policy.workspace.as_deref();
    let exit_file = policy
        .exit_file
        .as_deref()
        .map(|path| ExitFile::open(path, workspace));
    let exit_file = match exit_file.transpose() {
        Ok(exit_file) => exit_file,
        Err(error) => return conclude(&channel, None, Conclusion::failed(error)),
    };
    let listening = watch::leader(policy.leader_pid)
        .and_then(|leader| SignalPipe::open().map(|signals| (leader, signals)));
    let (leader, signals) = match listening {
        Ok(listening) => listening,
        Err(error) => return conclude(&channel, exit_file.as_ref(), Conclusion::failed(error)),
    };
    let (cgroup, cgroup_lost) = match &policy.cgroup {
        Some(delegated) if policy.highest >= Rung::Cgroup2 => {
            match Cgroup::create(delegated, &policy) {
                Ok(group) => (Some(group), None),
                Err(error) => (None, Some(format!("no cgroup: {error}"))),
            }
        }
        Some(_) | None => (None, None),
    };
    // A link on the way to it may be covered later, where the directory itself stays visible.
    policy.cwd = policy
        .directory()
        .map(|path| path.canonicalize().unwrap_or(path.clone()));
    let boundaries = boundaries(&policy, cgroup.is_some());
    let obstacles = cgroup_lost.iter().cloned().collect();
    let plan = Plan {
        policy,
        call,
        leader,
        obstacles,
        cgroup,
        cgroup_lost,
        placeholder,
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
        let complaint = format!("jail: {error}\n");
        best_effort(nix::unistd::write(std::io::stderr(), complaint.as_bytes()));
    }
    channel.lines().last(&line);
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
                Attempt::Over(jail, conclusion) => return jail.end(conclusion),
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
        self.end(Conclusion::failed(refused))
    }

    /// Leaves the delegated directory as it was, and tells.
    fn end(&self, mut conclusion: Conclusion) -> Verdict {
        if let Some(group) = &self.plan.cgroup {
            if group.ran_out_of_memory() {
                conclusion.blame_memory();
            }
            if group.wait_until_empty() {
                group.remove();
            }
        }
        conclude(&self.channel, self.exit_file.as_ref(), conclusion)
    }

    /// No allowed rung can be had: says which one was wanted and what stood in the way of each.
    fn refusal(&self, last: Option<StepError>) -> StepError {
        let mut what = format!("reach the required rung `{}`", self.plan.policy.require);
        if self.plan.obstacles.is_empty() {
            // Only a cgroup can be missing without anything having been tried.
            what.push_str(" (no cgroup directory was delegated; hint: set one in the policy)");
        } else {
            what.push_str(&format!(" ({})", self.plan.obstacles.join("; ")));
        }
        let errno = last.and_then(|error| error.errno);
        StepError {
            errno,
            ..StepError::new(Step::Require, what)
        }
    }

    fn attempt(self, boundary: Boundary) -> Attempt {
        let made = inside::line().and_then(|line| Ok((line, hold_myself()?)));
        let ((jail_end, inner), myself) = match made {
            Ok(made) => made,
            Err(error) => return Attempt::Over(self, Conclusion::failed(error)),
        };
        let ids = Ids::current();
        if let Err(errno) = signals_in::block_all() {
            let error = StepError::errno(Step::Signals, errno, "block signals for the fork");
            return Attempt::Over(self, Conclusion::failed(error));
        }
        let cgroup = self.plan.cgroup.as_ref().map(Cgroup::as_fd);
        let cloned = match boundary {
            Boundary::Namespaces(privilege) => {
                sys::clone_into(privilege.flags(self.plan.policy.network), cgroup)
            }
            Boundary::Subreaper => become_subreaper().and_then(|()| sys::fork_with_pidfd()),
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
            Ok(Cloned::Child) => sys::exit_now(limits::EXIT_NOT_STARTED),
            Err(errno) => match boundary {
                Boundary::Namespaces(_) | Boundary::Subreaper => Attempt::Lost(
                    self,
                    StepError::errno(Step::Unshare, errno, "fork the tree"),
                ),
                // There is nothing below it to try.
                Boundary::Group => {
                    let error = StepError::errno(Step::Fork, errno, "fork the program");
                    Attempt::Over(self, Conclusion::failed(error))
                }
            },
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
        let (hold, scope) = match boundary {
            Boundary::Namespaces(privilege) => {
                let place = Place::Tree(privilege, ids);
                init::run(Birth {
                    plan: &plan,
                    place,
                    ends,
                    inner,
                    parent: myself,
                })
            }
            Boundary::Subreaper => (Hold::Subreaper, ScopeNeed::Mandatory),
            Boundary::Group => (Hold::Group, ScopeNeed::Wanted),
        };
        if sys::die_with_parent().is_err() || !matches!(myself.has_ended(), Ok(false)) {
            sys::exit_now(limits::EXIT_NOT_STARTED);
        }
        drop(myself);
        if let Some(Err(error)) = plan.cgroup.as_ref().map(Cgroup::join) {
            inner.tell(&Message::Failed(error));
            sys::exit_now(limits::EXIT_NOT_STARTED);
        }
        let confinement = confinement_without_namespaces(&plan, hold);
        let becoming = Becoming {
            plan: &plan,
            ends: &ends,
            inner: &inner,
            keeper: None,
            scope,
        };
        becoming.become_program(confinement)
    }

    /// In the jail: stands guard until the tree has ended.
    fn guard(self, boundary: Boundary, below: PidFd, inside: inside::JailEnd) -> Attempt {
        let mut running = Running::new(boundary, below, inside);
        match running.guard(&self.plan, &self.channel, &self.signals) {
            Ok(conclusion) => Attempt::Over(self, conclusion),
            Err(lost) => Attempt::Lost(self, lost),
        }
    }
}

/// Opens a hold on this very process for its child, which may see it end but not ask for it.
pub(crate) fn hold_myself() -> Result<PidFd, StepError> {
    PidFd::for_watching(std::process::id())
        .map_err(|errno| StepError::errno(Step::Fork, errno, "watch this very process"))
}

/// The kernel without a list of children can't be walked; that is found out before the fork.
fn become_subreaper() -> Result<(), Errno> {
    walk::check()?;
    walk::become_subreaper()
}

fn confinement_without_namespaces(plan: &Plan, hold: Hold) -> Confinement {
    let mut gaps = plan.obstacles.clone();
    // Whether a filter of calls can stand in is found out by the program itself.
    match plan.policy.network {
        NetworkReach::Full | NetworkReach::Nothing => {}
        NetworkReach::Loopback => gaps.push(NO_LOOPBACK.to_owned()),
    }
    confinement::report(Facts {
        hold,
        cgroup: plan.cgroup.as_ref().map(|group| group.bounds),
        procs: user_cap(hold),
        network: match plan.policy.network {
            NetworkReach::Full => NetworkReach::Full,
            NetworkReach::Loopback | NetworkReach::Nothing => NetworkReach::Nothing,
        },
        filesystem: FilesystemGuard::None,
        gaps,
    })
}

/// What a filter of calls costs in place of a network namespace.
const NO_LOOPBACK: &str =
    "no loopback of its own: all sockets of the network are refused, those of this machine too";

/// Root has no such limit, whatever is set (setrlimit(2)); a group promises none.
fn user_cap(hold: Hold) -> ProcessCap {
    match hold {
        Hold::Subreaper if !nix::unistd::geteuid().is_root() => ProcessCap::Uid,
        Hold::Namespace | Hold::Subreaper | Hold::Group => ProcessCap::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_lies_between_what_is_required_and_what_is_allowed() {
        let tried = |require, highest, in_cgroup| {
            let policy = JailPolicy {
                require,
                highest,
                ..JailPolicy::default()
            };
            boundaries(&policy, in_cgroup)
        };
        let [own, user] = Privilege::ORDER.map(Boundary::Namespaces);
        let all = vec![own, user, Boundary::Subreaper, Boundary::Group];
        assert_eq!(tried(Rung::Group, Rung::Cgroup2, false), all);
        assert_eq!(tried(Rung::Pidns, Rung::Cgroup2, false), [own, user]);
        assert_eq!(
            tried(Rung::Subreaper, Rung::Subreaper, false),
            [Boundary::Subreaper]
        );
        assert_eq!(tried(Rung::Cgroup2, Rung::Cgroup2, false), []);
        assert_eq!(tried(Rung::Cgroup2, Rung::Cgroup2, true), all);
    }
}
