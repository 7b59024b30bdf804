//! A worker's hold on the folder of its run, for as long as it lives.
//!
//! A leader that is killed may leave a worker that the kernel is about to end. Whoever closes the
//! run of the dead leader must not be overtaken by that worker's last write, nor by one that had
//! yet to begin: so the worker holds a lock on its job file, and begins nothing in a folder whose
//! run has been closed.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use protocol::conversation::ConversationFile;
use protocol::ids::TaskId;
use protocol::job::CONVERSATION_FILE;
use protocol::limits::CONVERSATION_BYTES_MAX;

use crate::exit::StartError;
use crate::io::job::read_text_or_none;

/// The lock on a run's job file; the kernel lets go of it at this process's death (flock(2)).
#[derive(Debug)]
pub struct Hold {
    // Close-on-exec, as all files of the standard library are: no command keeps the lock.
    _file: File,
}

impl Hold {
    /// Takes hold of the run whose job file is `job_file`.
    ///
    /// # Errors
    /// When the file can't be opened, or somebody else has it: the run is just being closed.
    pub fn take(job_file: &Path) -> Result<Self, StartError> {
        let name = format!("job file `{}`", job_file.display());
        let fail =
            |error: std::io::Error| StartError::new(format!("{name} cannot be locked: {error}"));
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(job_file)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Hold { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StartError::new(format!(
                "{name} is held by another process"
            ))
            .hint("its run is going on, or is just being closed after its leader's death")),
            Err(TryLockError::Error(error)) => Err(fail(error)),
        }
    }
}

/// Refuses a run that has its end already. Asked after [`Hold::take`], so that nobody closes it
/// in between.
///
/// # Errors
/// When the conversation in `agent_dir` is that of `task_id` and has ended.
pub fn refuse_ended(agent_dir: &Path, task_id: &TaskId) -> Result<(), StartError> {
    let path = agent_dir.join(CONVERSATION_FILE);
    // What can't be read is no end, and is set aside by what follows.
    let max = usize::try_from(CONVERSATION_BYTES_MAX).unwrap_or(usize::MAX);
    let Ok(Some(text)) = read_text_or_none(&path, "conversation", max) else {
        return Ok(());
    };
    let ended = serde_json::from_str::<ConversationFile>(&text)
        .is_ok_and(|file| file.task_id == *task_id && file.completed_at.is_some());
    if ended {
        return Err(StartError::new(format!(
            "run {task_id} has its end already, in `{}`",
            path.display()
        ))
        .hint("its leader died before this worker began; let it go on with `leader resume`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_process_holds_a_run() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("job.json");
        assert!(
            Hold::take(&path)
                .unwrap_err()
                .message
                .contains("cannot be locked")
        );
        fs::write(&path, "{}").unwrap();
        let held = Hold::take(&path).unwrap();
        let error = Hold::take(&path).unwrap_err();
        assert!(error.message.ends_with("is held by another process"));
        drop(held);
        Hold::take(&path).unwrap();
    }

    #[test]
    fn a_run_with_an_end_is_refused_and_any_other_is_not() {
        let root = tempfile::tempdir().unwrap();
        let own = TaskId::new("sub_00000001").unwrap();
        let file = |task: &str, completed_at: &str| {
            format!(
                "{{\"format\":1,\"agent_id\":1,\"task_id\":\"{task}\",\"role_id\":null,\
                 \"summary\":\"s\",\"status\":\"running\",\"created_at\":\"2026-03-10T12:00:00Z\",\
                 \"completed_at\":{completed_at},\"messages\":[],\"stats\":{{}},\"result\":null}}"
            )
        };
        let at = "\"2026-03-10T12:00:01Z\"";
        for (found, refused) in [
            (None, false),
            (Some(file("sub_00000001", "null")), false),
            (Some(file("sub_00000002", at)), false),
            (Some("{\"format\":1,".to_owned()), false),
            (Some(file("sub_00000001", at)), true),
        ] {
            let path = root.path().join(CONVERSATION_FILE);
            if let Some(text) = &found {
                fs::write(path, text).unwrap();
            }
            let answer = refuse_ended(root.path(), &own);
            assert_eq!(answer.is_err(), refused, "{found:?}: {answer:?}");
        }
    }
}
