//! The results that callers get of an agent, and how they are cut to what a model may be given.

use protocol::limits;
use protocol::result::{
    AgentResult, Deliverables, StartedResult, StillRunning, TerminatedResult, WaitResult,
    cut_middle, floor_border,
};
use protocol::stats::Stats;
use protocol::status::Status;
use serde_json::{Value, json};

use crate::core::agent::Agent;
use crate::core::ends::{self, EndFacts};
use crate::core::lifecycle::End;
use crate::core::supervisor::AgentTexts;

/// Agents that a wait tells of in full to a model; others by name and status.
const WAIT_IN_FULL_MAX: usize = 5;
/// An error's message, a hint, and all warnings of a result that a model gets.
const SIDE_TEXT_BYTES_MAX: usize = 1024;

/// The result of an agent that has ended.
pub fn ended(
    agent: &Agent,
    end: End,
    facts: EndFacts,
    now_ms: u64,
    texts: &dyn AgentTexts,
) -> AgentResult {
    let error = ends::error_of(agent, end, &facts);
    let success = end == End::Completed;
    let mut warnings = agent.warnings.clone();
    if success && facts.deliverables.count == 0 {
        warnings.push(texts.empty_deliverables(agent.job.language, &agent.deliverables_text()));
    }
    warnings.extend(facts.warnings);
    let summary = match &agent.report {
        Some(report) => &report.summary,
        None if !facts.found_summary.is_empty() => &facts.found_summary,
        None => &agent.last_output,
    };
    let pointer = format!(
        "; all of it is in {}/{}/{}",
        agent.deliverables_text(),
        protocol::job::AGENT_DIR,
        protocol::job::CONVERSATION_FILE
    );
    let told = agent.report.as_ref().map(|report| report.stats);
    let counts = told.or(facts.found_stats).unwrap_or(agent.stats);
    AgentResult {
        success,
        error,
        stop_reason: end.reason(),
        deliverables_truncated: facts.deliverables.truncated,
        deliverables_count: facts
            .deliverables
            .truncated
            .then_some(facts.deliverables.count),
        partial_results: !success && facts.deliverables.count > 0,
        deliverables_files: facts.deliverables.files,
        deliverables_skipped: facts.deliverables.skipped,
        result_summary: cut_middle(summary, limits::RESULT_BYTES_MAX, &pointer),
        stats: Stats {
            // By the leader's clock: a worker can't set how long it ran.
            runtime_seconds: agent.clock.spent_ms(now_ms) / 1_000,
            ..counts
        },
        warnings,
        ..standing(agent, end.status(), now_ms, texts)
    }
}

/// The result of an agent that has not ended: how it stands.
pub fn standing(agent: &Agent, status: Status, now_ms: u64, texts: &dyn AgentTexts) -> AgentResult {
    let job = &agent.job;
    let none = Deliverables::default();
    AgentResult {
        success: true,
        agent_id: job.agent_id,
        task_id: job.task_id.clone(),
        role_id: job.role_id.clone(),
        display_name: job.display_name.clone(),
        status,
        stop_reason: None,
        error: None,
        summary: job.summary.clone(),
        message: texts.result_message(job.language, status, &job.display_name),
        deliverables_dir: agent.deliverables_text(),
        deliverables_files: none.files,
        deliverables_skipped: none.skipped,
        deliverables_truncated: false,
        deliverables_count: None,
        result_summary: agent.last_output.clone(),
        sub_conversation_id: job.sub_conversation_id.clone(),
        stats: agent.current_stats(now_ms),
        usage: agent.usage,
        partial_results: false,
        warnings: agent.warnings.clone(),
        confinement: agent.confinement.clone(),
    }
}

/// The result of an agent that was killed and whose processes are still there.
pub fn unkillable(agent: &Agent, now_ms: u64, texts: &dyn AgentTexts) -> AgentResult {
    let error = ends::unkillable_error(&agent.job.display_name, agent.survivors.as_ref());
    AgentResult {
        success: false,
        error: Some(error),
        ..standing(agent, agent.state.status(), now_ms, texts)
    }
}

/// The result of a background create.
pub fn started(
    agent: &Agent,
    queue_position: Option<usize>,
    texts: &dyn AgentTexts,
) -> StartedResult {
    let job = &agent.job;
    let status = match queue_position {
        Some(_) => Status::Queued,
        None => Status::Running,
    };
    StartedResult {
        success: true,
        agent_id: job.agent_id,
        task_id: job.task_id.clone(),
        role_id: job.role_id.clone(),
        display_name: job.display_name.clone(),
        status,
        summary: job.summary.clone(),
        message: texts.result_message(job.language, status, &job.display_name),
        deliverables_dir: agent.deliverables_text(),
        sub_conversation_id: job.sub_conversation_id.clone(),
        background: true,
        queue_position,
        warnings: agent.warnings.clone(),
    }
}

/// The result of a terminate, from how the agent ended.
pub fn terminated(result: &AgentResult) -> TerminatedResult {
    TerminatedResult {
        success: true,
        agent_id: result.agent_id,
        task_id: result.task_id.clone(),
        role_id: result.role_id.clone(),
        display_name: result.display_name.clone(),
        status: result.status,
        stop_reason: result.stop_reason,
        message: result.message.clone(),
        partial_results: result.partial_results,
        deliverables_dir: result.deliverables_dir.clone(),
        deliverables_files: result.deliverables_files.clone(),
        deliverables_truncated: result.deliverables_truncated,
        deliverables_count: result.deliverables_count,
    }
}

/// The line of an agent that a wait did not see end.
pub fn still_running(agent: &Agent) -> StillRunning {
    StillRunning {
        agent_id: agent.job.agent_id,
        role_id: agent.job.role_id.clone(),
        display_name: agent.job.display_name.clone(),
        status: agent.state.status(),
    }
}

/// Cuts a result to what a model may get: names of files to
/// [`limits::RESULT_NAMES_BYTES_MAX`], all of it to [`limits::RESULT_BYTES_MAX`] of JSON.
pub fn for_model(result: AgentResult) -> AgentResult {
    fit(
        result,
        limits::RESULT_NAMES_BYTES_MAX,
        limits::RESULT_BYTES_MAX,
    )
}

/// Cuts a terminate's result likewise.
pub fn terminated_for_model(mut result: TerminatedResult) -> TerminatedResult {
    let all = result
        .deliverables_count
        .unwrap_or(result.deliverables_files.len() as u64);
    if cut_list(
        &mut result.deliverables_files,
        limits::RESULT_NAMES_BYTES_MAX,
    ) {
        result.deliverables_truncated = true;
        result.deliverables_count = Some(all);
    }
    result
}

/// Cuts a wait's result likewise: the first agents are told as fully as there is room, the others
/// by name and status, so that no end goes untold.
pub fn wait_for_model(wait: WaitResult) -> WaitResult {
    let running = cut_running(wait.running, wait.more_running);
    let mut in_full = wait.agents.len().min(WAIT_IN_FULL_MAX);
    loop {
        let (first, others) = wait.agents.split_at(in_full);
        let mut cut = WaitResult {
            agents: Vec::new(),
            also_ended: wait.also_ended.clone(),
            running: running.0.clone(),
            more_running: running.1,
            ..wait
        };
        for result in others {
            let names = cut.also_ended.entry(result.status).or_default();
            names.push(result.display_name.clone());
        }
        // Each agent adds a comma.
        let room = limits::RESULT_BYTES_MAX.saturating_sub(json_bytes(&cut) + in_full);
        let share = room / in_full.max(1);
        let names = limits::RESULT_NAMES_BYTES_MAX.min(share / 4);
        let agents = first.iter().cloned();
        cut.agents = agents.map(|result| fit(result, names, share)).collect();
        if in_full == 0 || json_bytes(&cut) <= limits::RESULT_BYTES_MAX {
            return cut;
        }
        in_full -= 1;
    }
}

/// Those who have not ended, as far as there is room for them, and how many more there are.
fn cut_running(mut running: Vec<StillRunning>, more: u64) -> (Vec<StillRunning>, u64) {
    let all = running.len();
    cut_list(&mut running, limits::RESULT_NAMES_BYTES_MAX);
    let left_out = (all - running.len()) as u64;
    (running, more + left_out)
}

/// Cuts a result to `names_bytes` of names and `all_bytes` of JSON, as far as fields of bounded
/// length allow it.
fn fit(mut result: AgentResult, names_bytes: usize, all_bytes: usize) -> AgentResult {
    let all = result
        .deliverables_count
        .unwrap_or(result.deliverables_files.len() as u64);
    let skipped = result.deliverables_skipped.len();
    if cut_list(&mut result.deliverables_skipped, names_bytes / 2) {
        let warning = format!("{skipped} entries of its dir were skipped; not all are named");
        result.warnings.insert(0, warning);
    }
    let mut names_bytes = names_bytes;
    let mut side_bytes = SIDE_TEXT_BYTES_MAX;
    loop {
        if cut_list(&mut result.deliverables_files, names_bytes) {
            result.deliverables_truncated = true;
            result.deliverables_count = Some(all);
        }
        cut_list(&mut result.deliverables_skipped, names_bytes / 2);
        cut_side_texts(&mut result, side_bytes);
        let without_summary = json_bytes(&result) - json_bytes(&result.result_summary) + 2;
        if without_summary < all_bytes || (names_bytes == 0 && side_bytes == 0) {
            cut_summary(&mut result, all_bytes.saturating_sub(without_summary));
            return result;
        }
        names_bytes /= 2;
        side_bytes /= 2;
    }
}

/// Cuts the report so that its JSON has at most `bytes` beside the quotes; escapes make it longer
/// than its text, so the text is halved until it fits.
fn cut_summary(result: &mut AgentResult, bytes: usize) {
    let pointer = format!(
        "; all of it is in {}/{}/{}",
        result.deliverables_dir,
        protocol::job::AGENT_DIR,
        protocol::job::CONVERSATION_FILE
    );
    let whole = std::mem::take(&mut result.result_summary);
    let mut room = bytes.min(whole.len());
    loop {
        let cut = cut_middle(&whole, room, &pointer);
        if json_bytes(&cut) <= bytes + 2 || room == 0 {
            result.result_summary = cut;
            return;
        }
        room = room * 3 / 4;
    }
}

/// Keeps the first entries whose JSON fits into `bytes`; true when some were left out.
fn cut_list<T: serde::Serialize>(list: &mut Vec<T>, bytes: usize) -> bool {
    let mut used = 0;
    let kept = list
        .iter()
        .take_while(|entry| {
            used += json_bytes(entry) + 1;
            used <= bytes
        })
        .count();
    let cut = kept < list.len();
    list.truncate(kept);
    cut
}

fn cut_side_texts(result: &mut AgentResult, bytes: usize) {
    if let Some(error) = &mut result.error {
        error.message = cut_middle(&error.message, bytes, "");
        error.hint = cut_middle(&error.hint, bytes, "");
    }
    let mut left = bytes;
    for warning in &mut result.warnings {
        let kept = floor_border(warning, left);
        warning.truncate(kept);
        left -= kept;
    }
    result.warnings.retain(|warning| !warning.is_empty());
    cut_confinement(&mut result.confinement, bytes);
}

/// Leaves out the words for people first, then all but the rung; the whole of it stands in the event
/// log.
fn cut_confinement(confinement: &mut Value, bytes: usize) {
    if json_bytes(confinement) <= bytes {
        return;
    }
    let rung = confinement["rung"].clone();
    let pointers = ["/gaps", "/commands/gaps"];
    for pointer in pointers {
        if let Some(Value::Array(gaps)) = confinement.pointer_mut(pointer)
            && !gaps.is_empty()
        {
            *gaps = vec![json!(format!("{} in the event log of the run", gaps.len()))];
        }
    }
    if json_bytes(confinement) > bytes {
        *confinement = json!({"rung": rung});
    }
}

fn json_bytes<T: serde::Serialize>(value: &T) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
