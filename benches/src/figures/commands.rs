//! A shell that does nothing, through the keeper of a jail and plainly inside the same jail.

use std::process::Stdio;

use serde::Deserialize;

use crate::error::BenchError;
use crate::ground::Ground;
use crate::row::{Goal, Row, Unit};
use crate::worker::Sample;

const ROUNDS: usize = 200;

#[derive(Deserialize)]
struct Times {
    kept_ms: Vec<f64>,
    plain_ms: Vec<f64>,
}

pub(super) fn take(ground: &Ground) -> Result<Vec<Row>, BenchError> {
    let sample = Sample::take(ground)?;
    sample.lay_out(ground)?;
    let mut child = sample
        .jail(ground, &ground.programs.path("floor_commands"))?
        .arg(ground.extent.rounds(ROUNDS).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(BenchError::io("start a jail"))?;
    // The end of its input would be the end of the jail's tree.
    let input = child.stdin.take();
    let output = child
        .wait_with_output()
        .map_err(BenchError::io("wait for a jail"))?;
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout);
    let times: Option<Times> = said
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    let Some(times) = times else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError::Failed(format!(
            "no times came from inside the jail: {said}{complaint}"
        )));
    };
    Ok(vec![Row::paired(
        "`sh -c :` through the keeper",
        Unit::Milliseconds,
        &times.kept_ms,
        &times.plain_ms,
        Goal::Told,
    )])
}
