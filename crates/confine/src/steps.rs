//! A failed step of the start: where, why, on which path.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::path_text;
use crate::report::{Failed, Step};

/// One failed step; it travels from the inner processes to the jail as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepError {
    /// Where.
    pub(crate) step: Step,
    /// The kernel's word, if it was the kernel.
    pub(crate) errno: Option<i32>,
    /// The path concerned.
    #[serde(with = "path_text::optional")]
    pub(crate) path: Option<PathBuf>,
    /// What was tried, as the object of "could not".
    pub(crate) what: String,
}

impl StepError {
    pub(crate) fn new(step: Step, what: impl Into<String>) -> StepError {
        StepError {
            step,
            errno: None,
            path: None,
            what: what.into(),
        }
    }

    pub(crate) fn errno(step: Step, errno: Errno, what: impl Into<String>) -> StepError {
        StepError {
            errno: Some(errno as i32),
            ..StepError::new(step, what)
        }
    }

    pub(crate) fn at(self, path: &Path) -> StepError {
        StepError {
            path: Some(path.to_owned()),
            ..self
        }
    }

    /// The exit code that shells use for this failure.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.step, self.errno.map(Errno::from_raw)) {
            (Step::Exec, Some(Errno::ENOENT)) => limits::EXIT_NOT_FOUND,
            (Step::Exec, _) => limits::EXIT_NOT_EXECUTABLE,
            _ => limits::EXIT_NOT_STARTED,
        }
    }

    /// The report for the caller.
    pub(crate) fn into_failed(self) -> Failed {
        let message = self.to_string();
        Failed {
            step: self.step,
            errno: self.errno,
            errno_name: self
                .errno
                .map(|number| format!("{:?}", Errno::from_raw(number))),
            path: self.path,
            message,
        }
    }
}

impl std::fmt::Display for StepError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "could not {}", self.what)?;
        if let Some(path) = &self.path {
            write!(f, " `{}`", path.display())?;
        }
        if let Some(errno) = self.errno.map(Errno::from_raw) {
            write!(f, ": {}", errno.desc())?;
            if let Some(hint) = hint(self.step, errno) {
                write!(f, " (hint: {hint})")?;
            }
        }
        Ok(())
    }
}

/// What to try, where there is something to try.
fn hint(step: Step, errno: Errno) -> Option<&'static str> {
    match (step, errno) {
        (Step::Exec, Errno::ENOENT) => {
            Some("check the path; for a script, also the interpreter that its first line names")
        }
        (Step::Exec, Errno::EACCES) => Some("make it executable, and check that it is a file"),
        (Step::Exec, Errno::ENOEXEC) => Some(
            "give a script a first line such as `#!/bin/sh`, or rebuild the binary for this machine",
        ),
        (Step::Fork, Errno::EAGAIN) => {
            Some("too many processes; end some or raise the process cap")
        }
        (Step::Fork | Step::LeaderWatch, Errno::ENOSYS) => {
            Some("pidfds need Linux 5.3 or newer, and no filter against them")
        }
        (_, Errno::EMFILE | Errno::ENFILE) => Some("too many open files; raise `ulimit -n`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let at = |step, errno| StepError::errno(step, errno, "x").exit_code();
        assert_eq!(at(Step::Exec, Errno::ENOENT), 127);
        assert_eq!(at(Step::Exec, Errno::EACCES), 126);
        assert_eq!(at(Step::Exec, Errno::ENOEXEC), 126);
        assert_eq!(at(Step::Chdir, Errno::ENOENT), 125);
        assert_eq!(StepError::new(Step::Policy, "x").exit_code(), 125);
    }

    #[test]
    fn the_report_says_what_where_why_and_what_to_try() {
        let error =
            StepError::errno(Step::Exec, Errno::ENOENT, "execute").at(Path::new("/no/such"));
        assert_eq!(
            error.into_failed(),
            Failed {
                step: Step::Exec,
                errno: Some(2),
                errno_name: Some("ENOENT".to_owned()),
                path: Some("/no/such".into()),
                message:
                    "could not execute `/no/such`: No such file or directory (hint: check the \
                          path; for a script, also the interpreter that its first line names)"
                        .to_owned(),
            }
        );
    }
}
