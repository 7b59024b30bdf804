//! A conversation with one server: requests and their answers, one at a time (JSON-RPC 2.0, one
//! object a line).

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::lines::{Lines, Next};
use crate::tools::limits;

/// "Method not found" of JSON-RPC 2.0.
const METHOD_NOT_FOUND: i64 = -32601;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The server answered with an error; it can be asked again.
    #[error("it answered with error {code}: {message}")]
    Refused {
        /// The code of JSON-RPC or of the server.
        code: i64,
        /// Its words.
        message: String,
    },
    /// Its output has ended.
    #[error("it has ended")]
    Ended,
    /// It wrote a line that is too long.
    #[error("it wrote a line of more than {} bytes", limits::MCP_LINE_BYTES_MAX)]
    LineTooLong,
    /// It wrote very much and no answer.
    #[error(
        "it wrote more than {} lines or {} bytes and no answer",
        limits::MCP_LINES_MAX,
        limits::MCP_ANSWER_BYTES_MAX
    )]
    Flood,
    /// The system could not read or write.
    #[error("it can't be spoken to: {0}")]
    System(String),
    /// It answered, and not as the protocol says.
    #[error("{0}")]
    Odd(String),
}

impl Fault {
    /// Whether nothing more can be asked.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Fault::Refused { .. } | Fault::Odd(_))
    }
}

/// The two streams of a server. A request may be dropped at any await point: what of it was not
/// written goes out before the next one, and an answer that comes too late is passed over.
#[derive(Debug)]
pub(super) struct Session<R, W> {
    lines: Lines<R>,
    output: W,
    unsent: Vec<u8>,
    last_id: u64,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    /// A conversation in which nothing has been said.
    pub(super) fn new(input: R, output: W) -> Self {
        Session {
            lines: Lines::new(input, limits::MCP_LINE_BYTES_MAX),
            output,
            unsent: Vec::new(),
            last_id: 0,
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the server answers with an error, ends, or writes what nobody can bear.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Value, Fault> {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let (mut lines, mut bytes) = (0, 0);
        loop {
            let line = self.next_line().await?;
            lines += 1;
            bytes += line.len();
            if lines > limits::MCP_LINES_MAX || bytes > limits::MCP_ANSWER_BYTES_MAX {
                return Err(Fault::Flood);
            }
            // A server that prints words between its messages is borne, as by others.
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                tracing::debug!("an MCP server wrote a line that is no JSON");
                continue;
            };
            if message["method"].is_string() {
                self.answer(&message);
            } else if message["id"] == json!(id) {
                return result_of(message);
            }
        }
    }

    /// Says something that has no answer; it is written before the next request, or by
    /// [`Session::flush`].
    pub(super) fn notify(&mut self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Says that the last request is given up.
    pub(super) fn cancel_last(&mut self, reason: &str) {
        let params = json!({"requestId": self.last_id, "reason": reason});
        self.notify("notifications/cancelled", params);
    }

    /// Writes what has not been written.
    ///
    /// # Errors
    /// When the server does not read any more.
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        while !self.unsent.is_empty() {
            let written = self.output.write(&self.unsent).await.map_err(system)?;
            self.sent(written)?;
        }
        Ok(())
    }

    /// Reads while it writes: a server that waits for its reader must not be waited for.
    async fn next_line(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            tokio::select! {
                biased;
                written = self.output.write(&self.unsent), if !self.unsent.is_empty() => {
                    let written = written.map_err(system)?;
                    self.sent(written)?;
                }
                next = self.lines.next() => {
                    return match next.map_err(system)? {
                        Next::Line(line) => Ok(line),
                        Next::TooLong => Err(Fault::LineTooLong),
                        Next::End => Err(Fault::Ended),
                    };
                }
            }
        }
    }

    fn sent(&mut self, written: usize) -> Result<(), Fault> {
        if written == 0 {
            return Err(Fault::Ended);
        }
        self.unsent.drain(..written);
        Ok(())
    }

    /// Answers a request of the server's: it offers nothing to servers but a sign of life.
    fn answer(&mut self, message: &Value) {
        let id = &message["id"];
        if id.is_null() {
            return;
        }
        let answer = match message["method"].as_str() {
            Some("ping") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
            _ => json!({"jsonrpc": "2.0", "id": id, "error": {
                "code": METHOD_NOT_FOUND, "message": "this client does not serve it"}}),
        };
        self.say(&answer);
    }

    fn say(&mut self, message: &Value) {
        self.unsent
            .extend_from_slice(message.to_string().as_bytes());
        self.unsent.push(b'\n');
    }
}

fn result_of(mut message: Value) -> Result<Value, Fault> {
    if let Some(error) = message.get("error") {
        return Err(Fault::Refused {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or("no words").to_owned(),
        });
    }
    match message.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(Fault::Odd(
            "its answer holds neither a result nor an error".to_owned(),
        )),
    }
}

fn system(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Fault::Ended,
        _ => Fault::System(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex, split};

    type Ours = Session<tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

    fn pair() -> (Ours, BufReader<DuplexStream>) {
        let (ours, theirs) = duplex(4_096);
        let (input, output) = split(ours);
        (Session::new(input, output), BufReader::new(theirs))
    }

    async fn hear(theirs: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        theirs.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test]
    async fn only_the_answer_to_the_question_counts_and_questions_back_are_answered() {
        let (mut session, mut theirs) = pair();
        let server = tokio::spawn(async move {
            let asked = hear(&mut theirs).await;
            let said = concat!(
                "no JSON at all\n",
                "[1]\n",
                "{\"id\":77,\"result\":1}\n",
                "{\"id\":\"1\",\"result\":2}\n",
                "{\"method\":\"notifications/message\"}\n",
                "{\"id\":\"p\",\"method\":\"ping\"}\n",
                "{\"id\":5,\"method\":\"roots/list\"}\n",
            );
            theirs.write_all(said.as_bytes()).await.unwrap();
            let answers = [hear(&mut theirs).await, hear(&mut theirs).await];
            let last = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"ok\":true}}\n";
            theirs.write_all(last).await.unwrap();
            (asked, answers)
        });
        let result = session.request("tools/list", json!({"a": 1})).await;
        assert_eq!(result, Ok(json!({"ok": true})));
        let (asked, answers) = server.await.unwrap();
        let wanted = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"a": 1}});
        assert_eq!(asked, wanted);
        assert_eq!(
            answers[0],
            json!({"jsonrpc": "2.0", "id": "p", "result": {}})
        );
        assert_eq!(answers[1]["error"]["code"], METHOD_NOT_FOUND);
    }

    #[tokio::test]
    async fn an_answer_that_comes_too_late_is_not_the_next_one() {
        let (mut session, mut theirs) = pair();
        let wait = std::time::Duration::from_millis(20);
        let asked = tokio::time::timeout(wait, session.request("slow", json!({}))).await;
        assert!(asked.is_err());
        session.cancel_last("too late");
        session.flush().await.unwrap();
        let late = b"{\"id\":1,\"result\":\"old\"}\n{\"id\":2,\"result\":\"new\"}\n";
        theirs.write_all(late).await.unwrap();
        assert_eq!(session.request("fast", json!({})).await, Ok(json!("new")));
        assert_eq!(hear(&mut theirs).await["method"], "slow");
        let cancelled = hear(&mut theirs).await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], 1);
    }

    #[tokio::test]
    async fn what_a_server_may_write_is_bounded() {
        let flood = "{\"method\":\"x\"}\n".repeat(limits::MCP_LINES_MAX + 1);
        let mut session = Session::new(flood.as_bytes(), tokio::io::sink());
        assert_eq!(session.request("a", json!({})).await, Err(Fault::Flood));
        let long = "x".repeat(limits::MCP_LINE_BYTES_MAX + 1);
        let mut session = Session::new(long.as_bytes(), tokio::io::sink());
        assert_eq!(
            session.request("a", json!({})).await,
            Err(Fault::LineTooLong)
        );
        let mut session = Session::new(&b""[..], tokio::io::sink());
        assert_eq!(session.request("a", json!({})).await, Err(Fault::Ended));
    }

    #[tokio::test]
    async fn an_error_is_told_with_its_code_and_a_shapeless_answer_as_one() {
        let refused = b"{\"id\":1,\"error\":{\"code\":-32602,\"message\":\"bad\"}}\n{\"id\":2}\n";
        let mut session = Session::new(&refused[..], tokio::io::sink());
        let fault = session.request("a", json!({})).await.unwrap_err();
        assert_eq!(fault.to_string(), "it answered with error -32602: bad");
        assert!(!fault.is_final());
        let fault = session.request("a", json!({})).await.unwrap_err();
        assert!(matches!(fault, Fault::Odd(_)), "{fault:?}");
    }
}
