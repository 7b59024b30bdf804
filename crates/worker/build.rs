//! Links the executable `worker` at a fixed address.
//!
//! A worker is mostly tables of its libraries that point at each other, some 48 000 addresses. At a
//! random address the loader fills each of them in at every start: a third of the time to the first
//! request, and half a megabyte that no two workers share. At a fixed one the linker has done so
//! once. Stack, heap, and shared libraries lie at random addresses as before.
//!
//! `MUSTER_WORKER_PIE=1` leaves an executable at a random address.

use std::env;
use std::io::{self, Write};

/// Set to 1, it leaves `worker` at a random address.
const RANDOM_VARIABLE: &str = "MUSTER_WORKER_PIE";

fn main() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    writeln!(out, "cargo::rerun-if-env-changed={RANDOM_VARIABLE}")?;
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_wanted = env::var(RANDOM_VARIABLE).as_deref() != Ok("1")
        && of_target("OS") == "linux"
        && of_target("ENV") == "gnu"
        && !of_target("FEATURE").contains("crt-static");
    if is_wanted {
        // The last word on it counts for the linker's driver, gcc(1).
        writeln!(out, "cargo::rustc-link-arg-bin=worker=-no-pie")?;
    }
    Ok(())
}
