//! The jail while its tree runs: passes signals on, watches the leader, and judges the end.

use std::os::fd::AsFd;

use nix::poll::PollTimeout;
use nix::sys::signal::Signal;

use crate::descriptors::Channel;
use crate::init::pass_to_program;
use crate::inside::{JailEnd, Message, Next};
use crate::jail::{Boundary, Plan};
use crate::report::{EndReason, JailLine, Outcome, Started, Step};
use crate::signal::{self, PidFd};
use crate::signals_in::SignalPipe;
use crate::steps::StepError;
use crate::sys::best_effort;
use crate::verdict::{self, Verdict};
use crate::watch::{self, Source};

/// How it ended: what is reported, and what the jail's own end says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conclusion {
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
}

impl Conclusion {
    pub(crate) fn failed(error: StepError) -> Conclusion {
        let verdict = Verdict::Exited(error.exit_code());
        Conclusion {
            outcome: Outcome::Failed(error.into_failed()),
            verdict,
        }
    }

    fn ended(verdict: Verdict, reason: EndReason) -> Conclusion {
        Conclusion {
            outcome: Outcome::Ended(verdict.ended(reason)),
            verdict,
        }
    }
}

/// What the inside has told so far.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Nothing,
    Started,
    Failed(StepError),
    Ended(Verdict, EndReason),
}

/// The facts at the end of a tree.
#[derive(Debug, Clone)]
struct Facts {
    boundary: Boundary,
    told: Told,
    started: bool,
    killed: Option<EndReason>,
    /// The end of the process below the jail.
    below: Verdict,
}

/// Judges the end; `Err` when only the boundary was lost, so that a lower one may be tried.
fn judge(facts: Facts) -> Result<Conclusion, StepError> {
    let lost = |step| matches!(step, Step::Unshare | Step::UserMap);
    match (facts.told, facts.killed, facts.boundary) {
        (Told::Failed(error), None, _) if !facts.started && lost(error.step) => Err(error),
        (Told::Failed(error), _, _) => Ok(Conclusion::failed(error)),
        (Told::Ended(verdict, reason), _, _) => Ok(Conclusion::ended(verdict, reason)),
        (Told::Nothing | Told::Started, Some(reason), _) => {
            Ok(Conclusion::ended(Verdict::Signalled(libc::SIGKILL), reason))
        }
        // Init tells before it ends, so one that did not was killed by somebody else.
        (Told::Nothing | Told::Started, None, Boundary::Namespaces(_)) => Ok(Conclusion::ended(
            Verdict::Signalled(libc::SIGKILL),
            EndReason::KilledFromOutside,
        )),
        (Told::Nothing | Told::Started, None, Boundary::Group) => {
            Ok(Conclusion::ended(facts.below, EndReason::Program))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Inside,
    Below,
    Signal,
    LeaderGone,
}

/// A tree that has been forked.
#[derive(Debug)]
pub(crate) struct Running {
    boundary: Boundary,
    below: PidFd,
    inside: Option<JailEnd>,
    told: Told,
    started: bool,
    killed: Option<EndReason>,
}

impl Running {
    pub(crate) fn new(boundary: Boundary, below: PidFd, inside: JailEnd) -> Running {
        Running {
            boundary,
            below,
            inside: Some(inside),
            told: Told::Nothing,
            started: false,
            killed: None,
        }
    }

    /// Stands guard until the tree has ended; `Err` when only the boundary was lost.
    pub(crate) fn guard(
        &mut self,
        plan: &Plan,
        channel: &Channel,
        signals: &SignalPipe,
    ) -> Result<Conclusion, StepError> {
        loop {
            let events = self.wait(plan, channel, signals);
            if events.contains(&Event::Inside) {
                self.hear(channel);
            }
            if events.contains(&Event::Signal) {
                for signal in signals.take() {
                    self.pass_on(signal);
                }
            }
            if events.contains(&Event::LeaderGone) {
                self.kill(EndReason::LeaderGone);
            }
            if events.contains(&Event::Below) {
                // Its last words may have come in together with its end.
                self.hear(channel);
                return judge(self.facts());
            }
        }
    }

    fn wait(&self, plan: &Plan, channel: &Channel, signals: &SignalPipe) -> Vec<Event> {
        let mut sources = vec![
            Source::readable(Event::Below, self.below.as_fd()),
            Source::readable(Event::Signal, signals.as_fd()),
        ];
        if let Some(inside) = &self.inside {
            sources.push(Source::readable(Event::Inside, inside.as_fd()));
        }
        if self.killed.is_none() {
            sources.push(Source::hang_up(Event::LeaderGone, channel.watch()));
            if let Some(leader) = &plan.leader {
                sources.push(Source::readable(Event::LeaderGone, leader.as_fd()));
            }
        }
        // The kernel has no memory to poll with: a guard that can't see must not let live.
        watch::wait(&sources, PollTimeout::NONE).unwrap_or_else(|_| vec![Event::LeaderGone])
    }

    /// Takes in what the inside has told.
    fn hear(&mut self, channel: &Channel) {
        while let Some(inside) = &self.inside {
            match inside.next() {
                Next::Message(Message::Ready(confinement)) => {
                    let started = Started {
                        init_pid: self.below.pid(),
                        confinement,
                    };
                    channel.first_line(&JailLine::Started(started));
                    inside.go();
                    self.started = true;
                    self.told = Told::Started;
                }
                Next::Message(Message::Failed(error)) => self.told = Told::Failed(error),
                Next::Message(Message::Ended(verdict, reason)) => match self.told {
                    // Init reaps the process that was to become the program and tells its end too.
                    Told::Failed(_) => {}
                    Told::Nothing | Told::Started | Told::Ended(..) => {
                        self.told = Told::Ended(verdict, reason);
                    }
                },
                Next::Nothing => return,
                Next::Closed => self.inside = None,
            }
        }
    }

    fn pass_on(&self, signal: Signal) {
        match self.boundary {
            // A signal that can't be sent means that init is gone, which its pidfd tells.
            Boundary::Namespaces(_) => best_effort(self.below.send(signal)),
            Boundary::Group => pass_to_program(self.below.pid(), signal),
        }
    }

    fn kill(&mut self, reason: EndReason) {
        self.killed.get_or_insert(reason);
        self.kill_group();
        best_effort(self.below.send(Signal::SIGKILL));
    }

    /// Where there is no namespace, kills what the program left in its group; its number is still
    /// its own, for it is not reaped yet.
    fn kill_group(&self) {
        match self.boundary {
            Boundary::Namespaces(_) => {}
            Boundary::Group => best_effort(signal::kill_group(self.below.pid())),
        }
    }

    /// Reaps the process below, which proves a namespace empty: the kernel gives it out only after
    /// all others in it are gone.
    fn facts(&mut self) -> Facts {
        self.kill_group();
        let pid = i32::try_from(self.below.pid()).unwrap_or(i32::MAX);
        let below = match verdict::reap(pid, 0) {
            Ok(Some((_, verdict))) => verdict,
            Ok(None) | Err(_) => Verdict::Signalled(libc::SIGKILL),
        };
        Facts {
            boundary: self.boundary,
            told: std::mem::replace(&mut self.told, Told::Nothing),
            started: self.started,
            killed: self.killed,
            below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::Privilege;
    use nix::errno::Errno;

    fn facts(told: Told) -> Facts {
        Facts {
            boundary: Boundary::Namespaces(Privilege::Own),
            started: matches!(told, Told::Started | Told::Ended(..)),
            told,
            killed: None,
            below: Verdict::Exited(0),
        }
    }

    #[test]
    fn a_lost_boundary_is_no_conclusion_before_the_start_and_one_after_it() {
        let error = StepError::errno(Step::UserMap, Errno::EPERM, "write");
        let before = facts(Told::Failed(error.clone()));
        assert_eq!(judge(before.clone()), Err(error.clone()));
        let after = Facts {
            started: true,
            ..before.clone()
        };
        assert_eq!(judge(after), Ok(Conclusion::failed(error.clone())));
        let killed = Facts {
            killed: Some(EndReason::LeaderGone),
            ..before
        };
        assert_eq!(judge(killed), Ok(Conclusion::failed(error)));
    }

    #[test]
    fn what_init_told_outweighs_how_init_ended() {
        let told = facts(Told::Ended(Verdict::Exited(3), EndReason::Program));
        assert_eq!(
            judge(told),
            Ok(Conclusion::ended(Verdict::Exited(3), EndReason::Program))
        );
    }

    #[test]
    fn an_init_that_told_nothing_was_killed() {
        let killed = Verdict::Signalled(9);
        assert_eq!(
            judge(facts(Told::Started)),
            Ok(Conclusion::ended(killed, EndReason::KilledFromOutside))
        );
        let by_us = Facts {
            killed: Some(EndReason::LeaderGone),
            ..facts(Told::Started)
        };
        assert_eq!(
            judge(by_us),
            Ok(Conclusion::ended(killed, EndReason::LeaderGone))
        );
    }

    #[test]
    fn without_a_namespace_the_process_below_is_the_program() {
        let group = Facts {
            boundary: Boundary::Group,
            below: Verdict::Signalled(11),
            ..facts(Told::Started)
        };
        assert_eq!(
            judge(group),
            Ok(Conclusion::ended(
                Verdict::Signalled(11),
                EndReason::Program
            ))
        );
    }
}
