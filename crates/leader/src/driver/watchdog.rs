//! Looks at what the trees of capped agents use, where the kernel would not tell.
//!
//! One task for all agents of a conversation, so that all looks together take a bounded share of
//! the time. It only measures: what is too much, the supervisor decides.

use std::path::PathBuf;
use std::time::Duration;

use protocol::ids::TaskId;
use protocol::job::Caps;
use protocol::limits::DISK_ENTRIES_MAX;
use tokio::sync::mpsc;

use crate::core::usage::{Measure, Space, fill_percent, pause_ms};
use crate::os::clock::Clock;
use crate::os::process::{ChildEvent, ChildMessage};
use crate::os::space;
use crate::os::usage::Meter;

/// The least time between two walks through what an agent writes, in milliseconds.
const WALK_MS_MIN: u64 = 1_000;
/// A pause between two walks is at least so many times as long as the walk before it.
const WALK_SHARE: u64 = 19;

/// An agent to be looked at.
#[derive(Debug)]
pub(super) struct Watched {
    agent: TaskId,
    caps: Caps,
    meter: Meter,
    /// Where it writes.
    roots: Vec<PathBuf>,
    /// What lay there at its start.
    at_start: Space,
    /// The last walk's find, and when the next is due.
    disk: Option<Space>,
    walk_due_ms: u64,
    last: Measure,
}

impl Watched {
    /// An agent whose jail has this number. `roots` is where it writes, and `at_start` what lay
    /// there before it began.
    pub(super) fn new(
        agent: TaskId,
        jail: u32,
        caps: Caps,
        roots: Vec<PathBuf>,
        at_start: Space,
    ) -> Self {
        Watched {
            agent,
            caps,
            meter: Meter::new(jail, caps.memory_bytes),
            roots,
            at_start,
            disk: None,
            walk_due_ms: 0,
            last: Measure::default(),
        }
    }

    /// One past what it may have: more need not be counted.
    fn entries_max(&self) -> u64 {
        self.at_start.entries.saturating_add(DISK_ENTRIES_MAX)
    }

    fn look(&mut self, clock: &Clock) {
        let seen = self.meter.look();
        let begun_ms = clock.now_ms();
        if self.caps.disk_bytes.is_some() && begun_ms >= self.walk_due_ms {
            let found = space::count(&self.roots, self.entries_max());
            self.disk = Some(space::added(found, self.at_start));
            let ended_ms = clock.now_ms();
            let pause = (ended_ms - begun_ms).saturating_mul(WALK_SHARE);
            self.walk_due_ms = ended_ms + pause.max(WALK_MS_MIN);
        }
        self.last = Measure {
            memory_bytes: Some(seen.memory_bytes),
            cpu_ms: Some(seen.cpu_ms),
            disk: self.disk,
        };
    }
}

#[derive(Debug)]
enum Order {
    Watch(Box<Watched>),
    Forget(TaskId),
}

/// The way to the watchdog's task, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    // Without a bound of its own: an agent sends one order at its start and one at its end.
    orders: mpsc::UnboundedSender<Order>,
}

impl Watchdog {
    /// Starts the task in the present runtime. What it sees goes to `events`.
    pub(super) fn start(events: mpsc::Sender<ChildMessage>) -> Self {
        let (orders, orders_in) = mpsc::unbounded_channel();
        tokio::spawn(watch(orders_in, events));
        Watchdog { orders }
    }

    /// Looks at an agent from now on.
    pub(super) fn watch(&self, watched: Watched) {
        // The task ends only after this handle, or with the runtime.
        drop(self.orders.send(Order::Watch(Box::new(watched))));
    }

    /// Looks at it no more: its tree has ended.
    pub(super) fn forget(&self, agent: &TaskId) {
        drop(self.orders.send(Order::Forget(agent.clone())));
    }
}

async fn watch(mut orders: mpsc::UnboundedReceiver<Order>, events: mpsc::Sender<ChildMessage>) {
    let clock = Clock::start();
    let mut watched: Vec<Watched> = Vec::new();
    let mut due_ms = 0_u64;
    loop {
        let pause = Duration::from_millis(due_ms.saturating_sub(clock.now_ms()));
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Watch(new)) => watched.push(*new),
                Some(Order::Forget(agent)) => watched.retain(|one| one.agent != agent),
                None => return,
            },
            () = tokio::time::sleep(pause), if !watched.is_empty() => {
                let begun_ms = clock.now_ms();
                watched = look(std::mem::take(&mut watched), clock).await;
                let took_ms = clock.now_ms() - begun_ms;
                let fullest = watched.iter().map(|one| fill_percent(&one.caps, &one.last)).max();
                due_ms = clock.now_ms() + pause_ms(fullest.unwrap_or(0), took_ms);
                for one in &watched {
                    let message = ChildMessage {
                        task_id: one.agent.clone(),
                        event: ChildEvent::Used(one.last),
                    };
                    if events.send(message).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Looks at all of them where it may block.
async fn look(mut watched: Vec<Watched>, clock: Clock) -> Vec<Watched> {
    let looked = tokio::task::spawn_blocking(move || {
        watched.iter_mut().for_each(|one| one.look(&clock));
        watched
    });
    // A fault inside a look ends the watch over these agents; the log has its place.
    looked.await.unwrap_or_else(|error| {
        tracing::error!(%error, "nobody looks at what the agents use any more");
        Vec::new()
    })
}
