//! The list of all tools, and what of them an agent is offered.

use protocol::text::Prompts;
use protocol::tool::worker::{Need, WORKER_TOOLS, useful_tools};

use super::Tool;
use super::check_background::CheckBackground;
use super::edit_file::EditFile;
use super::extract_webpage::ExtractWebpage;
use super::finish_task::FinishTask;
use super::read_file::ReadFile;
use super::read_mediafile::ReadMediafile;
use super::read_skill::ReadSkill;
use super::run_command::RunCommand;
use super::search_workspace::SearchWorkspace;
use super::stop_background::StopBackground;
use super::web_search::WebSearch;
use super::write_file::WriteFile;
use crate::model::OfferedTool;

/// Every tool, in the order in which models see them. A new tool is one line here.
pub fn all() -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(ReadFile),
        Box::new(WriteFile),
        Box::new(EditFile),
        Box::new(SearchWorkspace),
        Box::new(RunCommand),
        Box::new(CheckBackground),
        Box::new(StopBackground),
        Box::new(ReadMediafile),
        Box::new(WebSearch),
        Box::new(ExtractWebpage),
        Box::new(ReadSkill),
        Box::new(FinishTask),
    ]
}

/// What a model is told of the tools that its agent was granted and that are of use to it, in the
/// agent's language. Names that are no tool of this version are left out.
pub fn offered(prompts: &Prompts, granted: &[String], has: &[Need]) -> Vec<OfferedTool> {
    let useful = useful_tools(granted, has);
    WORKER_TOOLS
        .iter()
        .filter(|tool| useful.iter().any(|name| name == tool.name))
        .map(|tool| OfferedTool {
            name: tool.name.to_owned(),
            description: prompts.tool_description(tool.name),
            parameters: (tool.schema)(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::definition::Definition;
    use protocol::status::Language;

    #[test]
    fn only_what_is_granted_is_offered_in_the_order_of_the_list() {
        let prompts = Prompts::builtin(Language::En);
        let granted = ["finish_task", "nothing_known", "read_file"].map(str::to_owned);
        let offered = offered(&prompts, &granted, &[]);
        let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["read_file", "finish_task"]);
        assert!(offered.iter().all(|tool| !tool.description.is_empty()));
    }

    #[test]
    fn every_tool_of_the_protocol_is_there_in_its_order() {
        let all = all();
        let names: Vec<&str> = all.iter().map(|tool| tool.name()).collect();
        let wanted: Vec<&str> = WORKER_TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names, wanted);
    }

    #[test]
    fn the_tools_of_an_agent_without_a_role_are_small_enough_for_its_first_request() {
        for language in [Language::Zh, Language::En] {
            let prompts = Prompts::builtin(language);
            let bytes: usize = offered(&prompts, &Definition::implicit().tools, &[])
                .iter()
                .map(|tool| {
                    tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
                })
                .sum();
            assert!(bytes < 3_900, "{language}: {bytes} bytes");
        }
    }
}
