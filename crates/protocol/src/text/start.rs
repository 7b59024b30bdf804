//! What an agent is started with: its system prompt, its first message, its tools, its name.

use super::prompts::Prompts;
use crate::ids::AgentId;
use crate::limits;
use crate::status::Completion;

/// What stands in the first message of an agent.
#[derive(Debug, Clone, Copy)]
pub struct FirstMessage<'a> {
    /// Its number.
    pub agent_id: AgentId,
    /// What it is to do, in a few words.
    pub summary: &'a str,
    /// The task, inserted as it is.
    pub task: &'a str,
    /// Relative to the workspace.
    pub deliverables_dir: &'a str,
    /// Its deadline.
    pub timeout_seconds: u32,
    /// Whether it is asked for a report by tool.
    pub completion: Completion,
}

/// Where an agent may write besides its deliverables dir.
#[derive(Debug, Clone, Copy)]
pub enum WriteScope<'a> {
    /// In the whole workspace, as its task asks.
    Workspace,
    /// Only here, relative to the workspace.
    Paths(&'a [String]),
}

/// What stands in the system prompt of an agent.
#[derive(Debug, Clone, Copy)]
pub struct SystemPrompt<'a> {
    /// As [`Prompts::display_name`] makes it.
    pub display_name: &'a str,
    /// Absolute.
    pub workspace: &'a str,
    /// The system it runs on, such as `Linux 6.12 x86_64`.
    pub system: &'a str,
    /// Now, with its time zone.
    pub current_time: &'a str,
    /// Relative to the workspace.
    pub deliverables_dir: &'a str,
    /// The tools granted to it, by name.
    pub tools: &'a [String],
    /// Where it may write besides.
    pub write_scope: WriteScope<'a>,
    /// What ends its run.
    pub completion: Completion,
}

/// Numbers that stand in the descriptions of the tools that create and watch agents.
#[derive(Debug, Clone, Copy)]
pub struct DelegationFacts {
    /// How many agents may run at once.
    pub max_concurrent: u32,
}

impl Prompts {
    /// The first user message of an agent.
    pub fn first_message(&self, facts: &FirstMessage<'_>) -> String {
        let timeout = facts.timeout_seconds.to_string();
        let finish = match facts.completion {
            Completion::FinishTask => Some(self.phrase("requirement_finish", &[])),
            Completion::Idle | Completion::FinalText => None,
        };
        let requirements: Vec<String> = [
            Some(self.phrase("requirement_deliver", &[])),
            finish,
            Some(self.phrase("requirement_deadline", &[("timeout_seconds", &timeout)])),
        ]
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, line)| format!("{}. {line}", index + 1))
        .collect();
        self.file(
            "first_message.md",
            &[
                ("agent_id", &facts.agent_id.to_string()),
                ("summary", facts.summary),
                ("task", facts.task),
                ("deliverables_dir", facts.deliverables_dir),
                ("requirements", &requirements.join("\n")),
            ],
        )
    }

    /// The system prompt of an agent.
    pub fn system_prompt(&self, facts: &SystemPrompt<'_>) -> String {
        let completion = match facts.completion {
            Completion::FinishTask => "completion_finish_task",
            Completion::FinalText => "completion_final_text",
            Completion::Idle => "completion_idle",
        };
        let write_scope = match facts.write_scope {
            WriteScope::Workspace => self.phrase("write_scope_workspace", &[]),
            WriteScope::Paths([]) => self.phrase(
                "write_scope_paths",
                &[("paths", &self.phrase("no_files", &[]))],
            ),
            WriteScope::Paths(paths) => {
                self.phrase("write_scope_paths", &[("paths", &paths.join(", "))])
            }
        };
        self.file(
            "sub_agent_system.md",
            &[
                ("display_name", facts.display_name),
                ("completion", &self.phrase(completion, &[])),
                ("deliverables_dir", facts.deliverables_dir),
                ("write_scope", &write_scope),
                ("tools", &facts.tools.join(", ")),
                ("workspace", facts.workspace),
                ("system", facts.system),
                ("current_time", facts.current_time),
            ],
        )
    }

    /// An agent's name: `{role name}_{number}` with a definition, `子智能体{number}` or
    /// `Sub-agent {number}` without.
    pub fn display_name(&self, role_name: Option<&str>, agent_id: AgentId) -> String {
        match role_name {
            Some(name) => format!("{name}_{agent_id}"),
            None => self.phrase("display_name", &[("agent_id", &agent_id.to_string())]),
        }
    }

    /// The description of a worker's tool; empty for a name that is no tool.
    pub fn tool_description(&self, tool: &str) -> String {
        self.file(&format!("tools/{tool}.md"), &[])
    }

    /// The description of a leader's tool; empty for a name that is no tool.
    pub fn leader_tool_description(&self, tool: &str, facts: &DelegationFacts) -> String {
        self.file(
            &format!("tools/{tool}.md"),
            &[
                ("max_concurrent", &facts.max_concurrent.to_string()),
                ("wait_seconds_max", &limits::WAIT_SECONDS_MAX.to_string()),
            ],
        )
    }
}
