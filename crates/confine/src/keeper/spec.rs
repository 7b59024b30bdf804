//! What a worker may ask of the keeper, and the check that it only ever narrows.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

use crate::limits;
use crate::path_text;
use crate::policy::{JailKind, JailPolicy};
use crate::program::ProgramCall;
use crate::report::{NetworkReach, Rung};

/// The version of [`CommandSpec`].
const COMMAND_FORMAT: u32 = 1;

/// One command. Limits that are `None` are those of the tree.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// Version; 1.
    pub format: u32,
    /// The program, a path or a name for the environment's PATH, and its arguments.
    #[serde(with = "path_text::words")]
    pub argv: Vec<OsString>,
    /// The working directory, absolute.
    #[serde(with = "path_text::one")]
    pub cwd: PathBuf,
    /// The whole environment.
    #[serde(with = "path_text::pairs")]
    pub env: Vec<(OsString, OsString)>,
    /// Milliseconds after which it is asked to end, and killed a second later.
    pub timeout_ms: Option<u64>,
    /// Open descriptors per process.
    pub open_files: Option<u64>,
    /// Largest single file in bytes.
    pub file_size_bytes: Option<u64>,
    /// CPU seconds per process.
    pub cpu_seconds: Option<u64>,
    /// Tasks of the command at once.
    pub process_cap: Option<u32>,
    /// What it may reach of the network; as much as a command here may if there is no word.
    pub network: Option<NetworkReach>,
    /// Milliseconds that what it left running gets to end by itself; none if there is no number.
    pub linger_ms: Option<u64>,
}

impl std::fmt::Debug for CommandSpec {
    /// Without the values of the environment, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("CommandSpec")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env (names)", &names)
            .field("timeout_ms", &self.timeout_ms)
            .field("process_cap", &self.process_cap)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

impl CommandSpec {
    /// A command with the tree's limits, an empty environment and no time-out.
    pub fn new(argv: Vec<OsString>, cwd: PathBuf) -> CommandSpec {
        CommandSpec {
            format: COMMAND_FORMAT,
            argv,
            cwd,
            env: Vec::new(),
            timeout_ms: None,
            open_files: None,
            file_size_bytes: None,
            cpu_seconds: None,
            process_cap: None,
            network: None,
            linger_ms: None,
        }
    }

    /// The policy and the call of this command below a tree of `tree`.
    ///
    /// The program that asks is not trusted, so each field is compared with the tree's own, and
    /// one that asks for more is refused by name: quietly getting less would be found out late.
    pub(crate) fn narrow(self, tree: &JailPolicy) -> Result<(JailPolicy, ProgramCall), String> {
        if self.format != COMMAND_FORMAT {
            return Err(format!("format {} of a command is unknown", self.format));
        }
        if !self.cwd.is_absolute() {
            return Err(format!("cwd `{}` is not absolute", self.cwd.display()));
        }
        if self
            .timeout_ms
            .is_some_and(|ms| !(1..=limits::COMMAND_TIMEOUT_MS_MAX).contains(&ms))
        {
            let most = limits::COMMAND_TIMEOUT_MS_MAX;
            return Err(format!("timeout_ms must lie between 1 and {most}"));
        }
        let linger_ms = self.linger_ms.unwrap_or(0);
        if linger_ms > limits::LINGER_MS_MAX {
            let most = limits::LINGER_MS_MAX;
            return Err(format!("linger_ms must be at most {most}"));
        }
        let most = tree.network.min(tree.command_network);
        let network = self.network.unwrap_or(most);
        if network > most {
            let asked = network.name();
            return Err(format!(
                "network `{asked}` is more than a command here may have"
            ));
        }
        let mut words = self.argv.into_iter();
        let program = words.next().ok_or("argv is empty")?;
        let policy = JailPolicy {
            format: tree.format,
            kind: JailKind::Command,
            leader_pid: None,
            require: Rung::Pidns,
            highest: Rung::Pidns,
            workspace: None,
            cwd: Some(self.cwd),
            exit_file: None,
            open_files: within("open_files", self.open_files, Some(tree.open_files))?
                .unwrap_or(tree.open_files),
            file_size_bytes: within(
                "file_size_bytes",
                self.file_size_bytes,
                tree.file_size_bytes,
            )?,
            cpu_seconds: within("cpu_seconds", self.cpu_seconds, tree.cpu_seconds)?,
            process_cap: within("process_cap", self.process_cap, Some(tree.process_cap))?
                .unwrap_or(tree.process_cap),
            tmp_bytes: tree.tmp_bytes,
            visible: Vec::new(),
            cgroup: None,
            memory_bytes: tree.memory_bytes,
            // No field of a command names a path that it could write.
            files: tree.files.clone(),
            network,
            command_network: network,
            linger_ms,
            keep_fd: tree.keep_fd,
        };
        Ok((
            policy,
            ProgramCall {
                program,
                args: words.collect(),
                env: Some(self.env),
            },
        ))
    }
}

/// The limit asked for if it is at least 1 and no more than the tree's; the tree's if none is.
fn within<T: PartialOrd + Copy + From<u8> + std::fmt::Display>(
    field: &str,
    asked: Option<T>,
    tree: Option<T>,
) -> Result<Option<T>, String> {
    match (asked, tree) {
        (Some(asked), _) if asked < T::from(1) => Err(format!("{field} must be at least 1")),
        (Some(asked), Some(tree)) if asked > tree => {
            Err(format!("{field} {asked} is more than the tree's {tree}"))
        }
        (Some(asked), _) => Ok(Some(asked)),
        (None, tree) => Ok(tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CommandSpec {
        CommandSpec::new(vec!["sh".into(), "-c".into(), ":".into()], "/w".into())
    }

    fn tree() -> JailPolicy {
        JailPolicy {
            open_files: 100,
            file_size_bytes: Some(1000),
            cpu_seconds: Some(10),
            process_cap: 50,
            ..JailPolicy::default()
        }
    }

    #[test]
    fn every_field_that_asks_for_more_is_refused_by_name() {
        let cut_off = JailPolicy {
            command_network: NetworkReach::Loopback,
            ..tree()
        };
        let inside = JailPolicy {
            network: NetworkReach::Loopback,
            ..tree()
        };
        let cases: Vec<(CommandSpec, JailPolicy, &str)> = vec![
            (
                CommandSpec {
                    format: 2,
                    ..spec()
                },
                tree(),
                "format 2 of a command is unknown",
            ),
            (
                CommandSpec {
                    argv: vec![],
                    ..spec()
                },
                tree(),
                "argv is empty",
            ),
            (
                CommandSpec {
                    cwd: "w".into(),
                    ..spec()
                },
                tree(),
                "cwd `w` is not absolute",
            ),
            (
                CommandSpec {
                    timeout_ms: Some(0),
                    ..spec()
                },
                tree(),
                "timeout_ms must lie between 1 and 86400000",
            ),
            (
                CommandSpec {
                    timeout_ms: Some(86_400_001),
                    ..spec()
                },
                tree(),
                "timeout_ms must lie between 1 and 86400000",
            ),
            (
                CommandSpec {
                    open_files: Some(101),
                    ..spec()
                },
                tree(),
                "open_files 101 is more than the tree's 100",
            ),
            (
                CommandSpec {
                    file_size_bytes: Some(1001),
                    ..spec()
                },
                tree(),
                "file_size_bytes 1001 is more than the tree's 1000",
            ),
            (
                CommandSpec {
                    cpu_seconds: Some(11),
                    ..spec()
                },
                tree(),
                "cpu_seconds 11 is more than the tree's 10",
            ),
            (
                CommandSpec {
                    process_cap: Some(51),
                    ..spec()
                },
                tree(),
                "process_cap 51 is more than the tree's 50",
            ),
            (
                CommandSpec {
                    process_cap: Some(0),
                    ..spec()
                },
                tree(),
                "process_cap must be at least 1",
            ),
            (
                CommandSpec {
                    network: Some(NetworkReach::Full),
                    ..spec()
                },
                cut_off,
                "network `full` is more than a command here may have",
            ),
            (
                CommandSpec {
                    network: Some(NetworkReach::Loopback),
                    ..spec()
                },
                JailPolicy {
                    command_network: NetworkReach::Nothing,
                    ..tree()
                },
                "network `loopback` is more than a command here may have",
            ),
            (
                CommandSpec {
                    network: Some(NetworkReach::Full),
                    ..spec()
                },
                inside,
                "network `full` is more than a command here may have",
            ),
        ];
        for (spec, tree, message) in cases {
            assert_eq!(spec.narrow(&tree).unwrap_err(), message);
        }
    }

    #[test]
    fn what_is_left_out_is_the_trees_and_what_is_narrower_holds() {
        let (policy, call) = spec().narrow(&tree()).unwrap();
        assert_eq!(policy.limits(), (100, Some(1000), Some(10), 50));
        assert_eq!(policy.network, NetworkReach::Full);
        assert_eq!(
            (call.program, call.args),
            ("sh".into(), vec!["-c".into(), ":".into()])
        );
        let narrower = CommandSpec {
            open_files: Some(99),
            file_size_bytes: Some(999),
            cpu_seconds: Some(9),
            process_cap: Some(49),
            network: Some(NetworkReach::Loopback),
            ..spec()
        };
        let (policy, _) = narrower.narrow(&tree()).unwrap();
        assert_eq!(policy.limits(), (99, Some(999), Some(9), 49));
        assert_eq!(policy.network, NetworkReach::Loopback);
    }

    #[test]
    fn unknown_fields_are_refused_and_the_debug_text_hides_values() {
        let text = crate::report::to_json(&spec()).replacen('{', "{\"privileged\":true,", 1);
        assert!(serde_json::from_str::<CommandSpec>(&text).is_err());
        let secret = CommandSpec {
            env: vec![("KEY".into(), "s3cret".into())],
            ..spec()
        };
        let shown = format!("{secret:?}");
        assert!(
            shown.contains("KEY") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    impl JailPolicy {
        fn limits(&self) -> (u64, Option<u64>, Option<u64>, u32) {
            (
                self.open_files,
                self.file_size_bytes,
                self.cpu_seconds,
                self.process_cap,
            )
        }
    }
}
