//! A leader that goes on without the terminal and the process that started it.
//!
//! It is a fresh process, not a fork of a running one: whoever starts it executes the same program
//! again and reads one line from its standard output. That line is the last thing it gets; from
//! then on all three standard descriptors lead elsewhere, so that nothing of the starter is kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};

/// Where a detached leader's output goes, in its run's folder.
pub const OUTPUT_FILE: &str = "output.log";
/// What is read of a detached leader's standard output, in bytes: its one line, or the result of
/// its refusal.
const TOLD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The way back to whoever started this process, until the work has been accepted.
#[derive(Debug)]
pub struct Announcer {
    to: File,
}

impl Announcer {
    /// Leaves the session of the terminal, and keeps the way back.
    ///
    /// # Errors
    /// When this process leads a process group, as one that a shell started does, or the system
    /// refuses.
    pub fn begin() -> io::Result<Announcer> {
        setsid()?;
        // A close-on-exec copy, so that no agent holds the starter's pipe.
        let to = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Announcer { to: to.into() })
    }

    /// Says one line to whoever started this process, and lets go of it: output goes to
    /// [`OUTPUT_FILE`] in `run_dir` from now on.
    ///
    /// # Errors
    /// When the starter has gone, or the file can't be made.
    pub fn announce(mut self, run_dir: &Path, line: &str) -> io::Result<()> {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(output_path(run_dir))?;
        // Held by the descriptors that it becomes, so for as long as this process lives.
        log.lock()?;
        let nothing = File::open("/dev/null")?;
        self.to.write_all(line.as_bytes())?;
        self.to.write_all(b"\n")?;
        dup2_stdin(&nothing)?;
        dup2_stdout(&log)?;
        dup2_stderr(&log)?;
        Ok(())
    }
}

/// Returns once no detached leader of this run has more to print. Blocks for as long as that takes;
/// not for an async task.
pub fn wait_for_output(run_dir: &Path) {
    let Ok(log) = File::open(output_path(run_dir)) else {
        return;
    };
    if let Err(error) = log.lock_shared() {
        tracing::debug!(%error, "the output of a detached leader can't be waited for");
    }
}

/// Where the output of a detached leader of this run lies.
pub fn output_path(run_dir: &Path) -> PathBuf {
    run_dir.join(OUTPUT_FILE)
}

/// What a leader that was started in the background said before it let go, or at its end.
#[derive(Debug)]
pub struct Told {
    /// Everything on its standard output.
    pub stdout: String,
    /// Its process.
    pub pid: u32,
    /// How it ended, if it has not let go.
    pub ended: Option<ExitStatus>,
}

/// Executes this program again with other arguments, and stays until it has let go or ended.
/// Standard input and standard error are handed on. Blocks.
///
/// # Errors
/// When it can't be executed or heard.
#[expect(
    clippy::disallowed_methods,
    reason = "a leader in the background is a process that no agent's tree belongs to"
)]
pub fn start_again(
    arguments: &[std::ffi::OsString],
    has_let_go: impl FnOnce(&str) -> bool,
) -> io::Result<Told> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(TOLD_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    let stdout = String::from_utf8_lossy(&bytes).into_owned();
    let ended = match has_let_go(&stdout) {
        true => None,
        false => Some(child.wait()?),
    };
    Ok(Told {
        stdout,
        pid: child.id(),
        ended,
    })
}

/// The exit code of a process that ended.
///
/// # Errors
/// With the signal that ended it instead.
pub fn code_of(status: ExitStatus) -> Result<u8, i32> {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Err(signal.unwrap_or(0)),
    }
}
