//! A run's record: the conversation in memory, its journal, and the file that others read.

use std::path::{Path, PathBuf};

use protocol::conversation::{CONVERSATION_FORMAT, ConversationFile, Message, Outcome};
use protocol::job::{CONVERSATION_FILE, JobSpec};
use protocol::journal::{JOURNAL_FORMAT, JournalLine, fold};
use protocol::limits::CONVERSATION_BYTES_MAX;
use protocol::secret::Mask;
use protocol::stats::Stats;
use protocol::status::Status;

use crate::io::files::{Durability, FileError, replace};
use crate::io::journal::Journal;

/// Between two writes of the conversation's file while it runs, in milliseconds.
pub const SAVE_INTERVAL_MS: u64 = 1_000;

/// When the conversation was last written, and whether it has changed since. Apart from the
/// conversation itself, so that it can be written while a model call borrows the messages.
#[derive(Debug)]
pub struct Saver {
    dir: PathBuf,
    saved_ms: u64,
    changed: bool,
}

impl Saver {
    /// Writes the conversation if it has changed and the last write is long enough ago.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn save_if_due(
        &mut self,
        conversation: &ConversationFile,
        now_ms: u64,
    ) -> Result<(), FileError> {
        if !self.changed || now_ms < self.saved_ms.saturating_add(SAVE_INTERVAL_MS) {
            return Ok(());
        }
        self.save(conversation, now_ms, Durability::Process)
    }

    fn save(
        &mut self,
        conversation: &ConversationFile,
        now_ms: u64,
        durability: Durability,
    ) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(conversation).map_err(|error| {
            FileError::new("write", &self.dir.join(CONVERSATION_FILE), error.into())
        })?;
        replace(&self.dir, CONVERSATION_FILE, &bytes, durability)?;
        self.saved_ms = now_ms;
        self.changed = false;
        Ok(())
    }
}

/// The record of one run.
#[derive(Debug)]
pub struct Record {
    conversation: ConversationFile,
    /// What stands in no message.
    mask: Mask,
    journal: Journal,
    saver: Saver,
}

impl Record {
    /// Begins a run's journal and writes its first, empty conversation; a run that goes on takes
    /// up both where its leader has put them.
    ///
    /// # Errors
    /// When either file can't be written, or what is to be taken up can't be read.
    pub fn begin(
        job: &JobSpec,
        dir: &Path,
        created_at: String,
        now_ms: u64,
    ) -> Result<Self, FileError> {
        if job.resumes.is_some()
            && let Some(record) = Record::take_up(job, dir, now_ms)?
        {
            return Ok(record);
        }
        let conversation = ConversationFile {
            format: CONVERSATION_FORMAT,
            agent_id: job.agent_id,
            task_id: job.task_id.clone(),
            role_id: job.role_id.clone(),
            summary: job.summary.clone(),
            status: Status::Running,
            created_at,
            completed_at: None,
            messages: Vec::new(),
            stats: Stats::default(),
            result: None,
            other: serde_json::Map::new(),
        };
        let mut record = Record {
            journal: Journal::create(dir)?,
            saver: Saver {
                dir: dir.to_owned(),
                saved_ms: now_ms,
                changed: true,
            },
            conversation,
            mask: Mask::default(),
        };
        record.journal.append(&start_line(&record.conversation))?;
        record
            .saver
            .save(&record.conversation, now_ms, Durability::Process)?;
        Ok(record)
    }

    /// Goes on with the journal of this run that is there already; none when there is none.
    fn take_up(job: &JobSpec, dir: &Path, now_ms: u64) -> Result<Option<Self>, FileError> {
        let Some((journal, bytes)) = Journal::open_again(dir, CONVERSATION_BYTES_MAX)? else {
            return Ok(None);
        };
        let Some(folded) = fold(&bytes, &job.task_id) else {
            return Ok(None);
        };
        let mut record = Record {
            journal,
            saver: Saver {
                dir: dir.to_owned(),
                saved_ms: now_ms,
                changed: true,
            },
            conversation: folded.file,
            mask: Mask::default(),
        };
        record
            .saver
            .save(&record.conversation, now_ms, Durability::Process)?;
        Ok(Some(record))
    }

    /// Keeps these secrets out of everything from here on, and out of what was said before: the
    /// model reads it again with each turn.
    pub fn hide(&mut self, mask: Mask) {
        mask.conversation(&mut self.conversation);
        self.saver.changed = true;
        self.mask = mask;
    }

    /// The conversation so far.
    pub fn conversation(&self) -> &ConversationFile {
        &self.conversation
    }

    /// The conversation, and beside it what writes it.
    pub fn split(&mut self) -> (&ConversationFile, &mut Saver) {
        (&self.conversation, &mut self.saver)
    }

    /// Adds a message: to the journal first, then to the conversation, where it is given back.
    ///
    /// # Errors
    /// When the journal can't be written; the conversation is then as it was.
    pub fn append(
        &mut self,
        mut message: Message,
        message_ids: Vec<String>,
        stats: Stats,
    ) -> Result<&Message, FileError> {
        self.mask.message(&mut message);
        self.restore_journal()?;
        let line = JournalLine::Message {
            message: message.clone(),
            stats,
            message_ids,
        };
        self.journal.append(&line)?;
        self.conversation.stats = stats;
        self.saver.changed = true;
        let messages = &mut self.conversation.messages;
        messages.push(message);
        Ok(&messages[messages.len() - 1])
    }

    /// Puts a shorter conversation in the place of this one. What it was stays in the journal.
    ///
    /// # Errors
    /// When the journal can't be written; the conversation is then as it was.
    pub fn replace(&mut self, mut messages: Vec<Message>) -> Result<(), FileError> {
        for message in &mut messages {
            self.mask.message(message);
        }
        self.restore_journal()?;
        let line = JournalLine::Replaced { messages };
        self.journal.append(&line)?;
        if let JournalLine::Replaced { messages } = line {
            self.conversation.messages = messages;
        }
        self.saver.changed = true;
        Ok(())
    }

    /// The boundary between two turns: the journal goes to the disk, the conversation to its
    /// file if that is due.
    ///
    /// # Errors
    /// When either can't be written.
    pub fn boundary(&mut self, now_ms: u64) -> Result<(), FileError> {
        self.journal.sync()?;
        self.saver.save_if_due(&self.conversation, now_ms)
    }

    /// Ends the record: outcome in the journal, conversation with its result in its file, both
    /// on the disk. The file is tried also when the journal fails, since it is what others read.
    ///
    /// # Errors
    /// The first of what could not be written.
    pub fn finish(
        &mut self,
        mut outcome: Outcome,
        status: Status,
        stats: Stats,
        completed_at: String,
        now_ms: u64,
    ) -> Result<(), FileError> {
        self.mask.outcome(&mut outcome);
        let line = JournalLine::Finished {
            result: outcome.clone(),
            stats,
            completed_at: completed_at.clone(),
        };
        let journalled = self
            .restore_journal()
            .and_then(|()| self.journal.append(&line))
            .and_then(|()| self.journal.sync());
        self.conversation.status = status;
        self.conversation.stats = stats;
        self.conversation.complete_at(completed_at);
        self.conversation.result = Some(outcome);
        let saved = self
            .saver
            .save(&self.conversation, now_ms, Durability::Machine);
        journalled.and(saved)
    }

    /// Makes the journal again when the agent deleted it, with all that it held.
    fn restore_journal(&mut self) -> Result<(), FileError> {
        if !self.journal.is_lost() {
            return Ok(());
        }
        tracing::warn!(dir = %self.saver.dir.display(), "the run's own files are gone; made again");
        let mut journal = Journal::create(&self.saver.dir)?;
        journal.append(&start_line(&self.conversation))?;
        journal.append(&JournalLine::Replaced {
            messages: self.conversation.messages.clone(),
        })?;
        self.journal = journal;
        self.saver.changed = true;
        Ok(())
    }
}

fn start_line(conversation: &ConversationFile) -> JournalLine {
    JournalLine::Start {
        format: JOURNAL_FORMAT,
        agent_id: conversation.agent_id,
        task_id: conversation.task_id.clone(),
        role_id: conversation.role_id.clone(),
        summary: conversation.summary.clone(),
        created_at: conversation.created_at.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::job::JOURNAL_FILE;
    use protocol::status::StopReason;

    use super::*;
    use crate::io::job::tests::sample_job;

    fn begin(dir: &Path) -> Record {
        let job = sample_job(dir);
        Record::begin(&job, dir, "2026-03-10T12:00:00Z".into(), 0).unwrap()
    }

    fn on_disk(dir: &Path) -> ConversationFile {
        serde_json::from_slice(&fs::read(dir.join(CONVERSATION_FILE)).unwrap()).unwrap()
    }

    fn folded(dir: &Path, record: &Record) -> ConversationFile {
        let bytes = fs::read(dir.join(JOURNAL_FILE)).unwrap();
        let folded = fold(&bytes, &record.conversation.task_id).unwrap();
        assert_eq!(folded.skipped, 0);
        folded.file
    }

    fn turns(turns: u64) -> Stats {
        Stats {
            turns,
            ..Stats::default()
        }
    }

    #[test]
    fn the_journal_tells_the_same_as_the_conversation() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let mut record = begin(dir);
        assert_eq!(on_disk(dir), *record.conversation());
        for n in 0..3 {
            let message = Message::user(format!("message {n}"));
            record.append(message, Vec::new(), turns(n)).unwrap();
            assert_eq!(folded(dir, &record), *record.conversation());
        }
        let outcome = Outcome {
            success: false,
            summary: "no".into(),
            stop_reason: Some(StopReason::NoFinish),
        };
        let at = "2026-03-10T12:02:00Z".to_owned();
        record
            .finish(outcome, Status::Failed, turns(3), at, 5)
            .unwrap();
        assert_eq!(folded(dir, &record), *record.conversation());
        assert_eq!(on_disk(dir), *record.conversation());
    }

    #[test]
    fn a_run_that_goes_on_appends_to_what_was_said() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let job = JobSpec {
            resumes: Some(protocol::ids::TaskId::new("sub_00000000").unwrap()),
            ..sample_job(dir)
        };
        let at = || "2026-03-10T12:00:00Z".to_owned();
        // Without a journal it begins like any other.
        let mut first = Record::begin(&job, dir, at(), 0).unwrap();
        first
            .append(Message::user("one"), Vec::new(), turns(1))
            .unwrap();
        let mut second = Record::begin(&job, dir, at(), 0).unwrap();
        assert_eq!(second.conversation().messages, [Message::user("one")]);
        second
            .append(Message::user("two"), Vec::new(), turns(2))
            .unwrap();
        assert_eq!(folded(dir, &second).messages.len(), 2);
        // One that does not go on begins anew.
        let third = Record::begin(&sample_job(dir), dir, at(), 0).unwrap();
        assert_eq!(third.conversation().messages, []);
    }

    #[test]
    fn a_message_costs_the_same_however_many_there_are() {
        // The shortest of some rounds is the cost without what else the machine does.
        let root = tempfile::tempdir().unwrap();
        let cost = |messages: usize| {
            let mut record = begin(root.path());
            let began = std::time::Instant::now();
            for _ in 0..messages {
                let message = Message::user("x".repeat(100));
                record.append(message, Vec::new(), turns(1)).unwrap();
            }
            began.elapsed()
        };
        let shortest = |messages| (0..4).map(|_| cost(messages)).min().unwrap();
        let (short, long) = (shortest(1_000), shortest(8_000));
        // Eight times the messages; a quadratic cost would be 64 times as much.
        assert!(long < short * 24, "{short:?} for 1000, {long:?} for 8000");
    }

    #[test]
    fn a_shorter_conversation_is_what_both_files_tell() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let mut record = begin(dir);
        for text in ["one", "two"] {
            record
                .append(Message::user(text), Vec::new(), turns(1))
                .unwrap();
        }
        record.replace(vec![Message::user("both")]).unwrap();
        record
            .append(Message::user("three"), Vec::new(), turns(2))
            .unwrap();
        record.boundary(SAVE_INTERVAL_MS).unwrap();
        let wanted = [Message::user("both"), Message::user("three")];
        assert_eq!(record.conversation().messages, wanted);
        assert_eq!(folded(dir, &record), *record.conversation());
        assert_eq!(on_disk(dir), *record.conversation());
        let journal = fs::read_to_string(dir.join(JOURNAL_FILE)).unwrap();
        assert!(journal.contains("\"two\""), "{journal}");
    }

    #[test]
    fn a_secret_is_in_neither_file_nor_in_what_the_model_reads_again() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let mut record = begin(dir);
        record
            .append(Message::user("before: tok123456789"), Vec::new(), turns(0))
            .unwrap();
        record.hide(Mask::of(["tok123456789"]));
        let added = record
            .append(
                Message::tool("c1", "dG9rMTIzNDU2Nzg5"),
                Vec::new(),
                turns(1),
            )
            .unwrap();
        assert_eq!(*added, Message::tool("c1", "[masked]"));
        let outcome = Outcome {
            success: true,
            summary: "it is tok123456789".into(),
            stop_reason: None,
        };
        record
            .finish(outcome, Status::Completed, turns(1), "t".into(), 5)
            .unwrap();
        let file = on_disk(dir);
        assert_eq!(
            file.messages,
            [
                Message::user("before: [masked]"),
                Message::tool("c1", "[masked]")
            ]
        );
        assert_eq!(file.result.unwrap().summary, "it is [masked]");
        let journal = fs::read_to_string(dir.join(JOURNAL_FILE)).unwrap();
        let behind = journal.lines().skip(2).collect::<String>();
        assert!(!behind.contains("tok123456789"), "{behind}");
    }

    #[test]
    fn the_file_is_written_at_most_once_a_second() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let mut record = begin(dir);
        let mut written = Vec::new();
        for now_ms in 0..3_000 {
            let message = Message::user("x");
            record.append(message, Vec::new(), turns(now_ms)).unwrap();
            let (conversation, saver) = record.split();
            let before = saver.saved_ms;
            saver.save_if_due(conversation, now_ms).unwrap();
            if saver.saved_ms != before {
                written.push(now_ms);
            }
        }
        assert_eq!(written, [1_000, 2_000]);
    }

    #[test]
    fn a_deleted_folder_is_made_again_with_all_that_was_said() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("out/.subagent");
        let mut record = begin(&dir);
        record
            .append(Message::user("one"), Vec::new(), turns(1))
            .unwrap();
        fs::remove_dir_all(root.path().join("out")).unwrap();
        record
            .append(Message::user("two"), Vec::new(), turns(2))
            .unwrap();
        record.boundary(SAVE_INTERVAL_MS).unwrap();
        assert_eq!(folded(&dir, &record), *record.conversation());
        assert_eq!(on_disk(&dir), *record.conversation());
        assert_eq!(record.conversation().messages.len(), 2);
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_an_error_with_its_path() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("out/.subagent");
        let mut record = begin(&dir);
        fs::remove_dir_all(root.path().join("out")).unwrap();
        fs::write(root.path().join("out"), "mine").unwrap();
        let error = record
            .append(Message::user("one"), Vec::new(), turns(1))
            .unwrap_err();
        assert!(error.to_string().contains(".subagent"), "{error}");
        assert_eq!(record.conversation().messages.len(), 0);
    }
}
