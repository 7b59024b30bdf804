//! Which files of prompts there are, with their built-in texts.

use crate::status::Language;

/// The file whose sections are texts of their own.
pub(super) const PHRASES: &str = "phrases.md";

/// One file of the folder of a language.
#[derive(Debug)]
pub(super) struct PromptFile {
    /// Relative to the language's folder.
    pub(super) name: &'static str,
    zh: &'static str,
    en: &'static str,
}

impl PromptFile {
    /// Its built-in content.
    pub(super) fn content(&self, language: Language) -> &'static str {
        match language {
            Language::Zh => self.zh,
            Language::En => self.en,
        }
    }
}

macro_rules! files {
    ($($name:literal,)+) => {
        &[$(PromptFile {
            name: $name,
            zh: include_str!(concat!("../../../../prompts/zh/", $name)),
            en: include_str!(concat!("../../../../prompts/en/", $name)),
        },)+]
    };
}

/// Every file, one a line.
pub(super) const FILES: &[PromptFile] = files!(
    "builds_on.md",
    "first_message.md",
    "frames.md",
    "notices/system_completed.md",
    "notices/system_ended.md",
    "notices/user_completed.md",
    "notices/user_ended.md",
    "phrases.md",
    "reminder.md",
    "sub_agent_system.md",
    "time_warning.md",
    "tools/check_background.md",
    "tools/create_sub_agent.md",
    "tools/edit_file.md",
    "tools/extract_webpage.md",
    "tools/finish_task.md",
    "tools/get_sub_agent_status.md",
    "tools/list_active_sub_agents.md",
    "tools/read_file.md",
    "tools/read_mediafile.md",
    "tools/read_skill.md",
    "tools/run_command.md",
    "tools/search_workspace.md",
    "tools/stop_background.md",
    "tools/terminate_sub_agent.md",
    "tools/wait_sub_agents.md",
    "tools/web_search.md",
    "tools/write_file.md",
);

/// Cuts the content of [`PHRASES`] into its sections: a line `## key`, then the text. What stands
/// before the first section belongs to no text.
pub(super) fn sections(content: &str) -> impl Iterator<Item = (&str, &str)> {
    let pieces = content.split("\n## ").enumerate();
    let sections = pieces.filter_map(|(at, piece)| match at {
        0 => piece.strip_prefix("## "),
        _ => Some(piece),
    });
    sections.map(|section| {
        let (key, text) = section.split_once('\n').unwrap_or((section, ""));
        (key.trim(), text)
    })
}
