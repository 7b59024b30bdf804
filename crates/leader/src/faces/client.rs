//! A caller of a conversation's control socket: what the commands that look and act are made of.

use std::io;
use std::path::Path;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::wire::{Frame, Line, LineSplitter, RpcError};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::faces::serve::socket::connect_to;

/// How long a live leader may take for an answer that waits for nothing.
pub const ANSWER_MS_MAX: u64 = 5_000;
/// Bytes read in one go.
const READ_BYTES: usize = 64 * 1024;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection broke.
    #[error("the connection to the leader broke: {0}")]
    Broken(#[source] io::Error),
    /// The leader closed the connection before it answered.
    #[error("the leader ended before it answered")]
    Ended,
    /// It did not answer in time.
    #[error("the leader did not answer within {} s", ANSWER_MS_MAX / 1_000)]
    Late,
    /// It answered with an error.
    #[error("the leader refused the call: {0}")]
    Refused(#[source] RpcError),
}

impl CallError {
    /// The same as a command tells it.
    pub fn to_tool_error(&self) -> ToolError {
        let code = match self {
            CallError::Refused(_) => ErrorCode::InvalidParameters,
            CallError::Broken(_) | CallError::Ended | CallError::Late => ErrorCode::NoLeader,
        };
        ToolError::new(code, self.to_string()).hint("`leader ps` shows which runs are live")
    }
}

/// A connection. One call at a time; dropping it ends nothing but the call that waits.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    splitter: LineSplitter,
    ready: std::collections::VecDeque<Line>,
    next_id: u64,
}

impl Client {
    /// Connects to the leader of a run.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused` when none listens.
    pub fn connect(run_dir: &Path) -> io::Result<Client> {
        let stream = connect_to(run_dir)?;
        stream.set_nonblocking(true)?;
        Ok(Client {
            stream: UnixStream::from_std(stream)?,
            splitter: LineSplitter::default(),
            ready: std::collections::VecDeque::new(),
            next_id: 0,
        })
    }

    /// Makes a call that is answered at once, and gives up when it is not.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, CallError> {
        let wait = Duration::from_millis(ANSWER_MS_MAX);
        tokio::time::timeout(wait, self.call_patiently(method, params))
            .await
            .unwrap_or(Err(CallError::Late))
    }

    /// Makes a call that may wait as long as it wants.
    ///
    /// # Errors
    /// See [`CallError`]; never [`CallError::Late`].
    pub async fn call_patiently(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Value, CallError> {
        let id = self.next_id;
        self.next_id += 1;
        let line = Frame::request(id, method, params).to_line();
        self.stream
            .write_all(line.as_bytes())
            .await
            .map_err(CallError::Broken)?;
        loop {
            // Events and lines that are no frame belong to no call.
            if let Line::Whole(bytes) = self.next_line().await?
                && let Ok(Frame::Response { id: found, outcome }) = Frame::parse(&bytes)
                // A leader that turns callers away says so under no id.
                && (found == id || found.is_null())
            {
                return outcome.map_err(CallError::Refused);
            }
        }
    }

    /// Returns once the leader has closed the connection, as it does at its end at the latest.
    pub async fn closed(mut self) {
        while self.next_line().await.is_ok() {}
    }

    async fn next_line(&mut self) -> Result<Line, CallError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(line);
            }
            match self.stream.read(&mut buffer).await {
                Ok(0) => return Err(CallError::Ended),
                Ok(length) => self.ready.extend(self.splitter.push(&buffer[..length])),
                Err(error) => return Err(CallError::Broken(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::serve::socket::listen_in;
    use serde_json::json;

    /// Answers one caller with the given lines after it has said something.
    async fn answered(lines: &str, calls: usize) -> Vec<Result<Value, CallError>> {
        let dir = tempfile::tempdir().unwrap();
        let listener = tokio::net::UnixListener::from_std(listen_in(dir.path()).unwrap()).unwrap();
        let lines = lines.to_owned();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = [0; 64];
            assert!(stream.read(&mut heard).await.unwrap() > 0);
            stream.write_all(lines.as_bytes()).await.unwrap();
        });
        let mut client = Client::connect(dir.path()).unwrap();
        let mut answers = Vec::new();
        for _ in 0..calls {
            answers.push(client.call("ps", json!({})).await);
        }
        serving.await.unwrap();
        answers
    }

    #[tokio::test]
    async fn an_answer_is_found_among_events_and_junk() {
        let lines = "{\"method\":\"event\",\"params\":{}}\nnoise\n{\"id\":7,\"result\":1}\n\
                     {\"id\":0,\"result\":\"mine\"}\n{\"id\":1,\"error\":{\"code\":-1,\"message\":\"no\"}}\n";
        let answers = answered(lines, 1).await;
        assert_eq!(answers[0].as_ref().unwrap(), "mine");
    }

    #[tokio::test]
    async fn a_leader_that_ends_or_refuses_is_told_apart() {
        let answers = answered("", 1).await;
        assert!(matches!(answers[0], Err(CallError::Ended)), "{answers:?}");
        let refusal = "{\"id\":null,\"error\":{\"code\":-1,\"message\":\"full\"}}\n";
        let answers = answered(refusal, 1).await;
        let Err(CallError::Refused(error)) = &answers[0] else {
            panic!("{answers:?}");
        };
        assert_eq!(error.message, "full");
    }

    #[tokio::test]
    async fn nobody_listening_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = Client::connect(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
