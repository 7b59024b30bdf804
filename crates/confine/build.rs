//! Links the executable `jail` with the C library inside it, where that can be had.
//!
//! Each start of an agent executes two programs, and loading shared libraries is a third of what a
//! small one takes to begin. A program without them is also smaller in memory. Cargo has no way to
//! ask for this for one executable of a workspace (`crt-static` is a feature of the whole target,
//! and a worker needs the shared library to look up host names), so it is asked of the linker: the
//! compiler's own `-lc` and its like find, in a folder of ours, scripts that name the archives
//! (ld(1), "INPUT"). The result is a static executable at a random address, as `crt-static` makes.
//!
//! Whatever is missing for it, or `MUSTER_JAIL_SHARED=1`, leaves an ordinary executable, which does
//! the same a little later.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to 1, it leaves `jail` with shared libraries.
const SHARED_VARIABLE: &str = "MUSTER_JAIL_SHARED";
/// What the compiler names to the linker, each with the archives that stand in for it.
const LIBRARIES: [(&str, &[&str]); 7] = [
    ("c", &["libc.a", "libgcc_eh.a", "libgcc.a"]),
    ("gcc_s", &["libgcc_eh.a", "libgcc.a"]),
    ("util", &["libutil.a"]),
    ("rt", &["librt.a"]),
    ("pthread", &["libpthread.a"]),
    ("m", &["libm.a"]),
    ("dl", &["libdl.a"]),
];
/// What makes the linker's driver begin a static executable at a random address.
const STATIC: &str = "-static-pie";

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    writeln!(out, "cargo::rerun-if-env-changed={SHARED_VARIABLE}")?;
    let Some(folder) = static_libraries() else {
        return Ok(());
    };
    for argument in [format!("-L{}", folder.display()), STATIC.to_owned()] {
        writeln!(out, "cargo::rustc-link-arg-bin=jail={argument}")?;
    }
    Ok(())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// A folder of scripts that name the archives; none where a static executable can't be had.
fn static_libraries() -> Option<PathBuf> {
    let is_wanted = variable(SHARED_VARIABLE) != "1"
        && variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        // Archives of this machine are of no use to another.
        && variable("HOST") == variable("TARGET")
        && !variable("CARGO_CFG_TARGET_FEATURE").contains("crt-static");
    if !is_wanted {
        return None;
    }
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let folder = Path::new(&env::var_os("OUT_DIR")?).join("static");
    fs::create_dir_all(&folder).ok()?;
    for (name, archives) in LIBRARIES {
        let paths: Vec<String> = archives
            .iter()
            .map(|archive| path_of(&linker, archive))
            .collect::<Option<_>>()?;
        let script = format!("GROUP({})\n", paths.join(" "));
        fs::write(folder.join(format!("lib{name}.so")), script).ok()?;
    }
    can_link(&linker, &folder).then_some(folder)
}

/// Where the linker's driver finds an archive.
fn path_of(linker: &std::ffi::OsStr, archive: &str) -> Option<String> {
    let asked = linker_command(linker)
        .arg(format!("-print-file-name={archive}"))
        .output()
        .ok()?;
    let path = String::from_utf8(asked.stdout).ok()?.trim().to_owned();
    // It repeats the bare name of what it does not find.
    Path::new(&path).is_absolute().then_some(path)
}

/// Links and runs a program that does nothing, in the same way.
fn can_link(linker: &std::ffi::OsStr, folder: &Path) -> bool {
    let (source, program) = (folder.join("nothing.c"), folder.join("nothing"));
    let written = fs::write(&source, "int main(void) { return 0; }\n");
    let linked = linker_command(linker)
        .args(["-fPIC", "-pie", "-nodefaultlibs", "-o"])
        .arg(&program)
        .arg(&source)
        .args(["-Wl,-Bdynamic", "-lgcc_s", "-lc"])
        .arg(format!("-L{}", folder.display()))
        .arg(STATIC)
        .output();
    let is_linked = linked.is_ok_and(|output| output.status.success());
    written.is_ok() && is_linked && {
        let ran = linker_command(program.as_os_str()).status();
        ran.is_ok_and(|status| status.success())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script asks the linker what it can do"
)]
fn linker_command(program: &std::ffi::OsStr) -> Command {
    Command::new(program)
}
