//! The command line of the worker.

use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use protocol::exit::WORKER_TABLE;
use protocol::ids::AgentId;
use protocol::limits::{MAX_TURNS_DEFAULT, TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_MAX};
use protocol::status::ThinkingMode;

use crate::exit::StartError;
use crate::io::place::Reuse;
use crate::run::prepare::Wanted;

/// Run one agent on one task, alone or under a leader
///
/// The agent works in the workspace with the model and the tools that it is given,
/// until it reports, is stopped or runs out of time. Its conversation, and everything
/// that it was started with, lie in `.subagent/` of its deliverables dir. Progress goes
/// to stderr.
#[derive(Debug, Parser)]
#[command(name = "worker", version, verbatim_doc_comment)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Cli {
    /// Take the task from this file
    ///
    /// UTF-8 text, at most 200 000 bytes.
    #[arg(long, value_name = "FILE", group = "what")]
    pub task_file: Option<PathBuf>,
    /// Run the job in this file, as a leader wrote it
    ///
    /// The task and the system prompt are read from the files beside it.
    #[arg(long, value_name = "FILE", group = "what", conflicts_with = "Alone")]
    pub job: Option<PathBuf>,
    /// Speak to a leader over stdin and stdout
    ///
    /// Without it a job runs as in a terminal, with the model that it names.
    #[arg(
        long,
        value_name = "KIND",
        requires = "job",
        conflicts_with = "task_file"
    )]
    pub channel: Option<Channel>,
    /// Go on where the job's earlier run without a leader stopped
    ///
    /// The conversation goes on from its journal; turns and time begin anew.
    #[arg(
        long,
        requires = "job",
        conflicts_with_all = ["task_file", "channel", "dry_run"]
    )]
    pub resume: bool,
    /// Ask the model that one line on stdin describes for a word, and say whether it answered
    #[arg(long, hide = true, group = "what", conflicts_with = "Alone")]
    pub check_model: bool,
    /// What the agent is to do and how.
    #[command(flatten)]
    pub alone: Alone,
    /// Choose what to print on stdout
    ///
    /// Progress for people goes to stderr in any case.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output_format: OutputFormat,
    /// Print the resolved job, prompts and tools as JSON, and run nothing
    #[arg(long, conflicts_with = "channel")]
    pub dry_run: bool,
    /// Log more to stderr; twice for everything
    ///
    /// RUST_LOG=error|warn|info|debug|trace does the same.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print no progress and log errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// What a job has in it, for a worker that is started by a person.
#[derive(Debug, Args)]
pub struct Alone {
    /// Use this system prompt in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,
    /// Work in this directory
    ///
    /// Default: where the worker is started.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Deliver into this directory, relative to the workspace
    ///
    /// It must be empty or not exist.
    /// Default: sub_agent_results/agent_N, with the agent's number.
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    pub deliverables_dir: Option<PathBuf>,
    /// Use the deliverables dir although it holds something
    #[arg(long)]
    pub reuse_deliverables_dir: bool,
    /// Give the agent this number, 1 or more
    ///
    /// Default: the first whose deliverables dir is free.
    #[arg(long, value_name = "N")]
    pub agent_id: Option<AgentId>,
    /// Say in a few words what the agent is to do
    ///
    /// 10 to 30 characters are wanted, at most 200. Default: the beginning of the task.
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    /// Take the agent's role from a definition (not available in this version)
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Choose the model
    ///
    /// A key of `[models]` in muster.toml, URL#NAME for a server that speaks chat
    /// completions, PROVIDER/NAME such as anthropic/NAME or ollama/NAME, or script:FILE for
    /// a file of replies. Default: `default_model`, the
    /// only configured one, or one that the environment tells, such as OPENAI_API_KEY.
    #[arg(long, value_name = "KEY|URL#NAME", verbatim_doc_comment)]
    pub model: Option<String>,
    /// Replay the model's answers of this conversations.json; tools run anew
    ///
    /// No model is asked: the recorded answers are given one after the other, to see
    /// what the tools make of them now. When they are used up the run ends.
    #[arg(
        long,
        value_name = "FILE",
        verbatim_doc_comment,
        conflicts_with = "model"
    )]
    pub replay: Option<PathBuf>,
    /// Choose how hard the model is to think
    ///
    /// Default: what is configured for the model.
    #[arg(long, value_name = "MODE")]
    pub thinking_mode: Option<Thinking>,
    /// The deadline; see its help.
    #[arg(long, value_name = "SECONDS", help = timeout_help())]
    pub timeout_seconds: Option<u32>,
    /// The bound of turns; see its help.
    #[arg(long, value_name = "N", help = turns_help(),
          value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// Speak to the agent in this language: auto, zh or en
    ///
    /// Default: what is configured, else auto: the language of the task.
    #[arg(long, value_name = "LANG")]
    pub lang: Option<String>,
}

fn timeout_help() -> String {
    format!(
        "Stop after so many seconds, 1 to {TIMEOUT_SECONDS_MAX} or as configured \
         [default: {TIMEOUT_SECONDS_DEFAULT}]"
    )
}

fn turns_help() -> String {
    format!("Stop after so many answers of the model [default: {MAX_TURNS_DEFAULT}]")
}

/// How a worker hears from its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Channel {
    /// Over stdin and stdout.
    Stdio,
}

/// What goes to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Nothing.
    Text,
    /// The result.
    Json,
    /// Everything that happens, one object a line.
    StreamJson,
}

/// How hard the model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Thinking {
    /// Answer at once.
    Fast,
    /// Think first.
    Thinking,
}

/// What the command line comes to.
#[derive(Debug)]
pub enum Mode {
    /// A task of a person.
    Task(Wanted),
    /// A job, in a terminal.
    Job(PathBuf),
    /// A job, under a leader.
    Leader(PathBuf),
    /// No agent: only whether a model answers.
    CheckModel,
}

impl Cli {
    /// Reads the arguments, the program's name first.
    ///
    /// # Errors
    /// When they do not fit, or help is asked for; the error prints itself.
    pub fn read(
        arguments: impl IntoIterator<Item = std::ffi::OsString>,
    ) -> Result<Self, clap::Error> {
        let matches = command().try_get_matches_from(arguments)?;
        Cli::from_arg_matches(&matches)
    }

    /// What is to be done.
    ///
    /// # Errors
    /// When it is asked for what this version can't do.
    pub fn mode(&self) -> Result<Mode, StartError> {
        let later = |flag: &str| {
            StartError::new(format!("{flag} is not available in this version"))
                .hint("leave it out; see --help for what there is")
        };
        if self.alone.agent.is_some() {
            return Err(later("--agent"));
        }
        if self.check_model {
            return Ok(Mode::CheckModel);
        }
        match (&self.task_file, &self.job, self.channel) {
            (_, Some(job), None) => Ok(Mode::Job(job.clone())),
            (_, Some(job), Some(Channel::Stdio)) => Ok(Mode::Leader(job.clone())),
            (Some(task_file), None, _) => Ok(Mode::Task(self.alone.wanted(task_file.clone())?)),
            (None, None, _) => Err(StartError::new("neither a task nor a job was given")
                .hint("pass --task-file FILE or --job FILE")),
        }
    }
}

impl Alone {
    fn wanted(&self, task_file: PathBuf) -> Result<Wanted, StartError> {
        let replayed = match &self.replay {
            None => None,
            Some(file) => Some(format!(
                "script:{}",
                file.to_str()
                    .ok_or_else(|| StartError::new("the path of --replay is not UTF-8"))?
            )),
        };
        Ok(Wanted {
            task_file,
            system_prompt_file: self.system_prompt_file.clone(),
            workspace: self.workspace.clone().unwrap_or_else(|| PathBuf::from(".")),
            deliverables_dir: self.deliverables_dir.clone(),
            reuse: if self.reuse_deliverables_dir {
                Reuse::Allow
            } else {
                Reuse::Refuse
            },
            agent_id: self.agent_id,
            summary: self.summary.clone(),
            model: self.model.clone().or(replayed),
            thinking_mode: self.thinking_mode.map(|mode| match mode {
                Thinking::Fast => ThinkingMode::Fast,
                Thinking::Thinking => ThinkingMode::Thinking,
            }),
            timeout_seconds: self.timeout_seconds,
            max_turns: self.max_turns,
            lang: self.lang.clone(),
        })
    }
}

/// The command with its exit codes, which are written down once and elsewhere.
fn command() -> clap::Command {
    let mut after = String::from("Exit codes:\n");
    for (code, meaning) in WORKER_TABLE {
        after.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    after.push_str(
        "\nExample:\n  worker --task-file task.md --deliverables-dir docs/api \
         --model http://127.0.0.1:8080/v1#qwen",
    );
    Cli::command().after_help(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::read(line.split(' ').map(Into::into))
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for line in [
            "worker",
            "worker --task-file a --job b",
            "worker --channel stdio --task-file a",
            "worker --job a --summary x",
            "worker --job a --channel stdio --dry-run",
            "worker --task-file a --resume",
            "worker --job a --channel stdio --resume",
            "worker --task-file a --agent-id 0",
            "worker --task-file a --max-turns 0",
            "worker --task-file a --timeout-seconds x",
            "worker --task-file a -v -q",
            "worker --task-file a --task-fil b",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_mode_is_what_was_asked_for() {
        let mode = |line: &str| read(line).unwrap().mode();
        assert!(matches!(mode("worker --task-file a"), Ok(Mode::Task(_))));
        assert!(matches!(mode("worker --job a"), Ok(Mode::Job(_))));
        assert!(matches!(
            mode("worker --job a --channel stdio"),
            Ok(Mode::Leader(_))
        ));
        assert!(read("worker --job a --resume").unwrap().resume);
        let error = mode("worker --task-file a --agent x").unwrap_err();
        assert!(error.message.contains("not available in this version"));
    }

    #[test]
    fn the_first_line_of_the_help_is_short_and_every_exit_code_is_in_it() {
        let help = command().render_long_help().to_string();
        let first = help.lines().next().unwrap();
        assert_eq!(first, "Run one agent on one task, alone or under a leader");
        for (code, meaning) in WORKER_TABLE {
            assert!(help.contains(&format!("{code:>3}  {meaning}")), "{help}");
        }
        for help in [command().render_help(), command().render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 125, "{line}");
            }
        }
        command().debug_assert();
    }
}
