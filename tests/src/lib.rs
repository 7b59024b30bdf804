//! Harness of the system tests: it finds the executables beside itself, gives each test a
//! workspace and a home of its own, and judges processes by pipes, never by their names.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]

pub mod delegated;
pub mod escapees;
pub mod fifo;
pub mod ground;
pub mod leader;
pub mod model;
pub mod process;
pub mod refusals;
pub mod rounds;
pub mod script;
pub mod serve;
pub mod terminal;
pub mod waiting;
pub mod wall_clock;
pub mod workspace;

pub use delegated::Delegated;
pub use escapees::Escapees;
pub use fifo::Liveness;
pub use ground::{Ground, Rung, User, grounds, on_each, skipped, users};
pub use leader::{Ended, run, run_with_stdin};
pub use refusals::{Refusals, Whose};
pub use rounds::{Random, Times, process_time, rounds};
pub use script::Turn;
pub use serve::Serve;
pub use waiting::{until, within};
pub use workspace::{Workspace, tool_texts};

use std::path::PathBuf;

/// The path of one of our executables. Cargo gives no package the path of another's, so it is
/// looked for beside the folder that holds the test executable itself.
///
/// # Panics
/// When it is not there: the workspace was not built as a whole.
pub fn executable(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a running test has an executable");
    let deps = own.parent().expect("an executable lies in a folder");
    let found = [deps.parent().unwrap_or(deps), deps]
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "no `{name}` beside {}: run `cargo test --workspace`",
            own.display()
        )
    })
}
