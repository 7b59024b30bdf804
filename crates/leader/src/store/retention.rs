//! What is kept of ended runs: for some days, and so many of them. Deliverables are never touched:
//! they lie elsewhere, and no link is followed to them.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use protocol::config::RetentionSettings;
use protocol::ids::ConversationId;

use crate::os::files::Dir;
use crate::store::log::{LOG_FILE, LogError, RunLock, read_until};
use crate::store::recover::{RUNS_DIR, has_ended};

/// Runs that one start of a leader removes, oldest first; the rest waits for the next start.
pub const REMOVED_PER_START_MAX: usize = 50;
/// Runs that one start looks at.
const LOOKED_AT_MAX: usize = 20_000;
/// Seconds of a day.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A run's folder, as a listing tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    /// Ids made later sort later.
    conversation: ConversationId,
    /// When its log was last written, in seconds since 1970.
    written: i64,
}

/// Which of these runs are too old or too many, oldest first.
fn surplus(mut runs: Vec<Kept>, rules: RetentionSettings, now: i64) -> Vec<Kept> {
    let oldest_first = |a: &Kept, b: &Kept| match a.written.cmp(&b.written) {
        Ordering::Equal => a.conversation.cmp(&b.conversation),
        order => order,
    };
    runs.sort_by(oldest_first);
    let too_many = runs.len().saturating_sub(rules.runs as usize);
    let too_old = now.saturating_sub(i64::from(rules.days) * DAY_SECONDS);
    runs.into_iter()
        .enumerate()
        .filter(|(at, run)| *at < too_many || run.written < too_old)
        .map(|(_, run)| run)
        .collect()
}

/// Removes ended runs of a workspace that are too old or too many, at most
/// [`REMOVED_PER_START_MAX`]; `now` is in seconds since 1970. Says which. A run that has not ended
/// or whose leader lives is left alone, and one that can't be removed is passed over with a
/// warning in the diagnostic log. Blocks; not for an async task.
pub fn sweep(workspace: &Path, rules: RetentionSettings, now: i64) -> Vec<ConversationId> {
    // Step by step from the workspace, so that no link leads elsewhere.
    let Ok(runs) = Dir::open(workspace).and_then(|dir| dir.open_below(Path::new(RUNS_DIR))) else {
        return Vec::new();
    };
    let listed = list(&runs).unwrap_or_else(|error| {
        tracing::warn!(%error, "the ended runs could not be listed");
        Vec::new()
    });
    let mut removed = Vec::new();
    for run in surplus(listed, rules, now) {
        if removed.len() == REMOVED_PER_START_MAX {
            break;
        }
        match remove(&runs, &run.conversation) {
            Ok(true) => {
                tracing::info!(conversation = %run.conversation, "removed an ended run");
                removed.push(run.conversation);
            }
            Ok(false) => {}
            Err(error) => {
                let conversation = &run.conversation;
                tracing::warn!(%conversation, %error, "an ended run could not be removed");
            }
        }
    }
    removed
}

fn list(runs: &Dir) -> io::Result<Vec<Kept>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(runs.path())?.take(LOOKED_AT_MAX) {
        let entry = entry?;
        let conversation = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // A link's own type is told here, not that of what it leads to.
        if let Some(conversation) = conversation
            && entry.file_type()?.is_dir()
        {
            let log = fs::symlink_metadata(entry.path().join(LOG_FILE));
            // Without a log its leader has just made it, or died before it began.
            let meta = log.or_else(|_| entry.metadata())?;
            found.push(Kept {
                conversation,
                written: meta.mtime(),
            });
        }
    }
    Ok(found)
}

/// Removes one run, unless it is somebody's or has not ended.
fn remove(runs: &Dir, conversation: &ConversationId) -> Result<bool, LogError> {
    let name = PathBuf::from(conversation.as_str());
    let path = runs.path().join(&name);
    let failed = |error| LogError::io("remove", &path, error);
    // Held by descriptor: what is looked at is what is removed.
    let dir = runs.open_dir(&name).map_err(failed)?;
    if RunLock::is_held(&dir.path())? {
        return Ok(false);
    }
    let has_log = dir.path().join(LOG_FILE).exists();
    if has_log && !has_ended(&dir.path()).map_err(failed)? {
        return Ok(false);
    }
    let lock = match RunLock::take(&dir.path(), &holder()) {
        Ok(lock) => lock,
        Err(LogError::Held { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    // Links in it are removed, not followed (std documents it of this function).
    fs::remove_dir_all(&path).map_err(failed)?;
    drop(lock);
    Ok(true)
}

fn holder() -> String {
    format!("pid {}, removing what is not kept", std::process::id())
}

/// Removes the run's folder of a conversation that has ended without any agent: a refused task
/// leaves nothing worth a line in a list. Says whether it did. Blocks.
///
/// # Errors
/// When its log can't be read or it can't be removed.
pub fn remove_if_nobody_ran(run_dir: &Path) -> Result<bool, LogError> {
    // The log of a long run is not read for its first lines.
    let log = read_until(run_dir, |run| !run.agents.is_empty())?;
    if !log.run.ended || !log.run.agents.is_empty() || log.foreign_lines > 0 {
        return Ok(false);
    }
    let _lock = match RunLock::take(run_dir, &holder()) {
        Ok(lock) => lock,
        Err(LogError::Held { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    fs::remove_dir_all(run_dir).map_err(|error| LogError::io("remove", run_dir, error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::record::{AgentTag, Record};
    use crate::os::clock;
    use crate::store::log::EventLog;
    use crate::store::test_job::job;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    const NOW: i64 = 1_800_000_000;
    const RULES: RetentionSettings = RetentionSettings { days: 30, runs: 3 };

    fn kept(number: u32, days_ago: i64) -> Kept {
        Kept {
            conversation: conversation(number),
            written: NOW - days_ago * DAY_SECONDS,
        }
    }

    fn conversation(number: u32) -> ConversationId {
        ConversationId::new(format!("conv_{number:08}")).unwrap()
    }

    #[test]
    fn what_is_too_old_or_one_too_many_goes_and_the_oldest_first() {
        for (ages, gone) in [
            (vec![], vec![]),
            (vec![0, 30, 30], vec![]),
            (vec![31, 0, 40], vec![3, 1]),
            (vec![1, 2, 3, 4], vec![4]),
            (vec![0, 0, 0, 0, 0], vec![1, 2]),
            (vec![50, 4, 3, 2, 1], vec![1, 2]),
        ] {
            let runs = ages
                .iter()
                .zip(1..)
                .map(|(age, number)| kept(number, *age))
                .collect();
            let named: Vec<ConversationId> = surplus(runs, RULES, NOW)
                .into_iter()
                .map(|run| run.conversation)
                .collect();
            let gone: Vec<ConversationId> = gone.into_iter().map(conversation).collect();
            assert_eq!(named, gone, "{ages:?}");
        }
        // One second more than the limit is too old, the limit itself is not.
        let mut edge = kept(1, 30);
        assert_eq!(surplus(vec![edge.clone()], RULES, NOW), vec![]);
        edge.written -= 1;
        assert_eq!(surplus(vec![edge.clone()], RULES, NOW), vec![edge]);
    }

    struct Place {
        dir: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Place {
            Place {
                dir: tempfile::tempdir().unwrap(),
            }
        }

        fn run_dir(&self, number: u32) -> PathBuf {
            let runs = self.dir.path().join(RUNS_DIR);
            runs.join(conversation(number).as_str())
        }

        /// A run of that age in days with these records behind its first.
        fn run(&self, number: u32, days_ago: u64, records: Vec<Record>) -> PathBuf {
            let dir = self.run_dir(number);
            fs::create_dir_all(&dir).unwrap();
            let lock = RunLock::take(&dir, "test").unwrap();
            let opened = EventLog::open(lock, Box::new(drop), Default::default()).unwrap();
            let workspace = self.dir.path().to_path_buf();
            let first = Record::run_started(conversation(number), "0", workspace);
            for record in std::iter::once(first).chain(records) {
                let pending = opened
                    .log
                    .append_blocking(Box::new(record), clock::timestamp());
                pending.unwrap().wait().unwrap();
            }
            opened.log.close();
            let log = fs::OpenOptions::new()
                .append(true)
                .open(dir.join(LOG_FILE))
                .unwrap();
            log.set_modified(SystemTime::now() - Duration::from_secs(days_ago * 24 * 60 * 60))
                .unwrap();
            dir
        }

        fn sweep(&self, rules: RetentionSettings) -> Vec<u32> {
            let removed = sweep(self.dir.path(), rules, clock::unix_seconds());
            let number = |id: &ConversationId| id.as_str()["conv_".len()..].parse().unwrap();
            removed.iter().map(number).collect()
        }
    }

    fn created(place: &Place) -> Record {
        let job = job(place.dir.path(), "d1");
        Record::Created {
            agent: AgentTag::of(&job),
            job: Box::new(job.clone()),
            task: "t".to_owned(),
            deliverables: job.workspace.join(&job.deliverables_dir),
            write_paths: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_has_not_ended_or_is_somebodys_stays_whatever_its_age() {
        let place = Place::new();
        let ended = || vec![Record::RunEnded {}];
        place.run(1, 90, ended());
        let unfolded = place.run(2, 90, vec![created(&place)]);
        let held = place.run(3, 90, ended());
        let young = place.run(4, 29, ended());
        let lock = RunLock::take(&held, "pid 1").unwrap();
        assert_eq!(place.sweep(RULES), [1]);
        drop(lock);
        assert_eq!(place.sweep(RULES), [3]);
        assert!(unfolded.exists() && young.exists());
        assert_eq!(place.sweep(RULES), Vec::<u32>::new());
    }

    #[test]
    fn one_start_removes_only_so_many() {
        let place = Place::new();
        let more = 2;
        for number in 0..u32::try_from(REMOVED_PER_START_MAX + more).unwrap() {
            // A leader that died before it had begun its log left these.
            fs::create_dir_all(place.run_dir(number)).unwrap();
            let old = SystemTime::now() - Duration::from_secs(90 * 24 * 60 * 60);
            let dir = fs::File::open(place.run_dir(number)).unwrap();
            dir.set_modified(old).unwrap();
        }
        assert_eq!(place.sweep(RULES).len(), REMOVED_PER_START_MAX);
        assert_eq!(place.sweep(RULES).len(), more);
    }

    /// An agent can put links into its workspace.
    #[test]
    fn no_link_leads_the_removal_elsewhere() {
        let place = Place::new();
        let dir = place.run(1, 90, vec![Record::RunEnded {}]);
        let treasure = place.dir.path().join("treasure");
        fs::create_dir(&treasure).unwrap();
        fs::write(treasure.join("file"), "x").unwrap();
        symlink(&treasure, dir.join("lead")).unwrap();
        symlink(&treasure, place.run_dir(2)).unwrap();
        assert_eq!(place.sweep(RULES), [1]);
        assert!(treasure.join("file").exists());
        // The folder of the runs itself is a link.
        let other = Place::new();
        fs::create_dir(other.dir.path().join(".muster")).unwrap();
        place.run(3, 90, vec![Record::RunEnded {}]);
        symlink(
            place.dir.path().join(RUNS_DIR),
            other.dir.path().join(RUNS_DIR),
        )
        .unwrap();
        assert_eq!(other.sweep(RULES), Vec::<u32>::new());
        assert!(place.run_dir(3).exists());
    }

    #[test]
    fn a_run_in_which_nobody_ran_is_removed_at_its_end_and_no_other() {
        let place = Place::new();
        let empty = place.run(1, 0, vec![Record::RunEnded {}]);
        let live = place.run(2, 0, vec![]);
        let used = place.run(3, 0, vec![created(&place), Record::RunEnded {}]);
        assert!(remove_if_nobody_ran(&empty).unwrap());
        assert!(!remove_if_nobody_ran(&live).unwrap());
        assert!(!remove_if_nobody_ran(&used).unwrap());
        assert_eq!(
            [empty.exists(), live.exists(), used.exists()],
            [false, true, true]
        );
    }
}
