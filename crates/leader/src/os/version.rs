//! Asks an executable for its version, without trusting it to answer.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use confine::policy::JailPolicy;
use confine::report::JailLine;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// How long an executable may take to say its version.
const ANSWER_MS_MAX: u64 = 5_000;
/// The most that is read of what it says.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// The most of its version that is told.
const VERSION_CHARS_MAX: usize = 100;

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Its first line.
    Version(String),
    /// It ended, or had to be ended, without a word.
    Silent,
    /// It could not be started, with the reason.
    NotStarted(String),
}

/// Asks `jail` itself.
#[expect(
    clippy::disallowed_methods,
    reason = "an executable is started to say its version"
)]
pub async fn of_jail(jail: &Path) -> Answer {
    ask(Command::new(jail).arg("--version")).await
}

/// Asks a worker, inside a jail as when it works: whatever it does instead of answering ends with
/// the jail.
#[expect(
    clippy::disallowed_methods,
    reason = "an executable is started to say its version"
)]
pub async fn of_worker(jail: &Path, worker: &Path, workspace: &Path) -> Answer {
    let policy = JailPolicy {
        leader_pid: Some(std::process::id()),
        workspace: Some(workspace.to_path_buf()),
        ..JailPolicy::default()
    };
    let arguments = policy.to_args(worker.as_os_str(), &["--version".into()]);
    ask(Command::new(jail).args(arguments)).await
}

async fn ask(command: &mut Command) -> Answer {
    let started = command
        .process_group(0)
        // The end of this pipe would be the end of a jail, so it stays open until the answer.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Answer::NotStarted(error.to_string()),
    };
    let said = tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), said_by(&mut child));
    let said = said.await.unwrap_or_default();
    // It has ended, or it is ended here; an error means that it is gone already.
    child.kill().await.ok();
    answer_of(&said)
}

async fn said_by(child: &mut Child) -> String {
    let Some(stdout) = child.stdout.take() else {
        return String::new();
    };
    let mut bytes = Vec::new();
    // What was read before an error counts.
    limited(stdout).read_to_end(&mut bytes).await.ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn limited(pipe: impl AsyncRead) -> tokio::io::Take<impl AsyncRead> {
    pipe.take(ANSWER_BYTES_MAX)
}

/// The first line that is not the jail's own.
fn answer_of(said: &str) -> Answer {
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match JailLine::parse(line) {
            Some(JailLine::Failed(failed)) => return Answer::NotStarted(failed.message),
            Some(JailLine::Started(_) | JailLine::Ended(_) | JailLine::Fallen(_)) => {}
            None => return Answer::Version(line.chars().take(VERSION_CHARS_MAX).collect()),
        }
    }
    Answer::Silent
}

#[cfg(test)]
mod tests {
    use super::*;
    use confine::report::{EndReason, Ended, Failed, Step};

    #[test]
    fn the_first_word_that_is_not_the_jails_is_the_version() {
        let ended = JailLine::Ended(Ended {
            exit_code: Some(0),
            signal: None,
            reason: EndReason::Program,
            left_behind: false,
        })
        .to_line();
        let failed = JailLine::Failed(Failed {
            step: Step::Exec,
            errno: Some(2),
            errno_name: None,
            path: None,
            message: "no interpreter".to_owned(),
        })
        .to_line();
        let version = |text: &str| Answer::Version(text.to_owned());
        assert_eq!(
            answer_of(&format!("w 1.2\nmore\n{ended}")),
            version("w 1.2")
        );
        assert_eq!(answer_of(&format!("{ended}\n w 1.2 \n")), version("w 1.2"));
        assert_eq!(answer_of(&ended), Answer::Silent);
        assert_eq!(answer_of(""), Answer::Silent);
        assert_eq!(
            answer_of(&failed),
            Answer::NotStarted("no interpreter".to_owned())
        );
        let long = "x".repeat(VERSION_CHARS_MAX + 1);
        assert_eq!(answer_of(&long), version(&"x".repeat(VERSION_CHARS_MAX)));
    }

    #[tokio::test]
    async fn an_executable_is_asked_and_one_that_is_none_is_told() {
        let said = ask(Command::new("sh").args(["-c", "echo sh 1.0; sleep 0"])).await;
        assert_eq!(said, Answer::Version("sh 1.0".to_owned()));
        let silent = ask(&mut Command::new("true")).await;
        assert_eq!(silent, Answer::Silent);
        let missing = of_jail(Path::new("/no/such/jail")).await;
        assert!(matches!(missing, Answer::NotStarted(_)), "{missing:?}");
    }
}
