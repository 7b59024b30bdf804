//! The executables that are measured, and the floors beside them; built first where cargo is at
//! hand, so that no old one is measured.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BenchError;

/// What is measured.
const OURS: [&str; 3] = ["leader", "worker", "jail"];
/// What it is measured against.
const FLOORS: [&str; 3] = ["floor_agent", "floor_leader", "floor_commands"];
/// The floors that are linked statically and to a fixed address, which is the cheapest start a
/// program can have.
const STATIC_FLOORS: [&str; 2] = ["floor_agent", "floor_leader"];

/// A folder with all executables.
#[derive(Debug, Clone)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The executables of `folder`, or those beside this one, which are built first when this one
    /// was started by cargo.
    ///
    /// # Errors
    /// When one is missing, or can't be built.
    pub fn find(folder: Option<PathBuf>, log: &mut dyn Write) -> Result<Programs, BenchError> {
        let folder = match folder {
            Some(folder) => folder.canonicalize().map_err(BenchError::io(format!(
                "find the folder `{}`",
                folder.display()
            )))?,
            None => {
                let own = std::env::current_exe().map_err(BenchError::io("find this program"))?;
                let folder = own.parent().unwrap_or(Path::new("/")).to_owned();
                // Cargo names itself to what it runs.
                if let Some(cargo) = std::env::var_os("CARGO") {
                    build(&cargo, &folder, log)?;
                }
                folder
            }
        };
        for name in OURS.iter().chain(&FLOORS) {
            if !folder.join(name).is_file() {
                return Err(BenchError::Failed(format!(
                    "there is no `{name}` in {} (hint: start this by `cargo run --release -p \
                     benches`, which builds it)",
                    folder.display()
                )));
            }
        }
        Ok(Programs { folder })
    }

    /// The path of one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Builds everything in the profile whose folder this is.
fn build(cargo: &OsString, folder: &Path, log: &mut dyn Write) -> Result<(), BenchError> {
    // It only tells what takes so long.
    drop(writeln!(log, "building what is measured"));
    let is_release = folder.file_name().is_some_and(|name| name == "release");
    let profile: &[&str] = if is_release { &["--release"] } else { &[] };
    let run = |arguments: &[&str], flags: &[&str]| {
        let status = Command::new(cargo)
            .args(arguments)
            .args(profile)
            .args(flags)
            .status()
            .map_err(BenchError::io("run cargo"))?;
        Ok::<bool, BenchError>(status.success())
    };
    let members = ["leader", "worker", "confine", "benches"].map(|name| ["-p", name]);
    let all = [&["build", "--bins", "--quiet"], members.as_flattened()].concat();
    if !run(&all, &[])? {
        return Err(BenchError::Failed("the build failed".to_owned()));
    }
    for name in STATIC_FLOORS {
        let one = ["rustc", "-p", "benches", "--bin", name, "--quiet"];
        let flags = ["--", "-C", "target-feature=+crt-static"];
        let fixed = ["-C", "relocation-model=static"];
        if !run(&one, &[&flags[..], &fixed].concat())? {
            // Without the static C library, which some systems don't install.
            drop(writeln!(
                log,
                "{name} can't be linked statically here: its floor is higher than it could be"
            ));
        }
    }
    Ok(())
}
