//! What the outcome of a piece of work becomes: from a create's plan to the end of an agent.

use std::path::PathBuf;

use confine::limits::FILE_SIZE_BYTES_DEFAULT;
use confine::policy::JailPolicy;
use confine::report::{EndReason, Step};
use confine::signal::Signal;
use protocol::channel::{DEADLINE, DeadlineParams, STOP, StopParams};
use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::ids::TaskId;
use protocol::job::{EXIT_FILE, JOB_FILE, JobSpec, Provider};
use protocol::secret::Mask;
use protocol::status::{Status, StopReason};
use protocol::wire::Frame;
use serde_json::json;

use crate::core::Input;
use crate::core::input::{Evidence, ExitFacts, Verdict};
use crate::driver::agents::Talk;
use crate::driver::creating::own_dir;
use crate::driver::places::file_policy;
use crate::driver::plan::Plan;
use crate::driver::state::State;
use crate::driver::work::{Planned, Ready, Work};
use crate::os::clock;
use crate::os::identity;
use crate::os::process::{ChildEnd, ChildHandle, WaitStatus, adopt};
use crate::os::spawn::{SpawnOrder, spawn};
use crate::os::trees;
use crate::store::results::{Collected, FinalWord};
use crate::store::worker_log::WorkerLog;

impl State {
    pub(super) async fn work(&mut self, work: Work) {
        match work {
            Work::Planned { ticket, outcome } => {
                self.creating.done();
                match outcome {
                    Ok(planned) => {
                        let Planned { plan, order, claim } = *planned;
                        self.agents.add(plan, claim);
                        self.inputs.push_back(Input::Create {
                            ticket,
                            caller: crate::driver::state::CALLER,
                            order: Box::new(order),
                        });
                        // The next number is looked for once the supervisor knows of this one.
                        self.settle().await;
                    }
                    Err(error) => self.refuse(ticket, error),
                }
                self.look_into_next();
            }
            Work::Prepared { agent, outcome } => match outcome {
                Ok(Ready { dir, log, space }) => {
                    if let Some(held) = self.agents.get(&agent) {
                        held.dir = Some(dir);
                        held.space_at_start = space;
                    }
                    self.start_child(agent, log);
                }
                Err(error) => self.inputs.push_back(Input::SpawnFailed { agent, error }),
            },
            Work::Collected {
                agent,
                dir,
                collected,
                end,
            } => {
                if let Some(held) = self.agents.get(&agent) {
                    held.dir = dir;
                }
                let mut facts = Box::new(exit_facts(collected, *end));
                mask_facts(&mut facts, &self.known.mask);
                self.inputs.push_back(Input::Exited { agent, facts });
            }
            Work::Concluded { agent } => self.queue.concluded(&agent),
            Work::GaveUp(ticket) => {
                if self.tickets.give_up(ticket) {
                    self.inputs.push_back(Input::GiveUp { ticket });
                }
            }
        }
    }

    /// Makes an agent's directories; its process follows.
    pub(super) fn prepare(&mut self, agent: &TaskId) {
        if let Some(held) = self.agents.get(agent) {
            let mask = self.known.mask.clone();
            self.workshop.prepare(&held.plan, mask);
        }
    }

    fn start_child(&mut self, agent: TaskId, log: WorkerLog) {
        let input = match self.try_start(&agent, log) {
            Ok(child) => {
                let process = identity::of_process(child.pid());
                let pid = child.pid();
                if let Some(held) = self.agents.get(&agent) {
                    held.pids.push(pid);
                    held.child = Some(child);
                }
                match process {
                    Ok(process) => Input::Spawned { agent, process },
                    // Without its identity a later leader could not tell it from another process,
                    // but this one holds it by descriptor.
                    Err(_) => Input::Spawned {
                        agent,
                        process: crate::core::input::ProcessIdentity {
                            pid,
                            start_ticks: 0,
                            boot_id: String::new(),
                        },
                    },
                }
            }
            Err(error) => Input::SpawnFailed { agent, error },
        };
        self.inputs.push_back(input);
    }

    fn try_start(&self, agent: &TaskId, log: WorkerLog) -> Result<ChildHandle, ToolError> {
        let Some(plan) = self.agents.plan(agent) else {
            let gone = "the agent ended while it was being started";
            return Err(ToolError::new(ErrorCode::Internal, gone));
        };
        let order = spawn_order(plan, self);
        let failed = |message: String, hint: String| {
            ToolError::new(ErrorCode::SpawnFailed, message).hint(hint)
        };
        let child = spawn(&order).map_err(|problem| failed(problem.to_string(), problem.hint()))?;
        adopt(child, agent.clone(), log, self.child_events.clone()).map_err(|error| {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}"));
            let hint = "look at the limit of open files (`ulimit -n`); Linux 5.3 is needed";
            failed(
                format!("{error}{}", why.unwrap_or_default()),
                hint.to_owned(),
            )
        })
    }

    /// Reads what an ended agent left, then the supervisor hears of the end.
    pub(super) fn child_ended(&mut self, agent: TaskId, end: Box<ChildEnd>) {
        tracing::debug!(%agent, status = ?end.status, "a process tree has ended");
        self.watchdog.forget(&agent);
        let dir = self.agents.get(&agent).and_then(|held| held.dir.take());
        if let Some(dir) = dir {
            self.workshop.collect(agent, dir, end);
        }
    }

    /// Brings an agent's conversation to its final form; what came of the same input waits.
    pub(super) fn conclude(
        &mut self,
        agent: TaskId,
        batch: u64,
        (status, stop_reason, summary): (Status, Option<StopReason>, String),
    ) {
        let Some(held) = self.agents.get(&agent) else {
            return;
        };
        held.child = None;
        // Without a directory nothing was started: there is no conversation to complete.
        let Some(dir) = held.dir.take() else { return };
        let word = FinalWord {
            status,
            stop_reason,
            summary,
            at: clock::timestamp(),
        };
        let mask = self.known.mask.clone();
        self.workshop.conclude(&held.plan, dir, word, mask);
        self.queue.hold(agent, batch);
    }

    pub(super) fn send_stop(&mut self, agent: &TaskId, reason: StopReason, grace_ms: u64) {
        let params = StopParams { reason, grace_ms };
        self.tell(agent, &Frame::notification(STOP, json!(params)));
    }

    pub(super) fn send_deadline(&mut self, agent: &TaskId, remaining_ms: u64, paused: bool) {
        let params = DeadlineParams {
            remaining_ms,
            paused,
        };
        self.tell(agent, &Frame::notification(DEADLINE, json!(params)));
    }

    /// Says something to a worker; one that does not read is stopped.
    pub(super) fn tell(&mut self, agent: &TaskId, frame: &Frame) {
        let told = self.agents.child(agent).map(|child| child.tell(frame));
        if let Some(Err(error)) = told {
            self.inputs.push_back(Input::Broke {
                agent: agent.clone(),
                detail: error.to_string(),
            });
        }
    }

    pub(super) fn term(&self, agent: &TaskId) {
        let Some(child) = self.agents.child(agent) else {
            return;
        };
        // A stopped worker takes its SIGTERM only when it goes on.
        let sent = child
            .signal(Signal::SIGTERM)
            .and_then(|()| child.signal(Signal::SIGCONT));
        if let Err(error) = sent {
            tracing::warn!(%agent, %error, "a worker could not be asked to end");
        }
    }

    /// Stops a tree where it is, or lets it go on; its jail passes that on to everything in it.
    pub(super) fn signal(&self, agent: &TaskId, signal: Signal) {
        if let Some(child) = self.agents.child(agent)
            && let Err(error) = child.signal(signal)
        {
            tracing::warn!(%agent, %signal, %error, "a tree could not be told");
        }
    }

    pub(super) fn kill(&self, agent: &TaskId) {
        if let Some(child) = self.agents.child(agent)
            && let Err(error) = child.kill()
        {
            tracing::warn!(%agent, %error, "a tree could not be killed");
        }
    }

    /// Looks at what a kill has left.
    pub(super) fn inspect(&mut self, agent: TaskId) {
        let Some(held) = self.agents.get(&agent) else {
            return;
        };
        let survivors = identity::survivors(&trees::with_all_below(&held.pids));
        self.inputs.push_back(Input::Survivors { agent, survivors });
    }

    pub(super) fn is_speaking(&mut self, agent: &TaskId) -> bool {
        self.agents
            .get(agent)
            .is_some_and(|held| held.talk == Talk::Speaking)
    }
}

fn spawn_order(plan: &Plan, state: &State) -> SpawnOrder {
    let own = own_dir(&plan.job);
    let workspace = plan.job.workspace.clone();
    let caps = plan.job.limits.caps;
    SpawnOrder {
        programs: state.programs.clone(),
        policy: JailPolicy {
            leader_pid: Some(std::process::id()),
            require: state.asked.require,
            highest: state.asked.highest,
            cgroup: state.asked.cgroup.clone(),
            memory_bytes: caps.memory_bytes,
            cpu_seconds: caps.cpu_seconds,
            file_size_bytes: Some(caps.disk_bytes.map_or(FILE_SIZE_BYTES_DEFAULT, |most| {
                most.min(FILE_SIZE_BYTES_DEFAULT)
            })),
            network: state.asked.network,
            command_network: state.asked.command_network,
            files: Some(file_policy(&plan.job, &state.secrets, &state.own_places)),
            workspace: Some(workspace.clone()),
            cwd: Some(workspace.clone()),
            exit_file: Some(own.join(EXIT_FILE)),
            visible: visible(&plan.job),
            keep_fd: state.keep_fd,
            ..JailPolicy::default()
        },
        job_file: own.join(JOB_FILE),
        workspace,
        hidden_variables: state.hidden_variables.clone(),
    }
}

/// What the worker reads outside the workspace: it must stay in sight behind private mounts.
fn visible(job: &JobSpec) -> Vec<PathBuf> {
    let replies = match job.model.provider {
        Provider::Script => Some(job.workspace.join(&job.model.model)),
        Provider::Openai | Provider::Anthropic => None,
    };
    job.prompts_dir
        .iter()
        .cloned()
        .chain(replies)
        .filter(|path| !path.starts_with(&job.workspace) && path.exists())
        .collect()
}

/// Takes the secrets out of what an agent's own files say. What its pipes said was masked before.
fn mask_facts(facts: &mut ExitFacts, mask: &Mask) {
    match &mut facts.evidence {
        Evidence::Report(report) => mask.finished(report),
        Evidence::Unfinished { last_text, .. } => mask.apply(last_text),
        Evidence::Bad { why } => mask.apply(why),
    }
    let names = facts.deliverables.files.iter_mut();
    let skipped = facts.deliverables.skipped.iter_mut();
    names
        .chain(skipped.map(|skipped| &mut skipped.name))
        .for_each(|name| mask.apply(name));
}

fn exit_facts(collected: Collected, end: ChildEnd) -> ExitFacts {
    let mut warnings = collected.warnings;
    warnings.extend(end.warnings);
    let refused = end
        .jail_failed
        .as_ref()
        .is_some_and(|failed| failed.step == Step::Require);
    let verdict = match end.status {
        // The worker was never executed: the code is the one that the worker has for it.
        WaitStatus::Exited(_) if refused => Verdict::Exited(exit::CONFINEMENT_REFUSED),
        WaitStatus::Exited(code) => Verdict::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        WaitStatus::Signaled(signal) => Verdict::Signalled(signal),
        WaitStatus::Unknown => {
            warnings.push("the system did not tell how the process ended".to_owned());
            Verdict::Signalled(nix::libc::SIGKILL)
        }
    };
    let last_lines = match end.jail_failed {
        Some(failed) => failed.message,
        None => end.stderr_tail,
    };
    let out_of_memory = end
        .jail_ended
        .is_some_and(|ended| ended.reason == EndReason::OutOfMemory);
    ExitFacts {
        verdict,
        out_of_memory,
        evidence: collected.evidence,
        deliverables: collected.deliverables,
        last_lines,
        warnings,
    }
}
