//! How a command that runs is spoken to: its output so far, and its end before its time.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::awake::awake_for;
use super::reading::Peek;
use crate::tools::output::Captured;

/// Wishes to look at one command that wait at a time.
const PEEKS_WAITING_MAX: usize = 8;

/// The command's side.
#[derive(Debug, Default)]
pub(crate) struct Control {
    peeks: Option<mpsc::Receiver<Peek>>,
    /// None where nobody can stop it, and once nobody can any more.
    stop: Option<oneshot::Receiver<()>>,
    stopped: bool,
}

/// The other side. Dropping it changes nothing for the command.
#[derive(Debug)]
pub(crate) struct Remote {
    peeks: mpsc::Sender<Peek>,
    /// None once it was told to stop.
    stop: Option<oneshot::Sender<()>>,
}

/// Both sides of one command.
pub(crate) fn control() -> (Control, Remote) {
    let (ask, peeks) = mpsc::channel(PEEKS_WAITING_MAX);
    let (tell, stop) = oneshot::channel();
    let control = Control {
        peeks: Some(peeks),
        stop: Some(stop),
        stopped: false,
    };
    let remote = Remote {
        peeks: ask,
        stop: Some(tell),
    };
    (control, remote)
}

impl Control {
    /// Takes the wishes to look, for the one who reads the output.
    pub(super) fn take_peeks(&mut self) -> Option<mpsc::Receiver<Peek>> {
        self.peeks.take()
    }

    /// Waits until this process has been awake for so long, or the command is to stop.
    pub(super) async fn time_over(&mut self, patience: Duration) {
        let stop = async {
            match &mut self.stop {
                // An error is that nobody is there any more who could stop it.
                Some(stop) => match stop.await {
                    Ok(()) => {}
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = awake_for(patience) => {}
            () = stop => self.stopped = true,
        }
    }

    /// Whether it was told to stop.
    pub(super) fn was_stopped(&self) -> bool {
        self.stopped
    }
}

impl Remote {
    /// A way to look at the output that outlives this borrow.
    pub(crate) fn looker(&self) -> Looker {
        Looker(self.peeks.clone())
    }

    /// Tells the command to stop; once is enough.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It has ended already where nobody hears this.
            let _: Result<(), ()> = stop.send(());
        }
    }
}

/// Looks at the output of one command.
#[derive(Debug)]
pub(crate) struct Looker(mpsc::Sender<Peek>);

impl Looker {
    /// What was written so far; none when the command has ended meanwhile.
    pub(crate) async fn look(&self) -> Option<Captured> {
        let (peek, seen) = oneshot::channel();
        self.0.send(peek).await.ok()?;
        seen.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait_and_nobody_left_to_stop_it_does_not() {
        let long = Duration::from_secs(600);
        let (mut told, mut remote) = control();
        remote.stop();
        remote.stop();
        told.time_over(long).await;
        assert!(told.was_stopped());

        let (mut alone, remote) = control();
        drop(remote);
        let begun = tokio::time::Instant::now();
        alone.time_over(long).await;
        assert!(!alone.was_stopped() && begun.elapsed() == long);

        let mut foreground = Control::default();
        foreground.time_over(long).await;
        assert!(!foreground.was_stopped());
    }

    #[tokio::test]
    async fn nothing_can_be_seen_of_a_command_that_is_gone() {
        let (control, remote) = control();
        let looker = remote.looker();
        drop(control);
        assert_eq!(looker.look().await, None);
    }
}
