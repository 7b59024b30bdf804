//! Grounds that a test stands on: whose processes it starts, and how far a kill can reach there.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use crate::delegated::Delegated;

/// An ordinary user that owns nothing and runs nothing on any machine.
pub const ORDINARY: u32 = 12_345;

/// Makes a user namespace that allows no further ones, and gives up every capability in it: what
/// is started there finds no namespace to be had, as in many containers.
const NO_NAMESPACES: &str = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
     --bounding-set=-all --inh-caps=-all --ambient-caps=-all -- \"$@\"";

/// Whose processes a test starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Myself,
    /// [`ORDINARY`]; only root can become it.
    Ordinary,
}

/// How far a kill reaches, as the product names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// Only a process group: namespaces are not to be had, and the leader is told to try no more.
    Group,
    /// A walk through the descendants: namespaces are not to be had.
    Subreaper,
    /// A PID namespace.
    Pidns,
    /// A delegated cgroup around that.
    Cgroup2,
}

impl Rung {
    /// The name in results and records.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Group => "group",
            Rung::Subreaper => "subreaper",
            Rung::Pidns => "pidns",
            Rung::Cgroup2 => "cgroup2",
        }
    }
}

/// Where a test runs the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// Whose processes they are.
    pub user: User,
    /// The rung that the product will find.
    pub rung: Rung,
}

impl Ground {
    /// The ordinary one: this user, and what the machine offers.
    pub const PLAIN: Ground = Ground {
        user: User::Myself,
        rung: Rung::Pidns,
    };
}

/// Every user that this run can be; where one is missing, that is said on stderr.
pub fn users() -> Vec<User> {
    if nix::unistd::geteuid().is_root() {
        return vec![User::Myself, User::Ordinary];
    }
    skipped("not root: only the present user is tried, not an unused one");
    vec![User::Myself]
}

/// Every user on the rungs given, as far as the machine has them; where one is missing, that is
/// said on stderr.
pub fn grounds(rungs: &[Rung]) -> Vec<Ground> {
    let rungs: Vec<Rung> = rungs
        .iter()
        .copied()
        .filter(|rung| *rung != Rung::Cgroup2 || has_cgroup())
        .collect();
    users()
        .into_iter()
        .flat_map(|user| rungs.iter().map(move |rung| Ground { user, rung: *rung }))
        .collect()
}

/// Does the same on every ground, side by side: most of the time goes into waiting.
///
/// # Panics
/// When the test does on one of them.
pub fn on_each(rungs: &[Rung], test: impl Fn(Ground) + Sync) {
    thread::scope(|scope| {
        for ground in grounds(rungs) {
            let test = &test;
            scope.spawn(move || test(ground));
        }
    });
}

/// Whether a cgroup can be delegated, found out once by doing it.
fn has_cgroup() -> bool {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    match OBSTACLE.get_or_init(|| Delegated::make(User::Myself).err()) {
        Some(why) => skipped(&format!("the rung `cgroup2`: {why}")),
        None => return true,
    }
    false
}

/// Says on stderr, past the capture of a test's output, that something was not tried, and why.
pub fn skipped(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let words = format!("skipped: {why} ({test})\n");
    io::Write::write_all(&mut io::stderr(), words.as_bytes()).ok();
}

/// A command that runs `program` on this ground, as the last word of `wrapper`.
pub(crate) fn command(
    ground: Ground,
    delegated: Option<&Delegated>,
    wrapper: &[OsString],
    program: &Path,
) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(delegated) = delegated {
        words.extend(["sh", "-c", &delegated.enter(), "sh"].map(OsString::from));
    }
    if ground.user == User::Ordinary {
        let id = ORDINARY.to_string();
        words.extend(["setpriv", "--reuid", &id, "--regid", &id].map(OsString::from));
        words.extend(["--clear-groups", "--"].map(OsString::from));
    }
    if ground.rung < Rung::Pidns {
        words
            .extend(["unshare", "--user", "--map-current-user", "--keep-caps"].map(OsString::from));
        words.extend(["sh", "-c", NO_NAMESPACES, "sh"].map(OsString::from));
    }
    words.extend_from_slice(wrapper);
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The variables that belong to a ground.
pub(crate) fn variables(
    ground: Ground,
    delegated: Option<&Delegated>,
) -> Vec<(&'static str, OsString)> {
    let highest =
        (ground.rung == Rung::Group).then(|| ("MUSTER_CONFINEMENT_HIGHEST", "group".into()));
    let cgroup = delegated.map(|it| ("MUSTER_CONFINEMENT_CGROUP", it.path().into()));
    highest.into_iter().chain(cgroup).collect()
}

/// Connects to a socket as `user`: a leader refuses everybody but its own user, root as well.
pub(crate) fn connect(user: User, socket: &Path) -> io::Result<UnixStream> {
    match user {
        User::Myself => UnixStream::connect(socket),
        User::Ordinary => thread::scope(|scope| {
            scope
                .spawn(|| {
                    become_ordinary()?;
                    UnixStream::connect(socket)
                })
                .join()
                .expect("connecting does not panic")
        }),
    }
}

/// Makes the present thread the ordinary user, for good; it is to end soon.
fn become_ordinary() -> io::Result<()> {
    // The library's own setresuid would take every thread along; the bare call changes one.
    // SAFETY: the call takes three numbers and touches no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, ORDINARY, ORDINARY, ORDINARY) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
