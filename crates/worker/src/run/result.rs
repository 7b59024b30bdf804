//! The result object of a worker that ran alone, in the shape that a leader's callers get too.

use protocol::channel::CommandsHeld;
use protocol::error::{ErrorCode, ToolError};
use protocol::job::JobSpec;
use protocol::result::{AgentResult, cut_middle};
use protocol::stats::Usage;
use protocol::status::{Status, StopReason};
use protocol::text::Prompts;
use serde_json::json;

use crate::exit::Ended;
use crate::io::deliverables;
use crate::run::report::Reporter;

/// What went wrong, as the error of a result quotes it.
const ERROR_TEXT_BYTES_MAX: usize = 1024;

/// Makes the result of a run that has ended. `commands` is what held its commands.
pub fn agent_result(
    job: &JobSpec,
    prompts: &Prompts,
    ended: &Ended,
    mut warnings: Vec<String>,
    commands: CommandsHeld,
) -> AgentResult {
    let status = ended.outcome.status();
    let found = deliverables::list(&job.workspace.join(&job.deliverables_dir));
    let deliverables_dir = job.deliverables_dir.to_string_lossy().into_owned();
    let outcome = &ended.outcome;
    if outcome.success && found.count == 0 {
        warnings.push(prompts.deliverables_empty_warning(&deliverables_dir));
    }
    AgentResult {
        success: outcome.success,
        agent_id: job.agent_id,
        task_id: job.task_id.clone(),
        role_id: job.role_id.clone(),
        display_name: job.display_name.clone(),
        status,
        stop_reason: outcome.stop_reason,
        error: failure(job, ended, status),
        summary: job.summary.clone(),
        message: prompts.result_message(status, &job.display_name),
        deliverables_dir,
        partial_results: !outcome.success && found.count > 0,
        deliverables_count: found.truncated.then_some(found.count),
        deliverables_files: found.files,
        deliverables_skipped: found.skipped,
        deliverables_truncated: found.truncated,
        result_summary: outcome.summary.clone(),
        sub_conversation_id: job.sub_conversation_id.clone(),
        stats: ended.stats,
        usage: Usage::default(),
        warnings,
        confinement: json!({
            "rung": null,
            "gaps": ["a worker without a leader is not confined"],
            "commands": commands}),
    }
}

fn failure(job: &JobSpec, ended: &Ended, status: Status) -> Option<ToolError> {
    if ended.outcome.success {
        return None;
    }
    let code = match status {
        Status::TimedOut => ErrorCode::TimedOut,
        Status::Terminated | Status::Interrupted => ErrorCode::AgentEnded,
        _ => ErrorCode::AgentFailed,
    };
    let reason = ended
        .outcome
        .stop_reason
        .map_or("no reason is known", |reason| reason.as_str());
    let mut message = format!("{} ended without success: {reason}", job.display_name);
    // For these the outcome's text is what went wrong, and not what the agent said.
    if let Some(
        StopReason::ModelError
        | StopReason::DiskLimit
        | StopReason::BadResultFile
        | StopReason::ProtocolError,
    ) = ended.outcome.stop_reason
    {
        message.push_str(": ");
        message.push_str(&cut_middle(
            &ended.outcome.summary,
            ERROR_TEXT_BYTES_MAX,
            "",
        ));
    }
    Some(
        ToolError::new(code, message)
            .hint("result_summary has its last words; what it delivered so far is kept"),
    )
}

/// The last lines for people.
pub fn tell_people(reporter: &mut Reporter, result: &AgentResult) {
    let stats = &result.stats;
    let reason = result
        .stop_reason
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default();
    reporter.tell_people(&format!(
        "{}{reason} after {} s, {} turns, {} tokens",
        result.status, stats.runtime_seconds, stats.turns, stats.token_usage.total
    ));
    if !result.result_summary.is_empty() {
        reporter.tell_people(&format!("report: {}", result.result_summary));
    }
    let dir = &result.deliverables_dir;
    let files = match result.deliverables_files.as_slice() {
        [] => "no files".to_owned(),
        files => files.join(", "),
    };
    reporter.tell_people(&format!("{dir}: {files}"));
    for warning in &result.warnings {
        reporter.tell_people(&format!("warning: {warning}"));
    }
    reporter.tell_people(&format!(
        "conversation: {dir}/{}/{}",
        protocol::job::AGENT_DIR,
        protocol::job::CONVERSATION_FILE
    ));
}
