//! Joins the rules of the core: takes each input to the agents it touches and says what is to be
//! done.

use std::sync::Arc;

use protocol::ids::ConversationId;
use protocol::status::{Language, Status};

/// What happens to a create when all slots are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is refused with `too_many_agents`.
    Reject,
    /// It waits its turn.
    Queue,
}

/// Sentences for people and models that depend on an agent's language.
pub trait AgentTexts: std::fmt::Debug + Send + Sync {
    /// One line on where an agent stands or how it ended: `子智能体1 已完成任务`.
    fn result_message(&self, language: Language, status: Status, display_name: &str) -> String;

    /// The warning of a success report that comes with an empty deliverables dir.
    fn empty_deliverables(&self, language: Language) -> String;
}

/// What a conversation's supervisor is made with; out-of-range values are the configuration's to
/// refuse.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// Which conversation.
    pub conversation: ConversationId,
    /// Agents that may use a model at once.
    pub max_concurrent: usize,
    /// Live processes, busy or not.
    pub max_live: usize,
    /// What happens at the cap.
    pub admission: Admission,
    /// From spawn to `initialize`.
    pub start_timeout_ms: u64,
    /// In the queue.
    pub queue_timeout_ms: u64,
    /// Waiting for an answer.
    pub answer_timeout_ms: u64,
    /// Who says it in the agent's language.
    pub texts: Arc<dyn AgentTexts>,
}

/// The supervisor of one conversation.
#[derive(Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
}

impl Supervisor {
    /// A supervisor without agents.
    pub fn new(config: SupervisorConfig) -> Self {
        Supervisor { config }
    }

    /// What it was made with.
    pub fn config(&self) -> &SupervisorConfig {
        &self.config
    }
}
