//! A whole `leader run` with one tool call, from its start to its end, against the floor's leader.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::process::children_cpu_ms;
use crate::row::{Goal, Row, Unit};
use crate::stats::median;
use crate::worker::Sample;

const ROUNDS: usize = 60;
/// Processor time of a run beside that of its jail, in milliseconds.
const CPU_MS_MAX: f64 = 5.0;

/// What one run took, in milliseconds.
struct Took {
    first: f64,
    whole: f64,
    cpu: f64,
}

/// Three columns of numbers.
#[derive(Default)]
struct Columns {
    first: Vec<f64>,
    whole: Vec<f64>,
    cpu: Vec<f64>,
}

impl Columns {
    fn push(&mut self, took: &Took) {
        self.first.push(took.first);
        self.whole.push(took.whole);
        self.cpu.push(took.cpu);
    }
}

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let sample = Sample::take(ground)?;
    ground.configure("")?;
    let (mut floor, mut ours, mut jail) = (Columns::default(), Columns::default(), Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let of_floor = once(ground, &mut ground.floor("floor_leader"))?;
        let of_ours = once(ground, &mut our_run(ground))?;
        let of_jail = jail_cpu_ms(ground, &sample)?;
        // The first round warms caches up.
        if round > 0 {
            floor.push(&of_floor);
            ours.push(&of_ours);
            jail.push(of_jail);
        }
    }
    let unit = Unit::Milliseconds;
    let beside: Vec<f64> = ours
        .cpu
        .iter()
        .zip(&jail)
        .map(|(all, jail)| all - jail)
        .collect();
    let told = |what: &str, samples: &[f64], goal| {
        let mut row = Row::single(what, unit, median(samples), goal);
        row.samples = samples.len();
        row
    };
    Ok(vec![
        Row::paired(
            "`leader run` to its first request",
            unit,
            &ours.first,
            &floor.first,
            Goal::RatioMax(10.0),
        ),
        Row::paired(
            "`leader run` with one tool call",
            unit,
            &ours.whole,
            &floor.whole,
            Goal::RatioMax(4.0),
        ),
        told(
            "processor time of a run, without its jail",
            &beside,
            Goal::Max(CPU_MS_MAX),
        )
        .with_floor(median(&floor.cpu)),
        told("processor time of a jail", &jail, Goal::Told),
    ])
}

fn our_run(ground: &Ground) -> Command {
    let mut command = ground.ours("leader");
    command.args(["run", "--json", "Write the file."]);
    command
}

/// Runs one in an empty workspace.
fn once(ground: &Ground, command: &mut Command) -> Result<Took, BenchError> {
    ground.next()?;
    let arguments = json!({"file_path": "sub_agent_results/agent_1/out.txt", "content": "hello\n"});
    ground
        .model
        .begin(Script::Calls(vec![("write_file", arguments)]));
    let cpu_before = children_cpu_ms()?;
    let begun = Instant::now();
    let status = command.status().map_err(BenchError::io("start a run"))?;
    let whole = begun.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        return Err(BenchError::Failed(format!(
            "a run ended with {status}: {command:?}"
        )));
    }
    let first = ground.model.arrival(1, BUDGET)? - begun;
    Ok(Took {
        first: first.as_secs_f64() * 1e3,
        whole,
        cpu: children_cpu_ms()? - cpu_before,
    })
}

/// What a jail takes around a program that does nothing, without that program.
fn jail_cpu_ms(ground: &Ground, sample: &Sample) -> Result<f64, BenchError> {
    let nothing = Path::new("/bin/true");
    sample.lay_out(ground)?;
    let mut cpu = [0.0; 2];
    for (used, mut command) in cpu
        .iter_mut()
        .zip([sample.jail(ground, nothing)?, ground.command(nothing)])
    {
        let before = children_cpu_ms()?;
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .spawn()
            .map_err(BenchError::io("start a jail"))?;
        // The end of its input would be the end of the jail's tree.
        let input = child.stdin.take();
        let status = child.wait().map_err(BenchError::io("wait for a jail"))?;
        drop(input);
        if !status.success() {
            return Err(BenchError::Failed(format!(
                "a jail ended with {status}: {command:?}"
            )));
        }
        *used = children_cpu_ms()? - before;
    }
    Ok(cpu[0] - cpu[1])
}
