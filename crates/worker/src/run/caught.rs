//! Futures that may panic, and several at once.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Runs a future; a panic in it becomes its message. The future is dropped then and never polled
/// again, so nothing that the panic left half done is seen by anyone.
///
/// # Errors
/// When it panicked.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = Box::pin(future);
    poll_fn(
        move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(words_of(panic.as_ref()))),
        },
    )
    .await
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Runs all futures side by side; their outputs come in the order of the futures.
pub async fn all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut slots: Vec<Result<T, _>> = futures.into_iter().map(Err).collect();
    poll_fn(|context| {
        let mut waits = false;
        for slot in &mut slots {
            if let Err(future) = slot {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *slot = Ok(output),
                    Poll::Pending => waits = true,
                }
            }
        }
        if waits {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    slots.into_iter().filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_its_words() {
        assert_eq!(caught(async { 5 }).await, Ok(5));
        let n = 7;
        let panicking = async {
            tokio::task::yield_now().await;
            panic!("no {n}");
        };
        let result: Result<(), String> = caught(panicking).await;
        assert_eq!(result, Err("no 7".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn outputs_keep_the_order_of_the_futures() {
        let futures = (0..5_u64)
            .map(|n| {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_secs(10 - n)).await;
                    n
                }) as Pin<Box<dyn Future<Output = u64>>>
            })
            .collect();
        let start = tokio::time::Instant::now();
        assert_eq!(all(futures).await, [0, 1, 2, 3, 4]);
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}
