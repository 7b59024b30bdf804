//! The command line: what can be said, and how it is told apart from what a later version will
//! understand.

pub mod args;
pub mod later;
pub mod parse;
pub mod run_args;
pub mod upkeep;

pub use args::{
    Cli, Command, KillArgs, LogsArgs, PsArgs, ResumeArgs, ServeArgs, StatusArgs, WaitArgs,
};
pub use parse::{ParseOutcome, command, parse};
pub use run_args::RunArgs;
pub use upkeep::{ConfigArgs, DemoArgs, DoctorArgs, TrustArgs};
