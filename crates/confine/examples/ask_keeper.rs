//! Runs one command through the keeper, as a worker does: to be started by `jail`, for example
//! `jail --policy '{}' -- ask_keeper '{"argv": ["sh", "-c", "echo $$"]}'`.
//!
//! Its argument is a JSON object with `argv` and any other field of a command. It copies the
//! report's lines to its output, each after `report `, and ends with the command's exit code. With
//! `"hang_up_at": "TEXT"` it drops the report socket as soon as the command's output has TEXT.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use confine::keeper::{Client, CommandSpec};
use confine::report::{JailLine, NetworkReach};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    argv: Vec<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    process_cap: Option<u32>,
    #[serde(default)]
    network: Option<NetworkReach>,
    #[serde(default)]
    linger_ms: Option<u64>,
    #[serde(default)]
    hang_up_at: Option<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nothing is left to tell if even this fails.
            drop(writeln!(io::stderr(), "ask_keeper: {error}"));
            ExitCode::from(70)
        }
    }
}

fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let client = Client::inherited()?.ok_or("there is no keeper here")?;
    let wish = std::env::args().nth(1).ok_or("an argument is missing")?;
    let wish: Wish = serde_json::from_str(&wish)?;
    let cwd = wish.cwd.unwrap_or_else(|| "/".to_owned());
    let mut spec = CommandSpec::new(wish.argv.into_iter().map(Into::into).collect(), cwd.into());
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    spec.timeout_ms = wish.timeout_ms;
    spec.process_cap = wish.process_cap;
    spec.linger_ms = wish.linger_ms;
    spec.network = wish.network;

    let null = std::fs::File::open("/dev/null")?;
    let (mut output, theirs) = io::pipe()?;
    let report = client.start(&spec, null.as_fd(), theirs.as_fd(), io::stderr().as_fd())?;
    drop(theirs);
    let mut out = io::stdout();
    if let Some(text) = wish.hang_up_at {
        wait_for(&mut output, &text)?;
        drop(report);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest)?;
        writeln!(out, "hung up")?;
        return Ok(0);
    }
    io::copy(&mut output, &mut out)?;
    let mut text = String::new();
    report.set_nonblocking(false)?;
    { &report }.read_to_string(&mut text)?;
    let mut code = 70;
    for line in text.lines() {
        writeln!(out, "report {line}")?;
        if let Some(JailLine::Ended(ended)) = JailLine::parse(line) {
            code = ended
                .exit_code
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(71);
        }
    }
    writeln!(out, "processes {}", processes()?)?;
    Ok(code)
}

/// Reads until the output has `text`.
fn wait_for(output: &mut impl Read, text: &str) -> io::Result<()> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(text) {
        output.read_exact(&mut byte)?;
        seen.push(byte[0]);
    }
    Ok(())
}

/// How many processes the tree has.
fn processes() -> io::Result<usize> {
    let entries = std::fs::read_dir("/proc")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .count())
}
