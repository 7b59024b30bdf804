//! What is drawn over and over on a terminal is taken away before the leader stops for Ctrl-Z: the
//! shell's prompt would stand behind it, and be written over when the leader goes on.

use std::time::Duration;

use tokio::sync::watch;

/// How long a stop waits for the line to be taken away, in milliseconds. It stops without that
/// then.
const CLEAR_MS_MAX: u64 = 500;

/// Where the curtain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Everything may be drawn.
    Up,
    /// What is drawn is to be taken away.
    Falling,
    /// Nothing is drawn.
    Down,
}

/// The side of who stops the leader.
#[derive(Debug, Clone)]
pub struct Rope(watch::Sender<Place>);

/// Lifts the curtain when it is dropped.
#[derive(Debug)]
pub struct Lowered(watch::Sender<Place>);

/// The side of who draws.
#[derive(Debug)]
pub struct Curtain {
    rope: Rope,
    place: watch::Receiver<Place>,
}

impl Default for Rope {
    fn default() -> Self {
        Rope(watch::Sender::new(Place::Up))
    }
}

impl Rope {
    /// A side for somebody who draws.
    pub fn curtain(&self) -> Curtain {
        Curtain {
            rope: self.clone(),
            place: self.0.subscribe(),
        }
    }

    /// Has everything taken away that is drawn, and waits for it, at most `CLEAR_MS_MAX`. Nothing
    /// is drawn until the answer is dropped.
    pub async fn lower(&self) -> Lowered {
        let lowered = Lowered(self.0.clone());
        // Nobody to wait for, where nobody draws.
        if self.0.receiver_count() > 0 {
            self.0.send_replace(Place::Falling);
            let mut place = self.0.subscribe();
            let is_down = place.wait_for(|place| *place == Place::Down);
            let limit = Duration::from_millis(CLEAR_MS_MAX);
            if tokio::time::timeout(limit, is_down).await.is_err() {
                tracing::debug!("the live line was not taken away in time");
            }
        }
        lowered
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        self.0.send_replace(Place::Up);
    }
}

impl Curtain {
    /// Waits until what is drawn is to be taken away. Cancel-safe.
    pub async fn falls(&mut self) {
        // It holds a sender itself, so that there always is one.
        self.place
            .wait_for(|place| *place == Place::Falling)
            .await
            .ok();
    }

    /// Says that it is taken away, and waits until it may be drawn again.
    pub async fn stay_down(&mut self) {
        self.rope.0.send_if_modified(|place| {
            let falls = *place == Place::Falling;
            if falls {
                *place = Place::Down;
            }
            falls
        });
        self.place.wait_for(|place| *place == Place::Up).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_who_draws_and_who_draws_for_its_end() {
        let rope = Rope::default();
        let mut curtain = rope.curtain();
        let drawing = tokio::spawn(async move {
            curtain.falls().await;
            curtain.stay_down().await;
            // Once more: nothing of the first time is left.
            curtain.falls().await;
            curtain.stay_down().await;
        });
        let first = rope.lower().await;
        assert_eq!(*rope.0.borrow(), Place::Down);
        assert!(!drawing.is_finished());
        drop(first);
        assert_eq!(*rope.0.borrow(), Place::Up);
        // Lets the drawing side see it before the next fall.
        tokio::task::yield_now().await;
        drop(rope.lower().await);
        drawing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_without_anybody_who_draws_waits_for_nobody() {
        let rope = Rope::default();
        let began = tokio::time::Instant::now();
        drop(rope.lower().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Somebody who draws and is busy holds it up for its limit and no longer.
        let busy = rope.curtain();
        drop(rope.lower().await);
        assert_eq!(began.elapsed(), Duration::from_millis(CLEAR_MS_MAX));
        drop(busy);
    }
}
