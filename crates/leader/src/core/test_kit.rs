//! What tests of the core share: orders, texts, and a supervisor whose inputs are short to write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::channel::FinishedParams;
use protocol::ids::{AgentId, ConversationId, RoleId, TaskId};
use protocol::job::{JOB_FORMAT, JobLimits, JobSpec, ModelSpec, Provider};
use protocol::result::Deliverables;
use protocol::stats::Stats;
use protocol::status::{Completion, Language, Status, StopReason};

use crate::core::input::{
    CreateOrder, DirFacts, Evidence, ExitFacts, Mode, ProcessIdentity, Verdict,
};
use crate::core::supervisor::{Admission, AgentTexts, SupervisorConfig};

/// Texts that show what they were made of.
#[derive(Debug)]
pub(crate) struct PlainTexts;

impl AgentTexts for PlainTexts {
    fn result_message(&self, language: Language, status: Status, display_name: &str) -> String {
        format!("{language}: {display_name} {status}")
    }

    fn empty_deliverables(&self, _: Language, _: &str) -> String {
        "no files".to_owned()
    }
}

/// Cap 5, start 10 s, queue 1 h, answer 600 s.
pub(crate) fn config(admission: Admission) -> SupervisorConfig {
    SupervisorConfig {
        conversation: ConversationId::new("conv_00000001").unwrap(),
        max_concurrent: 5,
        max_live: 20,
        admission,
        start_timeout_ms: 10_000,
        queue_timeout_ms: 3_600_000,
        answer_timeout_ms: 600_000,
        rung: None,
        texts: Arc::new(PlainTexts),
    }
}

pub(crate) fn task(number: u32) -> TaskId {
    TaskId::new(format!("sub_{number:08}")).unwrap()
}

/// Agent `number` without a role, with a deadline of 600 s, a grace of 5 s and a dir of its own.
pub(crate) fn job(number: u32) -> JobSpec {
    JobSpec {
        format: JOB_FORMAT,
        conversation: Some(ConversationId::new("conv_00000001").unwrap()),
        sub_conversation_id: ConversationId::new(format!("conv_1{number:08}")).unwrap(),
        agent_id: AgentId::new(number).unwrap(),
        task_id: task(number),
        role_id: None,
        display_name: format!("Sub-agent {number}"),
        summary: format!("work {number}"),
        language: Language::En,
        workspace: PathBuf::from("/w"),
        deliverables_dir: PathBuf::from(format!("out/{number}")),
        write_paths: Vec::new(),
        completion: Completion::FinishTask,
        tools: Vec::new(),
        model: ModelSpec::new("m", Provider::Script, "", "m.jsonl"),
        limits: JobLimits::default(),
        confinement: Default::default(),
        web: None,
        mcp: Vec::new(),
        prompts_dir: None,
        created_at: "2026-03-10T12:00:00Z".to_owned(),
        attempt: 1,
        resumes: None,
        item: None,
    }
}

/// A create of [`job`].
pub(crate) fn order(number: u32, mode: Mode) -> CreateOrder {
    order_of(job(number), mode)
}

pub(crate) fn order_of(job: JobSpec, mode: Mode) -> CreateOrder {
    CreateOrder {
        deliverables: Path::new("/w").join(&job.deliverables_dir),
        deliverables_facts: DirFacts::Free,
        write_paths: Vec::new(),
        mode,
        warnings: Vec::new(),
        task: "the task".to_owned(),
        job,
    }
}

/// A job of a role.
pub(crate) fn job_of_role(number: u32, role: &str, run: u32) -> JobSpec {
    JobSpec {
        role_id: Some(RoleId::new(role).unwrap()),
        display_name: format!("{role}_{number}"),
        task_id: task(run),
        deliverables_dir: PathBuf::from(format!("out/{role}_{number}")),
        ..job(number)
    }
}

pub(crate) fn process() -> ProcessIdentity {
    ProcessIdentity {
        pid: 4711,
        start_ticks: 1,
        boot_id: "b".to_owned(),
    }
}

pub(crate) fn report(success: bool, reason: Option<StopReason>) -> FinishedParams {
    FinishedParams {
        success,
        summary: "the report".to_owned(),
        stop_reason: reason,
        stats: Stats {
            turns: 3,
            ..Stats::default()
        },
    }
}

/// An exit that left `files` files.
pub(crate) fn exit(verdict: Verdict, evidence: Evidence, files: u64) -> Box<ExitFacts> {
    Box::new(ExitFacts {
        verdict,
        evidence,
        deliverables: Deliverables {
            files: (0..files).map(|n| format!("f{n}")).collect(),
            count: files,
            ..Deliverables::default()
        },
        last_lines: String::new(),
        warnings: Vec::new(),
        out_of_memory: false,
    })
}

pub(crate) fn bad_file() -> Evidence {
    Evidence::Bad {
        why: "it is missing".to_owned(),
    }
}

pub(crate) fn unfinished() -> Evidence {
    Evidence::Unfinished {
        last_text: "half way".to_owned(),
        stats: Stats::default(),
    }
}
