//! Runs inside a jail in the place of a worker: times commands through the keeper, each beside the
//! same command started plainly, and prints the times.
//!
//! Its argument is the number of rounds; its output, after the jail's own lines, one line
//! `{"kept_ms": […], "plain_ms": […]}`.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures, and starts what it measures"
)]

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use confine::keeper::{Client, CommandSpec};
use confine::report::JailLine;
use serde_json::json;

/// The shell command that is timed: it does nothing.
const NOTHING: [&str; 3] = ["/bin/sh", "-c", ":"];

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::inherited()?.ok_or("there is no keeper here")?;
    let rounds: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    let (mut kept, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let before = Instant::now();
        through_the_keeper(&client)?;
        kept.push(before.elapsed().as_secs_f64() * 1e3);
        let before = Instant::now();
        plainly()?;
        plain.push(before.elapsed().as_secs_f64() * 1e3);
    }
    writeln!(
        io::stdout(),
        "{}",
        json!({"kept_ms": kept, "plain_ms": plain})
    )?;
    Ok(())
}

/// From the wish to the report's end, which comes when everything of the command is gone.
fn through_the_keeper(client: &Client) -> Result<(), Box<dyn Error>> {
    let mut spec = CommandSpec::new(NOTHING.map(Into::into).to_vec(), "/".into());
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let null = File::open("/dev/null")?;
    let report = client.start(&spec, null.as_fd(), null.as_fd(), null.as_fd())?;
    report.set_nonblocking(false)?;
    let mut text = String::new();
    { &report }.read_to_string(&mut text)?;
    let ended_well = text
        .lines()
        .filter_map(JailLine::parse)
        .any(|line| matches!(line, JailLine::Ended(ended) if ended.exit_code == Some(0)));
    if ended_well {
        Ok(())
    } else {
        Err(format!("the keeper said: {text}").into())
    }
}

fn plainly() -> Result<(), Box<dyn Error>> {
    let [program, arguments @ ..] = NOTHING;
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("a shell that does nothing ended with {status}").into())
    }
}
