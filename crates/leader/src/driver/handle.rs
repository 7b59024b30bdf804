//! What faces, tools and tests hold of a running conversation: one verb each, answered by the one
//! task that owns all agents.
//!
//! A handle is cheap to clone. Dropping the future of a call gives up that call's answer and
//! nothing else: the agents that it created go on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::ConversationId;
use protocol::status::StopReason;
use protocol::tool::leader::AgentRef;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::request::{
    AgentPlace, CreateAnswer, CreateOrderRequest, Origin, Reply, Request, ResumeRequest, StopMode,
    WaitRequest,
};
use crate::driver::subscription::Subscription;

/// What never changes about a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationInfo {
    /// Its id.
    pub conversation: ConversationId,
    /// Absolute, links resolved.
    pub workspace: PathBuf,
    /// `.muster/runs/<conversation>` of the workspace, absolute.
    pub run_dir: PathBuf,
}

/// A way to the driver of one conversation.
#[derive(Debug, Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    info: Arc<ConversationInfo>,
    closed: watch::Receiver<bool>,
}

impl Handle {
    pub(crate) fn new(
        requests: mpsc::Sender<Request>,
        info: ConversationInfo,
        closed: watch::Receiver<bool>,
    ) -> Self {
        Handle {
            requests,
            info: Arc::new(info),
            closed,
        }
    }

    /// The conversation's id.
    pub fn conversation(&self) -> &ConversationId {
        &self.info.conversation
    }

    /// The workspace, absolute, links resolved.
    pub fn workspace(&self) -> &Path {
        &self.info.workspace
    }

    /// The folder of the run's own files, absolute.
    pub fn run_dir(&self) -> &Path {
        &self.info.run_dir
    }

    /// Starts an agent. A blocking create answers at its end, a background one at once.
    ///
    /// # Errors
    /// When the parameters, the cap, the scope or the model refuse it, or the leader is going
    /// down. An agent that was accepted and then failed to start is a result, not an error.
    pub async fn create(&self, order: CreateOrderRequest) -> Result<CreateAnswer, ToolError> {
        let order = Box::new(order);
        self.ask(|reply| Request::Create { order, reply })
            .await
            .unwrap_or_else(Err)
    }

    /// Lets an agent of an earlier run go on, and answers at its end.
    ///
    /// # Errors
    /// When its place, model or deadline refuses it, or the leader is going down.
    pub async fn resume(&self, order: ResumeRequest) -> Result<CreateAnswer, ToolError> {
        let order = Box::new(order);
        self.ask(|reply| Request::Resume { order, reply })
            .await
            .unwrap_or_else(Err)
    }

    /// Ends an agent and answers when its process tree is gone.
    ///
    /// # Errors
    /// When there is no such agent, the reference is ambiguous, or it has ended already.
    pub async fn terminate(
        &self,
        agent: AgentRef,
        mode: StopMode,
        origin: Origin,
    ) -> Result<Value, ToolError> {
        self.ask(|reply| Request::Terminate {
            agent,
            mode,
            origin,
            reply,
        })
        .await
        .unwrap_or_else(Err)
    }

    /// Where agents stand; an unknown one is an entry with `found: false`.
    pub async fn status(&self, agents: Vec<AgentRef>) -> Value {
        or_result(self.ask(|reply| Request::Status { agents, reply }).await)
    }

    /// Waits until agents have ended, or the time is over.
    pub async fn wait(&self, wait: WaitRequest) -> Value {
        or_result(
            self.ask(|reply| Request::Wait { wait, reply })
                .await
                .unwrap_or_else(Err),
        )
    }

    /// The agents that run, wait or are idle.
    pub async fn list_active(&self) -> Value {
        or_result(self.ask(|reply| Request::ListActive { reply }).await)
    }

    /// All agents of the conversation, ended ones included.
    pub async fn ps(&self) -> Value {
        or_result(self.ask(|reply| Request::Ps { reply }).await)
    }

    /// The event log: all after `after_seq`, or what happens from now on.
    ///
    /// # Errors
    /// When the leader has ended.
    pub async fn subscribe(&self, after_seq: Option<u64>) -> Result<Subscription, ToolError> {
        self.ask(|reply| Request::Subscribe { after_seq, reply })
            .await
    }

    /// Stops every agent and takes no new ones; returns when all have ended. A second call with
    /// [`StopMode::Force`] kills what the first is still asking.
    pub async fn stop_all(&self, reason: StopReason, mode: StopMode) {
        let stopped = self
            .ask(|reply| Request::StopAll {
                reason,
                mode,
                reply,
            })
            .await;
        // A driver that is gone has stopped them all before it went.
        drop(stopped);
    }

    /// Lets every tree stand still, and all clocks with them; returns when they do, or after
    /// [`STILL_MS_MAX`](crate::os::trees::STILL_MS_MAX).
    pub async fn pause(&self) {
        // A driver that is gone has no trees.
        drop(self.ask(|reply| Request::Pause { reply }).await);
    }

    /// Lets trees and clocks go on after [`Handle::pause`].
    pub async fn go_on(&self) {
        drop(self.ask(|reply| Request::Continue { reply }).await);
    }

    /// Stops every agent and ends the driver; returns when both are done.
    pub async fn close(&self, reason: StopReason, mode: StopMode) {
        self.stop_all(reason, mode).await;
        drop(self.requests.send(Request::Close).await);
        self.closed().await;
    }

    /// Returns once the driver has ended: every agent has, and the log is closed.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        // An error means that the sender is gone, and with it the driver.
        drop(closed.wait_for(|closed| *closed).await);
    }

    /// Where an agent's files lie.
    ///
    /// # Errors
    /// When there is no such agent or the reference is ambiguous.
    pub async fn locate(&self, agent: AgentRef) -> Result<AgentPlace, ToolError> {
        self.ask(|reply| Request::Locate { agent, reply })
            .await
            .unwrap_or_else(Err)
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ToolError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(request(reply))
            .await
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

fn gone() -> ToolError {
    ToolError::new(
        ErrorCode::ShuttingDown,
        "this conversation's leader is shutting down",
    )
}

fn or_result(answer: Result<Value, ToolError>) -> Value {
    answer.unwrap_or_else(|error| error.to_result())
}
