//! Which tools an agent may call, and how calls of one turn may run.

use protocol::error::{ErrorCode, ToolError};
use protocol::text::Prompts;
use protocol::tool::leader::LEADER_TOOLS;
use protocol::tool::worker::WORKER_TOOLS;

/// Characters of a name that a model made up, as it is told back.
const SHOWN_NAME_CHARS_MAX: usize = 80;

/// How a call may run beside others of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It changes things: after what came before, before what comes next.
    Alone,
    /// It changes nothing here, or the leader serves it: together with its neighbours of this
    /// kind.
    SideBySide,
}

/// One tool that an agent may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its name, exactly.
    pub name: String,
    /// How it may run.
    pub manner: Manner,
}

/// The tools of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    grants: Vec<Grant>,
}

impl Policy {
    /// The worker's own tools of the names that were granted, and those that the leader serves.
    pub fn new<'a>(
        granted: impl IntoIterator<Item = &'a str>,
        served: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let granted: Vec<&str> = granted.into_iter().collect();
        let own = WORKER_TOOLS
            .iter()
            .filter(|tool| granted.contains(&tool.name))
            .map(|tool| Grant {
                name: tool.name.to_owned(),
                manner: if tool.read_only {
                    Manner::SideBySide
                } else {
                    Manner::Alone
                },
            });
        let mut grants: Vec<Grant> = own.collect();
        for name in served {
            if grants.iter().all(|grant| grant.name != name) {
                grants.push(Grant {
                    name: name.to_owned(),
                    manner: Manner::SideBySide,
                });
            }
        }
        Policy { grants }
    }

    /// The same with more tools, each of which runs alone: what they do is not known here.
    #[must_use]
    pub fn with_alone<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        for name in names {
            if self.grants.iter().all(|grant| grant.name != name) {
                self.grants.push(Grant {
                    name: name.to_owned(),
                    manner: Manner::Alone,
                });
            }
        }
        self
    }

    /// Whether and how a call may run. Names match exactly: a name with a blank or a prefix is
    /// another tool, and running the nearest one would run what nobody asked for.
    ///
    /// # Errors
    /// When there is no such tool or it is not granted; the error lists the real names.
    pub fn check(&self, name: &str, prompts: &Prompts) -> Result<Manner, ToolError> {
        if let Some(grant) = self.grants.iter().find(|grant| grant.name == name) {
            return Ok(grant.manner);
        }
        let shown: String = name.chars().take(SHOWN_NAME_CHARS_MAX).collect();
        let tools: Vec<String> = self.grants.iter().map(|grant| grant.name.clone()).collect();
        let exists = WORKER_TOOLS
            .iter()
            .chain(LEADER_TOOLS)
            .any(|tool| tool.name == name);
        Err(if exists {
            ToolError::new(
                ErrorCode::ToolNotGranted,
                prompts.tool_not_granted(&shown, &tools),
            )
        } else {
            ToolError::new(ErrorCode::UnknownTool, prompts.unknown_tool(&shown, &tools))
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::status::Language;

    use super::*;

    #[test]
    fn a_name_must_match_exactly() {
        // A model sent ` write_file` and `functions.write_file`; taking the nearest name would
        // have written a file that nobody asked for.
        let prompts = Prompts::builtin(Language::En);
        let policy = Policy::new(["read_file", "write_file"], ["ask_master"]);
        assert_eq!(policy.check("read_file", &prompts), Ok(Manner::SideBySide));
        assert_eq!(policy.check("write_file", &prompts), Ok(Manner::Alone));
        assert_eq!(policy.check("ask_master", &prompts), Ok(Manner::SideBySide));
        for name in [" write_file", "functions.write_file", "Write_File", ""] {
            let error = policy.check(name, &prompts).unwrap_err();
            assert_eq!(error.code, ErrorCode::UnknownTool, "{name}");
            for real in ["read_file", "write_file", "ask_master"] {
                assert!(error.message.contains(real), "{error}");
            }
        }
    }

    #[test]
    fn a_tool_that_exists_but_was_not_granted_is_told_apart() {
        let prompts = Prompts::builtin(Language::Zh);
        let policy = Policy::new(["read_file"], []);
        for name in ["run_command", "create_sub_agent"] {
            let error = policy.check(name, &prompts).unwrap_err();
            assert_eq!(error.code, ErrorCode::ToolNotGranted, "{name}");
            assert!(error.message.contains("read_file"), "{error}");
        }
    }

    #[test]
    fn a_name_without_end_is_told_back_in_short() {
        let prompts = Prompts::builtin(Language::En);
        let error = Policy::new(["read_file"], [])
            .check(&"x".repeat(1_000_000), &prompts)
            .unwrap_err();
        assert!(error.message.len() < 500, "{}", error.message.len());
    }
}
