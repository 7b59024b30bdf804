//! Watching a command's process group to its end: its output, its time-out, and what it leaves behind.
//!
//! The shell's end is noticed without waiting for it (`WNOWAIT`): as long as it is a zombie, its
//! number, which is also its group's, can't be given to a stranger, so the group can be killed
//! safely afterwards. The end of its output is no sign of its end, nor the other way round.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep_until;

use super::control::Control;
use super::ending::{Ended, HowEnded, Leftover};
use super::reading::Output;
use super::start::Started;
use crate::io::clock;
use crate::tools::limits;
use protocol::limits::COMMAND_GRACE_MS;
use protocol::secret::Mask;

/// Waits until the command has ended, or ends it after `timeout` or when it is told to stop, and
/// with it every process of its group; what it prints is kept without what `mask` hides. Dropping the future kills the group.
///
/// # Errors
/// When the system does not let it be watched; its group is killed then.
pub(super) async fn watch(
    mut started: Started,
    mask: &Mask,
    timeout: Duration,
    mut control: Control,
) -> io::Result<Ended> {
    // Before the first look, so that no end is missed between the two.
    let mut children = signal(SignalKind::child())?;
    let leader = started.group.leader();
    let mut output = Output::new(started.output, mask, control.take_peeks());

    let in_time = output
        .until(
            shell_ended(leader, &mut children),
            control.time_over(timeout),
        )
        .await?;
    let mut survived_term = false;
    if !in_time {
        started.group.ask_to_end();
        let grace_ends = clock::after(Duration::from_millis(COMMAND_GRACE_MS));
        let shell_gone = output
            .until(shell_ended(leader, &mut children), sleep_until(grace_ends))
            .await?;
        // The shell may obey while a program in it does not; that one still holds the output.
        let all_gone = shell_gone && output.drain(grace_ends).await?;
        survived_term = !all_gone;
        started.group.kill();
        if !shell_gone {
            shell_ended(leader, &mut children).await?;
        }
    } else {
        let drained_until = clock::after(Duration::from_millis(limits::OUTPUT_DRAIN_MS));
        output.drain(drained_until).await?;
    }
    // The zombie that leads the group does not count, so what is left was left behind.
    let members = started.group.living_members();
    started.group.kill();
    let closed = output
        .drain(clock::after(Duration::from_millis(limits::OUTPUT_DRAIN_MS)))
        .await?;
    started.group.release();
    let status = started.child.wait().await?;

    let leftover = match (in_time, members.is_empty(), closed) {
        (_, _, false) => Leftover::OutOfReach,
        (true, false, true) => Leftover::Ended,
        (true, true, true) | (false, _, true) => Leftover::None,
    };
    Ok(Ended {
        how: match control.was_stopped() {
            true => HowEnded::Stopped,
            false => how_ended(in_time, status, timeout, survived_term),
        },
        leftover,
        output: output.finish(),
    })
}

fn how_ended(
    in_time: bool,
    status: ExitStatus,
    timeout: Duration,
    survived_term: bool,
) -> HowEnded {
    if !in_time {
        return HowEnded::TimedOut {
            after: timeout,
            survived_term,
        };
    }
    match (status.code(), status.signal()) {
        (Some(code), _) => HowEnded::Exited { code },
        (None, signal) => HowEnded::Killed {
            signal: signal.unwrap_or_default(),
        },
    }
}

/// Waits until the shell is a zombie, and leaves it one.
async fn shell_ended(shell: Pid, children: &mut Signal) -> io::Result<()> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(shell), look) {
            Ok(WaitStatus::StillAlive) => {
                if children.recv().await.is_none() {
                    return Err(io::Error::other(
                        "the runtime hands out no signals any more",
                    ));
                }
            }
            Err(Errno::EINTR) => {}
            // EINVAL is a death by a signal that has no name, such as a real-time one.
            Ok(_) | Err(Errno::EINVAL) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
