//! Makes an agent's folder ready for a new worker that goes on where an earlier one was cut off.
//!
//! The journal is the truth that the earlier worker left: its messages become the beginning of the
//! new run's journal, in one step, so that a crash at any moment leaves the one or the other. The
//! files beside it that the leader decides (job, task, system prompt) are written anew and never
//! read back: the agent could have changed them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use protocol::conversation::{ConversationFile, answer_open_calls};
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::job::{
    CONVERSATION_FILE, JOB_FILE, JOURNAL_FILE, JobSpec, LOG_FILE, SYSTEM_PROMPT_FILE, TASK_FILE,
};
use protocol::journal::{JOURNAL_FORMAT, JournalLine, fold_of_any};
use protocol::limits;
use protocol::stats::Stats;
use protocol::status::{Status, StopReason};
use protocol::text::Prompts;
use serde::Deserialize;

use crate::store::agent_dir::{AgentDir, StartFiles};

/// A `job.json` as the leader is willing to read it, in bytes.
const JOB_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Makes the folder ready. `earlier` are all runs of the agent so far.
///
/// # Errors
/// When the folder belongs to another agent by now, its journal is too large, or the system
/// refuses.
pub fn take_up(
    workspace: &Path,
    files: StartFiles<'_>,
    earlier: &[TaskId],
) -> Result<AgentDir, ToolError> {
    let job = files.job;
    let dir = AgentDir::open_again(workspace, &job.deliverables_dir)?;
    let shown = job.deliverables_dir.display();
    check_owner(&dir, earlier).map_err(|why| {
        ToolError::new(
            ErrorCode::DeliverablesDirRefused,
            format!("{} can't go on in `{shown}`: {why}", job.display_name),
        )
        .hint("run its task again in another place: `leader run --task-file FILE`")
    })?;
    let failed = |error: io::Error| {
        ToolError::new(
            ErrorCode::Io,
            format!("`{shown}` could not be made ready to go on: {error}"),
        )
        .hint("the folder must be writable and not full")
    };
    continue_journal(&dir, job, earlier).map_err(failed)?;
    write_files(&dir, files).map_err(failed)?;
    Ok(dir)
}

/// Which run a folder is of, as far as a comparison needs it.
#[derive(Deserialize)]
struct Owner {
    task_id: TaskId,
}

/// A folder whose job is of none of the agent's runs was taken by another agent meanwhile. One
/// without a job is nobody's.
fn check_owner(dir: &AgentDir, earlier: &[TaskId]) -> Result<(), String> {
    let file = match dir.own.open_file(Path::new(JOB_FILE)) {
        // A loss of power leaves a name without its content.
        Ok((_, 0)) => return Ok(()),
        Ok((file, _)) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("its {JOB_FILE} can't be read: {error}")),
    };
    let owner: Owner = serde_json::from_reader(file.take(JOB_BYTES_MAX))
        .map_err(|error| format!("its {JOB_FILE} is not valid: {error}"))?;
    match earlier.contains(&owner.task_id) {
        true => Ok(()),
        false => Err(format!("it belongs to another run now, {}", owner.task_id)),
    }
}

/// Puts the messages so far at the beginning of the new run's journal and conversation. Without a
/// journal of the agent's the run begins at the beginning.
fn continue_journal(dir: &AgentDir, job: &JobSpec, earlier: &[TaskId]) -> io::Result<()> {
    let (journal, conversation) = (Path::new(JOURNAL_FILE), Path::new(CONVERSATION_FILE));
    let folded = match dir.own.open_file(journal) {
        Ok((file, size)) if size <= limits::CONVERSATION_BYTES_MAX => {
            let mut bytes = Vec::new();
            file.take(limits::CONVERSATION_BYTES_MAX)
                .read_to_end(&mut bytes)?;
            fold_of_any(&bytes, earlier)
        }
        Ok((_, size)) => {
            return Err(io::Error::other(format!("{JOURNAL_FILE} has {size} bytes")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(folded) = folded else {
        for name in [journal, conversation] {
            remove(dir, name)?;
        }
        return Ok(());
    };
    // The words of a worker that had the time to say them itself.
    let why = Prompts::builtin(job.language).call_interrupted(StopReason::LeaderDied);
    let cut_off = ToolError::new(ErrorCode::Cancelled, why)
        .to_result()
        .to_string();
    let file = ConversationFile {
        agent_id: job.agent_id,
        role_id: job.role_id.clone(),
        summary: job.summary.clone(),
        task_id: job.task_id.clone(),
        status: Status::Running,
        completed_at: None,
        messages: answer_open_calls(folded.file.messages, &cut_off),
        stats: Stats::default(),
        result: None,
        ..folded.file
    };
    let lines = [
        JournalLine::Start {
            format: JOURNAL_FORMAT,
            agent_id: job.agent_id,
            task_id: job.task_id.clone(),
            role_id: job.role_id.clone(),
            summary: job.summary.clone(),
            created_at: file.created_at.clone(),
        },
        JournalLine::Replaced {
            messages: file.messages.clone(),
        },
    ];
    let mut bytes = Vec::new();
    for line in &lines {
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
    }
    dir.own.replace_file(journal, &bytes)?;
    dir.own
        .replace_file(conversation, &serde_json::to_vec(&file)?)
}

fn write_files(dir: &AgentDir, files: StartFiles<'_>) -> io::Result<()> {
    let job = serde_json::to_vec_pretty(files.job)?;
    let all: [(&str, &[u8]); 3] = [
        (TASK_FILE, files.task.as_bytes()),
        (SYSTEM_PROMPT_FILE, files.system_prompt.as_bytes()),
        (JOB_FILE, &job),
    ];
    for (name, bytes) in all {
        dir.own.replace_file(Path::new(name), bytes)?;
    }
    // The log of each worker is kept beside the next one's.
    let kept = PathBuf::from(format!(
        "worker.{}.log",
        files.job.attempt.saturating_sub(1)
    ));
    match dir.own.rename(Path::new(LOG_FILE), &dir.own, &kept) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn remove(dir: &AgentDir, name: &Path) -> io::Result<()> {
    match dir.own.remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_job::job;
    use std::fs;

    fn files(job: &JobSpec) -> StartFiles<'_> {
        StartFiles {
            job,
            task: "the task of the log",
            system_prompt: "s",
        }
    }

    fn again(job: &JobSpec) -> JobSpec {
        JobSpec {
            task_id: TaskId::new("sub_00000002").unwrap(),
            resumes: Some(job.task_id.clone()),
            attempt: 2,
            ..job.clone()
        }
    }

    #[test]
    fn the_messages_so_far_begin_the_new_journal_and_calls_are_answered() {
        let place = tempfile::tempdir().unwrap();
        let first = job(place.path(), "d");
        AgentDir::prepare(place.path(), files(&first)).unwrap();
        let own = place.path().join("d/.subagent");
        let journal = format!(
            "{{\"kind\":\"start\",\"format\":1,\"agent_id\":1,\"task_id\":\"{}\",\"role_id\":null,\
             \"summary\":\"s\",\"created_at\":\"2026-03-10T12:00:00Z\"}}\n\
             {{\"kind\":\"message\",\"message\":{{\"role\":\"assistant\",\"content\":null,\
             \"tool_calls\":[{{\"id\":\"c1\",\"type\":\"function\",\"function\":{{\"name\":\"t\",\
             \"arguments\":\"{{}}\"}}}}]}},\"stats\":{{\"turns\":4}}}}\n{{\"kind\":\"mess",
            first.task_id
        );
        fs::write(own.join("journal.jsonl"), journal).unwrap();
        // What lies there of the task is the agent's to change, and is not believed.
        fs::write(own.join("task.md"), "another task").unwrap();
        let second = again(&first);
        let earlier = [first.task_id.clone()];
        take_up(place.path(), files(&second), &earlier).unwrap();
        let bytes = fs::read(own.join("journal.jsonl")).unwrap();
        let folded = fold_of_any(&bytes, std::slice::from_ref(&second.task_id)).unwrap();
        let ids: Vec<_> = folded
            .file
            .messages
            .iter()
            .map(|message| message.tool_call_id.as_deref())
            .collect();
        assert_eq!((folded.skipped, ids), (0, vec![None, Some("c1")]));
        assert_eq!(folded.file.stats, Stats::default());
        let shown: ConversationFile =
            serde_json::from_slice(&fs::read(own.join("conversations.json")).unwrap()).unwrap();
        assert_eq!(shown, folded.file);
        assert_eq!(
            fs::read_to_string(own.join("task.md")).unwrap(),
            "the task of the log"
        );
        // Cut off again before its worker wrote anything, it goes on from the same messages.
        let third = JobSpec {
            task_id: TaskId::new("sub_00000003").unwrap(),
            ..again(&second)
        };
        let earlier = [second.task_id.clone(), first.task_id.clone()];
        take_up(place.path(), files(&third), &earlier).unwrap();
        let bytes = fs::read(own.join("journal.jsonl")).unwrap();
        let again = fold_of_any(&bytes, std::slice::from_ref(&third.task_id)).unwrap();
        assert_eq!(again.file.messages, folded.file.messages);
    }

    #[test]
    fn a_folder_that_another_agent_has_taken_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let first = job(place.path(), "d");
        let other = JobSpec {
            task_id: TaskId::new("sub_00000009").unwrap(),
            ..first.clone()
        };
        AgentDir::prepare(place.path(), files(&other)).unwrap();
        let earlier = [first.task_id.clone()];
        let error = take_up(place.path(), files(&again(&first)), &earlier).unwrap_err();
        assert_eq!(error.code, ErrorCode::DeliverablesDirRefused);
        assert!(error.message.contains("sub_00000009"), "{error}");
    }

    #[test]
    fn without_a_journal_it_begins_at_the_beginning() {
        let place = tempfile::tempdir().unwrap();
        let first = job(place.path(), "d");
        let second = again(&first);
        let earlier = [first.task_id.clone()];
        take_up(place.path(), files(&second), &earlier).unwrap();
        let own = place.path().join("d/.subagent");
        assert!(own.join("job.json").exists() && !own.join("journal.jsonl").exists());
        // A leader that was killed while it wrote the job once left an empty one, and nobody could
        // go on in that folder.
        fs::write(own.join("job.json"), "").unwrap();
        take_up(place.path(), files(&second), &earlier).unwrap();
        assert!(fs::metadata(own.join("job.json")).unwrap().len() > 0);
    }
}
