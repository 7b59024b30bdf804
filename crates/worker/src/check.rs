//! Asks a model for one word, to see whether it answers. No agent runs.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use protocol::channel::ModelAccess;
use protocol::check::ModelCheck;
use protocol::conversation::Message;
use protocol::exit;
use protocol::ids::AgentId;
use protocol::limits::{MODEL_CHECK_BYTES_MAX, MODEL_CHECK_MS_MAX, MODEL_CHECK_TOKENS};
use tokio::sync::oneshot;

use crate::exit::StartError;
use crate::io::clock;
use crate::model::{Model, ModelEvent, ModelRequest, RunFacts, open};

/// What it is asked.
const QUESTION: &str = "Answer with the one word OK.";

/// Reads who is to be asked from `input`, one JSON object on one line, asks, and writes what came
/// of it as a [`ModelCheck`]. The key comes in that line only, so that it is in no argument and no
/// variable.
///
/// # Errors
/// When the line is no such object, or the answer can't be written.
pub async fn check_model(input: &mut dyn Read, output: &mut dyn Write) -> Result<u8, StartError> {
    let access = read_access(input)?;
    let began = clock::now();
    let failure = ask(access).await.err();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = serde_json::json!(ModelCheck::new(took_ms, failure));
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .map_err(|error| StartError::new(format!("cannot write to stdout: {error}")))?;
    Ok(exit::SUCCESS)
}

fn read_access(input: &mut dyn Read) -> Result<ModelAccess, StartError> {
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte up to the newline: whoever asks keeps the pipe open until the answer.
    while (line.len() as u64) < MODEL_CHECK_BYTES_MAX
        && input
            .read(&mut byte)
            .map_err(|error| StartError::new(format!("cannot read stdin: {error}")))?
            == 1
        && byte != *b"\n"
    {
        line.push(byte[0]);
    }
    // The parser's own words could quote the key.
    serde_json::from_slice(&line)
        .map_err(|_| StartError::new("stdin holds no model: one JSON object on one line is wanted"))
}

async fn ask(mut access: ModelAccess) -> Result<(), String> {
    let spec = &mut access.spec;
    spec.max_output_tokens = Some(MODEL_CHECK_TOKENS);
    // Whoever thinks first would think for longer than such an answer may be.
    spec.thinking_mode = None;
    let facts = RunFacts {
        agent_id: AgentId::FIRST,
        workspace: PathBuf::from("."),
        deliverables_dir: PathBuf::from("."),
        task: String::new(),
    };
    let mut model = open(&access, &facts).map_err(|error| error.message)?;
    first_word(model.as_mut()).await
}

/// The first answer or the first failure: what would be tried again is told at once.
async fn first_word(model: &mut dyn Model) -> Result<(), String> {
    let question = [Message::user(QUESTION)];
    let request = ModelRequest {
        messages: &question,
        tools: &[],
        within: Duration::from_millis(MODEL_CHECK_MS_MAX),
    };
    let (failed, first_failure) = oneshot::channel();
    let mut failed = Some(failed);
    let mut events = |event| match event {
        ModelEvent::Retry { why, .. } => {
            if let Some(failed) = failed.take() {
                // Nobody listens any more once there is an answer.
                failed.send(why).ok();
            }
        }
        ModelEvent::Sent { .. } | ModelEvent::Text(_) => {}
    };
    let answer = model.complete(request, &mut events);
    tokio::select! {
        biased;
        Ok(why) = first_failure => Err(why),
        answer = answer => answer.map(drop).map_err(|error| error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    async fn checked(line: &str) -> Result<ModelCheck, StartError> {
        let mut output = Vec::new();
        check_model(&mut line.as_bytes(), &mut output).await?;
        Ok(ModelCheck::parse(&String::from_utf8(output).unwrap()).unwrap())
    }

    fn asking(port: u16) -> String {
        serde_json::json!({
            "spec": {"key": "m", "provider": "openai", "model": "small", "stream": false,
                     "base_url": format!("http://127.0.0.1:{port}/v1"), "api_key_env": "MY_KEY"},
            "api_key": "tok123456789",
        })
        .to_string()
    }

    /// A server that gives one answer and notes what it was asked.
    fn server(status: &'static str, body: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut piece = [0; 4096];
            // The body is the last thing of the request, and it ends with a brace.
            while !asked.ends_with(b"}") {
                let read = stream.read(&mut piece).unwrap();
                asked.extend_from_slice(&piece[..read]);
            }
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            String::from_utf8(asked).unwrap()
        });
        (port, serving)
    }

    #[tokio::test]
    async fn a_model_that_answers_is_asked_for_little() {
        let (port, serving) = server(
            "200 OK",
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"OK"},"finish_reason":"stop"}]}"#,
        );
        assert_eq!(checked(&asking(port)).await.unwrap().failure, None);
        let asked = serving.join().unwrap();
        assert!(asked.contains(QUESTION), "{asked}");
        assert!(asked.contains("64"), "{asked}");
        assert!(
            asked.contains("tok123456789"),
            "the key goes with it: {asked}"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_providers_words_with_the_setting_and_without_the_key() {
        let (port, serving) = server(
            "401 Unauthorized",
            r#"{"error":{"message":"Incorrect API key provided: tok123456789"}}"#,
        );
        let failure = checked(&asking(port)).await.unwrap().failure.unwrap();
        serving.join().unwrap();
        for word in ["401", "Incorrect API key", "MY_KEY"] {
            assert!(failure.contains(word), "{word}: {failure}");
        }
        assert!(!failure.contains("tok123456789"), "{failure}");
    }

    #[tokio::test]
    async fn what_would_be_tried_again_is_told_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let check = checked(&asking(port)).await.unwrap();
        let failure = check.failure.unwrap();
        assert!(failure.contains(&format!("127.0.0.1:{port}")), "{failure}");
        assert!(check.took_ms < MODEL_CHECK_MS_MAX / 2, "{}", check.took_ms);
    }

    #[tokio::test]
    async fn a_line_that_is_no_model_is_refused_without_being_shown() {
        let error = checked("{\"api_key\": \"tok123456789\"}\n")
            .await
            .unwrap_err();
        assert!(!error.to_string().contains("tok123456789"), "{error}");
    }
}
