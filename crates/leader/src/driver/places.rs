//! From an agent's job to what its jail is asked about files.

use std::path::{Path, PathBuf};

use confine::files::{AgentPlaces, FilePolicy, GitAccess, SECRET_PATHS, WriteMode, Writes};
use protocol::confinement::{self, GitMode};
use protocol::job::JobSpec;
use protocol::tool::worker::{EDIT_FILE, WRITE_FILE};

use crate::driver::creating::own_dir;
use crate::os::worktree::commit_places;

/// What is hidden from every agent: the built-in list below `home`, and `more` as the configuration
/// writes it. What is a link is hidden where it leads.
pub(super) fn secrets(home: Option<&Path>, more: &[String]) -> Vec<PathBuf> {
    let built_in = SECRET_PATHS
        .iter()
        .filter_map(|below| home.map(|home| home.join(below)));
    let named = more
        .iter()
        .filter_map(|text| match text.strip_prefix("~/") {
            Some(below) => home.map(|home| home.join(below)),
            None => Some(PathBuf::from(text)),
        });
    built_in
        .chain(named)
        .filter(|path| path.is_absolute())
        .map(resolved)
        .collect()
}

/// Where a path leads. Most secrets are not there, and one look tells so; following the path takes
/// one for each of its parts.
fn resolved(path: PathBuf) -> PathBuf {
    match path.exists() {
        true => path.canonicalize().unwrap_or(path),
        false => path,
    }
}

/// What the jail of this job is asked to hold. `own` is what the user decides by, which a workspace
/// may contain, as a home directory does.
pub(super) fn file_policy(job: &JobSpec, secrets: &[PathBuf], own: &[PathBuf]) -> FilePolicy {
    let places = AgentPlaces {
        mode: match job.confinement.write {
            confinement::WriteMode::Workspace => WriteMode::Workspace,
            confinement::WriteMode::Scope => WriteMode::Scope,
        },
        writes: writes(&job.tools),
        git: match job.confinement.git {
            GitMode::Read => GitAccess::Read,
            GitMode::Writable => GitAccess::Writable,
        },
        workspace: job.workspace.clone(),
        deliverables: job.workspace.join(&job.deliverables_dir),
        own: own_dir(job),
        write_paths: job
            .write_paths
            .iter()
            .map(|path| job.workspace.join(path))
            .collect(),
        secrets: secrets.to_vec(),
    };
    let mut policy = places.policy();
    if places.writes == Writes::Granted {
        for tree in places.write_paths.iter().chain([&places.deliverables]) {
            policy
                .writable
                .extend(commit_places(&places.workspace, tree));
        }
    }
    let is_open = |path: &&PathBuf| policy.writable.iter().any(|open| path.starts_with(open));
    let own: Vec<PathBuf> = own.iter().filter(is_open).cloned().collect();
    policy.read_only.extend(own);
    policy
}

/// An agent that was given no tool to write with must not write by its commands either.
fn writes(tools: &[String]) -> Writes {
    let may_write = |tool: &String| tool == WRITE_FILE || tool == EDIT_FILE;
    match tools.iter().any(may_write) {
        true => Writes::Granted,
        false => Writes::ReadOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_job::job;
    use protocol::tool::worker::{READ_FILE, RUN_COMMAND};

    #[test]
    fn secrets_are_the_built_in_ones_and_those_of_the_configuration() {
        let home = Path::new("/no/such/home");
        let found = secrets(Some(home), &["~/keys".to_owned(), "/srv/keys".to_owned()]);
        assert_eq!(found.len(), SECRET_PATHS.len() + 2);
        for expected in ["/no/such/home/.ssh", "/no/such/home/keys", "/srv/keys"] {
            assert!(found.contains(&PathBuf::from(expected)), "{expected}");
        }
        let homeless = secrets(None, &["~/keys".to_owned(), "/srv/keys".to_owned()]);
        assert_eq!(homeless, [PathBuf::from("/srv/keys")]);
    }

    #[test]
    fn a_secret_that_is_a_link_is_hidden_where_it_leads() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().canonicalize().unwrap();
        std::fs::write(home.join("there"), "").unwrap();
        std::os::unix::fs::symlink("there", home.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", home.join("dangling")).unwrap();
        let named = ["~/link", "~/dangling", "~/missing"].map(str::to_owned);
        let found = secrets(Some(&home), &named);
        let expected = ["there", "dangling", "missing"].map(|name| home.join(name));
        assert_eq!(found[SECRET_PATHS.len()..], expected);
    }

    #[test]
    fn a_job_without_tools_that_write_has_commands_that_do_not() {
        let tools = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut it = job(Path::new("/w"), "docs");
        it.tools = tools(&[READ_FILE, RUN_COMMAND]);
        let policy = file_policy(&it, &[], &[]);
        assert_eq!(policy.writable, [PathBuf::from("/w/docs/.subagent")]);
        it.tools = tools(&[READ_FILE, EDIT_FILE]);
        let policy = file_policy(&it, &[], &[]);
        assert!(policy.writable.contains(&PathBuf::from("/w")));
    }

    #[test]
    fn what_the_user_decides_by_is_read_only_where_it_lies_in_what_is_open() {
        let own = ["/w/.config/muster", "/elsewhere/muster"].map(PathBuf::from);
        let mut it = job(Path::new("/w"), "docs");
        it.tools = vec![EDIT_FILE.to_owned()];
        let policy = file_policy(&it, &[], &own);
        assert!(policy.read_only.contains(&own[0]));
        assert!(!policy.read_only.contains(&own[1]));
    }
}
