//! Secrets: which variables hold one, and how values are kept out of all that is written or told.

mod fields;
mod forms;
mod known;
mod mask;
mod names;
mod stream;

pub use known::known_values;
pub use mask::{MARK, Mask};
pub use names::is_secret_name;
pub use stream::MaskStream;
