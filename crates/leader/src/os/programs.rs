//! Where `worker` and `jail` are, and whether they can be executed, said in words that name the
//! right path.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Names the worker's executable, unless a flag does.
pub const WORKER_VARIABLE: &str = "MUSTER_WORKER";
/// Names the jail's executable.
pub const JAIL_VARIABLE: &str = "MUSTER_JAIL";

/// Which of the two executables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The agent itself.
    Worker,
    /// What starts it under limits.
    Jail,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Worker => "worker",
            Program::Jail => "jail",
        }
    }

    fn hint(self) -> String {
        match self {
            Program::Worker => format!(
                "build it so that it lies beside `leader`, pass `--worker-bin PATH`, or set {WORKER_VARIABLE}"
            ),
            Program::Jail => {
                format!("build it so that it lies beside `leader`, or set {JAIL_VARIABLE}")
            }
        }
    }
}

/// The two executables, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The agent itself.
    pub worker: PathBuf,
    /// What starts it under limits.
    pub jail: PathBuf,
}

impl Programs {
    /// Decides where they are: a flag, a variable, else beside `own_executable`. Relative paths
    /// count from `cwd`.
    pub fn find(
        worker_bin: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
        own_executable: &Path,
        cwd: &Path,
    ) -> Programs {
        let beside = |name: &str| own_executable.with_file_name(name);
        let named = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let worker = worker_bin
            .map(Path::to_path_buf)
            .or_else(|| named(WORKER_VARIABLE))
            .unwrap_or_else(|| beside("worker"));
        let jail = named(JAIL_VARIABLE).unwrap_or_else(|| beside("jail"));
        Programs {
            worker: cwd.join(worker),
            jail: cwd.join(jail),
        }
    }

    /// The same for this process: beside its own executable, from its own working directory, or
    /// from `otherwise` where that is gone.
    pub fn around(
        worker_bin: Option<&Path>,
        otherwise: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Programs {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("leader"));
        let cwd = std::env::current_dir().unwrap_or_else(|_| otherwise.to_path_buf());
        Programs::find(
            worker_bin,
            |name| variable(name).map(Into::into),
            &own,
            &cwd,
        )
    }

    /// Checks both, the worker first.
    ///
    /// # Errors
    /// With the first thing that stands in the way of executing one of them.
    pub fn check(&self) -> Result<(), SpawnProblem> {
        check_program(Program::Worker, &self.worker)?;
        check_program(Program::Jail, &self.jail)
    }
}

/// Why a worker can't be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnProblem {
    /// There is no such file.
    #[error("{} `{}` is not there", .program.name(), .path.display())]
    Missing {
        /// Which.
        program: Program,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{} `{}` is a directory", .program.name(), .path.display())]
    Directory {
        /// Which.
        program: Program,
        /// Where.
        path: PathBuf,
    },
    /// No execute permission.
    #[error("{} `{}` is not executable", .program.name(), .path.display())]
    NotExecutable {
        /// Which.
        program: Program,
        /// Where.
        path: PathBuf,
    },
    /// Neither a binary nor a script that names its interpreter.
    #[error("{} `{}` is neither a Linux executable nor a script that begins with `#!`",
        .program.name(), .path.display())]
    NoProgram {
        /// Which.
        program: Program,
        /// Where.
        path: PathBuf,
    },
    /// The working directory is gone.
    #[error("the workspace `{}` is not there any more", .path.display())]
    WorkspaceGone {
        /// Where it was.
        path: PathBuf,
    },
    /// The system refused for another reason.
    #[error("{} `{}` could not be started: {source}", .program.name(), .path.display())]
    Refused {
        /// Which.
        program: Program,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl SpawnProblem {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            SpawnProblem::Missing { program, .. }
            | SpawnProblem::Directory { program, .. }
            | SpawnProblem::NoProgram { program, .. } => program.hint(),
            SpawnProblem::NotExecutable { program, path } => {
                format!("`chmod +x {}`, or {}", path.display(), program.hint())
            }
            SpawnProblem::WorkspaceGone { .. } => {
                "make it again, or start the leader where the workspace is now".to_owned()
            }
            SpawnProblem::Refused { .. } => {
                "look at the limits of open files and processes (`ulimit -a`)".to_owned()
            }
        }
    }
}

/// Looks for what would make an execution of `path` fail.
///
/// # Errors
/// With what stands in the way. A file that passes may still be refused by the kernel, as when
/// its interpreter is missing.
pub fn check_program(program: Program, path: &Path) -> Result<(), SpawnProblem> {
    let path = path.to_path_buf();
    match std::fs::metadata(&path) {
        Err(error) if is_missing(&error) => Err(SpawnProblem::Missing { program, path }),
        Err(source) => Err(SpawnProblem::Refused {
            program,
            path,
            source,
        }),
        Ok(meta) if meta.is_dir() => Err(SpawnProblem::Directory { program, path }),
        Ok(meta) if !meta.is_file() => Err(SpawnProblem::NoProgram { program, path }),
        Ok(_) if access(&path, AccessFlags::X_OK).is_err() => {
            Err(SpawnProblem::NotExecutable { program, path })
        }
        Ok(_) if !has_magic(&path) => Err(SpawnProblem::NoProgram { program, path }),
        Ok(_) => Ok(()),
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

/// Whether the kernel would know what to do with the file. One that may be executed but not read
/// is left to the kernel.
fn has_magic(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else {
        return true;
    };
    let mut head = [0; 4];
    match file.read(&mut head) {
        Ok(read) => head[..read].starts_with(b"#!") || head == *b"\x7fELF",
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_flag_goes_before_a_variable_and_that_before_the_neighbour() {
        let own = Path::new("/opt/bin/leader");
        let cwd = Path::new("/home/u");
        let variable = |name: &str| (name == WORKER_VARIABLE).then(|| OsString::from("/v/worker"));
        let find = |flag: Option<&str>, variable: &dyn Fn(&str) -> Option<OsString>| {
            let found = Programs::find(flag.map(Path::new), variable, own, cwd);
            (found.worker, found.jail)
        };
        let jail = PathBuf::from("/opt/bin/jail");
        assert_eq!(
            find(None, &|_| None),
            ("/opt/bin/worker".into(), jail.clone())
        );
        assert_eq!(find(None, &variable), ("/v/worker".into(), jail.clone()));
        assert_eq!(
            find(Some("w"), &variable),
            ("/home/u/w".into(), jail.clone())
        );
        let empty = |_: &str| Some(OsString::new());
        assert_eq!(find(None, &empty), ("/opt/bin/worker".into(), jail));
    }

    #[test]
    fn each_thing_in_the_way_has_its_own_words() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::write(at("plain"), "#!/bin/sh\n").unwrap();
        mode("plain", 0o644);
        fs::write(at("text"), "hello").unwrap();
        mode("text", 0o755);
        fs::write(at("script"), "#!/bin/sh\n").unwrap();
        mode("script", 0o755);
        let words = |name: &str| {
            check_program(Program::Worker, &at(name)).map_err(|problem| {
                assert!(!problem.hint().is_empty());
                problem.to_string()
            })
        };
        let path = |name: &str| at(name).display().to_string();
        assert_eq!(
            words("none"),
            Err(format!("worker `{}` is not there", path("none")))
        );
        assert_eq!(
            words("plain/x"),
            Err(format!("worker `{}` is not there", path("plain/x")))
        );
        assert_eq!(
            words(""),
            Err(format!("worker `{}` is a directory", path("")))
        );
        assert_eq!(
            words("plain"),
            Err(format!("worker `{}` is not executable", path("plain")))
        );
        assert_eq!(
            words("text"),
            Err(format!(
                "worker `{}` is neither a Linux executable nor a script that begins with `#!`",
                path("text")
            ))
        );
        assert_eq!(words("script"), Ok(()));
        assert!(check_program(Program::Jail, Path::new("/proc/self/exe")).is_ok());
    }
}
