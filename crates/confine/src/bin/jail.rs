//! `jail`: starts one program under OS limits and ends as that program ended.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    confine::cli::main(arguments, &mut std::io::stdout(), &mut std::io::stderr())
}
