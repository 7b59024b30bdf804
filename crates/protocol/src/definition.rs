//! What kind of agent it is: which tools it has and what ends its turn.

use crate::limits;
use crate::status::Completion;
use crate::tool::worker::WORKER_TOOLS;

/// A resolved agent definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name shown, without the number; none for the implicit definition.
    pub name: Option<String>,
    /// What ends its turn without a tool call.
    pub completion: Completion,
    /// The tools granted, by name.
    pub tools: Vec<String>,
    /// The deadline, in seconds.
    pub timeout_seconds: u32,
    /// Answers of the model.
    pub max_turns: u32,
}

impl Definition {
    /// What an agent without a role is: all tools, `finish_task`, 600 s, 50 turns.
    pub fn implicit() -> Self {
        Definition {
            name: None,
            completion: Completion::FinishTask,
            tools: WORKER_TOOLS
                .iter()
                .map(|tool| tool.name.to_owned())
                .collect(),
            timeout_seconds: limits::TIMEOUT_SECONDS_DEFAULT,
            max_turns: limits::MAX_TURNS_DEFAULT,
        }
    }
}
