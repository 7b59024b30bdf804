//! Why a figure could not be taken.

use std::io;

/// Why a figure could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system refused something.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Something of ours did not do what it is measured at.
    #[error("{0}")]
    Failed(String),
    /// It took longer than any sensible figure.
    #[error("{what} did not happen within {seconds} s")]
    TooSlow {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
    },
}

impl BenchError {
    /// For `map_err`: what was tried when the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let what = what.into();
        |source| BenchError::Io { what, source }
    }
}
