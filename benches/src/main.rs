//! Entry point.

use std::process::ExitCode;

fn main() -> ExitCode {
    benches::cli::main(
        std::env::args_os(),
        &mut std::io::stdout(),
        &mut std::io::stderr(),
    )
}
