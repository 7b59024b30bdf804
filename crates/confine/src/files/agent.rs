//! From the places of an agent to what is asked about files: pure, and the one list of what is
//! protected in a workspace.

use std::path::{Path, PathBuf};

use super::policy::{FilePolicy, WriteMode};

/// Where the caches of package managers lie, relative to the workspace: agents share them.
pub const CACHE_DIR: &str = ".muster/cache";

/// A name at the top of a workspace that no agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protected {
    /// The name.
    pub name: &'static str,
    /// What of it is open all the same.
    pub open: Open,
}

/// What of a protected directory is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Nothing.
    Nothing,
    /// One place in it, relative to the workspace.
    Place(&'static str),
    /// What in it was given to the agent.
    Own,
}

const fn protected(name: &'static str, open: Open) -> Protected {
    Protected { name, open }
}

/// The repository, which `git = "writable"` opens.
const GIT: &str = ".git";

/// Every protected name.
pub const PROTECTED_NAMES: &[Protected] = &[
    protected(GIT, Open::Nothing),
    protected(".muster", Open::Place(CACHE_DIR)),
    protected("muster.toml", Open::Nothing),
    protected(".mcp.json", Open::Nothing),
    protected(".claude", Open::Nothing),
    protected(".team", Open::Nothing),
    protected(".tasks", Open::Nothing),
    protected(".worktrees", Open::Own),
    protected("sub_agent_results", Open::Own),
];

/// Whether the workspace's repository may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitAccess {
    /// It may be read alone.
    Read,
    /// It may be written: hooks and configuration in it run as the user later.
    Writable,
}

/// What an agent may do to files at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Write, as far as its places reach.
    Granted,
    /// Read alone: it has no tool that writes, so its commands must not write either.
    ReadOnly,
}

/// The places of one agent, absolute with their links resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlaces {
    /// How far it may write.
    pub mode: WriteMode,
    /// Whether it may write at all.
    pub writes: Writes,
    /// Whether the repository is open.
    pub git: GitAccess,
    /// The workspace.
    pub workspace: PathBuf,
    /// Its deliverables directory.
    pub deliverables: PathBuf,
    /// The directory of its own records, inside that.
    pub own: PathBuf,
    /// What else it was given.
    pub write_paths: Vec<PathBuf>,
    /// What is to show as empty.
    pub secrets: Vec<PathBuf>,
}

impl AgentPlaces {
    /// What is asked of the jail for these places.
    pub fn policy(&self) -> FilePolicy {
        let mut writable = vec![self.own.clone()];
        let mut gaps = Vec::new();
        if self.writes == Writes::Granted {
            writable.push(self.deliverables.clone());
            writable.push(self.workspace.join(CACHE_DIR));
            match self.mode {
                WriteMode::Workspace => {
                    writable.push(self.workspace.clone());
                    gaps.push(SHARED.to_owned());
                }
                WriteMode::Scope => {}
            }
            writable.extend(self.write_paths.iter().cloned());
        }
        let read_only = PROTECTED_NAMES
            .iter()
            .filter(|it| it.name != GIT || self.git == GitAccess::Read)
            .map(|it| self.workspace.join(it.name))
            .collect();
        if self.git == GitAccess::Writable && self.writes == Writes::Granted {
            writable.push(self.workspace.join(GIT));
            gaps.push(OPEN_GIT.to_owned());
        }
        FilePolicy {
            mode: self.mode,
            writable,
            read_only,
            command_read_only: vec![self.own.clone()],
            masked: self
                .secrets
                .iter()
                .filter(|secret| !self.holds_place(secret))
                .cloned()
                .collect(),
            gaps,
        }
    }

    /// Whether one of the places lies in `secret`: it can't be hidden then.
    fn holds_place(&self, secret: &Path) -> bool {
        self.workspace.starts_with(secret)
    }
}

/// What `workspace` leaves open by its nature.
const SHARED: &str = "commands may write other agents' directories in the workspace, but for those \
                      in sub_agent_results and .worktrees (`confinement.write = \"scope\"` keeps \
                      them apart)";
/// What the opt-out for the repository leaves open.
const OPEN_GIT: &str = "commands may write .git, whose hooks and configuration run as the user \
                        later (`confinement.git = \"writable\"`)";

#[cfg(test)]
mod tests {
    use super::*;

    fn places(mode: WriteMode) -> AgentPlaces {
        AgentPlaces {
            mode,
            writes: Writes::Granted,
            git: GitAccess::Read,
            workspace: "/h/w".into(),
            deliverables: "/h/w/docs".into(),
            own: "/h/w/docs/.subagent".into(),
            write_paths: vec!["/h/w/src".into()],
            secrets: vec!["/h/.ssh".into(), "/h".into()],
        }
    }

    fn texts(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_workspace_is_open_in_one_mode_and_the_given_places_alone_in_the_other() {
        let wide = places(WriteMode::Workspace).policy();
        let all = [
            "/h/w/docs/.subagent",
            "/h/w/docs",
            "/h/w/.muster/cache",
            "/h/w",
            "/h/w/src",
        ];
        assert_eq!(texts(&wide.writable), all);
        assert_eq!(wide.gaps, [SHARED]);
        let narrow = places(WriteMode::Scope).policy();
        let given = [all[0], all[1], all[2], all[4]];
        assert_eq!(texts(&narrow.writable), given);
        assert_eq!(narrow.gaps, Vec::<String>::new());
        for policy in [wide, narrow] {
            assert_eq!(policy.read_only.len(), PROTECTED_NAMES.len());
            assert_eq!(texts(&policy.command_read_only), ["/h/w/docs/.subagent"]);
            // A home that the workspace lies in can't be hidden whole.
            assert_eq!(texts(&policy.masked), ["/h/.ssh"]);
        }
    }

    #[test]
    fn an_open_repository_is_a_gap_and_an_agent_without_writing_tools_has_its_records_alone() {
        let open = AgentPlaces {
            git: GitAccess::Writable,
            ..places(WriteMode::Scope)
        };
        let policy = open.policy();
        assert!(policy.writable.contains(&"/h/w/.git".into()));
        assert!(!policy.read_only.contains(&"/h/w/.git".into()));
        assert_eq!(policy.gaps, [OPEN_GIT]);
        let reader = AgentPlaces {
            writes: Writes::ReadOnly,
            ..open
        };
        let policy = reader.policy();
        assert_eq!(texts(&policy.writable), ["/h/w/docs/.subagent"]);
        assert_eq!(policy.gaps, Vec::<String>::new());
    }
}
