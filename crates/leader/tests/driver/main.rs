//! The driver with the real jail and workers that are small shell scripts.

mod ends;
mod support;
