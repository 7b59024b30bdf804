//! Plays the replies of a script one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::conversation::{Message, Role, ToolCall};
use protocol::job::ModelSpec;
use protocol::limits;
use protocol::stats::TokenUsage;
use serde_json::Value;

use super::file::{Finish, Reply, replies_for};
use super::fill::{fill, fill_value};
use crate::model::call_ids::CallIds;
use crate::model::{
    EventSink, FinishKind, Model, ModelError, ModelErrorKind, ModelEvent, ModelReply, ModelRequest,
    ReplyFuture, RunFacts,
};

/// A model that replays a file.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    replies: Vec<Reply>,
    facts: RunFacts,
    /// The reply of the next call, from 0. Unknown until the first call: a run that is taken up
    /// again goes on behind the answers that its conversation already holds.
    next: Option<usize>,
}

impl Script {
    /// Reads the file that `spec.model` names; a relative path is taken from the workspace.
    ///
    /// # Errors
    /// When the file can't be read, is too large, or is no script.
    pub fn load(spec: &ModelSpec, run: &RunFacts) -> Result<Self, ModelError> {
        let path = run.workspace.join(&spec.model);
        let text = read(&path).map_err(|why| unusable(&path, &why))?;
        let replies = replies_for(&path, &text, run.agent_id, &run.task)
            .map_err(|why| unusable(&path, &why))?;
        tracing::warn!(
            script = %path.display(),
            replies = replies.len(),
            "this agent's model is a script: its answers are replayed from a file"
        );
        Ok(Script {
            path,
            replies,
            facts: run.clone(),
            next: None,
        })
    }

    /// Takes the reply of this call, with its number from 1.
    fn take(&mut self, messages: &[Message]) -> Result<(usize, Reply), ModelError> {
        let answered = || {
            let answers = messages.iter().filter(|m| m.role == Role::Assistant);
            answers.count()
        };
        let at = self.next.unwrap_or_else(answered);
        let last = self.replies.last().filter(|last| last.repeat);
        match self.replies.get(at).or(last) {
            Some(reply) => {
                self.next = Some(at.saturating_add(1));
                Ok((at.saturating_add(1), reply.clone()))
            }
            None => Err(failure(
                ModelErrorKind::Script,
                format!(
                    "script `{}` has {} replies and was asked for one more; add a reply, or \
                     `repeat: true` to the last",
                    self.path.display(),
                    self.replies.len()
                ),
            )),
        }
    }

    fn values(&self, turn: usize) -> [(&'static str, String); 5] {
        [
            ("workspace", self.facts.workspace.display().to_string()),
            (
                "deliverables_dir",
                self.facts.deliverables_dir.display().to_string(),
            ),
            ("agent_id", self.facts.agent_id.to_string()),
            ("task", self.facts.task.clone()),
            ("turn", turn.to_string()),
        ]
    }

    async fn play(
        &mut self,
        request: ModelRequest<'_>,
        events: EventSink<'_>,
    ) -> Result<ModelReply, ModelError> {
        let (turn, reply) = self.take(request.messages)?;
        tracing::info!(
            script = %self.path.display(),
            reply = turn,
            delay_ms = reply.delay_ms,
            "script: an answer is replayed, no model is asked"
        );
        events(ModelEvent::Sent { attempt: 1 });
        let delay = Duration::from_millis(reply.delay_ms);
        tokio::time::sleep(delay.min(request.within)).await;
        if delay >= request.within {
            return Err(failure(
                ModelErrorKind::Deadline,
                format!(
                    "script `{}`: reply {turn} takes {} ms, which is longer than the agent has",
                    self.path.display(),
                    reply.delay_ms
                ),
            ));
        }
        if let Some(scripted) = reply.error {
            return Err(failure(scripted.kind, scripted.message));
        }
        let values = self.values(turn);
        let values: &[_] = if reply.as_recorded { &[] } else { &values };
        let answer = answer(reply, values, request.messages);
        if let Some(text) = answer.content.clone() {
            events(ModelEvent::Text(text));
        }
        Ok(answer)
    }
}

impl Model for Script {
    fn complete<'a>(
        &'a mut self,
        request: ModelRequest<'a>,
        events: EventSink<'a>,
    ) -> ReplyFuture<'a> {
        Box::pin(self.play(request, events))
    }

    fn requests(&self) -> u64 {
        0
    }
}

fn answer(reply: Reply, values: &[(&str, String)], earlier: &[Message]) -> ModelReply {
    let mut ids = CallIds::of(earlier);
    let tool_calls = reply
        .tool_calls
        .into_iter()
        .map(|call| {
            let arguments = match fill_value(&call.arguments, values) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            ToolCall::new(ids.assign(None), call.name, arguments)
        })
        .collect();
    ModelReply {
        content: reply.text.map(|text| fill(&text, values)),
        reasoning_content: reply.reasoning.map(|text| fill(&text, values)),
        provider_blocks: Vec::new(),
        tool_calls,
        finish: match reply.finish {
            Finish::Done => FinishKind::Done,
            Finish::Length => FinishKind::Length,
        },
        usage: reply.usage.map(|usage| TokenUsage {
            prompt: usage.prompt,
            completion: usage.completion,
            total: usage.prompt.saturating_add(usage.completion),
            cached: 0,
        }),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > limits::SCRIPT_BYTES_MAX {
        return Err(format!(
            "it has {size} bytes, more than the {} allowed",
            limits::SCRIPT_BYTES_MAX
        ));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn unusable(path: &Path, why: &str) -> ModelError {
    failure(
        ModelErrorKind::Script,
        format!("script `{}` can't be used: {why}", path.display()),
    )
}

fn failure(kind: ModelErrorKind, message: String) -> ModelError {
    ModelError {
        kind,
        message,
        requests: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::AgentId;
    use protocol::job::Provider;

    struct Scene {
        folder: tempfile::TempDir,
    }

    impl Scene {
        fn new(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("s.yaml"), script).unwrap();
            Scene { folder }
        }

        fn load(&self) -> Result<Script, ModelError> {
            let facts = RunFacts {
                agent_id: AgentId::new(7).unwrap(),
                workspace: self.folder.path().to_owned(),
                deliverables_dir: PathBuf::from("out/agent_7"),
                task: "写 {turn}".to_owned(),
            };
            Script::load(&ModelSpec::new("s", Provider::Script, "", "s.yaml"), &facts)
        }
    }

    async fn ask(
        script: &mut Script,
        messages: &[Message],
        within: Duration,
    ) -> (Result<ModelReply, ModelError>, Vec<ModelEvent>) {
        let mut events = Vec::new();
        let request = ModelRequest {
            messages,
            tools: &[],
            within,
        };
        let mut sink = |event| events.push(event);
        let reply = script.complete(request, &mut sink).await;
        (reply, events)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_script_is_played_with_its_placeholders_filled() {
        let scene = Scene::new(
            "- text: 'agent {agent_id}: {task}'\n  reasoning: hm\n  tool_calls:\n    - {name: \
             write_file, arguments: {file_path: '{deliverables_dir}/{turn}.md'}}\n    - {name: \
             broken, arguments: '{\"a\": '}\n    - {name: plain}\n  usage: {prompt: 7, \
             completion: 3}\n- text: last\n  finish: length\n  repeat: true\n",
        );
        let mut script = scene.load().unwrap();
        let (reply, events) = ask(&mut script, &[Message::user("go")], LONG).await;
        let first = ModelReply {
            content: Some("agent 7: 写 {turn}".to_owned()),
            reasoning_content: Some("hm".to_owned()),
            provider_blocks: Vec::new(),
            tool_calls: vec![
                ToolCall::new(
                    "call00001",
                    "write_file",
                    r#"{"file_path":"out/agent_7/1.md"}"#,
                ),
                ToolCall::new("call00002", "broken", r#"{"a": "#),
                ToolCall::new("call00003", "plain", "{}"),
            ],
            finish: FinishKind::Done,
            usage: Some(TokenUsage {
                prompt: 7,
                completion: 3,
                total: 10,
                cached: 0,
            }),
        };
        assert_eq!(reply, Ok(first));
        assert_eq!(
            events,
            [
                ModelEvent::Sent { attempt: 1 },
                ModelEvent::Text("agent 7: 写 {turn}".to_owned())
            ]
        );
        for _ in 0..3 {
            let (reply, _) = ask(&mut script, &[], LONG).await;
            let last = ModelReply {
                content: Some("last".to_owned()),
                reasoning_content: None,
                provider_blocks: Vec::new(),
                tool_calls: Vec::new(),
                finish: FinishKind::Length,
                usage: None,
            };
            assert_eq!(reply, Ok(last));
        }
        assert_eq!(script.requests(), 0);
    }

    #[tokio::test]
    async fn a_run_that_is_taken_up_again_goes_on_behind_its_answers() {
        let scene = Scene::new("[{text: a}, {text: b}, {error: {kind: server, message: down}}]");
        let mut script = scene.load().unwrap();
        let messages = [
            Message::user("go"),
            Message::assistant(Some("a".to_owned()), Vec::new()),
        ];
        let (reply, _) = ask(&mut script, &messages, LONG).await;
        assert_eq!(reply.unwrap().content.as_deref(), Some("b"));
        let (reply, _) = ask(&mut script, &messages, LONG).await;
        assert_eq!(
            reply,
            Err(failure(ModelErrorKind::Server, "down".to_owned()))
        );
        let (reply, _) = ask(&mut script, &messages, LONG).await;
        let error = reply.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Script);
        assert!(
            error
                .message
                .contains("has 3 replies and was asked for one more"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_delay_never_outlasts_the_deadline() {
        tokio::time::pause();
        let scene = Scene::new("[{text: a, delay_ms: 3600000}, {text: b, delay_ms: 500}]");
        let mut script = scene.load().unwrap();
        let before = tokio::time::Instant::now();
        let (reply, _) = ask(&mut script, &[], Duration::from_secs(2)).await;
        assert_eq!(reply.unwrap_err().kind, ModelErrorKind::Deadline);
        let (reply, _) = ask(&mut script, &[], Duration::from_secs(2)).await;
        assert_eq!(reply.unwrap().content.as_deref(), Some("b"));
        let took = before.elapsed();
        assert!(
            (2_500..2_600).contains(&took.as_millis()),
            "took {took:?} of virtual time"
        );
    }

    #[test]
    fn a_script_that_is_not_there_says_which() {
        let scene = Scene::new("text: no list and no parts");
        let error = scene.load().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Script);
        let start = format!(
            "script `{}` can't be used: ",
            scene.folder.path().join("s.yaml").display()
        );
        assert!(error.message.starts_with(&start), "{error}");
        std::fs::remove_file(scene.folder.path().join("s.yaml")).unwrap();
        let error = scene.load().unwrap_err();
        assert!(error.message.contains("No such file"), "{error}");
    }
}
