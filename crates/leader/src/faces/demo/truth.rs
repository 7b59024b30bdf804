//! Whether the story came true: what it claims, compared with what was seen.

use protocol::result::AgentResult;
use protocol::status::{Status, StopReason};

use crate::faces::demo::pulse::Fate;
use crate::faces::demo::script::Role;

/// What was seen of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// How the agents ended, by number.
    pub results: Vec<AgentResult>,
    /// What became of the process that was left behind.
    pub fate: Fate,
    /// From the first start to the last word, in milliseconds.
    pub took_ms: u64,
}

impl Seen {
    /// How the agent of a role ended.
    pub fn result(&self, role: Role) -> Option<&AgentResult> {
        self.results
            .iter()
            .find(|result| Role::of(result.agent_id) == Some(role))
    }

    /// The rung that held the agent which left a process behind.
    pub fn rung(&self) -> &str {
        self.result(Role::LeavesOne)
            .and_then(|result| result.confinement["rung"].as_str())
            .unwrap_or("unknown")
    }

    /// What of the story did not come true, each in a sentence; nothing when all of it did.
    pub fn untruths(&self) -> Vec<String> {
        let mut wrong: Vec<String> = Role::ALL
            .into_iter()
            .filter_map(|role| self.untruth(role))
            .collect();
        wrong.extend(self.untruth_of_fate());
        wrong
    }

    /// What did not come true of one agent's part, in a sentence.
    pub fn untruth(&self, role: Role) -> Option<String> {
        let number = role.number();
        let Some(result) = self.result(role) else {
            return Some(format!("agent {number} has no end"));
        };
        let (status, reason) = match role {
            Role::Collects | Role::LeavesOne => (Status::Completed, None),
            Role::Dawdles => (Status::TimedOut, Some(StopReason::Deadline)),
        };
        if (result.status, result.stop_reason) != (status, reason) {
            let why = result
                .error
                .as_ref()
                .map_or(String::new(), |error| format!(": {}", error.message));
            return Some(format!(
                "agent {number} was to end {status}, and ended {}{why}",
                result.status
            ));
        }
        let file = role.shown_file()?;
        let delivered = result.deliverables_files.iter().any(|name| name == file);
        (!delivered).then(|| format!("agent {number} did not deliver {file}"))
    }

    fn untruth_of_fate(&self) -> Option<String> {
        match (self.fate, self.rung()) {
            (Fate::DiedWithItsAgent, _) => None,
            // A process group holds no process that leaves it, which is told as it is.
            (Fate::EndedByTheDemo, "group") => None,
            (Fate::EndedByTheDemo, rung) => Some(format!(
                "the process that agent 3 left behind outlived it on the rung {rung}"
            )),
            (Fate::NeverUp, _) => {
                Some("the process that agent 3 was to leave behind was never there".to_owned())
            }
            (Fate::StillThere, _) => Some(
                "the process that agent 3 left behind is still there; it ends by itself within \
                 a minute"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
pub(crate) mod test_kit {
    use super::*;
    use crate::render::result::sample_result;
    use protocol::ids::AgentId;

    /// A story that came true on this rung.
    pub(crate) fn seen(rung: &str) -> Seen {
        let result = |role: Role| AgentResult {
            agent_id: AgentId::new(role.number()).unwrap(),
            display_name: format!("Sub-agent {}", role.number()),
            summary: role.summary().to_owned(),
            deliverables_dir: format!("sub_agent_results/agent_{}", role.number()),
            deliverables_files: role.shown_file().map(str::to_owned).into_iter().collect(),
            confinement: serde_json::json!({"rung": rung}),
            ..sample_result()
        };
        let mut results: Vec<AgentResult> = Role::ALL.into_iter().map(result).collect();
        results[1].status = Status::TimedOut;
        results[1].stop_reason = Some(StopReason::Deadline);
        Seen {
            results,
            fate: match rung {
                "group" => Fate::EndedByTheDemo,
                _ => Fate::DiedWithItsAgent,
            },
            took_ms: 6_200,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::test_kit::seen;
    use super::*;

    #[test]
    fn a_story_that_came_true_has_nothing_to_take_back_on_any_rung() {
        for rung in ["cgroup2", "pidns", "subreaper", "group"] {
            assert_eq!(seen(rung).untruths(), Vec::<String>::new(), "{rung}");
        }
    }

    #[test]
    fn whatever_did_not_come_true_is_told() {
        let mut story = seen("pidns");
        story.fate = Fate::EndedByTheDemo;
        assert_eq!(
            story.untruths(),
            ["the process that agent 3 left behind outlived it on the rung pidns"]
        );
        story.fate = Fate::NeverUp;
        story.results[1].status = Status::Completed;
        story.results[1].stop_reason = None;
        story.results[0].deliverables_files.clear();
        story.results.pop();
        assert_eq!(
            story.untruths(),
            [
                "agent 1 did not deliver todo.md",
                "agent 2 was to end timed_out, and ended completed",
                "agent 3 has no end",
                "the process that agent 3 was to leave behind was never there"
            ]
        );
        let mut story = seen("group");
        story.fate = Fate::StillThere;
        assert_eq!(story.untruths().len(), 1);
    }
}
