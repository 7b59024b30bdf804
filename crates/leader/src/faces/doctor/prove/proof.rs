//! What a proof has shown.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::faces::doctor::prove::attempts::Attempts;
use crate::faces::doctor::prove::secrets::Found;

/// How the trees of a round were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// One agent was terminated, with no grace.
    Terminated,
    /// The leader was killed with SIGKILL.
    LeaderKilled,
}

/// What was left of some trees, and when they were empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Emptied {
    /// Escaping processes that are still there.
    pub survivors: usize,
    /// From the kill to the end of the last one; none while there are survivors.
    pub took: Option<Duration>,
}

/// One kill and what it left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// Which.
    pub ending: Ending,
    /// Agents whose trees it had to end.
    pub agents: usize,
    /// Escaping processes in these trees.
    pub processes: usize,
    /// Those that it left.
    pub survivors: usize,
    /// From the kill to the empty trees; none while there are survivors.
    pub empty_ms: Option<f64>,
}

impl Round {
    /// A round that ended like this.
    pub fn new(ending: Ending, agents: usize, processes: usize, emptied: Emptied) -> Self {
        Round {
            ending,
            agents,
            processes,
            survivors: emptied.survivors,
            // Microseconds are as fine as a look at a pipe is.
            empty_ms: emptied.took.map(|took| took.as_micros() as f64 / 1_000.0),
        }
    }
}

/// What was shown on one rung.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RungProof {
    /// The rung that stood.
    pub rung: String,
    /// All that was enforced on the agents.
    pub confinement: Value,
    /// The kills.
    pub rounds: Vec<Round>,
    /// Where the key of the agents' model was found.
    pub key: Found,
    /// What commands tried to write and to reach.
    pub attempts: Vec<Attempts>,
}

/// Everything that was shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// By rung, the one in force first.
    pub rungs: Vec<RungProof>,
    /// How long it took.
    pub took: Duration,
}

impl Proof {
    /// Processes that outlived their kill, on all rungs.
    pub fn survivors(&self) -> usize {
        let rounds = self.rungs.iter().flat_map(|rung| &rung.rounds);
        rounds.map(|round| round.survivors).sum()
    }

    /// How often a key was found where it must not be, on all rungs.
    pub fn leaks(&self) -> usize {
        self.rungs.iter().map(|rung| rung.key.times()).sum()
    }

    /// Attempts to write or to connect that succeeded although they must not, on all rungs.
    pub fn breaches(&self) -> usize {
        let attempts = self.rungs.iter().flat_map(|rung| &rung.attempts);
        attempts
            .map(|attempts| attempts.broken.len() + attempts.escapes())
            .sum()
    }

    /// Whether everything was as it has to be.
    pub fn holds(&self) -> bool {
        self.survivors() == 0 && self.leaks() == 0 && self.breaches() == 0
    }

    /// The proof for programs.
    pub fn to_json(&self) -> Value {
        let mut value = Map::new();
        value.insert("success".to_owned(), json!(self.holds()));
        value.insert("survivors".to_owned(), json!(self.survivors()));
        value.insert("leaks".to_owned(), json!(self.leaks()));
        value.insert("breaches".to_owned(), json!(self.breaches()));
        value.insert("rungs".to_owned(), json!(self.rungs));
        value.insert(
            "seconds".to_owned(),
            json!(self.took.as_millis() as f64 / 1_000.0),
        );
        Value::Object(value)
    }
}

#[cfg(test)]
pub(crate) fn sample_proof(survivors: usize) -> Proof {
    use protocol::confinement::{NetworkMode, WriteMode};
    let took = (survivors == 0).then(|| Duration::from_micros(2_140));
    let emptied = Emptied { survivors, took };
    let none = Emptied {
        survivors: 0,
        took: Some(Duration::from_millis(5)),
    };
    Proof {
        rungs: vec![RungProof {
            rung: "pidns".to_owned(),
            confinement: json!({"rung": "pidns", "kill": "complete", "gaps": ["a gap"]}),
            rounds: vec![
                Round::new(Ending::Terminated, 1, 4, none),
                Round::new(Ending::LeaderKilled, 3, 12, emptied),
            ],
            key: Found {
                looks: 4,
                files_looked_at: 31,
                ..Found::default()
            },
            attempts: vec![Attempts {
                write: WriteMode::Workspace,
                filesystem: "workspace".to_owned(),
                writes: 19,
                broken: Vec::new(),
                open: vec!["area/new".to_owned()],
                network: NetworkMode::Model,
                commands_network: "loopback".to_owned(),
                ways: 4,
                connections: 0,
            }],
        }],
        took: Duration::from_millis(1_234),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_every_figure_and_success_only_without_survivors() {
        assert_eq!(
            sample_proof(0).to_json(),
            json!({
                "success": true,
                "survivors": 0,
                "leaks": 0,
                "breaches": 0,
                "rungs": [{
                    "rung": "pidns",
                    "confinement": {"rung": "pidns", "kill": "complete", "gaps": ["a gap"]},
                    "rounds": [
                        {"ending": "terminated", "agents": 1, "processes": 4, "survivors": 0,
                         "empty_ms": 5.0},
                        {"ending": "leader_killed", "agents": 3, "processes": 12, "survivors": 0,
                         "empty_ms": 2.14},
                    ],
                    "key": {"looks": 4, "environment": 0, "environ": 0, "cmdline": 0,
                            "files": 0, "files_looked_at": 31},
                    "attempts": [{"write": "workspace", "filesystem": "workspace", "writes": 19,
                                  "broken": [], "open": ["area/new"], "network": "model",
                                  "commands_network": "loopback", "ways": 4, "connections": 0}],
                }],
                "seconds": 1.234,
            })
        );
        let failed = sample_proof(2).to_json();
        assert_eq!(
            (&failed["success"], &failed["survivors"]),
            (&json!(false), &json!(2))
        );
        assert_eq!(failed["rungs"][0]["rounds"][1]["empty_ms"], Value::Null);
        let mut leaky = sample_proof(0);
        leaky.rungs[0].key.environ = 3;
        let leaky = leaky.to_json();
        assert_eq!(
            (&leaky["success"], &leaky["leaks"]),
            (&json!(false), &json!(3))
        );
        let mut open = sample_proof(0);
        open.rungs[0].attempts[0]
            .broken
            .push(".git/config".to_owned());
        open.rungs[0].attempts[0].connections = 2;
        let open = open.to_json();
        assert_eq!(
            (&open["success"], &open["breaches"]),
            (&json!(false), &json!(3))
        );
    }
}
