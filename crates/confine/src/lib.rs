//! The jail step: a small library without a runtime, and the executable `jail` that starts a
//! worker under OS limits.
//!
//! Callers use [`policy::JailPolicy`] to say what they ask for, [`report::JailLine`] to read what
//! was enforced, [`probe::probe`] to learn what this machine offers, and [`signal`] to send signals
//! that can't reach the wrong process. Everything else here runs inside `jail` alone, which is the
//! only program of the workspace that forks, unshares or mounts.

pub mod cli;
pub mod keeper;
pub mod limits;
pub mod policy;
pub mod probe;
pub mod report;
pub mod signal;

mod canary;
mod caps;
mod cgroup;
mod confinement;
mod descriptors;
mod exit_file;
mod guard;
mod init;
mod inside;
mod jail;
mod mounts;
mod namespaces;
mod obstacles;
mod path_text;
mod program;
mod rlimits;
mod scope;
mod signals_in;
mod steps;
mod sys;
mod verdict;
mod walk;
mod watch;
