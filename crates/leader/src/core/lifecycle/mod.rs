//! The life of one agent as a state machine.
//!
//! Whatever the machine does not decide (who is asked first, what a result looks like, when a
//! timer is due) lies around it. docs/lifecycle.md is generated from it.

mod apply;
mod state;
#[cfg(test)]
mod table_tests;

pub use apply::{after_leader_death, apply};
pub use state::{
    Action, Activity, End, Event, Exit, Illegal, PendingStop, Report, Resource, State, StopCause,
    Stopping,
};
