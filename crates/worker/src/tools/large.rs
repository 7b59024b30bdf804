//! Results too long for a conversation: all of it in a file, head and tail in the message.

use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::job::OUTPUTS_DIR;
use protocol::limits::TOOL_RESULT_CHARS_MAX;

use super::ToolContext;
use super::paths::place_below;
use super::{limits, names, save};

/// Makes a tool's result fit for the conversation. A text of at most
/// [`TOOL_RESULT_CHARS_MAX`] characters is handed back as it is; a longer one is written to the
/// next free `outputs/N.txt` of the agent's folder, and its start and end with that path come
/// back. When it can't be written, the cut text comes back without a path.
///
/// It blocks for as long as writing the file takes.
pub fn shorten(context: &ToolContext, text: String) -> String {
    let chars = text.chars().count();
    if chars <= TOOL_RESULT_CHARS_MAX {
        return text;
    }
    let pointer = match write_next(&context.agent_dir, &text) {
        Ok(path) => {
            let relative = path.strip_prefix(&context.workspace).unwrap_or(&path);
            context
                .prompts
                .large_result_pointer(&names::show(relative), chars)
        }
        Err(error) => {
            tracing::warn!(%error, "a long tool result could not be kept in a file");
            format!("{chars} characters; the middle could not be kept: {error}")
        }
    };
    let (head, tail) = ends(&text, chars);
    format!("{head}\n[... {pointer} ...]\n{tail}")
}

/// Writes an older result to the next free file and gives what stands for it in the conversation;
/// none when it can't be written.
///
/// It blocks for as long as writing the file takes.
pub fn put_away(context: &ToolContext, text: &str) -> Option<String> {
    match write_next(&context.agent_dir, text) {
        Ok(path) => {
            let relative = path.strip_prefix(&context.workspace).unwrap_or(&path);
            let chars = text.chars().count();
            let path = names::show(relative);
            Some(context.prompts.old_result_pointer(&path, chars))
        }
        Err(error) => {
            tracing::warn!(%error, "an older tool result could not be kept in a file");
            None
        }
    }
}

fn ends(text: &str, chars: usize) -> (&str, &str) {
    let at = |index: usize| {
        text.char_indices()
            .nth(index)
            .map_or(text.len(), |(at, _)| at)
    };
    (
        &text[..at(limits::LARGE_HEAD_CHARS)],
        &text[at(chars.saturating_sub(limits::LARGE_TAIL_CHARS))..],
    )
}

/// Writes the file of the next number. Calls of one turn may run side by side, and a run that is
/// taken up again finds the files of the one before, so the system decides which number is free.
fn write_next(agent_dir: &Path, text: &str) -> Result<PathBuf, ToolError> {
    for number in highest_number(agent_dir).saturating_add(1)..=limits::LARGE_FILES_MAX {
        let name = format!("{number}.txt");
        if save::create(
            place_below(agent_dir, &[OUTPUTS_DIR, &name])?,
            text.as_bytes(),
        )? {
            return Ok(agent_dir.join(OUTPUTS_DIR).join(name));
        }
    }
    Err(ToolError::new(
        ErrorCode::TooLarge,
        "there are too many long results already",
    ))
}

/// The highest number in use. Whatever stands in the way of knowing it, the writing will meet.
fn highest_number(agent_dir: &Path) -> u32 {
    let Ok(entries) = std::fs::read_dir(agent_dir.join(OUTPUTS_DIR)) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(".txt")?.parse::<u32>().ok()
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;

    #[test]
    fn a_result_at_the_limit_stays_and_one_past_it_goes_to_a_file() {
        let ground = Ground::new();
        let fits = "好".repeat(TOOL_RESULT_CHARS_MAX);
        assert_eq!(shorten(&ground.context, fits.clone()), fits);
        assert!(!ground.context.agent_dir.join(OUTPUTS_DIR).exists());
        let long = format!("{}end", "🌍".repeat(TOOL_RESULT_CHARS_MAX));
        let short = shorten(&ground.context, long.clone());
        assert!(short.chars().count() < TOOL_RESULT_CHARS_MAX);
        let path = "sub_agent_results/agent_1/.subagent/outputs/1.txt";
        assert!(
            short.contains(path) && short.contains("30003"),
            "{short:.200}"
        );
        assert!(short.starts_with("🌍🌍") && short.ends_with("🌍end"));
        assert_eq!(ground.read(path), long.as_bytes());
    }

    #[test]
    fn each_long_result_has_a_file_of_its_own() {
        let ground = Ground::new();
        let long = |c: &str| c.repeat(TOOL_RESULT_CHARS_MAX + 1);
        ground.file(
            "sub_agent_results/agent_1/.subagent/outputs/7.txt",
            b"earlier run",
        );
        for (c, name) in [("a", "8.txt"), ("b", "9.txt")] {
            assert!(shorten(&ground.context, long(c)).contains(name));
        }
        assert_eq!(
            ground.names("sub_agent_results/agent_1/.subagent/outputs"),
            ["7.txt", "8.txt", "9.txt"]
        );
    }

    #[test]
    fn a_link_in_the_agents_folder_leads_no_result_out() {
        let ground = Ground::new();
        let outputs = ground.context.agent_dir.join(OUTPUTS_DIR);
        std::os::unix::fs::symlink(&ground.outside, &outputs).unwrap();
        let short = shorten(&ground.context, "x".repeat(TOOL_RESULT_CHARS_MAX + 1));
        assert!(short.contains("could not be kept"), "{short:.200}");
        assert_eq!(std::fs::read_dir(&ground.outside).unwrap().count(), 0);
    }

    #[test]
    fn a_result_that_can_not_be_kept_is_cut_all_the_same() {
        let mut ground = Ground::new();
        ground.file("in_the_way", b"");
        ground.context.agent_dir = ground.path("in_the_way");
        let short = shorten(&ground.context, "x".repeat(TOOL_RESULT_CHARS_MAX + 1));
        assert!(short.contains("could not be kept"), "{short:.200}");
        assert!(short.chars().count() < TOOL_RESULT_CHARS_MAX);
    }
}
