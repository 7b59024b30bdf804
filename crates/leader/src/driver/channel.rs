//! What a worker's frames mean, and what it is answered.

use protocol::channel::{
    CommandsHeld, FINISHED, FinishedParams, INITIALIZE, InitializeParams, InitializeResult,
    PROGRESS, PROTOCOL, ProgressParams, TOOLS_CALL, ToolsCallParams, same_major,
};
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::mcp::McpEnv;
use protocol::wire::{Frame, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError};
use serde_json::{Value, json};

use crate::core::Input;
use crate::driver::agents::Talk;
use crate::driver::caps::CapsInForce;
use crate::driver::state::State;
use crate::driver::watchdog::Watched;
use crate::driver::work::written_by;
use crate::os::process::{ChildEvent, ChildMessage};

impl State {
    pub(super) fn child(&mut self, message: ChildMessage) {
        let agent = message.task_id;
        match message.event {
            ChildEvent::Started(started) => {
                let Some(held) = self.agents.get(&agent) else {
                    return;
                };
                held.pids.push(started.init_pid);
                let caps = CapsInForce::of(
                    held.plan.job.limits.caps,
                    started.confinement.memory,
                    held.space_at_start,
                );
                if let (Some(child), Some(watched)) = (&held.child, caps.watched()) {
                    let roots = written_by(&held.plan.job);
                    let at_start = held.space_at_start.unwrap_or_default();
                    let jail = child.pid();
                    let watched = Watched::new(agent.clone(), jail, watched, roots, at_start);
                    self.watchdog.watch(watched);
                }
                self.inputs.push_back(Input::Confined {
                    agent,
                    confinement: self.asked.beside(&started.confinement, &caps),
                });
            }
            ChildEvent::Used(measure) => self.inputs.push_back(Input::Used { agent, measure }),
            ChildEvent::Fallen(fallen) => self.inputs.push_back(Input::NameReplaced {
                agent,
                path: fallen.path.to_string_lossy().into_owned(),
                again: fallen.again,
            }),
            ChildEvent::Frame(frame) => self.frame(agent, frame),
            ChildEvent::NotReading => self.inputs.push_back(Input::Broke {
                agent,
                detail: crate::os::process::NotReading.to_string(),
            }),
            ChildEvent::Ended(end) => self.child_ended(agent, end),
        }
    }

    /// Takes what a worker said, without the secrets in it: all that others get of an agent comes
    /// in here or from its files.
    fn frame(&mut self, agent: TaskId, mut frame: Frame) {
        if let Frame::Request { params, .. } | Frame::Notification { params, .. } = &mut frame {
            self.known.mask.json(params);
        }
        match frame {
            Frame::Request { id, method, params } => {
                let outcome = self.call(&agent, &method, params);
                let answer = match outcome {
                    Ok(result) => Frame::result(id, result),
                    Err(error) => Frame::error(id, error),
                };
                self.tell(&agent, &answer);
            }
            // What is said before `initialize` counts for nothing; the start time-out runs.
            Frame::Notification { method, params } if self.is_speaking(&agent) => {
                self.notification(agent, &method, params);
            }
            // Nothing is asked of a worker, so an answer of one answers nothing.
            Frame::Notification { .. } | Frame::Response { .. } => {}
        }
    }

    fn call(&mut self, agent: &TaskId, method: &str, params: Value) -> Result<Value, RpcError> {
        match (method, self.is_speaking(agent)) {
            (INITIALIZE, false) => self.initialize(agent, params),
            (INITIALIZE, true) => Err(RpcError::new(
                INVALID_REQUEST,
                "`initialize` was said before",
            )),
            (_, false) => Err(RpcError::new(INVALID_REQUEST, "say `initialize` first")),
            (TOOLS_CALL, true) => tools_call(params),
            (other, true) => Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("there is no method `{other}`"),
            )),
        }
    }

    fn initialize(&mut self, agent: &TaskId, params: Value) -> Result<Value, RpcError> {
        let broke = |detail: String| Input::Broke {
            agent: agent.clone(),
            detail,
        };
        let params: InitializeParams = match serde_json::from_value(params) {
            Ok(params) => params,
            Err(error) => {
                let error = format!("the params of `initialize` have not their shape: {error}");
                self.inputs.push_back(broke(error.clone()));
                return Err(RpcError::new(INVALID_PARAMS, error));
            }
        };
        if !same_major(PROTOCOL, &params.protocol) {
            let error = format!(
                "the worker speaks version {} of the channel, this leader speaks {PROTOCOL}",
                params.protocol
            );
            self.inputs.push_back(broke(error.clone()));
            return Err(RpcError::new(INVALID_PARAMS, error));
        }
        let Some(held) = self.agents.get(agent) else {
            return Err(RpcError::new(INVALID_REQUEST, "the agent has ended"));
        };
        held.talk = Talk::Speaking;
        let result = InitializeResult {
            protocol: PROTOCOL.to_owned(),
            tools: Vec::new(),
            model: held.plan.access.clone(),
            web_key: held.plan.web_key.clone(),
            mcp_env: McpEnv::of(&held.plan.job.mcp, |name| self.ground.environment.get(name)),
            remaining_ms: u64::from(held.plan.job.limits.timeout_seconds) * 1_000,
            secrets: self.known.values.clone(),
        };
        self.inputs.push_back(Input::Initialized {
            agent: agent.clone(),
            commands: params.commands.map(CommandsHeld::bounded),
        });
        Ok(json!(result))
    }

    /// A method that this version does not know is passed over.
    fn notification(&mut self, agent: TaskId, method: &str, params: Value) {
        match method {
            // Of a malformed progress nothing depends; the next one comes soon.
            PROGRESS => {
                if let Ok(progress) = serde_json::from_value::<ProgressParams>(params) {
                    self.inputs.push_back(Input::Progress { agent, progress });
                }
            }
            FINISHED => {
                let input = match serde_json::from_value::<FinishedParams>(params) {
                    Ok(report) => Input::Reported { agent, report },
                    Err(error) => Input::Broke {
                        agent,
                        detail: format!("its report has not its shape: {error}"),
                    },
                };
                self.inputs.push_back(input);
            }
            _ => {}
        }
    }
}

/// A tool that the leader serves. None is granted to a sub-agent, so that whatever a worker asks
/// for, it learns that in words that its model understands.
fn tools_call(params: Value) -> Result<Value, RpcError> {
    let params: ToolsCallParams = serde_json::from_value(params).map_err(|error| {
        RpcError::new(
            INVALID_PARAMS,
            format!("the params of `{TOOLS_CALL}` have not their shape: {error}"),
        )
    })?;
    let error = ToolError::new(
        ErrorCode::ToolNotGranted,
        format!("the leader grants this agent no tool `{}`", params.name),
    )
    .hint("use the tools that you were given, and put what you need into your report");
    Ok(error.to_result())
}
