//! Where an agent may write, as its file tools hold it.
//!
//! The kernel holds the same rules where it can; the tools check as well, so that the model is
//! told in words what a bare system error would leave to guess.

use std::path::{Path, PathBuf};

use confine::files::{Open, PROTECTED_NAMES};
use protocol::error::{ErrorCode, ToolError};
use protocol::job::AGENT_DIR;

use super::ToolContext;
use super::names;

/// Names that are protected wherever they stand.
const PROTECTED_ANYWHERE: &[&str] = &[".git", AGENT_DIR];

/// What an agent may write, relative to its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteAccess {
    deliverables_dir: PathBuf,
    /// Empty means the whole workspace.
    scope: Vec<PathBuf>,
}

impl WriteAccess {
    /// The access that a run's context gives.
    pub(crate) fn of(context: &ToolContext) -> Self {
        let inside = |path: &PathBuf| {
            path.strip_prefix(&context.workspace)
                .map(Path::to_path_buf)
                .ok()
        };
        WriteAccess {
            // A directory outside the workspace opens nothing, since no tool path leads there.
            deliverables_dir: inside(&context.deliverables_dir)
                .unwrap_or_else(|| context.deliverables_dir.clone()),
            scope: context
                .write_scope
                .iter()
                .map(|path| inside(path).unwrap_or_else(|| path.clone()))
                .collect(),
        }
    }

    /// Checks that a place, given by its real path relative to the workspace, may be written.
    ///
    /// # Errors
    /// `outside_write_scope`, with the scope and what would allow it.
    pub(crate) fn check(&self, relative: &Path) -> Result<(), ToolError> {
        let shown = names::show(relative);
        if let Some(name) = self.protected_by(relative) {
            return Err(ToolError::new(
                ErrorCode::OutsideWriteScope,
                format!("`{shown}` can't be written: `{name}` is protected from agents"),
            )
            .hint(format!(
                "write to the deliverables directory `{}`; whoever runs the supervisor changes \
                 protected files by hand",
                names::show(&self.deliverables_dir)
            )));
        }
        if self.scope.is_empty() || self.given().any(|given| relative.starts_with(given)) {
            return Ok(());
        }
        let mut scope: Vec<String> = self
            .given()
            .map(|given| format!("`{}`", names::show(given)))
            .collect();
        scope.dedup();
        Err(ToolError::new(
            ErrorCode::OutsideWriteScope,
            format!(
                "`{shown}` lies outside what this agent may write: {}",
                scope.join(", ")
            ),
        )
        .hint("write there, or report that the task needs this path in `write_paths`"))
    }

    fn given(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.deliverables_dir).chain(&self.scope)
    }

    /// Whether a place lies in a folder inside a protected one that was given to the agent. A scope
    /// that holds all of the protected one does not open what belongs to other agents.
    fn is_given_inside(&self, protected: &str, relative: &Path) -> bool {
        self.given().any(|given| {
            given.starts_with(protected)
                && given != Path::new(protected)
                && relative.starts_with(given)
        })
    }

    /// The protected name that a place lies in, if any.
    fn protected_by(&self, relative: &Path) -> Option<&'static str> {
        let anywhere = PROTECTED_ANYWHERE
            .iter()
            .find(|name| relative.iter().any(|part| part == **name));
        if let Some(name) = anywhere {
            return Some(name);
        }
        let protected = PROTECTED_NAMES
            .iter()
            .find(|protected| relative.starts_with(protected.name))?;
        let (open, own) = match protected.open {
            Open::Nothing => (false, false),
            Open::Place(open) => (relative.starts_with(open), false),
            Open::Own => (false, self.is_given_inside(protected.name, relative)),
        };
        (!open && !own).then_some(protected.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::status::Language;
    use protocol::text::Prompts;
    use std::sync::Arc;

    fn access(scope: &[&str]) -> WriteAccess {
        WriteAccess::of(&ToolContext {
            workspace: PathBuf::from("/w"),
            deliverables_dir: PathBuf::from("/w/sub_agent_results/agent_1"),
            agent_dir: PathBuf::from("/w/sub_agent_results/agent_1/.subagent"),
            write_scope: scope
                .iter()
                .map(|path| Path::new("/w").join(path))
                .collect(),
            prompts: Arc::new(Prompts::builtin(Language::En)),
            hidden_env: Vec::new(),
            commands: Default::default(),
            mask: protocol::secret::Mask::default(),
            keeping: Arc::new(crate::tools::command::Keeping::Group {
                why: "a test wants it so".to_owned(),
            }),
            background: Arc::new(crate::tools::background::Background::new()),
            web: Default::default(),
            vision: false,
            skills: [].into(),
        })
    }

    fn allowed(access: &WriteAccess, path: &str) -> bool {
        access.check(Path::new(path)).is_ok()
    }

    #[test]
    fn without_a_scope_the_workspace_is_open_but_for_what_is_protected() {
        let access = access(&[]);
        for path in [
            "a",
            "src/a.rs",
            ".github/w.yml",
            "sub_agent_results/agent_1/x",
            ".muster/cache/npm/x",
            "docs/muster.toml",
            "gitignore",
            ".gitignore",
        ] {
            assert!(allowed(&access, path), "{path}");
        }
        for path in [
            ".git",
            ".git/config",
            "vendor/x/.git/hooks/post-commit",
            ".muster/agents/a.md",
            ".muster/runs/c/lock",
            "muster.toml",
            ".mcp.json",
            ".claude/agents/a.md",
            ".team/config.json",
            ".tasks/task_1.json",
            ".worktrees/other/f",
            "sub_agent_results/agent_2/x",
            "sub_agent_results",
            "sub_agent_results/agent_1/.subagent/job.json",
        ] {
            assert!(!allowed(&access, path), "{path}");
        }
    }

    #[test]
    fn with_a_scope_only_it_and_the_deliverables_are_open() {
        let access = access(&["src", ".worktrees/mine", ".git", "."]);
        assert!(allowed(&access, ".worktrees/mine/f"));
        assert!(
            !allowed(&access, ".worktrees/other/f"),
            "a wide scope opens no other's tree"
        );
        assert!(!allowed(&access, ".git/config"));
        let narrow = self::access(&["src"]);
        assert!(allowed(&narrow, "src/a.rs"));
        assert!(allowed(&narrow, "sub_agent_results/agent_1/x"));
        assert!(!allowed(&narrow, "source/a.rs"));
        assert_eq!(
            narrow.check(Path::new("docs/a.md")).unwrap_err(),
            ToolError::new(
                ErrorCode::OutsideWriteScope,
                "`docs/a.md` lies outside what this agent may write: \
                 `sub_agent_results/agent_1`, `src`",
            )
            .hint("write there, or report that the task needs this path in `write_paths`")
        );
    }
}
