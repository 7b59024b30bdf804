//! Starting a command in a process group, where nothing stronger can hold it.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::group::Group;
use super::order::Order;

/// A command that runs. Dropping it kills its group; the runtime waits for the shell then.
#[derive(Debug)]
pub(super) struct Started {
    /// Before `child`, so that the group is killed while its leader still holds its number.
    pub(super) group: Group,
    pub(super) child: Child,
    /// Standard output and error in one, in the order in which they are written.
    pub(super) output: Receiver,
}

/// Starts a command in a process group of its own, with nothing to read and no terminal to ask.
///
/// # Errors
/// When the system refuses.
#[expect(
    clippy::disallowed_methods,
    reason = "this is a place that starts commands"
)]
pub(super) fn start(order: &Order) -> io::Result<Started> {
    let (reader, writer) = io::pipe()?;
    let output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let [shell, arguments @ ..] = order.argv();
    let mut command = Command::new(shell);
    command
        .args(arguments)
        .current_dir(&order.directory)
        .env_clear()
        .envs(order.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::from(writer.try_clone()?))
        .stderr(Stdio::from(writer))
        .process_group(0);
    let child = command.spawn()?;
    // The builder still holds both writing ends; with them the pipe would never end.
    drop(command);
    let group = child
        .id()
        .and_then(Group::of_leader)
        .ok_or_else(|| io::Error::other("the system gave it no number"))?;
    Ok(Started {
        group,
        child,
        output,
    })
}
