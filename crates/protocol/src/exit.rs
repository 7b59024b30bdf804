//! Exit codes of both executables, each written once.

use crate::status::{Status, StopReason};

/// Finished with success (worker), or all succeeded (leader).
pub const SUCCESS: u8 = 0;
/// Finished without success, or some agents failed.
pub const FAILURE: u8 = 1;
/// Bad usage or input.
pub const USAGE: u8 = 2;
/// Worker: turn, token or loop limit.
pub const WORKER_LIMIT: u8 = 3;
/// Leader: the environment is not fit (no worker, no model, lock held).
pub const LEADER_ENVIRONMENT: u8 = 3;
/// Worker: the model could not be reached, or refused.
pub const WORKER_MODEL: u8 = 4;
/// The confinement that was required could not be had.
pub const CONFINEMENT_REFUSED: u8 = 5;
/// Own deadline (worker), or some agents timed out and nothing worse (leader).
pub const DEADLINE: u8 = 124;
/// The jail could not start the worker.
pub const NEVER_STARTED: u8 = 125;
/// The worker's executable could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The worker's executable was not found.
pub const NOT_FOUND: u8 = 127;
/// After SIGHUP.
pub const SIGHUP: u8 = 129;
/// After SIGINT.
pub const SIGINT: u8 = 130;
/// After SIGTERM.
pub const SIGTERM: u8 = 143;

/// Every code with what it means, for help texts and docs/exit-codes.md.
pub const WORKER_TABLE: &[(u8, &str)] = &[
    (SUCCESS, "finished with success"),
    (FAILURE, "finished without success"),
    (USAGE, "bad usage or input"),
    (WORKER_LIMIT, "turn, token or loop limit"),
    (WORKER_MODEL, "model failure"),
    (CONFINEMENT_REFUSED, "confinement refused"),
    (DEADLINE, "own deadline"),
    (SIGHUP, "after SIGHUP, conversation saved"),
    (SIGINT, "after SIGINT, conversation saved"),
    (SIGTERM, "after SIGTERM, conversation saved"),
];

/// The codes of `leader`.
pub const LEADER_TABLE: &[(u8, &str)] = &[
    (SUCCESS, "all succeeded"),
    (FAILURE, "some failed, were terminated or interrupted"),
    (USAGE, "bad usage or input"),
    (
        LEADER_ENVIRONMENT,
        "environment: no worker, no model, lock held",
    ),
    (CONFINEMENT_REFUSED, "confinement refused"),
    (DEADLINE, "some timed out and nothing worse"),
    (SIGHUP, "after SIGHUP"),
    (SIGINT, "after SIGINT"),
    (SIGTERM, "after SIGTERM"),
];

/// The codes of the jail when its program never ran.
pub const JAIL_TABLE: &[(u8, &str)] = &[
    (
        NEVER_STARTED,
        "a step of the jail failed; the program never ran",
    ),
    (NOT_EXECUTABLE, "the program could not be executed"),
    (NOT_FOUND, "the program was not found"),
];

/// The worker's code for how its run ended.
pub fn of_worker(success: bool, stop_reason: Option<StopReason>) -> u8 {
    if success {
        return SUCCESS;
    }
    match stop_reason {
        Some(
            StopReason::TurnLimit
            | StopReason::TokenLimit
            | StopReason::LoopDetected
            | StopReason::OutputLimit,
        ) => WORKER_LIMIT,
        Some(StopReason::ModelError) => WORKER_MODEL,
        Some(StopReason::ConfinementRefused) => CONFINEMENT_REFUSED,
        Some(StopReason::Deadline) => DEADLINE,
        _ => FAILURE,
    }
}

/// The leader's code for the ends of its agents: the worst counts, and an agent that has not
/// ended, or ended in anything but success, is never 0.
pub fn of_leader(ends: &[(Status, Option<StopReason>)]) -> u8 {
    let refused = ends
        .iter()
        .any(|(_, reason)| *reason == Some(StopReason::ConfinementRefused));
    if refused {
        return CONFINEMENT_REFUSED;
    }
    let all = |wanted: &[Status]| ends.iter().all(|(status, _)| wanted.contains(status));
    if all(&[Status::Completed]) {
        SUCCESS
    } else if all(&[Status::Completed, Status::TimedOut]) {
        DEADLINE
    } else {
        FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_end_decides() {
        let done = (Status::Completed, None);
        let late = (Status::TimedOut, Some(StopReason::Deadline));
        let dead = (Status::Failed, Some(StopReason::WorkerCrashed));
        let shut = (Status::Failed, Some(StopReason::ConfinementRefused));
        let live = (Status::Running, None);
        assert_eq!(of_leader(&[]), SUCCESS);
        assert_eq!(of_leader(&[done]), SUCCESS);
        assert_eq!(of_leader(&[done, late]), DEADLINE);
        assert_eq!(of_leader(&[done, late, dead]), FAILURE);
        assert_eq!(of_leader(&[done, shut]), CONFINEMENT_REFUSED);
        assert_eq!(of_leader(&[done, live]), FAILURE);
    }

    #[test]
    fn a_worker_tells_limits_model_and_deadline_apart() {
        assert_eq!(of_worker(true, None), SUCCESS);
        assert_eq!(of_worker(false, Some(StopReason::NoFinish)), FAILURE);
        assert_eq!(
            of_worker(false, Some(StopReason::LoopDetected)),
            WORKER_LIMIT
        );
        assert_eq!(of_worker(false, Some(StopReason::ModelError)), WORKER_MODEL);
        assert_eq!(of_worker(false, Some(StopReason::Deadline)), DEADLINE);
    }
}
