//! The loop of a batch: begins what may begin, hears of ends, keeps the manifest, minds signals.

use std::collections::BTreeMap;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::job::ItemTag;
use protocol::manifest::{Manifest, SkipReason};
use protocol::result::AgentStatus;
use protocol::status::Status;
use protocol::text::BuildsOn;
use protocol::tool::leader::AgentRef;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::core::batch::schedule::{Entry, Start, places};
use crate::core::batch::{Begin, Schedule, Skipped, Want};
use crate::driver::request::ItemOrder;
use crate::driver::{CreateOrderRequest, Handle, Origin};
use crate::faces::batch::board::{Board, look_every};
use crate::faces::batch::carry::{News, Order, carry};
use crate::faces::batch::earlier::Outset;
use crate::faces::batch::input::Batch;
use crate::faces::batch::keeping::Keeping;
use crate::faces::batch::output::print_settled;
use crate::faces::batch::records;
use crate::faces::console::Console;
use crate::faces::curtain::Curtain;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::run::drive::{LastEvents, next_event};
use crate::faces::run::output::Output;
use crate::faces::run::stop::Stop;
use crate::os::clock;
use crate::render::batch::Totals;

/// Agents that are created ahead of those that run, so that `leader ps` shows who is next. Each
/// holds a claim, which is an open file.
const AHEAD_AGENTS_MAX: usize = 128;
/// News that wait for the loop.
const NEWS_MAX: usize = 64;

/// A batch under way.
#[derive(Debug)]
pub struct Course<'a> {
    handle: &'a Handle,
    batch: &'a Batch,
    outset: Outset,
    /// What is known of every item.
    pub manifest: Manifest,
    schedule: Schedule,
    accepted: BTreeMap<usize, TaskId>,
    live_max: usize,
    fail_fast: bool,
    output: Output,
    /// Why nothing more begins, once that is so.
    stopped_for: Option<(SkipReason, Option<usize>)>,
    tell: mpsc::Sender<(usize, News)>,
    heard: mpsc::Receiver<(usize, News)>,
}

/// The schedule of a run, and what will not run from the beginning.
pub fn schedule_of(batch: &Batch, outset: &Outset) -> (Schedule, Vec<Skipped>) {
    let entries = batch
        .items
        .iter()
        .zip(&batch.needs)
        .zip(&outset.beginnings)
        .zip(&outset.records);
    let entries = entries.map(|(((item, needs), beginning), record)| Entry {
        needs: needs.clone(),
        start: match &beginning.begin {
            Begin::KeepRecord | Begin::KeepEnd(_) => Start::Settled {
                good: record.success,
            },
            Begin::Again(_) => Start::Run(Want::Again),
            Begin::Anew { .. } => Start::Run(Want::Anew),
        },
        places: places(
            item.create.deliverables_dir.as_deref(),
            item.create.write_paths.as_deref().unwrap_or_default(),
        ),
    });
    Schedule::new(entries.collect())
}

/// What the loop came to.
#[derive(Debug)]
pub struct Driven {
    /// The first signal that asked for the end.
    pub stopped_by: Option<Interrupt>,
    /// Events that came after the last end.
    pub last_events: LastEvents,
}

/// What a course needs besides.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Agents that run at once.
    pub max_concurrent: usize,
    /// Whether the first bad end stops the batch.
    pub fail_fast: bool,
    /// How it is printed.
    pub output: Output,
}

impl<'a> Course<'a> {
    /// A course that has not begun; what an earlier run settled is settled.
    pub fn new(
        handle: &'a Handle,
        batch: &'a Batch,
        outset: Outset,
        manifest: Manifest,
        manner: Manner,
    ) -> Self {
        let (schedule, skipped) = schedule_of(batch, &outset);
        let (tell, heard) = mpsc::channel(NEWS_MAX);
        let mut course = Course {
            handle,
            batch,
            outset,
            manifest,
            schedule,
            accepted: BTreeMap::new(),
            live_max: manner.max_concurrent.saturating_add(AHEAD_AGENTS_MAX),
            fail_fast: manner.fail_fast,
            output: manner.output,
            stopped_for: None,
            tell,
            heard,
        };
        for skipped in skipped {
            records::skip(&mut course.manifest.items, skipped, clock::timestamp());
        }
        course
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When stdout can't be written; the caller stops the agents.
    pub async fn run(
        &mut self,
        keeping: &mut Keeping,
        board: &mut Board,
        mut curtain: Curtain,
        interrupts: &mut Interrupts,
        console: &mut Console<'_>,
        accepted: impl FnOnce(&Manifest) -> Result<(), ToolError>,
    ) -> Result<Driven, ToolError> {
        let mut events = match self.output {
            Output::StreamJson => Some(self.handle.subscribe(Some(0)).await?),
            Output::Text | Output::Json => None,
        };
        let mut ticks = tokio::time::interval(look_every());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let handle = self.handle;
        let mut stop = Stop::new(handle, "all agents");
        let mut first_wave = self.begin();
        let mut accepted = Some(accepted);
        loop {
            if first_wave == 0
                && let Some(tell) = accepted.take()
            {
                tell(&self.manifest)?;
            }
            if self.schedule.is_over() {
                break;
            }
            tokio::select! {
                Some((item, news)) = self.heard.recv() => {
                    if matches!(news, News::Accepted(_) | News::Refused(_)) {
                        first_wave = first_wave.saturating_sub(1);
                    }
                    self.hear(item, news, board, &mut stop, console)?;
                    keeping.touch();
                    self.begin();
                }
                interrupt = interrupts.next() => {
                    board.aside(|| stop.ask(interrupt, console));
                    self.stop(SkipReason::LeaderStopped, None, board, console)?;
                    keeping.touch();
                }
                () = stop.progress() => {}
                failure = keeping.due() => match failure {
                    Some(error) => board.aside(|| console.fail(&error)),
                    None => keeping.begin(&self.manifest),
                },
                event = next_event(&mut events) => match event {
                    Some(event) => {
                        self.output.event(&event, console)?;
                        // Nobody is left to hear of the result: `leader run … | head -1`.
                        if console.out_is_closed() && !stop.is_asked() {
                            self.stop(SkipReason::LeaderStopped, None, board, console)?;
                            stop.quietly();
                        }
                    }
                    None => events = None,
                },
                () = curtain.falls() => {
                    board.hide();
                    curtain.stay_down().await;
                }
                _ = ticks.tick(), if board.wants_looks() => self.look(board, console).await,
            }
        }
        board.clear();
        Ok(Driven {
            stopped_by: stop.first(),
            last_events: LastEvents::of(events),
        })
    }

    /// Begins what may begin, and says how many.
    fn begin(&mut self) -> usize {
        let mut begun = 0;
        while let Some(item) = self.schedule.next(self.live_max) {
            let order = self.order(item);
            let (handle, news) = (self.handle.clone(), self.tell.clone());
            tokio::spawn(carry(handle, item, order, news));
            begun += 1;
        }
        begun
    }

    fn order(&mut self, item: usize) -> Order {
        if let Some(again) = self.outset.again[item].take() {
            return Order::Again(Box::new(again));
        }
        let spec = &self.batch.items[item];
        let mut params = spec.create.clone();
        if let Begin::Anew { reuse: Some(dir) } = &self.outset.beginnings[item].begin {
            params.deliverables_dir = Some(dir.clone());
            params.reuse_deliverables_dir = Some(true);
        }
        let builds_on = self.batch.needs[item].iter().map(|need| {
            let record = &self.manifest.items[*need];
            BuildsOn {
                item: record.id.clone(),
                summary: record.summary.clone(),
                deliverables_dir: record.deliverables_dir.clone().unwrap_or_default(),
            }
        });
        Order::Anew(Box::new(CreateOrderRequest {
            params,
            origin: Origin::Person,
            item: Some(ItemOrder {
                tag: ItemTag {
                    id: spec.id.clone(),
                    sha256: spec.sha256.clone(),
                },
                builds_on: builds_on.collect(),
            }),
        }))
    }

    fn hear(
        &mut self,
        item: usize,
        news: News,
        board: &mut Board,
        stop: &mut Stop<'_>,
        console: &mut Console<'_>,
    ) -> Result<(), ToolError> {
        let at = clock::timestamp();
        let record = &mut self.manifest.items[item];
        match news {
            News::Accepted(started) => {
                self.accepted.insert(item, started.task_id.clone());
                records::accept(record, &started);
                return Ok(());
            }
            // It was about to be created when the stop came.
            News::Refused(error)
                if error.code == ErrorCode::ShuttingDown && self.stopped_for.is_some() =>
            {
                let (reason, cause) = self
                    .stopped_for
                    .unwrap_or((SkipReason::LeaderStopped, None));
                records::skip(
                    &mut self.manifest.items,
                    Skipped {
                        item,
                        reason,
                        cause,
                    },
                    at,
                );
            }
            News::Refused(error) => records::refuse(record, error, at),
            News::Ended(result, files) => records::end(record, &result, files, at),
            News::Lost(error) => records::lose(record, error, at),
        }
        self.accepted.remove(&item);
        let good = self.manifest.items[item].success;
        let skipped = self.schedule.settled(item, good);
        self.tell(item, board, console)?;
        self.skip(skipped, board, console)?;
        if !good && self.fail_fast && self.stopped_for.is_none() {
            self.stop(SkipReason::FailFast, Some(item), board, console)?;
            stop.quietly();
        }
        Ok(())
    }

    fn stop(
        &mut self,
        reason: SkipReason,
        cause: Option<usize>,
        board: &mut Board,
        console: &mut Console<'_>,
    ) -> Result<(), ToolError> {
        self.stopped_for.get_or_insert((reason, cause));
        let skipped = self.schedule.stop(reason, cause);
        self.skip(skipped, board, console)
    }

    /// Records what will not run. A stop may skip thousands, which are one line together.
    fn skip(
        &mut self,
        skipped: Vec<Skipped>,
        board: &mut Board,
        console: &mut Console<'_>,
    ) -> Result<(), ToolError> {
        for skipped in skipped {
            records::skip(&mut self.manifest.items, skipped, clock::timestamp());
            match skipped.reason {
                SkipReason::DependencyFailed => self.tell(skipped.item, board, console)?,
                SkipReason::FailFast | SkipReason::LeaderStopped => {
                    print_settled(self.output, &self.manifest.items[skipped.item], console)?;
                }
            }
        }
        Ok(())
    }

    fn tell(
        &self,
        item: usize,
        board: &mut Board,
        console: &mut Console<'_>,
    ) -> Result<(), ToolError> {
        let record = &self.manifest.items[item];
        let totals = Totals::of(&self.manifest.items, 0);
        board.settled(record, &totals, console);
        print_settled(self.output, record, console)
    }

    /// Shows where the agents stand. It does not wait for a driver that is busy longer than a
    /// moment.
    async fn look(&self, board: &mut Board, console: &mut Console<'_>) {
        let (items, refs): (Vec<usize>, Vec<AgentRef>) = self
            .accepted
            .iter()
            .map(|(item, task_id)| (*item, AgentRef::Name(task_id.to_string())))
            .unzip();
        let asked = tokio::time::timeout(look_every(), self.handle.status(refs)).await;
        let Ok(answer) = asked else {
            return;
        };
        let agents: Vec<AgentStatus> =
            serde_json::from_value(answer["agents"].clone()).unwrap_or_default();
        let queued = agents
            .iter()
            .filter(|agent| agent.status == Status::Queued)
            .count();
        let running: Vec<(&str, AgentStatus)> = items
            .iter()
            .map(|item| self.batch.items[*item].id.as_str())
            .zip(agents)
            .filter(|(_, agent)| !agent.status.is_end())
            .collect();
        board.look(&running, &Totals::of(&self.manifest.items, queued), console);
    }
}
