//! Reading what a run is started with: the job and the texts beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use protocol::job::{
    CONVERSATION_FILE, JOB_FORMAT, JOURNAL_FILE, JobSpec, OUTPUTS_DIR, SYSTEM_PROMPT_FILE,
    TASK_FILE,
};
use protocol::limits::TASK_BYTES_MAX;
use serde_json::Value;

use crate::exit::StartError;
use crate::io::files::FileError;

/// A job's file, in bytes.
pub const JOB_BYTES_MAX: usize = 1024 * 1024;
/// A system prompt, in bytes.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 200_000;
/// Earlier runs whose records are kept beside a new one's.
const EARLIER_RUNS_MAX: u32 = 1_000;
/// The folder that holds them.
const EARLIER_DIR: &str = "earlier";

/// A job with its texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The spec.
    pub spec: JobSpec,
    /// The task's text.
    pub task: String,
    /// The system prompt.
    pub system_prompt: String,
}

/// Reads a job and the two texts that lie beside it.
///
/// # Errors
/// When a file can't be read, is of a newer version, or says what a job may not say.
pub fn read_job(path: &Path) -> Result<Job, StartError> {
    let text = read_text(path, "job file", JOB_BYTES_MAX)?;
    let spec = parse_job(&text)
        .map_err(|why| StartError::new(format!("job file `{}`: {why}", path.display())))?;
    let beside = path.parent().unwrap_or(Path::new("."));
    Ok(Job {
        spec,
        task: read_text(&beside.join(TASK_FILE), "task file", TASK_BYTES_MAX)?,
        system_prompt: read_text(
            &beside.join(SYSTEM_PROMPT_FILE),
            "system prompt file",
            SYSTEM_PROMPT_BYTES_MAX,
        )?,
    })
}

fn parse_job(text: &str) -> Result<JobSpec, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    // The version is looked at first: a newer shape would only give a riddle about some field.
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(JOB_FORMAT) => {}
        Some(format) => {
            return Err(format!(
                "its format is {format}, this worker reads {JOB_FORMAT}; use the worker that \
                 belongs to the leader that wrote it"
            ));
        }
        None => return Err("it has no `format` number".to_owned()),
    }
    let spec: JobSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if !spec.workspace.is_absolute() {
        return Err(format!(
            "`workspace` must be absolute, not `{}`",
            spec.workspace.display()
        ));
    }
    let mut parts = spec.deliverables_dir.components().peekable();
    if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!(
            "`deliverables_dir` must be relative and without `.` and `..`, not `{}`",
            spec.deliverables_dir.display()
        ));
    }
    Ok(spec)
}

/// Reads a text for a run. `what` names it in errors.
///
/// # Errors
/// When it is missing, no regular file, larger than `bytes_max`, not UTF-8, or blank.
pub fn read_text(path: &Path, what: &str, bytes_max: usize) -> Result<String, StartError> {
    let text = read_text_or_none(path, what, bytes_max)?;
    let name = format!("{what} `{}`", path.display());
    match text {
        None => Err(StartError::new(format!("{name} does not exist"))
            .hint("check the path; it is taken from where the worker is started")),
        Some(text) if text.trim().is_empty() => Err(StartError::new(format!("{name} is empty"))),
        Some(text) => Ok(text),
    }
}

/// As [`read_text`], for a file that may be missing or blank.
///
/// # Errors
/// When it is no regular file, larger than `bytes_max`, or not UTF-8.
pub fn read_text_or_none(
    path: &Path,
    what: &str,
    bytes_max: usize,
) -> Result<Option<String>, StartError> {
    let name = format!("{what} `{}`", path.display());
    let fail = |error: std::io::Error| StartError::new(format!("{name} cannot be read: {error}"));
    // Without O_NONBLOCK the open itself waits for ever on a pipe that nobody writes to.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(StartError::new(format!("{name} is no regular file")));
    }
    let bytes = read_at_most(&file, bytes_max + 1).map_err(fail)?;
    if bytes.len() > bytes_max {
        return Err(
            StartError::new(format!("{name} is larger than {bytes_max} bytes"))
                .hint("put the long part into a file of the workspace and name that file"),
        );
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        StartError::new(format!("{name} is not UTF-8: byte {at} fits no character"))
            .hint("convert it, for example with `iconv -t utf-8`")
    })?;
    Ok(Some(text))
}

fn read_at_most(file: &File, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Moves what an earlier run left in `dir` into a folder of its own, so that a new run neither
/// mixes with it nor destroys it.
///
/// # Errors
/// When something can't be moved.
pub fn set_aside(dir: &Path) -> Result<(), FileError> {
    let left: Vec<&str> = [JOURNAL_FILE, CONVERSATION_FILE, OUTPUTS_DIR]
        .into_iter()
        .filter(|name| fs::symlink_metadata(dir.join(name)).is_ok())
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let earlier = dir.join(EARLIER_DIR);
    let free = (1..=EARLIER_RUNS_MAX)
        .map(|number| earlier.join(number.to_string()))
        .find(|path| fs::symlink_metadata(path).is_err())
        .ok_or_else(|| {
            let error = std::io::Error::other(format!(
                "it holds {EARLIER_RUNS_MAX} earlier runs; remove some"
            ));
            FileError::new("use", &earlier, error)
        })?;
    fs::create_dir_all(&free).map_err(|error| FileError::new("create", &free, error))?;
    for name in left {
        fs::rename(dir.join(name), free.join(name))
            .map_err(|error| FileError::new("move", &dir.join(name), error))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use protocol::ids::{AgentId, ConversationId, TaskId};
    use protocol::job::{JobLimits, ModelSpec, Provider};
    use protocol::status::{Completion, Language};

    use super::*;
    use protocol::confinement::NetworkMode;
    use protocol::tool::worker::Need;

    /// A job whose workspace is `root`.
    pub(crate) fn sample_job(root: &Path) -> JobSpec {
        JobSpec {
            format: JOB_FORMAT,
            conversation: None,
            sub_conversation_id: ConversationId::new("conv_00000001").unwrap(),
            agent_id: AgentId::FIRST,
            task_id: TaskId::new("sub_00000001").unwrap(),
            role_id: None,
            display_name: "Sub-agent 1".into(),
            summary: "write a file".into(),
            language: Language::En,
            workspace: root.to_owned(),
            deliverables_dir: "out".into(),
            write_paths: Vec::new(),
            completion: Completion::FinishTask,
            tools: vec!["read_file".into(), "finish_task".into()],
            model: ModelSpec::new("demo", Provider::Script, "", "replies.yaml"),
            limits: JobLimits::default(),
            confinement: Default::default(),
            web: None,
            mcp: Vec::new(),
            prompts_dir: None,
            created_at: "2026-03-10T12:00:00Z".into(),
            attempt: 1,
            resumes: None,
            item: None,
        }
    }

    fn refused(path: &Path) -> String {
        read_text(path, "task file", 100).unwrap_err().message
    }

    #[test]
    fn a_text_that_no_run_can_start_with_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("task.md");
        assert!(refused(&path).ends_with("task.md` does not exist"));
        for (bytes, why) in [
            (&b"  \n"[..], "is empty"),
            (&[b'x'; 101], "is larger than 100 bytes"),
            (b"caf\xe9", "is not UTF-8: byte 3 fits no character"),
        ] {
            fs::write(&path, bytes).unwrap();
            assert!(refused(&path).ends_with(why), "{}", refused(&path));
        }
        assert!(refused(root.path()).ends_with("is no regular file"));
        let pipe = root.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refused(&pipe).ends_with("is no regular file"));
        fs::write(&path, [b'x'; 100]).unwrap();
        assert_eq!(read_text(&path, "task file", 100).unwrap().len(), 100);
    }

    #[test]
    fn a_job_is_read_with_the_texts_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let spec = sample_job(root.path());
        let path = root.path().join("job.json");
        fs::write(&path, serde_json::to_vec(&spec).unwrap()).unwrap();
        fs::write(root.path().join(TASK_FILE), "do it").unwrap();
        fs::write(root.path().join(SYSTEM_PROMPT_FILE), "you are").unwrap();
        let expected = Job {
            spec,
            task: "do it".into(),
            system_prompt: "you are".into(),
        };
        assert_eq!(read_job(&path).unwrap(), expected);
    }

    #[test]
    fn a_job_that_says_what_it_may_not_is_refused() {
        let good = serde_json::to_value(sample_job(Path::new("/w"))).unwrap();
        assert!(parse_job(&good.to_string()).is_ok());
        for (key, value, why) in [
            ("format", Value::from(2), "its format is 2"),
            ("format", Value::Null, "no `format`"),
            ("workspace", "w".into(), "must be absolute"),
            ("deliverables_dir", "../x".into(), "must be relative"),
            ("deliverables_dir", "/x".into(), "must be relative"),
            ("deliverables_dir", "".into(), "must be relative"),
            ("agent_id", Value::from(0), "1 or more"),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let error = parse_job(&bad.to_string()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse_job("[").unwrap_err().contains("no JSON"));
    }

    #[test]
    fn an_earlier_run_is_kept_apart() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        for run in 1..=2 {
            fs::write(dir.join(JOURNAL_FILE), run.to_string()).unwrap();
            set_aside(dir).unwrap();
            let kept = dir.join(EARLIER_DIR).join(run.to_string());
            assert_eq!(
                fs::read_to_string(kept.join(JOURNAL_FILE)).unwrap(),
                run.to_string()
            );
            assert!(!dir.join(JOURNAL_FILE).exists());
        }
        set_aside(dir).unwrap();
        assert_eq!(fs::read_dir(dir.join(EARLIER_DIR)).unwrap().count(), 2);
    }

    #[test]
    fn a_job_without_a_network_has_no_web() {
        let mut job = sample_job(Path::new("/w"));
        job.web = Some(protocol::web::WebSpec {
            pages: true,
            ..Default::default()
        });
        assert_eq!(job.has(), [Need::Pages]);
        job.model.vision = true;
        assert_eq!(job.has(), [Need::Pages, Need::Vision]);
        job.confinement.network = NetworkMode::None;
        assert_eq!(job.has(), [Need::Vision]);
        job.model.provider = protocol::job::Provider::Anthropic;
        assert_eq!(job.has(), []);
    }
}
