//! The oracle for "all processes are gone": a named pipe that they hold open for writing.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A named pipe in a workspace. A process that opens it for writing is seen to live as long as it
/// or any descendant keeps it open; the kernel tells the end, so nothing is guessed from names.
#[derive(Debug)]
pub struct Liveness {
    path: PathBuf,
    reader: File,
}

impl Liveness {
    /// Makes the pipe `name` in `folder`.
    ///
    /// # Panics
    /// When the system refuses; a test can't go on then.
    pub fn new(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("a fresh name in a fresh folder");
        let reader = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .expect("a pipe opens for reading without a writer when it does not block");
        Liveness { path, reader }
    }

    /// Shell text that takes hold of the pipe in descriptor 9 and says so in it.
    pub fn hold(&self) -> String {
        format!("exec 9>'{}'; echo up >&9; ", self.path.display())
    }

    /// Waits until `count` holders have said that they are up.
    pub fn wait_up(&mut self, count: usize, budget: Duration) -> bool {
        let end = Instant::now() + budget;
        let mut seen = 0;
        let mut buffer = [0u8; 4096];
        while seen < count {
            match self.reader.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    seen += buffer[..n].iter().filter(|byte| **byte == b'\n').count();
                }
                // No holder yet, or none has spoken since: both are waited for.
                _ if Instant::now() >= end => return false,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        true
    }

    /// Waits until every holder is gone, and says how long that took; none when some are left.
    pub fn wait_gone(&mut self, budget: Duration) -> Option<Duration> {
        let start = Instant::now();
        // The kernel tells the end only of a pipe that has had a holder, and perhaps none came so
        // far: this one comes and goes.
        let visit = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&self.path);
        drop(visit.expect("a pipe with a reader opens for writing"));
        let mut buffer = [0u8; 4096];
        loop {
            let left = budget.checked_sub(start.elapsed())?;
            let mut fds = [PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            poll(&mut fds, timeout).expect("polling a pipe of ours");
            let events = fds[0].revents().unwrap_or(PollFlags::empty());
            if events.contains(PollFlags::POLLIN) {
                // Words of a holder are no end; they are taken out so that poll can wait again.
                if matches!(self.reader.read(&mut buffer), Ok(0)) {
                    return Some(start.elapsed());
                }
            } else if events.contains(PollFlags::POLLHUP) {
                return Some(start.elapsed());
            }
        }
    }
}
