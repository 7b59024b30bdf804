//! The three ways in which `leader run` prints: for people, one object, or events.

use protocol::error::ToolError;
use protocol::result::AgentResult;
use serde_json::{Value, json};

use crate::faces::console::Console;
use crate::render::result::result_text;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Text for people; the live line on a terminal.
    Text,
    /// The result as one JSON object.
    Json,
    /// Events, one a line, and the result as the last.
    StreamJson,
}

impl Output {
    /// What the arguments ask for.
    pub fn of(json: bool, stream_json: bool) -> Output {
        match (stream_json, json) {
            (true, _) => Output::StreamJson,
            (false, true) => Output::Json,
            (false, false) => Output::Text,
        }
    }

    /// Prints an event where events are wanted.
    ///
    /// # Errors
    /// When stdout can't be written.
    pub fn event(self, event: &Value, console: &mut Console<'_>) -> Result<(), ToolError> {
        match self {
            Output::StreamJson => console.print(&format!("{event}\n")),
            Output::Text | Output::Json => Ok(()),
        }
    }

    /// Prints the result.
    ///
    /// # Errors
    /// When stdout can't be written.
    pub fn result(self, result: &AgentResult, console: &mut Console<'_>) -> Result<(), ToolError> {
        match self {
            Output::Text => {
                let text = result_text(result, console.look().out);
                console.show(&text, false)
            }
            Output::Json => console.print(&format!("{}\n", value_of(result))),
            Output::StreamJson => {
                let line = json!({"event": "result", "result": value_of(result)});
                console.print(&format!("{line}\n"))
            }
        }
    }
}

fn value_of(result: &AgentResult) -> Value {
    serde_json::to_value(result).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::console::Look;
    use crate::render::result::sample_result;

    fn printed(output: Output) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, Look::default());
        output.event(&json!({"seq": 1}), &mut console).unwrap();
        output.result(&sample_result(), &mut console).unwrap();
        assert!(err.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_way_prints_its_own() {
        assert!(printed(Output::Text).starts_with("completed Sub-agent 1: "));
        let object: Value = serde_json::from_str(&printed(Output::Json)).unwrap();
        assert_eq!(object, value_of(&sample_result()));
        for field in [
            "success",
            "agent_id",
            "task_id",
            "role_id",
            "display_name",
            "status",
            "stop_reason",
            "error",
            "summary",
            "message",
            "deliverables_dir",
            "deliverables_files",
            "result_summary",
            "sub_conversation_id",
            "stats",
            "partial_results",
            "warnings",
            "confinement",
        ] {
            assert!(object.get(field).is_some(), "{field}");
        }
        let lines = printed(Output::StreamJson);
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                json!({"seq": 1}),
                json!({"event": "result", "result": object})
            ]
        );
    }
}
