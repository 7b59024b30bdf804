//! Closes what a leader that died left: its log is folded, the conversations of its agents are
//! completed from their journals, and each gets its end in the log.
//!
//! The kernel ends every tree with its leader, but not in the same instant: a worker holds its job
//! file for as long as it lives, and is waited for.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::event::EventLine;
use protocol::ids::ConversationId;
use protocol::job::{JOB_FILE, JobSpec};
use protocol::result::AgentResult;
use protocol::secret::Mask;
use protocol::stats::Usage;
use protocol::status::Status;
use protocol::text::Prompts;

use crate::core::fold::FoldedAgent;
use crate::core::input::Evidence;
use crate::core::record::Record;
use crate::os::clock::{self, Clock};
use crate::os::hold::{self, Held};
use crate::store::agent_dir::AgentDir;
use crate::store::log::{EventLog, LOG_FILE, LogError, RunLock};
use crate::store::results::{self, Collected, FinalWord};

/// The folder of all runs, relative to the workspace.
pub const RUNS_DIR: &str = ".muster/runs";
/// Runs that are looked at, newest first.
const RUNS_MAX: usize = 200;
/// The end of a log that is looked at for its last event, in bytes.
const TAIL_BYTES: u64 = 64 * 1024;
/// A `job.json` as the leader is willing to read it, in bytes.
const JOB_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The longest wait for what a leader's death is about to end, in milliseconds: a worker, or a
/// child that was between its fork and its exec and has a copy of the lock.
const DYING_MS_MAX: u64 = 2_000;
/// The longest listing of one deliverables dir, in milliseconds.
const LISTING_MS_MAX: u64 = 1_000;

/// A run that was closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// Which.
    pub conversation: ConversationId,
    /// How its agents ended that had not, in the order of their creation.
    pub ends: Vec<AgentResult>,
}

/// Closes every run of a workspace whose leader died. A run that can't be closed is passed over
/// with a warning in the diagnostic log. Blocks; not for an async task.
pub fn recover_all(workspace: &Path) -> Vec<Recovered> {
    let mut runs: Vec<ConversationId> = fs::read_dir(workspace.join(RUNS_DIR))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    runs.sort();
    runs.iter()
        .rev()
        .take(RUNS_MAX)
        .filter_map(|conversation| {
            recover(workspace, conversation).unwrap_or_else(|error| {
                tracing::warn!(%conversation, %error, "a run of a dead leader could not be closed");
                None
            })
        })
        .collect()
}

/// As [`recover`], for a run whose leader no longer answers though its lock is still held: the
/// lock lives as long as its last copy (flock(2)), and a child that the leader was just starting
/// has one until its exec. Waits for that, at most 2 s. Blocks; not for an async task.
///
/// # Errors
/// As [`recover`].
pub fn recover_dying(
    workspace: &Path,
    conversation: &ConversationId,
) -> Result<Option<Recovered>, LogError> {
    let dir = workspace.join(RUNS_DIR).join(conversation.as_str());
    if RunLock::is_held(&dir)? {
        RunLock::wait_until_free_within(&dir, Duration::from_millis(DYING_MS_MAX))?;
    }
    recover(workspace, conversation)
}

/// Closes one run, unless it has ended or its leader lives. Blocks; not for an async task.
///
/// # Errors
/// When its log can't be read or written.
pub fn recover(
    workspace: &Path,
    conversation: &ConversationId,
) -> Result<Option<Recovered>, LogError> {
    let dir = workspace.join(RUNS_DIR).join(conversation.as_str());
    // A leader makes the folder, takes the lock, and then begins the log. Without a log the leader
    // may be about to take the lock, which must not be in our hands then.
    if !dir.join(LOG_FILE).exists() {
        return Ok(None);
    }
    // Almost every run has ended, which its last line tells without a look at the rest.
    if has_ended(&dir).unwrap_or(false) || RunLock::is_held(&dir)? {
        return Ok(None);
    }
    let lock = match RunLock::take(&dir, &format!("pid {}, recovering", std::process::id())) {
        Ok(lock) => lock,
        // Another leader is at it.
        Err(LogError::Held { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let opened = EventLog::open(lock, Box::new(drop), Mask::default())?;
    let run = &opened.found.run;
    if run.ended || opened.found.last_seq == 0 {
        opened.log.close();
        return Ok(None);
    }
    let mut ends = Vec::new();
    for agent in run.cut_off() {
        let result = end_of(workspace, agent);
        let record = Record::Ended {
            agent: agent.tag.clone(),
            result: Box::new(crate::core::result::for_model(result.clone())),
        };
        opened
            .log
            .append_blocking(Box::new(record), clock::timestamp())?
            .wait()?;
        ends.push(result);
    }
    opened
        .log
        .append_blocking(Box::new(Record::RunEnded {}), clock::timestamp())?
        .wait()?;
    opened.log.close();
    Ok(Some(Recovered {
        conversation: conversation.clone(),
        ends,
    }))
}

/// Whether the last line of a run's log says that it has ended.
pub(super) fn has_ended(dir: &Path) -> io::Result<bool> {
    let mut file = File::open(dir.join(LOG_FILE))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let Some(tail) = tail.strip_suffix(b"\n") else {
        return Ok(false);
    };
    let last = tail.rsplit(|byte| *byte == b'\n').next().unwrap_or(tail);
    let line = serde_json::from_slice::<EventLine>(last);
    let ended = Record::RunEnded {}.to_line(0, String::new()).event;
    Ok(line.is_ok_and(|line| line.event == ended))
}

/// How an agent ended that its leader's death cut off; completes its conversation.
fn end_of(workspace: &Path, agent: &FoldedAgent) -> AgentResult {
    let end = agent.end();
    let mut warnings = Vec::new();
    let collected = match open_own(workspace, &agent.job) {
        Some((mut dir, job_file)) => {
            // Kept until the conversation is complete: a worker that has yet to begin must not
            // begin in between.
            let held = hold::wait_for(job_file, Duration::from_millis(DYING_MS_MAX));
            if let Some(warning) = not_ours(&held) {
                warnings.push(warning);
            }
            let clock = Clock::start();
            let task_id = &agent.job.task_id;
            let collected = results::collect(&mut dir, task_id, || clock.now_ms() > LISTING_MS_MAX);
            let word = FinalWord {
                status: end.status(),
                stop_reason: end.reason(),
                summary: summary_of(agent, Some(&collected)),
                at: clock::timestamp(),
            };
            if let Err(error) = results::conclude(&mut dir, &agent.job, &word, &Mask::default()) {
                warnings.push(format!("its conversation could not be completed: {error}"));
            }
            drop(held);
            Some(collected)
        }
        None => None,
    };
    result_of(agent, collected, warnings)
}

/// Opens an agent's directories and its job file, if they still are those of this very run:
/// another run may have taken the place.
fn open_own(workspace: &Path, job: &JobSpec) -> Option<(AgentDir, File)> {
    let dir = AgentDir::reopen(workspace, &job.deliverables_dir).ok()?;
    let (file, _) = dir.own.open_file(Path::new(JOB_FILE)).ok()?;
    let found: JobSpec = serde_json::from_reader((&file).take(JOB_BYTES_MAX)).ok()?;
    (found.task_id == job.task_id).then_some((dir, file))
}

/// What is to be said when an agent's worker could not be waited for.
fn not_ours(held: &io::Result<Held>) -> Option<String> {
    match held {
        Ok(Held::Ours(_)) => None,
        Ok(Held::Theirs) => Some(format!(
            "its worker has not ended within {DYING_MS_MAX} ms of a look, and may write yet"
        )),
        Err(error) => Some(format!("whether its worker has ended is unknown: {error}")),
    }
}

fn summary_of(agent: &FoldedAgent, collected: Option<&Collected>) -> String {
    match (&agent.report, collected.map(|found| &found.evidence)) {
        (Some(report), _) => report.summary.clone(),
        (None, Some(Evidence::Report(report))) => report.summary.clone(),
        (None, Some(Evidence::Unfinished { last_text, .. })) => last_text.clone(),
        (None, Some(Evidence::Bad { .. }) | None) => String::new(),
    }
}

fn result_of(
    agent: &FoldedAgent,
    collected: Option<Collected>,
    mut warnings: Vec<String>,
) -> AgentResult {
    let end = agent.end();
    let job = &agent.job;
    let success = end.status() == Status::Completed;
    let error = (!success).then(|| {
        ToolError::new(
            ErrorCode::AgentEnded,
            format!("{} was cut off when its leader died", job.display_name),
        )
        .hint(format!(
            "read what it left and its conversation, or let it go on: `leader resume {}`",
            job.task_id
        ))
    });
    let result_summary = summary_of(agent, collected.as_ref());
    let stats = match (
        &agent.report,
        collected.as_ref().map(|found| &found.evidence),
    ) {
        (Some(report), _) => report.stats,
        (None, Some(Evidence::Report(report))) => report.stats,
        (None, Some(Evidence::Unfinished { stats, .. })) => *stats,
        (None, Some(Evidence::Bad { .. }) | None) => protocol::stats::Stats::default(),
    };
    let found = collected.unwrap_or(Collected {
        evidence: Evidence::Bad { why: String::new() },
        deliverables: protocol::result::Deliverables::default(),
        warnings: Vec::new(),
    });
    warnings.extend(found.warnings);
    let deliverables = found.deliverables;
    AgentResult {
        success,
        agent_id: job.agent_id,
        task_id: job.task_id.clone(),
        role_id: job.role_id.clone(),
        display_name: job.display_name.clone(),
        status: end.status(),
        stop_reason: end.reason(),
        error,
        summary: job.summary.clone(),
        message: Prompts::builtin(job.language).result_message(end.status(), &job.display_name),
        deliverables_dir: job.deliverables_dir.display().to_string(),
        partial_results: !success && deliverables.count > 0,
        deliverables_truncated: deliverables.truncated,
        deliverables_count: deliverables.truncated.then_some(deliverables.count),
        deliverables_files: deliverables.files,
        deliverables_skipped: deliverables.skipped,
        result_summary,
        sub_conversation_id: job.sub_conversation_id.clone(),
        stats,
        // What nobody wrote down before the leader died.
        usage: Usage::default(),
        warnings,
        confinement: agent.confinement.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::input::ProcessIdentity;
    use crate::core::record::AgentTag;
    use crate::store::agent_dir::StartFiles;
    use crate::store::log::read;
    use crate::store::test_job::job;
    use protocol::ids::TaskId;
    use protocol::status::StopReason;

    struct Case {
        place: tempfile::TempDir,
        conversation: ConversationId,
    }

    impl Case {
        fn new() -> Case {
            let place = tempfile::tempdir().unwrap();
            let conversation = ConversationId::new("conv_00000001").unwrap();
            let case = Case {
                place,
                conversation,
            };
            fs::create_dir_all(case.run_dir()).unwrap();
            case
        }

        fn run_dir(&self) -> std::path::PathBuf {
            let runs = self.place.path().join(RUNS_DIR);
            runs.join(self.conversation.as_str())
        }

        fn write(&self, records: Vec<Record>) {
            let lock = RunLock::take(&self.run_dir(), "test").unwrap();
            let opened = EventLog::open(lock, Box::new(drop), Mask::default()).unwrap();
            let workspace = self.place.path().to_path_buf();
            let first = Record::run_started(self.conversation.clone(), "0", workspace);
            for record in std::iter::once(first).chain(records) {
                opened
                    .log
                    .append_blocking(Box::new(record), clock::timestamp())
                    .unwrap()
                    .wait()
                    .unwrap();
            }
            opened.log.close();
        }

        fn agent(&self, number: u32) -> JobSpec {
            JobSpec {
                task_id: TaskId::new(format!("sub_{number:08}")).unwrap(),
                ..job(self.place.path(), &format!("d{number}"))
            }
        }
    }

    fn created(job: &JobSpec) -> Record {
        Record::Created {
            agent: AgentTag::of(job),
            job: Box::new(job.clone()),
            task: "t".to_owned(),
            deliverables: job.workspace.join(&job.deliverables_dir),
            write_paths: Vec::new(),
        }
    }

    fn running(job: &JobSpec) -> [Record; 2] {
        let agent = AgentTag::of(job);
        let process = ProcessIdentity {
            pid: 7,
            start_ticks: 1,
            boot_id: "b".into(),
        };
        [
            Record::Starting {
                agent: agent.clone(),
            },
            Record::Running { agent, process },
        ]
    }

    fn prepare(case: &Case, job: &JobSpec) {
        let files = StartFiles {
            job,
            task: "t",
            system_prompt: "s",
        };
        AgentDir::prepare(case.place.path(), files).unwrap();
    }

    #[test]
    fn agents_of_a_dead_leader_get_their_ends_once() {
        let case = Case::new();
        let (live, waiting) = (case.agent(1), case.agent(2));
        prepare(&case, &live);
        let folder = case.place.path().join("d1");
        fs::write(folder.join("part.md"), "x").unwrap();
        let journal = format!(
            "{{\"kind\":\"start\",\"format\":1,\"agent_id\":1,\"task_id\":\"{}\",\"role_id\":null,\
             \"summary\":\"s\",\"created_at\":\"2026-03-10T12:00:00Z\"}}\n\
             {{\"kind\":\"message\",\"message\":{{\"role\":\"assistant\",\"content\":\"half way\"}},\
             \"stats\":{{\"turns\":1}}}}\n{{\"kind\":\"mess",
            live.task_id
        );
        fs::write(folder.join(".subagent/journal.jsonl"), journal).unwrap();
        let [starting, running] = running(&live);
        case.write(vec![created(&live), starting, running, created(&waiting)]);
        let recovered = recover_all(case.place.path());
        assert_eq!(recovered.len(), 1);
        let ends: Vec<_> = recovered[0]
            .ends
            .iter()
            .map(|end| (end.status, end.stop_reason, end.partial_results))
            .collect();
        let died = Some(StopReason::LeaderDied);
        assert_eq!(
            ends,
            [
                (Status::Interrupted, died, true),
                (Status::Terminated, died, false)
            ]
        );
        let file = fs::read(folder.join(".subagent/conversations.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(file["status"], "interrupted");
        assert_eq!(file["messages"][0]["content"], "half way");
        assert!(file["completed_at"].is_string());
        let log = read(&case.run_dir()).unwrap();
        assert!(log.run.ended);
        assert_eq!(log.run.cut_off().count(), 0);
        assert_eq!(recover_all(case.place.path()), Vec::new());
    }

    #[test]
    fn a_worker_that_is_about_to_die_has_the_last_write_before_the_end() {
        // A leader was killed while a worker began; the next command had completed the
        // conversation when the dying worker wrote its first one, which said `running` for ever.
        let case = Case::new();
        let live = case.agent(1);
        prepare(&case, &live);
        let own = case.place.path().join("d1/.subagent");
        case.write([created(&live)].into_iter().chain(running(&live)).collect());
        let worker = File::open(own.join(JOB_FILE)).unwrap();
        worker.lock().unwrap();
        std::thread::scope(|scope| {
            let recovered = scope.spawn(|| recover_all(case.place.path()));
            let text = format!(
                "{{\"format\":1,\"agent_id\":1,\"task_id\":\"{}\",\"role_id\":null,\
                 \"summary\":\"s\",\"status\":\"running\",\
                 \"created_at\":\"2026-03-10T12:00:00Z\",\"completed_at\":null,\
                 \"messages\":[],\"stats\":{{}},\"result\":null}}",
                live.task_id
            );
            fs::write(own.join("conversations.json"), text).unwrap();
            assert!(!recovered.is_finished());
            worker.unlock().unwrap();
            let ends = recovered.join().unwrap().remove(0).ends;
            assert_eq!(ends[0].warnings, [""; 0]);
        });
        let file = fs::read(own.join("conversations.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(file["status"], "interrupted");
        assert!(file["completed_at"].is_string());
    }

    #[test]
    fn a_worker_that_does_not_die_is_named() {
        let case = Case::new();
        let live = case.agent(1);
        prepare(&case, &live);
        case.write([created(&live)].into_iter().chain(running(&live)).collect());
        let worker = File::open(case.place.path().join("d1/.subagent/job.json")).unwrap();
        worker.lock().unwrap();
        let ends = recover_all(case.place.path()).remove(0).ends;
        assert!(ends[0].warnings[0].contains("has not ended"), "{ends:?}");
    }

    #[test]
    fn a_lock_that_outlives_its_leader_by_a_moment_is_waited_for() {
        // A leader was killed while it started a worker. The child, not yet at its exec, still had
        // the lock; the next command took the leader for alive and left the run without its ends.
        let case = Case::new();
        case.write(vec![created(&case.agent(1))]);
        let held = RunLock::take(&case.run_dir(), "pid 1").unwrap();
        std::thread::scope(|scope| {
            let dying = || recover_dying(case.place.path(), &case.conversation).unwrap();
            let closing = scope.spawn(dying);
            assert_eq!(recover_all(case.place.path()), Vec::new());
            drop(held);
            assert_eq!(closing.join().unwrap().unwrap().ends.len(), 1);
        });
    }

    #[test]
    fn a_live_leaders_run_is_left_alone() {
        let case = Case::new();
        case.write(vec![created(&case.agent(1))]);
        let held = RunLock::take(&case.run_dir(), "pid 1").unwrap();
        assert_eq!(recover_all(case.place.path()), Vec::new());
        drop(held);
        assert_eq!(recover_all(case.place.path()).len(), 1);
    }

    #[test]
    fn a_leader_that_is_about_to_take_its_lock_finds_it_free() {
        // A run that began while another leader looked for dead ones was once told that it
        // belonged to a live leader: the one that looked.
        let case = Case::new();
        assert_eq!(recover_all(case.place.path()), Vec::new());
        assert_eq!(fs::read_dir(case.run_dir()).unwrap().count(), 0);
    }

    #[test]
    fn the_folder_of_a_later_run_is_not_touched() {
        let case = Case::new();
        let dead = case.agent(1);
        let [starting, running] = running(&dead);
        case.write(vec![created(&dead), starting, running]);
        let later = JobSpec {
            task_id: TaskId::new("sub_00000009").unwrap(),
            ..dead.clone()
        };
        prepare(&case, &later);
        let recovered = recover_all(case.place.path());
        assert_eq!(recovered[0].ends[0].status, Status::Interrupted);
        let own = case.place.path().join("d1/.subagent");
        assert_eq!(fs::read_dir(own).unwrap().count(), 3);
    }
}
