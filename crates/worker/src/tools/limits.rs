//! Bounds of the tools that only the tools themselves must know.

/// Components of a path, links resolved; each holds one descriptor while it is walked.
pub(crate) const PATH_COMPONENTS_MAX: usize = 256;
/// Symbolic links followed in one path, as many as the kernel follows.
pub(crate) const PATH_LINKS_MAX: usize = 40;
/// Names of a directory that are looked at for "did you mean".
pub(crate) const SIMILAR_NAMES_MAX: usize = 1_000;
/// Tries for a temporary name that nobody else uses.
pub(crate) const TEMP_NAME_TRIES_MAX: u32 = 64;

/// Output of one command that is kept from its start, in bytes.
pub(crate) const OUTPUT_HEAD_BYTES_MAX: usize = 256 * 1024;
/// Output of one command that is kept from its end, in bytes.
pub(crate) const OUTPUT_TAIL_BYTES_MAX: usize = 768 * 1024;
/// A line that may still be overwritten by a carriage return, in bytes.
pub(crate) const OUTPUT_LINE_BYTES_MAX: usize = 16 * 1024;
/// One read of a command's output, in bytes.
pub(crate) const OUTPUT_READ_BYTES: usize = 64 * 1024;
/// From the end of a command's shell until its output is no longer waited for, in milliseconds.
pub(crate) const OUTPUT_DRAIN_MS: u64 = 500;
/// A command text, in bytes; the kernel takes 128 KiB in one argument.
pub(crate) const COMMAND_BYTES_MAX: usize = 100 * 1024;
