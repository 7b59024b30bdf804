//! Waits for work while it minds everything that may change or end it: signals, the deadline,
//! the leader.

use std::future::Future;
use std::time::Duration;

use protocol::channel::DeliveredMessage;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use crate::core::deadline::{Deadline, TimeSpent};
use crate::core::turn::Input;
use crate::exit::StopCause;
use crate::io::channel::FromLeader;
use crate::io::clock::{self, Clock};
use crate::io::signals::Signals;
use crate::model::ModelEvent;

/// Between two ticks of a wait, in milliseconds.
const TICK_MS: u64 = 1_000;

/// How long a leader may still speak after the deadline has passed here, in milliseconds. Its own
/// stop for the deadline comes within that too.
const LAST_WORD_MS: u64 = 500;

/// Messages that are held until the next step, in bytes.
const NOTES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What happens beside the work that is waited for.
#[derive(Debug)]
pub enum Aside {
    /// The model call tells how it goes.
    Model(ModelEvent),
    /// A second has passed.
    Tick,
}

/// What a run watches. The only owner of its signals, clock, deadline and the leader's events.
#[derive(Debug)]
pub struct Watch {
    signals: Signals,
    /// None for a worker alone.
    leader: Option<mpsc::Receiver<FromLeader>>,
    clock: Clock,
    deadline: Deadline,
    /// The last word of the leader about the deadline. It may come together with the welcome that
    /// starts the agent's clock, and then be taken first.
    told_deadline: Option<(u64, bool)>,
    /// What came while something else was waited for.
    notes: Vec<Input>,
    /// The messages in them.
    notes_bytes: usize,
}

impl Watch {
    /// Starts the clock with so much time.
    pub fn start(
        signals: Signals,
        leader: Option<mpsc::Receiver<FromLeader>>,
        within: Duration,
    ) -> Self {
        let clock = Clock::start();
        Watch {
            signals,
            leader,
            clock,
            deadline: Deadline::start(clock.now_ms(), millis(within)),
            told_deadline: None,
            notes: Vec::new(),
            notes_bytes: 0,
        }
    }

    /// Starts the agent's clock anew: its time begins now. What the leader said of the deadline
    /// since it gave this much time stands.
    pub fn restart(&mut self, remaining_ms: u64) {
        let now_ms = self.clock.now_ms();
        self.deadline = Deadline::start(now_ms, remaining_ms);
        if let Some((remaining_ms, paused)) = self.told_deadline {
            self.deadline.set(now_ms, remaining_ms, paused);
        }
    }

    /// Milliseconds since the start, whatever the deadline does.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// How much time is gone and left.
    pub fn time(&self) -> TimeSpent {
        self.deadline.spent(self.clock.now_ms())
    }

    /// What is left.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.time().remaining_ms)
    }

    /// Takes what came meanwhile, for the next step.
    pub fn take_notes(&mut self) -> Vec<Input> {
        self.notes_bytes = 0;
        std::mem::take(&mut self.notes)
    }

    /// Waits for `work`, unless the run must end first; `work` is dropped then. What happens
    /// beside it goes to `aside`, which may end the wait too.
    ///
    /// # Errors
    /// What stopped it.
    pub async fn race<T>(
        &mut self,
        work: impl Future<Output = T>,
        mut told: Option<&mut mpsc::UnboundedReceiver<ModelEvent>>,
        mut aside: impl FnMut(Aside, TimeSpent, u64) -> Result<(), StopCause>,
    ) -> Result<T, StopCause> {
        let mut work = std::pin::pin!(work);
        let tick = Duration::from_millis(TICK_MS);
        let mut ticks = interval_at(clock::after(tick), tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let ends = self.deadline.ends_ms().map(|at| self.clock.moment(at));
            // Whatever ends the run is looked at first: work that is always ready must not
            // starve it.
            let side = tokio::select! {
                biased;
                signal = self.signals.next() => return Err(StopCause::Signal(signal)),
                event = next_event(&mut self.leader) => {
                    self.note(event)?;
                    continue;
                }
                () = until(ends) => {
                    self.last_word().await?;
                    continue;
                }
                Some(event) = next_told(&mut told) => Aside::Model(event),
                output = &mut work => return Ok(output),
                _ = ticks.tick() => Aside::Tick,
            };
            aside(side, self.time(), self.clock.now_ms())?;
        }
    }

    /// Waits for a message while the agent has nothing to do; its clock stands still.
    ///
    /// # Errors
    /// What stopped it.
    pub async fn rest(&mut self) -> Result<(), StopCause> {
        let left = self.time().remaining_ms;
        self.deadline.set(self.clock.now_ms(), left, true);
        while !self
            .notes
            .iter()
            .any(|note| matches!(note, Input::Delivered(_)))
        {
            let ends = self.deadline.ends_ms().map(|at| self.clock.moment(at));
            tokio::select! {
                biased;
                signal = self.signals.next() => return Err(StopCause::Signal(signal)),
                event = next_event(&mut self.leader) => self.note(event)?,
                () = until(ends) => self.last_word().await?,
            }
        }
        let left = self.time().remaining_ms;
        self.deadline.set(self.clock.now_ms(), left, false);
        Ok(())
    }

    /// The deadline has passed by this clock, which also went on while the whole tree stood still:
    /// what the leader said meanwhile is heard first. Returns when there is time again.
    async fn last_word(&mut self) -> Result<(), StopCause> {
        let until = clock::after(Duration::from_millis(LAST_WORD_MS));
        while self.leader.is_some() {
            let Ok(event) = timeout_at(until, next_event(&mut self.leader)).await else {
                break;
            };
            self.note(event)?;
            let now_ms = self.clock.now_ms();
            if self
                .deadline
                .ends_ms()
                .is_none_or(|ends_ms| ends_ms > now_ms)
            {
                return Ok(());
            }
        }
        Err(StopCause::Deadline)
    }

    /// Keeps messages for the next step, as far as there is room. What is not kept is not
    /// acknowledged, so that its sender knows.
    fn keep(&mut self, messages: Vec<DeliveredMessage>) {
        let mut kept = Vec::new();
        for message in messages {
            let bytes = message.id.len() + message.from.len() + message.content.len();
            if self.notes_bytes + bytes > NOTES_BYTES_MAX {
                tracing::warn!(id = message.id, "no room for a message until the next turn");
                continue;
            }
            self.notes_bytes += bytes;
            kept.push(message);
        }
        self.notes.push(Input::Delivered(kept));
    }

    fn note(&mut self, event: FromLeader) -> Result<(), StopCause> {
        match event {
            FromLeader::Deliver(messages) => self.keep(messages),
            FromLeader::WrapUp { seconds_left } => {
                self.notes
                    .retain(|note| !matches!(note, Input::WrapUp { .. }));
                self.notes.push(Input::WrapUp { seconds_left });
            }
            FromLeader::Deadline {
                remaining_ms,
                paused,
            } => {
                self.told_deadline = Some((remaining_ms, paused));
                self.deadline.set(self.clock.now_ms(), remaining_ms, paused);
            }
            FromLeader::Stop { reason } => return Err(StopCause::Leader(reason)),
            FromLeader::Asked { event, .. } => return self.note(*event),
            FromLeader::Gone => return Err(StopCause::LeaderGone),
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn until(ends: Option<Instant>) {
    match ends {
        Some(ends) => tokio::time::sleep_until(ends).await,
        None => std::future::pending().await,
    }
}

async fn next_event(leader: &mut Option<mpsc::Receiver<FromLeader>>) -> FromLeader {
    match leader {
        // The task that sends them ends only with its leader.
        Some(events) => events.recv().await.unwrap_or(FromLeader::Gone),
        None => std::future::pending().await,
    }
}

async fn next_told(
    told: &mut Option<&mut mpsc::UnboundedReceiver<ModelEvent>>,
) -> Option<ModelEvent> {
    match told {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use protocol::status::StopReason;

    use super::*;

    fn message(id: usize, bytes: usize) -> DeliveredMessage {
        DeliveredMessage {
            id: id.to_string(),
            kind: "message".into(),
            from: String::new(),
            content: "x".repeat(bytes - 1),
        }
    }

    fn watch() -> (Watch, mpsc::Sender<FromLeader>) {
        let (sender, events) = mpsc::channel(16);
        let signals = Signals::install().unwrap();
        let within = Duration::from_secs(60);
        (Watch::start(signals, Some(events), within), sender)
    }

    async fn wait_a_little(watch: &mut Watch) -> Result<(), StopCause> {
        let work = tokio::time::sleep(Duration::from_millis(20));
        watch.race(work, None, |_, _, _| Ok(())).await
    }

    #[tokio::test]
    async fn messages_are_held_up_to_the_bound_and_not_past_it() {
        let (mut watch, leader) = watch();
        let half = NOTES_BYTES_MAX / 2;
        let messages = (0..3).map(|id| message(id, half)).collect();
        leader.send(FromLeader::Deliver(messages)).await.unwrap();
        wait_a_little(&mut watch).await.unwrap();
        let expected = vec![message(0, half), message(1, half)];
        assert_eq!(watch.take_notes(), [Input::Delivered(expected)]);
        let later = vec![message(2, half)];
        leader
            .send(FromLeader::Deliver(later.clone()))
            .await
            .unwrap();
        wait_a_little(&mut watch).await.unwrap();
        assert_eq!(watch.take_notes(), [Input::Delivered(later)]);
    }

    #[tokio::test]
    async fn the_last_wrap_up_counts() {
        let (mut watch, leader) = watch();
        for seconds_left in [30, 10] {
            let event = FromLeader::WrapUp { seconds_left };
            leader.send(event).await.unwrap();
        }
        wait_a_little(&mut watch).await.unwrap();
        let expected = [Input::WrapUp { seconds_left: 10 }];
        assert_eq!(watch.take_notes(), expected);
    }

    #[tokio::test]
    async fn a_stop_beats_work_that_is_done_at_the_same_time() {
        let (mut watch, leader) = watch();
        let reason = StopReason::Terminated;
        leader.send(FromLeader::Stop { reason }).await.unwrap();
        let stopped = watch.race(async {}, None, |_, _, _| Ok(())).await;
        assert!(matches!(
            stopped,
            Err(StopCause::Leader(StopReason::Terminated))
        ));
    }

    #[tokio::test]
    async fn a_deadline_that_comes_with_the_welcome_outlives_the_start_of_the_clock() {
        let (mut watch, leader) = watch();
        let event = FromLeader::Deadline {
            remaining_ms: 50_000,
            paused: true,
        };
        leader.send(event).await.unwrap();
        wait_a_little(&mut watch).await.unwrap();
        watch.restart(1_000);
        assert_eq!(watch.left(), Duration::from_millis(50_000));
    }
}
