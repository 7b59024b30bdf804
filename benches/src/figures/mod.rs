//! One file per figure, and the list of them.

use crate::error::BenchError;
use crate::ground::Ground;
use crate::row::Row;

mod commands;
mod crash;
mod events;
mod exit_notice;
mod first_request;
mod memory;
mod run;
mod terminate;
mod trees;

/// One figure, or a few that are taken together.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Whether only root can take it.
    pub needs_root: bool,
    /// Takes it.
    pub take: fn(&Ground) -> Result<Vec<Row>, BenchError>,
}

/// All of them, in the order of the table.
pub const ALL: &[Figure] = &[
    Figure {
        name: "first-request",
        about: "from the spawn of a worker to its first model request, bare and through the jail",
        needs_root: false,
        take: first_request::take,
    },
    Figure {
        name: "run",
        about: "a whole `leader run` with one tool call: first request, end, processor time",
        needs_root: false,
        take: run::take,
    },
    Figure {
        name: "memory",
        about: "agents that wait for their model: memory of each, of the leader, and threads",
        needs_root: true,
        take: memory::take,
    },
    Figure {
        name: "exit-notice",
        about: "from the end of a worker to the event that tells it",
        needs_root: false,
        take: exit_notice::take,
    },
    Figure {
        name: "terminate",
        about: "from the terminate of five agents with shells to the last process gone",
        needs_root: false,
        take: terminate::take,
    },
    Figure {
        name: "crash",
        about: "from SIGKILL of the leader to the last process gone",
        needs_root: false,
        take: crash::take,
    },
    Figure {
        name: "events",
        about: "appends to the event log that are on the disk",
        needs_root: false,
        take: events::take,
    },
    Figure {
        name: "commands",
        about: "a shell that does nothing, through the keeper and plainly",
        needs_root: false,
        take: commands::take,
    },
];
