//! The probe's canary: a process that escapes as a daemon does, so that a kill has to prove itself.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

use nix::unistd::ForkResult;

use crate::limits;
use crate::sys::best_effort;

/// Forks twice with a session of its own in between, and ends once the escaped one is up.
///
/// The escaped one holds `fd` and ends when its other side is closed, so that where nothing kills
/// it, nothing is left behind either.
pub(crate) fn run(fd: i32) -> ExitCode {
    let Ok((read, write)) = nix::unistd::pipe() else {
        return ExitCode::FAILURE;
    };
    // SAFETY: this process has one thread, so the child may use everything it inherits.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => {
            drop(read);
            escape(fd, write)
        }
        Ok(ForkResult::Parent { .. }) => {
            drop(write);
            let mut up = Vec::new();
            match File::from(read).read_to_end(&mut up) {
                Ok(1) => ExitCode::SUCCESS,
                Ok(_) | Err(_) => ExitCode::FAILURE,
            }
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn escape(fd: i32, up: OwnedFd) -> ! {
    let detached = nix::unistd::setsid();
    // SAFETY: as above, one thread.
    match (detached, unsafe { nix::unistd::fork() }) {
        (Ok(_), Ok(ForkResult::Child)) => {
            nix::unistd::alarm::set(limits::CANARY_LIFETIME_SECONDS);
            // The prober reads what the jail said up to the end of file. Where nothing kills this
            // process, it must not be the one that keeps the pipe open.
            for standard in 0..=2 {
                best_effort(nix::unistd::close(standard));
            }
            // SAFETY: the caller of `--canary` hands `fd` over for this process to own.
            let mut hold = unsafe { File::from_raw_fd(fd) };
            best_effort(File::from(up).write_all(b"u"));
            let mut byte = [0];
            // End of file or an error: the prober has closed its side.
            best_effort(hold.read(&mut byte));
            crate::sys::exit_now(0)
        }
        _ => crate::sys::exit_now(0),
    }
}
