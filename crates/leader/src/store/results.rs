//! What an agent's own files say once its tree has ended, and how they are brought to their final
//! form.
//!
//! Everything is read through the directories that were opened before the start: no link is
//! followed, no FIFO waited for, nothing outside is read or written, and a file of another run is
//! no result of this one.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

use protocol::channel::FinishedParams;
use protocol::conversation::{CONVERSATION_FORMAT, ConversationFile, Outcome, Role};
use protocol::ids::TaskId;
use protocol::job::{AGENT_DIR, CONVERSATION_FILE, JOURNAL_FILE, JobSpec};
use protocol::journal;
use protocol::limits;
use protocol::result::{Deliverables, cut_middle};
use protocol::secret::Mask;
use protocol::stats::Stats;
use protocol::status::{Status, StopReason};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::core::input::Evidence;
use crate::os::files::{Dir, Kind};
use crate::store::agent_dir::AgentDir;
use crate::store::deliverables;

/// A result file that could not be read is kept under this name.
pub const BAD_CONVERSATION_FILE: &str = "conversations.bad.json";
/// Worker and leader write the file under a name that begins and ends like this, the worker's with
/// a dot before it, until it is whole; what stands there after the end was never finished.
const UNFINISHED_PREFIX: &str = "conversations.json.";
/// The end of such a name.
const UNFINISHED_SUFFIX: &str = ".tmp";
/// Names of the run's own folder that are looked at for unfinished ones. A worker leaves one at a
/// kill; more entries than this were put there by something else, and are not ours to sort.
const SWEPT_ENTRIES_MAX: usize = 10_000;
/// A report as the leader takes it from a file; the whole stays in the file.
const SUMMARY_BYTES_MAX: usize = 32 * 1024;

/// All that an ended agent's directories say.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// What its files say of its outcome.
    pub evidence: Evidence,
    /// What it left.
    pub deliverables: Deliverables,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// Reads an ended agent's outcome and lists what it left. `time_is_over` ends the listing early.
pub fn collect(
    dir: &mut AgentDir,
    task_id: &TaskId,
    time_is_over: impl FnMut() -> bool,
) -> Collected {
    dir.refresh();
    let evidence = evidence(dir, task_id);
    let deliverables = deliverables::list(&dir.deliverables, time_is_over);
    let mut warnings = Vec::new();
    if deliverables.truncated {
        warnings.push(format!(
            "{} deliverables were counted and only {} are listed",
            deliverables.count,
            deliverables.files.len()
        ));
    }
    Collected {
        evidence,
        deliverables,
        warnings,
    }
}

fn evidence(dir: &AgentDir, task_id: &TaskId) -> Evidence {
    match read_conversation(dir, task_id) {
        Ok(head) => match head.result {
            Some(outcome) => report(outcome, head.stats),
            // The worker writes the journal first, so that it may know more.
            None => match journal_outcome(dir, task_id) {
                Some(report) => report,
                None => Evidence::Unfinished {
                    last_text: cut(head.messages.0.unwrap_or_default()),
                    stats: head.stats,
                },
            },
        },
        Err(why) => journal_outcome(dir, task_id).unwrap_or(Evidence::Bad { why }),
    }
}

fn report(outcome: Outcome, stats: Stats) -> Evidence {
    Evidence::Report(FinishedParams {
        success: outcome.success,
        summary: cut(outcome.summary),
        stop_reason: outcome.stop_reason,
        stats,
    })
}

fn cut(text: String) -> String {
    let pointer = format!("; the whole text is in {AGENT_DIR}/{CONVERSATION_FILE}");
    cut_middle(&text, SUMMARY_BYTES_MAX, &pointer)
}

fn journal_outcome(dir: &AgentDir, task_id: &TaskId) -> Option<Evidence> {
    let file = folded_journal(dir, task_id)?;
    let stats = file.stats;
    file.result.map(|outcome| report(outcome, stats))
}

fn folded_journal(dir: &AgentDir, task_id: &TaskId) -> Option<ConversationFile> {
    let bytes = read_capped(dir, JOURNAL_FILE).ok()?;
    journal::fold(&bytes, task_id).map(|folded| folded.file)
}

/// What of `conversations.json` decides an end; the messages are passed over, so that a long
/// conversation costs no memory.
#[derive(Debug, Deserialize)]
struct ConversationHead {
    format: u32,
    task_id: TaskId,
    #[serde(default)]
    stats: Stats,
    #[serde(default)]
    result: Option<Outcome>,
    messages: LastText,
}

/// The text of the last message of the model.
#[derive(Debug, Default)]
struct LastText(Option<String>);

impl<'de> Deserialize<'de> for LastText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LastTextVisitor)
    }
}

struct LastTextVisitor;

#[derive(Deserialize)]
struct MessageHead {
    role: Role,
    #[serde(default)]
    content: Option<String>,
}

impl<'de> Visitor<'de> for LastTextVisitor {
    type Value = LastText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<LastText, A::Error> {
        let mut last = None;
        while let Some(message) = items.next_element::<MessageHead>()? {
            let text = message.content.filter(|text| !text.trim().is_empty());
            if message.role == Role::Assistant && text.is_some() {
                last = text;
            }
        }
        Ok(LastText(last))
    }
}

fn read_conversation(dir: &AgentDir, task_id: &TaskId) -> Result<ConversationHead, String> {
    let (file, size) = dir
        .own
        .open_file(Path::new(CONVERSATION_FILE))
        .map_err(|error| unreadable(dir, &error))?;
    check_size(size)?;
    let reader = BufReader::new(file.take(limits::CONVERSATION_BYTES_MAX));
    let head: ConversationHead = serde_json::from_reader(reader)
        .map_err(|error| format!("{CONVERSATION_FILE} is not valid: {error}"))?;
    if &head.task_id != task_id {
        return Err(format!(
            "{CONVERSATION_FILE} is of another run, {}",
            head.task_id
        ));
    }
    if head.format != CONVERSATION_FORMAT {
        return Err(format!(
            "{CONVERSATION_FILE} has format {}; this version reads {CONVERSATION_FORMAT}",
            head.format
        ));
    }
    Ok(head)
}

fn check_size(size: u64) -> Result<(), String> {
    if size > limits::CONVERSATION_BYTES_MAX {
        return Err(format!(
            "{CONVERSATION_FILE} has {size} bytes; the most is {}",
            limits::CONVERSATION_BYTES_MAX
        ));
    }
    Ok(())
}

fn unreadable(dir: &AgentDir, error: &io::Error) -> String {
    if let Some(kind) = dir.own_replaced_by()
        && kind != Kind::Missing
    {
        return format!("{AGENT_DIR} was replaced by {}", kind.words());
    }
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {CONVERSATION_FILE}"),
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => {
            format!("{CONVERSATION_FILE} is a symbolic link")
        }
        _ => format!("{CONVERSATION_FILE} can't be read: {error}"),
    }
}

fn read_capped(dir: &AgentDir, name: &str) -> io::Result<Vec<u8>> {
    let (file, size) = dir.own.open_file(Path::new(name))?;
    if size > limits::CONVERSATION_BYTES_MAX {
        return Err(io::Error::other(format!("{name} has {size} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(limits::CONVERSATION_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How an agent ended, as its `conversations.json` is to say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalWord {
    /// How.
    pub status: Status,
    /// Why, when not by a success report.
    pub stop_reason: Option<StopReason>,
    /// The report, or the last text.
    pub summary: String,
    /// RFC 3339, UTC.
    pub at: String,
}

/// Brings `conversations.json` to its final form: what the worker wrote where that says the same
/// end, else what the file and the journal hold, with the end that was decided. A file that can't
/// be read is put beside under [`BAD_CONVERSATION_FILE`]. Nothing is left in it that `mask` hides,
/// also where a worker that is none of ours wrote it.
///
/// # Errors
/// When the file can't be written.
pub fn conclude(
    dir: &mut AgentDir,
    job: &JobSpec,
    word: &FinalWord,
    mask: &Mask,
) -> io::Result<()> {
    dir.refresh();
    sweep_unfinished(&dir.own);
    let written = read_capped(dir, CONVERSATION_FILE);
    let parsed = written
        .as_ref()
        .ok()
        .and_then(|bytes| serde_json::from_slice::<ConversationFile>(bytes).ok())
        .filter(|file| file.task_id == job.task_id);
    if let Some(file) = &parsed
        && file.status == word.status
        && file.completed_at.is_some()
        && file.result.is_some()
        && !written.as_ref().is_ok_and(|bytes| mask.is_in(bytes))
    {
        return Ok(());
    }
    let missing = matches!(&written, Err(error) if error.kind() == io::ErrorKind::NotFound);
    if parsed.is_none() && !missing {
        let name = Path::new(CONVERSATION_FILE);
        dir.own
            .rename(name, &dir.own, Path::new(BAD_CONVERSATION_FILE))?;
    }
    let mut file = finished(parsed, folded_journal(dir, &job.task_id), job, word);
    mask.conversation(&mut file);
    let bytes = serde_json::to_vec(&file)?;
    dir.own.replace_file(Path::new(CONVERSATION_FILE), &bytes)
}

/// Removes what a killed worker or leader had begun to write. Nothing depends on it, so that what can't be
/// removed stays.
fn sweep_unfinished(own: &Dir) {
    let Ok(entries) = std::fs::read_dir(own.path()) else {
        return;
    };
    for entry in entries.take(SWEPT_ENTRIES_MAX).filter_map(Result::ok) {
        let name = entry.file_name();
        let unfinished = name
            .to_str()
            .map(|name| name.strip_prefix('.').unwrap_or(name))
            .and_then(|name| name.strip_prefix(UNFINISHED_PREFIX))
            .is_some_and(|rest| rest.ends_with(UNFINISHED_SUFFIX));
        if unfinished && let Err(error) = own.remove_file(Path::new(&name)) {
            tracing::debug!(name = %name.display(), %error, "an unfinished file stays");
        }
    }
}

/// Joins what is known: the longer of file and journal, the outcome of either, and the end.
fn finished(
    file: Option<ConversationFile>,
    journal: Option<ConversationFile>,
    job: &JobSpec,
    word: &FinalWord,
) -> ConversationFile {
    let outcome = [&file, &journal]
        .into_iter()
        .find_map(|known| known.as_ref().and_then(|known| known.result.clone()));
    let mut base = match (file, journal) {
        (Some(file), Some(journal)) if journal.messages.len() > file.messages.len() => {
            ConversationFile {
                other: file.other,
                ..journal
            }
        }
        (Some(file), Some(_) | None) => file,
        (None, Some(journal)) => journal,
        (None, None) => empty(job),
    };
    base.status = word.status;
    base.complete_at(word.at.clone());
    base.result = Some(match outcome {
        // A report stands, also that of an agent which was stopped all the same.
        Some(outcome) if outcome.success == (word.status == Status::Completed) => outcome,
        Some(Outcome { summary, .. }) => Outcome {
            success: word.status == Status::Completed,
            summary,
            stop_reason: word.stop_reason,
        },
        None => Outcome {
            success: word.status == Status::Completed,
            summary: word.summary.clone(),
            stop_reason: word.stop_reason,
        },
    });
    base
}

/// The conversation of a worker that wrote nothing.
fn empty(job: &JobSpec) -> ConversationFile {
    ConversationFile {
        format: CONVERSATION_FORMAT,
        agent_id: job.agent_id,
        task_id: job.task_id.clone(),
        role_id: job.role_id.clone(),
        summary: job.summary.clone(),
        status: Status::Running,
        created_at: job.created_at.clone(),
        completed_at: None,
        messages: Vec::new(),
        stats: Stats::default(),
        result: None,
        other: serde_json::Map::new(),
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
