//! The supervisor's decisions: inputs and a monotonic time go in, a list of effects comes out.
//!
//! Nothing here reads a clock, opens a file or socket, or starts a thread.

pub mod effect;
pub mod input;
pub mod lifecycle;
pub mod record;
pub mod supervisor;

pub use effect::{Answer, Effect};
pub use input::{Caller, Input, Ticket};
pub use supervisor::{Supervisor, SupervisorConfig};
