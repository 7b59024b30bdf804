//! Starting a command. This is the one place that knows how: everything else sees a process
//! group and the end of a pipe.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;

use nix::errno::Errno;
use protocol::error::{ErrorCode, ToolError};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::environment::for_commands;
use super::group::Group;
use crate::tools::limits;

/// The shell that runs commands.
const SHELL: &str = "/bin/sh";

/// What to start.
#[derive(Debug)]
pub(crate) struct Order {
    /// For the shell.
    pub(crate) command: String,
    /// Where; absolute.
    pub(crate) directory: PathBuf,
    /// Variables that it must not see, beside those that look like keys.
    pub(crate) hidden_env: Vec<String>,
}

/// A command that runs. Dropping it kills its group; the runtime waits for the shell then.
#[derive(Debug)]
pub(crate) struct Started {
    /// Before `child`, so that the group is killed while its leader still holds its number.
    pub(crate) group: Group,
    pub(crate) child: Child,
    /// Standard output and error in one, in the order in which they are written.
    pub(crate) output: Receiver,
}

/// Starts a command in a process group of its own, with nothing to read and no terminal to ask.
///
/// # Errors
/// `spawn_failed` with the reason in words.
pub(crate) fn start(order: &Order) -> Result<Started, ToolError> {
    if order.command.len() > limits::COMMAND_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!(
                "the command has {} bytes; the most is {}",
                order.command.len(),
                limits::COMMAND_BYTES_MAX
            ),
        )
        .hint("write it into a script with write_file and run that"));
    }
    if order.command.contains('\0') {
        return Err(ToolError::new(
            ErrorCode::InvalidParameters,
            "`command` holds a NUL character, which no command line can hold",
        ));
    }
    spawn(order).map_err(|error| not_started(&error))
}

fn spawn(order: &Order) -> io::Result<Started> {
    let (reader, writer) = io::pipe()?;
    let output = Receiver::from_owned_fd(OwnedFd::from(reader))?;
    let environment: Vec<(OsString, OsString)> =
        for_commands(std::env::vars_os(), &order.hidden_env);
    let mut command = Command::new(SHELL);
    command
        .arg("-c")
        .arg(&order.command)
        .current_dir(&order.directory)
        .env_clear()
        .envs(environment)
        .env("PWD", &order.directory)
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

fn not_started(error: &io::Error) -> ToolError {
    let (why, hint) = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => (
            "no further process may be started: the limit of processes is reached".to_owned(),
            "end what runs in the background, use fewer jobs at once, or wait and try again",
        ),
        Some(Errno::ENOMEM) => (
            "there is not enough memory to start a process".to_owned(),
            "wait and try again, or use commands that need less",
        ),
        Some(Errno::EMFILE | Errno::ENFILE) => ("too many files are open".to_owned(), "try again"),
        Some(Errno::E2BIG) => (
            "command and environment together are too long".to_owned(),
            "write the command into a script with write_file and run that",
        ),
        Some(Errno::ENOENT) => (
            format!("`{SHELL}` or the working directory does not exist"),
            "choose another `working_dir`",
        ),
        Some(errno) => (errno.desc().to_lowercase(), "try again, or report it"),
        None => (error.to_string(), "try again, or report it"),
    };
    ToolError::new(
        ErrorCode::SpawnFailed,
        format!("the command could not be started: {why}"),
    )
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_refusal_is_told_in_words() {
        let table = [
            (Errno::EAGAIN, "the limit of processes is reached"),
            (Errno::ENOMEM, "not enough memory"),
            (Errno::E2BIG, "too long"),
            (Errno::EACCES, "permission denied"),
        ];
        for (errno, words) in table {
            let error = not_started(&io::Error::from_raw_os_error(errno as i32));
            assert_eq!(error.code, ErrorCode::SpawnFailed);
            assert!(error.message.contains(words), "{error}");
            assert!(!error.hint.is_empty());
        }
    }
}
