//! The arguments of the commands that show, check and look after an installation.

use std::path::PathBuf;

use clap::Args;

/// `leader demo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DemoArgs {
    /// Keep the demo's workspace and say where it is
    ///
    /// Default: off, everything is removed at the end.
    #[arg(verbatim_doc_comment, long)]
    pub keep: bool,

    /// Print what happened as one JSON object
    ///
    /// Default: off, a story for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,

    /// Executable of the worker [default: `worker` beside `leader`]
    ///
    /// MUSTER_WORKER says the same. Example: --worker-bin target/debug/worker
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub worker_bin: Option<PathBuf>,
}

/// `leader config`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// Print a JSON object
    ///
    /// Default: off, one value a line.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}

/// `leader doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DoctorArgs {
    /// Kill agents and a leader whose processes try to escape, and count what survives
    ///
    /// Commands also look for the key of their model, and try to write and to connect where they may
    /// not. On each rung that this machine offers; takes a few seconds, leaves nothing behind, and
    /// needs no model. Default: off, only look.
    #[arg(verbatim_doc_comment, long)]
    pub prove: bool,

    /// Send no request to the model
    ///
    /// Default: off, one request of a few tokens tells whether it answers.
    #[arg(verbatim_doc_comment, long)]
    pub no_model: bool,

    /// Print a JSON object
    ///
    /// Default: off, text for people.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,

    /// Executable of the worker [default: `worker` beside `leader`]
    ///
    /// MUSTER_WORKER says the same. Example: --worker-bin target/debug/worker
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub worker_bin: Option<PathBuf>,
}

/// `leader trust`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TrustArgs {
    /// Accept without asking
    ///
    /// Default: off; on a terminal you are asked, elsewhere nothing is accepted.
    #[arg(verbatim_doc_comment, short, long, conflicts_with_all = ["show", "revoke", "list"])]
    pub yes: bool,

    /// Only show what the file wants and whether it is accepted
    ///
    /// Default: off, show it and ask.
    #[arg(verbatim_doc_comment, long, conflicts_with_all = ["revoke", "list"])]
    pub show: bool,

    /// Take the acceptance of this workspace's file back
    ///
    /// Default: off.
    #[arg(verbatim_doc_comment, long, conflicts_with = "list")]
    pub revoke: bool,

    /// List every file that you have accepted, whatever workspace it is of
    ///
    /// Default: off.
    #[arg(verbatim_doc_comment, long)]
    pub list: bool,

    /// Print a JSON object
    ///
    /// Default: off, text for people. Nobody is asked then.
    #[arg(verbatim_doc_comment, long)]
    pub json: bool,
}
