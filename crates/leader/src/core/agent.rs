//! All that the supervisor knows of one agent.

use std::path::PathBuf;

use protocol::channel::{FinishedParams, ProgressParams};
use protocol::error::ToolError;
use protocol::job::JobSpec;
use protocol::limits;
use protocol::result::{AgentResult, AgentStatus, floor_border, tail};
use protocol::stats::{Stats, Usage};
use serde_json::Value;

use crate::core::deadline::{Clock, Ladder};
use crate::core::input::{Caller, CreateOrder, ProcessIdentity, Survivors};
use crate::core::lifecycle::{Activity, State};
use crate::core::record::AgentTag;
use crate::core::usage::Excess;

/// One agent, from its creation on. Faces and driver read it; only the supervisor changes it.
#[derive(Debug, Clone)]
pub struct Agent {
    /// What its worker is (to be) started with.
    pub job: JobSpec,
    /// Its deliverables dir, absolute.
    pub deliverables: PathBuf,
    /// What else it may write, absolute.
    pub write_paths: Vec<PathBuf>,
    /// Who created it.
    pub owner: Caller,
    /// Where it stands.
    pub state: State,
    /// When it came to stand there.
    pub since_ms: u64,
    /// Its process, once there is one.
    pub process: Option<ProcessIdentity>,
    /// What its jail enforces; null before it said so.
    pub confinement: Value,
    /// Its working time; runs from `initialize` on.
    pub clock: Clock,
    /// Whether its worker said `initialize`.
    pub initialized: bool,
    /// Counts, as it last told them.
    pub stats: Stats,
    /// What its processes used, where somebody looks.
    pub usage: Usage,
    /// The first limit that they passed.
    pub excess: Option<Excess>,
    /// What it last said it does.
    pub last_action: String,
    /// The end of what it last printed.
    pub last_output: String,
    /// Its report on the channel.
    pub report: Option<FinishedParams>,
    /// What is left of its tree after a kill, if anybody had to look.
    pub survivors: Option<Survivors>,
    /// What is odd about it.
    pub warnings: Vec<String>,
    /// Its result, once it has ended.
    pub result: Option<Box<AgentResult>>,
    /// How its stop goes on.
    pub(crate) ladder: Option<Ladder>,
    /// What went wrong before or beside its end.
    pub(crate) fault: Option<ToolError>,
    /// Whether somebody asked for its end before.
    pub(crate) asked_to_end: bool,
    /// Whether what it waits for is there, and only a slot is missing.
    pub(crate) returning: bool,
    /// When its timer is due, as the supervisor has it in its list.
    pub(crate) timer_ms: Option<u64>,
}

impl Agent {
    pub(crate) fn new(order: CreateOrder, owner: Caller, now_ms: u64) -> Self {
        let limit_ms = u64::from(order.job.limits.timeout_seconds) * 1_000;
        Agent {
            job: order.job,
            deliverables: order.deliverables,
            write_paths: order.write_paths,
            owner,
            state: State::Created,
            since_ms: now_ms,
            process: None,
            confinement: Value::Null,
            clock: Clock::new(limit_ms),
            initialized: false,
            stats: Stats::default(),
            usage: Usage::default(),
            excess: None,
            last_action: String::new(),
            last_output: String::new(),
            report: None,
            survivors: None,
            warnings: order.warnings,
            result: None,
            ladder: None,
            fault: None,
            asked_to_end: false,
            returning: false,
            timer_ms: None,
        }
    }

    /// How records name it.
    pub fn tag(&self) -> AgentTag {
        AgentTag::of(&self.job)
    }

    /// From `agent/stop` to the kill.
    pub fn grace_ms(&self) -> u64 {
        u64::from(self.job.limits.grace_seconds) * 1_000
    }

    /// Whether a wait has nothing to wait for: it has ended, or is idle.
    pub fn is_settled(&self) -> bool {
        match self.state {
            State::Ended(_) | State::Live(Activity::Idle) => true,
            State::Created
            | State::Queued
            | State::Starting { .. }
            | State::Live(Activity::Busy | Activity::Waiting)
            | State::Stopping(_) => false,
        }
    }

    /// Whether a kill did not end its tree, and it is known what is left of it.
    pub fn is_unkillable(&self) -> bool {
        matches!(self.state, State::Stopping(stopping) if stopping.unkillable)
            && self.survivors.is_some()
    }

    /// Whether it is listed as active: it runs, waits, is idle, is started or stopped, or waits
    /// for a slot.
    pub fn is_active(&self) -> bool {
        self.state.end().is_none()
    }

    /// Its relative deliverables dir as text.
    pub fn deliverables_text(&self) -> String {
        self.job.deliverables_dir.to_string_lossy().into_owned()
    }

    /// Takes what it said of its progress, cut to the agreed lengths.
    pub(crate) fn take_progress(&mut self, progress: ProgressParams) {
        self.stats = progress.stats;
        self.last_action = clip_chars(&progress.last_action, limits::LAST_ACTION_CHARS_MAX);
        tail(&progress.output_tail, limits::OUTPUT_TAIL_BYTES_MAX)
            .clone_into(&mut self.last_output);
    }

    /// Its line in a status answer. `queue_position` is from 1, when it is queued.
    pub fn status(&self, now_ms: u64, queue_position: Option<usize>) -> AgentStatus {
        let stats = self.current_stats(now_ms);
        let deadline_ms = self
            .clock
            .is_running()
            .then(|| self.clock.remaining_ms(now_ms));
        AgentStatus {
            agent_id: self.job.agent_id,
            role_id: self.job.role_id.clone(),
            task_id: self.job.task_id.clone(),
            display_name: self.job.display_name.clone(),
            summary: self.job.summary.clone(),
            status: self.state.status(),
            runtime_seconds: stats.runtime_seconds,
            files_read: stats.files_read,
            searches: stats.searches,
            web_pages: stats.web_pages,
            commands: stats.commands,
            last_action: self.last_action.clone(),
            last_output: self.last_output.clone(),
            token_usage: stats.token_usage,
            deadline_in_seconds: deadline_ms.map(|ms| ms.div_ceil(1_000)),
            queue_position,
            deliverables_dir: self.deliverables_text(),
            stop_reason: self.state.end().and_then(|end| end.reason()),
            rung: self.confinement["rung"].as_str().map(str::to_owned),
            confinement: self.confinement.clone(),
            unkillable: self
                .survivors
                .as_ref()
                .map(|left| serde_json::json!({"pids": left.pids, "why": left.why})),
        }
    }

    /// Its counts with the time by the leader's clock, which a worker can't set.
    pub(crate) fn current_stats(&self, now_ms: u64) -> Stats {
        match &self.result {
            Some(result) => result.stats,
            None => Stats {
                runtime_seconds: self.clock.spent_ms(now_ms) / 1_000,
                ..self.stats
            },
        }
    }
}

fn clip_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => text[..floor_border(text, at)].to_owned(),
        None => text.to_owned(),
    }
}
