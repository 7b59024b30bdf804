//! An agent's two directories, made before its process is started and held by descriptor until
//! its end is told: the deliverables dir, and the run's own folder inside it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use confine::files::{Open, PROTECTED_NAMES};
use protocol::confinement::WriteMode;
use protocol::error::{ErrorCode, ToolError};
use protocol::job::{AGENT_DIR, JOB_FILE, JobSpec, SYSTEM_PROMPT_FILE, TASK_FILE};

use crate::os::files::{Dir, Kind};

/// The job until it is whole.
const UNFINISHED_JOB_FILE: &str = "job.json.new";

/// Where the folders of earlier runs in the same deliverables dir are kept, inside the present one.
pub const EARLIER_DIR: &str = "earlier";
/// Earlier runs that one deliverables dir can hold.
const EARLIER_RUNS_MAX: u32 = 10_000;

/// The directories of one agent.
#[derive(Debug)]
pub struct AgentDir {
    workspace: Dir,
    relative: PathBuf,
    /// The deliverables dir.
    pub deliverables: Dir,
    /// The run's own folder.
    pub own: Dir,
}

/// What is written before the start.
#[derive(Debug, Clone, Copy)]
pub struct StartFiles<'a> {
    /// The spawn spec.
    pub job: &'a JobSpec,
    /// The task's text.
    pub task: &'a str,
    /// The system prompt.
    pub system_prompt: &'a str,
}

impl AgentDir {
    /// Makes both directories and writes what the worker is started with. The folder of an
    /// earlier run is put away, so that its result can't be taken for this one's.
    ///
    /// # Errors
    /// When a link or file is in the way, or the system refuses.
    pub fn prepare(workspace: &Path, files: StartFiles<'_>) -> Result<AgentDir, ToolError> {
        let relative = files.job.deliverables_dir.clone();
        let shown = relative.display().to_string();
        let workspace =
            Dir::open(workspace).map_err(|error| failed("open the workspace", "", &error))?;
        let deliverables = workspace
            .make_below(&relative)
            .map_err(|error| failed("make the deliverables dir", &shown, &error))?;
        make_write_paths(&workspace, files.job)?;
        let own = fresh_own_dir(&deliverables)
            .map_err(|error| failed("make the run's own folder in", &shown, &error))?;
        write_start_files(&own, files)
            .map_err(|error| failed("write what the worker is started with in", &shown, &error))?;
        Ok(AgentDir {
            workspace,
            relative,
            deliverables,
            own,
        })
    }

    /// Opens the directories of a run that is to go on, making what is gone, without putting
    /// anything away.
    ///
    /// # Errors
    /// When a link or file is in the way, or the system refuses.
    pub fn open_again(workspace: &Path, relative: &Path) -> Result<AgentDir, ToolError> {
        let shown = relative.display().to_string();
        let workspace =
            Dir::open(workspace).map_err(|error| failed("open the workspace", "", &error))?;
        let deliverables = workspace
            .make_below(relative)
            .map_err(|error| failed("open the deliverables dir", &shown, &error))?;
        let name = Path::new(AGENT_DIR);
        let own = match deliverables.kind(name) {
            Ok(Kind::Missing) => deliverables.make_dir(name),
            Ok(_) => deliverables.open_dir(name),
            Err(error) => Err(error),
        };
        let own = own.map_err(|error| failed("open the run's own folder in", &shown, &error))?;
        Ok(AgentDir {
            workspace,
            relative: relative.to_path_buf(),
            deliverables,
            own,
        })
    }

    /// Opens the directories of a run that has ended, as after a crash of its leader.
    ///
    /// # Errors
    /// When one of them is gone or is no directory.
    pub fn reopen(workspace: &Path, relative: &Path) -> io::Result<AgentDir> {
        let workspace = Dir::open(workspace)?;
        let deliverables = workspace.open_below(relative)?;
        let own = deliverables.open_dir(Path::new(AGENT_DIR))?;
        Ok(AgentDir {
            workspace,
            relative: relative.to_path_buf(),
            deliverables,
            own,
        })
    }

    /// Takes up directories that have been removed and made again while they were held. Whatever
    /// else stands under their names, such as a link, is left alone, and the held ones stay.
    pub fn refresh(&mut self) {
        if self.deliverables.is_removed().unwrap_or(false)
            && let Ok(deliverables) = self.workspace.open_below(&self.relative)
        {
            self.deliverables = deliverables;
        }
        if self.own.is_removed().unwrap_or(false)
            && let Ok(own) = self.deliverables.open_dir(Path::new(AGENT_DIR))
        {
            self.own = own;
        }
    }

    /// What stands where the run's own folder was, when that is no directory; for error texts.
    pub fn own_replaced_by(&self) -> Option<Kind> {
        let kind = self.deliverables.kind(Path::new(AGENT_DIR)).ok()?;
        (kind != Kind::Dir).then_some(kind)
    }
}

/// Where the rest is closed the kernel can open only what is there, so a write path that is missing
/// is made, as a directory: each in a scope, else those in what is protected.
fn make_write_paths(workspace: &Dir, job: &JobSpec) -> Result<(), ToolError> {
    let is_closed = |path: &&PathBuf| match job.confinement.write {
        WriteMode::Scope => true,
        WriteMode::Workspace => PROTECTED_NAMES
            .iter()
            .any(|protected| protected.open == Open::Own && path.starts_with(protected.name)),
    };
    for path in job.write_paths.iter().filter(is_closed) {
        if workspace.path().join(path).symlink_metadata().is_ok() {
            continue;
        }
        workspace
            .make_below(path)
            .map_err(|error| failed("make the write path", &path.display().to_string(), &error))?;
    }
    Ok(())
}

fn failed(what: &str, shown: &str, error: &io::Error) -> ToolError {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorCode::PermissionDenied
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::Io,
    };
    let place = if shown.is_empty() {
        String::new()
    } else {
        format!(" `{shown}`")
    };
    ToolError::new(code, format!("could not {what}{place}: {error}"))
        .hint("choose another deliverables_dir, or make this one writable")
}

fn fresh_own_dir(deliverables: &Dir) -> io::Result<Dir> {
    let name = Path::new(AGENT_DIR);
    match deliverables.kind(name)? {
        Kind::Missing => deliverables.make_dir(name),
        Kind::Dir => put_away(deliverables, name),
        kind @ (Kind::File | Kind::Link | Kind::Special) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("`{AGENT_DIR}` in it is {}", kind.words()),
        )),
    }
}

/// Makes a new own folder and moves the old one, and what that had put away, into it.
fn put_away(deliverables: &Dir, name: &Path) -> io::Result<Dir> {
    let old_name = PathBuf::from(format!("{AGENT_DIR}.old-{}", std::process::id()));
    deliverables.rename(name, deliverables, &old_name)?;
    let old = deliverables.open_dir(&old_name)?;
    let fresh = deliverables.make_dir(name)?;
    let earlier_name = Path::new(EARLIER_DIR);
    if old.kind(earlier_name)? == Kind::Dir {
        old.rename(earlier_name, &fresh, earlier_name)?;
    }
    let earlier = fresh.make_dir(earlier_name)?;
    for number in 1..=EARLIER_RUNS_MAX {
        let target = PathBuf::from(number.to_string());
        if earlier.kind(&target)? == Kind::Missing {
            deliverables.rename(&old_name, &earlier, &target)?;
            return Ok(fresh);
        }
    }
    Err(io::Error::other(format!(
        "it holds {EARLIER_RUNS_MAX} earlier runs already"
    )))
}

fn write_start_files(own: &Dir, files: StartFiles<'_>) -> io::Result<()> {
    let job = serde_json::to_vec_pretty(files.job)?;
    let all: [(&str, &[u8]); 3] = [
        (TASK_FILE, files.task.as_bytes()),
        (SYSTEM_PROMPT_FILE, files.system_prompt.as_bytes()),
        (UNFINISHED_JOB_FILE, &job),
    ];
    for (name, bytes) in all {
        own.create_new(Path::new(name))?.write_all(bytes)?;
    }
    // Last and in one step: a leader that is killed on the way leaves a whole job or none, and the
    // job is what says whose the folder is. No sync: the event log has what a loss of power takes.
    own.rename(Path::new(UNFINISHED_JOB_FILE), own, Path::new(JOB_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_job::job;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn files(job: &JobSpec) -> StartFiles<'_> {
        StartFiles {
            job,
            task: "写 a file\n",
            system_prompt: "You are …",
        }
    }

    #[test]
    fn the_worker_finds_what_it_is_started_with() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path(), "docs/api");
        let dir = AgentDir::prepare(place.path(), files(&job)).unwrap();
        let own = place.path().join("docs/api/.subagent");
        assert_eq!(
            fs::read_to_string(own.join("task.md")).unwrap(),
            "写 a file\n"
        );
        assert_eq!(
            fs::read_to_string(own.join("system_prompt.md")).unwrap(),
            "You are …"
        );
        let read: JobSpec =
            serde_json::from_slice(&fs::read(own.join("job.json")).unwrap()).unwrap();
        assert_eq!(read, job);
        assert_eq!(dir.own_replaced_by(), None);
    }

    /// A write path in a protected folder that was not there was only told as a gap, and its agent
    /// could not write what it had been given.
    #[test]
    fn missing_write_paths_are_made_where_the_rest_is_closed() {
        for (mode, made) in [
            (WriteMode::Workspace, [true, false]),
            (WriteMode::Scope, [true, true]),
        ] {
            let place = tempfile::tempdir().unwrap();
            let mut job = job(place.path(), "d");
            job.confinement.write = mode;
            job.write_paths = [".worktrees/x", "plain"].map(PathBuf::from).to_vec();
            AgentDir::prepare(place.path(), files(&job)).unwrap();
            let there = |path: &PathBuf| place.path().join(path).is_dir();
            let found: Vec<bool> = job.write_paths.iter().map(there).collect();
            assert_eq!(found, made, "{mode}");
        }
    }

    #[test]
    fn an_earlier_run_is_put_away_and_kept() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path(), "d");
        for text in ["first", "second"] {
            let dir = AgentDir::prepare(place.path(), files(&job)).unwrap();
            dir.own
                .replace_file(Path::new("conversations.json"), text.as_bytes())
                .unwrap();
        }
        AgentDir::prepare(place.path(), files(&job)).unwrap();
        let own = place.path().join("d/.subagent");
        assert!(!own.join("conversations.json").exists());
        let earlier = |number: &str| {
            fs::read_to_string(own.join("earlier").join(number).join("conversations.json")).unwrap()
        };
        assert_eq!(
            (earlier("1"), earlier("2")),
            ("first".into(), "second".into())
        );
        assert_eq!(fs::read_dir(place.path().join("d")).unwrap().count(), 1);
    }

    #[test]
    fn a_link_or_file_in_the_way_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        symlink(outside.path(), place.path().join("d/.subagent")).unwrap();
        symlink(outside.path(), place.path().join("e")).unwrap();
        fs::write(place.path().join("f"), "").unwrap();
        for name in ["d", "e", "e/x", "f", "f/x"] {
            let job = job(place.path(), name);
            assert!(
                AgentDir::prepare(place.path(), files(&job)).is_err(),
                "{name}"
            );
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_made_again_are_taken_up_and_links_are_not() {
        let place = tempfile::tempdir().unwrap();
        let job = job(place.path(), "d");
        let mut dir = AgentDir::prepare(place.path(), files(&job)).unwrap();
        let path = place.path().join("d");
        fs::remove_dir_all(&path).unwrap();
        symlink("/etc", &path).unwrap();
        dir.refresh();
        assert!(dir.deliverables.is_removed().unwrap());
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join(AGENT_DIR)).unwrap();
        dir.refresh();
        assert!(!dir.own.is_removed().unwrap());
        fs::remove_dir(path.join(AGENT_DIR)).unwrap();
        symlink("/etc", path.join(AGENT_DIR)).unwrap();
        dir.refresh();
        assert_eq!(dir.own_replaced_by(), Some(Kind::Link));
        assert!(dir.own.is_removed().unwrap());
    }
}
