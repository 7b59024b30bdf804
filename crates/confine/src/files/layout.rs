//! From what is asked about files to the mounts that hold it: pure, in the order of the work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::policy::FilePolicy;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    Directory,
    /// Anything that is neither a directory nor a link.
    File,
    /// A link, which is not followed.
    Link,
}

/// Looks what stands at a path; what can't be looked at counts as missing.
pub(crate) fn kind_of(path: &Path) -> Kind {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Kind::Directory,
        Ok(found) if found.is_symlink() => Kind::Link,
        Ok(_) => Kind::File,
        Err(_) => Kind::Missing,
    }
}

/// One mount, made after those of the directories above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// May be written.
    Open(PathBuf),
    /// May not be written.
    Close(PathBuf),
    /// Changes nothing but that it can't be renamed or removed: what is below would go with it.
    Pin(PathBuf),
    /// Shows as empty.
    Hide(PathBuf, Kind),
}

impl Step {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Step::Open(path) | Step::Close(path) | Step::Pin(path) | Step::Hide(path, _) => path,
        }
    }
}

/// What is to be mounted, and what of it can't be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    pub(crate) steps: Vec<Step>,
    pub(crate) gaps: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Open,
    Close,
    Pin,
    Hide(Kind),
}

/// The mounts for `policy` on a machine where `kind_of` says what stands where. The root of the
/// file system counts as read-only already.
pub(crate) fn layout(policy: &FilePolicy, kind_of: impl Fn(&Path) -> Kind) -> Layout {
    let mut draft = Draft::default();
    for path in &policy.writable {
        match kind_of(path) {
            Kind::Directory | Kind::File => draft.set(path, Rule::Open),
            Kind::Missing => draft.gap(path, "is not there, so it can't be written"),
            Kind::Link => draft.gap(path, "is a link, so it can't be written"),
        }
    }
    for path in &policy.read_only {
        draft.guard(path, kind_of(path), Rule::Close);
    }
    for path in &policy.masked {
        let kind = kind_of(path);
        draft.guard(path, kind, Rule::Hide(kind));
    }
    draft.leave_out(|rule, above| match rule {
        Rule::Open => matches!(above, Some(Rule::Open | Rule::Hide(_))),
        Rule::Close => above != Some(Rule::Open),
        Rule::Hide(_) => matches!(above, Some(Rule::Hide(_))),
        Rule::Pin => false,
    });
    for path in &policy.command_read_only {
        if kind_of(path) == Kind::Directory && !draft.rules.contains_key(path) {
            draft.set(path, Rule::Pin);
        }
    }
    draft.pin_parents();
    draft.finish()
}

#[derive(Debug, Default)]
struct Draft {
    rules: BTreeMap<PathBuf, Rule>,
    gaps: Vec<String>,
    missing: Vec<String>,
}

impl Draft {
    fn set(&mut self, path: &Path, rule: Rule) {
        self.rules.insert(path.to_owned(), rule);
    }

    fn gap(&mut self, path: &Path, why: &str) {
        self.gaps.push(format!("`{}` {why}", path.display()));
    }

    /// Takes a path that is to be guarded, or notes that it can't be.
    fn guard(&mut self, path: &Path, kind: Kind, rule: Rule) {
        let in_reach = self.above(path) == Some(Rule::Open);
        match kind {
            Kind::Directory | Kind::File => self.set(path, rule),
            // Where nothing can be made, what is not there is no danger.
            Kind::Missing if in_reach => {
                self.missing.push(format!("`{}`", path.display()));
            }
            Kind::Link if in_reach => self.gap(path, "is a link, which can be replaced"),
            Kind::Missing | Kind::Link => {}
        }
    }

    /// The rule of the nearest directory above that has one.
    fn above(&self, path: &Path) -> Option<Rule> {
        let mut parents = path.ancestors().skip(1);
        parents.find_map(|parent| match self.rules.get(parent) {
            None | Some(Rule::Pin) => None,
            Some(rule) => Some(*rule),
        })
    }

    /// Drops each rule that the nearest one above makes needless or impossible; from the outside
    /// inwards, since a rule that is dropped decides about nothing below it.
    fn leave_out(&mut self, is_needless: impl Fn(Rule, Option<Rule>) -> bool) {
        let paths: Vec<PathBuf> = self.rules.keys().cloned().collect();
        for path in paths {
            if let Some(rule) = self.rules.get(&path)
                && is_needless(*rule, self.above(&path))
            {
                self.rules.remove(&path);
            }
        }
    }

    /// Between what may be written and what is guarded in it, each directory is pinned.
    fn pin_parents(&mut self) {
        let guarded: Vec<PathBuf> = self
            .rules
            .iter()
            .filter(|(_, rule)| **rule != Rule::Open)
            .map(|(path, _)| path.clone())
            .collect();
        for path in guarded {
            if self.above(&path) != Some(Rule::Open) {
                continue;
            }
            for parent in path.ancestors().skip(1) {
                match self.rules.get(parent) {
                    None => self.set(parent, Rule::Pin),
                    Some(Rule::Pin) => {}
                    Some(Rule::Open | Rule::Close | Rule::Hide(_)) => break,
                }
            }
        }
    }

    fn finish(mut self) -> Layout {
        if !self.missing.is_empty() {
            self.gaps.push(format!(
                "what is not there can't be protected, and may be made by commands: {}",
                self.missing.join(", ")
            ));
        }
        // In the order of a map of paths, a directory stands before all that lies in it.
        let steps = self.rules.into_iter().map(|(path, rule)| match rule {
            Rule::Open => Step::Open(path),
            Rule::Close => Step::Close(path),
            Rule::Pin => Step::Pin(path),
            Rule::Hide(kind) => Step::Hide(path, kind),
        });
        Layout {
            steps: steps.collect(),
            gaps: self.gaps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{AgentPlaces, GitAccess, WriteMode, Writes};

    /// A machine with these directories, and files where the name has a point in its middle.
    fn with(there: &'static [&'static str]) -> impl Fn(&Path) -> Kind {
        move |path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let known = there.iter().find(|it| Path::new(it) == path);
            match (known, name.trim_start_matches('.').contains('.')) {
                (None, _) => Kind::Missing,
                (Some(_), false) => Kind::Directory,
                (Some(_), true) => Kind::File,
            }
        }
    }

    fn places(mode: WriteMode, deliverables: &str) -> AgentPlaces {
        AgentPlaces {
            mode,
            writes: Writes::Granted,
            git: GitAccess::Read,
            workspace: "/h/w".into(),
            deliverables: deliverables.into(),
            own: Path::new(deliverables).join(".subagent"),
            write_paths: Vec::new(),
            secrets: vec!["/h/.ssh".into(), "/h/.netrc".into()],
        }
    }

    fn shown(layout: &Layout) -> Vec<String> {
        let word = |step: &Step| match step {
            Step::Open(_) => "open",
            Step::Close(_) => "close",
            Step::Pin(_) => "pin",
            Step::Hide(..) => "hide",
        };
        let line = |step: &Step| format!("{} {}", word(step), step.path().display());
        layout.steps.iter().map(line).collect()
    }

    const FULL: &[&str] = &[
        "/h/w",
        "/h/w/.git",
        "/h/w/.muster",
        "/h/w/.muster/cache",
        "/h/w/muster.toml",
        "/h/w/.claude",
        "/h/w/docs",
        "/h/w/docs/api",
        "/h/w/docs/api/.subagent",
        "/h/w/sub_agent_results",
        "/h/w/sub_agent_results/agent_1",
        "/h/w/sub_agent_results/agent_1/.subagent",
        "/h/.ssh",
    ];

    #[test]
    fn in_a_workspace_what_is_protected_is_closed_and_the_agents_own_is_open_in_it() {
        let own = "/h/w/sub_agent_results/agent_1";
        let found = layout(&places(WriteMode::Workspace, own).policy(), with(FULL));
        assert_eq!(
            shown(&found),
            [
                "hide /h/.ssh",
                "open /h/w",
                "close /h/w/.claude",
                "close /h/w/.git",
                "close /h/w/.muster",
                "open /h/w/.muster/cache",
                "close /h/w/muster.toml",
                "close /h/w/sub_agent_results",
                "open /h/w/sub_agent_results/agent_1",
                "pin /h/w/sub_agent_results/agent_1/.subagent",
            ]
        );
        assert_eq!(
            found.gaps,
            [
                "what is not there can't be protected, and may be made by commands: \
                 `/h/w/.mcp.json`, `/h/w/.team`, `/h/w/.tasks`, `/h/w/.worktrees`"
            ]
        );
    }

    #[test]
    fn every_directory_above_a_guarded_one_is_pinned() {
        let policy = places(WriteMode::Workspace, "/h/w/docs/api").policy();
        let found = shown(&layout(&policy, with(FULL)));
        let below: Vec<&String> = found.iter().filter(|it| it.contains("docs")).collect();
        assert_eq!(
            below,
            [
                "pin /h/w/docs",
                "pin /h/w/docs/api",
                "pin /h/w/docs/api/.subagent",
            ]
        );
    }

    #[test]
    fn in_a_scope_only_what_was_given_is_open_and_nothing_can_be_missing() {
        let policy = places(WriteMode::Scope, "/h/w/docs/api").policy();
        let found = layout(&policy, with(FULL));
        assert_eq!(
            shown(&found),
            [
                "hide /h/.ssh",
                "open /h/w/.muster/cache",
                "open /h/w/docs/api",
                "pin /h/w/docs/api/.subagent",
            ]
        );
        assert_eq!(found.gaps, Vec::<String>::new());
        let gone = layout(&policy, with(&["/h/w/.muster/cache"]));
        let words = "is not there, so it can't be written";
        assert_eq!(
            gone.gaps,
            [
                format!("`/h/w/docs/api/.subagent` {words}"),
                format!("`/h/w/docs/api` {words}")
            ]
        );
    }

    #[test]
    fn a_link_in_reach_is_a_gap_and_out_of_reach_is_nothing() {
        let linked = |path: &Path| match path.to_str().unwrap() {
            "/h/w/.git" | "/h/.ssh" => Kind::Link,
            "/h/w" => Kind::Directory,
            _ => Kind::Missing,
        };
        let policy = FilePolicy {
            writable: vec!["/h/w".into()],
            read_only: vec!["/h/w/.git".into()],
            masked: vec!["/h/.ssh".into()],
            ..FilePolicy::closed(WriteMode::Workspace)
        };
        let found = layout(&policy, linked);
        assert_eq!(shown(&found), ["open /h/w"]);
        assert_eq!(found.gaps, ["`/h/w/.git` is a link, which can be replaced"]);
    }

    #[test]
    fn what_lies_in_a_hidden_place_is_neither_opened_nor_hidden_again() {
        let policy = FilePolicy {
            writable: vec!["/h/.ssh/x".into()],
            masked: vec!["/h/.ssh".into(), "/h/.ssh/y".into()],
            ..FilePolicy::closed(WriteMode::Scope)
        };
        let there = with(&["/h/.ssh", "/h/.ssh/x", "/h/.ssh/y"]);
        assert_eq!(shown(&layout(&policy, there)), ["hide /h/.ssh"]);
    }
}
