//! The command line of `jail`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::canary;
use crate::jail;
use crate::limits;
use crate::policy::JailPolicy;
use crate::probe;
use crate::program::ProgramCall;
use crate::report::Rung;
use crate::sys::best_effort;

const HELP: &str = "\
Start one program under OS limits, and end exactly as it ended.

Usage: jail --policy JSON -- PROGRAM [ARGS…]
       jail --probe [--highest RUNG] [CGROUP]

Options:
  --policy JSON  what to hold; every field has a default (`{}` is a policy)
  --probe        build the tree that this machine can hold, kill it, print what stands (JSON);
                 CGROUP is a delegated cgroup v2 directory to try; nothing above RUNG is tried
                 (group, subreaper, pidns, cgroup2)
  --help         print this
  --version      print the version

For example, the highest rung or nothing, and at most 64 processes:
  jail --policy '{\"require\":\"pidns\",\"process_cap\":64}' -- sh -c 'echo $$'

Descriptors 0 and 1 are the channel, which carries the jail's own lines too; 2 is the program's.
Exit code: the program's own, or death by the signal it died of;
  125 it never started · 126 it can't be executed · 127 it was not found
";

/// What the command line asks for.
#[derive(Debug)]
enum Request {
    Jail(Box<JailPolicy>, ProgramCall),
    Probe(Rung, Option<PathBuf>),
    Canary(i32),
    Help,
    Version,
}

/// Runs `jail` with `arguments`, its own name left out.
pub fn main(arguments: Vec<OsString>, out: &mut dyn Write, err: &mut dyn Write) -> ExitCode {
    match read(arguments) {
        Ok(Request::Jail(policy, call)) => jail::run(*policy, call).enact(),
        Ok(Request::Canary(fd)) => canary::run(fd),
        Ok(Request::Probe(highest, cgroup)) => match probe::measure(highest, cgroup) {
            Ok(text) => print(out, &text),
            Err(error) => complain(err, &error.to_string()),
        },
        Ok(Request::Help) => print(out, HELP),
        Ok(Request::Version) => print(out, concat!("jail ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(message) => complain(err, &message),
    }
}

fn print(out: &mut dyn Write, text: &str) -> ExitCode {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(limits::EXIT_NOT_STARTED),
    }
}

fn complain(err: &mut dyn Write, message: &str) -> ExitCode {
    // If even that can't be written, the exit code is all that is left to tell.
    best_effort(writeln!(err, "jail: {message}"));
    ExitCode::from(limits::EXIT_NOT_STARTED)
}

fn read(arguments: Vec<OsString>) -> Result<Request, String> {
    const HINT: &str = "hint: `jail --help` shows how it is called";
    let mut words = arguments.into_iter();
    let first = words
        .next()
        .ok_or_else(|| format!("nothing to start\n{HINT}"))?;
    match first.to_str() {
        Some("--help" | "-h") => Ok(Request::Help),
        Some("--version" | "-V") => Ok(Request::Version),
        Some("--probe") => probe_request(words),
        Some("--canary") => words
            .next()
            .and_then(|fd| fd.to_str()?.parse().ok())
            .map(Request::Canary)
            .ok_or_else(|| "--canary needs a descriptor".to_owned()),
        Some("--policy") => {
            let text = words
                .next()
                .ok_or_else(|| format!("--policy needs a value\n{HINT}"))?;
            let text = text.to_str().ok_or("the policy is not UTF-8")?;
            let policy = JailPolicy::parse(text).map_err(|error| describe(&error))?;
            if words.next().as_deref() != Some("--".as_ref()) {
                return Err(format!(
                    "`--` must stand between the policy and the program\n{HINT}"
                ));
            }
            let program = words
                .next()
                .ok_or_else(|| format!("no program after `--`\n{HINT}"))?;
            Ok(Request::Jail(
                Box::new(policy),
                ProgramCall {
                    program,
                    args: words.collect(),
                    env: None,
                },
            ))
        }
        _ => Err(format!("unknown argument `{}`\n{HINT}", first.display())),
    }
}

fn probe_request(mut words: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let first = words.next();
    if first.as_deref() != Some("--highest".as_ref()) {
        return Ok(Request::Probe(Rung::Cgroup2, first.map(PathBuf::from)));
    }
    let rung = words.next();
    let highest = rung
        .as_deref()
        .and_then(|name| Rung::of_name(name.to_str()?))
        .ok_or_else(|| "--highest needs one of group, subreaper, pidns, cgroup2".to_owned())?;
    Ok(Request::Probe(highest, words.next().map(PathBuf::from)))
}

/// An error and its causes in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let words = words.iter().map(OsString::from).collect();
        // An exit code can't be compared; the integration tests see it.
        let _: ExitCode = main(words, &mut out, &mut err);
        (
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
    }

    #[test]
    fn bad_usage_is_told_with_the_way_out() {
        let hint = "hint: `jail --help` shows how it is called";
        let cases: [(&[&str], String); 7] = [
            (&[], format!("jail: nothing to start\n{hint}\n")),
            (&["x"], format!("jail: unknown argument `x`\n{hint}\n")),
            (
                &["--probe", "--highest", "none"],
                "jail: --highest needs one of group, subreaper, pidns, cgroup2\n".to_owned(),
            ),
            (
                &["--policy"],
                format!("jail: --policy needs a value\n{hint}\n"),
            ),
            (
                &["--policy", "{}", "sh"],
                format!("jail: `--` must stand between the policy and the program\n{hint}\n"),
            ),
            (
                &["--policy", "{}", "--"],
                format!("jail: no program after `--`\n{hint}\n"),
            ),
            (
                &["--policy", "{\"a\":1}", "--", "sh"],
                "jail: the policy can't be read: unknown field `a`, expected one of".to_owned(),
            ),
        ];
        for (words, message) in cases {
            let (out, err) = run(words);
            assert_eq!(out, "");
            assert!(err.starts_with(&message), "{err}");
        }
    }

    #[test]
    fn help_begins_with_a_short_imperative_line() {
        let (out, _) = run(&["--help"]);
        assert_eq!(out, HELP);
        let first = out.lines().next().unwrap();
        assert!(first.len() < 80 && first.starts_with("Start "), "{first}");
    }
}
