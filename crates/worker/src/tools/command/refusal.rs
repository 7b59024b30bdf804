//! Why a command did not start, in words for a model.

use std::io;

use confine::keeper::ClientError;
use confine::report::{Failed, Step};
use nix::errno::Errno;
use protocol::error::{ErrorCode, ToolError};

use super::order::SHELL;

/// What to try when nothing better is known.
const TRY_AGAIN: &str = "try again, or report it";

/// The system refused to start it.
pub(super) fn by_system(error: &io::Error) -> ToolError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => refused(
            &format!("`{SHELL}` or the working directory does not exist"),
            "choose another `working_dir`",
        ),
        Some(errno) => by_errno(errno).unwrap_or_else(|| refused(&words(errno), TRY_AGAIN)),
        None => refused(&error.to_string(), TRY_AGAIN),
    }
}

/// The jail or the keeper could not start it. This is no exit code: a shell that ends with 125,
/// 126 or 127 has been started.
pub(super) fn by_jail(failed: &Failed) -> ToolError {
    let errno = failed.errno.map(Errno::from_raw);
    match (failed.step, errno) {
        (Step::Chdir, Some(errno)) => refused(
            &format!("the working directory can't be entered: {}", words(errno)),
            "choose another `working_dir`",
        ),
        (_, errno) => errno
            .and_then(by_errno)
            .unwrap_or_else(|| refused(&failed.message, TRY_AGAIN)),
    }
}

/// The keeper could not be asked.
pub(super) fn by_client(error: &ClientError) -> ToolError {
    match error {
        ClientError::TooLarge { .. } => {
            by_errno(Errno::E2BIG).unwrap_or_else(|| refused(&error.to_string(), TRY_AGAIN))
        }
        ClientError::Report(cause) => by_system(cause),
        ClientError::Send(cause) => refused(
            &format!("what starts the commands of this agent can't be reached: {cause}"),
            "no command can run any more: deliver what there is and report this",
        ),
        ClientError::NoSocket(_) | ClientError::Taken => refused(&error.to_string(), TRY_AGAIN),
    }
}

/// A jail said neither that the command ended nor that it did not start.
pub(super) fn lost(output: &str) -> ToolError {
    let said = output.trim();
    let said = match said.is_empty() {
        true => String::new(),
        false => format!("; the last that was printed: {said}"),
    };
    ToolError::new(
        ErrorCode::Io,
        format!("the command was ended, since the process that held it is gone{said}"),
    )
    .hint("what it did until then stands; try again, or report it")
}

/// It has been killed, and is not gone.
pub(super) fn immovable() -> ToolError {
    ToolError::new(
        ErrorCode::Io,
        "the command was killed and its processes have not ended: they wait inside the kernel, \
         such as for a file system that does not answer",
    )
    .hint("do not touch that file system again; report what happened")
}

/// It could not be watched.
pub(super) fn unwatched(error: &io::Error) -> ToolError {
    ToolError::new(
        ErrorCode::Io,
        format!("the command was ended, since it could not be watched: {error}"),
    )
    .hint(TRY_AGAIN)
}

/// The refusals that a model can do something about.
fn by_errno(errno: Errno) -> Option<ToolError> {
    let (why, hint) = match errno {
        Errno::EAGAIN => (
            "no further process may be started: the limit of processes is reached",
            "end what runs in the background, use fewer jobs at once, or wait and try again",
        ),
        Errno::ENOMEM => (
            "there is not enough memory to start a process",
            "wait and try again, or use commands that need less",
        ),
        Errno::EMFILE | Errno::ENFILE => ("too many files are open", "try again"),
        Errno::E2BIG => (
            "command and environment together are too long",
            "write the command into a script with write_file and run that",
        ),
        _ => return None,
    };
    Some(refused(why, hint))
}

fn words(errno: Errno) -> String {
    errno.desc().to_lowercase()
}

fn refused(why: &str, hint: &str) -> ToolError {
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
            let error = by_system(&io::Error::from_raw_os_error(errno as i32));
            assert_eq!(error.code, ErrorCode::SpawnFailed);
            assert!(error.message.contains(words), "{error}");
            assert!(!error.hint.is_empty());
        }
    }

    #[test]
    fn a_jails_refusal_is_told_in_the_same_words_where_it_is_the_same() {
        let failed = |step, errno: Option<Errno>| Failed {
            step,
            errno: errno.map(|errno| errno as i32),
            errno_name: None,
            path: None,
            message: "could not do it".to_owned(),
        };
        let table = [
            (
                failed(Step::Fork, Some(Errno::EAGAIN)),
                "the limit of processes is reached",
            ),
            (
                failed(Step::Chdir, Some(Errno::ENOENT)),
                "the working directory can't be entered: no such file or directory",
            ),
            (failed(Step::Mount, Some(Errno::EPERM)), "could not do it"),
            (failed(Step::Policy, None), "could not do it"),
        ];
        for (failed, words) in table {
            let error = by_jail(&failed);
            assert_eq!(error.code, ErrorCode::SpawnFailed);
            assert!(error.message.ends_with(words), "{error}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_has_a_way_out() {
        let error = by_client(&ClientError::TooLarge { bytes: 200_000 });
        assert!(error.hint.contains("write_file"), "{error}");
        let gone = io::Error::from_raw_os_error(libc::EPIPE);
        let error = by_client(&ClientError::Send(gone));
        assert_eq!(error.code, ErrorCode::SpawnFailed);
        assert!(error.hint.contains("report"), "{error}");
    }
}
