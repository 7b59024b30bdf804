//! What is done beside the driver's task because it touches the disk, and how its outcome comes
//! back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::job::JobSpec;
use protocol::limits::DISK_ENTRIES_MAX;
use protocol::result::Deliverables;
use protocol::secret::Mask;
use tokio::sync::{mpsc, oneshot};

use crate::core::Ticket;
use crate::core::input::{CreateOrder, Evidence};
use crate::core::usage::Space;
use crate::driver::plan::Plan;
use crate::os::clock::Clock;
use crate::os::process::ChildEnd;
use crate::os::space;
use crate::store::agent_dir::{AgentDir, StartFiles};
use crate::store::claims::Claim;
use crate::store::results::{self, Collected, FinalWord};
use crate::store::take_up::take_up;
use crate::store::worker_log::WorkerLog;

/// Outcomes that wait for the driver.
pub(super) const WORK_WAITING_MAX: usize = 1_024;
/// The longest listing of a deliverables dir, in milliseconds.
const LISTING_MS_MAX: u64 = 4_000;

/// A create that may go to the supervisor.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) order: CreateOrder,
    pub(super) claim: Claim,
}

/// An agent whose process may be started.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) dir: AgentDir,
    pub(super) log: WorkerLog,
    /// What lies where it writes; none where it has no cap on that, or there is too much to count.
    pub(super) space: Option<Space>,
}

/// An outcome.
#[derive(Debug)]
pub(super) enum Work {
    /// A create was looked into.
    Planned {
        ticket: Ticket,
        outcome: Result<Box<Planned>, ToolError>,
    },
    /// An agent's directories were made.
    Prepared {
        agent: TaskId,
        outcome: Result<Ready, ToolError>,
    },
    /// An ended agent's directories were read.
    Collected {
        agent: TaskId,
        dir: Option<AgentDir>,
        collected: Collected,
        end: Box<ChildEnd>,
    },
    /// An agent's conversation has its final form.
    Concluded { agent: TaskId },
    /// A caller has gone before its answer came.
    GaveUp(Ticket),
}

/// Where outcomes go. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Workshop {
    outcomes: mpsc::Sender<Work>,
}

impl Workshop {
    pub(super) fn new(outcomes: mpsc::Sender<Work>) -> Self {
        Workshop { outcomes }
    }

    /// Runs `work` where it may block. A fault in it becomes the outcome `broken`, so that nobody
    /// waits for ever; a driver that is gone wants no outcome.
    pub(super) fn start(
        &self,
        broken: impl FnOnce(ToolError) -> Work + Send + 'static,
        work: impl FnOnce() -> Work + Send + 'static,
    ) {
        let outcomes = self.outcomes.clone();
        tokio::task::spawn_blocking(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                broken(ToolError::new(
                    ErrorCode::Internal,
                    "a fault inside the leader; its log has the place",
                ))
            });
            drop(outcomes.blocking_send(outcome));
        });
    }

    /// Makes an agent's directories and its log.
    pub(super) fn prepare(&self, plan: &Plan, mask: Mask) {
        let (job, task) = (plan.job.clone(), plan.task.clone());
        let (system_prompt, earlier) = (plan.system_prompt.clone(), plan.earlier.clone());
        let agent = job.task_id.clone();
        let broken = |error| Work::Prepared {
            agent,
            outcome: Err(error),
        };
        self.start(broken, move || {
            let files = StartFiles {
                job: &job,
                task: &task,
                system_prompt: &system_prompt,
            };
            let prepared = match job.resumes.is_some() {
                true => take_up(&job.workspace, files, &earlier),
                false => AgentDir::prepare(&job.workspace, files),
            };
            let outcome = prepared.map(|dir| {
                let log = WorkerLog::create(&dir.own, mask);
                let space = space_at_start(&job);
                Ready { dir, log, space }
            });
            Work::Prepared {
                agent: job.task_id,
                outcome,
            }
        });
    }

    /// Reads what an ended agent left.
    pub(super) fn collect(&self, agent: TaskId, mut dir: AgentDir, end: Box<ChildEnd>) {
        let lost = agent.clone();
        let lost_end = end.clone();
        let broken = move |error: ToolError| Work::Collected {
            agent: lost,
            dir: None,
            collected: Collected {
                evidence: Evidence::Bad {
                    why: error.to_string(),
                },
                deliverables: Deliverables::default(),
                warnings: Vec::new(),
            },
            end: lost_end,
        };
        self.start(broken, move || {
            let clock = Clock::start();
            let collected = results::collect(&mut dir, &agent, || clock.now_ms() > LISTING_MS_MAX);
            Work::Collected {
                agent,
                dir: Some(dir),
                collected,
                end,
            }
        });
    }

    /// Brings an agent's conversation to its final form. A failure leaves what the worker wrote;
    /// the end itself stands in the event log.
    pub(super) fn conclude(&self, plan: &Plan, mut dir: AgentDir, word: FinalWord, mask: Mask) {
        let job = plan.job.clone();
        let agent = job.task_id.clone();
        let broken = |_| Work::Concluded { agent };
        self.start(broken, move || {
            if let Err(error) = results::conclude(&mut dir, &job, &word, &mask) {
                let place: PathBuf = job.workspace.join(&job.deliverables_dir);
                tracing::warn!(
                    agent = %job.task_id,
                    place = %place.display(),
                    %error,
                    "the conversation could not be completed"
                );
            }
            Work::Concluded { agent: job.task_id }
        });
    }

    /// Hands an answer on to its caller, or tells that the caller has gone.
    pub(super) fn watch<T: Send + 'static>(
        &self,
        ticket: Ticket,
        mut reply: oneshot::Sender<T>,
    ) -> oneshot::Sender<T> {
        let (answer, coming) = oneshot::channel();
        let outcomes = self.outcomes.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                answer = coming => {
                    if let Ok(answer) = answer {
                        // Whoever has gone in this very moment misses it.
                        drop(reply.send(answer));
                    }
                }
                () = reply.closed() => drop(outcomes.send(Work::GaveUp(ticket)).await),
            }
        });
        answer
    }
}

/// Where an agent writes by its job, absolute.
pub(super) fn written_by(job: &JobSpec) -> Vec<PathBuf> {
    let paths = std::iter::once(&job.deliverables_dir).chain(&job.write_paths);
    paths.map(|path| job.workspace.join(path)).collect()
}

fn space_at_start(job: &JobSpec) -> Option<Space> {
    job.limits.caps.disk_bytes?;
    let found = space::count(&written_by(job), DISK_ENTRIES_MAX);
    (found.entries <= DISK_ENTRIES_MAX).then_some(found)
}
