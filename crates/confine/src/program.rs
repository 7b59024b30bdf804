//! The last process of the start: it takes its limits upon itself and becomes the program.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::descriptors::{self, ProgramEnds};
use crate::inside::{InnerEnd, Message};
use crate::policy::JailPolicy;
use crate::report::{Confinement, Step};
use crate::rlimits;
use crate::signals_in;
use crate::steps::StepError;
use crate::sys;

/// What is executed.
#[derive(Debug, Clone)]
pub(crate) struct ProgramCall {
    /// The program, a path or a name to look up in PATH.
    pub(crate) program: OsString,
    /// Its arguments, without its own name.
    pub(crate) args: Vec<OsString>,
}

/// Sets this freshly forked process up, waits for the jail's word and executes the program.
///
/// Every signal must be blocked; they are let through just before the program begins, so that one
/// that comes early ends it and is not lost.
pub(crate) fn become_program(
    policy: &JailPolicy,
    call: &ProgramCall,
    ends: &ProgramEnds,
    inner: &InnerEnd,
    mut confinement: Confinement,
) -> ! {
    let error = match prepare(policy, call, ends, &mut confinement) {
        Ok(image) => {
            inner.tell(&Message::Ready(confinement));
            if !inner.wait_for_go() {
                sys::exit_now(crate::limits::EXIT_NOT_STARTED);
            }
            image.execute()
        }
        Err(error) => error,
    };
    let code = error.exit_code();
    inner.tell(&Message::Failed(error));
    sys::exit_now(code)
}

fn prepare(
    policy: &JailPolicy,
    call: &ProgramCall,
    ends: &ProgramEnds,
    confinement: &mut Confinement,
) -> Result<Image, StepError> {
    sys::reset_dispositions();
    nix::unistd::setsid()
        .map_err(|errno| StepError::errno(Step::Session, errno, "make a session"))?;
    ends.install()?;
    rlimits::apply(policy)?;
    confinement.gaps.extend(rlimits::offer_to_oom_killer());
    if let Some(directory) = policy.directory() {
        // By its path and after the mounts: an inherited directory would still be the one below
        // them, and `..` from there leads around every mask.
        nix::unistd::chdir(directory.as_path()).map_err(|errno| {
            StepError::errno(Step::Chdir, errno, "enter the working directory").at(directory)
        })?;
    }
    if let Some(fd) = policy.keep_fd.filter(|&fd| !descriptors::is_open(fd)) {
        return Err(StepError::new(
            Step::Descriptors,
            format!("keep descriptor {fd}: not open"),
        ));
    }
    Image::new(call)
}

/// Everything that execve(2) needs.
struct Image {
    candidates: Vec<PathBuf>,
    argv: Vec<CString>,
    envp: Vec<CString>,
}

impl Image {
    fn new(call: &ProgramCall) -> Result<Image, StepError> {
        let mut argv = vec![c_string(&call.program)?];
        for argument in &call.args {
            argv.push(c_string(argument)?);
        }
        let mut envp = Vec::new();
        for (name, value) in std::env::vars_os() {
            let mut pair = name;
            pair.push("=");
            pair.push(value);
            envp.push(c_string(&pair)?);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(Image {
            candidates: candidates(&call.program, &path),
            argv,
            envp,
        })
    }

    /// Executes the first candidate there is; returns only the failure that tells most.
    ///
    /// Not execvp(3): it would hand a file that is no program to the shell.
    fn execute(&self) -> StepError {
        let mut telling = Errno::ENOENT;
        let mut at = self.candidates.first().cloned().unwrap_or_default();
        for candidate in &self.candidates {
            let path = match c_string(candidate.as_os_str()) {
                Ok(path) => path,
                Err(error) => return error,
            };
            if let Err(errno) = signals_in::unblock_all() {
                return StepError::errno(Step::Signals, errno, "let signals through");
            }
            let errno = match nix::unistd::execve(&path, &self.argv, &self.envp) {
                Ok(never) => match never {},
                Err(errno) => errno,
            };
            if errno != Errno::ENOENT && errno != Errno::ENOTDIR || self.candidates.len() == 1 {
                telling = errno;
                at = candidate.clone();
            }
            if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) {
                break;
            }
        }
        StepError::errno(Step::Exec, telling, "execute").at(&at)
    }
}

/// Where a program may lie: a name without a slash is looked up in PATH.
fn candidates(program: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.into()];
    }
    let found: Vec<PathBuf> = std::env::split_paths(path)
        .filter(|directory| !directory.as_os_str().is_empty())
        .map(|directory| directory.join(program))
        .collect();
    if found.is_empty() {
        vec![Path::new(program).to_owned()]
    } else {
        found
    }
}

fn c_string(text: &OsStr) -> Result<CString, StepError> {
    CString::new(text.as_bytes())
        .map_err(|_| StepError::new(Step::Exec, "pass an argument that holds a zero byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_name_is_looked_up_and_never_in_an_empty_path_entry() {
        let find = |program: &str, path: &str| candidates(program.as_ref(), path.as_ref());
        assert_eq!(
            find("sh", "/a::/b"),
            [PathBuf::from("/a/sh"), "/b/sh".into()]
        );
        assert_eq!(find("./sh", "/a"), [PathBuf::from("./sh")]);
        assert_eq!(find("/x/sh", "/a"), [PathBuf::from("/x/sh")]);
    }
}
