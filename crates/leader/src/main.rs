//! The supervisor: starts workers, holds their deadlines, collects what they deliver.
//! Entry point.

use std::io::IsTerminal;
use std::process::ExitCode;

use leader::faces::entry::{Process, enter};
use leader::settings::Variables;

fn main() -> ExitCode {
    // It holds every key. A kernel that refuses has no such thing, and the work goes on.
    drop(confine::shield::hide_this_process());
    let mut stdin = std::io::stdin().lock();
    let mut stdout = std::io::stdout().lock();
    let mut stderr = std::io::stderr();
    let stdin_is_terminal = stdin.is_terminal();
    let stdout_is_terminal = stdout.is_terminal();
    let stderr_is_terminal = stderr.is_terminal();
    ExitCode::from(enter(Process {
        arguments: std::env::args_os().collect(),
        variables: Variables::of_process(),
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
        stdin_is_terminal,
        stdout_is_terminal,
        stderr_is_terminal,
    }))
}
