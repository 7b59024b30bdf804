//! What the doctor found, and what it comes to.

use std::path::PathBuf;

use confine::probe::Obstacle;
use confine::report::Confinement;
use protocol::error::ToolError;
use protocol::exit;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Something that keeps agents from running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to try; may be empty.
    pub hint: String,
}

impl From<ToolError> for Problem {
    fn from(error: ToolError) -> Self {
        Problem {
            message: error.message,
            hint: error.hint,
        }
    }
}

/// The directory in which agents would work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceReport {
    /// Absolute.
    pub path: PathBuf,
    /// Room on its disk for this user; none when the system does not tell.
    pub free_bytes: Option<u64>,
    /// What keeps agents from working in it.
    pub problem: Option<Problem>,
}

/// One executable beside `leader`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramReport {
    /// Which.
    pub name: &'static str,
    /// Where it was looked for.
    pub path: PathBuf,
    /// What it says to `--version`; none when it says nothing.
    pub version: Option<String>,
    /// What keeps it from being started.
    pub problem: Option<Problem>,
}

/// How agents are held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfinementReport {
    /// The least that the configuration takes.
    pub required: String,
    /// The most that it lets be tried.
    pub highest: String,
    /// The delegated directory that it names.
    pub cgroup: Option<PathBuf>,
    /// What was seen to stand; none when it could not be tried out.
    pub enforced: Option<Confinement>,
    /// What stands in the way of the next rung, and the line that changes it.
    pub next: Option<Obstacle>,
    /// All that stands in the way of anything, nearest first.
    pub obstacles: Vec<Obstacle>,
    /// That less stands than is required.
    pub shortfall: Option<Problem>,
    /// Why it could not be tried out.
    pub problem: Option<Problem>,
}

/// A file of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigFileReport {
    /// Where.
    pub path: PathBuf,
    /// Whether it is there.
    pub present: bool,
}

/// Where the configuration is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigReport {
    /// The user's file and the workspace's, where they are looked for.
    pub files: Vec<ConfigFileReport>,
    /// The values that are not built in: key and source.
    pub values: Vec<(String, String)>,
    /// What was ignored.
    pub warnings: Vec<String>,
    /// Why it can't be used.
    pub problem: Option<Problem>,
}

/// Whether a model answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Reached {
    /// It was not asked, with the reason.
    NotAsked {
        /// Why.
        why: String,
    },
    /// It answered.
    Answered {
        /// After so many milliseconds.
        took_ms: u64,
    },
    /// It did not, or refused; the model's `problem` says why.
    Failed {
        /// After so many milliseconds.
        took_ms: u64,
    },
}

/// The model for agents whose creator names none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelReport {
    /// Its key in the configuration.
    pub key: Option<String>,
    /// Its provider's dialect.
    pub provider: Option<String>,
    /// Its server; empty for a script.
    pub server: Option<String>,
    /// Its name there, or the script.
    pub model: Option<String>,
    /// The variable that holds its key.
    pub key_variable: Option<String>,
    /// Whether it answers.
    pub reached: Reached,
    /// Why there is none, or why it does not answer.
    pub problem: Option<Problem>,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Of the leader.
    pub version: &'static str,
    /// Of the kernel.
    pub kernel: String,
    /// Where agents would work.
    pub workspace: WorkspaceReport,
    /// `worker` and `jail`.
    pub programs: Vec<ProgramReport>,
    /// How agents are held.
    pub confinement: ConfinementReport,
    /// Where the configuration is from.
    pub config: ConfigReport,
    /// The model for agents whose creator names none.
    pub model: ModelReport,
    /// What is odd and keeps nobody from anything.
    pub warnings: Vec<String>,
}

/// What a report comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Agents can run.
    Ready,
    /// Something keeps them from running.
    NotReady,
    /// They are not held by what is required.
    RequireNotMet,
}

impl Verdict {
    /// The exit code that tells of it.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Ready => exit::SUCCESS,
            Verdict::NotReady => exit::LEADER_ENVIRONMENT,
            Verdict::RequireNotMet => exit::CONFINEMENT_REFUSED,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ready => "ready",
            Verdict::NotReady => "not_ready",
            Verdict::RequireNotMet => "require_not_met",
        }
    }
}

impl Report {
    /// Everything that keeps agents from running, in the order in which it would be met.
    pub fn problems(&self) -> Vec<&Problem> {
        let programs = self.programs.iter().map(|program| &program.problem);
        [&self.config.problem, &self.workspace.problem]
            .into_iter()
            .chain(programs)
            .chain([
                &self.confinement.problem,
                &self.confinement.shortfall,
                &self.model.problem,
            ])
            .flatten()
            .collect()
    }

    /// What it comes to. That the required confinement can't be had goes before the rest: no
    /// agent is to be started here, whatever else is mended.
    pub fn verdict(&self) -> Verdict {
        if self.confinement.shortfall.is_some() {
            Verdict::RequireNotMet
        } else if self.problems().is_empty() {
            Verdict::Ready
        } else {
            Verdict::NotReady
        }
    }

    /// The report for programs.
    pub fn to_json(&self) -> Value {
        let verdict = self.verdict();
        let mut value = Map::new();
        value.insert("success".to_owned(), json!(verdict == Verdict::Ready));
        value.insert("verdict".to_owned(), json!(verdict.word()));
        // Plain data with text keys always is an object.
        if let Ok(Value::Object(fields)) = serde_json::to_value(self) {
            value.extend(fields);
        }
        Value::Object(value)
    }
}

#[cfg(test)]
pub(crate) fn sample_report() -> Report {
    use crate::os::rung::test_kit::found;
    use confine::report::Rung;

    let machine = found(Rung::Pidns);
    let program = |name, path: &str, version: &str| ProgramReport {
        name,
        path: PathBuf::from(path),
        version: Some(version.to_owned()),
        problem: None,
    };
    Report {
        version: "0.1.0",
        kernel: "6.12.1".to_owned(),
        workspace: WorkspaceReport {
            path: "/w".into(),
            free_bytes: Some(3 << 30),
            problem: None,
        },
        programs: vec![
            program("worker", "/bin/worker", "worker 0.1.0"),
            program("jail", "/bin/jail", "jail 0.1.0"),
        ],
        confinement: ConfinementReport {
            required: "none".to_owned(),
            highest: "cgroup2".to_owned(),
            cgroup: None,
            enforced: Some(machine.confinement),
            next: machine.obstacles.first().cloned(),
            obstacles: machine.obstacles,
            shortfall: None,
            problem: None,
        },
        config: ConfigReport {
            files: vec![
                ConfigFileReport {
                    path: "/h/muster.toml".into(),
                    present: true,
                },
                ConfigFileReport {
                    path: "/w/muster.toml".into(),
                    present: false,
                },
            ],
            values: vec![("language".to_owned(), "MUSTER_LANGUAGE".to_owned())],
            warnings: Vec::new(),
            problem: None,
        },
        model: ModelReport {
            key: Some("m".to_owned()),
            provider: Some("openai".to_owned()),
            server: Some("http://127.0.0.1:1/v1".to_owned()),
            model: Some("big".to_owned()),
            key_variable: Some("MY_KEY".to_owned()),
            reached: Reached::Answered { took_ms: 420 },
            problem: None,
        },
        warnings: Vec::new(),
    }
}

#[cfg(test)]
pub(crate) fn sample_problem(message: &str) -> Problem {
    Problem {
        message: message.to_owned(),
        hint: format!("mend {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_problem_keeps_agents_from_running_and_a_shortfall_goes_before_all() {
        let good = sample_report();
        assert_eq!((good.verdict(), good.problems()), (Verdict::Ready, vec![]));
        type Break = fn(&mut Report, Option<Problem>);
        let breaks: [Break; 5] = [
            |it, problem| it.config.problem = problem,
            |it, problem| it.workspace.problem = problem,
            |it, problem| it.programs[1].problem = problem,
            |it, problem| it.confinement.problem = problem,
            |it, problem| it.model.problem = problem,
        ];
        let problem = sample_problem("x");
        for broken in breaks {
            let mut report = sample_report();
            broken(&mut report, Some(problem.clone()));
            assert_eq!(report.verdict(), Verdict::NotReady);
            assert_eq!(report.problems(), [&problem]);
            report.confinement.shortfall = Some(problem.clone());
            assert_eq!(report.verdict(), Verdict::RequireNotMet);
        }
    }

    #[test]
    fn each_verdict_has_its_code() {
        let codes = [Verdict::Ready, Verdict::NotReady, Verdict::RequireNotMet]
            .map(|verdict| verdict.exit_code());
        assert_eq!(codes, [0, 3, 5]);
    }

    #[test]
    fn programs_get_everything_under_names_that_stay() {
        let value = sample_report().to_json();
        let names: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "success",
                "verdict",
                "version",
                "kernel",
                "workspace",
                "programs",
                "confinement",
                "config",
                "model",
                "warnings"
            ]
        );
        assert_eq!(value["verdict"], "ready");
        assert_eq!(value["confinement"]["enforced"]["rung"], "pidns");
        assert_eq!(
            value["confinement"]["next"],
            json!({"rung": "cgroup2", "reason": "no cgroup2", "remedy": "allow cgroup2"})
        );
        assert_eq!(value["workspace"]["free_bytes"], 3u64 << 30);
    }
}
