//! Time as a command has it: what passes while the whole tree is stopped, as by a Ctrl-Z on the
//! leader, does not count against its time-out.

use std::time::Duration;

use tokio::time::sleep;

/// The pieces in which time is counted, in milliseconds: no stop costs more than one of them.
const PIECE_MS: u64 = 250;

/// Waits until this process has been awake for so long. The clock goes on while a process is
/// stopped, so that one long sleep would be over at once when it is let go on.
pub(super) async fn awake_for(span: Duration) {
    let piece = Duration::from_millis(PIECE_MS);
    let mut left = span;
    while !left.is_zero() {
        let next = left.min(piece);
        sleep(next).await;
        left -= next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, advance};

    #[tokio::test(start_paused = true)]
    async fn a_stop_costs_one_piece_of_the_time() {
        for span_ms in [0, 1, PIECE_MS, PIECE_MS + 1, 10 * PIECE_MS] {
            let begun = Instant::now();
            awake_for(Duration::from_millis(span_ms)).await;
            assert_eq!(begun.elapsed(), Duration::from_millis(span_ms));
        }
        let begun = Instant::now();
        let mut waits = tokio::spawn(awake_for(Duration::from_secs(10)));
        tokio::task::yield_now().await;
        advance(Duration::from_secs(600)).await;
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        (&mut waits).await.unwrap();
        let took = begun.elapsed() - Duration::from_secs(600);
        assert!(
            took < Duration::from_secs(10) && took > Duration::from_secs(9),
            "{took:?}"
        );
    }
}
