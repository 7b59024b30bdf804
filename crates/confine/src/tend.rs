//! What init does while its program runs: reaps, passes signals on, watches the leader, and makes
//! mounts that fell off again.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollTimeout;
use nix::sys::signal::Signal;

use crate::clock;
use crate::init::pass_to_program;
use crate::inside::{InnerEnd, Message};
use crate::limits;
use crate::mounts::MountWatch;
use crate::report::EndReason;
use crate::signal::{self, PidFd};
use crate::signals_in::SignalQueue;
use crate::sys::best_effort;
use crate::verdict::{self, Verdict};
use crate::watch::{self, Source};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Signal,
    LeaderGone,
    Mounts,
}

/// The running tree, as init sees it.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) program: u32,
    pub(crate) queue: SignalQueue,
    pub(crate) leader: Option<&'a PidFd>,
    /// Whether SIGTERM was passed on.
    pub(crate) asked_to_end: bool,
    pub(crate) mounts: Option<MountWatch>,
    pub(crate) inner: &'a InnerEnd,
    /// How many mounts that fell off were told of.
    pub(crate) fallen_told: u32,
}

impl Tree<'_> {
    /// Serves the tree until it is to end.
    pub(crate) fn tend(&mut self) -> (Verdict, EndReason) {
        let killed = Verdict::Signalled(libc::SIGKILL);
        loop {
            if let Some(verdict) = self.reap() {
                return (verdict, EndReason::Program);
            }
            let Ok(events) = watch::wait(&self.sources(), self.patience()) else {
                return (killed, EndReason::KilledFromOutside);
            };
            if events.contains(&Event::LeaderGone) {
                return (killed, EndReason::LeaderGone);
            }
            let mut renamed = false;
            while let Some(signal) = self.queue.next() {
                match signal {
                    Signal::SIGIO => renamed = true,
                    _ => self.pass_on(signal),
                }
            }
            renamed &= self.mounts.as_ref().is_some_and(MountWatch::is_moved);
            if events.contains(&Event::Mounts) || renamed || self.lacks_mounts() {
                self.mend();
            }
        }
    }

    fn sources(&self) -> Vec<Source<'_, Event>> {
        let mut sources = vec![Source::readable(Event::Signal, self.queue.as_fd())];
        if let Some(leader) = self.leader {
            sources.push(Source::readable(Event::LeaderGone, leader.as_fd()));
        }
        if let Some(mounts) = &self.mounts {
            sources.push(Source::changed(Event::Mounts, mounts.table()));
        }
        sources
    }

    /// A name that is taken away and comes back later makes no sound, so it is looked for.
    fn patience(&self) -> PollTimeout {
        match self.lacks_mounts() {
            true => PollTimeout::from(limits::FALLEN_LOOK_MS),
            false => PollTimeout::NONE,
        }
    }

    fn lacks_mounts(&self) -> bool {
        self.mounts.as_ref().is_some_and(MountWatch::has_fallen)
    }

    /// Makes mounts that fell off again, and tells of them while it may.
    fn mend(&mut self) {
        let Some(mounts) = &mut self.mounts else {
            return;
        };
        for fallen in mounts.look() {
            if self.fallen_told < limits::REBOUND_MAX {
                self.fallen_told += 1;
                self.inner.tell(&Message::Fallen {
                    path: fallen.path,
                    again: fallen.again,
                });
            }
        }
    }

    /// Whether anything lives beside this process; the program has been reaped.
    pub(crate) fn has_others(&self) -> bool {
        // Nobody else may wait for what was orphaned, and a zombie would count.
        self.reap();
        signal::anyone_else_inside()
    }

    /// Waits until nothing lives beside this process; false when something does after the time, or
    /// when an end is asked for.
    pub(crate) fn others_end_within(&mut self, linger_ms: u64) -> bool {
        let until = clock::in_ms(linger_ms);
        loop {
            if !self.has_others() {
                return true;
            }
            let left = clock::left_until(until);
            if left.is_zero() {
                return false;
            }
            // One more millisecond, for poll(2) counts whole ones and would come back too early.
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
            let events = watch::wait(&self.sources(), timeout.unwrap_or(PollTimeout::MAX));
            if events.is_ok_and(|events| events.contains(&Event::LeaderGone)) {
                return false;
            }
            while let Some(signal) = self.queue.next() {
                match signal {
                    Signal::SIGTERM => return false,
                    // The program's number is free again, so nothing is sent to its group.
                    Signal::SIGTSTP | Signal::SIGCONT => self.pass_on(signal),
                    _ => {}
                }
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

    fn pass_on(&mut self, signal: Signal) {
        self.asked_to_end |= signal == Signal::SIGTERM;
        match signal {
            Signal::SIGCHLD => {}
            // A pause is for the whole tree, the commands of the keeper included; the kernel sends
            // neither to init itself.
            Signal::SIGTSTP => best_effort(signal::signal_all_inside(Signal::SIGSTOP)),
            Signal::SIGCONT => best_effort(signal::signal_all_inside(Signal::SIGCONT)),
            _ => pass_to_program(self.program, signal),
        }
    }
}
