//! The driver with the real jail and workers that are small shell scripts.

mod calls;
mod ends;
mod stops;
mod support;
