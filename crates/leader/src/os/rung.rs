//! What this machine holds, found out by doing it, once per leader.

use std::path::{Path, PathBuf};

use confine::probe::{Obstacle, Probe, ProbeError, probe_up_to};
use confine::report::{Confinement, KillReach, Rung};
use protocol::config::{RequiredRung, Settings};

/// What the configuration asks of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Less than this is an error.
    pub require: Rung,
    /// More than this is not tried.
    pub highest: Rung,
    /// A delegated cgroup v2 directory.
    pub cgroup: Option<PathBuf>,
}

impl Wanted {
    /// What these settings ask for.
    pub fn of(settings: &Settings) -> Self {
        Wanted {
            require: rung_of(settings.require),
            highest: rung_of(settings.highest),
            cgroup: settings.cgroup.clone(),
        }
    }

    /// The rung that is asked for: the highest that may be tried, which is a cgroup only where a
    /// directory for it is named.
    pub fn asked(&self) -> Rung {
        match self.cgroup {
            Some(_) => self.highest,
            None => self.highest.min(Rung::Pidns).max(self.require),
        }
    }
}

/// A rung of the configuration as the jail knows it; none at all asks for the least there is.
pub fn rung_of(word: RequiredRung) -> Rung {
    match word {
        RequiredRung::None | RequiredRung::Group => Rung::Group,
        RequiredRung::Subreaper => Rung::Subreaper,
        RequiredRung::Pidns => Rung::Pidns,
        RequiredRung::Cgroup2 => Rung::Cgroup2,
    }
}

/// Lets a process escape from the highest rung that may be tried, kills the tree, and tells what
/// was seen. Blocks for some milliseconds.
///
/// # Errors
/// When `jail` can't be run, hangs or has no answer.
pub fn find(jail: &Path, wanted: &Wanted) -> Result<Probe, ProbeError> {
    let mut found = probe_up_to(jail, wanted.highest, wanted.cgroup.as_deref())?;
    found
        .obstacles
        .retain(|obstacle| obstacle.rung <= wanted.highest);
    Ok(found)
}

/// What is missing for the required rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// The rung asked for.
    pub required: Rung,
    /// The rung in force.
    pub found: Rung,
    /// What stands in the way, nearest first; each with the line that changes it.
    pub obstacles: Vec<Obstacle>,
    /// What does not hold, in the jail's words.
    pub gaps: Vec<String>,
}

/// Compares what was found with what is required. A rung whose kill was seen to miss a process
/// does not count as more than the group that it then is.
pub fn shortfall(required: Rung, found: &Probe) -> Option<Shortfall> {
    let rung = proven(&found.confinement);
    if rung >= required {
        return None;
    }
    let obstacles = found.obstacles.iter();
    Some(Shortfall {
        required,
        found: rung,
        obstacles: obstacles
            .filter(|obstacle| obstacle.rung > rung && obstacle.rung <= required)
            .cloned()
            .collect(),
        gaps: found.confinement.gaps.clone(),
    })
}

/// The rung as far as its kill holds what it promises.
fn proven(found: &Confinement) -> Rung {
    match found.kill {
        KillReach::Complete | KillReach::BestEffort => found.rung,
        KillReach::Group => Rung::Group,
    }
}

/// What stands in the way of the next rung above the one in force.
pub fn next(found: &Probe) -> Option<&Obstacle> {
    let rung = proven(&found.confinement);
    found
        .obstacles
        .iter()
        .filter(|obstacle| obstacle.rung > rung)
        .min_by_key(|obstacle| obstacle.rung)
}

#[cfg(test)]
pub(crate) mod test_kit {
    use super::*;
    use confine::report::{FilesystemGuard, MemoryCap, NetworkReach, ProcessCap};

    /// A machine on which this rung stands and each above it has one thing in its way.
    pub(crate) fn found(rung: Rung) -> Probe {
        let above = Rung::ALL.into_iter().filter(|above| *above > rung);
        Probe {
            confinement: Confinement {
                rung,
                kill: match rung {
                    Rung::Group => KillReach::Group,
                    Rung::Subreaper => KillReach::BestEffort,
                    Rung::Pidns | Rung::Cgroup2 => KillReach::Complete,
                },
                procs: ProcessCap::Tree,
                memory: MemoryCap::None,
                network: NetworkReach::Full,
                filesystem: FilesystemGuard::Workspace,
                gaps: vec![format!("a gap of {rung}")],
            },
            obstacles: above
                .map(|rung| Obstacle {
                    rung,
                    reason: format!("no {rung}"),
                    remedy: format!("allow {rung}"),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::test_kit::found;
    use super::*;

    #[test]
    fn a_lower_rung_falls_short_of_each_higher_one_and_tells_what_is_between() {
        for required in Rung::ALL {
            for rung in Rung::ALL {
                let short = shortfall(required, &found(rung));
                assert_eq!(short.is_some(), rung < required, "{rung} for {required}");
                let Some(short) = short else { continue };
                assert_eq!((short.required, short.found), (required, rung));
                let between: Vec<Rung> = Rung::ALL
                    .into_iter()
                    .filter(|between| *between > rung && *between <= required)
                    .collect();
                let told: Vec<Rung> = short.obstacles.iter().map(|it| it.rung).collect();
                assert_eq!(told, between);
                assert_eq!(short.gaps, found(rung).confinement.gaps);
            }
        }
    }

    #[test]
    fn a_namespace_that_let_a_process_escape_is_no_more_than_a_group() {
        let mut leaky = found(Rung::Pidns);
        leaky.confinement.kill = KillReach::Group;
        assert_eq!(shortfall(Rung::Group, &leaky), None);
        let short = shortfall(Rung::Subreaper, &leaky).unwrap();
        assert_eq!(short.found, Rung::Group);
        assert_eq!(next(&leaky).unwrap().rung, Rung::Cgroup2);
    }

    #[test]
    fn the_next_rung_is_the_lowest_above_the_one_in_force() {
        let above = |rung| next(&found(rung)).map(|obstacle| obstacle.rung);
        assert_eq!(above(Rung::Group), Some(Rung::Subreaper));
        assert_eq!(above(Rung::Subreaper), Some(Rung::Pidns));
        assert_eq!(above(Rung::Pidns), Some(Rung::Cgroup2));
        assert_eq!(above(Rung::Cgroup2), None);
    }

    #[test]
    fn the_highest_rung_that_may_be_tried_is_asked_for_and_a_cgroup_where_one_is_named() {
        let asked = |cgroup: Option<&str>, highest| {
            let wanted = Wanted {
                require: Rung::Subreaper,
                highest,
                cgroup: cgroup.map(PathBuf::from),
            };
            wanted.asked()
        };
        assert_eq!(asked(None, Rung::Cgroup2), Rung::Pidns);
        assert_eq!(asked(None, Rung::Subreaper), Rung::Subreaper);
        assert_eq!(asked(Some("/c"), Rung::Cgroup2), Rung::Cgroup2);
        assert_eq!(asked(Some("/c"), Rung::Pidns), Rung::Pidns);
    }
}
