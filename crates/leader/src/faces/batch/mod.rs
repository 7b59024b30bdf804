//! `leader run --batch`: many items, one leader, one manifest.

pub mod board;
pub mod carry;
pub mod command;
pub mod drive;
pub mod earlier;
pub mod input;
pub mod keeping;
pub mod output;
pub mod records;

pub use command::batch;
