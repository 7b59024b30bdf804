//! From the end of a worker to the leader's knowing of it, with the end of its whole tree between,
//! and to the event on the control socket that tells it, once the result was collected and the end
//! is on the disk.

use std::io::BufRead;
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
/// What the leader's log says when it knows.
const KNOWS: &str = "a process tree has ended";

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    ground.configure("")?;
    let (mut known, mut told) = (Vec::new(), Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let [knows, tells] = once_ms(ground)?;
        if round > 0 {
            known.push(knows);
            told.push(tells);
        }
    }
    let unit = Unit::Milliseconds;
    let what = "worker's end to the leader knowing";
    Ok(vec![
        Row::percentile(what, unit, &known, 50, Goal::Max(1.0)),
        Row::percentile(what, unit, &known, 99, Goal::Max(5.0)),
        Row::percentile("worker's end to its event", unit, &told, 50, Goal::Told),
    ])
}

/// Milliseconds from a worker's end to the leader's knowing and to its telling.
fn once_ms(ground: &Ground) -> Result<[f64; 2], BenchError> {
    // A new one each round, for a conversation has only so many numbers for its agents.
    ground.next()?;
    ground.model.begin(Script::Hold);
    let (serve, mut log) = Serve::start_with_log(ground)?;
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
    let mut line = String::new();
    while !line.contains(KNOWS) {
        line.clear();
        let read = log.read_line(&mut line);
        if read.map_err(BenchError::io("read the leader's log"))? == 0 {
            return Err(BenchError::Failed("the leader never knew".to_owned()));
        }
    }
    let known = ended.elapsed();
    loop {
        let event = events.line()?;
        if event["params"]["event"] == json!("agent.ended") {
            return Ok([known, ended.elapsed()].map(|took| took.as_secs_f64() * 1e3));
        }
        if Instant::now() - ended > BUDGET {
            return Err(BenchError::Failed(format!("no end was told, but {event}")));
        }
    }
}
