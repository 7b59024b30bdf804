//! Starts jails in every way the tests need, and never waits without a budget.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use confine::policy::JailPolicy;
use confine::report::{JailLine, Rung, Started};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

/// Longest time that anything here may take on a busy machine.
pub(crate) const BUDGET: Duration = Duration::from_secs(20);

/// An ordinary user that owns nothing and runs nothing on any machine.
const ORDINARY: u32 = 12_345;

/// Whose processes a test starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Myself,
    /// An unused uid; only root can become it.
    Ordinary,
}

/// Every user this run can be.
pub(crate) fn users() -> Vec<User> {
    if nix::unistd::geteuid().is_root() {
        vec![User::Myself, User::Ordinary]
    } else {
        skipped("only root can run this as another user too");
        vec![User::Myself]
    }
}

/// Says on stderr, past the capture of a test's output, that something was not looked at, and why.
pub(crate) fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    writeln!(std::io::stderr(), "skipped: {why} ({test})").ok();
}

/// Every rung at which a test is to hold, with every user.
pub(crate) fn everywhere() -> Vec<(User, Rung)> {
    let rungs = [Rung::Pidns, Rung::Subreaper, Rung::Group];
    users()
        .into_iter()
        .flat_map(|user| rungs.map(|rung| (user, rung)))
        .collect()
}

/// A policy that gets exactly `rung`.
pub(crate) fn exactly(rung: Rung) -> JailPolicy {
    JailPolicy {
        require: rung,
        highest: rung,
        ..JailPolicy::default()
    }
}

/// A copy of `jail` that every user can reach: the build directory may be private.
pub(crate) fn jail() -> &'static Path {
    static COPY: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
        let directory = public_dir();
        let copy = directory.path().join("jail");
        copy_executable(env!("CARGO_BIN_EXE_jail").as_ref(), &copy);
        (directory, copy)
    });
    &COPY.1
}

/// Copies a file that is going to be executed.
///
/// Under the lock: a process forked while the copy is open for writing makes it busy.
pub(crate) fn copy_executable(from: &Path, to: &Path) {
    let _guard = SPAWN.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::copy(from, to).unwrap();
}

/// A temporary directory that every user may enter, and write to.
pub(crate) fn public_dir() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    directory
}

/// The side of the liveness socket that stays here.
#[derive(Debug)]
pub(crate) struct Liveness(OwnedFd);

impl Liveness {
    /// Whether every process that inherited the other side is gone within `budget`.
    pub(crate) fn is_empty_within(&self, budget: Duration) -> bool {
        let deadline = Instant::now() + budget;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, PollTimeout::try_from(left).unwrap()) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => panic!("poll: {errno}"),
            }
            let mut bytes = [0; 64];
            if nix::unistd::read(&self.0, &mut bytes).unwrap() == 0 {
                return true;
            }
        }
    }

    /// Waits until `count` processes have each written a byte into their side.
    pub(crate) fn wait_for_marks(&self, count: usize) {
        let deadline = Instant::now() + BUDGET;
        let mut seen = 0;
        while seen < count {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let ready = nix::poll::poll(&mut fds, PollTimeout::try_from(left).unwrap()).unwrap();
            assert!(ready > 0, "only {seen} of {count} marks came");
            let mut byte = [0; 1];
            assert_eq!(
                nix::unistd::read(&self.0, &mut byte).unwrap(),
                1,
                "all ended early"
            );
            seen += 1;
        }
    }
}

/// The number of the inherited side of a liveness socket, the same in every process.
pub(crate) const KEEP: i32 = 200;

/// Held while a descriptor without CLOEXEC is open, so that it reaches one child only.
static SPAWN: Mutex<()> = Mutex::new(());

/// Spawns `command` with the far side of a new liveness socket as descriptor [`KEEP`].
pub(crate) fn spawn_alive(mut command: Command) -> (Child, Liveness) {
    let _guard = SPAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mine, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let keep = fcntl(theirs.as_fd(), FcntlArg::F_DUPFD(KEEP)).unwrap();
    assert_eq!(keep, KEEP, "descriptor {KEEP} must be free");
    // SAFETY: F_DUPFD made this descriptor just now.
    let keep = unsafe { OwnedFd::from_raw_fd(keep) };
    fcntl(keep.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let child = command.spawn().unwrap();
    drop((keep, theirs));
    (child, Liveness(mine))
}

/// A command that runs `program` as `user`.
pub(crate) fn command(user: User, program: &Path) -> Command {
    match user {
        User::Myself => Command::new(program),
        User::Ordinary => {
            let mut command = Command::new("setpriv");
            command
                .args([
                    "--reuid",
                    &ORDINARY.to_string(),
                    "--regid",
                    &ORDINARY.to_string(),
                ])
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        }
    }
}

/// A jail that was started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) live: Liveness,
    stdout: ChildStdout,
    text: String,
}

/// A jail that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) started: Option<Started>,
    pub(crate) last: Option<JailLine>,
    /// What the program wrote.
    pub(crate) output: String,
}

/// Starts `words` in a jail of `policy`, with the liveness socket kept open in it.
pub(crate) fn start(user: User, policy: &JailPolicy, words: &[&str]) -> Running {
    let policy = JailPolicy {
        keep_fd: Some(KEEP),
        ..policy.clone()
    };
    let arguments: Vec<OsString> = words[1..].iter().map(OsString::from).collect();
    let mut command = command(user, jail());
    command.args(policy.to_args(words[0].as_ref(), &arguments));
    Running::spawn(command)
}

/// Starts a shell script in a jail.
pub(crate) fn start_script(user: User, policy: &JailPolicy, script: &str) -> Running {
    // Not every sh can redirect to a descriptor above 9.
    start(user, policy, &["/bin/bash", "-c", script])
}

/// The same, with the lines of its standard error as they come.
pub(crate) fn start_heard(
    user: User,
    policy: &JailPolicy,
    script: &str,
) -> (Running, mpsc::Receiver<String>) {
    let arguments = ["-c".into(), script.into()];
    let mut command = command(user, jail());
    command.args(policy.to_args("/bin/bash".as_ref(), &arguments));
    let mut running = Running::spawn_with(command, Stdio::piped());
    let stderr = BufReader::new(running.child.stderr.take().unwrap());
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        // Whoever has heard enough is gone.
        stderr
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| told.send(line))
    });
    (running, heard)
}

impl Running {
    /// Spawns a jail, or a process that starts one, in a group of its own.
    pub(crate) fn spawn(command: Command) -> Running {
        Running::spawn_with(command, Stdio::inherit())
    }

    fn spawn_with(mut command: Command, stderr: Stdio) -> Running {
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let (mut child, live) = spawn_alive(command);
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().unwrap();
        Running {
            child,
            stdin,
            live,
            stdout,
            text: String::new(),
        }
    }

    /// Reads on until a line satisfies `wanted`, and gives what it made of it.
    pub(crate) fn line<T>(&mut self, wanted: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + BUDGET;
        loop {
            if let Some(found) = self.text.lines().find_map(&wanted) {
                return found;
            }
            assert!(
                self.read_more(deadline),
                "the output ended early: {}",
                self.text
            );
        }
    }

    /// Waits for the report of the start.
    pub(crate) fn started(&mut self) -> Started {
        self.line(|line| match JailLine::parse(line) {
            Some(JailLine::Started(started)) => Some(started),
            _ => None,
        })
    }

    /// Waits until the program has written the line `text`.
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.line(|line| (line == text).then_some(()));
    }

    /// Waits for the end, output first.
    pub(crate) fn finish(mut self) -> Finished {
        let deadline = Instant::now() + BUDGET;
        while self.read_more(deadline) {}
        let status = self.child.wait().unwrap();
        let mut started = None;
        let mut last = None;
        let mut output = String::new();
        for line in self.text.lines() {
            match JailLine::parse(line) {
                Some(JailLine::Started(line)) => started = Some(line),
                Some(line) => last = Some(line),
                None if line.is_empty() => {}
                None => output.push_str(&format!("{line}\n")),
            }
        }
        Finished {
            status,
            started,
            last,
            output,
        }
    }

    fn read_more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
        let ready = nix::poll::poll(&mut fds, PollTimeout::try_from(left).unwrap()).unwrap();
        assert!(
            ready > 0,
            "no output within the budget; so far: {}",
            self.text
        );
        let mut bytes = [0; 4096];
        let count = self.stdout.read(&mut bytes).unwrap();
        self.text
            .push_str(&String::from_utf8_lossy(&bytes[..count]));
        count > 0
    }
}

impl Drop for Running {
    /// A failed test leaves nothing behind: the jail's end is the tree's.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Sends a signal to a child that is not reaped.
pub(crate) fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    confine::signal::PidFd::open(child.id())
        .unwrap()
        .send(signal)
        .unwrap();
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + BUDGET;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within the budget");
        std::thread::sleep(Duration::from_millis(2));
    }
}
