//! The jail step: a small library without a runtime, and the executable `jail` that starts a
//! worker under OS limits.
//!
//! ```text
//! leader ─> jail ─clone─> init (pid 1 of a PID namespace) ─┬─fork─> keeper ─clone─> init of a command ─fork─> command
//!                                                          └─fork─> worker ··· asks the keeper for each command
//! ```
//!
//! Callers use [`policy::JailPolicy`] to say what they ask for, [`report::JailLine`] to read what
//! was enforced, [`probe::probe`] to learn what this machine offers,
//! [`shield::hide_this_process`] to hide one that knows a key, [`keeper::Client`] to start a
//! command from inside, and [`signal`] to send signals that can't reach the wrong process.
//! Everything else here runs inside `jail` alone, which is the only program of the workspace that
//! forks, unshares or mounts.
//!
//! What holds everywhere in it: each process has one thread; the verdict is the wait status of
//! `jail`, which nothing inside can forge; what stands is reported and what does not is a gap, in
//! words; only the namespaces, their maps and the fork decide the rung; a signal goes through a
//! pidfd or to a child that is not reaped, and never to number 1 or below. The one exception is
//! init, which may signal everybody in the namespace that it is pid 1 of.
//!
//! To `jail` itself, SIGTERM asks the program to end (and continues a stopped one), SIGTSTP pauses
//! the whole tree, SIGCONT lets it go on, SIGKILL ends it; other common signals are passed on to
//! the program's group.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests measure, wait and start processes themselves"
    )
)]

pub mod cgroup;
pub mod cli;
pub mod files;
pub mod keeper;
pub mod limits;
pub mod policy;
pub mod probe;
pub mod report;
pub mod shield;
pub mod signal;

mod canary;
mod caps;
mod clock;
mod confinement;
mod descriptors;
mod exit_file;
mod group;
mod guard;
mod init;
mod inside;
mod jail;
mod landlock;
mod mounts;
mod namespaces;
mod obstacles;
mod path_text;
mod program;
mod rlimits;
mod seccomp;
mod signals_in;
mod steps;
mod sys;
mod tend;
mod verdict;
mod walk;
mod watch;
