//! Process trees that do all they can to outlive their agent, and the pipes that tell whether one
//! did.
//!
//! Each escaping process holds the writing end of a named pipe of its own. The kernel tells the
//! end of the last holder, so that nothing is guessed from names or numbers of processes. Each
//! carries its own end too: whatever goes wrong, nothing is left behind for longer than
//! [`LIFE_SECONDS`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::faces::doctor::prove::proof::Emptied;
use crate::os::clock;

/// After so many seconds an escaping process ends by itself: later than anybody waits for it.
pub const LIFE_SECONDS: u32 = 30;
/// The script that starts all escaping processes of one agent and stays.
const ALL: &str = "all.sh";
/// Bytes read from a pipe in one go; a holder says one short word.
const WORD_BYTES: usize = 64;

/// The ways in which a process escapes, each with its script. `$1` is its pipe and `$2` how many
/// seconds it may live.
const ESCAPES: [(&str, &str); 4] = [
    // Forks twice with a session of its own in between, as daemons do.
    (
        "daemon",
        "( exec 9>\"$1\"; echo up >&9; exec sleep \"$2\" ) &\n",
    ),
    // What a program ignores, the program that it executes ignores too.
    (
        "deaf",
        "trap '' TERM HUP INT QUIT\nexec 9>\"$1\"\necho up >&9\nexec sleep \"$2\"\n",
    ),
    // A stopped process takes no signal but the kill, and ends no more by itself.
    (
        "stopped",
        "exec timeout -s KILL \"$2\" sh -c 'exec 9>\"$1\"; echo up >&9; kill -STOP $$' sh \"$1\"\n",
    ),
    // Another process every few milliseconds: whoever looks for it comes too late.
    (
        "hopper",
        "if [ -z \"$3\" ]; then\n    exec 9>\"$1\"\n    echo up >&9\n    \
         set -- \"$1\" \"$2\" $(( $(date +%s) + $2 ))\nfi\n\
         [ \"$(date +%s)\" -lt \"$3\" ] || exit 0\nsleep 0.02\nsh \"$0\" \"$@\" &\n",
    ),
];

/// How many processes escape from each agent.
pub const ESCAPES_PER_AGENT: usize = ESCAPES.len();

/// Writes the scripts into `folder`, which must be there.
///
/// # Errors
/// When the system refuses.
pub fn write_scripts(folder: &Path) -> io::Result<()> {
    // `setsid` forks where it has to, and a shell does not wait for what it starts with `&`.
    let mut all = String::from("folder=$1 agent=$2 seconds=$3\n");
    for (name, script) in ESCAPES {
        std::fs::write(folder.join(format!("{name}.sh")), script)?;
        all.push_str(&format!(
            "setsid sh \"$folder/{name}.sh\" \"$folder/$agent-{name}\" \"$seconds\" \
             </dev/null >/dev/null 2>&1 &\n"
        ));
    }
    all.push_str("exec sleep \"$seconds\"\n");
    std::fs::write(folder.join(ALL), all)
}

/// The shell command that starts the trees of an agent; `folder` and `agent` go into it as they
/// are.
pub fn command(folder: &str, agent: &str) -> String {
    format!("sh {folder}/{ALL} {folder} {agent} {LIFE_SECONDS}")
}

/// How far the holder of a pipe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Awaited,
    Up,
    Gone,
}

#[derive(Debug)]
struct Pipe {
    reader: File,
    holder: Holder,
}

/// The pipes of some agents' escaping processes.
#[derive(Debug)]
pub struct Trees {
    pipes: Vec<Pipe>,
}

impl Trees {
    /// Makes the pipes of these agents in the scripts' folder.
    ///
    /// # Errors
    /// When the system refuses, or they are there already.
    pub fn new(folder: &Path, agents: &[u32]) -> io::Result<Trees> {
        let mut pipes = Vec::new();
        for agent in agents {
            for (name, _) in ESCAPES {
                let path = folder.join(format!("{agent}-{name}"));
                mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
                // Without blocking a pipe opens for reading before anybody writes (fifo(7)).
                let reader = OpenOptions::new()
                    .read(true)
                    .custom_flags(nix::libc::O_NONBLOCK)
                    .open(&path)?;
                pipes.push(Pipe {
                    reader,
                    holder: Holder::Awaited,
                });
            }
        }
        Ok(Trees { pipes })
    }

    /// Hands the pipes to another thread; none are left here until they are put back.
    pub fn lend(&mut self) -> Trees {
        Trees {
            pipes: std::mem::take(&mut self.pipes),
        }
    }

    /// How many processes escape.
    pub fn processes(&self) -> usize {
        self.pipes.len()
    }

    /// Blocks until every process has said that it is up, at most for the budget; gives how many
    /// have not, or have ended before the kill.
    ///
    /// # Errors
    /// When the pipes can't be looked at.
    pub fn wait_up(&mut self, budget: Duration) -> io::Result<usize> {
        self.look_while(budget, |holder| holder == Holder::Awaited)?;
        Ok(self.count(|holder| holder != Holder::Up))
    }

    /// Blocks until no process is left, at most for the budget; the time counts from `since`.
    ///
    /// # Errors
    /// When the pipes can't be looked at.
    pub fn wait_gone(&mut self, since: Instant, budget: Duration) -> io::Result<Emptied> {
        self.look_while(budget, |holder| holder != Holder::Gone)?;
        let survivors = self.count(|holder| holder != Holder::Gone);
        let took = (survivors == 0).then(|| since.elapsed());
        Ok(Emptied { survivors, took })
    }

    fn count(&self, which: impl Fn(Holder) -> bool) -> usize {
        self.pipes.iter().filter(|pipe| which(pipe.holder)).count()
    }

    /// Takes in what the pipes tell for as long as there is a holder of that kind.
    fn look_while(&mut self, budget: Duration, which: impl Fn(Holder) -> bool) -> io::Result<()> {
        let end = clock::now() + budget;
        loop {
            let mut watched: Vec<&mut Pipe> = self
                .pipes
                .iter_mut()
                .filter(|pipe| which(pipe.holder))
                .collect();
            let left = end.saturating_duration_since(clock::now());
            if watched.is_empty() || left.is_zero() {
                return Ok(());
            }
            let told: Vec<bool> = {
                let mut fds: Vec<PollFd<'_>> = watched
                    .iter()
                    .map(|pipe| PollFd::new(pipe.reader.as_fd(), PollFlags::POLLIN))
                    .collect();
                // Rounded up, so that the last look is not before the end.
                let left = left + Duration::from_millis(1);
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                match poll(&mut fds, timeout) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                fds.iter().map(|fd| fd.any() == Some(true)).collect()
            };
            for (pipe, _) in watched.iter_mut().zip(told).filter(|(_, told)| *told) {
                pipe.take_in()?;
            }
        }
    }
}

impl Pipe {
    /// Reads what is there: a word, or the end of the last holder.
    fn take_in(&mut self) -> io::Result<()> {
        let mut word = [0; WORD_BYTES];
        match self.reader.read(&mut word) {
            Ok(0) => self.holder = Holder::Gone,
            Ok(_) => self.holder = Holder::Up,
            // Somebody holds it and says nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const BUDGET: Duration = Duration::from_secs(20);

    /// Starts the trees of one agent here, held by nothing, with a life of so many seconds.
    fn started(folder: &Path, seconds: u32) -> std::process::Child {
        Command::new("sh")
            .arg(folder.join(ALL))
            .arg(folder)
            .args(["1", &seconds.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A proof is worth something only if what it counts does escape where nothing holds it.
    #[test]
    fn every_process_outlives_what_started_it_and_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        write_scripts(folder.path()).unwrap();
        let mut trees = Trees::new(folder.path(), &[1]).unwrap();
        assert_eq!(trees.processes(), ESCAPES_PER_AGENT);
        let mut shell = started(folder.path(), 3);
        assert_eq!(trees.wait_up(BUDGET).unwrap(), 0);
        shell.kill().unwrap();
        shell.wait().unwrap();
        let since = Instant::now();
        let left = trees.wait_gone(since, Duration::from_millis(200)).unwrap();
        assert_eq!(
            (left.survivors, left.took),
            (ESCAPES_PER_AGENT, None),
            "all are still there"
        );
        let gone = trees.wait_gone(since, BUDGET).unwrap();
        assert_eq!(gone.survivors, 0);
        assert!(gone.took.unwrap() > Duration::from_millis(200));
    }

    #[test]
    fn what_never_came_up_is_counted_within_the_budget() {
        let folder = tempfile::tempdir().unwrap();
        let mut trees = Trees::new(folder.path(), &[1, 2]).unwrap();
        let since = Instant::now();
        let missing = trees.wait_up(Duration::from_millis(50)).unwrap();
        assert_eq!(missing, 2 * ESCAPES_PER_AGENT);
        assert!(since.elapsed() < BUDGET);
        assert!(Trees::new(folder.path(), &[2]).is_err());
    }

    #[test]
    fn a_process_that_ends_before_the_kill_is_not_up() {
        let folder = tempfile::tempdir().unwrap();
        let mut trees = Trees::new(folder.path(), &[1]).unwrap();
        let path = folder.path().join("1-daemon");
        drop(OpenOptions::new().write(true).open(path).unwrap());
        let missing = trees.wait_up(Duration::from_millis(50)).unwrap();
        assert_eq!(missing, ESCAPES_PER_AGENT);
        assert_eq!(trees.pipes[0].holder, Holder::Gone);
    }
}
