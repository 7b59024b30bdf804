//! Agents that wait for their model: the memory of each with its jail, init and keeper, the
//! leader's, and the threads of a worker.

use std::process::Child;

use crate::error::BenchError;
use crate::ground::{BUDGET, Extent, Ground};
use crate::model::Script;
use crate::process::{descendants, pss_mb, threads};
use crate::row::{Goal, Row, Unit};
use crate::serve::{Client, Serve};

/// How many agents wait at once.
const AGENTS: [usize; 4] = [1, 5, 50, 500];
/// A conversation has only so many numbers for its agents; more of them take more leaders.
const AGENTS_PER_LEADER: usize = 90;
const AGENTS_QUICK: [usize; 2] = [1, 5];
const FIRST_MB_MAX: f64 = 9.0;
const FURTHER_MB_MAX: f64 = 2.0;
const LEADER_MB_MAX: f64 = 8.0;
const LEADER_MB_PER_AGENT_MAX: f64 = 0.05;
const WORKER_THREADS_MAX: f64 = 2.0;

/// What was seen of so many agents.
struct Seen {
    agents: usize,
    /// Of the first leader, and how many of the agents are its own.
    leader_mb: f64,
    its_agents: usize,
    agents_mb: f64,
    threads_max: u64,
}

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let counts = match ground.extent {
        Extent::Full => &AGENTS[..],
        Extent::Quick => &AGENTS_QUICK,
    };
    let ours = look_at_ours(ground, counts)?;
    let floors = look_at_floors(ground, counts)?;
    let mut rows = Vec::new();
    let (Some(first), Some(first_floor)) = (ours.first(), floors.first()) else {
        return Ok(rows);
    };
    let row = |what: &str, ours, goal| Row::single(what, Unit::Megabytes, ours, goal);
    rows.push(
        row(
            "memory of the first agent",
            first.agents_mb,
            Goal::Max(FIRST_MB_MAX),
        )
        .with_floor(*first_floor),
    );
    for (seen, floor) in ours.iter().zip(&floors).skip(1) {
        let further = (seen.agents - 1) as f64;
        rows.push(
            row(
                &format!("memory of each further of {} agents", seen.agents),
                (seen.agents_mb - first.agents_mb) / further,
                Goal::Max(FURTHER_MB_MAX),
            )
            .with_floor((floor - first_floor) / further),
        );
    }
    for seen in &ours {
        if seen.its_agents < seen.agents {
            continue;
        }
        let most = LEADER_MB_MAX + LEADER_MB_PER_AGENT_MAX * seen.agents as f64;
        let what = format!("memory of a leader of {}", seen.agents);
        rows.push(row(&what, seen.leader_mb, Goal::Max(most)));
    }
    let most = ours.iter().map(|seen| seen.threads_max).max().unwrap_or(0);
    rows.push(Row::single(
        "threads of a worker, at most",
        Unit::Count,
        most as f64,
        Goal::CountMax(WORKER_THREADS_MAX),
    ));
    Ok(rows)
}

fn look_at_ours(ground: &Ground, counts: &[usize]) -> Result<Vec<Seen>, BenchError> {
    ground.next()?;
    ground.configure("max_concurrent = 1000\nmax_live = 5000")?;
    ground.model.begin(Script::Hold);
    let mut leaders: Vec<(Serve, Client)> = Vec::new();
    let mut seen = Vec::new();
    let mut started = 0;
    for &count in counts {
        while started < count {
            if started % AGENTS_PER_LEADER == 0 {
                let serve = Serve::start(ground)?;
                let client = serve.connect()?;
                leaders.push((serve, client));
            }
            if let Some((_, client)) = leaders.last_mut() {
                Serve::create(client, &format!("results/{started}"))?;
            }
            started += 1;
        }
        ground.model.arrival(count, BUDGET)?;
        let pids: Vec<u32> = leaders.iter().map(|(serve, _)| serve.pid()).collect();
        seen.push(look(&pids, count)?);
    }
    Ok(seen)
}

fn look(leaders: &[u32], agents: usize) -> Result<Seen, BenchError> {
    let mut seen = Seen {
        agents,
        leader_mb: leaders.first().map_or(Ok(0.0), |pid| pss_mb(*pid))?,
        its_agents: agents.min(AGENTS_PER_LEADER),
        agents_mb: 0.0,
        threads_max: 0,
    };
    for leader in leaders {
        for process in descendants(*leader)? {
            seen.agents_mb += pss_mb(process.pid)?;
            if process.name == "worker" {
                seen.threads_max = seen.threads_max.max(threads(process.pid)?);
            }
        }
    }
    Ok(seen)
}

/// Children that are killed when dropped.
#[derive(Debug, Default)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The memory of so many of the floor's agents, for each count.
fn look_at_floors(ground: &Ground, counts: &[usize]) -> Result<Vec<f64>, BenchError> {
    ground.next()?;
    ground.model.begin(Script::Hold);
    let mut children = Children::default();
    let mut seen = Vec::new();
    for &count in counts {
        while children.0.len() < count {
            let child = ground
                .floor("floor_agent")
                .spawn()
                .map_err(BenchError::io("start the floor"))?;
            children.0.push(child);
        }
        ground.model.arrival(count, BUDGET)?;
        let all = children.0.iter().map(|child| pss_mb(child.id()));
        seen.push(all.sum::<Result<f64, BenchError>>()?);
    }
    Ok(seen)
}
