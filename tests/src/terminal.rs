//! A pseudo-terminal with a program on it, whose keys a test presses.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};

use crate::waiting::until;

/// How often the reader looks whether the terminal is to be closed, in milliseconds.
const LOOK_AGAIN_MS: u16 = 20;

/// What Ctrl-C sends.
pub const CTRL_C: &str = "\x03";
/// What Ctrl-Z sends.
pub const CTRL_Z: &str = "\x1a";

/// A program that has a terminal of its own as its controlling one, in a session of its own.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: Option<File>,
    shown: Arc<Mutex<Vec<u8>>>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts a command with its environment on a fresh terminal.
    ///
    /// # Panics
    /// When the system has no terminal to give.
    pub fn start(command: &Command) -> Terminal {
        let (keyboard, screen) = pair().expect("a pseudo-terminal");
        let copy = || Stdio::from(screen.try_clone().expect("a descriptor more"));
        // It executes the program in its own process, so that the number stays.
        let mut session = Command::new("setsid");
        session
            .args(["--ctty", "--"])
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .stdin(copy())
            .stdout(copy())
            .stderr(copy());
        if let Some(folder) = command.get_current_dir() {
            session.current_dir(folder);
        }
        let child = session.spawn().expect("setsid(1)");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let closing = Arc::new(AtomicBool::new(false));
        let master = keyboard.try_clone().expect("a descriptor more");
        let (text, told) = (Arc::clone(&shown), Arc::clone(&closing));
        let reader = thread::spawn(move || read(master, &text, &told));
        Terminal {
            child,
            keyboard: Some(keyboard),
            shown,
            closing,
            reader: Some(reader),
        }
    }

    /// The process id of the program.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// Presses keys.
    ///
    /// # Panics
    /// When the terminal is closed.
    pub fn press(&mut self, keys: &str) {
        let keyboard = self.keyboard.as_mut().expect("an open terminal");
        keyboard
            .write_all(keys.as_bytes())
            .expect("a terminal of ours");
    }

    /// Closes the terminal, as its window would: its session gets SIGHUP.
    ///
    /// # Panics
    /// When the reader can't be ended.
    pub fn close(&mut self) {
        // The terminal hangs up with the last descriptor, and the reader has one.
        self.closing.store(true, Ordering::SeqCst);
        let ended = self.reader.take().map(JoinHandle::join);
        ended
            .expect("a terminal is closed once")
            .expect("a reader does not panic");
        self.keyboard = None;
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until `word` is shown.
    pub fn wait_for(&self, word: &str, budget: Duration) -> bool {
        until(budget, || self.shown().contains(word).then_some(())).is_some()
    }

    /// Waits for the program to end, and gives all that it has shown.
    pub fn end(mut self, budget: Duration) -> (Option<ExitStatus>, String) {
        let status = until(budget, || self.child.try_wait().expect("a child of ours"));
        if status.is_some() {
            // Whoever else had the terminal open is gone too, or the reader would wait for it.
            let reads = || self.reader.as_ref().is_some_and(|it| !it.is_finished());
            let ended = until(budget, || (!reads()).then_some(()));
            assert!(ended.is_some(), "somebody still holds the terminal");
        }
        (status, self.shown())
    }
}

/// Keeps what is shown, until nobody has the other side open or this side is to be closed.
fn read(mut master: File, shown: &Mutex<Vec<u8>>, closing: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !closing.load(Ordering::SeqCst) {
        let mut fds = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, LOOK_AGAIN_MS) {
            Ok(0) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        // The kernel gives EIO once nobody has the other side open.
        let Ok(count @ 1..) = master.read(&mut bytes) else {
            return;
        };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.extend_from_slice(&bytes[..count]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Both sides of a new terminal, see pts(4).
fn pair() -> io::Result<(File, File)> {
    let master = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/ptmx")?;
    let locked: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the request reads one number.
    let unlocked = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) };
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // By the descriptor, for the name is another terminal's in another mount of devpts.
    // SAFETY: the descriptor is open, and the request takes a number.
    let screen = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if unlocked < 0 || screen < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor just now, for us.
    Ok((master, unsafe { File::from_raw_fd(screen) }))
}
