use super::*;
use crate::store::agent_dir::StartFiles;
use crate::store::test_job::job;
use protocol::conversation::Message;
use protocol::journal::{JOURNAL_FORMAT, JournalLine};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

struct Case {
    place: tempfile::TempDir,
    job: JobSpec,
    dir: AgentDir,
}

impl Case {
    fn new() -> Case {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path(), "d");
        let files = StartFiles {
            job: &job,
            task: "t",
            system_prompt: "s",
        };
        let dir = AgentDir::prepare(place.path(), files).unwrap();
        Case { place, job, dir }
    }

    fn own(&self, name: &str) -> PathBuf {
        self.place.path().join("d").join(AGENT_DIR).join(name)
    }

    fn evidence(&mut self) -> Evidence {
        collect(&mut self.dir, &self.job.task_id, || false).evidence
    }

    fn why(&mut self) -> String {
        match self.evidence() {
            Evidence::Bad { why } => why,
            other => panic!("taken for a result: {other:?}"),
        }
    }

    fn file(&self, status: Status, result: Option<Outcome>) -> ConversationFile {
        ConversationFile {
            status,
            result,
            messages: vec![
                Message::user("go"),
                Message::assistant(Some("thinking".into()), Vec::new()),
            ],
            ..empty(&self.job)
        }
    }

    fn write(&self, file: &ConversationFile) {
        fs::write(
            self.own(CONVERSATION_FILE),
            serde_json::to_vec(file).unwrap(),
        )
        .unwrap();
    }

    fn write_journal(&self, lines: &[JournalLine]) {
        let start = JournalLine::Start {
            format: JOURNAL_FORMAT,
            agent_id: self.job.agent_id,
            task_id: self.job.task_id.clone(),
            role_id: None,
            summary: self.job.summary.clone(),
            created_at: self.job.created_at.clone(),
        };
        let text: String = std::iter::once(&start)
            .chain(lines)
            .map(|line| format!("{}\n", serde_json::to_string(line).unwrap()))
            .collect();
        fs::write(self.own(JOURNAL_FILE), text).unwrap();
    }

    fn read_back(&self) -> ConversationFile {
        serde_json::from_slice(&fs::read(self.own(CONVERSATION_FILE)).unwrap()).unwrap()
    }
}

fn success() -> Outcome {
    Outcome {
        success: true,
        summary: "done".into(),
        stop_reason: None,
    }
}

fn message(text: &str) -> JournalLine {
    JournalLine::Message {
        message: Message::assistant(Some(text.into()), Vec::new()),
        stats: Stats {
            turns: 3,
            ..Stats::default()
        },
        message_ids: Vec::new(),
    }
}

fn word(status: Status, stop_reason: Option<StopReason>) -> FinalWord {
    FinalWord {
        status,
        stop_reason,
        summary: "last text".into(),
        at: "2026-03-10T12:02:00Z".into(),
    }
}

#[test]
fn a_result_file_that_is_none_is_told_with_what_is_wrong() {
    for (content, why) in [
        (
            "",
            "is not valid: EOF while parsing a value at line 1 column 0",
        ),
        (
            "{\"agent_id\":1,",
            "is not valid: EOF while parsing a value at line 1 column 14",
        ),
        ("null", "is not valid: invalid type: null"),
        ("[]", "is not valid: invalid length 0"),
        (
            "{\"format\":\"x\",\"task_id\":7,\"messages\":{}}",
            "is not valid: invalid type: string \"x\"",
        ),
    ] {
        let mut case = Case::new();
        fs::write(case.own(CONVERSATION_FILE), content).unwrap();
        fs::write(case.place.path().join("d/left.md"), "x").unwrap();
        let found = collect(&mut case.dir, &case.job.task_id, || false);
        let Evidence::Bad { why: told } = found.evidence else {
            panic!("{content:?} was taken for a result");
        };
        assert!(told.contains(why), "{content:?}: {told}");
        assert_eq!(found.deliverables.files, ["left.md"]);
    }
    let mut case = Case::new();
    assert_eq!(case.why(), "there is no conversations.json");
    fs::write(case.own(CONVERSATION_FILE), "[".repeat(1_000_000)).unwrap();
    assert!(case.why().starts_with("conversations.json is not valid"));
}

#[test]
fn links_fifos_and_directories_are_not_read() {
    let mut case = Case::new();
    symlink("/etc/passwd", case.own(CONVERSATION_FILE)).unwrap();
    assert_eq!(case.why(), "conversations.json is a symbolic link");
    fs::remove_file(case.own(CONVERSATION_FILE)).unwrap();
    symlink(CONVERSATION_FILE, case.own(CONVERSATION_FILE)).unwrap();
    assert_eq!(case.why(), "conversations.json is a symbolic link");
    fs::remove_file(case.own(CONVERSATION_FILE)).unwrap();
    nix::unistd::mkfifo(&case.own(CONVERSATION_FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(case.why().contains("FIFO"));
    fs::remove_dir_all(case.own("")).unwrap();
    symlink("/etc", case.place.path().join("d").join(AGENT_DIR)).unwrap();
    assert_eq!(case.why(), ".subagent was replaced by a symbolic link");
}

#[test]
fn another_runs_file_is_no_result() {
    let mut case = Case::new();
    let mut file = case.file(Status::Completed, Some(success()));
    file.task_id = TaskId::new("sub_00000009").unwrap();
    case.write(&file);
    assert_eq!(
        case.why(),
        "conversations.json is of another run, sub_00000009"
    );
}

#[test]
fn file_and_journal_are_each_enough_for_a_report() {
    let report = Evidence::Report(FinishedParams {
        success: true,
        summary: "done".into(),
        stop_reason: None,
        stats: Stats::default(),
    });
    let mut case = Case::new();
    case.write(&case.file(Status::Completed, Some(success())));
    assert_eq!(case.evidence(), report);
    let mut case = Case::new();
    case.write(&case.file(Status::Running, None));
    assert_eq!(
        case.evidence(),
        Evidence::Unfinished {
            last_text: "thinking".into(),
            stats: Stats::default()
        }
    );
    case.write_journal(&[JournalLine::Finished {
        result: success(),
        stats: Stats::default(),
        completed_at: "2026-03-10T12:01:00Z".into(),
    }]);
    assert_eq!(case.evidence(), report);
}

#[test]
fn an_oversized_file_is_refused_unread() {
    let mut case = Case::new();
    let file = fs::File::create(case.own(CONVERSATION_FILE)).unwrap();
    // Sparse: it takes no space on the disk.
    file.set_len(limits::CONVERSATION_BYTES_MAX + 1).unwrap();
    assert_eq!(
        case.why(),
        "conversations.json has 268435457 bytes; the most is 268435456"
    );
}

#[test]
fn a_killed_run_is_completed_from_its_journal() {
    let mut case = Case::new();
    case.write(&case.file(Status::Running, None));
    case.write_journal(&[message("one"), message("two"), message("three")]);
    let word = word(Status::TimedOut, Some(StopReason::Deadline));
    conclude(&mut case.dir, &case.job, &word, &Mask::default()).unwrap();
    let file = case.read_back();
    assert_eq!(file.status, Status::TimedOut);
    assert_eq!(file.completed_at.as_deref(), Some("2026-03-10T12:02:00Z"));
    assert_eq!((file.messages.len(), file.stats.turns), (3, 3));
    assert_eq!(
        file.result,
        Some(Outcome {
            success: false,
            summary: "last text".into(),
            stop_reason: Some(StopReason::Deadline),
        })
    );
}

#[test]
fn a_finished_file_is_left_as_the_worker_wrote_it() {
    let mut case = Case::new();
    let mut file = case.file(Status::Completed, Some(success()));
    file.completed_at = Some("2026-03-10T12:01:00Z".into());
    case.write(&file);
    conclude(
        &mut case.dir,
        &case.job,
        &word(Status::Completed, None),
        &Mask::default(),
    )
    .unwrap();
    assert_eq!(case.read_back(), file);
}

#[test]
fn what_can_not_be_read_is_kept_beside_a_valid_file() {
    let mut case = Case::new();
    fs::write(case.own(CONVERSATION_FILE), "{\"torn").unwrap();
    let word = word(Status::Failed, Some(StopReason::BadResultFile));
    conclude(&mut case.dir, &case.job, &word, &Mask::default()).unwrap();
    assert_eq!(
        fs::read_to_string(case.own(BAD_CONVERSATION_FILE)).unwrap(),
        "{\"torn"
    );
    let file = case.read_back();
    assert_eq!((file.status, file.messages.len()), (Status::Failed, 0));
    assert_eq!(file.summary, case.job.summary);
    let names = fs::read_dir(case.own("")).unwrap().count();
    assert_eq!(names, 5, "three start files, the bad and the good one");
}

#[test]
fn what_was_begun_to_be_written_at_a_kill_is_removed() {
    let mut case = Case::new();
    case.write(&case.file(Status::Running, None));
    for begun in [
        ".conversations.json.aB3dEf.tmp",
        "conversations.json.71.tmp",
    ] {
        fs::write(case.own(begun), "{\"form").unwrap();
    }
    // Names that only look alike belong to somebody else, and a folder is no file of ours.
    fs::write(case.own(".conversations.json.tmp.txt"), "").unwrap();
    fs::create_dir(case.own(".conversations.json.dir.tmp")).unwrap();
    let word = word(Status::Failed, Some(StopReason::WorkerCrashed));
    conclude(&mut case.dir, &case.job, &word, &Mask::default()).unwrap();
    let mut names: Vec<String> = fs::read_dir(case.own(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            ".conversations.json.dir.tmp",
            ".conversations.json.tmp.txt",
            "conversations.json",
            "job.json",
            "system_prompt.md",
            "task.md",
        ]
    );
}
