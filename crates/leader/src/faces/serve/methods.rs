//! What stands behind the control socket of a live conversation: its tools, and the methods that
//! look at it or end it.

use std::sync::Arc;

use protocol::config::Settings;
use protocol::error::closest;
use protocol::socket::{
    CONFIG, GAP, LOGS, LogsParams, METHODS, PS, SHUTDOWN, ShutdownParams, WAIT, WaitParams,
};
use protocol::status::StopReason;
use protocol::tool::leader::{LEADER_TOOLS, NoParams, tool_agent_id};
use protocol::tool::{Params, parse_params};
use protocol::wire::{METHOD_NOT_FOUND, RpcError};
use serde_json::{Value, json};

use crate::driver::{Handle, Origin, StopMode, Subscription, SubscriptionItem, WaitRequest};
use crate::faces::config::config_value;
use crate::faces::serve::connection::{Event, Events, Service, invalid_params};
use crate::faces::steps::{open_journal, read_steps};
use crate::faces::target::agent_ref_of;

/// A conversation as callers of its socket see it.
#[derive(Debug, Clone)]
pub struct Conversation {
    handle: Handle,
    settings: Arc<Settings>,
}

impl Conversation {
    /// What stands behind the socket of this conversation.
    pub fn new(handle: Handle, settings: Settings) -> Self {
        Conversation {
            handle,
            settings: Arc::new(settings),
        }
    }

    async fn logs(&self, params: LogsParams) -> Value {
        let agent = agent_ref_of(&params.agent);
        let place = match self.handle.locate(agent.clone()).await {
            Ok(place) => place,
            Err(error) => return error.to_result(),
        };
        // Asked before the journal is read: an agent that has ended by now writes no more, so
        // that a caller who is told so has all of it.
        let status = self.handle.status(vec![agent]).await;
        let status = status["agents"][0].clone();
        let workspace = self.handle.workspace().to_path_buf();
        let task_id = place.task_id.clone();
        let (after, limit) = (params.after.unwrap_or(0), params.limit_steps());
        let read = tokio::task::spawn_blocking(move || {
            match open_journal(&workspace, &place.deliverables_dir)? {
                Some(mut journal) => read_steps(&mut journal, &place.task_id, after, limit),
                None => Ok(Default::default()),
            }
        });
        match read.await {
            Ok(Ok(steps)) => json!({
                "success": true,
                "task_id": task_id,
                "display_name": status["display_name"],
                "status": status["status"],
                "steps": steps.steps,
                "next": steps.next,
                "more": steps.more,
            }),
            Ok(Err(error)) => unreadable(&error.to_string()),
            Err(error) => unreadable(&error.to_string()),
        }
    }

    async fn wait(&self, params: WaitParams) -> Result<Value, RpcError> {
        let mut agents = Vec::new();
        for number in params.agent_ids.iter().flatten() {
            let agent_id = tool_agent_id(*number).map_err(invalid_params)?;
            agents.push(agent_ref_of(&agent_id.to_string()));
        }
        agents.extend(
            params
                .agents
                .iter()
                .flatten()
                .map(|word| agent_ref_of(word)),
        );
        let wait = WaitRequest {
            agents,
            mode: params.mode.unwrap_or_default(),
            timeout_ms: params.timeout_ms(),
            origin: Origin::Person,
        };
        Ok(self.handle.wait(wait).await)
    }

    async fn shutdown(&self, params: ShutdownParams) -> Value {
        let mode = match params.force {
            Some(true) => StopMode::Force,
            Some(false) | None => StopMode::Graceful,
        };
        self.handle
            .close(StopReason::ConversationClosed, mode)
            .await;
        json!({"success": true, "message": "all agents have ended; so does the leader"})
    }
}

fn unreadable(why: &str) -> Value {
    protocol::error::ToolError::new(
        protocol::error::ErrorCode::Io,
        format!("the journal could not be read: {why}"),
    )
    .to_result()
}

/// Params of a method that is no tool; what does not fit is a malformed call.
fn read<P: Params>(params: Value) -> Result<P, RpcError> {
    parse_params(params).map_err(invalid_params)
}

impl Service for Conversation {
    type Events = Subscription;

    async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            PS => {
                read::<NoParams>(params)?;
                Ok(self.handle.ps().await)
            }
            LOGS => Ok(self.logs(read(params)?).await),
            WAIT => self.wait(read(params)?).await,
            CONFIG => {
                read::<NoParams>(params)?;
                Ok(config_value(&self.settings))
            }
            SHUTDOWN => Ok(self.shutdown(read(params)?).await),
            tool if LEADER_TOOLS.iter().any(|known| known.name == tool) => {
                Ok(crate::tools::call_tool(&self.handle, tool, params, Origin::Tool).await)
            }
            unknown => Err(unknown_method(unknown)),
        }
    }

    async fn subscribe(&self, after_seq: Option<u64>) -> Result<Subscription, RpcError> {
        self.handle
            .subscribe(after_seq)
            .await
            .map_err(|error| RpcError::new(protocol::wire::INTERNAL_ERROR, error.message))
    }
}

fn unknown_method(method: &str) -> RpcError {
    let known: Vec<&str> = LEADER_TOOLS
        .iter()
        .map(|tool| tool.name)
        .chain(METHODS.iter().copied())
        .collect();
    let hint = match closest(method, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: `{}`", known.join("`, `")),
    };
    RpcError {
        code: METHOD_NOT_FOUND,
        message: format!("no method `{method}`"),
        data: Some(json!({"hint": hint})),
    }
}

impl Events for Subscription {
    async fn next(&mut self) -> Option<Event> {
        Subscription::next(self).await.map(event_value)
    }
}

/// An item of a subscription as the params of its notification.
pub fn event_value(item: SubscriptionItem) -> Value {
    match item {
        SubscriptionItem::Event(line) => serde_json::to_value(line).unwrap_or(Value::Null),
        SubscriptionItem::Gap { from_seq, to_seq } => {
            json!({"event": GAP, "from_seq": from_seq, "to_seq": to_seq})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_method_is_answered_with_the_near_one() {
        let error = unknown_method("create_subagent");
        assert_eq!(error.code, METHOD_NOT_FOUND);
        let hint = json!({"hint": "did you mean `create_sub_agent`?"});
        assert_eq!(error.data, Some(hint));
        let far = unknown_method("zzz").data.unwrap();
        let far = far["hint"].as_str().unwrap();
        for method in METHODS {
            assert!(far.contains(method), "{method}: {far}");
        }
    }

    #[test]
    fn a_gap_says_what_is_missing() {
        let gap = SubscriptionItem::Gap {
            from_seq: 3,
            to_seq: 9,
        };
        assert_eq!(
            event_value(gap),
            json!({"event": "gap", "from_seq": 3, "to_seq": 9})
        );
    }
}
