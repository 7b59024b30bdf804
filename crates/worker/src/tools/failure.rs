//! What the system's refusals are called when a model is told of them.

use nix::errno::Errno;
use protocol::error::{ErrorCode, ToolError};

/// What a file tool was about, as its errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Reading a file.
    Read,
    /// Writing a file or making a directory.
    Write,
}

impl Doing {
    fn verb(self) -> &'static str {
        match self {
            Doing::Read => "read",
            Doing::Write => "write",
        }
    }
}

/// The failure of one system call on `shown`, as a model gets it.
pub(crate) fn system_failure(doing: Doing, shown: &str, errno: Errno) -> ToolError {
    let (code, why, hint) = reason(errno);
    ToolError::new(code, format!("can't {} `{shown}`: {why}", doing.verb())).hint(hint)
}

/// The same for an error of the standard library.
pub(crate) fn io_failure(doing: Doing, shown: &str, error: &std::io::Error) -> ToolError {
    match error.raw_os_error() {
        Some(number) => system_failure(doing, shown, Errno::from_raw(number)),
        None => ToolError::new(
            ErrorCode::Io,
            format!("can't {} `{shown}`: {error}", doing.verb()),
        ),
    }
}

fn reason(errno: Errno) -> (ErrorCode, String, &'static str) {
    let words = |text: &str| text.to_owned();
    match errno {
        Errno::ENOENT => (
            ErrorCode::NotFound,
            words("no such file or directory"),
            "list names with search_workspace, kind `files`",
        ),
        Errno::ENOTDIR => (
            ErrorCode::NotFound,
            words("a part of the path is a file, not a directory"),
            "choose a path below a directory",
        ),
        Errno::EISDIR => (
            ErrorCode::NotAFile,
            words("it is a directory"),
            "name a file in it",
        ),
        Errno::EACCES | Errno::EPERM => (
            ErrorCode::PermissionDenied,
            words("permission denied"),
            "use another place, or report that this one is closed to you",
        ),
        Errno::EROFS => (
            ErrorCode::PermissionDenied,
            words(
                "it lies on a read-only file system; the agent's confinement makes what is outside its write scope read-only",
            ),
            "write to the deliverables directory",
        ),
        Errno::EBUSY => (
            ErrorCode::PermissionDenied,
            words("it is busy; a path that the agent's confinement protects can't be replaced"),
            "write to the deliverables directory",
        ),
        Errno::ENOSPC | Errno::EDQUOT => (
            ErrorCode::DiskFull,
            words("the disk is full; the file is as it was before"),
            "delete files that you made and no longer need, or write less",
        ),
        Errno::EFBIG => (
            ErrorCode::TooLarge,
            words("it would grow beyond the largest file allowed; the file is as it was before"),
            "split it into several files",
        ),
        Errno::ENAMETOOLONG => (
            ErrorCode::InvalidParameters,
            words("a name in the path is too long; the most is 255 bytes"),
            "choose a shorter name",
        ),
        Errno::ELOOP => (
            ErrorCode::OutsideWorkspace,
            words("a symbolic link stands where none may be followed"),
            "name the real file",
        ),
        Errno::EMFILE | Errno::ENFILE => {
            (ErrorCode::Io, words("too many files are open"), "try again")
        }
        other => (
            ErrorCode::Io,
            other.desc().to_lowercase(),
            "try again, or report it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_system_have_a_code_and_a_way_on() {
        let table = [
            (
                Errno::EACCES,
                ErrorCode::PermissionDenied,
                "permission denied",
            ),
            (Errno::EROFS, ErrorCode::PermissionDenied, "confinement"),
            (Errno::EBUSY, ErrorCode::PermissionDenied, "confinement"),
            (Errno::ENOSPC, ErrorCode::DiskFull, "the disk is full"),
            (Errno::EDQUOT, ErrorCode::DiskFull, "the disk is full"),
            (
                Errno::ENAMETOOLONG,
                ErrorCode::InvalidParameters,
                "255 bytes",
            ),
            (Errno::EISDIR, ErrorCode::NotAFile, "directory"),
            (Errno::EIO, ErrorCode::Io, "i/o error"),
        ];
        for (errno, code, word) in table {
            let error = system_failure(Doing::Write, "a/b", errno);
            assert_eq!(error.code, code, "{errno}");
            assert!(error.message.starts_with("can't write `a/b`: "), "{error}");
            assert!(error.message.contains(word), "{error}");
            assert!(!error.hint.is_empty(), "{errno}");
        }
    }

    #[test]
    fn an_error_of_the_standard_library_keeps_its_number() {
        let error = std::io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        assert_eq!(
            io_failure(Doing::Read, "f", &error).code,
            ErrorCode::DiskFull
        );
        let other = io_failure(Doing::Read, "f", &std::io::Error::other("odd"));
        assert_eq!(other.message, "can't read `f`: odd");
    }
}
