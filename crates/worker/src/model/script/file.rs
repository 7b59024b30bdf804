//! The file of replies: its shape, how it is read, and which part of it an agent gets.
//!
//! A file whose name ends in `.jsonl` holds one reply a line. Any other is YAML (of which JSON is
//! a part): a list of replies, or `parts:` for several agents, where the first part that fits is
//! taken and a part without `agent_id` and `task_word` fits all. A `conversations.json` is a script
//! too: the answers that are recorded in it.
//!
//! ```yaml
//! parts:
//!   - agent_id: 2
//!     replies:
//!       - text: "I wait."
//!         delay_ms: 60000
//!   - task_word: report
//!     replies:
//!       - tool_calls:
//!           - name: write_file
//!             arguments: {file_path: "{deliverables_dir}/report.md", content: "done by {agent_id}"}
//!         usage: {prompt: 100, completion: 20}
//!       - error: {kind: server, message: "the third answer never comes"}
//!   - replies:
//!       - text: "Nothing to do."
//!         repeat: true
//! ```

use std::path::Path;

use protocol::ids::AgentId;
use serde::Deserialize;
use serde_json::Value;

use super::replay::recorded;
use crate::model::ModelErrorKind;

/// One reply of a script. Without `text`, `tool_calls` and `error` it is an empty answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Reply {
    /// What the model says.
    pub(super) text: Option<String>,
    /// What it thinks.
    pub(super) reasoning: Option<String>,
    /// What it calls, in order.
    pub(super) tool_calls: Vec<Call>,
    /// How long it takes.
    pub(super) delay_ms: u64,
    /// The call fails with this, after the delay.
    pub(super) error: Option<Failure>,
    /// What it is said to cost.
    pub(super) usage: Option<Usage>,
    /// Why it ends.
    pub(super) finish: Finish,
    /// Whether this reply is given again for ever; only the last one may say so.
    pub(super) repeat: bool,
    /// Whether it was recorded: nothing in it is a placeholder.
    #[serde(skip)]
    pub(super) as_recorded: bool,
}

/// One call of a scripted reply.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    /// The tool.
    pub(super) name: String,
    /// An object as a rule; a text stands as it is, so that broken arguments can be played.
    #[serde(default = "no_arguments")]
    pub(super) arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// A failure in the place of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    /// Its kind, in snake case: `server`, `stalled`, `context_too_long` …
    pub(super) kind: ModelErrorKind,
    /// What it says.
    pub(super) message: String,
}

/// Tokens that a scripted reply is said to have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    /// Sent.
    pub(super) prompt: u64,
    /// Received.
    pub(super) completion: u64,
}

/// Why a scripted reply ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Finish {
    /// It is whole.
    #[default]
    Done,
    /// It was cut at the output limit.
    Length,
}

/// A file for several agents.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    parts: Vec<Part>,
}

/// The replies for the agents that it fits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    /// Only this agent.
    #[serde(default)]
    agent_id: Option<AgentId>,
    /// Only agents whose task holds this text.
    #[serde(default)]
    task_word: Option<String>,
    /// In order.
    replies: Vec<Reply>,
}

impl Part {
    fn fits(&self, agent_id: AgentId, task: &str) -> bool {
        self.agent_id.is_none_or(|wanted| wanted == agent_id)
            && self
                .task_word
                .as_ref()
                .is_none_or(|word| task.contains(word))
    }
}

/// Reads the replies that an agent gets from the text of a file.
///
/// # Errors
/// The reason in words: the text is not in the shape, no part fits, or a reply stands behind one
/// that repeats for ever.
pub(super) fn replies_for(
    path: &Path,
    text: &str,
    agent_id: AgentId,
    task: &str,
) -> Result<Vec<Reply>, String> {
    if let Some(recorded) = recorded(text) {
        return recorded;
    }
    let replies = if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        from_lines(text)?
    } else if is_list(text) {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())?
    } else {
        let parts: Parts = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        parts
            .parts
            .into_iter()
            .find(|part| part.fits(agent_id, task))
            .map(|part| part.replies)
            .ok_or_else(|| format!("no part of it fits agent {agent_id} and its task"))?
    };
    check(&replies)?;
    Ok(replies)
}

fn from_lines(text: &str) -> Result<Vec<Reply>, String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1))
        })
        .collect()
}

/// Whether the first thing in a YAML text is a list.
fn is_list(text: &str) -> bool {
    text.lines()
        .map(str::trim_start)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("---"))
        .is_some_and(|line| line.starts_with('-') || line.starts_with('['))
}

fn check(replies: &[Reply]) -> Result<(), String> {
    if replies.is_empty() {
        return Err("it holds no reply".to_owned());
    }
    let behind = replies.len() - 1;
    match replies[..behind].iter().position(|reply| reply.repeat) {
        Some(at) => Err(format!(
            "reply {} repeats for ever, so what stands behind it is never reached",
            at + 1
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str, agent: u32, task: &str) -> Result<Vec<Reply>, String> {
        replies_for(Path::new(name), text, AgentId::new(agent).unwrap(), task)
    }

    fn said(text: &str) -> Reply {
        Reply {
            text: Some(text.to_owned()),
            ..Reply::default()
        }
    }

    #[test]
    fn yaml_and_json_lines_say_the_same() {
        let yaml = "# two replies\n---\n- text: hello\n  usage: {prompt: 7, completion: 3}\n- \
                    tool_calls:\n    - name: read_file\n      arguments: {path: a.txt, start_line: 2}\n  \
                    delay_ms: 20\n  finish: length\n  repeat: true\n";
        let lines = concat!(
            r#"{"text": "hello", "usage": {"prompt": 7, "completion": 3}}"#,
            "\n\n",
            r#"{"tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt", "start_line": 2}}], "#,
            r#""delay_ms": 20, "finish": "length", "repeat": true}"#,
        );
        let wanted = vec![
            Reply {
                usage: Some(Usage {
                    prompt: 7,
                    completion: 3,
                }),
                ..said("hello")
            },
            Reply {
                tool_calls: vec![Call {
                    name: "read_file".to_owned(),
                    arguments: serde_json::json!({"path": "a.txt", "start_line": 2}),
                }],
                delay_ms: 20,
                finish: Finish::Length,
                repeat: true,
                ..Reply::default()
            },
        ];
        assert_eq!(read("s.yaml", yaml, 1, ""), Ok(wanted.clone()));
        assert_eq!(read("s.jsonl", lines, 1, ""), Ok(wanted));
    }

    #[test]
    fn the_first_part_that_fits_is_taken() {
        let text = "parts:\n  - agent_id: 2\n    replies: [{text: two}]\n  - task_word: 报告\n    \
                    replies: [{text: report}]\n  - replies: [{text: other}]\n";
        for (agent, task, wanted) in [
            (2, "写报告", "two"),
            (1, "写报告", "report"),
            (1, "x", "other"),
        ] {
            assert_eq!(read("s.yml", text, agent, task), Ok(vec![said(wanted)]));
        }
        let only = "parts:\n  - agent_id: 2\n    replies: [{text: two}]\n";
        assert_eq!(
            read("s.yml", only, 1, ""),
            Err("no part of it fits agent 1 and its task".to_owned())
        );
    }

    #[test]
    fn what_can_never_be_played_is_refused() {
        assert_eq!(
            read("s.yaml", "[]", 1, ""),
            Err("it holds no reply".to_owned())
        );
        assert_eq!(
            read("s.yaml", "[{repeat: true}, {text: b}]", 1, ""),
            Err("reply 1 repeats for ever, so what stands behind it is never reached".to_owned())
        );
        let error = read("s.jsonl", "{}\n{\"txet\": 1}\n", 1, "").unwrap_err();
        assert!(error.starts_with("line 2: unknown field `txet`"), "{error}");
        let error = read("s.yaml", "- {error: {kind: no_such, message: m}}", 1, "").unwrap_err();
        assert!(error.contains("no_such"), "{error}");
    }
}
