//! What the command line holds, as types. Help texts are written here and pinned by tests.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cli::run_args::RunArgs;
use crate::cli::upkeep::{ConfigArgs, DemoArgs, DoctorArgs, TrustArgs};

/// Run LLM sub-agents as supervised processes, and see that nothing outlives them.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "leader",
    bin_name = "leader",
    version,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalArgs {
    /// Run as if started in DIR; it is the workspace
    ///
    /// Every other path on the command line is then relative to DIR. Default: the present
    /// directory. Example: -C ~/src/project
    #[arg(verbatim_doc_comment, short = 'C', value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,

    /// Log more to stderr: -v decisions, -vv details, -vvv everything
    ///
    /// Default: warnings only. RUST_LOG, when set, decides instead. Example: -vv
    #[arg(verbatim_doc_comment, short, long, action = clap::ArgAction::Count, global = true, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Show no progress and log errors only
    ///
    /// Results and errors are still printed. Default: off.
    #[arg(verbatim_doc_comment, short, long, global = true)]
    pub quiet: bool,
}

/// The commands of this version.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run one sub-agent on a task and print what it delivered
    Run(Box<RunArgs>),
    /// Open a conversation for other programs on a control socket
    Serve(ServeArgs),
    /// List the agents of all live and recent runs of the workspace
    Ps(PsArgs),
    /// Show one agent: where it stands, what it does, what it used
    Status(StatusArgs),
    /// Print the steps of one agent
    Logs(LogsArgs),
    /// End one agent; what it delivered so far stays
    Kill(KillArgs),
    /// Let an agent go on whose leader died or whose run has ended
    Resume(Box<ResumeArgs>),
    /// Wait until agents have ended and answer with their exit code
    Wait(WaitArgs),
    /// Show the whole story offline with a scripted model
    Demo(DemoArgs),
    /// Print the resolved configuration with the source of each value
    Config(ConfigArgs),
    /// Tell whether agents can run here, and how they are held
    Doctor(DoctorArgs),
    /// Show what the workspace's own file wants, and accept it
    Trust(TrustArgs),
}

/// The text of `N` wherever an agent is named.
const AGENT_HELP: &str = "Agent: number, CONVERSATION/number, name or task_id

A live agent goes before an ended one, and a newer run before an older. A conversation
may be shortened to any part of its id. A word that still fits several agents lists them.
Examples: 1, conv_0190a6e0/1, 'Sub-agent 1', sub_0190a6e0-…";

/// The text of `N` where whole runs are waited for.
const WAIT_HELP: &str = "Agents: number, CONVERSATION/number, name or task_id

The whole id of a conversation stands for all agents that its run has and will have; the
wait is then over when its leader has ended. Default: all agents that are live now.
Examples: 1, conv_0190a6e0/1, 'Sub-agent 1', conv_0190a6e0-0000-7000-8000-000000000001";

/// `leader serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ServeArgs {
    /// Print the conversation and the socket as a JSON object
    ///
    /// Default: off, one line for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,

    /// Model for agents whose creator names none: a key of `[models]`, URL#NAME or script:FILE
    ///
    /// Default: as for `leader run`. Example: --model deepseek
    #[arg(verbatim_doc_comment, long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Language in which agents are spoken to: auto, zh or en [default: auto]
    ///
    /// auto takes Chinese when the summary or the task holds a Chinese character. Example:
    /// --lang en
    #[arg(verbatim_doc_comment, long, value_name = "LANG", value_parser = ["auto", "zh", "en"],
        hide_possible_values = true)]
    pub lang: Option<String>,

    /// Executable of the worker [default: `worker` beside `leader`]
    ///
    /// MUSTER_WORKER says the same. Example: --worker-bin target/debug/worker
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub worker_bin: Option<PathBuf>,

    /// End as after SIGTERM once stdin is closed. For a leader that must not outlive whoever
    /// started it.
    #[arg(long, hide = true)]
    pub while_stdin: bool,
}

/// `leader ps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PsArgs {
    /// Print a JSON object
    ///
    /// Default: off, a table.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,

    /// Show ended runs of any age
    ///
    /// Default: live runs and the 10 that ended last.
    #[arg(verbatim_doc_comment, long)]
    pub all: bool,
}

/// `leader status N`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StatusArgs {
    #[arg(value_name = "N", help = AGENT_HELP.split("\n\n").next().unwrap_or_default(), long_help = AGENT_HELP)]
    /// Whom to show.
    pub agent: String,

    /// Print a JSON object
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}

/// `leader logs N`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct LogsArgs {
    #[arg(value_name = "N", help = AGENT_HELP.split("\n\n").next().unwrap_or_default(), long_help = AGENT_HELP)]
    /// Whose steps.
    pub agent: String,

    /// Go on with what it does until it ends
    ///
    /// Default: off, print what there is and leave.
    #[arg(verbatim_doc_comment, short, long)]
    pub follow: bool,

    /// Print each step as a JSON object, one a line
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}

/// `leader kill N`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct KillArgs {
    #[arg(value_name = "N", help = AGENT_HELP.split("\n\n").next().unwrap_or_default(), long_help = AGENT_HELP)]
    /// Whom to end.
    pub agent: String,

    /// Print a JSON object
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}

/// `leader resume N`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ResumeArgs {
    #[arg(value_name = "N", help = AGENT_HELP.split("\n\n").next().unwrap_or_default(), long_help = AGENT_HELP)]
    /// Whom to let go on.
    pub agent: String,

    /// New deadline in seconds [default: as long as the old one]
    ///
    /// Counted from the new start; time of earlier runs does not count. Range: 1 to the
    /// configured limits.timeout_seconds_max. Example: --timeout-seconds 120
    #[arg(verbatim_doc_comment, long, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_seconds: Option<u32>,

    /// Model: a key of `[models]`, URL#NAME, PROVIDER/NAME or script:FILE
    ///
    /// Default: the configured model of the key that it had. Example: --model deepseek
    #[arg(verbatim_doc_comment, long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Print the result as one JSON object
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long, conflicts_with = "stream_json")]
    pub json: bool,

    /// Print events as they happen, one JSON object a line, the result last
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub stream_json: bool,

    /// Executable of the worker [default: `worker` beside `leader`]
    ///
    /// MUSTER_WORKER says the same. Example: --worker-bin target/debug/worker
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub worker_bin: Option<PathBuf>,
}

/// `leader wait [N…]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct WaitArgs {
    #[arg(value_name = "N", help = "Agents, or a whole run by its conversation [default: all live agents]", long_help = WAIT_HELP)]
    /// Whom to wait for; all live ones when empty.
    pub agents: Vec<String>,

    /// Return at the first end instead of the last
    ///
    /// Default: off, wait for all.
    #[arg(verbatim_doc_comment, long)]
    pub any: bool,

    /// Give up after so many seconds [default: never]
    ///
    /// Range: 1 and more. Giving up ends nothing and answers 124. Example: --timeout-seconds 60
    #[arg(verbatim_doc_comment, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_seconds: Option<u32>,

    /// Print a JSON object
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}
