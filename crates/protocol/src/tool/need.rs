//! What tools need beside their grant, so that none is offered that can only fail.

use super::worker::{EXTRACT_WEBPAGE, READ_MEDIAFILE, READ_SKILL, WEB_SEARCH, WORKER_TOOLS};

/// What an agent must have so that a tool is of use to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// At least one skill.
    Skills,
    /// A model that sees.
    Vision,
    /// A search engine.
    Search,
    /// Leave to read pages of the web.
    Pages,
}

/// What a tool needs beside its grant; none for most. A tool whose need is not met is offered to
/// no model: what can only fail is not worth its place in every request.
pub fn need_of(tool: &str) -> Option<Need> {
    match tool {
        READ_MEDIAFILE => Some(Need::Vision),
        WEB_SEARCH => Some(Need::Search),
        EXTRACT_WEBPAGE => Some(Need::Pages),
        READ_SKILL => Some(Need::Skills),
        _ => None,
    }
}

/// The granted tools that are of use to an agent which has these things, in the order of
/// [`WORKER_TOOLS`]; what is no tool of this version is left out.
pub fn useful_tools(granted: &[String], has: &[Need]) -> Vec<String> {
    WORKER_TOOLS
        .iter()
        .filter(|tool| granted.iter().any(|name| name == tool.name))
        .filter(|tool| need_of(tool.name).is_none_or(|need| has.contains(&need)))
        .map(|tool| tool.name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::worker::FINISH_TASK;

    #[test]
    fn a_tool_without_what_it_needs_is_of_no_use() {
        let granted = [FINISH_TASK, READ_SKILL, "unknown"].map(str::to_owned);
        assert_eq!(useful_tools(&granted, &[]), [FINISH_TASK]);
        assert_eq!(
            useful_tools(&granted, &[Need::Skills]),
            [READ_SKILL, FINISH_TASK]
        );
    }
}
