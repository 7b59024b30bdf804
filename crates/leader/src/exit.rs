//! Which exit code a failure or an end comes to.

use protocol::error::ErrorCode;
use protocol::exit;
use protocol::manifest::{ItemStatus, ManifestItem};
use protocol::status::{Status, StopReason};

use crate::faces::interrupt::Interrupt;

/// The code for a call that was refused: bad input, or a machine that is not fit.
pub fn of_error(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::InvalidParameters
        | ErrorCode::UnknownTool
        | ErrorCode::ToolNotGranted
        | ErrorCode::AgentIdTaken
        | ErrorCode::AgentIdsSpent
        | ErrorCode::AmbiguousAgentId
        | ErrorCode::UnknownAgent
        | ErrorCode::UnknownRole
        | ErrorCode::UnknownModel
        | ErrorCode::OutsideWorkspace
        | ErrorCode::OutsideWriteScope
        | ErrorCode::DeliverablesDirRefused
        | ErrorCode::DeliverablesDirNotEmpty
        | ErrorCode::DeliverablesOverlap
        | ErrorCode::ScopeOverlap
        | ErrorCode::NotAvailable
        | ErrorCode::NotFound
        | ErrorCode::NotAFile
        | ErrorCode::BinaryFile
        | ErrorCode::NoMatch
        | ErrorCode::SeveralMatches
        | ErrorCode::TooLarge
        | ErrorCode::AddressRefused
        | ErrorCode::TooMany => exit::USAGE,
        ErrorCode::NoModel
        | ErrorCode::TooManyAgents
        | ErrorCode::SpawnFailed
        | ErrorCode::Nested
        | ErrorCode::NoLeader
        | ErrorCode::WebSearchUnavailable
        | ErrorCode::ShuttingDown
        | ErrorCode::PermissionDenied
        | ErrorCode::DiskFull
        | ErrorCode::Io
        | ErrorCode::Internal => exit::LEADER_ENVIRONMENT,
        ErrorCode::ConfinementRefused => exit::CONFINEMENT_REFUSED,
        ErrorCode::AlreadyEnded
        | ErrorCode::AgentEnded
        | ErrorCode::AgentFailed
        | ErrorCode::WebFailed
        | ErrorCode::McpFailed
        | ErrorCode::TimedOut
        | ErrorCode::Cancelled => exit::FAILURE,
    }
}

/// The code of a whole run. A signal counts before everything; an agent that could not even be
/// started is the environment's fault; else the worst end decides.
pub fn of_run(ends: &[(Status, Option<StopReason>)], interrupt: Option<Interrupt>) -> u8 {
    if let Some(interrupt) = interrupt {
        return interrupt.exit_code();
    }
    let never_started = ends
        .iter()
        .any(|(_, reason)| *reason == Some(StopReason::SpawnFailed));
    if never_started {
        return exit::LEADER_ENVIRONMENT;
    }
    exit::of_leader(ends)
}

/// The code of a batch, by the same rule for every mix of ends. An item that was skipped is as bad
/// as the end that it was skipped for, which counts itself; an item without an end is never success.
pub fn of_batch(items: &[ManifestItem], interrupt: Option<Interrupt>) -> u8 {
    let ends: Vec<(Status, Option<StopReason>)> = items
        .iter()
        .filter_map(|item| {
            let status = match item.status {
                ItemStatus::Skipped => return None,
                ItemStatus::Completed => Status::Completed,
                ItemStatus::Failed => Status::Failed,
                ItemStatus::TimedOut => Status::TimedOut,
                ItemStatus::Terminated => Status::Terminated,
                ItemStatus::Interrupted => Status::Interrupted,
                ItemStatus::Unkillable => Status::Stopping,
                ItemStatus::Pending | ItemStatus::Accepted => Status::Running,
                ItemStatus::Refused => return Some(refused(item)),
            };
            Some((status, item.agent_reason()))
        })
        .collect();
    match of_run(&ends, interrupt) {
        exit::SUCCESS if ends.len() < items.len() => exit::FAILURE,
        code => code,
    }
}

/// An item for which no agent could be created, as the end that it amounts to.
fn refused(item: &ManifestItem) -> (Status, Option<StopReason>) {
    let reason = match item.error.as_ref().map(|error| error.code) {
        Some(ErrorCode::ConfinementRefused) => Some(StopReason::ConfinementRefused),
        Some(ErrorCode::SpawnFailed | ErrorCode::NoModel) => Some(StopReason::SpawnFailed),
        Some(_) | None => None,
    };
    (Status::Failed, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::error::ToolError;

    fn item(status: ItemStatus, reason: Option<&str>) -> ManifestItem {
        ManifestItem {
            status,
            stop_reason: reason.map(str::to_owned),
            ..ManifestItem::pending("a", "", Vec::new(), "s")
        }
    }

    #[test]
    fn a_batch_has_the_code_of_its_worst_end() {
        use ItemStatus::*;
        let done = || item(Completed, None);
        let late = || item(TimedOut, Some("deadline"));
        let failed = || item(Failed, Some("no_finish"));
        let unborn = || item(Failed, Some("spawn_failed"));
        let unheld = || item(Failed, Some("confinement_refused"));
        let skipped = || item(Skipped, Some("dependency_failed"));
        let refused = |code| ManifestItem {
            error: Some(ToolError::new(code, "no")),
            ..item(Refused, None)
        };
        for (items, code) in [
            (vec![], 0),
            (vec![done(), done()], 0),
            (vec![done(), late()], 124),
            (vec![done(), late(), skipped()], 124),
            (vec![done(), skipped()], 1),
            (vec![skipped()], 1),
            (vec![done(), failed()], 1),
            (vec![late(), failed(), done()], 1),
            (vec![late(), item(Terminated, Some("leader_stopped"))], 1),
            (vec![done(), item(Interrupted, Some("leader_died"))], 1),
            (vec![done(), item(Unkillable, None)], 1),
            (vec![done(), item(Accepted, None)], 1),
            (vec![done(), item(Pending, None)], 1),
            (vec![done(), refused(ErrorCode::DeliverablesDirNotEmpty)], 1),
            (vec![done(), failed(), unborn()], 3),
            (vec![done(), refused(ErrorCode::SpawnFailed)], 3),
            (vec![done(), failed(), unheld()], 5),
            (vec![done(), refused(ErrorCode::ConfinementRefused)], 5),
        ] {
            assert_eq!(of_batch(&items, None), code, "{items:?}");
            assert_eq!(of_batch(&items, Some(Interrupt::Interrupt)), 130);
        }
    }

    #[test]
    fn refusals_tell_bad_input_from_a_machine_that_is_not_fit() {
        assert_eq!(of_error(ErrorCode::DeliverablesDirNotEmpty), 2);
        assert_eq!(of_error(ErrorCode::UnknownModel), 2);
        assert_eq!(of_error(ErrorCode::NoModel), 3);
        assert_eq!(of_error(ErrorCode::Nested), 3);
        assert_eq!(of_error(ErrorCode::ConfinementRefused), 5);
        for code in ErrorCode::ALL {
            assert_ne!(of_error(*code), 0, "{code}");
        }
    }

    #[test]
    fn a_signal_counts_before_the_ends() {
        let done = (Status::Completed, None);
        let ended = (Status::Terminated, Some(StopReason::LeaderStopped));
        let unborn = (Status::Failed, Some(StopReason::SpawnFailed));
        let late = (Status::TimedOut, Some(StopReason::Deadline));
        assert_eq!(of_run(&[done], None), 0);
        assert_eq!(of_run(&[ended], None), 1);
        assert_eq!(of_run(&[unborn], None), 3);
        assert_eq!(of_run(&[late], None), 124);
        for (interrupt, code) in [
            (Interrupt::Hangup, 129),
            (Interrupt::Interrupt, 130),
            (Interrupt::Terminate, 143),
        ] {
            assert_eq!(of_run(&[done], Some(interrupt)), code);
        }
    }
}
