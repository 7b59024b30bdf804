//! The supervisor's decisions: inputs and a monotonic time go in, a list of effects comes out.
//!
//! Nothing here reads a clock, opens a file or socket, or starts a thread.

pub mod again;
pub mod agent;
pub mod batch;
pub mod deadline;
pub mod effect;
pub mod ends;
pub mod fold;
pub mod input;
pub mod lifecycle;
pub mod notices;
pub mod record;
pub mod result;
pub mod roster;
pub mod rungs;
pub mod scope;
pub mod slots;
pub mod supervisor;
pub mod usage;
pub mod waits;

#[cfg(test)]
mod test_kit;

pub use agent::Agent;
pub use effect::{Answer, Effect};
pub use input::{Caller, Input, Ticket};
pub use supervisor::{Supervisor, SupervisorConfig};
