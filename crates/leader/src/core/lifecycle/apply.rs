//! The transitions. [`apply`] is the only writer of a state.

use protocol::status::StopReason;

use crate::core::lifecycle::state::{
    Action, Activity, End, Event, Exit, Illegal, PendingStop, Report, Resource, State, StopCause,
    Stopping,
};

/// What happens to an agent in `state` at `event`.
///
/// # Errors
/// When the event does not fit the state; every event does not fit an end.
pub fn apply(state: State, event: Event) -> Result<(State, Vec<Action>), Illegal> {
    let (next, wanted) = step(state, event).ok_or(Illegal { state, event })?;
    let mut actions = Vec::new();
    // The slot follows from the two states, so no transition can forget or double it.
    match (state.holds_slot(), next.holds_slot()) {
        (false, true) => actions.push(Action::TakeSlot),
        (true, false) => actions.push(Action::ReleaseSlot),
        (true, true) | (false, false) => {}
    }
    actions.extend(wanted);
    Ok((next, actions))
}

type Step = Option<(State, Vec<Action>)>;

fn step(state: State, event: Event) -> Step {
    match state {
        State::Created => before_start(event, Some(Event::Enqueued)),
        State::Queued => before_start(event, None),
        State::Starting { stop } => starting(stop, event),
        State::Live(activity) => live(activity, event),
        State::Stopping(stopping) => stopping_step(stopping, event),
        State::Ended(_) => None,
    }
}

fn conclude(end: End) -> Step {
    Some((State::Ended(end), vec![Action::Conclude(end)]))
}

fn before_start(event: Event, enqueue: Option<Event>) -> Step {
    match event {
        Event::Enqueued if enqueue.is_some() => Some((State::Queued, vec![])),
        Event::SlotGranted if enqueue.is_none() => {
            Some((State::Starting { stop: None }, vec![Action::Spawn]))
        }
        Event::QueueTimeout if enqueue.is_none() => conclude(End::Failed(StopReason::QueueTimeout)),
        _ => conclude(asked_to_end(event)?.cause.decides()?),
    }
}

/// The stop that an event asks for from outside, if it does.
fn asked_to_end(event: Event) -> Option<PendingStop> {
    match event {
        Event::StopRequested(stop) => Some(stop),
        Event::ConversationClosed => Some(PendingStop {
            cause: StopCause::ConversationClosed,
            now: false,
        }),
        _ => None,
    }
}

fn starting(stop: Option<PendingStop>, event: Event) -> Step {
    match (event, stop) {
        (Event::Spawned, None) => Some((State::Live(Activity::Busy), vec![])),
        (Event::Spawned, Some(stop)) => Some(begin_stop(stop, true)),
        (Event::SpawnFailed(reason), None) => conclude(End::Failed(reason)),
        (Event::SpawnFailed(_), Some(stop)) => conclude(stop.cause.decides()?),
        (event, stop) => {
            let asked = asked_to_end(event)?;
            asked.cause.decides()?;
            let kept = stop.unwrap_or(asked);
            let stop = Some(PendingStop {
                cause: kept.cause,
                now: kept.now || asked.now,
            });
            Some((State::Starting { stop }, vec![]))
        }
    }
}

fn live(activity: Activity, event: Event) -> Step {
    let holds_slot = activity == Activity::Busy;
    let stop = |cause| {
        let stop = PendingStop { cause, now: false };
        Some(begin_stop(stop, holds_slot))
    };
    let pause = |to| Some((State::Live(to), vec![Action::PauseClock]));
    let go_on = || Some((State::Live(Activity::Busy), vec![Action::ResumeClock]));
    match (event, activity) {
        (Event::StartTimeout, Activity::Busy) => stop(StopCause::StartTimeout),
        (Event::WentIdle, Activity::Busy) => pause(Activity::Idle),
        (Event::Asked, Activity::Busy) => pause(Activity::Waiting),
        (Event::Answered | Event::AnswerTimeout | Event::HandshakeTimeout, Activity::Waiting) => {
            go_on()
        }
        (Event::Woken, Activity::Idle) => go_on(),
        (Event::IdleTimeout, Activity::Idle) => stop(StopCause::IdleTimeout),
        (Event::DeadlinePassed, _) => stop(StopCause::Deadline),
        (Event::ProtocolBroken, _) => stop(StopCause::ProtocolError),
        (Event::LimitPassed(resource), _) => {
            let stop = PendingStop {
                cause: resource.cause(),
                now: must_end_at_once(resource),
            };
            Some(begin_stop(stop, holds_slot))
        }
        (Event::Reported(report), _) => {
            let stopping = Stopping {
                cause: StopCause::Finished,
                holds_slot,
                report: Some(report),
                killed: false,
                unkillable: false,
            };
            Some((State::Stopping(stopping), vec![Action::Linger]))
        }
        (Event::Exited(exit), _) => conclude(end_of(None, None, exit)),
        (event, _) => {
            let asked = asked_to_end(event)?;
            asked.cause.decides()?;
            Some(begin_stop(asked, holds_slot))
        }
    }
}

/// Whether too much of a resource leaves no time to end in order: within a grace of seconds a
/// process can take all the memory there is, and with it every other program's.
fn must_end_at_once(resource: Resource) -> bool {
    match resource {
        Resource::Memory => true,
        Resource::Cpu | Resource::Disk | Resource::Files => false,
    }
}

fn begin_stop(stop: PendingStop, holds_slot: bool) -> (State, Vec<Action>) {
    let stopping = Stopping {
        cause: stop.cause,
        holds_slot,
        report: None,
        killed: stop.now,
        unkillable: false,
    };
    let mut actions = vec![Action::BeginStop(stop.cause)];
    if stop.now {
        actions.push(Action::Kill);
    }
    (State::Stopping(stopping), actions)
}

fn stopping_step(stopping: Stopping, event: Event) -> Step {
    let stay = |next: Stopping, actions| Some((State::Stopping(next), actions));
    let kill = || {
        let next = Stopping {
            killed: true,
            ..stopping
        };
        stay(next, vec![Action::Kill])
    };
    match event {
        // The first report counts; a second one says nothing new.
        Event::Reported(report) => {
            let report = Some(stopping.report.unwrap_or(report));
            stay(Stopping { report, ..stopping }, vec![])
        }
        Event::GraceExpired if !stopping.killed => kill(),
        Event::Unkillable if stopping.killed => {
            let next = Stopping {
                unkillable: true,
                ..stopping
            };
            // The kill is tried again for as long as anything is left.
            stay(next, vec![Action::Kill])
        }
        Event::Exited(exit) => conclude(end_of(Some(stopping.cause), stopping.report, exit)),
        // What it is stopped for may give it a grace; memory gives none to the machine.
        Event::LimitPassed(resource) if must_end_at_once(resource) && !stopping.killed => kill(),
        // Late by a moment: the stop has begun, and its first cause wins.
        Event::DeadlinePassed
        | Event::StartTimeout
        | Event::IdleTimeout
        | Event::ProtocolBroken
        | Event::LimitPassed(_)
        | Event::WentIdle
        | Event::Asked => stay(stopping, vec![]),
        _ => {
            let asked = asked_to_end(event)?;
            asked.cause.decides()?;
            if asked.now && !stopping.killed {
                kill()
            } else {
                stay(stopping, vec![])
            }
        }
    }
}

/// The end of an agent whose tree has ended, from why it was stopped (if it was), what it reported
/// on the channel, and what the end itself tells.
fn end_of(cause: Option<StopCause>, reported: Option<Report>, exit: Exit) -> End {
    if let Some(end) = cause.and_then(StopCause::decides) {
        return end;
    }
    match reported.or(exit.found) {
        Some(Report { success: true, .. }) => End::Completed,
        _ if exit.otherwise == StopReason::Deadline => End::TimedOut,
        Some(Report { reason, .. }) => unsuccessful(reason.unwrap_or(StopReason::ReportedFailure)),
        None => match cause.and_then(StopCause::reason) {
            Some(reason) => End::Failed(reason),
            None => End::Failed(exit.otherwise),
        },
    }
}

/// The end of an agent that reported that it did not succeed, for this reason.
fn unsuccessful(reason: StopReason) -> End {
    match reason {
        StopReason::Deadline => End::TimedOut,
        // Only the leader stops for these, and it did not: somebody else told the worker to stop.
        StopReason::Terminated
        | StopReason::LeaderStopped
        | StopReason::ConversationClosed
        | StopReason::LeaderDied => End::Failed(StopReason::KilledFromOutside),
        // What only a leader can know is no word of a worker's.
        StopReason::StartTimeout
        | StopReason::QueueTimeout
        | StopReason::IdleTimeout
        | StopReason::ShutdownApproved
        | StopReason::DependencyFailed
        | StopReason::SpawnFailed => End::Failed(StopReason::ReportedFailure),
        StopReason::OutputLimit
        | StopReason::KilledFromOutside
        | StopReason::ReportedFailure
        // A worker knows it as well: it can no longer keep its own record.
        | StopReason::BadResultFile
        | StopReason::NoFinish
        | StopReason::ConfinementRefused
        | StopReason::ProtocolError
        | StopReason::CpuLimit
        | StopReason::DiskLimit
        | StopReason::TurnLimit
        | StopReason::TokenLimit
        | StopReason::LoopDetected
        | StopReason::ModelError
        | StopReason::WorkerCrashed
        | StopReason::OutOfMemory => End::Failed(reason),
    }
}

/// What becomes of an agent whose leader died while it stood at `state`; the death of the leader
/// ends every tree.
pub fn after_leader_death(state: State) -> End {
    match state {
        State::Created | State::Queued => End::Terminated(StopReason::LeaderDied),
        State::Starting { .. } | State::Live(_) => End::Interrupted,
        State::Stopping(stopping) => match stopping.report {
            Some(Report { success: true, .. }) => End::Completed,
            Some(Report { reason, .. }) => {
                unsuccessful(reason.unwrap_or(StopReason::ReportedFailure))
            }
            None => End::Interrupted,
        },
        State::Ended(end) => end,
    }
}
