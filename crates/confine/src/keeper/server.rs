//! The keeper itself: one thread, one poll loop, one init per command.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};

use super::CommandSpec;
use super::deadline::{Clock, Due, stood_still};
use crate::clock;
use crate::descriptors::{Lines, Placeholder, ProgramEnds};
use crate::guard::{Conclusion, Running};
use crate::init::{self, Birth, Place};
use crate::inside;
use crate::jail::{Boundary, Plan, hold_myself};
use crate::limits;
use crate::mounts::Ground;
use crate::namespaces::{self, Privilege};
use crate::policy::JailPolicy;
use crate::program::ProgramCall;
use crate::report::{EndReason, JailLine, Outcome, Step};
use crate::signal::PidFd;
use crate::steps::StepError;
use crate::sys::{self, Cloned};
use crate::watch::{self, Source};

/// Makes the socket: the program's end and the keeper's.
pub(crate) fn socket() -> Result<(OwnedFd, OwnedFd), StepError> {
    socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|errno| StepError::errno(Step::Descriptors, errno, "make the keeper's socket"))
}

/// Serves the program of `plan` until it closes its end. Every signal must be blocked, and stays
/// so: what ends the keeper is the end of its init.
pub(crate) fn serve(plan: &Plan, ground: &Ground, control: OwnedFd) -> ! {
    let mut keeper = Keeper {
        ground,
        control,
        commands: Vec::new(),
    };
    loop {
        match keeper.turn(&plan.policy) {
            Turn::Again(next) => keeper = next,
            // The commands' inits die with this process.
            Turn::Over => sys::exit_now(0),
        }
    }
}

#[derive(Debug)]
struct Keeper<'a> {
    ground: &'a Ground,
    control: OwnedFd,
    commands: Vec<Command>,
}

#[derive(Debug)]
struct Command {
    running: Running,
    report: Lines,
    clock: Clock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Control,
    Inside(usize),
    Below(usize),
    HangUp(usize),
}

enum Turn<'a> {
    Again(Keeper<'a>),
    Over,
}

/// One message as it came in.
struct Request {
    text: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

enum Received {
    Request(Request),
    Nothing,
    Closed,
}

impl<'a> Keeper<'a> {
    /// Waits for something and deals with it.
    fn turn(mut self, tree: &JailPolicy) -> Turn<'a> {
        let now = clock::now();
        for command in &mut self.commands {
            command.tick(now);
        }
        let Ok(events) = watch::wait(&self.sources(), self.timeout(now)) else {
            return Turn::Over;
        };
        let stood_still = stood_still(now.elapsed());
        for command in &mut self.commands {
            command.clock = command.clock.put_off(stood_still);
        }
        let mut ended = Vec::new();
        let mut control = false;
        for event in events {
            match event {
                Event::Control => control = true,
                Event::Inside(index) => {
                    let command = &mut self.commands[index];
                    command.running.hear(&command.report);
                }
                Event::HangUp(index) => self.commands[index].hang_up(),
                Event::Below(index) => ended.push(index),
            }
        }
        // From the back, so that the other numbers stay true.
        ended.sort_unstable();
        for index in ended.into_iter().rev() {
            self.commands.swap_remove(index).finish();
        }
        if !control {
            return Turn::Again(self);
        }
        match receive(&self.control) {
            Received::Request(request) => Turn::Again(self.take(request, tree)),
            Received::Nothing => Turn::Again(self),
            Received::Closed => Turn::Over,
        }
    }

    fn sources(&self) -> Vec<Source<'_, Event>> {
        let mut sources = vec![Source::readable(Event::Control, self.control.as_fd())];
        for (index, command) in self.commands.iter().enumerate() {
            sources.push(Source::readable(
                Event::Below(index),
                command.running.below(),
            ));
            if let Some(inside) = command.running.inside() {
                sources.push(Source::readable(Event::Inside(index), inside));
            }
            let report = command
                .report
                .as_fd()
                .filter(|_| command.clock != Clock::Killed);
            if let Some(report) = report {
                sources.push(Source::hang_up(Event::HangUp(index), report));
            }
        }
        sources
    }

    fn timeout(&self, now: Instant) -> PollTimeout {
        let next = self
            .commands
            .iter()
            .filter_map(|command| command.clock.next())
            .min();
        match next {
            None => PollTimeout::NONE,
            // One more millisecond, for poll(2) counts whole ones and would come back too early.
            Some(at) => {
                let piece = Duration::from_millis(limits::AWAKE_PIECE_MS);
                let left = at.saturating_duration_since(now) + Duration::from_millis(1);
                let left = left.min(piece);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        }
    }

    /// Checks a message and starts its command, or tells on its report socket why not.
    fn take(self, request: Request, tree: &JailPolicy) -> Keeper<'a> {
        let Request { text, descriptors } = request;
        let Ok([stdin, stdout, stderr, report]) = <[OwnedFd; 4]>::try_from(descriptors) else {
            // There is nobody to tell: which one would be the report socket is not known.
            return self;
        };
        let report = Lines::alone(report);
        let ends = ProgramEnds {
            stdin,
            stdout,
            stderr: Some(stderr),
        };
        let asked = check(&text, tree).and_then(|asked| {
            if self.commands.len() < limits::COMMANDS_MAX {
                Ok(asked)
            } else {
                Err(format!("{} commands run already", limits::COMMANDS_MAX))
            }
        });
        match asked {
            Ok((policy, call, timeout_ms)) => self.start(policy, call, ends, report, timeout_ms),
            Err(why) => {
                let refused = StepError::new(Step::Policy, format!("start the command: {why}"));
                tell(&report, Conclusion::failed(refused));
                self
            }
        }
    }

    fn start(
        mut self,
        policy: JailPolicy,
        call: ProgramCall,
        ends: ProgramEnds,
        report: Lines,
        timeout_ms: Option<u64>,
    ) -> Keeper<'a> {
        let flags = namespaces::flags(policy.network);
        let made = inside::line().and_then(|line| Ok((line, plan(policy, call)?, hold_myself()?)));
        let ((jail_end, inner), plan, myself) = match made {
            Ok(made) => made,
            Err(error) => {
                tell(&report, Conclusion::failed(error));
                return self;
            }
        };
        match sys::clone_into(flags, None) {
            Ok(Cloned::Child) => {
                // It must hold nothing of the other commands, whose ends would be hidden by it.
                let place = Place::Command(self.ground);
                drop((self, report, jail_end));
                init::run(Birth {
                    plan: &plan,
                    place,
                    ends,
                    inner,
                    parent: myself,
                })
            }
            Ok(Cloned::Parent(pid, pidfd)) => {
                let below = PidFd::from_creation(pid, pidfd);
                let boundary = Boundary::Namespaces(Privilege::Own);
                let clock = match timeout_ms {
                    Some(ms) => Clock::TermAt(clock::in_ms(ms)),
                    None => Clock::Unbounded,
                };
                let running = Running::new(boundary, below, jail_end);
                self.commands.push(Command {
                    running,
                    report,
                    clock,
                });
                self
            }
            Err(errno) => {
                let error = StepError::errno(Step::Fork, errno, "fork the command");
                tell(&report, Conclusion::failed(error));
                self
            }
        }
    }
}

impl Command {
    fn tick(&mut self, now: Instant) {
        let (due, clock) = self.clock.advance(now);
        self.clock = clock;
        match due {
            Due::Nothing => {}
            Due::Term => self.running.terminate(EndReason::TimedOut),
            Due::Kill => self.running.kill(EndReason::TimedOut),
        }
    }

    /// Nobody wants its end any more: kills it at once.
    fn hang_up(&mut self) {
        self.clock = Clock::Killed;
        self.running.kill(EndReason::LeaderGone);
    }

    fn finish(mut self) {
        self.running.hear(&self.report);
        let conclusion = match self.running.conclude() {
            Ok(conclusion) => conclusion,
            // There is no lower rung to try for a command.
            Err(error) => Conclusion::failed(error),
        };
        tell(&self.report, conclusion);
    }
}

fn tell(report: &Lines, conclusion: Conclusion) {
    report.last(&match conclusion.outcome {
        Outcome::Failed(failed) => JailLine::Failed(failed),
        Outcome::Ended(ended) => JailLine::Ended(ended),
    });
}

/// Reads a message and narrows it.
fn check(text: &[u8], tree: &JailPolicy) -> Result<(JailPolicy, ProgramCall, Option<u64>), String> {
    let spec: CommandSpec =
        serde_json::from_slice(text).map_err(|error| format!("it can't be read: {error}"))?;
    let timeout_ms = spec.timeout_ms;
    let (policy, call) = spec.narrow(tree)?;
    Ok((policy, call, timeout_ms))
}

fn plan(policy: JailPolicy, call: ProgramCall) -> Result<Plan, StepError> {
    Ok(Plan {
        policy,
        call,
        leader: None,
        obstacles: Vec::new(),
        cgroup: None,
        cgroup_lost: None,
        placeholder: Placeholder::take()?,
    })
}

/// Takes one message from the socket.
fn receive(control: &OwnedFd) -> Received {
    // One byte more than allowed, so that a message that is too large is seen to be.
    let mut text = vec![0; limits::COMMAND_BYTES_MAX + 1];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 16]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let mut parts = [IoSliceMut::new(&mut text)];
    let message = recvmsg::<()>(control.as_raw_fd(), &mut parts, Some(&mut space), flags);
    let (size, descriptors) = match message {
        Err(Errno::EAGAIN | Errno::EINTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
        Ok(message) => {
            let mut descriptors = Vec::new();
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::ScmRights(numbers) = control {
                    // SAFETY: the kernel made these descriptors for this process just now.
                    descriptors.extend(
                        numbers
                            .into_iter()
                            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                    );
                }
            }
            (message.bytes, descriptors)
        }
    };
    // A packet of no bytes would look the same, but carries no descriptors and means nothing.
    if size == 0 && descriptors.is_empty() {
        return Received::Closed;
    }
    text.truncate(size);
    Received::Request(Request { text, descriptors })
}
