//! What a batch is: its file, the order in which its items may run, and what an earlier run of it
//! left to do.

pub mod digest;
pub mod earlier;
pub mod file;
pub mod needs;
pub mod schedule;

pub use earlier::{Begin, Beginning, beginnings};
pub use file::{Item, Line, Problem, lines};
pub use needs::link;
pub use schedule::{Schedule, Skipped, Want};
