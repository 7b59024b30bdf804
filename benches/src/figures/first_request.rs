//! From the spawn of a worker to its first model request: bare, and through the jail as the leader
//! starts it.

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::row::{Goal, Row, Unit};
use crate::stats::median;
use crate::worker::{Sample, Through};

const ROUNDS: usize = 100;
/// The goal of the specification for what confinement may add to a start, in milliseconds.
const JAIL_MS_MAX: f64 = 3.0;

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let sample = Sample::take(ground)?;
    let (mut floors, mut bares, mut jailed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let floor = floor_ms(ground)?;
        let bare = ours_ms(ground, &sample, Through::Nothing)?;
        let jail = ours_ms(ground, &sample, Through::Jail)?;
        // The first round warms caches up.
        if round > 0 {
            floors.push(floor);
            bares.push(bare);
            jailed.push(jail);
        }
    }
    let added: Vec<f64> = jailed
        .iter()
        .zip(&bares)
        .map(|(with, bare)| with - bare)
        .collect();
    let unit = Unit::Milliseconds;
    let mut added_row = Row::single(
        "first request: what the jail adds",
        unit,
        median(&added),
        Goal::Max(JAIL_MS_MAX),
    );
    added_row.samples = added.len();
    Ok(vec![
        Row::paired(
            "first request, worker bare",
            unit,
            &bares,
            &floors,
            Goal::RatioMax(3.0),
        ),
        Row::paired(
            "first request, through the jail",
            unit,
            &jailed,
            &floors,
            Goal::RatioMax(6.0),
        ),
        Row::paired(
            "first request, jail against bare",
            unit,
            &jailed,
            &bares,
            Goal::RatioMax(2.0),
        ),
        added_row,
    ])
}

/// The floor's leader with its agent, from its start to the agent's first request.
fn floor_ms(ground: &Ground) -> Result<f64, BenchError> {
    ground.model.begin(Script::Calls(Vec::new()));
    let begun = std::time::Instant::now();
    let mut child = ground
        .floor("floor_leader")
        .spawn()
        .map_err(BenchError::io("start the floor"))?;
    let arrived = ground.model.arrival(1, BUDGET)?;
    child.wait().map_err(BenchError::io("wait for the floor"))?;
    Ok((arrived - begun).as_secs_f64() * 1e3)
}

fn ours_ms(ground: &Ground, sample: &Sample, through: Through) -> Result<f64, BenchError> {
    sample.lay_out(ground)?;
    ground.model.begin(Script::Hold);
    let mut worker = sample.start(ground, through)?;
    worker.welcome(sample)?;
    let arrived = ground.model.arrival(1, BUDGET)?;
    Ok((arrived - worker.begun).as_secs_f64() * 1e3)
}
