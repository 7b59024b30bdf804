//! Which exit code a failure or an end comes to.

use protocol::error::ErrorCode;
use protocol::exit;
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
        | ErrorCode::TooMany => exit::USAGE,
        ErrorCode::NoModel
        | ErrorCode::TooManyAgents
        | ErrorCode::SpawnFailed
        | ErrorCode::Nested
        | ErrorCode::NoLeader
        | ErrorCode::ShuttingDown
        | ErrorCode::PermissionDenied
        | ErrorCode::DiskFull
        | ErrorCode::Io
        | ErrorCode::Internal => exit::LEADER_ENVIRONMENT,
        ErrorCode::ConfinementRefused => exit::CONFINEMENT_REFUSED,
        ErrorCode::AlreadyEnded
        | ErrorCode::AgentEnded
        | ErrorCode::AgentFailed
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

#[cfg(test)]
mod tests {
    use super::*;

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
