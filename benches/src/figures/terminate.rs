//! From the terminate of five agents with shells, without grace, to the last of their processes
//! gone; against process groups of the floor's agents that are killed.

use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Instant;

use confine::signal::kill_group;
use serde_json::json;

use super::trees;
use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::process::Holds;
use crate::row::{Goal, Row, Unit};

const ROUNDS: usize = 60;
const AGENTS: usize = 5;

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let floor = floor_ms(ground)?;
        let our = ours_ms(ground)?;
        if round > 0 {
            floors.push(floor);
            ours.push(our);
        }
    }
    let what = "terminate of five agents with shells";
    let unit = Unit::Milliseconds;
    Ok(vec![
        Row::paired(what, unit, &ours, &floors, Goal::RatioMax(5.0)),
        Row::percentile(what, unit, &ours, 99, Goal::Max(50.0)),
    ])
}

fn ours_ms(ground: &Ground) -> Result<f64, BenchError> {
    // A new one each round, for a conversation has only so many numbers for its agents.
    let serve = trees::leader(ground)?;
    let mut client = serve.connect()?;
    let (numbers, holds) = trees::grow(&serve, &mut client, AGENTS)?;
    let begun = Instant::now();
    for number in &numbers {
        client.send("terminate_sub_agent", json!({"agent_id": number}))?;
    }
    let gone = holds.gone(BUDGET)?;
    for _ in &numbers {
        let answer = client.line()?;
        if answer["result"]["success"] != json!(true) {
            return Err(BenchError::Failed(format!("a terminate failed: {answer}")));
        }
    }
    Ok((gone - begun).as_secs_f64() * 1e3)
}

/// Kills five groups, each of an agent of the floor and its shell.
fn floor_ms(ground: &Ground) -> Result<f64, BenchError> {
    ground.model.begin(Script::Hold);
    let mut children: Vec<Child> = Vec::new();
    for _ in 0..AGENTS {
        let child = ground
            .floor("floor_agent")
            .arg("shell")
            .process_group(0)
            .spawn()
            .map_err(BenchError::io("start the floor"))?;
        children.push(child);
    }
    ground.model.arrival(AGENTS, BUDGET)?;
    let mut pids = Vec::new();
    for child in &children {
        pids.push(child.id());
        pids.extend(trees::sleepers(child.id(), 1)?.iter().map(|seen| seen.pid));
    }
    let holds = Holds::take(pids);
    let begun = Instant::now();
    for child in &children {
        kill_group(child.id())
            .map_err(|error| BenchError::Failed(format!("the floor can't be killed: {error}")))?;
    }
    let gone = holds.gone(BUDGET)?;
    for mut child in children {
        child.wait().map_err(BenchError::io("wait for the floor"))?;
    }
    Ok((gone - begun).as_secs_f64() * 1e3)
}
