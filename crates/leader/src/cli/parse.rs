//! From arguments to a command, or to the text and exit code that stand in for it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches};
use protocol::exit;

use crate::cli::args::Cli;
use crate::cli::later::{LATER_COMMANDS, LATER_FLAGS, not_available};

/// What came of the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseOutcome {
    /// A command to carry out.
    Run(Box<Cli>),
    /// Help or version, for stdout; the command has succeeded with that.
    Print(String),
    /// Bad usage, for stderr; exit code 2.
    Refuse(String),
}

/// Reads the arguments, the program's own name first.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> ParseOutcome {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => {
            return ParseOutcome::Refuse(match later_command(&error) {
                Some(name) => not_available(&format!("leader {name}")),
                None => out_of_range(&error).unwrap_or_else(|| error.render().to_string()),
            });
        }
        Err(error) => return ParseOutcome::Print(error.render().to_string()),
    };
    if let Some(what) = later_flag(&matches) {
        return ParseOutcome::Refuse(not_available(&what));
    }
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => ParseOutcome::Run(Box::new(cli)),
        Err(error) => ParseOutcome::Refuse(error.render().to_string()),
    }
}

/// The whole command line, as help and tests see it.
pub fn command() -> clap::Command {
    let mut command = Cli::command()
        .after_help(EXAMPLES)
        .after_long_help(format!("{}\n{EXAMPLES}", exit_codes()))
        .mut_subcommand("run", |run| run.after_long_help(run_footer()))
        .mut_subcommand("serve", |serve| serve.after_long_help(SERVE_FOOTER))
        .mut_subcommand("wait", |wait| wait.after_long_help(wait_footer()))
        .mut_subcommand("doctor", |doctor| doctor.after_long_help(doctor_footer()));
    for (of, flag) in LATER_FLAGS {
        command = command.mut_subcommand(of, |sub| {
            sub.arg(Arg::new(*flag).long(*flag).num_args(0..).hide(true))
        });
    }
    command
}

/// The command of a later version that was taken for a misspelt one. They are not among the known
/// commands, or a misspelt one would be answered with them.
fn later_command(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if LATER_COMMANDS.contains(&name.as_str()) => Some(name),
        Some(_) | None => None,
    }
}

/// A value that its option does not take, told with the option's own words on its range and its
/// example instead of the bounds of the number's type.
fn out_of_range(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text_of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    let (option, value) = (
        text_of(ContextKind::InvalidArg)?,
        text_of(ContextKind::InvalidValue)?,
    );
    // Built, it knows the names of its values, which the error shows.
    let mut command = command();
    command.build();
    let help = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .find(|argument| argument.to_string() == option)?
        .get_long_help()?
        .to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = help.split_once("Range: ")?;
    let (range, example) = rest.split_once(" Example: ").unwrap_or((rest, ""));
    let range = range.trim_end_matches('.');
    let mut text = format!("error: `{value}` is no value for {option}: it takes {range}\n");
    if !example.is_empty() {
        text.push_str(&format!("hint: for example {example}\n"));
    }
    Some(text)
}

/// The flag of a later version that was used, if one was.
fn later_flag(matches: &ArgMatches) -> Option<String> {
    let (name, inner) = matches.subcommand()?;
    LATER_FLAGS
        .iter()
        .filter(|(of, _)| *of == name)
        .find(|(_, flag)| inner.contains_id(flag))
        .map(|(_, flag)| format!("leader {name} --{flag}"))
}

fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in exit::LEADER_TABLE {
        text.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    text
}

fn run_footer() -> String {
    format!("{}\n{RUN_EXAMPLES}", exit_codes())
}

fn wait_footer() -> String {
    format!(
        "Exit codes: those of `leader run` for the ends of the agents; {} when the wait was over\n\
         before they were.",
        exit::DEADLINE
    )
}

fn doctor_footer() -> String {
    format!(
        "Exit codes:\n  {:>3}  agents can run; with --prove, all was held\n  \
         {:>3}  with --prove, something was not held\n  \
         {:>3}  something keeps agents from running\n  \
         {:>3}  less confinement than `confinement.require` asks for",
        exit::SUCCESS,
        exit::FAILURE,
        exit::LEADER_ENVIRONMENT,
        exit::CONFINEMENT_REFUSED
    )
}

const EXAMPLES: &str = "\
Examples:
  leader demo
  leader run 'Write an overview of this repository to overview.md'
  leader ps

`leader COMMAND --help` says more.";

const RUN_EXAMPLES: &str = "\
Examples:
  leader run 'Write an overview of this repository to overview.md'
  leader run --task-file task.md --deliverables-dir docs --timeout-seconds 300
  git diff | leader run --json -
  leader run --batch items.jsonl --manifest manifest.json

The first Ctrl-C stops the agent in order and shows what it left; the second kills it.";

const SERVE_FOOTER: &str = "\
The socket speaks JSON-RPC 2.0, one object a line: the leader tools by name, and ps, logs, wait,
subscribe, config, shutdown. It lies in .muster/runs/CONVERSATION/leader.sock of the workspace.
SIGTERM, SIGINT, SIGHUP or the method `shutdown` end the conversation and all its agents.

Example:
  leader serve --json
  printf '{\"id\":1,\"method\":\"ps\"}\\n' | nc -NU .muster/runs/conv_…/leader.sock";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Command, LogsArgs, StatusArgs, WaitArgs};
    use crate::cli::run_args::RunArgs;

    fn parsed(line: &[&str]) -> ParseOutcome {
        parse(
            std::iter::once("leader")
                .chain(line.iter().copied())
                .map(OsString::from),
        )
    }

    fn as_command(line: &[&str]) -> Command {
        match parsed(line) {
            ParseOutcome::Run(cli) => cli.command,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn refusal(line: &[&str]) -> String {
        match parsed(line) {
            ParseOutcome::Refuse(text) => text,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn every_option_of_run_lands_in_its_place() {
        let line = [
            "run",
            "do it",
            "--agent-id",
            "3",
            "--summary",
            "s",
            "--deliverables-dir",
            "d",
            "--reuse-deliverables-dir",
            "--write-path",
            "a",
            "--write-path",
            "b",
            "--timeout-seconds",
            "3600",
            "--max-turns",
            "1",
            "--model",
            "k",
            "--lang",
            "zh",
            "--write",
            "scope",
            "--network",
            "none",
            "--json",
            "--worker-bin",
            "w",
        ];
        let expected = RunArgs {
            task: Some("do it".into()),
            task_file: None,
            agent_id: Some(3),
            summary: Some("s".into()),
            deliverables_dir: Some("d".into()),
            reuse_deliverables_dir: true,
            write_paths: vec!["a".into(), "b".into()],
            timeout_seconds: Some(3600),
            max_turns: Some(1),
            model: Some("k".into()),
            lang: Some("zh".into()),
            write: Some("scope".into()),
            network: Some("none".into()),
            json: true,
            stream_json: false,
            worker_bin: Some("w".into()),
            ..RunArgs::default()
        };
        assert_eq!(as_command(&line), Command::Run(Box::new(expected)));
        assert_eq!(
            as_command(&["run", "-"]),
            Command::Run(Box::new(RunArgs {
                task: Some("-".into()),
                ..RunArgs::default()
            }))
        );
    }

    #[test]
    fn the_looking_commands_take_an_agent() {
        assert_eq!(
            as_command(&["logs", "conv_1/2", "-f"]),
            Command::Logs(LogsArgs {
                agent: "conv_1/2".into(),
                follow: true,
                json: false,
            })
        );
        assert_eq!(
            as_command(&["status", "1", "--json"]),
            Command::Status(StatusArgs {
                agent: "1".into(),
                json: true,
            })
        );
        assert_eq!(
            as_command(&["wait", "1", "2", "--any"]),
            Command::Wait(WaitArgs {
                agents: vec!["1".into(), "2".into()],
                any: true,
                timeout_seconds: None,
                json: false,
            })
        );
    }

    #[test]
    fn numbers_out_of_range_are_refused_and_the_option_is_named() {
        for (flag, value) in [
            ("--agent-id", "0"),
            ("--agent-id", "100"),
            ("--agent-id", "-1"),
            ("--agent-id", "1.5"),
            ("--timeout-seconds", "0"),
            ("--max-turns", "0"),
            ("--max-turns", "many"),
            ("--lang", "fr"),
            ("--write", "everything"),
            ("--network", "some"),
        ] {
            let text = refusal(&["run", "t", &format!("{flag}={value}")]);
            assert!(text.contains(flag), "{flag} {value}: {text}");
            assert!(text.contains(value), "{flag} {value}: {text}");
        }
    }

    #[test]
    fn a_range_is_told_in_words_and_not_as_that_of_a_number_type() {
        assert_eq!(
            refusal(&["resume", "1", "--timeout-seconds", "0"]),
            "error: `0` is no value for --timeout-seconds <SECONDS>: it takes 1 to the configured \
             limits.timeout_seconds_max\nhint: for example --timeout-seconds 120\n"
        );
        for value in ["0", "100", "many"] {
            let text = refusal(&["run", "t", "--agent-id", value]);
            assert!(text.contains("1 to 99"), "{text}");
            assert!(!text.contains(".."), "{text}");
        }
    }

    #[test]
    fn what_a_later_version_has_is_said_to_be_missing_not_misspelt() {
        for name in LATER_COMMANDS {
            assert_eq!(
                refusal(&[name, "--x", "y"]),
                not_available(&format!("leader {name}"))
            );
        }
        for (of, flag) in LATER_FLAGS {
            let expected = not_available(&format!("leader {of} --{flag}"));
            let flag = format!("--{flag}");
            assert_eq!(refusal(&[of, &flag]), expected);
            assert_eq!(refusal(&[of, &flag, "value"]), expected);
        }
    }

    #[test]
    fn a_misspelt_command_is_answered_with_the_near_one() {
        let text = refusal(&["stauts"]);
        assert!(text.contains("'status'"), "{text}");
        assert!(!text.contains("'tasks'"), "{text}");
        assert!(refusal(&["run", "t", "--timeout"]).contains("--timeout-seconds"));
        assert!(refusal(&["run", "t", "--task-file", "f"]).contains("--task-file"));
        assert!(refusal(&["run", "t", "--json", "--stream-json"]).contains("--stream-json"));
        assert!(refusal(&["-v", "-q", "ps"]).contains("--quiet"));
    }

    #[test]
    fn first_help_lines_are_short() {
        let command = command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(
                (1..80).contains(&about.chars().count()),
                "{}",
                sub.get_name()
            );
        }
    }
}
