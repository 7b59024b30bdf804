//! In which order the items of a batch run: what is ready, what must wait, and what will not run.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use protocol::manifest::SkipReason;

use crate::core::scope::Claims;

/// Ready items that are looked at for one that is in nobody's way. Beyond them the batch waits for
/// the next end, which costs some time and nothing else.
const LOOKED_AT_MAX: usize = 256;

/// Whether an item is new or goes on where an earlier run was cut off. Those that go on come first:
/// their numbers are theirs already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Goes on.
    Again,
    /// Is new.
    Anew,
}

/// What the schedule knows of one item.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it needs, by place in the list; without circles.
    pub needs: Vec<usize>,
    /// How it stands at the beginning.
    pub start: Start,
    /// Its deliverables dir and what else it writes, relative, as far as they are known.
    pub places: Option<(PathBuf, Vec<PathBuf>)>,
}

/// How an item stands at the beginning of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It is to run.
    Run(Want),
    /// An earlier run has settled it.
    Settled {
        /// Whether it succeeded.
        good: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting { missing: usize },
    Ready,
    Live,
    Settled,
}

/// An item that will not run, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// Which item.
    pub item: usize,
    /// Why.
    pub reason: SkipReason,
    /// The item whose end is the cause, if one is.
    pub cause: Option<usize>,
}

#[derive(Debug)]
struct Node {
    stage: Stage,
    want: Want,
    dependents: Vec<usize>,
    places: Option<(PathBuf, Vec<PathBuf>)>,
}

/// The schedule of one run of a batch.
#[derive(Debug)]
pub struct Schedule {
    nodes: Vec<Node>,
    ready: BTreeSet<(Want, usize)>,
    live: usize,
    claims: Claims,
    stopped: bool,
}

impl Schedule {
    /// A schedule, and what will not run from the beginning: its need failed in an earlier run.
    pub fn new(entries: Vec<Entry>) -> (Schedule, Vec<Skipped>) {
        let mut nodes: Vec<Node> = Vec::with_capacity(entries.len());
        let good = |at: usize| entries[at].start == (Start::Settled { good: true });
        for entry in &entries {
            let missing = entry.needs.iter().filter(|need| !good(**need)).count();
            let (stage, want) = match entry.start {
                Start::Run(want) => (Stage::Waiting { missing }, want),
                Start::Settled { .. } => (Stage::Settled, Want::Anew),
            };
            nodes.push(Node {
                stage,
                want,
                dependents: Vec::new(),
                places: entry.places.clone(),
            });
        }
        for (at, entry) in entries.iter().enumerate() {
            for need in &entry.needs {
                nodes[*need].dependents.push(at);
            }
        }
        let mut schedule = Schedule {
            nodes,
            ready: BTreeSet::new(),
            live: 0,
            claims: Claims::default(),
            stopped: false,
        };
        for at in 0..schedule.nodes.len() {
            schedule.promote(at);
        }
        let failed: Vec<usize> = (0..entries.len())
            .filter(|at| entries[*at].start == (Start::Settled { good: false }))
            .collect();
        let skipped = failed
            .into_iter()
            .flat_map(|at| schedule.skip_dependents(at))
            .collect();
        (schedule, skipped)
    }

    /// The next item to begin while fewer than `live_max` are live; it is live from then on.
    pub fn next(&mut self, live_max: usize) -> Option<usize> {
        if self.stopped || self.live >= live_max {
            return None;
        }
        let found = self
            .ready
            .iter()
            .take(LOOKED_AT_MAX)
            .copied()
            .find(|(_, at)| match &self.nodes[*at].places {
                Some((dir, paths)) => self.claims.conflict(dir, paths).is_none(),
                None => true,
            })?;
        self.ready.remove(&found);
        let (_, at) = found;
        self.nodes[at].stage = Stage::Live;
        self.live += 1;
        if let Some((dir, paths)) = &self.nodes[at].places {
            self.claims.take(at, dir, paths);
        }
        Some(at)
    }

    /// An item that was live has been settled. Says who will not run because of it.
    pub fn settled(&mut self, item: usize, good: bool) -> Vec<Skipped> {
        if self.nodes[item].stage != Stage::Live {
            return Vec::new();
        }
        self.nodes[item].stage = Stage::Settled;
        self.live -= 1;
        if let Some((dir, paths)) = self.nodes[item].places.clone() {
            self.claims.release(item, &dir, &paths);
        }
        if !good {
            return self.skip_dependents(item);
        }
        for dependent in self.nodes[item].dependents.clone() {
            if let Stage::Waiting { missing } = &mut self.nodes[dependent].stage {
                *missing -= 1;
            }
            self.promote(dependent);
        }
        Vec::new()
    }

    /// Nothing more begins. Says who will not run because of it.
    pub fn stop(&mut self, reason: SkipReason, cause: Option<usize>) -> Vec<Skipped> {
        self.stopped = true;
        self.ready.clear();
        let mut skipped = Vec::new();
        for (item, node) in self.nodes.iter_mut().enumerate() {
            if matches!(node.stage, Stage::Waiting { .. } | Stage::Ready) {
                node.stage = Stage::Settled;
                skipped.push(Skipped {
                    item,
                    reason,
                    cause,
                });
            }
        }
        skipped
    }

    /// Items that are live.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Whether nothing is live and nothing will be.
    pub fn is_over(&self) -> bool {
        self.live == 0 && self.ready.is_empty()
    }

    fn promote(&mut self, item: usize) {
        let node = &mut self.nodes[item];
        if node.stage == (Stage::Waiting { missing: 0 }) && !self.stopped {
            node.stage = Stage::Ready;
            self.ready.insert((node.want, item));
        }
    }

    /// Everything that needs the item, directly or not, will not run.
    fn skip_dependents(&mut self, item: usize) -> Vec<Skipped> {
        let mut skipped = Vec::new();
        let mut causes = vec![item];
        while let Some(cause) = causes.pop() {
            for dependent in self.nodes[cause].dependents.clone() {
                let node = &mut self.nodes[dependent];
                if matches!(node.stage, Stage::Waiting { .. }) {
                    node.stage = Stage::Settled;
                    skipped.push(Skipped {
                        item: dependent,
                        reason: SkipReason::DependencyFailed,
                        cause: Some(cause),
                    });
                    causes.push(dependent);
                }
            }
        }
        skipped
    }
}

/// The places of an item as its line names them; none where the leader chooses the directory.
pub fn places(
    deliverables_dir: Option<&str>,
    write_paths: &[String],
) -> Option<(PathBuf, Vec<PathBuf>)> {
    let tidy = |text: &str| {
        let parts = Path::new(text).components();
        parts
            .filter(|part| *part != Component::CurDir)
            .collect::<PathBuf>()
    };
    let paths: Vec<PathBuf> = write_paths.iter().map(|text| tidy(text)).collect();
    match (deliverables_dir, paths.is_empty()) {
        (Some(dir), _) => Some((tidy(dir), paths)),
        (None, true) => None,
        // The first write path stands for the directory that is not known yet.
        (None, false) => paths
            .split_first()
            .map(|(first, rest)| (first.clone(), rest.to_vec())),
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
