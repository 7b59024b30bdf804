//! Has a worker ask whether a model answers: the leader itself speaks to none.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use confine::policy::JailPolicy;
use confine::report::JailLine;
use protocol::channel::ModelAccess;
use protocol::check::ModelCheck;
use protocol::limits::MODEL_CHECK_MS_MAX;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::os::spawn::secret_variables;

/// How much longer than its own limit the worker may take, to start and to be held.
const START_MS_MAX: u64 = 5_000;
/// The most that is read of what it says.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The worker tells whether the model answered.
    Told(ModelCheck),
    /// The worker can't be asked, with the reason; of a foreign one nothing is known.
    NotKnown(String),
}

/// Asks, inside a jail as when the worker works: whatever it does ends with the jail. The key
/// travels through its stdin.
#[expect(
    clippy::disallowed_methods,
    reason = "a worker is started to ask whether a model answers"
)]
pub async fn ask(jail: &Path, worker: &Path, workspace: &Path, access: &ModelAccess) -> Asked {
    let policy = JailPolicy {
        leader_pid: Some(std::process::id()),
        workspace: Some(workspace.to_path_buf()),
        ..JailPolicy::default()
    };
    let arguments = policy.to_args(worker.as_os_str(), &["--check-model".into()]);
    let mut command = Command::new(jail);
    command
        .args(arguments)
        .current_dir(workspace)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    for name in secret_variables(access.spec.api_key_env.clone().into_iter(), &[]) {
        command.env_remove(name);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Asked::NotKnown(format!("`jail` can't be started: {error}")),
    };
    let limit = Duration::from_millis(MODEL_CHECK_MS_MAX + START_MS_MAX);
    let asked = tokio::time::timeout(limit, talk(&mut child, access)).await;
    // It has ended, or it is ended here; an error means that it is gone already.
    child.kill().await.ok();
    asked.unwrap_or_else(|_| {
        Asked::NotKnown(format!(
            "the worker said nothing within {} s",
            limit.as_secs()
        ))
    })
}

async fn talk(child: &mut Child, access: &ModelAccess) -> Asked {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Asked::NotKnown("the worker has no pipes".to_owned());
    };
    let line = match serde_json::to_string(access) {
        Ok(line) => format!("{line}\n"),
        Err(error) => return Asked::NotKnown(format!("the model can't be told: {error}")),
    };
    // One that does not read it is told by what it says, or does not.
    input.write_all(line.as_bytes()).await.ok();
    let mut lines = BufReader::new(output.take(ANSWER_BYTES_MAX)).lines();
    // What was said before an error counts.
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(asked) = answer_of(&line) {
            return asked;
        }
    }
    // The end of this pipe would be the end of the jail, so it was open until here.
    drop(input);
    Asked::NotKnown("the worker does not know how to ask it".to_owned())
}

/// What a line of the jail's or the worker's says of it.
fn answer_of(line: &str) -> Option<Asked> {
    match JailLine::parse(line) {
        Some(JailLine::Failed(failed)) => Some(Asked::NotKnown(format!(
            "the worker can't be started: {}",
            failed.message
        ))),
        Some(JailLine::Started(_) | JailLine::Ended(_) | JailLine::Fallen(_)) => None,
        None => ModelCheck::parse(line).map(Asked::Told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use confine::report::{EndReason, Ended};

    #[test]
    fn the_workers_line_is_told_from_the_jails() {
        let ended = JailLine::Ended(Ended {
            exit_code: Some(0),
            signal: None,
            reason: EndReason::Program,
            left_behind: false,
        });
        assert_eq!(answer_of(&ended.to_line()), None);
        assert_eq!(answer_of("some words"), None);
        let check = ModelCheck::new(7, None);
        let line = serde_json::to_string(&check).unwrap();
        assert_eq!(answer_of(&line), Some(Asked::Told(check)));
    }
}
