//! Messages in the OpenAI chat shape, and the file `conversations.json` that holds them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AgentId, RoleId, TaskId};
use crate::stats::Stats;
use crate::status::{Status, StopReason};

/// The `format` number of `conversations.json` that this version writes.
pub const CONVERSATION_FORMAT: u32 = 1;

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions, or a notice.
    System,
    /// The task, a reminder, another agent.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One call that the model wants made. `arguments` is the JSON text as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Pairs the call with its result; unique within a conversation.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type", default = "function_word")]
    pub kind: String,
    /// What to call.
    pub function: FunctionCall,
}

fn function_word() -> String {
    "function".to_owned()
}

/// A tool's name and the text of its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name.
    pub name: String,
    /// JSON text; whether it parses is the tool layer's business.
    pub arguments: String,
}

impl ToolCall {
    /// A call in the shape that providers send.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        ToolCall {
            id: id.into(),
            kind: function_word(),
            function: FunctionCall {
                name: name.into(),
                arguments: arguments.into(),
            },
        }
    }
}

/// One message of a conversation. `content` is always written, as `null` when there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// Its text.
    #[serde(default)]
    pub content: Option<String>,
    /// The calls of an assistant's message, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// A thinking model's thoughts, which some providers want back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The parts of an answer as its provider sent them, where some can't be said in the shape
    /// above, such as signed thoughts. They go back as they came, and nobody looks into them but
    /// the dialect that kept them; a call in them is named by its id alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_blocks: Vec<Value>,
    /// Images that the message shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// An image of a message. Its bytes lie in a file of the agent's folder, so that a conversation
/// stays small enough to be written at every step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Relative to the agent's folder, such as `media/0123456789abcdef.png`.
    pub file: String,
    /// Such as `image/png`.
    pub mime: String,
    /// Its size.
    pub bytes: u64,
}

impl Message {
    fn plain(role: Role, content: impl Into<String>) -> Self {
        Message {
            role,
            content: Some(content.into()),
            tool_calls: Vec::new(),
            tool_call_id: None,
            reasoning_content: None,
            provider_blocks: Vec::new(),
            media: Vec::new(),
        }
    }

    /// Instructions or a notice.
    pub fn system(content: impl Into<String>) -> Self {
        Message::plain(Role::System, content)
    }

    /// A user's message.
    pub fn user(content: impl Into<String>) -> Self {
        Message::plain(Role::User, content)
    }

    /// A user's message that shows images.
    pub fn showing(content: impl Into<String>, media: Vec<Media>) -> Self {
        Message {
            media,
            ..Message::user(content)
        }
    }

    /// The result of the call `id`.
    pub fn tool(id: impl Into<String>, content: impl Into<String>) -> Self {
        Message {
            tool_call_id: Some(id.into()),
            ..Message::plain(Role::Tool, content)
        }
    }

    /// An answer of the model.
    pub fn assistant(content: Option<String>, tool_calls: Vec<ToolCall>) -> Self {
        Message {
            content,
            tool_calls,
            ..Message::plain(Role::Assistant, "")
        }
    }
}

/// Answers every call that a conversation broke off at, each directly after the message that made
/// it, so that calls and results are pairs again. An answer that is there is kept; one without its
/// call is left out, for no provider takes it.
pub fn answer_open_calls(messages: Vec<Message>, answer: &str) -> Vec<Message> {
    let mut mended: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            let at = open
                .iter()
                .position(|id| Some(id) == message.tool_call_id.as_ref());
            if let Some(at) = at {
                open.remove(at);
                mended.push(message);
            }
            continue;
        }
        mended.extend(open.drain(..).map(|id| Message::tool(id, answer)));
        open.extend(message.tool_calls.iter().map(|call| call.id.clone()));
        mended.push(message);
    }
    mended.extend(open.into_iter().map(|id| Message::tool(id, answer)));
    mended
}

/// What the run came to, once there is a report or an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the agent reported success (or ended in its completion's own way).
    pub success: bool,
    /// The report, or the last text.
    pub summary: String,
    /// Why it ended, when not by a success report.
    #[serde(default)]
    pub stop_reason: Option<StopReason>,
}

impl Outcome {
    /// Where an agent stands that has come to this outcome. A leader may know better: the cause
    /// of a stop that it began decides, whatever was reported.
    pub fn status(&self) -> Status {
        match self.stop_reason {
            _ if self.success => Status::Completed,
            Some(StopReason::Deadline) => Status::TimedOut,
            Some(
                StopReason::Terminated
                | StopReason::LeaderStopped
                | StopReason::ConversationClosed
                | StopReason::IdleTimeout
                | StopReason::ShutdownApproved,
            ) => Status::Terminated,
            Some(StopReason::LeaderDied) => Status::Interrupted,
            Some(_) | None => Status::Failed,
        }
    }
}

/// `conversations.json`. Unknown fields of a newer version are kept when it is rewritten.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationFile {
    /// Version of this shape.
    pub format: u32,
    /// The agent's number.
    pub agent_id: AgentId,
    /// Which run wrote it; another run's file is not this run's result.
    pub task_id: TaskId,
    /// The agent's definition, if any.
    #[serde(default)]
    pub role_id: Option<RoleId>,
    /// What it was to do, in a few words.
    pub summary: String,
    /// Where it stood when this was written.
    pub status: Status,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// RFC 3339, UTC; null while it runs.
    #[serde(default)]
    pub completed_at: Option<String>,
    /// All messages, first to last.
    pub messages: Vec<Message>,
    /// Counts so far.
    #[serde(default)]
    pub stats: Stats,
    /// Null while it runs.
    #[serde(default)]
    pub result: Option<Outcome>,
    /// What a newer version wrote beside these.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ConversationFile {
    /// Notes when it ended: at `now`, RFC 3339 in UTC with whole seconds, but never before it was
    /// created, for the time of day may have been set back meanwhile.
    pub fn complete_at(&mut self, now: String) {
        // Times of this shape are in the order of their texts.
        let comparable = now.len() == self.created_at.len() && now.ends_with('Z');
        let set_back = comparable && now < self.created_at;
        self.completed_at = Some(if set_back {
            self.created_at.clone()
        } else {
            now
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_before_it_was_created() {
        let mut file: ConversationFile = serde_json::from_value(serde_json::json!({
            "format": 1, "agent_id": 1, "task_id": "sub_00000001", "summary": "s",
            "status": "completed", "created_at": "2026-03-10T12:00:00Z", "messages": []
        }))
        .unwrap();
        for (now, expected) in [
            ("2026-03-10T12:00:05Z", "2026-03-10T12:00:05Z"),
            ("2026-03-10T12:00:00Z", "2026-03-10T12:00:00Z"),
            ("2026-03-10T09:00:00Z", "2026-03-10T12:00:00Z"),
            // Another shape can't be compared, and is kept.
            ("2026-03-10T09:00:00.5Z", "2026-03-10T09:00:00.5Z"),
        ] {
            file.complete_at(now.to_owned());
            assert_eq!(file.completed_at.as_deref(), Some(expected), "{now}");
        }
    }

    #[test]
    fn calls_that_were_cut_off_get_their_answers_in_place() {
        let calls = |ids: &[&str]| {
            let calls = ids.iter().map(|id| ToolCall::new(*id, "t", "{}"));
            Message::assistant(None, calls.collect())
        };
        let messages = vec![
            Message::user("task"),
            calls(&["a", "b"]),
            Message::tool("b", "done"),
            Message::user("more"),
            Message::tool("stranger", "lost"),
            calls(&["c"]),
        ];
        let mended = answer_open_calls(messages.clone(), "cut off");
        assert_eq!(
            mended,
            [
                Message::user("task"),
                calls(&["a", "b"]),
                Message::tool("b", "done"),
                Message::tool("a", "cut off"),
                Message::user("more"),
                calls(&["c"]),
                Message::tool("c", "cut off"),
            ]
        );
        assert_eq!(answer_open_calls(mended.clone(), "again"), mended);
        assert_eq!(answer_open_calls(Vec::new(), "x"), Vec::new());
    }

    #[test]
    fn a_message_keeps_its_content_key() {
        let call = ToolCall::new("c1", "read_file", "{}");
        let message = Message::assistant(None, vec![call]);
        assert_eq!(
            serde_json::to_value(&message).unwrap(),
            serde_json::json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "read_file", "arguments": "{}"}}]})
        );
        let bare: Message = serde_json::from_str(r#"{"role":"assistant"}"#).unwrap();
        assert_eq!(bare, Message::assistant(None, Vec::new()));
    }

    #[test]
    fn a_newer_file_keeps_what_this_version_does_not_know() {
        let text = r#"{"format":1,"agent_id":1,"task_id":"sub_0190a6e0-0000","role_id":null,
            "summary":"s","status":"running","created_at":"2026-03-10T12:00:00Z",
            "completed_at":null,"messages":[],"stats":{"turns":2},"result":null,"later":[1]}"#;
        let file: ConversationFile = serde_json::from_str(text).unwrap();
        assert_eq!(file.stats.turns, 2);
        assert_eq!(
            serde_json::to_value(&file).unwrap()["later"],
            serde_json::json!([1])
        );
    }
}
