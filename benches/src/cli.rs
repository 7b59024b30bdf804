//! The command line: which figures, how thoroughly, and where the table goes.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use crate::error::BenchError;
use crate::figures::{ALL, Figure};
use crate::ground::{Extent, Ground};
use crate::programs::Programs;
use crate::row::{Row, Verdict, table};

/// The exit code when a goal was missed.
const MISSED: u8 = 1;
/// The exit code when a figure could not be taken.
const FAILED: u8 = 2;
/// The version of the JSON's shape.
const FORMAT: u32 = 1;

/// Measure what muster costs, beside bare floors in the same run.
#[derive(Debug, Parser)]
#[command(name = "benches", after_help = after_help())]
struct Cli {
    /// Figures to take, or `all`.
    #[arg(required = true, value_name = "FIGURE")]
    figures: Vec<String>,
    /// Take a few rounds only, and judge nothing that depends on the machine.
    #[arg(long)]
    quick: bool,
    /// Write the table as JSON as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the executables are; else beside this one, and built first when started by cargo.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Where the workspace is made; its disk is measured too [default: the present folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn after_help() -> String {
    let figures: String = ALL
        .iter()
        .map(|figure| format!("  {:<14} {}\n", figure.name, figure.about))
        .collect();
    format!(
        "Figures:\n{figures}\nExit codes: 0 all goals reached, {MISSED} a goal missed, {FAILED} a \
         figure could not be taken or wrong usage.\nExample: benches all --json figures.json"
    )
}

/// Everything that is written as JSON.
#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    quick: bool,
    /// The load averages before the first figure and after the last one.
    load: [String; 2],
    rows: Vec<ReportRow<'a>>,
}

#[derive(Serialize)]
struct ReportRow<'a> {
    figure: &'a str,
    #[serde(flatten)]
    row: &'a Row,
    verdict: Verdict,
}

/// Runs with these arguments, the program's name first.
pub fn main(
    arguments: impl Iterator<Item = OsString>,
    out: &mut dyn Write,
    log: &mut dyn Write,
) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and a mistake to stderr; a closed pipe is nobody's fault.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { FAILED } else { 0 });
        }
    };
    let code = measure(&cli, out, log).unwrap_or_else(|error| {
        complain(log, &error);
        FAILED
    });
    ExitCode::from(code)
}

/// Says what went wrong, and why; when stderr is closed there is nobody left to tell.
fn complain(log: &mut dyn Write, error: &BenchError) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(because) = cause {
        text.push_str(&format!(": {because}"));
        cause = because.source();
    }
    drop(writeln!(log, "benches: {text}"));
}

/// Takes the figures and gives the exit code. One that can't be taken keeps no other from the table.
fn measure(cli: &Cli, out: &mut dyn Write, log: &mut dyn Write) -> Result<u8, BenchError> {
    let chosen = choose(&cli.figures, nix::unistd::geteuid().is_root())?;
    let programs = Programs::find(cli.bin_dir.clone(), log)?;
    let extent = if cli.quick {
        Extent::Quick
    } else {
        Extent::Full
    };
    let folder = match &cli.dir {
        Some(folder) => folder.clone(),
        None => std::env::current_dir().map_err(BenchError::io("find the present folder"))?,
    };
    let ground = Ground::new(&folder, programs, extent)?;
    let before = load();
    let mut taken: Vec<(&str, Row)> = Vec::new();
    let mut code = 0;
    for figure in chosen {
        let begun = std::time::Instant::now();
        match (figure.take)(&ground) {
            Ok(rows) => taken.extend(rows.into_iter().map(|row| (figure.name, row))),
            Err(error) => {
                drop(writeln!(log, "{} could not be taken:", figure.name));
                complain(log, &error);
                code = FAILED;
            }
        }
        // Progress only.
        let seconds = begun.elapsed().as_secs_f64();
        drop(writeln!(log, "{}: {seconds:.1} s", figure.name));
    }
    let load = [before, load()];
    let rows: Vec<Row> = taken.iter().map(|(_, row)| row.clone()).collect();
    let text = format!(
        "{}load before: {}, after: {}\n",
        table(&rows, cli.quick),
        load[0],
        load[1]
    );
    out.write_all(text.as_bytes())
        .map_err(BenchError::io("print the table"))?;
    if let Some(path) = &cli.json {
        let report = Report {
            format: FORMAT,
            quick: cli.quick,
            load,
            rows: taken
                .iter()
                .map(|(figure, row)| ReportRow {
                    figure,
                    row,
                    verdict: row.verdict(cli.quick),
                })
                .collect(),
        };
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| BenchError::Failed(format!("no JSON of the table: {error}")))?;
        fs::write(path, text + "\n")
            .map_err(BenchError::io(format!("write {}", path.display())))?;
    }
    let missed = rows
        .iter()
        .any(|row| row.verdict(cli.quick) == Verdict::Missed);
    Ok(if code == 0 && missed { MISSED } else { code })
}

/// The figures of these names; `all` are those that this user can take.
fn choose(names: &[String], is_root: bool) -> Result<Vec<&'static Figure>, BenchError> {
    if names.iter().any(|name| name == "all") {
        return Ok(ALL
            .iter()
            .filter(|figure| is_root || !figure.needs_root)
            .collect());
    }
    names
        .iter()
        .map(|name| {
            ALL.iter()
                .find(|figure| figure.name == name)
                .ok_or_else(|| {
                    let known: Vec<&str> = ALL.iter().map(|figure| figure.name).collect();
                    BenchError::Failed(format!(
                        "there is no figure `{name}`; there are: all, {}",
                        known.join(", ")
                    ))
                })
        })
        .collect()
}

/// The load averages of one, five and fifteen minutes.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match choose(&words, true) {
            Ok(chosen) => Ok(chosen.iter().map(|figure| figure.name).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn figures_are_chosen_by_name_and_a_wrong_one_is_told_the_right_ones() {
        assert_eq!(names(&["run", "events"]).unwrap(), ["run", "events"]);
        assert_eq!(names(&["all"]).unwrap().len(), ALL.len());
        let ordinary = choose(&["all".to_owned()], false).unwrap();
        assert!(ordinary.iter().all(|figure| figure.name != "memory"));
        assert_eq!(ordinary.len() + 1, ALL.len());
        let error = names(&["runs"]).unwrap_err();
        assert!(
            error.starts_with("there is no figure `runs`; there are: all, first-request, run"),
            "{error}"
        );
    }

    #[test]
    fn the_help_names_every_figure() {
        let mut out = Vec::new();
        let help = Cli::try_parse_from(["benches", "--help"]).unwrap_err();
        out.write_all(help.to_string().as_bytes()).unwrap();
        let text = String::from_utf8(out).unwrap();
        for figure in ALL {
            assert!(text.contains(figure.name), "{text}");
        }
    }
}
