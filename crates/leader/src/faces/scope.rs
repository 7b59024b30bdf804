//! Goes into a scope of the user's service manager before anything else is done, where that brings
//! the rung `cgroup2`.

use std::ffi::OsString;
use std::path::Path;

use protocol::config::RequiredRung;

use crate::os::own_scope::{self, Facts, SCOPE_VARIABLE, Step};
use crate::os::spawn::NESTED_VARIABLE;
use crate::settings::{self, Variables};

/// The variable of the configuration that names a delegated directory.
const CGROUP_VARIABLE: &str = "MUSTER_CONFINEMENT_CGROUP";

/// Executes this very command line in a scope, where one is wanted and can be had; else gives the
/// variables to go on with, in a scope those that name its directory. Nobody is refused for want of
/// one: each run tells what it is held by.
pub(super) fn enter(
    command_line: &[OsString],
    directory: Option<&Path>,
    variables: Variables,
) -> Variables {
    let facts = Facts {
        state: variables.get(SCOPE_VARIABLE),
        runtime_dir: variables.get("XDG_RUNTIME_DIR"),
        wanted: is_wanted(directory, &variables),
    };
    match own_scope::step(facts) {
        Step::Stay => variables,
        Step::Ask(socket) => {
            let why = own_scope::go_inside(&socket, command_line);
            tracing::debug!(%why, "no scope of the service manager");
            variables
        }
        Step::TakeOver => match own_scope::take_over() {
            Ok(scope) => variables.with(CGROUP_VARIABLE, &scope.to_string_lossy()),
            Err(error) => {
                let why = std::error::Error::source(&error);
                tracing::warn!(%error, why, "the scope of this leader can't be used");
                variables
            }
        },
    }
}

/// Whether the configuration leaves room for it. One that can't be read is for the command itself
/// to tell.
fn is_wanted(directory: Option<&Path>, variables: &Variables) -> bool {
    if variables.has(NESTED_VARIABLE) {
        return false;
    }
    let workspace = directory.unwrap_or(Path::new("."));
    settings::load(workspace, variables, Vec::new()).is_ok_and(|settings| {
        settings.highest == RequiredRung::Cgroup2 && settings.cgroup.is_none()
    })
}
