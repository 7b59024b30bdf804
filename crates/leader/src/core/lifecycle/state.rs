//! The words of an agent's life: where it stands, what can happen to it, what that wants done, and
//! how it ends.

use protocol::status::{Status, StopReason};
use serde::{Deserialize, Serialize};

/// What a live agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// It may use its model.
    Busy,
    /// It waits for an answer or an approval.
    Waiting,
    /// It has ended a round and waits for the next message.
    Idle,
}

/// What an agent can use too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
    /// Disk space.
    Disk,
    /// Files, however small.
    Files,
}

impl Resource {
    /// Every resource.
    pub const ALL: &'static [Resource] = &[
        Resource::Memory,
        Resource::Cpu,
        Resource::Disk,
        Resource::Files,
    ];

    /// The stop that too much of it begins.
    pub fn cause(self) -> StopCause {
        match self {
            Resource::Memory => StopCause::OutOfMemory,
            Resource::Cpu => StopCause::CpuLimit,
            Resource::Disk | Resource::Files => StopCause::DiskLimit,
        }
    }
}

/// Why an agent is being stopped. The first cause wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// It reported its outcome, and is given the grace to leave by itself.
    Finished,
    /// It did not say `initialize` in time.
    StartTimeout,
    /// It broke a rule of the channel that its call depended on.
    ProtocolError,
    /// Its deadline passed.
    Deadline,
    /// Its processes used too much memory.
    OutOfMemory,
    /// They used too much processor time.
    CpuLimit,
    /// They used too much disk space, or made too many files.
    DiskLimit,
    /// It was idle for too long.
    IdleTimeout,
    /// It agreed to a request to shut down.
    ShutdownApproved,
    /// Someone asked for its end.
    Terminated,
    /// The leader was told to stop.
    LeaderStopped,
    /// Its conversation was closed.
    ConversationClosed,
}

impl StopCause {
    /// Every cause, in the order of the documentation.
    pub const ALL: &'static [StopCause] = &[
        StopCause::Finished,
        StopCause::StartTimeout,
        StopCause::ProtocolError,
        StopCause::Deadline,
        StopCause::OutOfMemory,
        StopCause::CpuLimit,
        StopCause::DiskLimit,
        StopCause::IdleTimeout,
        StopCause::ShutdownApproved,
        StopCause::Terminated,
        StopCause::LeaderStopped,
        StopCause::ConversationClosed,
    ];

    /// The word for it in `agent/stop` and in an end that it decides; none for an agent that only
    /// lingers after its report, which is not told to stop.
    pub fn reason(self) -> Option<StopReason> {
        match self {
            StopCause::Finished => None,
            StopCause::StartTimeout => Some(StopReason::StartTimeout),
            StopCause::ProtocolError => Some(StopReason::ProtocolError),
            StopCause::Deadline => Some(StopReason::Deadline),
            StopCause::OutOfMemory => Some(StopReason::OutOfMemory),
            StopCause::CpuLimit => Some(StopReason::CpuLimit),
            StopCause::DiskLimit => Some(StopReason::DiskLimit),
            StopCause::IdleTimeout => Some(StopReason::IdleTimeout),
            StopCause::ShutdownApproved => Some(StopReason::ShutdownApproved),
            StopCause::Terminated => Some(StopReason::Terminated),
            StopCause::LeaderStopped => Some(StopReason::LeaderStopped),
            StopCause::ConversationClosed => Some(StopReason::ConversationClosed),
        }
    }

    /// The end that this cause decides whatever the agent reports after it; none when what the
    /// agent reported, or left in its files, still counts.
    pub(super) fn decides(self) -> Option<End> {
        match self {
            StopCause::Finished | StopCause::StartTimeout | StopCause::ProtocolError => None,
            StopCause::Deadline => Some(End::TimedOut),
            StopCause::OutOfMemory => Some(End::Failed(StopReason::OutOfMemory)),
            StopCause::CpuLimit => Some(End::Failed(StopReason::CpuLimit)),
            StopCause::DiskLimit => Some(End::Failed(StopReason::DiskLimit)),
            StopCause::IdleTimeout => Some(End::Terminated(StopReason::IdleTimeout)),
            StopCause::ShutdownApproved => Some(End::Terminated(StopReason::ShutdownApproved)),
            StopCause::Terminated => Some(End::Terminated(StopReason::Terminated)),
            StopCause::LeaderStopped => Some(End::Terminated(StopReason::LeaderStopped)),
            StopCause::ConversationClosed => Some(End::Terminated(StopReason::ConversationClosed)),
        }
    }
}

/// What the agent said of its outcome, as far as the machine needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Report {
    /// Whether it succeeded.
    pub success: bool,
    /// Why not.
    pub reason: Option<StopReason>,
}

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// With a success report, and its tree has ended.
    Completed,
    /// Without one.
    Failed(StopReason),
    /// At its deadline.
    TimedOut,
    /// Because someone asked for it.
    Terminated(StopReason),
    /// Its leader died while it ran.
    Interrupted,
}

impl End {
    /// The wire word.
    pub fn status(self) -> Status {
        match self {
            End::Completed => Status::Completed,
            End::Failed(_) => Status::Failed,
            End::TimedOut => Status::TimedOut,
            End::Terminated(_) => Status::Terminated,
            End::Interrupted => Status::Interrupted,
        }
    }

    /// Why, when not by a success report.
    pub fn reason(self) -> Option<StopReason> {
        match self {
            End::Completed => None,
            End::Failed(reason) | End::Terminated(reason) => Some(reason),
            End::TimedOut => Some(StopReason::Deadline),
            End::Interrupted => Some(StopReason::LeaderDied),
        }
    }
}

/// A stop that came while the process was being started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PendingStop {
    /// Why.
    pub cause: StopCause,
    /// Whether to kill at once.
    pub now: bool,
}

/// How far a stop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stopping {
    /// Why; the first cause.
    pub cause: StopCause,
    /// Whether its slot is still to be given back: an agent that waited or was idle holds none,
    /// and takes none to be stopped.
    pub holds_slot: bool,
    /// What it reported, before or during the stop.
    pub report: Option<Report>,
    /// Whether the kill was sent.
    pub killed: bool,
    /// Whether the kill did not end its tree in time.
    pub unkillable: bool,
}

/// Where an agent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Accepted.
    Created,
    /// Waits for a slot.
    Queued,
    /// Has a slot; its process is being started.
    Starting {
        /// A stop that is obeyed as soon as the process exists.
        stop: Option<PendingStop>,
    },
    /// Its process runs.
    Live(Activity),
    /// It is being stopped.
    Stopping(Stopping),
    /// It has ended.
    Ended(End),
}

impl State {
    /// The wire word.
    pub fn status(self) -> Status {
        match self {
            State::Created => Status::Created,
            State::Queued => Status::Queued,
            State::Starting { .. } => Status::Starting,
            State::Live(Activity::Busy) => Status::Running,
            State::Live(Activity::Waiting) => Status::Waiting,
            State::Live(Activity::Idle) => Status::Idle,
            State::Stopping(_) => Status::Stopping,
            State::Ended(end) => end.status(),
        }
    }

    /// Whether it counts against `max_concurrent`.
    pub fn holds_slot(self) -> bool {
        match self {
            State::Starting { .. } | State::Live(Activity::Busy) => true,
            State::Stopping(stopping) => stopping.holds_slot,
            State::Created
            | State::Queued
            | State::Live(Activity::Waiting | Activity::Idle)
            | State::Ended(_) => false,
        }
    }

    /// Whether it counts against `max_live`: it has a process, or is about to have one.
    pub fn holds_process(self) -> bool {
        match self {
            State::Starting { .. } | State::Live(_) | State::Stopping(_) => true,
            State::Created | State::Queued | State::Ended(_) => false,
        }
    }

    /// How it ended, if it has.
    pub fn end(self) -> Option<End> {
        match self {
            State::Ended(end) => Some(end),
            State::Created
            | State::Queued
            | State::Starting { .. }
            | State::Live(_)
            | State::Stopping(_) => None,
        }
    }
}

/// What the end of a process tree tells beside the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exit {
    /// The outcome that its files hold.
    pub found: Option<Report>,
    /// What it is when there is no report anywhere; `deadline` for the worker's own (exit 124).
    pub otherwise: StopReason,
}

/// What can happen to one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// It waits for a slot from now on.
    Enqueued,
    /// It has a slot.
    SlotGranted,
    /// No slot came free in time.
    QueueTimeout,
    /// Its process exists.
    Spawned,
    /// No process came to be: `spawn_failed` or `confinement_refused`.
    SpawnFailed(StopReason),
    /// It did not say `initialize` in time.
    StartTimeout,
    /// It ended a round.
    WentIdle,
    /// It waits for an answer or an approval.
    Asked,
    /// The answer is there, and a slot with it.
    Answered,
    /// No answer came in time; the error is the answer, and there is a slot for it.
    AnswerTimeout,
    /// No decision came in time; the error is the answer, and there is a slot for it.
    HandshakeTimeout,
    /// A message for an idle agent is there, and a slot with it.
    Woken,
    /// It was idle for too long.
    IdleTimeout,
    /// It reported its outcome.
    Reported(Report),
    /// Its clock has run out.
    DeadlinePassed,
    /// Its processes use too much.
    LimitPassed(Resource),
    /// It broke a rule of the channel.
    ProtocolBroken,
    /// It is to end.
    StopRequested(PendingStop),
    /// Its conversation was closed.
    ConversationClosed,
    /// The grace is over.
    GraceExpired,
    /// The kill did not end its tree in time.
    Unkillable,
    /// Its tree has ended.
    Exited(Exit),
}

/// What a transition wants done, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// One slot more is in use.
    TakeSlot,
    /// One slot less is in use.
    ReleaseSlot,
    /// Start its process.
    Spawn,
    /// Its clock stands still from now on.
    PauseClock,
    /// Its clock goes on.
    ResumeClock,
    /// Let it leave by itself for the length of the grace.
    Linger,
    /// Begin the stop: `agent/stop`, and the ladder.
    BeginStop(StopCause),
    /// Kill its tree.
    Kill,
    /// It has ended.
    Conclude(End),
}

/// An event that does not fit a state; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} does not fit state {state:?}")]
pub struct Illegal {
    /// Where the agent stands.
    pub state: State,
    /// What does not fit.
    pub event: Event,
}
