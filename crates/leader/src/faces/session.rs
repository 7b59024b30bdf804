//! A live conversation in this process: its driver, and its control socket.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use protocol::config::Settings;
use protocol::error::ToolError;
use protocol::ids::AgentId;
use protocol::status::StopReason;
use tokio::task::JoinHandle;

use crate::driver::{Driver, DriverConfig, Handle, StopMode};
use crate::faces::curtain::Curtain;
use crate::faces::interrupt::Interrupts;
use crate::faces::job_control::JobControl;
use crate::faces::serve::ControlSocket;
use crate::faces::serve::methods::Conversation;
use crate::faces::surroundings::Surroundings;
use crate::store::retention::remove_if_nobody_ran;

/// How long the end of a conversation may take: the longest grace, and as much again for what is
/// slow to die.
const CLOSE_SECONDS_MAX: u64 = 2 * protocol::limits::GRACE_SECONDS_MAX as u64;

/// What a conversation is opened with.
#[derive(Debug)]
pub struct SessionOrder<'a> {
    /// Where.
    pub surroundings: &'a Surroundings,
    /// By which rules.
    pub settings: Settings,
    /// The worker's executable, where a flag names one.
    pub worker_bin: Option<PathBuf>,
    /// Numbers that no agent gets by itself.
    pub reserved_numbers: BTreeSet<AgentId>,
}

/// An open conversation.
#[derive(Debug)]
pub struct Session {
    handle: Handle,
    driver: JoinHandle<()>,
    socket: io::Result<ControlSocket>,
    job_control: JobControl,
}

impl Session {
    /// Starts the driver and opens the socket. A socket that can't be had is not fatal: the
    /// caller decides.
    ///
    /// # Errors
    /// When the conversation can't start: no worker, no place for its files, confinement refused.
    pub async fn open(order: SessionOrder<'_>) -> Result<Session, ToolError> {
        let mut config =
            DriverConfig::new(order.surroundings.workspace.clone(), order.settings.clone());
        config.environment = order.surroundings.variables.to_environment();
        config.worker_bin = order.worker_bin;
        config.reserved_numbers = order.reserved_numbers;
        let (handle, driver) = Driver::start(config)
            .await
            .map_err(|error| error.to_tool_error())?;
        let conversation = Conversation::new(handle.clone(), order.settings);
        let socket = ControlSocket::open(handle.run_dir(), conversation);
        Ok(Session {
            job_control: JobControl::mind(&handle),
            handle,
            driver,
            socket,
        })
    }

    /// The way to the driver.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// For whoever draws on the terminal: what it has drawn goes before a stop by Ctrl-Z.
    pub fn curtain(&self) -> Curtain {
        self.job_control.curtain()
    }

    /// The socket, or why there is none.
    pub fn socket(&self) -> &io::Result<ControlSocket> {
        &self.socket
    }

    /// Stops what still runs, waits until the log is closed, and lets callers of the socket read
    /// their last answers. A signal meanwhile kills what is left. What can't even be killed is
    /// given up after `CLOSE_SECONDS_MAX`: it dies with this process as far as the kernel can.
    pub async fn close(self, reason: StopReason, interrupts: &mut Interrupts) {
        let Session {
            handle,
            driver,
            socket,
            job_control,
        } = self;
        let run_dir = handle.run_dir().to_path_buf();
        let ending = async {
            tokio::select! {
                () = handle.close(reason, StopMode::Graceful) => {}
                _ = interrupts.next() => handle.close(reason, StopMode::Force).await,
            }
        };
        let limit = Duration::from_secs(CLOSE_SECONDS_MAX);
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::error!(
                seconds = CLOSE_SECONDS_MAX,
                "agents are still there after their kill; the leader goes without them"
            );
            driver.abort();
        }
        if let Ok(socket) = socket
            && let Err(error) = socket.close().await
        {
            tracing::warn!(%error, "the control socket's file could not be removed");
        }
        // It holds a handle, which must not outlive the conversation.
        drop(job_control);
        if let Err(error) = driver.await {
            tracing::error!(%error, "the driver did not end in order");
        }
        forget_if_nobody_ran(run_dir).await;
    }
}

/// A conversation without any agent, such as one whose only task was refused, is not worth a line
/// in a list of runs.
async fn forget_if_nobody_ran(run_dir: PathBuf) {
    match tokio::task::spawn_blocking(move || remove_if_nobody_ran(&run_dir)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a run without agents could not be removed"),
        Err(error) => tracing::error!(%error, "a run could not be looked at"),
    }
}
