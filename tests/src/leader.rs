//! Running an executable to its end, with a limit, and keeping what it said.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::waiting::until;

/// What a run came to.
#[derive(Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
    /// From start to exit.
    pub took: Duration,
    /// The processor time of it and of every descendant that was waited for.
    pub cpu: Duration,
    /// The most memory that one of them held, in KiB.
    pub peak_kib: u64,
}

impl Ended {
    /// The exit code; -1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Stdout as one JSON value.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!(
                "no JSON ({error}):\nstdout: {}\nstderr: {}",
                self.stdout, self.stderr
            )
        })
    }
}

/// Runs a command to its end.
///
/// # Panics
/// When it can't be started, or is not done within the budget (it is killed then).
pub fn run(command: &mut Command, budget: Duration) -> Ended {
    run_with_stdin(command, Stdio::null(), budget)
}

/// Runs a command to its end that reads from something.
///
/// # Panics
/// As [`run`].
#[expect(
    clippy::zombie_processes,
    reason = "the child is waited for with wait4, which tells what it used"
)]
pub fn run_with_stdin(command: &mut Command, stdin: Stdio, budget: Duration) -> Ended {
    let start = Instant::now();
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let pid = i32::try_from(child.id()).expect("a pid fits");
    let reaped = until(budget, || reap(pid, libc::WNOHANG));
    let took = start.elapsed();
    let (status, usage) = reaped.unwrap_or_else(|| {
        child.kill().expect("a child of ours");
        reap(pid, 0).expect("a killed child ends")
    });
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("a reader does not panic")).into_owned()
    };
    let ended = Ended {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
        took,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        peak_kib: u64::try_from(usage.ru_maxrss).expect("no size is negative"),
    };
    assert!(took < budget, "{command:?} took {took:?}: {ended:?}");
    ended
}

/// Waits for a child and takes what it and its descendants used, which the standard library does
/// not tell; none when it is still alive.
fn reap(pid: i32, flags: i32) -> Option<(ExitStatus, libc::rusage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers lead to writable memory of their types that outlives the call.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, flags, usage.as_mut_ptr()) };
    assert!(
        reaped >= 0,
        "wait4 of a child of ours: {}",
        io::Error::last_os_error()
    );
    // SAFETY: the structure is plain numbers; zeroed it is valid, and the kernel has filled it.
    let usage = unsafe { usage.assume_init() };
    (reaped == pid).then(|| (ExitStatus::from_raw(status), usage))
}

fn duration(time: libc::timeval) -> Duration {
    let part = |number: i64| u64::try_from(number).expect("no time is negative");
    Duration::from_secs(part(time.tv_sec)) + Duration::from_micros(part(time.tv_usec))
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A torn read leaves what came before it, which is what a failed test wants to show.
            pipe.read_to_end(&mut bytes).ok();
        }
        bytes
    })
}
