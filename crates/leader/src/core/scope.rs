//! Which directories agents hold, so that no two live agents write into the same place.
//!
//! Paths are absolute with every link resolved; that is the caller's business, for only the file
//! system knows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};

/// As what a path is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// As a deliverables dir.
    Deliverables,
    /// As one of the write paths.
    WritePath,
}

/// Two agents that want the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What the newcomer wants.
    pub wanted: PathBuf,
    /// As what.
    pub wanted_as: Held,
    /// What a live agent holds.
    pub held: PathBuf,
    /// As what.
    pub held_as: Held,
    /// Who holds it.
    pub holder: usize,
}

/// The places that live agents hold; an agent is known by its index.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    // Ordered by components, so that what lies below a path follows it directly.
    held: BTreeMap<PathBuf, Vec<(usize, Held)>>,
}

impl Claims {
    /// The first place that is equal to one that is held, lies in it, or holds it.
    pub fn conflict(&self, deliverables: &Path, write_paths: &[PathBuf]) -> Option<Conflict> {
        self.conflict_of(deliverables, Held::Deliverables)
            .or_else(|| {
                write_paths
                    .iter()
                    .find_map(|path| self.conflict_of(path, Held::WritePath))
            })
    }

    fn conflict_of(&self, wanted: &Path, wanted_as: Held) -> Option<Conflict> {
        let above = wanted
            .ancestors()
            .find_map(|path| self.held.get_key_value(path));
        let below = || {
            self.held
                .range::<Path, _>((Bound::Excluded(wanted), Bound::Unbounded))
                .next()
                .filter(|(path, _)| path.starts_with(wanted))
        };
        let (held, holders) = above.or_else(below)?;
        let (holder, held_as) = *holders.first()?;
        Some(Conflict {
            wanted: wanted.to_owned(),
            wanted_as,
            held: held.clone(),
            held_as,
            holder,
        })
    }

    /// Takes the places of an agent.
    pub fn take(&mut self, agent: usize, deliverables: &Path, write_paths: &[PathBuf]) {
        let mut add = |path: &Path, held| {
            self.held
                .entry(path.to_owned())
                .or_default()
                .push((agent, held));
        };
        add(deliverables, Held::Deliverables);
        for path in write_paths {
            add(path, Held::WritePath);
        }
    }

    /// Gives back the places of an agent.
    pub fn release(&mut self, agent: usize, deliverables: &Path, write_paths: &[PathBuf]) {
        let paths = std::iter::once(deliverables).chain(write_paths.iter().map(PathBuf::as_path));
        for path in paths {
            if let Some(holders) = self.held.get_mut(path) {
                holders.retain(|(holder, _)| *holder != agent);
                if holders.is_empty() {
                    self.held.remove(path);
                }
            }
        }
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// A conflict as the caller gets it; `holder` is the display name of who holds the place.
pub fn overlap_error(conflict: &Conflict, holder: &str, workspace: &Path) -> ToolError {
    let show = |path: &Path| {
        path.strip_prefix(workspace)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let (wanted, held) = (show(&conflict.wanted), show(&conflict.held));
    let relation = if conflict.wanted == conflict.held {
        "is"
    } else if conflict.wanted.starts_with(&conflict.held) {
        "lies in"
    } else {
        "holds"
    };
    let (code, what) = match (conflict.wanted_as, conflict.held_as) {
        (Held::Deliverables, Held::Deliverables) => {
            (ErrorCode::DeliverablesOverlap, "deliverables_dir")
        }
        (Held::Deliverables, Held::WritePath) => (ErrorCode::ScopeOverlap, "deliverables_dir"),
        (Held::WritePath, _) => (ErrorCode::ScopeOverlap, "write path"),
    };
    let held_as = match conflict.held_as {
        Held::Deliverables => "deliverables_dir",
        Held::WritePath => "write path",
    };
    ToolError::new(
        code,
        format!(
            "{what} `{wanted}` {relation} the {held_as} `{held}` of {holder}, which has not ended"
        ),
    )
    .hint(format!(
        "choose a place that neither holds nor lies in `{held}`, or wait until {holder} has ended"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn equal_and_nested_places_conflict_either_way() {
        // Two agents that write into one directory overwrite each other's output.
        let mut claims = Claims::default();
        claims.take(7, &path("/w/docs"), &[path("/w/src/api")]);
        let holder = |deliverables: &str, writes: &[&str]| {
            let writes: Vec<_> = writes.iter().map(|text| path(text)).collect();
            claims
                .conflict(&path(deliverables), &writes)
                .map(|conflict| (conflict.held, conflict.wanted_as, conflict.held_as))
        };
        let docs = Some((path("/w/docs"), Held::Deliverables, Held::Deliverables));
        assert_eq!(holder("/w/docs", &[]), docs);
        assert_eq!(holder("/w/docs/api/v1", &[]), docs);
        assert_eq!(holder("/w", &[]), docs);
        let api = path("/w/src/api");
        assert_eq!(
            holder("/w/src/api/x", &[]),
            Some((api.clone(), Held::Deliverables, Held::WritePath))
        );
        assert_eq!(
            holder("/w/out", &["/w/a", "/w/src"]),
            Some((api, Held::WritePath, Held::WritePath))
        );
        assert_eq!(
            holder("/w/out", &["/w/docs/x"]),
            Some((path("/w/docs"), Held::WritePath, Held::Deliverables))
        );
        // A common beginning of a name is no nesting, and neither is what sorts between.
        for other in [
            "/w/docs2",
            "/w/docs-old",
            "/w/doc",
            "/w/docs!x",
            "/w/src/apis",
        ] {
            assert_eq!(holder(other, &[]), None, "{other}");
        }
    }

    #[test]
    fn a_place_is_free_once_its_holder_let_go() {
        let mut claims = Claims::default();
        // An agent may name its own places twice and nested.
        let writes = [path("/w/docs"), path("/w/docs/in")];
        claims.take(1, &path("/w/docs"), &writes);
        claims.take(2, &path("/w/other"), &[]);
        claims.release(1, &path("/w/docs"), &writes);
        assert_eq!(claims.conflict(&path("/w/docs"), &[]), None);
        assert!(!claims.is_empty());
        claims.release(2, &path("/w/other"), &[]);
        assert!(claims.is_empty());
    }

    #[test]
    fn an_overlap_names_both_places_and_the_holder() {
        let conflict = Conflict {
            wanted: path("/w/docs/api"),
            wanted_as: Held::Deliverables,
            held: path("/w/docs"),
            held_as: Held::Deliverables,
            holder: 0,
        };
        let error = overlap_error(&conflict, "Sub-agent 1", Path::new("/w"));
        assert_eq!(error.code, ErrorCode::DeliverablesOverlap);
        assert_eq!(
            error.message,
            "deliverables_dir `docs/api` lies in the deliverables_dir `docs` of Sub-agent 1, \
             which has not ended"
        );
        let conflict = Conflict {
            wanted: path("/w"),
            wanted_as: Held::WritePath,
            ..conflict
        };
        let error = overlap_error(&conflict, "Sub-agent 1", Path::new("/w"));
        assert_eq!(error.code, ErrorCode::ScopeOverlap);
        assert!(
            error.message.contains("holds the deliverables_dir `docs`"),
            "{}",
            error.message
        );
    }
}
