//! Starts one worker through the jail: its own process group, three pipes, nothing else.
//!
//! Only what `posix_spawn` can do is used here. A hook between fork and exec would make the
//! standard library fork the whole leader, which costs tens of milliseconds once it is large.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use confine::policy::JailPolicy;
use protocol::secret::is_secret_name;
use tokio::process::{Child, Command};

use crate::os::programs::{JAIL_VARIABLE, Program, Programs, SpawnProblem};

/// Set in every worker, so that a `leader` started by an agent's command knows where it is.
pub const NESTED_VARIABLE: &str = "MUSTER_NESTED";

/// Tells a worker the highest rung that its commands may be held on.
pub const HIGHEST_VARIABLE: &str = "MUSTER_CONFINEMENT_HIGHEST";

/// All that a start needs.
#[derive(Debug, Clone)]
pub struct SpawnOrder {
    /// The executables.
    pub programs: Programs,
    /// What the jail is to hold.
    pub policy: JailPolicy,
    /// The agent's `job.json`, absolute.
    pub job_file: PathBuf,
    /// The workspace, absolute; the worker's working directory.
    pub workspace: PathBuf,
    /// Variables that the worker must not see, such as those that hold keys.
    pub hidden_variables: Vec<String>,
}

/// Starts the jail, which starts the worker. Needs a running tokio runtime.
///
/// # Errors
/// When the workspace is gone, an executable is not fit, or the system refuses.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that starts workers"
)]
pub fn spawn(order: &SpawnOrder) -> Result<Child, SpawnProblem> {
    // The kernel gives the same "No such file or directory" for a missing program and a missing
    // working directory, so both are looked at before.
    if !order.workspace.is_dir() {
        return Err(SpawnProblem::WorkspaceGone {
            path: order.workspace.clone(),
        });
    }
    order.programs.check()?;
    let arguments: Vec<OsString> = vec![
        "--job".into(),
        order.job_file.clone().into(),
        "--channel".into(),
        "stdio".into(),
    ];
    let mut command = Command::new(&order.programs.jail);
    command
        .args(
            order
                .policy
                .to_args(order.programs.worker.as_os_str(), &arguments),
        )
        .current_dir(&order.workspace)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env(NESTED_VARIABLE, "1")
        // Without a keeper the worker starts its commands through a jail itself: this one, and on
        // no higher rung than it may be on.
        .env(JAIL_VARIABLE, &order.programs.jail)
        .env(HIGHEST_VARIABLE, order.policy.highest.name())
        // A leader that unwinds must not leave a tree behind.
        .kill_on_drop(true);
    for name in &order.hidden_variables {
        command.env_remove(name);
    }
    command.spawn().map_err(|source| SpawnProblem::Refused {
        program: Program::Jail,
        path: order.programs.jail.clone(),
        source,
    })
}

/// The variables of this process that no tree may get: those that models name, and whatever is
/// called like a secret, unless it is `allowed`. A key of a model is never allowed.
pub fn secret_variables(named: impl Iterator<Item = String>, allowed: &[String]) -> Vec<String> {
    let present = std::env::vars_os()
        // A name that is no UTF-8 is removed under its own bytes or not at all, and none of ours
        // looks like one.
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| is_secret_name(name) && !allowed.contains(name));
    let mut all: Vec<String> = named.chain(present).collect();
    all.sort();
    all.dedup();
    all
}
