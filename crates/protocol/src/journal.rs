//! `journal.jsonl`: one line per message, written before the next step; the truth that a crash
//! leaves, and the fold that makes `conversations.json` of it.

use serde::{Deserialize, Serialize};

use crate::conversation::{CONVERSATION_FORMAT, ConversationFile, Message, Outcome};
use crate::ids::{AgentId, RoleId, TaskId};
use crate::stats::Stats;
use crate::status::Status;

/// The `format` number of the journal that this version writes.
pub const JOURNAL_FORMAT: u32 = 1;

/// One line of the journal. A `kind` that this version does not know is skipped by the fold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JournalLine {
    /// First line: whose journal it is.
    Start {
        /// Version of this shape.
        format: u32,
        /// The agent's number.
        agent_id: AgentId,
        /// Which run.
        task_id: TaskId,
        /// The agent's definition, if any.
        role_id: Option<RoleId>,
        /// What it is to do, in a few words.
        summary: String,
        /// RFC 3339, UTC.
        created_at: String,
    },
    /// A message was added to the conversation.
    Message {
        /// The message.
        message: Message,
        /// Counts after it.
        stats: Stats,
        /// The ids of delivered messages that this one carries; acknowledged once it is written.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        message_ids: Vec<String>,
    },
    /// The conversation was shortened; it is these messages from here on.
    Replaced {
        /// All messages, first to last.
        messages: Vec<Message>,
    },
    /// The run has come to its outcome.
    Finished {
        /// The outcome.
        result: Outcome,
        /// Counts at the end.
        stats: Stats,
        /// RFC 3339, UTC.
        completed_at: String,
    },
}

/// What folding a journal came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Folded {
    /// The conversation as far as the journal tells it.
    pub file: ConversationFile,
    /// Lines that could not be read: a torn last one, or kinds of a newer version.
    pub skipped: usize,
}

/// Makes the conversation of a journal's bytes. A torn or unknown line is skipped and counted.
/// Without a readable first line, or with another run's, there is no conversation.
pub fn fold(journal: &[u8], task_id: &TaskId) -> Option<Folded> {
    fold_of_any(journal, std::slice::from_ref(task_id))
}

/// As [`fold`], for the journal of any of these runs: an agent that is resumed takes up what the
/// last of its earlier runs came to write.
pub fn fold_of_any(journal: &[u8], task_ids: &[TaskId]) -> Option<Folded> {
    let mut folded: Option<Folded> = None;
    let mut skipped = 0;
    for line in journal
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let Ok(parsed) = serde_json::from_slice::<JournalLine>(line) else {
            skipped += 1;
            continue;
        };
        match (parsed, &mut folded) {
            (
                JournalLine::Start {
                    agent_id,
                    task_id: found,
                    role_id,
                    summary,
                    created_at,
                    ..
                },
                slot,
            ) => {
                if task_ids.contains(&found) && slot.is_none() {
                    let file = ConversationFile {
                        format: CONVERSATION_FORMAT,
                        agent_id,
                        task_id: found,
                        role_id,
                        summary,
                        status: Status::Running,
                        created_at,
                        completed_at: None,
                        messages: Vec::new(),
                        stats: Stats::default(),
                        result: None,
                        other: serde_json::Map::new(),
                    };
                    *slot = Some(Folded { file, skipped: 0 });
                }
            }
            (_, None) => skipped += 1,
            (JournalLine::Message { message, stats, .. }, Some(folded)) => {
                folded.file.messages.push(message);
                folded.file.stats = stats;
            }
            (JournalLine::Replaced { messages }, Some(folded)) => folded.file.messages = messages,
            (
                JournalLine::Finished {
                    result,
                    stats,
                    completed_at,
                },
                Some(folded),
            ) => {
                folded.file.status = result.status();
                folded.file.stats = stats;
                folded.file.complete_at(completed_at);
                folded.file.result = Some(result);
            }
        }
    }
    folded.map(|folded| Folded { skipped, ..folded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::StopReason;

    fn line(line: &JournalLine) -> String {
        format!("{}\n", serde_json::to_string(line).unwrap())
    }

    fn start(task: &str) -> String {
        line(&JournalLine::Start {
            format: JOURNAL_FORMAT,
            agent_id: AgentId::FIRST,
            task_id: TaskId::new(task).unwrap(),
            role_id: None,
            summary: "s".into(),
            created_at: "2026-03-10T12:00:00Z".into(),
        })
    }

    #[test]
    fn a_torn_last_line_costs_only_itself() {
        let task = TaskId::new("sub_00000001").unwrap();
        let hello = JournalLine::Message {
            message: Message::user("hello"),
            stats: Stats {
                turns: 1,
                ..Stats::default()
            },
            message_ids: Vec::new(),
        };
        let mut text = start("sub_00000001") + &line(&hello) + "{\"kind\":\"newer\"}\n";
        text.push_str(&line(&hello)[..20]);
        let folded = fold(text.as_bytes(), &task).unwrap();
        assert_eq!(folded.skipped, 2);
        assert_eq!(folded.file.messages, vec![Message::user("hello")]);
        assert_eq!(folded.file.stats.turns, 1);
        assert_eq!(folded.file.status, Status::Running);
    }

    #[test]
    fn the_status_follows_the_reason_of_the_end() {
        let task = TaskId::new("sub_00000001").unwrap();
        for (success, stop_reason, status) in [
            (true, None, Status::Completed),
            (false, None, Status::Failed),
            (false, Some(StopReason::NoFinish), Status::Failed),
            (false, Some(StopReason::Deadline), Status::TimedOut),
            (false, Some(StopReason::Terminated), Status::Terminated),
            (false, Some(StopReason::LeaderStopped), Status::Terminated),
            (
                false,
                Some(StopReason::ConversationClosed),
                Status::Terminated,
            ),
            (false, Some(StopReason::LeaderDied), Status::Interrupted),
        ] {
            let finished = JournalLine::Finished {
                result: Outcome {
                    success,
                    summary: String::new(),
                    stop_reason,
                },
                stats: Stats::default(),
                completed_at: "2026-03-10T12:02:00Z".into(),
            };
            let text = start("sub_00000001") + &line(&finished);
            let folded = fold(text.as_bytes(), &task).unwrap();
            assert_eq!(folded.file.status, status, "{stop_reason:?}");
        }
    }

    #[test]
    fn another_runs_journal_is_no_conversation_of_this_one() {
        let task = TaskId::new("sub_00000002").unwrap();
        assert_eq!(fold(start("sub_00000001").as_bytes(), &task), None);
        let both = [task.clone(), TaskId::new("sub_00000001").unwrap()];
        let folded = fold_of_any(start("sub_00000001").as_bytes(), &both).unwrap();
        assert_eq!(folded.file.task_id, both[1]);
        assert_eq!(fold_of_any(start("sub_00000001").as_bytes(), &[]), None);
        assert_eq!(fold(b"", &task), None);
        assert_eq!(fold(b"[[[[", &task), None);
    }
}
