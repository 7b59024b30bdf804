//! Entry point: takes the descriptors, starts the runtime, and hands over.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::start::main(std::env::args_os().collect())
}
