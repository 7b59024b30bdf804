//! Where an agent may deliver, as far as the text of a path tells; links are the business of who
//! can look at the disk.

use std::path::{Component, Path, PathBuf};

use crate::error::{ErrorCode, ToolError};
use crate::ids::{AgentId, RoleId};
use crate::job::AGENT_DIR;

/// The folder of a workspace that holds the results of agents for which nobody named one.
pub const RESULTS_DIR: &str = "sub_agent_results";

/// The deliverables dir of an agent for which nobody named one.
pub fn default_deliverables_dir(agent_id: AgentId, role_id: Option<&RoleId>) -> PathBuf {
    let name = match role_id {
        Some(role_id) => format!("{role_id}_{agent_id}"),
        None => format!("agent_{agent_id}"),
    };
    Path::new(RESULTS_DIR).join(name)
}

/// Folders at the top of a workspace that belong to us or to version control.
const RESERVED_DIRS: &[&str] = &[
    ".git",
    ".muster",
    ".team",
    ".tasks",
    ".worktrees",
    ".claude",
];

/// The name under which a file is written before it takes its own; one that is found after the
/// writer's end is what a kill left half written.
pub fn temporary_name(pid: u32, number: u64) -> String {
    format!(".muster-{pid}-{number}.tmp")
}

/// Whether a name is a [`temporary_name`].
pub fn is_temporary(name: &str) -> bool {
    let numbers = name
        .strip_prefix(".muster-")
        .and_then(|rest| rest.strip_suffix(".tmp"));
    numbers
        .and_then(|numbers| numbers.split_once('-'))
        .is_some_and(|(pid, number)| {
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits(pid) && digits(number)
        })
}

/// Checks a `deliverables_dir` or an entry of `write_paths` as it was written, and gives its plain
/// form: `./docs//` is `docs`.
///
/// # Errors
/// When it is absolute, leaves the workspace, names the workspace itself, begins with `~`, or lies
/// in a folder of ours or of version control; `parameter` is named in the error.
pub fn relative_path(parameter: &str, text: &str) -> Result<PathBuf, ToolError> {
    let refuse = |code, why: &str| {
        Err(
            ToolError::new(code, format!("`{parameter}` is {text:?}: {why}"))
                .hint("give a path inside the workspace, such as `docs/api`"),
        )
    };
    if text.trim().is_empty() {
        return refuse(ErrorCode::DeliverablesDirRefused, "it must not be empty");
    }
    if text.contains('\0') {
        return refuse(ErrorCode::DeliverablesDirRefused, "it has a NUL character");
    }
    if text.starts_with('~') {
        return refuse(
            ErrorCode::OutsideWorkspace,
            "`~` is not expanded, and a home folder lies outside the workspace",
        );
    }
    let mut plain = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                return refuse(ErrorCode::OutsideWorkspace, "it must not go up with `..`");
            }
            Component::RootDir | Component::Prefix(_) => {
                return refuse(
                    ErrorCode::OutsideWorkspace,
                    "it must be relative to the workspace",
                );
            }
        }
    }
    let Some(first) = plain.components().next() else {
        return refuse(
            ErrorCode::DeliverablesDirRefused,
            "it must be a folder below the workspace, not the workspace itself",
        );
    };
    let reserved = RESERVED_DIRS
        .iter()
        .any(|dir| first.as_os_str().eq_ignore_ascii_case(dir));
    let inner = plain.components().any(|component| {
        component.as_os_str().eq_ignore_ascii_case(".git") || component.as_os_str() == AGENT_DIR
    });
    if reserved || inner {
        return refuse(
            ErrorCode::DeliverablesDirRefused,
            "that folder belongs to version control or to muster itself",
        );
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn a_place_is_written_in_one_plain_form() {
        for text in ["docs", "docs/", "./docs//", "docs/."] {
            assert_eq!(relative_path("p", text), Ok(path("docs")), "{text}");
        }
        assert_eq!(relative_path("p", ".github/x"), Ok(path(".github/x")));
        assert_eq!(relative_path("p", "a/~b"), Ok(path("a/~b")));
    }

    #[test]
    fn a_place_outside_or_of_ours_is_refused() {
        use ErrorCode::{DeliverablesDirRefused as Refused, OutsideWorkspace as Outside};
        let table = [
            ("../x", Outside),
            ("a/../../x", Outside),
            ("a/..", Outside),
            ("/tmp/x", Outside),
            ("~/x", Outside),
            ("~", Outside),
            ("", Refused),
            ("  ", Refused),
            (".", Refused),
            ("./", Refused),
            ("a/\0", Refused),
            (".git", Refused),
            (".GIT/hooks", Refused),
            ("vendor/.git/x", Refused),
            (".muster/runs", Refused),
            (".team", Refused),
            (".tasks/a", Refused),
            (".worktrees/x", Refused),
            ("docs/.subagent", Refused),
        ];
        for (text, code) in table {
            let error = relative_path("deliverables_dir", text).unwrap_err();
            assert_eq!(error.code, code, "{text:?}");
            assert!(
                error.message.contains("deliverables_dir"),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn only_our_own_temporary_names_are_known_as_such() {
        assert!(is_temporary(&temporary_name(7, 12)));
        for other in [
            ".muster-.tmp",
            ".muster-7.tmp",
            ".muster-7-x.tmp",
            "muster-7-1.tmp",
            "a.tmp",
        ] {
            assert!(!is_temporary(other), "{other}");
        }
    }

    #[test]
    fn without_a_folder_the_number_and_the_role_make_one() {
        let number = AgentId::new(7).unwrap();
        let role = RoleId::new("reviewer").unwrap();
        assert_eq!(
            default_deliverables_dir(number, None),
            path("sub_agent_results/agent_7")
        );
        assert_eq!(
            default_deliverables_dir(number, Some(&role)),
            path("sub_agent_results/reviewer_7")
        );
    }
}
