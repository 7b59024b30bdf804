//! Appends to the event log that are on the disk: one after the other against a bare fsync of the
//! same bytes, and those of eight producers at once.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use leader::core::input::ProcessIdentity;
use leader::core::record::{AgentTag, Record};
use leader::store::log::{EventLog, Pending, RunLock};
use protocol::ids::{AgentId, TaskId};
use protocol::secret::Mask;

use crate::error::BenchError;
use crate::ground::Ground;
use crate::row::{Goal, Row, Unit};

const ROUNDS: usize = 200;
const PRODUCERS: usize = 8;
const EVENTS_PER_PRODUCER: usize = 4_000;
/// Appends of one producer that are under way at once; the leader waits for none before the next.
const UNDER_WAY: usize = 32;
const TIMESTAMP: &str = "2026-01-02T03:04:05.678Z";

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    ground.next()?;
    let folder = ground.workspace();
    let record = record()?;
    let log = open(&folder.join("one"))?;
    let bare_path = folder.join("bare");
    let mut bare = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&bare_path)
        .map_err(BenchError::io("make a file"))?;
    let line = serde_json::to_vec(&record.to_line(1, TIMESTAMP.to_owned())).unwrap_or_default();
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ground.extent.rounds(ROUNDS) {
        let begun = Instant::now();
        bare.write_all(&line)
            .and_then(|()| bare.sync_data())
            .map_err(BenchError::io("write and sync a file"))?;
        let floor = begun.elapsed().as_secs_f64() * 1e3;
        let begun = Instant::now();
        written(append(&log, &record)?)?;
        let our = begun.elapsed().as_secs_f64() * 1e3;
        if round > 0 {
            floors.push(floor);
            ours.push(our);
        }
    }
    log.close();
    let rate = rate_of_producers(&folder.join("many"), &record, ground)?;
    Ok(vec![
        Row::paired(
            "durable append of an event",
            Unit::Milliseconds,
            &ours,
            &floors,
            Goal::RatioMax(2.0),
        ),
        Row::single(
            "durable events of eight producers",
            Unit::PerSecond,
            rate,
            Goal::Min(10_000.0),
        ),
    ])
}

/// An event as it is written for each agent, which must be on the disk before anything follows it.
fn record() -> Result<Record, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Failed(format!("an id: {error}"));
    Ok(Record::Running {
        agent: AgentTag {
            task_id: TaskId::new("sub_0199d3c2-5a10-7000-8000-000000000001")
                .map_err(|error| failed(&error))?,
            agent_id: AgentId::new(1).map_err(|error| failed(&error))?,
            role_id: None,
            display_name: "Sub-agent 1".to_owned(),
        },
        process: ProcessIdentity {
            pid: 4711,
            start_ticks: 123_456_789,
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        },
    })
}

fn open(folder: &Path) -> Result<EventLog, BenchError> {
    std::fs::create_dir(folder).map_err(BenchError::io("make a run's folder"))?;
    // A log is never written without a look for secrets.
    let mask = Mask::of(["sk-0123456789abcdefghij"]);
    let opened = RunLock::take(folder, "bench")
        .and_then(|lock| EventLog::open(lock, Box::new(|_| {}), mask))
        .map_err(|error| BenchError::Failed(format!("no event log: {error}")))?;
    Ok(opened.log)
}

fn append(log: &EventLog, record: &Record) -> Result<Pending, BenchError> {
    log.append_blocking(Box::new(record.clone()), TIMESTAMP.to_owned())
        .map_err(|error| BenchError::Failed(format!("no append: {error}")))
}

fn written(pending: Pending) -> Result<(), BenchError> {
    pending
        .wait()
        .map(drop)
        .map_err(|error| BenchError::Failed(format!("an append failed: {error}")))
}

fn rate_of_producers(folder: &Path, record: &Record, ground: &Ground) -> Result<f64, BenchError> {
    let log = open(folder)?;
    let each = match ground.extent {
        crate::ground::Extent::Full => EVENTS_PER_PRODUCER,
        crate::ground::Extent::Quick => EVENTS_PER_PRODUCER / 20,
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| scope.spawn(|| produce(&log, record, each)))
            .collect();
        producers.into_iter().try_for_each(|producer| {
            producer
                .join()
                .unwrap_or_else(|_| Err(BenchError::Failed("a producer broke off".to_owned())))
        })
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    log.close();
    Ok((PRODUCERS * each) as f64 / seconds)
}

fn produce(log: &EventLog, record: &Record, events: usize) -> Result<(), BenchError> {
    let mut under_way = VecDeque::new();
    for _ in 0..events {
        if under_way.len() == UNDER_WAY
            && let Some(oldest) = under_way.pop_front()
        {
            written(oldest)?;
        }
        under_way.push_back(append(log, record)?);
    }
    under_way.into_iter().try_for_each(written)
}
