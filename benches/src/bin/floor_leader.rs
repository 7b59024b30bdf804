//! The floor of a leader: starts the floor's agent in a process group of its own, waits for it and
//! reads what it left. Its arguments are the agent's.

#![expect(
    clippy::disallowed_methods,
    reason = "a floor does by itself what others may not"
)]

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let agent = env::current_exe()?.with_file_name("floor_agent");
    let status = Command::new(agent)
        .args(&arguments)
        .process_group(0)
        .status()?;
    let out = Path::new(arguments.get(1).map_or("", String::as_str));
    let record = out.parent().unwrap_or(out).join("floor/conversations.json");
    let record = fs::read_to_string(record)?;
    writeln!(io::stdout(), "{status} {}", record.len())
}
