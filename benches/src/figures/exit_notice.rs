//! From the end of a worker to the event on the control socket that tells it, which comes once the
//! end is on the disk.

use std::time::Instant;

use confine::signal::{PidFd, Signal};
use serde_json::json;

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::process::{Holds, descendants};
use crate::row::{Goal, Row, Unit};
use crate::serve::Serve;

const ROUNDS: usize = 120;

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    ground.configure("")?;
    let mut samples = Vec::new();
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let took = once_ms(ground)?;
        if round > 0 {
            samples.push(took);
        }
    }
    let what = "worker's end to the event that tells it";
    let unit = Unit::Milliseconds;
    Ok(vec![
        Row::percentile(what, unit, &samples, 50, Goal::Max(1.0)),
        Row::percentile(what, unit, &samples, 99, Goal::Max(5.0)),
    ])
}

fn once_ms(ground: &Ground) -> Result<f64, BenchError> {
    // A new one each round, for a conversation has only so many numbers for its agents.
    ground.clear()?;
    ground.model.begin(Script::Hold);
    let serve = Serve::start(ground)?;
    let mut events = serve.connect()?;
    events.call("subscribe", json!({}))?;
    Serve::create(&mut serve.connect()?, "results")?;
    ground.model.arrival(1, BUDGET)?;
    let worker = descendants(serve.pid())?
        .into_iter()
        .find(|seen| seen.name == "worker")
        .ok_or_else(|| BenchError::Failed("no worker was found".to_owned()))?;
    let failed = |error: &dyn std::fmt::Display| {
        BenchError::Failed(format!("the worker can't be killed: {error}"))
    };
    let holds = Holds::take([worker.pid]);
    let hold = PidFd::open(worker.pid).map_err(|error| failed(&error))?;
    hold.send(Signal::SIGKILL).map_err(|error| failed(&error))?;
    let ended = holds.gone(BUDGET)?;
    loop {
        let event = events.line()?;
        if event["params"]["event"] == json!("agent.ended") {
            return Ok(ended.elapsed().as_secs_f64() * 1e3);
        }
        if Instant::now() - ended > BUDGET {
            return Err(BenchError::Failed(format!("no end was told, but {event}")));
        }
    }
}
