//! The tree's own mounts. Each degrades singly: what can't be mounted is a gap, not a failure.

mod build;
mod cover;
mod make;
mod private;
mod watch;

pub(crate) use build::{Ground, View, build, build_for_command};
pub(crate) use private::seal_proc;
pub(crate) use watch::MountWatch;
