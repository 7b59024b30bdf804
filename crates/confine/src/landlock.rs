//! Landlock: a process inside can't signal, nor reach by an abstract socket, anything that was not
//! started inside, and writes only where it may.
//!
//! It is the second layer for files: it holds what mounts do not, such as device nodes, and mounts
//! hold what it does not, such as modes, owners and times, and what is closed inside something open.

use std::path::Path;

use ::landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::files::FilePolicy;

/// Memory file systems that every program may write: its own ones, or where it has no mounts of its
/// own the machine's.
const MEMORY: &[&str] = &["/tmp", "/dev/shm", "/dev/mqueue"];

/// Devices without which plain tools fail (`/dev/ptmx` and `/dev/pts` for terminals of its own).
const DEVICES: &[&str] = &[
    "/dev/pts",
    "/dev/ptmx",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// The rights of the version that this is written for (Linux 6.10); an older kernel holds fewer.
const VERSION: ABI = ABI::V5;

/// Whose the memory file systems are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory<'a> {
    /// The program's own.
    Private,
    /// The machine's. One that holds this workspace can't be open as well: below an open directory
    /// Landlock closes nothing.
    Shared(Option<&'a Path>),
}

impl Memory<'_> {
    /// Whether one of the file systems may be written.
    fn opens(self, place: &Path) -> bool {
        match self {
            Memory::Private | Memory::Shared(None) => true,
            Memory::Shared(Some(workspace)) => {
                let place = place.canonicalize();
                !place.is_ok_and(|place| workspace.starts_with(place))
            }
        }
    }

    /// Those that may not be written.
    pub(crate) fn closed(self) -> impl Iterator<Item = &'static str> {
        let all = MEMORY.iter().copied();
        all.filter(move |place| !self.opens(Path::new(place)))
    }
}

/// What stands after [`restrict`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restricted {
    /// Whether signals and abstract sockets are held, or why not.
    pub(crate) scopes: Result<(), String>,
    /// Whether writes are held, where that was asked.
    pub(crate) writes: Writes,
}

/// What of the rules for writes stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    NotAsked,
    Held,
    /// The kernel knows some of the rights alone.
    HeldInPart,
    NotHeld(String),
}

/// Restricts this process and all that it will start; what the kernel does not have is told.
pub(crate) fn restrict(files: Option<&FilePolicy>, memory: Memory<'_>) -> Restricted {
    match enforce(Scopes::Wanted, files, memory) {
        Ok(status) => Restricted {
            scopes: Ok(()),
            writes: told(files, &status),
        },
        Err(error) => {
            let writes = match files.map(|files| enforce(Scopes::LeftOut, Some(files), memory)) {
                None => Writes::NotAsked,
                Some(Ok(status)) => told(files, &status),
                Some(Err(error)) => Writes::NotHeld(error.to_string()),
            };
            Restricted {
                scopes: Err(error.to_string()),
                writes,
            }
        }
    }
}

fn told(files: Option<&FilePolicy>, status: &RestrictionStatus) -> Writes {
    match (files, &status.ruleset) {
        (None, _) => Writes::NotAsked,
        (Some(_), RulesetStatus::FullyEnforced) => Writes::Held,
        (Some(_), RulesetStatus::PartiallyEnforced) => Writes::HeldInPart,
        (Some(_), RulesetStatus::NotEnforced) => Writes::NotHeld("not in this kernel".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scopes {
    Wanted,
    LeftOut,
}

/// One rule set for everything, for a process can have sixteen of them at most.
fn enforce(
    scopes: Scopes,
    files: Option<&FilePolicy>,
    memory: Memory<'_>,
) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default();
    if scopes == Scopes::Wanted {
        ruleset = ruleset
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
    }
    let Some(files) = files else {
        return ruleset.create()?.restrict_self();
    };
    let created = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(VERSION))?
        .create()?;
    let own = MEMORY.iter().map(Path::new);
    let own = own.filter(|place| memory.opens(place));
    let always = own.chain(DEVICES.iter().map(Path::new));
    let open = files.writable.iter().map(|path| path.as_path());
    always.chain(open).try_fold(created, allow)?.restrict_self()
}

/// What is not there needs no rule.
fn allow(rules: RulesetCreated, path: &Path) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(rules);
    };
    let all: BitFlags<AccessFs> = AccessFs::from_write(VERSION);
    let rights = match path.is_dir() {
        true => all,
        false => all & AccessFs::from_file(VERSION),
    };
    rules.add_rule(PathBeneath::new(opened, rights))
}
