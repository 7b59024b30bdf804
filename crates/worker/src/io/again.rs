//! Makes the folder of an earlier run without a leader ready for one that goes on with it.
//!
//! The earlier journal's messages become the beginning of the new one's, in one step, so that a
//! crash at any moment leaves the one or the other. Runs of a leader are its own to take up: its
//! log says what they are.

use std::path::Path;

use protocol::conversation::{ConversationFile, answer_open_calls};
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::job::{JOB_FILE, JOURNAL_FILE, JobSpec};
use protocol::journal::{JOURNAL_FORMAT, JournalLine, fold_of_any};
use protocol::limits::CONVERSATION_BYTES_MAX;
use protocol::status::StopReason;
use protocol::text::Prompts;

use crate::exit::StartError;
use crate::io::clock;
use crate::io::files::{Durability, FileError, replace};
use crate::io::journal::Journal;

/// Gives `spec` a new run, `task_id`, that goes on with the journal in `agent_dir`, and writes both
/// there.
///
/// # Errors
/// When the job is a leader's, the run was completed, there is no journal of it, or a file can't be
/// read or written.
pub fn go_on(
    spec: &mut JobSpec,
    prompts: &Prompts,
    agent_dir: &Path,
    task_id: TaskId,
) -> Result<(), StartError> {
    if spec.conversation.is_some() {
        return Err(
            StartError::new("the job is a leader's, which takes it up itself").hint(format!(
                "let it go on with `leader resume {}`",
                spec.agent_id
            )),
        );
    }
    let found = Journal::open_again(agent_dir, CONVERSATION_BYTES_MAX).map_err(unusable)?;
    let earlier: Vec<TaskId> = [Some(spec.task_id.clone()), spec.resumes.clone()]
        .into_iter()
        .flatten()
        .collect();
    let folded = found
        .and_then(|(_, bytes)| fold_of_any(&bytes, &earlier))
        .ok_or_else(|| {
            StartError::new(format!(
                "there is nothing to go on with: no journal of run {} in `{}`",
                spec.task_id,
                agent_dir.display()
            ))
            .hint("leave out --resume to begin anew")
        })?;
    let outcome = folded.file.result.as_ref();
    if outcome.is_some_and(|outcome| outcome.success) {
        return Err(
            StartError::new(format!("run {} was completed", folded.file.task_id))
                .hint("leave out --resume to do it once more"),
        );
    }
    spec.resumes = Some(spec.task_id.clone());
    spec.task_id = task_id;
    spec.attempt = spec.attempt.saturating_add(1);
    spec.created_at = clock::utc_now();
    // What an earlier worker that could still speak said itself.
    let why = outcome
        .and_then(|outcome| outcome.stop_reason)
        .unwrap_or(StopReason::Terminated);
    let lines = beginning(spec, prompts, folded.file, why);
    write(spec, agent_dir, &lines)
}

fn beginning(
    spec: &JobSpec,
    prompts: &Prompts,
    earlier: ConversationFile,
    why: StopReason,
) -> [JournalLine; 2] {
    let cut_off = ToolError::new(ErrorCode::Cancelled, prompts.call_interrupted(why));
    let messages = answer_open_calls(earlier.messages, &cut_off.to_result().to_string());
    [
        JournalLine::Start {
            format: JOURNAL_FORMAT,
            agent_id: spec.agent_id,
            task_id: spec.task_id.clone(),
            role_id: spec.role_id.clone(),
            summary: spec.summary.clone(),
            created_at: earlier.created_at,
        },
        // Without counts: turns and time begin anew.
        JournalLine::Replaced { messages },
    ]
}

/// The journal first: a job that names a run without a journal could not go on a second time.
fn write(spec: &JobSpec, agent_dir: &Path, lines: &[JournalLine]) -> Result<(), StartError> {
    let unwritable = |error: serde_json::Error| {
        StartError::new(format!("the run can't be written down: {error}"))
    };
    let mut journal = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut journal, line).map_err(unwritable)?;
        journal.push(b'\n');
    }
    let job = serde_json::to_vec_pretty(spec).map_err(unwritable)?;
    replace(agent_dir, JOURNAL_FILE, &journal, Durability::Machine).map_err(unusable)?;
    replace(agent_dir, JOB_FILE, &job, Durability::Machine).map_err(unusable)
}

fn unusable(error: FileError) -> StartError {
    StartError::new(error.to_string())
        .hint("the worker keeps its record there: it must be readable, writable and not full")
}
