//! The log on a real disk: torn ends, groups, locks, and a disk that is full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use protocol::event::EventLine;
use protocol::ids::ConversationId;
use protocol::limits::LINE_BYTES_MAX;
use protocol::secret::Mask;
use protocol::status::StopReason;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::writer::{Append, LogFile, Writer};
use super::*;
use crate::core::record::{Durability, Record};

const TS: &str = "2026-03-10T12:00:00Z";

fn started() -> Box<Record> {
    let conversation = ConversationId::new("conv_00000001").unwrap();
    Box::new(Record::run_started(
        conversation,
        "0.1.0",
        PathBuf::from("/w"),
    ))
}

fn stopping() -> Box<Record> {
    Box::new(Record::RunStopping {
        reason: StopReason::LeaderStopped,
    })
}

fn open(dir: &Path) -> Opened {
    let lock = RunLock::take(dir, "pid 1").unwrap();
    EventLog::open(lock, Box::new(drop), Mask::default()).unwrap()
}

fn append(log: &EventLog, record: Box<Record>) -> u64 {
    log.append_blocking(record, TS.to_owned())
        .unwrap()
        .wait()
        .unwrap()
}

fn lines(dir: &Path) -> Vec<EventLine> {
    std::fs::read_to_string(dir.join(LOG_FILE))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A log of two records, and its bytes.
fn two_lines(dir: &Path) -> Vec<u8> {
    let opened = open(dir);
    append(&opened.log, started());
    append(&opened.log, stopping());
    opened.log.close();
    std::fs::read(dir.join(LOG_FILE)).unwrap()
}

#[test]
fn what_was_appended_is_numbered_and_read_back() {
    let dir = TempDir::new().unwrap();
    two_lines(dir.path());
    let found = read(dir.path()).unwrap();
    assert_eq!(
        (found.last_seq, found.foreign_lines, found.torn_bytes),
        (2, 0, 0)
    );
    assert_eq!(found.run.stopping, Some(StopReason::LeaderStopped));
    assert_eq!(found.run.workspace, Some(PathBuf::from("/w")));
    let opened = open(dir.path());
    assert_eq!(opened.found, found);
    assert_eq!(opened.quarantined, None);
    assert_eq!(append(&opened.log, Box::new(Record::RunEnded {})), 3);
    opened.log.close();
    let seqs: Vec<u64> = lines(dir.path()).iter().map(|line| line.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    assert!(read(dir.path()).unwrap().run.ended);
}

#[test]
fn no_more_is_read_than_is_wanted() {
    let dir = TempDir::new().unwrap();
    two_lines(dir.path());
    let found = read_until(dir.path(), |run| run.workspace.is_some()).unwrap();
    assert_eq!((found.last_seq, found.run.stopping), (1, None));
    let found = read_until(dir.path(), |run| run.ended).unwrap();
    assert_eq!(found, read(dir.path()).unwrap());
}

#[test]
fn no_log_is_an_empty_log() {
    let dir = TempDir::new().unwrap();
    assert_eq!(read(dir.path()).unwrap(), ReadLog::default());
}

#[test]
fn a_last_line_torn_at_any_byte_costs_only_itself() {
    // The next append once grew onto the half line, and both records were lost.
    let source = TempDir::new().unwrap();
    let whole = two_lines(source.path());
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in first..=whole.len() {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join(LOG_FILE), &whole[..cut]).unwrap();
        let opened = open(dir.path());
        // Whole, or whole but for its newline, it counts.
        let kept = cut >= whole.len() - 1;
        let torn = cut > first && !kept;
        assert_eq!(opened.quarantined.is_some(), torn, "cut at {cut}");
        assert_eq!(opened.found.run.stopping.is_some(), kept, "cut at {cut}");
        let seq = append(&opened.log, Box::new(Record::RunEnded {}));
        assert_eq!(seq, if kept { 3 } else { 2 }, "cut at {cut}");
        opened.log.close();
        let events: Vec<String> = lines(dir.path())
            .into_iter()
            .map(|line| line.event)
            .collect();
        let expected: &[&str] = if kept {
            &["run.started", "run.stopping", "run.ended"]
        } else {
            &["run.started", "run.ended"]
        };
        assert_eq!(events, expected, "cut at {cut}");
        if torn {
            let aside = std::fs::read(dir.path().join(TORN_FILE)).unwrap();
            assert_eq!(aside, [&whole[first..cut], b"\n"].concat(), "cut at {cut}");
        }
    }
}

#[test]
fn foreign_lines_are_counted_and_left_where_they_are() {
    let dir = TempDir::new().unwrap();
    let mut text = two_lines(dir.path());
    text.extend_from_slice(b"\0\0\0\0\n[[[\n");
    text.extend_from_slice(b"{\"seq\":9,\"ts\":\"t\",\"event\":\"of.later\",\"x\":1}\n");
    text.extend(vec![b'x'; LINE_BYTES_MAX + 10]);
    text.push(b'\n');
    std::fs::write(dir.path().join(LOG_FILE), &text).unwrap();
    let opened = open(dir.path());
    assert_eq!((opened.found.foreign_lines, opened.found.last_seq), (4, 9));
    assert_eq!(append(&opened.log, Box::new(Record::RunEnded {})), 10);
    opened.log.close();
    let found = read(dir.path()).unwrap();
    assert!(found.run.ended && found.run.stopping.is_some());
    assert_eq!(found.torn_bytes, 0);
}

#[test]
fn two_leaders_never_have_one_run() {
    let dir = TempDir::new().unwrap();
    assert!(!RunLock::is_held(dir.path()).unwrap());
    let lock = RunLock::take(dir.path(), "pid 4711").unwrap();
    assert!(RunLock::is_held(dir.path()).unwrap());
    let error = RunLock::take(dir.path(), "pid 4712").unwrap_err();
    let told = format!(
        "the run in `{}` belongs to a live leader (pid 4711)",
        dir.path().display()
    );
    assert_eq!(error.to_string(), told);
    // Looking does not take it, and the log lets go of it only when it is closed.
    let opened = EventLog::open(lock, Box::new(drop), Mask::default()).unwrap();
    assert!(RunLock::take(dir.path(), "pid 4712").is_err());
    opened.log.close();
    assert!(!RunLock::is_held(dir.path()).unwrap());
    drop(RunLock::take(dir.path(), "pid 4712").unwrap());
}

#[test]
fn who_only_looks_is_never_taken_for_a_leader() {
    let dir = TempDir::new().unwrap();
    drop(RunLock::take(dir.path(), "pid 1").unwrap());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    RunLock::is_held(dir.path()).unwrap();
                }
            });
        }
        let taken: Vec<_> = (0..300)
            .map(|_| RunLock::take(dir.path(), "pid 1").map(drop))
            .collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            taken.iter().all(Result::is_ok),
            "{:?}",
            taken.iter().find(|taken| taken.is_err())
        );
    });
}

#[test]
fn a_lock_that_is_a_link_is_refused() {
    let dir = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("victim");
    std::fs::write(&target, "keep").unwrap();
    std::os::unix::fs::symlink(&target, dir.path().join(LOCK_FILE)).unwrap();
    assert!(RunLock::take(dir.path(), "pid 1").is_err());
    assert_eq!(std::fs::read_to_string(target).unwrap(), "keep");
}

#[test]
fn eight_producers_share_one_order_and_each_hears_of_its_own_line() {
    const PRODUCERS: u64 = 8;
    const LINES: u64 = 200;
    let dir = TempDir::new().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let lock = RunLock::take(dir.path(), "pid 1").unwrap();
    let observer = Box::new(move |line: Arc<EventLine>| observed.lock().unwrap().push(line.seq));
    let log = EventLog::open(lock, observer, Mask::default()).unwrap().log;
    let mut told: Vec<u64> = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                scope.spawn(|| {
                    (0..LINES)
                        .map(|_| append(&log, started()))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        producers
            .into_iter()
            .flat_map(|producer| {
                let seqs = producer.join().unwrap();
                assert!(seqs.is_sorted(), "the order of one producer is kept");
                seqs
            })
            .collect()
    });
    log.close();
    told.sort_unstable();
    let all: Vec<u64> = (1..=PRODUCERS * LINES).collect();
    assert_eq!(told, all);
    assert_eq!(*seen.lock().unwrap(), all);
    let written: Vec<u64> = lines(dir.path()).iter().map(|line| line.seq).collect();
    assert_eq!(written, all);
}

#[test]
fn a_record_longer_than_a_line_is_refused_and_nothing_else_is() {
    let dir = TempDir::new().unwrap();
    let opened = open(dir.path());
    let conversation = ConversationId::new("conv_00000001").unwrap();
    let path = PathBuf::from("x".repeat(LINE_BYTES_MAX));
    let long = Box::new(Record::run_started(conversation, "0.1.0", path));
    let pending = opened.log.append_blocking(long, TS.to_owned()).unwrap();
    assert!(matches!(pending.wait(), Err(LogError::TooLong { .. })));
    assert_eq!(append(&opened.log, stopping()), 1);
}

/// What a disk did, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Deed {
    Append(usize),
    Sync,
    Cut(u64),
}

/// A disk that fails when it is told to.
#[derive(Debug, Default)]
struct Disk {
    deeds: Vec<Deed>,
    full: bool,
    sync_fails: bool,
    cut_fails: bool,
}

#[derive(Debug, Clone, Default)]
struct FakeFile(Arc<Mutex<Disk>>);

fn fails(when: bool, errno: i32) -> io::Result<()> {
    if when {
        Err(io::Error::from_raw_os_error(errno))
    } else {
        Ok(())
    }
}

impl LogFile for FakeFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.deeds.push(Deed::Append(
            bytes.iter().filter(|byte| **byte == b'\n').count(),
        ));
        fails(disk.full, libc::ENOSPC)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.deeds.push(Deed::Sync);
        fails(disk.sync_fails, libc::EIO)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.deeds.push(Deed::Cut(bytes));
        fails(disk.cut_fails, libc::EIO)
    }
}

/// Gives a group of records to a writer, all at once, and says what each was told.
fn write(writer: &mut Writer, records: Vec<Record>) -> Vec<Result<u64, LogError>> {
    let mut waiting = Vec::new();
    let group: Vec<Append> = records
        .into_iter()
        .map(|record| {
            let (done, wait) = oneshot::channel();
            waiting.push(wait);
            Append {
                record: Box::new(record),
                ts: TS.to_owned(),
                done,
            }
        })
        .collect();
    writer.write_group(group.into_iter());
    waiting
        .into_iter()
        .map(|mut wait| wait.try_recv().unwrap())
        .collect()
}

fn writer(file: &FakeFile) -> Writer {
    let path = PathBuf::from("/run/events.jsonl");
    Writer::new(
        Box::new(file.clone()),
        path,
        (Box::new(drop), Mask::default()),
        1,
        0,
    )
}

#[test]
fn a_group_is_one_write_and_one_sync() {
    let file = FakeFile::default();
    let mut writer = writer(&file);
    let told = write(
        &mut writer,
        vec![*started(), *stopping(), *started(), *started()],
    );
    let seqs: Vec<u64> = told.into_iter().map(Result::unwrap).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    // What asks for no sync gets none of its own.
    assert_eq!(stopping().durability(), Durability::Lazy);
    write(&mut writer, vec![*stopping()]);
    let disk = file.0.lock().unwrap();
    assert_eq!(disk.deeds, [Deed::Append(4), Deed::Sync, Deed::Append(1)]);
}

#[test]
fn a_full_disk_is_told_and_leaves_no_half_line() {
    let file = FakeFile::default();
    let mut writer = writer(&file);
    write(&mut writer, vec![*started()]);
    let good = u64::try_from(
        serde_json::to_vec(&started().to_line(1, TS.to_owned()))
            .unwrap()
            .len()
            + 1,
    )
    .unwrap();
    file.0.lock().unwrap().full = true;
    for told in write(&mut writer, vec![*started(), *stopping()]) {
        let error = told.unwrap_err();
        assert!(error.is_disk_full(), "{error:?}");
        assert_eq!(error.to_string(), "failed to write to `/run/events.jsonl`");
    }
    // With room again it goes on, with the number that was not used.
    file.0.lock().unwrap().full = false;
    assert_eq!(
        write(&mut writer, vec![*started()])[0].as_ref().unwrap(),
        &2
    );
    let disk = file.0.lock().unwrap();
    assert_eq!(
        disk.deeds,
        [
            Deed::Append(1),
            Deed::Sync,
            Deed::Append(2),
            Deed::Cut(good),
            Deed::Append(1),
            Deed::Sync
        ]
    );
}

#[test]
fn a_disk_that_can_neither_write_nor_take_back_is_not_written_to_again() {
    let file = FakeFile::default();
    let mut writer = writer(&file);
    {
        let mut disk = file.0.lock().unwrap();
        (disk.full, disk.cut_fails) = (true, true);
    }
    assert!(write(&mut writer, vec![*started()])[0].is_err());
    {
        let mut disk = file.0.lock().unwrap();
        (disk.full, disk.cut_fails) = (false, false);
    }
    let error = write(&mut writer, vec![*started()]).remove(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to take back a half line of `/run/events.jsonl`"
    );
    assert_eq!(
        file.0.lock().unwrap().deeds,
        [Deed::Append(1), Deed::Cut(0)]
    );
}

#[test]
fn nothing_is_promised_after_a_failed_sync() {
    // A second sync succeeds although the first has dropped the pages.
    let file = FakeFile::default();
    let mut writer = writer(&file);
    file.0.lock().unwrap().sync_fails = true;
    assert!(write(&mut writer, vec![*started()])[0].is_err());
    file.0.lock().unwrap().sync_fails = false;
    assert!(write(&mut writer, vec![*started()])[0].is_err());
    assert_eq!(file.0.lock().unwrap().deeds, [Deed::Append(1), Deed::Sync]);
}

/// What a writer does that is given these records one after another, and then closed.
fn deeds_of(records: Vec<Record>) -> Vec<Deed> {
    let file = FakeFile::default();
    let mut writer = writer(&file);
    for record in records {
        write(&mut writer, vec![record]);
    }
    let (appends, waiting) = mpsc::channel(1);
    drop(appends);
    writer.run(waiting);
    std::mem::take(&mut file.0.lock().unwrap().deeds)
}

#[test]
fn the_last_lines_are_synced_when_the_log_is_closed_unless_they_were() {
    let (lazy, synced) = (|| *stopping(), || *started());
    assert_eq!(deeds_of(vec![lazy()]), [Deed::Append(1), Deed::Sync]);
    assert_eq!(deeds_of(vec![synced()]), [Deed::Append(1), Deed::Sync]);
    assert_eq!(
        deeds_of(vec![lazy(), synced()]),
        [Deed::Append(1), Deed::Append(1), Deed::Sync]
    );
    assert_eq!(
        deeds_of(vec![synced(), lazy()]),
        [Deed::Append(1), Deed::Sync, Deed::Append(1), Deed::Sync]
    );
    // What was found in the file may have come there without a sync.
    assert_eq!(deeds_of(vec![]), [Deed::Sync]);
}

#[test]
fn a_closed_log_says_so() {
    let dir = TempDir::new().unwrap();
    let mut opened = open(dir.path());
    opened.log.stop();
    let told = opened.log.append_blocking(started(), TS.to_owned());
    assert!(matches!(told, Err(LogError::Closed)));
}
