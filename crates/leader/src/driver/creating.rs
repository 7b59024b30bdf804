//! Looks into creates one after the other, so that two of them never get the same number.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{AgentId, ConversationId, TaskId};
use protocol::job::{AGENT_DIR, JobSpec};
use protocol::place::{default_deliverables_dir, relative_path};
use uuid::Uuid;

use crate::core::Ticket;
use crate::core::input::{CreateOrder, DirFacts, Mode};
use crate::driver::plan::{Ground, Identity, plan, plan_again};
use crate::driver::request::{CreateOrderRequest, ResumeRequest};
use crate::driver::work::Planned;
use crate::os::clock;
use crate::os::programs::SpawnProblem;
use crate::store::claims::{CLAIM_FORMAT, Claim, ClaimText};
use crate::store::place::{Content, PathUse, Place, look_up};

/// What is to be looked into.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A new agent.
    New(Box<CreateOrderRequest>),
    /// One that goes on.
    Again(Box<ResumeRequest>),
}

/// Creates that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Creating {
    waiting: VecDeque<(Ticket, Wanted)>,
    busy: bool,
}

impl Creating {
    pub(super) fn add(&mut self, ticket: Ticket, wanted: Wanted) {
        self.waiting.push_back((ticket, wanted));
    }

    /// The next create, unless one is being looked into.
    pub(super) fn next(&mut self) -> Option<(Ticket, Wanted)> {
        if self.busy {
            return None;
        }
        let next = self.waiting.pop_front();
        self.busy = next.is_some();
        next
    }

    /// The one that was being looked into is done.
    pub(super) fn done(&mut self) {
        self.busy = false;
    }
}

/// Whether a number's default deliverables dir can be used as it is.
pub(super) fn default_is_free(workspace: &Path, agent_id: AgentId) -> bool {
    let place = look_up(
        PathUse::Deliverables,
        workspace,
        &default_deliverables_dir(agent_id, None),
    );
    matches!(place, Ok(place) if place.content == Content::Free)
}

fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// A new conversation's id.
#[expect(
    clippy::expect_used,
    reason = "the text is made by the rule that it is checked against"
)]
pub(super) fn new_conversation() -> ConversationId {
    ConversationId::new(format!("conv_{}", new_id())).expect("a UUID makes a valid id")
}

#[expect(
    clippy::expect_used,
    reason = "the text is made by the rule that it is checked against"
)]
fn new_task() -> TaskId {
    TaskId::new(format!("sub_{}", new_id())).expect("a UUID makes a valid id")
}

/// Looks into one create under the first of some free numbers whose default deliverables dir no
/// other leader of the workspace has taken meanwhile. Blocks.
///
/// # Errors
/// With the first other thing that refuses it, or what refuses the last number.
pub(super) fn look_into_one_of(
    ground: &Arc<Ground>,
    order: &CreateOrderRequest,
    numbers: &[AgentId],
) -> Result<Planned, ToolError> {
    let Some((last, others)) = numbers.split_last() else {
        return Err(ToolError::new(ErrorCode::Internal, "no number to try"));
    };
    for number in others {
        match look_into(ground, order, *number) {
            Err(error) if error.code == ErrorCode::DeliverablesOverlap => {}
            Ok(planned) if planned.order.deliverables_facts == DirFacts::NotEmpty => {}
            outcome => return outcome,
        }
    }
    look_into(ground, order, *last)
}

/// Looks into one create: its paths, what lies there, its plan, and its claim. Blocks.
///
/// # Errors
/// With the first thing that refuses it.
fn look_into(
    ground: &Arc<Ground>,
    order: &CreateOrderRequest,
    agent_id: AgentId,
) -> Result<Planned, ToolError> {
    let workspace = &ground.workspace;
    if !workspace.is_dir() {
        let problem = SpawnProblem::WorkspaceGone {
            path: workspace.clone(),
        };
        return Err(
            ToolError::new(ErrorCode::SpawnFailed, problem.to_string()).hint(problem.hint())
        );
    }
    let params = &order.params;
    let wanted = match &params.deliverables_dir {
        Some(text) => relative_path("deliverables_dir", text)?,
        None => default_deliverables_dir(agent_id, None),
    };
    let deliverables = look_up(PathUse::Deliverables, workspace, &wanted)?;
    let write_places: Vec<Place> = params
        .write_paths
        .iter()
        .flatten()
        .map(|text| {
            look_up(
                PathUse::Write,
                workspace,
                &relative_path("write_paths", text)?,
            )
        })
        .collect::<Result<_, ToolError>>()?;
    let identity = Identity {
        agent_id,
        task_id: new_task(),
        sub_conversation_id: new_conversation(),
        created_at: clock::timestamp(),
        spoken_time: clock::spoken_time(),
    };
    let relative = write_places
        .iter()
        .map(|place| place.relative.clone())
        .collect();
    let plan = plan(
        order,
        ground,
        identity,
        deliverables.relative.clone(),
        relative,
    )?;
    let write_paths: Vec<PathBuf> = write_places
        .into_iter()
        .map(|place| place.absolute)
        .collect();
    let claim = take_claim(ground, &plan.job, &deliverables.absolute, &write_paths)?;
    let order = CreateOrder {
        job: plan.job.clone(),
        task: plan.task.clone(),
        deliverables_facts: match deliverables.content {
            Content::Free => DirFacts::Free,
            Content::NotEmpty | Content::File if params.reuse_deliverables_dir == Some(true) => {
                DirFacts::NotEmptyReused
            }
            Content::NotEmpty | Content::File => DirFacts::NotEmpty,
        },
        deliverables: deliverables.absolute,
        write_paths,
        mode: match params.run_in_background {
            Some(true) => Mode::Background,
            Some(false) | None => Mode::Blocking,
        },
        warnings: plan.warnings.clone(),
    };
    Ok(Planned { plan, order, claim })
}

/// Looks into an agent that is to go on: its places and its claim. Blocks.
///
/// # Errors
/// With the first thing that refuses it.
pub(super) fn look_into_again(
    ground: &Arc<Ground>,
    order: &ResumeRequest,
) -> Result<Planned, ToolError> {
    let workspace = &ground.workspace;
    let job = &order.job;
    let deliverables = look_up(PathUse::Deliverables, workspace, &job.deliverables_dir)?;
    let write_places: Vec<Place> = job
        .write_paths
        .iter()
        .map(|path| look_up(PathUse::Write, workspace, path))
        .collect::<Result<_, ToolError>>()?;
    let relative = write_places.iter().map(|place| place.relative.clone());
    let spoken_time = clock::spoken_time();
    let plan = plan_again(
        order,
        ground,
        (new_task(), clock::timestamp(), &spoken_time),
        deliverables.relative.clone(),
        relative.collect(),
    )?;
    let write_paths: Vec<PathBuf> = write_places
        .into_iter()
        .map(|place| place.absolute)
        .collect();
    let claim = take_claim(ground, &plan.job, &deliverables.absolute, &write_paths)?;
    let order = CreateOrder {
        job: plan.job.clone(),
        task: plan.task.clone(),
        deliverables_facts: DirFacts::NotEmptyReused,
        deliverables: deliverables.absolute,
        write_paths,
        mode: match order.run_in_background {
            true => Mode::Background,
            false => Mode::Blocking,
        },
        warnings: plan.warnings.clone(),
    };
    Ok(Planned { plan, order, claim })
}

fn take_claim(
    ground: &Ground,
    job: &JobSpec,
    deliverables: &Path,
    write_paths: &[PathBuf],
) -> Result<Claim, ToolError> {
    let text = ClaimText {
        format: CLAIM_FORMAT,
        conversation: ground.conversation.clone(),
        display_name: job.display_name.clone(),
        task_id: job.task_id.clone(),
        deliverables: deliverables.to_path_buf(),
        write_paths: write_paths.to_vec(),
    };
    Claim::take(&ground.workspace, &text)
}

/// The folder of a run's own files, absolute.
pub(super) fn own_dir(job: &JobSpec) -> PathBuf {
    job.workspace.join(&job.deliverables_dir).join(AGENT_DIR)
}
