//! A job for the tests of this module.

use std::path::Path;

use protocol::ids::{AgentId, ConversationId, TaskId};
use protocol::job::{JOB_FORMAT, JobLimits, JobSpec, ModelSpec, Provider};
use protocol::status::{Completion, Language};

/// A job that writes to `deliverables_dir` of `workspace`.
pub(crate) fn job(workspace: &Path, deliverables_dir: &str) -> JobSpec {
    JobSpec {
        format: JOB_FORMAT,
        conversation: Some(ConversationId::new("conv_00000001").unwrap()),
        sub_conversation_id: ConversationId::new("conv_00000002").unwrap(),
        agent_id: AgentId::FIRST,
        task_id: TaskId::new("sub_00000001").unwrap(),
        role_id: None,
        display_name: "Sub-agent 1".into(),
        summary: "write a file".into(),
        language: Language::En,
        workspace: workspace.into(),
        deliverables_dir: deliverables_dir.into(),
        write_paths: Vec::new(),
        completion: Completion::FinishTask,
        tools: Vec::new(),
        model: ModelSpec::new("m", Provider::Script, "", "replies.jsonl"),
        limits: JobLimits::default(),
        confinement: Default::default(),
        web: None,
        mcp: Vec::new(),
        prompts_dir: None,
        created_at: "2026-03-10T12:00:00Z".into(),
        attempt: 1,
        resumes: None,
        item: None,
    }
}
