//! The jail while its tree runs: passes signals on, watches the leader, and judges the end.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollTimeout;
use nix::sys::signal::Signal;

use crate::cgroup::Cgroup;
use crate::clock;
use crate::descriptors::{Channel, Lines};
use crate::group;
use crate::init::{linger_ms, pass_to_program};
use crate::inside::{JailEnd, Message, Next};
use crate::jail::{Boundary, Plan};
use crate::limits;
use crate::policy::{JailKind, JailPolicy};
use crate::report::{EndReason, Fallen, JailLine, Outcome, Started, Step};
use crate::signal::{self, PidFd};
use crate::signals_in::SignalPipe;
use crate::steps::StepError;
use crate::sys::best_effort;
use crate::verdict::{self, Verdict};
use crate::walk::{self, Left};
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

    /// The kernel has killed for lack of memory: a tree that was killed was killed for that.
    pub(crate) fn blame_memory(&mut self) {
        if let Outcome::Ended(ended) = &mut self.outcome
            && ended.signal == Some(libc::SIGKILL)
            && matches!(
                ended.reason,
                EndReason::Program | EndReason::KilledFromOutside
            )
        {
            ended.reason = EndReason::OutOfMemory;
        }
    }

    fn ended(verdict: Verdict, reason: EndReason, left_behind: bool) -> Conclusion {
        Conclusion {
            outcome: Outcome::Ended(verdict.ended(reason, left_behind)),
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
    Ended(Verdict, EndReason, bool),
}

/// The facts at the end of a tree.
#[derive(Debug, Clone)]
struct Facts {
    boundary: Boundary,
    told: Told,
    started: bool,
    /// Why it was made to end, if it was.
    cause: Option<EndReason>,
    /// The end of the process below the jail.
    below: Verdict,
    /// Whether it left something behind, as far as the jail itself has seen.
    left_behind: bool,
}

/// Judges the end; `Err` when only the boundary was lost, so that a lower one may be tried.
fn judge(facts: Facts) -> Result<Conclusion, StepError> {
    let Facts {
        boundary,
        told,
        started,
        cause,
        below,
        left_behind,
    } = facts;
    let lost = match boundary {
        Boundary::Namespaces(_) => [Step::Unshare, Step::UserMap].as_slice(),
        Boundary::Subreaper => [Step::Landlock].as_slice(),
        Boundary::Group => [].as_slice(),
    };
    match (told, boundary) {
        (Told::Failed(error), _) if !started && cause.is_none() && lost.contains(&error.step) => {
            Err(error)
        }
        (Told::Failed(error), _) => Ok(Conclusion::failed(error)),
        (Told::Ended(verdict, told, left_behind), _) => {
            let reason = cause.unwrap_or(told);
            Ok(Conclusion::ended(verdict, reason, left_behind))
        }
        // Init tells before it ends, so one that did not was killed.
        (Told::Nothing | Told::Started, Boundary::Namespaces(_)) => {
            let reason = cause.unwrap_or(EndReason::KilledFromOutside);
            let killed = Verdict::Signalled(libc::SIGKILL);
            Ok(Conclusion::ended(killed, reason, false))
        }
        (Told::Nothing | Told::Started, Boundary::Subreaper | Boundary::Group) => {
            let reason = cause.unwrap_or(EndReason::Program);
            Ok(Conclusion::ended(below, reason, left_behind))
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
    cause: Option<EndReason>,
    /// Whether SIGTERM was passed on.
    asked_to_end: bool,
    /// Whether something still ran after the program and its time to linger.
    left_behind: bool,
    /// The end of the process below, where it was reaped among others.
    reaped: Option<Verdict>,
}

impl Running {
    pub(crate) fn new(boundary: Boundary, below: PidFd, inside: JailEnd) -> Running {
        Running {
            boundary,
            below,
            inside: Some(inside),
            told: Told::Nothing,
            started: false,
            cause: None,
            asked_to_end: false,
            left_behind: false,
            reaped: None,
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
                self.hear(channel.lines());
            }
            if events.contains(&Event::Signal) {
                for signal in signals.take() {
                    self.pass_on(signal);
                }
            }
            if events.contains(&Event::LeaderGone) {
                self.kill(EndReason::LeaderGone);
                if let Some(group) = &plan.cgroup {
                    group.kill();
                }
            }
            if events.contains(&Event::Below) {
                // Its last words may have come in together with its end.
                self.hear(channel.lines());
                if matches!(plan.policy.kind, JailKind::Command) {
                    self.linger(&plan.policy, channel, signals);
                }
                self.clear(plan.cgroup.as_ref(), signals);
                return self.conclude();
            }
        }
    }

    fn wait(&self, plan: &Plan, channel: &Channel, signals: &SignalPipe) -> Vec<Event> {
        let mut sources = vec![
            Source::readable(Event::Below, self.below.as_fd()),
            Source::readable(Event::Signal, signals.as_fd()),
        ];
        if let Some(inside) = self.inside() {
            sources.push(Source::readable(Event::Inside, inside));
        }
        if self.cause.is_none() {
            sources.push(Source::hang_up(Event::LeaderGone, channel.watch()));
            if let Some(leader) = &plan.leader {
                sources.push(Source::readable(Event::LeaderGone, leader.as_fd()));
            }
        }
        // The kernel has no memory to poll with: a guard that can't see must not let live.
        watch::wait(&sources, PollTimeout::NONE).unwrap_or_else(|_| vec![Event::LeaderGone])
    }

    /// What to poll for messages of the inside, while there can be any.
    pub(crate) fn inside(&self) -> Option<BorrowedFd<'_>> {
        self.inside.as_ref().map(JailEnd::as_fd)
    }

    /// What to poll for the end of the process below.
    pub(crate) fn below(&self) -> BorrowedFd<'_> {
        self.below.as_fd()
    }

    /// Takes in what the inside has told.
    pub(crate) fn hear(&mut self, lines: &Lines) {
        while let Some(inside) = &self.inside {
            match inside.next() {
                Next::Message(Message::Ready(confinement)) => {
                    let started = Started {
                        init_pid: self.below.pid(),
                        confinement,
                    };
                    lines.first(&JailLine::Started(started));
                    inside.go();
                    self.started = true;
                    self.told = Told::Started;
                }
                Next::Message(Message::Failed(error)) => self.told = Told::Failed(error),
                Next::Message(Message::Ended {
                    verdict,
                    reason,
                    left_behind,
                }) => match self.told {
                    // Init reaps the process that was to become the program and tells its end too.
                    Told::Failed(_) => {}
                    Told::Nothing | Told::Started | Told::Ended(..) => {
                        self.told = Told::Ended(verdict, reason, left_behind);
                    }
                },
                Next::Message(Message::Fallen { path, again }) => {
                    lines.note(&JailLine::Fallen(Fallen { path, again }));
                }
                Next::Nothing => return,
                Next::Closed => self.inside = None,
            }
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        self.asked_to_end |= signal == Signal::SIGTERM;
        match (self.boundary, signal) {
            // The process below is watched by its pidfd. What else ends is reaped here only if the
            // orphans of the tree come to this process.
            (Boundary::Namespaces(_) | Boundary::Group, Signal::SIGCHLD) => {}
            (Boundary::Subreaper, Signal::SIGCHLD) => {
                walk::reap(self.below.pid(), &mut self.reaped);
            }
            (Boundary::Subreaper, Signal::SIGTSTP) => walk::pause(),
            (Boundary::Subreaper, Signal::SIGCONT) => walk::resume(),
            // A signal that can't be sent means that init is gone, which its pidfd tells.
            (Boundary::Namespaces(_), _) => best_effort(self.below.send(signal)),
            (Boundary::Subreaper | Boundary::Group, _) if self.reaped.is_some() => {}
            (Boundary::Group, Signal::SIGTSTP | Signal::SIGCONT) => {
                // A command is in a group of its own, and is found as a child of a child; one in
                // the program's group may have lost its parent.
                pass_to_program(self.below.pid(), signal);
                if signal == Signal::SIGTSTP {
                    walk::pause();
                } else {
                    walk::resume();
                }
            }
            (Boundary::Subreaper | Boundary::Group, _) => {
                pass_to_program(self.below.pid(), signal);
            }
        }
    }

    /// Asks the program to end, for a reason that its end is then told with.
    pub(crate) fn terminate(&mut self, reason: EndReason) {
        self.blame(reason);
        self.pass_on(Signal::SIGTERM);
    }

    /// Notes why the tree is made to end, unless the program has ended by itself before.
    fn blame(&mut self, reason: EndReason) {
        if !matches!(self.told, Told::Ended(..)) {
            self.cause.get_or_insert(reason);
        }
    }

    /// Kills the process below, and with it what the boundary reaches at once.
    pub(crate) fn kill(&mut self, reason: EndReason) {
        self.blame(reason);
        match self.boundary {
            Boundary::Namespaces(_) => {}
            Boundary::Subreaper => walk::strike(),
            // Its number is still the group's, for it is not reaped yet.
            Boundary::Group => best_effort(signal::kill_group(self.below.pid())),
        }
        best_effort(self.below.send(Signal::SIGKILL));
    }

    /// Gives what a command's program left running its time to end by itself. In a namespace its
    /// init has done so.
    fn linger(&mut self, policy: &JailPolicy, channel: &Channel, signals: &SignalPipe) {
        if matches!(self.boundary, Boundary::Namespaces(_)) || self.cause.is_some() {
            return;
        }
        let linger_ms = linger_ms(policy, self.asked_to_end);
        let until = clock::in_ms(linger_ms);
        while self.left() == Left::Something {
            self.left_behind = true;
            let left = clock::left_until(until);
            let sources = [
                Source::readable(Event::Signal, signals.as_fd()),
                Source::hang_up(Event::LeaderGone, channel.watch()),
            ];
            // The end of what is no child of this process makes no sound, so it is looked for.
            let pause = match self.boundary {
                Boundary::Group => left.min(Duration::from_millis(limits::GROUP_LOOK_MS)),
                Boundary::Subreaper | Boundary::Namespaces(_) => left,
            };
            let timeout = PollTimeout::try_from(pause + Duration::from_millis(1));
            match watch::wait(&sources, timeout.unwrap_or(PollTimeout::MAX)) {
                _ if left.is_zero() => return,
                Ok(events) if events.contains(&Event::LeaderGone) => return,
                Ok(_) => drop(signals.take()),
                Err(_) => return,
            }
        }
        self.left_behind = false;
    }

    /// What the process below has left, as far as the boundary lets it be seen.
    fn left(&mut self) -> Left {
        match self.boundary {
            Boundary::Namespaces(_) => Left::Nothing,
            Boundary::Subreaper => walk::reap(self.below.pid(), &mut self.reaped),
            Boundary::Group => group::left(self.below.pid()),
        }
    }

    /// Ends what the end of the process below has not ended.
    fn clear(&mut self, cgroup: Option<&Cgroup>, signals: &SignalPipe) {
        match self.boundary {
            Boundary::Namespaces(_) => {}
            // Its number is still the group's, for it is not reaped yet.
            Boundary::Group => best_effort(signal::kill_group(self.below.pid())),
            Boundary::Subreaper => walk::clear(self.below.pid(), &mut self.reaped, |pause_ms| {
                signals.pause(pause_ms);
                // Whoever asks for an end now gets one anyway.
                drop(signals.take());
            }),
        }
        if let Some(group) = cgroup {
            group.kill();
        }
    }

    /// Reaps the process below, which proves a namespace empty: the kernel gives it out only after
    /// all others in it are gone. Judges the end.
    pub(crate) fn conclude(&mut self) -> Result<Conclusion, StepError> {
        let pid = i32::try_from(self.below.pid()).unwrap_or(i32::MAX);
        let below = match self.reaped {
            Some(verdict) => verdict,
            None => match verdict::reap(pid, 0) {
                Ok(Some((_, verdict))) => verdict,
                Ok(None) | Err(_) => Verdict::Signalled(libc::SIGKILL),
            },
        };
        judge(Facts {
            boundary: self.boundary,
            told: std::mem::replace(&mut self.told, Told::Nothing),
            started: self.started,
            cause: self.cause,
            below,
            left_behind: self.left_behind,
        })
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
            cause: None,
            below: Verdict::Exited(0),
            left_behind: false,
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
            cause: Some(EndReason::LeaderGone),
            ..before
        };
        assert_eq!(judge(killed), Ok(Conclusion::failed(error)));
    }

    #[test]
    fn what_init_told_outweighs_how_init_ended() {
        for left_behind in [false, true] {
            let end = (Verdict::Exited(3), EndReason::Program, left_behind);
            assert_eq!(
                judge(facts(Told::Ended(end.0, end.1, end.2))),
                Ok(Conclusion::ended(end.0, end.1, end.2))
            );
        }
    }

    #[test]
    fn a_time_out_is_told_with_the_end_that_it_brought() {
        let told = facts(Told::Ended(
            Verdict::Signalled(15),
            EndReason::Program,
            false,
        ));
        let timed_out = Facts {
            cause: Some(EndReason::TimedOut),
            ..told
        };
        let ended = Conclusion::ended(Verdict::Signalled(15), EndReason::TimedOut, false);
        assert_eq!(judge(timed_out), Ok(ended));
    }

    #[test]
    fn a_subreaper_without_its_shield_is_lost() {
        let error = StepError::new(Step::Landlock, "shield the jail");
        let subreaper = |told| Facts {
            boundary: Boundary::Subreaper,
            ..facts(told)
        };
        assert_eq!(
            judge(subreaper(Told::Failed(error.clone()))),
            Err(error.clone())
        );
        let group = Facts {
            boundary: Boundary::Group,
            ..facts(Told::Failed(error.clone()))
        };
        assert_eq!(judge(group), Ok(Conclusion::failed(error)));
    }

    #[test]
    fn an_init_that_told_nothing_was_killed() {
        let killed = Verdict::Signalled(9);
        assert_eq!(
            judge(facts(Told::Started)),
            Ok(Conclusion::ended(
                killed,
                EndReason::KilledFromOutside,
                false
            ))
        );
        let by_us = Facts {
            cause: Some(EndReason::LeaderGone),
            ..facts(Told::Started)
        };
        assert_eq!(
            judge(by_us),
            Ok(Conclusion::ended(killed, EndReason::LeaderGone, false))
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
                EndReason::Program,
                false
            ))
        );
    }
}
