//! File work away from the runtime's only thread, so that a slow disk delays nothing else.

use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};

/// Does `work` on a thread of its own and waits for it. Work that changes files has no time-out:
/// it goes on to its end, whole, also when the call is dropped.
///
/// # Errors
/// What `work` says; `internal` when it panicked.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a file tool broke off");
            Err(ToolError::new(
                ErrorCode::Internal,
                "the tool broke off by a fault of its own",
            )
            .hint("try another way, such as run_command"))
        }
    }
}

/// Does `work`, which changes nothing, and gives up waiting after `within`.
///
/// # Errors
/// What `work` says; `timed_out` when it takes longer.
pub(crate) async fn read<T: Send + 'static>(
    within: Duration,
    what: &str,
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::time::timeout(within, run(work)).await {
        Ok(result) => result,
        Err(_) => Err(ToolError::new(
            ErrorCode::TimedOut,
            format!("{what} took longer than {} s", within.as_secs()),
        )
        .hint("the file system may be slow; ask for less, or leave this out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_and_slow_work_is_given_up() {
        let broken = run::<()>(|| panic!("broken")).await.unwrap_err();
        assert_eq!(broken.code, ErrorCode::Internal);
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let slow = read(Duration::from_millis(20), "reading `f`", move || {
            // Ends when the test drops its side.
            Ok(wait.recv().is_ok())
        });
        assert_eq!(slow.await.unwrap_err().code, ErrorCode::TimedOut);
        drop(release);
    }
}
