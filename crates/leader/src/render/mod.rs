//! Text for people: widths, colours, tables, results. Everything here makes strings; who prints
//! them passes a writer.

pub mod agents;
pub mod batch;
pub mod confinement;
pub mod demo;
pub mod doctor;
pub mod line;
pub mod proof;
pub mod result;
pub mod steps;
pub mod style;
pub mod trust;
pub mod width;
pub mod wrap;

pub use style::{Style, Tone};
