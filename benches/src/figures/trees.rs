//! Agents whose tool runs a shell with a sleeping child, and holds on all of their processes.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::process::{Holds, Seen, descendants};
use crate::serve::{Client, Serve};

/// Between two looks while the trees grow, which is not measured.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// What each agent's tool runs: a shell that waits for a child of its own.
pub(super) fn script() -> Script {
    Script::Calls(vec![("run_command", json!({"command": "sleep 60; :"}))])
}

/// Starts so many agents and waits until each has its shell; gives their numbers and a hold on
/// every process below the leader.
pub(super) fn grow(
    serve: &Serve,
    client: &mut Client,
    agents: usize,
) -> Result<(Vec<u64>, Holds), BenchError> {
    let numbers = (0..agents)
        .map(|number| Serve::create(client, &format!("results/{number}")))
        .collect::<Result<Vec<u64>, BenchError>>()?;
    let trees = sleepers(serve.pid(), agents)?;
    Ok((numbers, Holds::take(trees.iter().map(|seen| seen.pid))))
}

/// Waits until so many processes below `root` sleep, and gives all below it.
pub(super) fn sleepers(root: u32, count: usize) -> Result<Vec<Seen>, BenchError> {
    let until = Instant::now() + BUDGET;
    loop {
        let all = descendants(root)?;
        if all.iter().filter(|seen| seen.name == "sleep").count() >= count {
            return Ok(all);
        }
        if Instant::now() >= until {
            return Err(BenchError::TooSlow {
                what: format!("the start of {count} shells"),
                seconds: BUDGET.as_secs(),
            });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A serving leader without any grace in an empty workspace, whose agents run shells.
pub(super) fn leader(ground: &Ground) -> Result<Serve, BenchError> {
    ground.next()?;
    ground.configure("grace_seconds = 0")?;
    ground.model.begin(script());
    Serve::start(ground)
}
