//! Running an executable to its end, with a limit, and keeping what it said.

use std::io::Read;
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
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = until(budget, || child.try_wait().expect("a child of ours"));
    let took = start.elapsed();
    let status = status.unwrap_or_else(|| {
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours")
    });
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("a reader does not panic")).into_owned()
    };
    let ended = Ended {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
        took,
    };
    assert!(took < budget, "{command:?} took {took:?}: {ended:?}");
    ended
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
