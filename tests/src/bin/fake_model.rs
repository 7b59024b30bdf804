//! A scripted model server for trying things by hand: `fake_model FILE.jsonl` replays the turns of
//! the file to every conversation, prints its base URL, and runs until its stdin ends.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use serde_json::Value;
use system_tests::Turn;
use system_tests::model::{Behaviour, ModelServer};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "fake_model: {error}").ok();
            ExitCode::from(2)
        }
    }
}

fn serve() -> io::Result<()> {
    let usage = || io::Error::other("usage: fake_model FILE.jsonl, one turn a line");
    let file = std::env::args().nth(1).ok_or_else(usage)?;
    let text = std::fs::read_to_string(&file)?;
    let turns = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| turn(&serde_json::from_str(line)?))
        .collect::<io::Result<Vec<Turn>>>()?;
    let server = ModelServer::start(Behaviour::Turns(turns));
    writeln!(io::stdout(), "{}", server.base_url())?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

fn turn(value: &Value) -> io::Result<Turn> {
    if let Some(text) = value["text"].as_str() {
        return Ok(Turn::text(text));
    }
    let calls = value["tool_calls"]
        .as_array()
        .ok_or_else(|| io::Error::other(format!("neither `text` nor `tool_calls` in {value}")))?;
    let calls = calls
        .iter()
        .map(|call| {
            (
                call["name"].as_str().unwrap_or_default().to_owned(),
                call["arguments"].clone(),
            )
        })
        .collect();
    Ok(Turn::Calls(calls))
}
