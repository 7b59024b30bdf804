//! Turns of a scripted model, as tests write them.

use serde_json::{Value, json};

/// One reply of the scripted model.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// A text.
    Text(String),
    /// Calls of tools, in order.
    Calls(Vec<(String, Value)>),
    /// The reply comes only after so many milliseconds.
    Late(u64, Box<Turn>),
}

impl Turn {
    /// A text.
    pub fn text(text: &str) -> Turn {
        Turn::Text(text.to_owned())
    }

    /// One call.
    pub fn call(name: &str, arguments: Value) -> Turn {
        Turn::Calls(vec![(name.to_owned(), arguments)])
    }

    /// Several calls.
    pub fn calls(calls: &[(&str, Value)]) -> Turn {
        Turn::Calls(
            calls
                .iter()
                .map(|(name, args)| ((*name).to_owned(), args.clone()))
                .collect(),
        )
    }

    /// A shell command.
    pub fn command(command: &str) -> Turn {
        Turn::call("run_command", json!({"command": command}))
    }

    /// A shell command with a time-out of its own.
    pub fn command_within(command: &str, seconds: u32) -> Turn {
        Turn::call(
            "run_command",
            json!({"command": command, "timeout_seconds": seconds}),
        )
    }

    /// A report of success.
    pub fn finish(summary: &str) -> Turn {
        Turn::call("finish_task", json!({"success": true, "summary": summary}))
    }

    /// The same reply after a pause.
    #[must_use]
    pub fn late(self, delay_ms: u64) -> Turn {
        Turn::Late(delay_ms, Box::new(self))
    }

    /// The line of a script file.
    pub fn to_json(&self) -> Value {
        match self {
            Turn::Text(text) => json!({"text": text}),
            Turn::Calls(calls) => {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
                    .collect();
                json!({"tool_calls": calls})
            }
            Turn::Late(delay_ms, turn) => {
                let mut value = turn.to_json();
                value["delay_ms"] = json!(delay_ms);
                value
            }
        }
    }
}
