//! Whom a person means by `N`: a number, `conversation/N`, a name or a task_id.

use protocol::ids::ConversationId;
use protocol::tool::leader::AgentRef;

use protocol::ids::AgentId;

/// A reference as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The part before the slash, if there is one: any part of a conversation's id.
    pub conversation: Option<String>,
    /// The part after it, or all.
    pub agent: String,
}

impl Target {
    /// Reads a reference. A slash without a conversation before it belongs to the name.
    pub fn parse(text: &str) -> Target {
        let text = text.trim();
        match text.split_once('/') {
            Some((conversation, agent)) if !conversation.is_empty() && !agent.is_empty() => {
                Target {
                    conversation: Some(conversation.to_owned()),
                    agent: agent.to_owned(),
                }
            }
            _ => Target {
                conversation: None,
                agent: text.to_owned(),
            },
        }
    }

    /// Whether a conversation is meant.
    pub fn fits(&self, conversation: &ConversationId) -> bool {
        self.conversation
            .as_ref()
            .is_none_or(|part| conversation.as_str().contains(part.as_str()))
    }

    /// The agent as the leader's calls take it.
    pub fn agent_ref(&self) -> AgentRef {
        agent_ref_of(&self.agent)
    }
}

/// A word as a reference to an agent: a number where it is one, else a name.
pub fn agent_ref_of(word: &str) -> AgentRef {
    match word.trim().parse::<AgentId>() {
        Ok(agent_id) => AgentRef::Number {
            agent_id,
            role_id: None,
        },
        Err(_) => AgentRef::Name(word.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_an_agent_is_told_apart() {
        let number = |n| AgentRef::Number {
            agent_id: AgentId::new(n).unwrap(),
            role_id: None,
        };
        let name = |text: &str| AgentRef::Name(text.to_owned());
        for (text, conversation, agent) in [
            ("3", None, number(3)),
            ("conv_0190/3", Some("conv_0190"), number(3)),
            ("0190/Sub-agent 1", Some("0190"), name("Sub-agent 1")),
            ("子智能体1", None, name("子智能体1")),
            ("sub_0190a6e0-0000", None, name("sub_0190a6e0-0000")),
            ("0", None, name("0")),
            ("/3", None, name("/3")),
            ("a/", None, name("a/")),
        ] {
            let target = Target::parse(text);
            assert_eq!(target.conversation.as_deref(), conversation, "{text}");
            assert_eq!(target.agent_ref(), agent, "{text}");
        }
    }

    #[test]
    fn any_part_of_a_conversation_names_it() {
        let id = ConversationId::new("conv_0190a6e0-0000").unwrap();
        assert!(Target::parse("1").fits(&id));
        assert!(Target::parse("a6e0/1").fits(&id));
        assert!(Target::parse("conv_0190a6e0-0000/1").fits(&id));
        assert!(!Target::parse("conv_1/1").fits(&id));
    }
}
