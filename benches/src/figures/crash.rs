//! From SIGKILL of the leader to the last process of its agents gone.

use super::trees;
use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::row::{Goal, Row, Unit};

const ROUNDS: usize = 60;
/// One agent, as the goals were set for, and as many as run at once without further words.
const AGENTS: [usize; 2] = [1, 5];

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let mut samples = AGENTS.map(|_| Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        for (samples, agents) in samples.iter_mut().zip(AGENTS) {
            let took = once_ms(ground, agents)?;
            if round > 0 {
                samples.push(took);
            }
        }
    }
    let [one, five] = &samples;
    let what = |agents: &str| format!("leader killed to tree gone, {agents} with shells");
    let unit = Unit::Milliseconds;
    let (of_one, of_five) = (what("one agent"), what("five agents"));
    Ok(vec![
        Row::percentile(&of_one, unit, one, 50, Goal::Max(2.0)),
        Row::percentile(&of_one, unit, one, 99, Goal::Max(50.0)),
        Row::percentile(&of_five, unit, five, 50, Goal::Told),
        Row::percentile(&of_five, unit, five, 99, Goal::Max(50.0)),
    ])
}

fn once_ms(ground: &Ground, agents: usize) -> Result<f64, BenchError> {
    let mut serve = trees::leader(ground)?;
    let (_, holds) = trees::grow(&serve, &mut serve.connect()?, agents)?;
    let killed = serve.kill()?;
    let gone = holds.gone(BUDGET)?;
    serve.reap()?;
    Ok((gone - killed).as_secs_f64() * 1e3)
}
