//! What the end of a process tree tells: from the jail's verdict and the agent's own files to the
//! facts that the state machine and a result need.

use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::result::{Deliverables, cut_middle, tail};
use protocol::stats::Stats;
use protocol::status::StopReason;

use crate::core::agent::Agent;
use crate::core::input::{Evidence, ExitFacts, Survivors, Verdict};
use crate::core::lifecycle::{End, Exit, Report, State, StopCause};

/// A worker's last lines, as an error quotes them.
pub const LAST_LINES_BYTES_MAX: usize = 1024;

/// What a result says beside the end itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndFacts {
    /// How the process ended, in words; empty when there was none.
    pub verdict: String,
    /// The last lines of its stderr.
    pub last_lines: String,
    /// What is wrong with its result file; empty when nothing is.
    pub bad_file: String,
    /// The report that its files hold, or its last text.
    pub found_summary: String,
    /// Counts that its files hold.
    pub found_stats: Option<Stats>,
    /// What it left.
    pub deliverables: Deliverables,
    /// What is odd about the end.
    pub warnings: Vec<String>,
}

/// What an exit means for the state machine.
pub fn exit_event(facts: &ExitFacts, initialized: bool) -> Exit {
    Exit {
        found: match &facts.evidence {
            Evidence::Report(report) => Some(Report {
                success: report.success,
                reason: report.stop_reason,
            }),
            Evidence::Unfinished { .. } | Evidence::Bad { .. } => None,
        },
        otherwise: match facts.out_of_memory {
            true => StopReason::OutOfMemory,
            false => reason_without_report(facts.verdict, &facts.evidence, initialized),
        },
    }
}

/// Why an agent failed that reported nowhere.
fn reason_without_report(verdict: Verdict, evidence: &Evidence, initialized: bool) -> StopReason {
    match verdict {
        Verdict::Exited(exit::DEADLINE) => StopReason::Deadline,
        Verdict::Exited(exit::CONFINEMENT_REFUSED) => StopReason::ConfinementRefused,
        // These are the jail's own words only as long as the worker has not spoken.
        Verdict::Exited(exit::NEVER_STARTED | exit::NOT_EXECUTABLE | exit::NOT_FOUND)
            if !initialized =>
        {
            StopReason::SpawnFailed
        }
        Verdict::Exited(exit::SIGHUP | exit::SIGINT | exit::SIGTERM) => {
            StopReason::KilledFromOutside
        }
        Verdict::Exited(exit::SUCCESS) => match evidence {
            Evidence::Bad { .. } => StopReason::BadResultFile,
            Evidence::Report(_) | Evidence::Unfinished { .. } => StopReason::WorkerCrashed,
        },
        Verdict::Exited(_) => StopReason::WorkerCrashed,
        Verdict::Signalled(SIGKILL | SIGTERM | SIGINT | SIGHUP | SIGQUIT) => {
            StopReason::KilledFromOutside
        }
        Verdict::Signalled(SIGXCPU) => StopReason::CpuLimit,
        Verdict::Signalled(SIGXFSZ) => StopReason::DiskLimit,
        Verdict::Signalled(_) => StopReason::WorkerCrashed,
    }
}

/// What an exit adds to a result.
pub fn end_facts(facts: ExitFacts) -> EndFacts {
    let (found_summary, found_stats, bad_file) = match facts.evidence {
        Evidence::Report(report) => (report.summary, Some(report.stats), String::new()),
        Evidence::Unfinished { last_text, stats } => (last_text, Some(stats), String::new()),
        Evidence::Bad { why } => (String::new(), None, why),
    };
    EndFacts {
        verdict: verdict_text(facts.verdict),
        last_lines: facts.last_lines,
        bad_file,
        found_summary,
        found_stats,
        deliverables: facts.deliverables,
        warnings: facts.warnings,
    }
}

/// What is odd about an exit although the run may have succeeded.
pub fn odd_exit(state: State, verdict: Verdict, found: Option<Report>) -> Option<String> {
    let success = |report: Option<Report>| report.is_some_and(|report| report.success);
    match state {
        State::Stopping(stopping) if success(stopping.report.or(found)) => match stopping.cause {
            StopCause::Finished if stopping.killed => {
                Some("it did not leave after its report and was killed".to_owned())
            }
            StopCause::Finished if verdict != Verdict::Exited(exit::SUCCESS) => {
                Some(format!("it {} after its report", verdict_text(verdict)))
            }
            StopCause::StartTimeout => Some(
                "it never said `initialize` and was stopped, but its files hold its report"
                    .to_owned(),
            ),
            StopCause::ProtocolError => Some(
                "it broke a rule of the channel and was stopped, but it had reported".to_owned(),
            ),
            _ => None,
        },
        State::Live(_) if success(found) && verdict != Verdict::Exited(exit::SUCCESS) => {
            Some(format!(
                "it {}, but its files hold its report",
                verdict_text(verdict)
            ))
        }
        _ => None,
    }
}

/// A verdict in words: `exited with code 7`, `was killed by SIGKILL`.
pub fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Exited(code) => format!("exited with code {code}"),
        Verdict::Signalled(signal) => match signal_name(signal) {
            Some(name) => format!("was killed by {name}"),
            None => format!("was killed by signal {signal}"),
        },
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    SIGNALS
        .iter()
        .find(|(number, _)| *number == signal)
        .map(|(_, name)| *name)
}

// Linux numbers on x86, Arm and RISC-V, signal(7).
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

const SIGNALS: &[(i32, &str)] = &[
    (SIGHUP, "SIGHUP"),
    (SIGINT, "SIGINT"),
    (SIGQUIT, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (SIGKILL, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (SIGTERM, "SIGTERM"),
    (SIGXCPU, "SIGXCPU"),
    (SIGXFSZ, "SIGXFSZ"),
    (31, "SIGSYS"),
];

/// What went wrong, for a result that is no success.
pub fn error_of(agent: &Agent, end: End, facts: &EndFacts) -> Option<ToolError> {
    let reason = end.reason()?;
    let name = &agent.job.display_name;
    if let Some(fault) = &agent.fault
        && matches!(
            reason,
            StopReason::SpawnFailed | StopReason::ConfinementRefused
        )
    {
        return Some(fault.clone());
    }
    let code = match (end, reason) {
        (End::TimedOut, _) | (_, StopReason::StartTimeout | StopReason::QueueTimeout) => {
            ErrorCode::TimedOut
        }
        (End::Terminated(_) | End::Interrupted, _) => ErrorCode::AgentEnded,
        (_, StopReason::SpawnFailed) => ErrorCode::SpawnFailed,
        (_, StopReason::ConfinementRefused) => ErrorCode::ConfinementRefused,
        (End::Completed | End::Failed(_), _) => ErrorCode::AgentFailed,
    };
    let mut message = format!("{name} {}", what_happened(agent, reason, facts));
    let last_lines = facts.last_lines.trim();
    let quotes_stderr = matches!(
        reason,
        StopReason::WorkerCrashed
            | StopReason::BadResultFile
            | StopReason::SpawnFailed
            | StopReason::ConfinementRefused
            | StopReason::StartTimeout
            | StopReason::ProtocolError
    );
    if quotes_stderr && !last_lines.is_empty() {
        message.push_str("; its last lines: ");
        message.push_str(tail(last_lines, LAST_LINES_BYTES_MAX));
    }
    Some(ToolError::new(code, message).hint(what_to_try(reason)))
}

fn what_happened(agent: &Agent, reason: StopReason, facts: &EndFacts) -> String {
    let verdict = if facts.verdict.is_empty() {
        "ended"
    } else {
        facts.verdict.as_str()
    };
    let limits = &agent.job.limits;
    match reason {
        StopReason::Deadline => format!(
            "was stopped at its deadline of {} s",
            limits.timeout_seconds
        ),
        StopReason::StartTimeout => "did not say `initialize` in time and was stopped".to_owned(),
        StopReason::QueueTimeout => "got no slot in time".to_owned(),
        StopReason::BadResultFile if facts.bad_file.is_empty() => {
            format!("{verdict}, but its result file can't be used")
        }
        StopReason::BadResultFile => {
            format!(
                "{verdict}, but its result file can't be used: {}",
                facts.bad_file
            )
        }
        StopReason::KilledFromOutside if facts.verdict.is_empty() => {
            "was stopped by something else than the leader".to_owned()
        }
        StopReason::KilledFromOutside => {
            format!("{verdict}: something else than its leader stopped it")
        }
        StopReason::WorkerCrashed => format!("{verdict} without a report"),
        StopReason::SpawnFailed => format!("could not be started: its jail {verdict}"),
        StopReason::ConfinementRefused => "could not be confined as required".to_owned(),
        StopReason::ProtocolError => {
            let detail = agent.fault.as_ref().map_or("", |fault| &fault.message);
            format!("broke a rule of the channel and was stopped: {detail}")
        }
        StopReason::Terminated => "was terminated".to_owned(),
        StopReason::LeaderStopped => "was stopped with its leader".to_owned(),
        StopReason::ConversationClosed => "was stopped when its conversation closed".to_owned(),
        StopReason::LeaderDied => "was cut off when its leader died".to_owned(),
        StopReason::IdleTimeout => "was idle for too long and was stopped".to_owned(),
        StopReason::ShutdownApproved => "agreed to shut down".to_owned(),
        StopReason::DependencyFailed => "was not run: what it needs did not succeed".to_owned(),
        StopReason::ReportedFailure => "reported that it did not succeed".to_owned(),
        StopReason::NoFinish => {
            "stopped without calling finish_task, also when reminded".to_owned()
        }
        StopReason::CpuLimit => used_up(agent, reason, "processor time"),
        StopReason::DiskLimit => used_up(agent, reason, "disk space"),
        StopReason::TurnLimit => format!("used up its {} turns", limits.max_turns),
        StopReason::TokenLimit => "used up its tokens".to_owned(),
        StopReason::OutputLimit => "was cut at its model's output limit again and again".to_owned(),
        StopReason::LoopDetected => {
            "made the same call with the same result again and again".to_owned()
        }
        StopReason::ModelError => "could not use its model".to_owned(),
        StopReason::OutOfMemory => used_up(agent, reason, "memory"),
    }
}

/// That a limit ended it, with the figures where the leader measured them.
fn used_up(agent: &Agent, reason: StopReason, what: &str) -> String {
    match agent.excess.filter(|excess| excess.reason() == reason) {
        Some(excess) => format!("used up its {what}: {}", excess.figures()),
        None => format!("used up its {what}"),
    }
}

fn what_to_try(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Deadline => "give it more `timeout_seconds`, or a smaller task",
        StopReason::StartTimeout | StopReason::WorkerCrashed | StopReason::ProtocolError => {
            "look at `.subagent/worker.log` in its deliverables dir"
        }
        StopReason::BadResultFile => {
            "look at `.subagent/` in its deliverables dir; what it delivered is still there"
        }
        StopReason::QueueTimeout => "create it again when fewer agents run",
        StopReason::TurnLimit => "give it more `max_turns`, or a smaller task",
        StopReason::NoFinish | StopReason::LoopDetected | StopReason::ReportedFailure => {
            "read its report and partial files, and say the task more precisely"
        }
        StopReason::ModelError => "check the model's configuration and endpoint",
        StopReason::SpawnFailed => "check that `worker` and `jail` lie beside `leader`",
        StopReason::KilledFromOutside => "see whether the machine ran out of memory",
        StopReason::OutOfMemory => {
            "give it a smaller task, or raise `[confinement] memory`; what it delivered is still \
             there"
        }
        StopReason::CpuLimit => {
            "give it a smaller task, or raise `[confinement] cpu_seconds`; what it delivered is \
             still there"
        }
        StopReason::DiskLimit => {
            "free space, or raise `[confinement] disk`; what it delivered is still there"
        }
        StopReason::OutputLimit
        | StopReason::LeaderStopped
        | StopReason::DependencyFailed
        | StopReason::IdleTimeout
        | StopReason::ShutdownApproved
        | StopReason::ConversationClosed
        | StopReason::ConfinementRefused
        | StopReason::TokenLimit
        | StopReason::Terminated
        | StopReason::LeaderDied => "",
    }
}

/// What a caller gets who waits for an agent that can't be killed.
pub fn unkillable_error(name: &str, survivors: Option<&Survivors>) -> ToolError {
    let who = survivors.map_or(String::new(), |left| {
        let pids: Vec<String> = left.pids.iter().map(u32::to_string).collect();
        let why = cut_middle(&left.why, LAST_LINES_BYTES_MAX, "");
        format!(" (pids {}, waiting on {why})", pids.join(", "))
    });
    ToolError::new(
        ErrorCode::TimedOut,
        format!("{name} was killed but its processes have not ended{who}"),
    )
    .hint("the kill is tried again each second and its slot stays in use; its end will be told")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad() -> Evidence {
        Evidence::Bad {
            why: "it is missing".to_owned(),
        }
    }

    fn unfinished() -> Evidence {
        Evidence::Unfinished {
            last_text: String::new(),
            stats: Stats::default(),
        }
    }

    #[test]
    fn an_end_without_a_report_says_what_the_process_says() {
        use StopReason as R;
        let exited = Verdict::Exited;
        let table = [
            (exited(0), bad(), true, R::BadResultFile),
            (exited(0), unfinished(), true, R::WorkerCrashed),
            (exited(1), bad(), true, R::WorkerCrashed),
            (exited(7), unfinished(), true, R::WorkerCrashed),
            (exited(3), unfinished(), true, R::WorkerCrashed),
            (exited(5), bad(), false, R::ConfinementRefused),
            (exited(124), bad(), true, R::Deadline),
            (exited(125), bad(), false, R::SpawnFailed),
            (exited(126), bad(), false, R::SpawnFailed),
            (exited(127), bad(), false, R::SpawnFailed),
            (exited(127), bad(), true, R::WorkerCrashed),
            (exited(143), unfinished(), true, R::KilledFromOutside),
            (exited(130), unfinished(), true, R::KilledFromOutside),
            (
                Verdict::Signalled(SIGKILL),
                unfinished(),
                true,
                R::KilledFromOutside,
            ),
            (Verdict::Signalled(11), unfinished(), true, R::WorkerCrashed),
            (Verdict::Signalled(6), bad(), false, R::WorkerCrashed),
            (Verdict::Signalled(SIGXCPU), bad(), true, R::CpuLimit),
            (Verdict::Signalled(SIGXFSZ), bad(), true, R::DiskLimit),
        ];
        for (verdict, evidence, initialized, reason) in table {
            assert_eq!(
                reason_without_report(verdict, &evidence, initialized),
                reason,
                "{verdict:?} {evidence:?} {initialized}"
            );
        }
    }

    #[test]
    fn a_verdict_names_its_signal() {
        assert_eq!(verdict_text(Verdict::Exited(7)), "exited with code 7");
        assert_eq!(verdict_text(Verdict::Signalled(9)), "was killed by SIGKILL");
        assert_eq!(
            verdict_text(Verdict::Signalled(40)),
            "was killed by signal 40"
        );
    }
}
