//! What a caller asks of the jail: one JSON document, checked before anything is forked.

use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::files::FilePolicy;
use crate::limits;
use crate::path_text;
use crate::report::{NetworkReach, Rung, to_json};

/// The version of [`JailPolicy`] this crate reads and writes.
pub const POLICY_FORMAT: u32 = 1;

/// What the jail starts, which decides what its descriptors 0 and 1 are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JailKind {
    /// A worker: 0 and 1 are the channel, shared by jail and program; end of file on 0 ends all.
    Worker,
    /// A command of a worker: 0 is the report socket, whose hang-up ends all, and the program gets
    /// `/dev/null` in its place; 1 is the program's output, which the jail never writes to. It
    /// shares `/tmp` and `/dev/shm` with its worker: one command leaves files there for the next.
    Command,
}

/// Everything the jail is asked to hold. Start from [`JailPolicy::default`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JailPolicy {
    /// Version; [`POLICY_FORMAT`].
    pub format: u32,
    /// What is started.
    pub kind: JailKind,
    /// The process whose end kills the tree; watched only if it is the jail's real parent, which
    /// it is not behind a launcher.
    pub leader_pid: Option<u32>,
    /// The lowest rung that is good enough; below it nothing is started.
    pub require: Rung,
    /// The highest rung that is tried.
    pub highest: Rung,
    /// The workspace, absolute: it stays visible whatever is mounted.
    #[serde(with = "path_text::optional")]
    pub workspace: Option<PathBuf>,
    /// The working directory, absolute; the workspace if there is none.
    #[serde(with = "path_text::optional")]
    pub cwd: Option<PathBuf>,
    /// Where the jail records the end, absolute; written beside and renamed.
    #[serde(with = "path_text::optional")]
    pub exit_file: Option<PathBuf>,
    /// Open descriptors per process.
    pub open_files: u64,
    /// Largest single file in bytes; `None` leaves what the caller has.
    pub file_size_bytes: Option<u64>,
    /// CPU seconds per process; `None` leaves what the caller has.
    pub cpu_seconds: Option<u64>,
    /// Tasks in the tree at once, threads included.
    pub process_cap: u32,
    /// Bytes that the private `/tmp`, and `/dev/shm`, may hold each.
    pub tmp_bytes: u64,
    /// Further paths, absolute, that stay visible where a private `/tmp` would cover them.
    #[serde(with = "path_text::list")]
    pub visible: Vec<PathBuf>,
    /// A delegated cgroup v2 directory, absolute, in which the tree gets a group of its own.
    #[serde(with = "path_text::optional")]
    pub cgroup: Option<PathBuf>,
    /// Bytes of memory the tree may use; held only by a cgroup with a memory controller.
    pub memory_bytes: Option<u64>,
    /// Where the tree may write and what it may not see; without it, whatever the user may.
    pub files: Option<FilePolicy>,
    /// What the tree may reach of the network.
    pub network: NetworkReach,
    /// What a command that the keeper starts may reach of it at most.
    pub command_network: NetworkReach,
    /// For a command: milliseconds that what its program left running gets to end by itself. It
    /// gets as long as the grace of a time-out where the program was asked to end.
    pub linger_ms: u64,
    /// For tests alone: a descriptor that stays open in every process of the tree, so that its end
    /// of file proves the tree empty.
    pub keep_fd: Option<i32>,
}

impl Default for JailPolicy {
    fn default() -> Self {
        JailPolicy {
            format: POLICY_FORMAT,
            kind: JailKind::Worker,
            leader_pid: None,
            require: Rung::Group,
            highest: Rung::Cgroup2,
            workspace: None,
            cwd: None,
            exit_file: None,
            open_files: limits::OPEN_FILES_DEFAULT,
            file_size_bytes: Some(limits::FILE_SIZE_BYTES_DEFAULT),
            cpu_seconds: None,
            process_cap: limits::PROCESS_CAP_DEFAULT,
            tmp_bytes: limits::TMP_BYTES_DEFAULT,
            visible: Vec::new(),
            cgroup: None,
            memory_bytes: None,
            files: None,
            network: NetworkReach::Full,
            command_network: NetworkReach::Full,
            linger_ms: 0,
            keep_fd: None,
        }
    }
}

/// Why a policy is refused.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no JSON, or has a field that is unknown or of the wrong type.
    #[error("the policy can't be read")]
    Syntax(#[source] serde_json::Error),
    /// It is larger than a command line can carry.
    #[error(
        "the policy has {bytes} bytes; at most {} fit",
        limits::POLICY_BYTES_MAX
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It was written for another version of `jail`.
    #[error(
        "the policy has format {found}; this jail reads format {POLICY_FORMAT}: use the `jail` that lies beside the caller"
    )]
    Format {
        /// What it says.
        found: u32,
    },
    /// A path in it is not absolute.
    #[error("`{field}` must be an absolute path, not `{}`", path.display())]
    Relative {
        /// The field.
        field: &'static str,
        /// What it says.
        path: PathBuf,
    },
    /// A number in it is out of range.
    #[error("`{field}` is {value}; it must lie between {least} and {most}")]
    Range {
        /// The field.
        field: &'static str,
        /// What it says.
        value: i64,
        /// Least value.
        least: i64,
        /// Greatest value.
        most: i64,
    },
    /// It requires more than it lets the jail try.
    #[error(
        "`require` is {require} and `highest` only {highest}: raise `highest` or lower `require`"
    )]
    Rungs {
        /// The lowest rung wanted.
        require: Rung,
        /// The highest rung allowed.
        highest: Rung,
    },
}

impl JailPolicy {
    /// The arguments for `jail` that start `program` under this policy.
    pub fn to_args(&self, program: &OsStr, args: &[OsString]) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec![
            "--policy".into(),
            to_json(self).into(),
            "--".into(),
            program.to_owned(),
        ];
        all.extend(args.iter().cloned());
        all
    }

    /// Reads and checks a policy.
    ///
    /// # Errors
    /// When the text is too large, malformed, of another version, or asks for what can't be.
    pub fn parse(text: &str) -> Result<JailPolicy, PolicyError> {
        if text.len() > limits::POLICY_BYTES_MAX {
            return Err(PolicyError::TooLarge { bytes: text.len() });
        }
        let policy: JailPolicy = serde_json::from_str(text).map_err(PolicyError::Syntax)?;
        policy.check()?;
        Ok(policy)
    }

    /// The directory the program starts in, if the policy names one.
    pub fn directory(&self) -> Option<&PathBuf> {
        self.cwd.as_ref().or(self.workspace.as_ref())
    }

    fn check(&self) -> Result<(), PolicyError> {
        if self.format != POLICY_FORMAT {
            return Err(PolicyError::Format { found: self.format });
        }
        if self.require > self.highest {
            return Err(PolicyError::Rungs {
                require: self.require,
                highest: self.highest,
            });
        }
        let paths = [
            ("workspace", &self.workspace),
            ("cwd", &self.cwd),
            ("exit_file", &self.exit_file),
            ("cgroup", &self.cgroup),
        ];
        let named = paths
            .into_iter()
            .flat_map(|(field, path)| path.iter().map(move |p| (field, p)));
        let visible = self.visible.iter().map(|path| ("visible", path));
        let files = self.files.iter().flat_map(FilePolicy::paths);
        for (field, path) in named.chain(visible).chain(files) {
            if !path.is_absolute() {
                return Err(PolicyError::Relative {
                    field,
                    path: path.clone(),
                });
            }
        }
        let visible = i64::try_from(self.visible.len()).unwrap_or(i64::MAX);
        in_range(
            "visible (its length)",
            visible,
            0,
            limits::VISIBLE_PATHS_MAX as i64,
        )?;
        let files = self.files.iter().flat_map(FilePolicy::paths).count();
        in_range(
            "files (paths in it)",
            i64::try_from(files).unwrap_or(i64::MAX),
            0,
            limits::FILE_PATHS_MAX as i64,
        )?;
        in_range(
            "process_cap",
            i64::from(self.process_cap),
            1,
            i64::from(limits::PROCESS_CAP_MAX),
        )?;
        in_range(
            "linger_ms",
            i64::try_from(self.linger_ms).unwrap_or(i64::MAX),
            0,
            limits::LINGER_MS_MAX as i64,
        )?;
        if let Some(fd) = self.keep_fd {
            in_range(
                "keep_fd",
                i64::from(fd),
                i64::from(limits::KEEP_FD_MIN),
                i64::from(i32::MAX),
            )?;
        }
        // The start itself needs a dozen, and a program a few more to load its libraries.
        in_range(
            "open_files",
            i64::try_from(self.open_files).unwrap_or(i64::MAX),
            32,
            1 << 30,
        )?;
        if let Some(seconds) = self.cpu_seconds {
            in_range(
                "cpu_seconds",
                i64::try_from(seconds).unwrap_or(i64::MAX),
                1,
                1 << 30,
            )?;
        }
        Ok(())
    }
}

fn in_range(field: &'static str, value: i64, least: i64, most: i64) -> Result<(), PolicyError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(PolicyError::Range {
            field,
            value,
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_policy_survives_its_own_arguments_even_with_a_path_that_is_not_utf8() {
        let odd = PathBuf::from(OsString::from_vec(b"/odd/\xff\xfe".to_vec()));
        let policy = JailPolicy {
            leader_pid: Some(7),
            workspace: Some(odd),
            exit_file: Some("/w/exit.json".into()),
            ..JailPolicy::default()
        };
        let args = policy.to_args(OsStr::new("/bin/true"), &["a b".into()]);
        assert_eq!(args[0], "--policy");
        assert_eq!(
            JailPolicy::parse(args[1].to_str().unwrap()).unwrap(),
            policy
        );
        assert_eq!(args[2..], ["--", "/bin/true", "a b"].map(OsString::from));
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_field_named() {
        let cases = [
            ("{", "the policy can't be read"),
            (r#"{"frobnicate":1}"#, "the policy can't be read"),
            (
                r#"{"format":2}"#,
                "the policy has format 2; this jail reads format 1: use the `jail` that lies beside the caller",
            ),
            (
                r#"{"cwd":"a/b"}"#,
                "`cwd` must be an absolute path, not `a/b`",
            ),
            (
                r#"{"keep_fd":3}"#,
                "`keep_fd` is 3; it must lie between 4 and 2147483647",
            ),
            (
                r#"{"process_cap":0}"#,
                "`process_cap` is 0; it must lie between 1 and 4000000",
            ),
            (
                r#"{"linger_ms":10001}"#,
                "`linger_ms` is 10001; it must lie between 0 and 10000",
            ),
            (
                r#"{"files":{"mode":"scope","writable":["w"],"read_only":[],"command_read_only":[],"masked":[],"gaps":[]}}"#,
                "`files.writable` must be an absolute path, not `w`",
            ),
            (
                r#"{"open_files":31}"#,
                "`open_files` is 31; it must lie between 32 and 1073741824",
            ),
            (
                r#"{"require":"pidns","highest":"group"}"#,
                "`require` is pidns and `highest` only group: raise `highest` or lower `require`",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(
                JailPolicy::parse(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn the_size_limit_holds_at_the_limit_and_one_past_it() {
        let padded = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2));
        assert!(JailPolicy::parse(&padded(limits::POLICY_BYTES_MAX)).is_ok());
        let error = JailPolicy::parse(&padded(limits::POLICY_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the policy has 98305 bytes; at most 98304 fit"
        );
    }
}
