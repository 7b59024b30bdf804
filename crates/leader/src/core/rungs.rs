//! Notices when an agent is held by less than this run was held by before.

use protocol::channel::CommandsHeld;
use protocol::config::RequiredRung;
use serde_json::{Value, json};

/// The best rung that this run has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rungs {
    best: Option<RequiredRung>,
}

/// A rung that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The rung that stood before.
    pub had: RequiredRung,
    /// The rung that stands now.
    pub has: RequiredRung,
}

impl Loss {
    /// The warning in the agent's result.
    pub fn warning(self) -> String {
        format!(
            "its confinement is `{}`, and `{}` stood in this run before: the machine holds less \
             than it did (`leader doctor` tells why)",
            self.has, self.had
        )
    }
}

impl Rungs {
    /// A run at whose start this rung was found, if anybody could tell.
    pub fn new(found: Option<RequiredRung>) -> Self {
        Rungs { best: found }
    }

    /// Takes what the jail of one agent says it enforces. The best rung stays in mind after a
    /// loss, so that each agent that is held by less is told of.
    pub fn see(&mut self, confinement: &Value) -> Option<Loss> {
        let has = serde_json::from_value(confinement["rung"].clone()).ok()?;
        match self.best {
            Some(had) if has < had => Some(Loss { had, has }),
            Some(_) | None => {
                self.best = Some(has);
                None
            }
        }
    }
}

/// Puts how a worker holds its commands beside what its jail enforces, whose gaps hold for them too.
pub fn hold_commands(confinement: &mut Value, commands: Option<CommandsHeld>) {
    if let (Value::Object(told), Some(mut commands)) = (confinement, commands) {
        let known = told.get("gaps").and_then(Value::as_array);
        let is_known = |gap: &String| known.is_some_and(|known| known.iter().any(|it| it == gap));
        commands.gaps.retain(|gap| !is_known(gap));
        told.insert("commands".to_owned(), json!(commands));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fall_below_the_best_is_told_and_a_rise_becomes_the_best() {
        use RequiredRung as R;
        let mut rungs = Rungs::new(Some(R::Subreaper));
        let mut see = |word: &str| rungs.see(&json!({"rung": word}));
        let loss = |had, has| Some(Loss { had, has });
        assert_eq!(see("subreaper"), None);
        assert_eq!(see("pidns"), None);
        assert_eq!(see("group"), loss(R::Pidns, R::Group));
        assert_eq!(see("subreaper"), loss(R::Pidns, R::Subreaper));
        assert_eq!(see("pidns"), None);
        assert_eq!(see("a rung of a later version"), None);
        assert_eq!(see("group"), loss(R::Pidns, R::Group));
    }

    #[test]
    fn without_a_look_at_the_start_the_first_agent_sets_the_measure() {
        let mut rungs = Rungs::new(None);
        assert_eq!(rungs.see(&Value::Null), None);
        assert_eq!(rungs.see(&json!({"rung": "pidns"})), None);
        let loss = rungs.see(&json!({"rung": "group"})).unwrap();
        assert_eq!(
            loss.warning(),
            "its confinement is `group`, and `pidns` stood in this run before: the machine holds \
             less than it did (`leader doctor` tells why)"
        );
    }
}
