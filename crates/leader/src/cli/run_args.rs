//! The arguments of `leader run`.

use std::path::PathBuf;

use clap::Args;

/// `leader run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// The task; `-` reads it from stdin
    ///
    /// At most 200000 bytes of UTF-8. It reaches the worker in a file, never in an argument.
    /// Example: 'Write an overview of this repository to overview.md'
    #[arg(
        verbatim_doc_comment,
        value_name = "TASK",
        conflicts_with = "task_file"
    )]
    pub task: Option<String>,

    /// Read the task from FILE
    ///
    /// At most 200000 bytes of UTF-8. Example: --task-file task.md
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub task_file: Option<PathBuf>,

    /// Run the items of FILE, one JSON object a line; `-` reads stdin
    ///
    /// Fields: id, task or task_file, needs (ids), and the flags of this command by name, such as
    /// summary, deliverables_dir, timeout_seconds. All of it is checked before anything starts.
    /// As many run at once as limits.max_concurrent says (5), the rest waits. See docs/batch.md.
    /// Example: --batch items.jsonl
    #[arg(verbatim_doc_comment, long, value_name = "FILE", conflicts_with_all =
        ["task", "task_file", "agent_id", "summary", "deliverables_dir", "reuse_deliverables_dir", "write_paths"])]
    pub batch: Option<PathBuf>,

    /// Keep a record of each item of the batch in FILE, as JSON
    ///
    /// End, reason, files and their SHA-256; whole at every moment. Default: none. Example:
    /// --manifest out/manifest.json
    #[arg(verbatim_doc_comment, long, value_name = "FILE", requires = "batch")]
    pub manifest: Option<PathBuf>,

    /// Go on with the batch that --manifest tells of
    ///
    /// What was completed is not run again; what was cut off goes on in its own directory; what
    /// failed by itself keeps its end. Default: off, all items are new.
    #[arg(verbatim_doc_comment, long, requires_all = ["batch", "manifest"])]
    pub resume: bool,

    /// With --resume, let items that failed or timed out go on, too
    ///
    /// Default: off, they keep their end.
    #[arg(verbatim_doc_comment, long, requires = "resume")]
    pub retry_failed: bool,

    /// Stop the batch at the first bad end
    ///
    /// The others that run are stopped in order, the rest is not begun. Default: off.
    #[arg(verbatim_doc_comment, long, requires = "batch")]
    pub fail_fast: bool,

    /// Run every item that can be run, whatever becomes of the others (the default)
    ///
    /// Items that need a failed one are skipped, and told as such.
    #[arg(
        verbatim_doc_comment,
        long,
        requires = "batch",
        conflicts_with = "fail_fast"
    )]
    pub keep_going: bool,

    /// Number of the agent [default: the next free one]
    ///
    /// A number is free when its default deliverables dir is, too. Range: 1 to 99. Example:
    /// --agent-id 3
    #[arg(verbatim_doc_comment, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub agent_id: Option<u32>,

    /// What the agent is to do, in 10 to 30 characters [default: start of the task]
    ///
    /// At most 200 characters; shown in lists and notices. Example: --summary 'Write API docs'
    #[arg(verbatim_doc_comment, long, value_name = "TEXT")]
    pub summary: Option<String>,

    /// Where results go [default: sub_agent_results/agent_N]
    ///
    /// Relative to the workspace, inside it, and empty or not there yet. Example:
    /// --deliverables-dir docs/api
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub deliverables_dir: Option<String>,

    /// Use a deliverables dir that is not empty
    ///
    /// Default: off, and such a directory is refused.
    #[arg(verbatim_doc_comment, long)]
    pub reuse_deliverables_dir: bool,

    /// What else it may write, relative to the workspace; may be repeated
    ///
    /// Default: nothing else. Example: --write-path src --write-path Cargo.toml
    #[arg(verbatim_doc_comment, long = "write-path", value_name = "PATH")]
    pub write_paths: Vec<String>,

    /// Deadline in seconds [default: 600]
    ///
    /// Range: 1 to the configured limits.timeout_seconds_max, which is 3600 unless it is set.
    /// Example: --timeout-seconds 120
    #[arg(verbatim_doc_comment, long, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_seconds: Option<u32>,

    /// Most answers of the model [default: 50]
    ///
    /// Range: 1 and more. Example: --max-turns 20
    #[arg(verbatim_doc_comment, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,

    /// Model: a key of `[models]`, URL#NAME, PROVIDER/NAME or script:FILE
    ///
    /// Default: default_model of the configuration, else the only configured one, else what the
    /// environment names (OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL, …). Example:
    /// --model http://127.0.0.1:11434/v1#qwen3
    #[arg(verbatim_doc_comment, long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Language in which the agent is spoken to: auto, zh or en [default: auto]
    ///
    /// auto takes Chinese when the summary or the task holds a Chinese character. Example:
    /// --lang en
    #[arg(verbatim_doc_comment, long, value_name = "LANG", value_parser = ["auto", "zh", "en"],
        hide_possible_values = true)]
    pub lang: Option<String>,

    /// How far the agent may write: workspace or scope [default: workspace]
    ///
    /// workspace is all of it but for what is protected; scope is the
    /// deliverables dir and every --write-path, held by the kernel.
    /// confinement.write says the same. Example: --write scope
    #[arg(verbatim_doc_comment, long, value_name = "MODE", value_parser = ["workspace", "scope"],
        hide_possible_values = true)]
    pub write: Option<String>,

    /// What the agent may reach of the network: full, model or none [default: full]
    ///
    /// model leaves its commands a loopback of their own; none the worker
    /// too, which suits scripted models alone. confinement.network says the
    /// same. Example: --network model
    #[arg(verbatim_doc_comment, long, value_name = "REACH", value_parser = ["full", "model", "none"],
        hide_possible_values = true)]
    pub network: Option<String>,

    /// Go on in the background, and return once the work is accepted
    ///
    /// Prints the conversation and the agents. `leader wait CONVERSATION` waits for the end, with
    /// the exit codes of this command. Output goes to output.log in the run's folder.
    /// Default: off.
    #[arg(verbatim_doc_comment, long)]
    pub detach: bool,

    /// This is the process in the background.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,

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
