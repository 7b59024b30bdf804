//! Becomes a program some of whose system calls wait for the word of a test: `refusing SOCKET
//! CALL[,CALL…] PROGRAM [ARGUMENT…]`. The listener of the filter goes to the test through the
//! socket, with the number of the process; see `system_tests::refusals`.

use std::ffi::{CString, OsString};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use system_tests::refusals::call_number;

/// The code for "this very program failed", as with env(1).
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let error = match become_program() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    writeln!(io::stderr(), "refusing: {error}").ok();
    ExitCode::from(FAILED)
}

fn become_program() -> io::Result<std::convert::Infallible> {
    let mut words = std::env::args_os().skip(1);
    let mut next = |what: &str| {
        words
            .next()
            .ok_or_else(|| io::Error::other(format!("no {what} given")))
    };
    let socket = next("socket")?;
    let calls = next("calls")?.into_string().unwrap_or_default();
    let program = next("program")?;
    let numbers = calls
        .split(',')
        .map(|name| call_number(name).ok_or_else(|| io::Error::other(format!("call `{name}`?"))))
        .collect::<io::Result<Vec<u32>>>()?;
    let test = UnixStream::connect(socket)?;
    let listener = listen(&numbers)?;
    let pid = std::process::id().to_le_bytes();
    let fds = [listener.as_raw_fd()];
    sendmsg::<()>(
        test.as_raw_fd(),
        &[IoSlice::new(&pid)],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::empty(),
        None,
    )?;
    drop((test, listener));
    let arguments: Vec<CString> = std::iter::once(program)
        .chain(words)
        .map(|word: OsString| CString::new(word.into_vec()).map_err(io::Error::other))
        .collect::<io::Result<_>>()?;
    Ok(nix::unistd::execvp(&arguments[0], &arguments)?)
}

/// Installs a filter on this process and all that it will start: these calls are told to the
/// listener, all others go through.
fn listen(numbers: &[u32]) -> io::Result<OwnedFd> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // The number of the call is the first field of what a filter sees.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for number in numbers {
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *number)
        });
        let told = libc::SECCOMP_RET_USER_NOTIF;
        filter.push(statement(libc::BPF_RET | libc::BPF_K, told));
    }
    let through = libc::SECCOMP_RET_ALLOW;
    filter.push(statement(libc::BPF_RET | libc::BPF_K, through));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers alone.
    let fixed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if fixed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its filter are of the types that this operation wants, and outlive
    // the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    let listener = i32::try_from(listener).map_err(io::Error::other)?;
    // SAFETY: the kernel made this descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}
