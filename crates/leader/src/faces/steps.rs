//! The steps of one agent, read from its journal piece by piece.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use protocol::conversation::{Message, Role};
use protocol::ids::TaskId;
use protocol::job::{AGENT_DIR, JOURNAL_FILE};
use protocol::journal::JournalLine;
use protocol::limits::MODEL_REPLY_BYTES_MAX;
use protocol::result::cut_middle;
use protocol::status::StopReason;
use serde::{Deserialize, Serialize};

use crate::os::files::Dir;

/// A text of a step; more is cut out of its middle.
pub const STEP_TEXT_BYTES_MAX: usize = 4 * 1024;
/// All steps of one answer, about; the caller asks again for the rest.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// A line of a journal that is longer is passed over: a model's whole answer fits, and a tool's
/// result is far shorter.
const JOURNAL_LINE_BYTES_MAX: u64 = 2 * MODEL_REPLY_BYTES_MAX as u64;

/// One thing that an agent did or was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Step {
    /// A message of its conversation.
    Message {
        /// Who it is from.
        role: Role,
        /// Its text, cut.
        #[serde(default)]
        content: Option<String>,
        /// What the model called, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<StepCall>,
    },
    /// Its conversation was shortened to so many messages.
    Replaced {
        /// How many are left.
        messages: usize,
    },
    /// It came to its outcome.
    Finished {
        /// Whether it reported success.
        success: bool,
        /// Its report, cut.
        summary: String,
        /// Why it ended, when not by a success report.
        stop_reason: Option<StopReason>,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCall {
    /// The tool.
    pub name: String,
    /// Its arguments as the model wrote them, cut.
    pub arguments: String,
}

/// Some steps in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// The steps.
    pub steps: Vec<Step>,
    /// Where to go on.
    pub next: u64,
    /// Whether more lay there than one answer takes.
    pub more: bool,
}

/// Opens the journal of an agent by the place of its results, without following what an agent may
/// have put there; none when there is no journal.
///
/// # Errors
/// When something else than a regular file is in its place, or the system refuses.
pub fn open_journal(
    workspace: &Path,
    deliverables_dir: &Path,
) -> io::Result<Option<BufReader<File>>> {
    let opened = Dir::open(workspace)
        .and_then(|dir| dir.open_below(&deliverables_dir.join(AGENT_DIR)))
        .and_then(|dir| dir.open_file(Path::new(JOURNAL_FILE)));
    match opened {
        Ok((file, _)) => Ok(Some(BufReader::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads at most `limit_steps` steps from the position `after`, which is 0 or the `next` of an
/// answer before. A last line that is still being written is left for the next time; a journal of
/// another run holds no steps of this one.
///
/// # Errors
/// When the journal can't be read.
pub fn read_steps<R: BufRead + Seek>(
    journal: &mut R,
    task_id: &TaskId,
    after: u64,
    limit_steps: usize,
) -> io::Result<Steps> {
    let mut read = Steps {
        next: after,
        ..Steps::default()
    };
    journal.seek(SeekFrom::Start(0))?;
    if !begins_for(journal, task_id)? {
        return Ok(read);
    }
    journal.seek(SeekFrom::Start(after))?;
    let mut answer_bytes = 0;
    loop {
        let Some((line, length)) = whole_line(journal)? else {
            return Ok(read);
        };
        if read.steps.len() >= limit_steps || answer_bytes >= ANSWER_BYTES_MAX {
            read.more = true;
            return Ok(read);
        }
        read.next += length;
        if let Ok(line) = serde_json::from_slice(&line)
            && let Some(step) = step_of(line)
        {
            answer_bytes += step.bytes();
            read.steps.push(step);
        }
    }
}

/// Whether the first line says that the journal is this run's.
fn begins_for<R: BufRead>(journal: &mut R, task_id: &TaskId) -> io::Result<bool> {
    let Some((line, _)) = whole_line(journal)? else {
        return Ok(false);
    };
    Ok(matches!(
        serde_json::from_slice(&line),
        Ok(JournalLine::Start { task_id: found, .. }) if &found == task_id
    ))
}

/// The next line with the number of bytes that it takes in the file, its newline included. One
/// over the limit comes back empty; none at the end or before a newline that is not there yet.
fn whole_line<R: BufRead>(journal: &mut R) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut line = Vec::new();
    journal
        .by_ref()
        .take(JOURNAL_LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        let length = line.len() as u64;
        return Ok(Some((line, length)));
    }
    if (line.len() as u64) < JOURNAL_LINE_BYTES_MAX {
        return Ok(None);
    }
    let mut length = line.len() as u64;
    loop {
        let piece = journal.fill_buf()?;
        if piece.is_empty() {
            return Ok(None);
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(piece.len(), |at| at + 1);
        length += used as u64;
        journal.consume(used);
        if end.is_some() {
            return Ok(Some((Vec::new(), length)));
        }
    }
}

fn step_of(line: JournalLine) -> Option<Step> {
    match line {
        JournalLine::Start { .. } => None,
        JournalLine::Message { message, .. } => Some(message_step(message)),
        JournalLine::Replaced { messages } => Some(Step::Replaced {
            messages: messages.len(),
        }),
        JournalLine::Finished { result, .. } => Some(Step::Finished {
            success: result.success,
            summary: cut(&result.summary),
            stop_reason: result.stop_reason,
        }),
    }
}

fn message_step(message: Message) -> Step {
    Step::Message {
        role: message.role,
        content: message.content.as_deref().map(cut),
        tool_calls: message
            .tool_calls
            .into_iter()
            .map(|call| StepCall {
                name: call.function.name,
                arguments: cut(&call.function.arguments),
            })
            .collect(),
    }
}

fn cut(text: &str) -> String {
    cut_middle(text, STEP_TEXT_BYTES_MAX, "")
}

impl Step {
    /// About how long it is in an answer.
    fn bytes(&self) -> usize {
        const FRAME_BYTES: usize = 100;
        FRAME_BYTES
            + match self {
                Step::Message {
                    content,
                    tool_calls,
                    ..
                } => {
                    let calls: usize = tool_calls
                        .iter()
                        .map(|call| FRAME_BYTES + call.name.len() + call.arguments.len())
                        .sum();
                    content.as_ref().map_or(0, String::len) + calls
                }
                Step::Replaced { .. } => 0,
                Step::Finished { summary, .. } => summary.len(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::conversation::{Outcome, ToolCall};
    use protocol::ids::AgentId;
    use protocol::journal::JOURNAL_FORMAT;
    use protocol::stats::Stats;
    use std::io::Cursor;

    fn task(number: u32) -> TaskId {
        TaskId::new(format!("sub_0190a6e0-000{number}")).unwrap()
    }

    fn start(task_id: TaskId) -> JournalLine {
        JournalLine::Start {
            format: JOURNAL_FORMAT,
            agent_id: AgentId::FIRST,
            task_id,
            role_id: None,
            summary: "s".into(),
            created_at: "2026-03-10T12:00:00Z".into(),
        }
    }

    fn message(message: Message) -> JournalLine {
        JournalLine::Message {
            message,
            stats: Stats::default(),
            message_ids: Vec::new(),
        }
    }

    fn text(lines: &[JournalLine]) -> Vec<u8> {
        let lines = lines
            .iter()
            .map(|line| format!("{}\n", serde_json::to_string(line).unwrap()));
        lines.collect::<String>().into_bytes()
    }

    fn said(content: &str) -> Step {
        Step::Message {
            role: Role::User,
            content: Some(content.into()),
            tool_calls: Vec::new(),
        }
    }

    #[test]
    fn a_journal_is_read_on_from_where_the_last_answer_stopped() {
        let mut bytes = text(&[
            start(task(1)),
            message(Message::user("a")),
            message(Message::user("b")),
        ]);
        bytes.extend(b"{\"kind\":\"later\"}\n{\"kind\":\"mess");
        let mut journal = Cursor::new(bytes);
        let first = read_steps(&mut journal, &task(1), 0, 1).unwrap();
        assert_eq!((first.steps, first.more), (vec![said("a")], true));
        let second = read_steps(&mut journal, &task(1), first.next, 9).unwrap();
        assert_eq!((second.steps, second.more), (vec![said("b")], false));
        // The torn line is whole by the next time.
        let rest = text(&[message(Message::user("c"))]);
        let torn = b"{\"kind\":\"mess".len();
        let mut bytes = journal.into_inner();
        bytes.truncate(bytes.len() - torn);
        bytes.extend(rest);
        let third = read_steps(&mut Cursor::new(bytes), &task(1), second.next, 9).unwrap();
        assert_eq!((third.steps, third.more), (vec![said("c")], false));
    }

    #[test]
    fn another_runs_journal_holds_no_steps_of_this_one() {
        let bytes = text(&[start(task(2)), message(Message::user("a"))]);
        for bytes in [bytes, b"junk\n".to_vec(), Vec::new()] {
            let read = read_steps(&mut Cursor::new(bytes), &task(1), 0, 9).unwrap();
            assert_eq!(read, Steps::default());
        }
    }

    #[test]
    fn long_texts_are_cut_and_long_journals_come_in_pieces() {
        let long = "x".repeat(STEP_TEXT_BYTES_MAX + 1);
        let call = ToolCall::new("c", "write_file", long.clone());
        let mut lines = vec![start(task(1))];
        lines.extend(
            (0..400).map(|_| message(Message::assistant(Some(long.clone()), vec![call.clone()]))),
        );
        lines.push(JournalLine::Finished {
            result: Outcome {
                success: false,
                summary: long.clone(),
                stop_reason: Some(StopReason::NoFinish),
            },
            stats: Stats::default(),
            completed_at: "2026-03-10T12:00:00Z".into(),
        });
        let mut journal = Cursor::new(text(&lines));
        let (mut after, mut count, mut answers) = (0, 0, 0);
        loop {
            let read = read_steps(&mut journal, &task(1), after, 1_000).unwrap();
            let answer = serde_json::to_string(&read).unwrap();
            assert!(answer.len() < 2 * ANSWER_BYTES_MAX, "{}", answer.len());
            count += read.steps.len();
            answers += 1;
            after = read.next;
            if !read.more {
                break;
            }
        }
        assert_eq!(count, 401);
        assert!(answers > 1);
        assert_eq!(after, journal.get_ref().len() as u64);
    }
}
