//! A command that is held by the keeper of this worker's jail, or by a jail of its own: whatever
//! it does, its whole tree ends with it, and nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use confine::keeper::{Client, CommandSpec};
use confine::limits::COMMAND_TIMEOUT_MS_MAX;
use confine::policy::{JailKind, JailPolicy};
use confine::report::{EndReason, Rung};
use confine::signal::{PidFd, Signal};
use nix::sys::signal::Signal as Named;
use protocol::error::ToolError;
use protocol::limits::COMMAND_GRACE_MS;
use protocol::secret::Mask;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::time::sleep_until;

use super::control::Control;
use super::ending::{Ended, HowEnded, Leftover};
use super::order::Order;
use super::reading::Output;
use super::refusal;
use super::report::{Report, Told};
use crate::io::clock;
use crate::tools::limits;
use crate::tools::output::Captured;

/// A command that runs. Dropping it hangs up, and with that kills its tree at once.
#[derive(Debug)]
pub(super) struct Kept {
    report: Report,
    holder: Holder,
    /// Standard output and error in one, in the order in which they are written.
    output: Receiver,
}

/// Who holds it.
#[derive(Debug)]
enum Holder {
    /// The keeper, which minds the time-out too.
    Keeper,
    /// A jail, which is a child of this process.
    Jail(Child),
}

/// The rungs between which a jail is to hold a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rungs {
    /// Below it nothing is started.
    pub require: Rung,
    /// Above it nothing is tried.
    pub highest: Rung,
}

/// What its time-out took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pressure {
    /// Nothing: it ended by itself, or its keeper saw to it.
    None,
    /// It was asked to end, and did.
    Asked,
    /// It was killed.
    Killed,
}

/// A command that was followed to its end.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) told: Told,
    pub(super) output: Captured,
    pressure: Pressure,
    /// Whether it was told to stop before its time.
    stopped: bool,
    /// Whether nobody holds its output any more.
    closed: bool,
}

/// Has the keeper start a command.
///
/// # Errors
/// When the keeper can't be asked; what it refuses is told later.
pub(super) fn start_by_keeper(
    client: &Client,
    order: &Order,
    timeout: Duration,
) -> Result<Kept, ToolError> {
    let system = |error: io::Error| refusal::by_system(&error);
    let (reader, writer) = io::pipe().map_err(system)?;
    let output = Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(system)?;
    let null = std::fs::File::open("/dev/null").map_err(system)?;
    let mut spec = CommandSpec::new(order.argv().to_vec(), order.directory.clone());
    spec.env = order.environment();
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    spec.timeout_ms = Some(timeout_ms.clamp(1, COMMAND_TIMEOUT_MS_MAX));
    spec.linger_ms = Some(limits::OUTPUT_DRAIN_MS);
    let report = client
        .start(&spec, null.as_fd(), writer.as_fd(), writer.as_fd())
        .map_err(|error| refusal::by_client(&error))?;
    Ok(Kept {
        report: Report::new(report).map_err(system)?,
        holder: Holder::Keeper,
        output,
    })
}

/// Starts a command through the jail at `path`.
///
/// # Errors
/// When the jail can't be started; what it refuses is told later.
#[expect(
    clippy::disallowed_methods,
    reason = "this is a place that starts commands"
)]
pub(super) fn start_by_jail(path: &Path, rungs: Rungs, order: &Order) -> io::Result<Kept> {
    let (reader, writer) = io::pipe()?;
    let output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let (ours, theirs) = UnixStream::pair()?;
    let policy = JailPolicy {
        kind: JailKind::Command,
        leader_pid: Some(std::process::id()),
        require: rungs.require,
        highest: rungs.highest,
        cwd: Some(order.directory.clone()),
        network: order.world.network,
        linger_ms: limits::OUTPUT_DRAIN_MS,
        ..JailPolicy::default()
    };
    let [shell, arguments @ ..] = order.argv();
    let mut command = Command::new(path);
    command
        .args(policy.to_args(&shell, &arguments))
        .env_clear()
        .envs(order.environment())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(writer.try_clone()?))
        .stderr(Stdio::from(writer))
        // What a terminal sends to this process's group is not for the jail.
        .process_group(0);
    let child = command.spawn()?;
    // The builder still holds its copies of the other ends; with them neither would ever close.
    drop(command);
    Ok(Kept {
        report: Report::new(ours)?,
        holder: Holder::Jail(child),
        output,
    })
}

/// Waits until a command has ended with everything that it had started, or sees to it after
/// `timeout`, or when it is told to stop; what it prints is kept without what `mask` hides. Dropping the future kills it.
///
/// # Errors
/// When it can't be watched, or does not end although it was killed.
pub(super) async fn follow(
    kept: Kept,
    mask: &Mask,
    timeout: Duration,
    mut control: Control,
) -> Result<Followed, ToolError> {
    let Kept {
        mut report,
        mut holder,
        output,
    } = kept;
    let mut output = Output::new(output, mask, control.take_peeks());
    let pressure = end_in_time(&mut report, &holder, &mut output, timeout, &mut control)
        .await
        .map_err(|error| refusal::unwatched(&error))?
        .ok_or_else(refusal::immovable)?;
    // Nobody of it lives any more, so only somebody whom it passed its output on to can hold it.
    let closed = output
        .drain(clock::after(Duration::from_millis(limits::OUTPUT_DRAIN_MS)))
        .await
        .map_err(|error| refusal::unwatched(&error))?;
    reap(&mut holder).await;
    Ok(Followed {
        told: report.told(),
        output: output.finish(),
        pressure,
        stopped: control.was_stopped(),
        closed,
    })
}

/// Brings it to its end; `None` when even a kill does not.
async fn end_in_time(
    report: &mut Report,
    holder: &Holder,
    output: &mut Output,
    timeout: Duration,
    control: &mut Control,
) -> io::Result<Option<Pressure>> {
    let ms = Duration::from_millis;
    let patience = match holder {
        Holder::Keeper => timeout + ms(COMMAND_GRACE_MS + limits::KEEPER_LATE_MS),
        Holder::Jail(_) => timeout,
    };
    if output
        .until(report.ended(), control.time_over(patience))
        .await?
    {
        return Ok(Some(Pressure::None));
    }
    match holder {
        // There is no way to have the keeper ask a command; hanging up kills it.
        Holder::Keeper if control.was_stopped() => {}
        Holder::Keeper => tracing::warn!("the keeper did not end a command in time"),
        Holder::Jail(jail) => {
            ask_to_end(jail);
            let grace_ends = clock::after(ms(COMMAND_GRACE_MS));
            if output
                .until(report.ended(), sleep_until(grace_ends))
                .await?
            {
                return Ok(Some(Pressure::Asked));
            }
        }
    }
    report.hang_up().await?;
    let waits_until = clock::after(ms(limits::KILL_WAIT_MS));
    let gone = output
        .until(report.ended(), sleep_until(waits_until))
        .await?;
    Ok(gone.then_some(Pressure::Killed))
}

/// Asks the command in a jail to end; the jail passes it on to the command's group.
fn ask_to_end(jail: &Child) {
    // It is not waited for before its report has ended, so the number is still its own.
    let sent = jail
        .id()
        .ok_or("it is gone".to_owned())
        .and_then(|pid| PidFd::open(pid).map_err(|error| error.to_string()))
        .and_then(|jail| {
            jail.send(Signal::SIGTERM)
                .map_err(|error| error.to_string())
        });
    if let Err(error) = sent {
        tracing::warn!(error, "could not ask a command's jail to end");
    }
}

/// Waits for a jail that has told all that it had to tell.
async fn reap(holder: &mut Holder) {
    let Holder::Jail(jail) = holder else { return };
    let wait = Duration::from_millis(limits::KILL_WAIT_MS);
    match tokio::time::timeout(wait, jail.wait()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "could not wait for a command's jail"),
        // The runtime reaps it whenever it ends.
        Err(_) => tracing::warn!("a command's jail lives on after its last word"),
    }
}

/// What the model is told of a command that was followed to its end.
///
/// # Errors
/// When it did not start, or nobody can say how it ended.
pub(super) fn conclude(followed: Followed, timeout: Duration) -> Result<Ended, ToolError> {
    let Followed {
        told,
        output,
        pressure,
        stopped,
        closed,
    } = followed;
    if let Some(failed) = &told.failed {
        return Err(refusal::by_jail(failed));
    }
    let Some(end) = told.ended else {
        return Err(refusal::lost(&output.text));
    };
    let killed = end.signal == Some(Named::SIGKILL as i32);
    let how = match (pressure, end.reason, end.exit_code, end.signal) {
        (Pressure::Asked | Pressure::Killed, _, _, _) if stopped => HowEnded::Stopped,
        (Pressure::Asked | Pressure::Killed, _, _, _) | (_, EndReason::TimedOut, _, _) => {
            HowEnded::TimedOut {
                after: timeout,
                survived_term: pressure == Pressure::Killed || killed || end.left_behind,
            }
        }
        (Pressure::None, _, Some(code), _) => HowEnded::Exited { code },
        (Pressure::None, _, None, signal) => HowEnded::Killed {
            signal: signal.unwrap_or_default(),
        },
    };
    let leftover = match (how, closed, end.left_behind) {
        (_, false, _) => Leftover::OutOfReach,
        (HowEnded::Exited { .. } | HowEnded::Killed { .. }, true, true) => Leftover::Ended,
        (HowEnded::Exited { .. } | HowEnded::Killed { .. }, true, false)
        | (HowEnded::TimedOut { .. } | HowEnded::Stopped, true, _) => Leftover::None,
    };
    Ok(Ended {
        how,
        leftover,
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use confine::report::{self, Failed, Step};
    use protocol::error::ErrorCode;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn followed(told: Told, pressure: Pressure) -> Followed {
        Followed {
            told,
            output: Captured {
                text: "said\n".to_owned(),
                raw_bytes: 5,
                left_out_bytes: 0,
            },
            pressure,
            stopped: false,
            closed: true,
        }
    }

    fn ended(exit_code: Option<i32>, signal: Option<i32>, reason: EndReason) -> Told {
        Told {
            ended: Some(report::Ended {
                exit_code,
                signal,
                reason,
                left_behind: false,
            }),
            ..Told::default()
        }
    }

    #[test]
    fn each_end_is_told_as_what_it_was() {
        let timed_out = |survived_term| HowEnded::TimedOut {
            after: TIMEOUT,
            survived_term,
        };
        use {EndReason as R, Pressure as P};
        let table = [
            (
                ended(Some(0), None, R::Program),
                P::None,
                HowEnded::Exited { code: 0 },
            ),
            // A shell's own code for a program that is not there is no failed start.
            (
                ended(Some(127), None, R::Program),
                P::None,
                HowEnded::Exited { code: 127 },
            ),
            (
                ended(None, Some(40), R::Program),
                P::None,
                HowEnded::Killed { signal: 40 },
            ),
            (
                ended(None, Some(9), R::KilledFromOutside),
                P::None,
                HowEnded::Killed { signal: 9 },
            ),
            (
                ended(None, Some(15), R::TimedOut),
                P::None,
                timed_out(false),
            ),
            (ended(Some(5), None, R::TimedOut), P::None, timed_out(false)),
            (ended(None, Some(9), R::TimedOut), P::None, timed_out(true)),
            (
                ended(None, Some(15), R::Program),
                P::Asked,
                timed_out(false),
            ),
            (
                ended(None, Some(9), R::LeaderGone),
                P::Killed,
                timed_out(true),
            ),
        ];
        for (told, pressure, how) in table {
            let name = format!("{told:?} {pressure:?}");
            let ended = conclude(followed(told, pressure), TIMEOUT).unwrap();
            assert_eq!((ended.how, ended.leftover), (how, Leftover::None), "{name}");
        }
    }

    #[test]
    fn a_stop_is_told_as_one_unless_the_end_came_first() {
        let stopped = |pressure| Followed {
            stopped: true,
            ..followed(ended(Some(3), None, EndReason::Program), pressure)
        };
        for (pressure, how) in [
            (Pressure::Asked, HowEnded::Stopped),
            (Pressure::Killed, HowEnded::Stopped),
            (Pressure::None, HowEnded::Exited { code: 3 }),
        ] {
            assert_eq!(conclude(stopped(pressure), TIMEOUT).unwrap().how, how);
        }
    }

    #[test]
    fn what_was_left_behind_is_told_and_after_a_time_out_it_was_deaf_to_it() {
        let leaving = |reason| {
            let mut told = ended(Some(0), None, reason);
            told.ended.as_mut().unwrap().left_behind = true;
            told
        };
        let end = conclude(
            followed(leaving(EndReason::Program), Pressure::None),
            TIMEOUT,
        );
        assert_eq!(end.unwrap().leftover, Leftover::Ended);
        let end = conclude(
            followed(leaving(EndReason::TimedOut), Pressure::None),
            TIMEOUT,
        )
        .unwrap();
        let how = HowEnded::TimedOut {
            after: TIMEOUT,
            survived_term: true,
        };
        assert_eq!((end.how, end.leftover), (how, Leftover::None));
        let held = Followed {
            closed: false,
            ..followed(leaving(EndReason::Program), Pressure::None)
        };
        assert_eq!(
            conclude(held, TIMEOUT).unwrap().leftover,
            Leftover::OutOfReach
        );
    }

    #[test]
    fn a_command_that_did_not_start_is_no_exit_code() {
        let told = Told {
            failed: Some(Failed {
                step: Step::Fork,
                errno: Some(libc::EAGAIN),
                errno_name: None,
                path: None,
                message: String::new(),
            }),
            ..Told::default()
        };
        let error = conclude(followed(told, Pressure::None), TIMEOUT).unwrap_err();
        assert_eq!(error.code, ErrorCode::SpawnFailed);
        let error = conclude(followed(Told::default(), Pressure::None), TIMEOUT).unwrap_err();
        assert_eq!(error.code, ErrorCode::Io);
        assert!(error.message.ends_with("printed: said"), "{error}");
    }
}
