//! From the arguments of the process to its exit code.

use std::ffi::OsString;
use std::io::{Read, Write};

use protocol::error::{ErrorCode, ToolError};
use protocol::exit as codes;

use crate::cli::{Cli, Command, ParseOutcome, parse};
use crate::exit;
use crate::faces::config::config;
use crate::faces::console::{Console, Look};
use crate::faces::demo::command::demo;
use crate::faces::detach::detach;
use crate::faces::doctor::command::doctor;
use crate::faces::logging;
use crate::faces::look::{kill::kill, logs::logs, ps::ps, status::status, wait::wait};
use crate::faces::resume::resume;
use crate::faces::run::run;
use crate::faces::scope;
use crate::faces::serve::command::serve;
use crate::faces::surroundings::Surroundings;
use crate::faces::trust::{Asked, trust};
use crate::os::terminal;
use crate::render::Style;
use crate::render::wrap::wrap_help;
use crate::settings::Variables;

/// Threads for blocking work: reading journals and logs. The rest is one thread.
const BLOCKING_THREADS_MAX: usize = 4;
/// Columns of a page of help, whatever the terminal has.
const HELP_COLUMNS_MAX: usize = 80;

/// What a process has around it.
pub struct Process<'a> {
    /// Its arguments, its own name first.
    pub arguments: Vec<OsString>,
    /// Its environment.
    pub variables: Variables,
    /// Its standard input.
    pub stdin: &'a mut dyn Read,
    /// Its standard output.
    pub stdout: &'a mut dyn Write,
    /// Its standard error.
    pub stderr: &'a mut dyn Write,
    /// Whether stdin is a terminal.
    pub stdin_is_terminal: bool,
    /// Whether stdout is a terminal.
    pub stdout_is_terminal: bool,
    /// Whether stderr is a terminal.
    pub stderr_is_terminal: bool,
}

impl std::fmt::Debug for Process<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("arguments", &self.arguments)
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

/// Carries out what the arguments say and gives the exit code.
pub fn enter(process: Process<'_>) -> u8 {
    let Process {
        arguments,
        variables,
        stdin,
        stdout,
        stderr,
        stdin_is_terminal,
        stdout_is_terminal,
        stderr_is_terminal,
    } = process;
    let style = |is_terminal| {
        Style::of(
            is_terminal,
            variables.get("NO_COLOR"),
            variables.get("TERM"),
        )
    };
    let columns = |columns: Option<usize>, is_terminal: bool| columns.filter(|_| is_terminal);
    let mut look = Look {
        out: style(stdout_is_terminal),
        err: style(stderr_is_terminal),
        out_columns: columns(terminal::columns(std::io::stdout()), stdout_is_terminal),
        err_columns: columns(terminal::columns(std::io::stderr()), stderr_is_terminal),
        live: false,
        quiet: false,
    };
    let command_line = arguments.clone();
    let cli = match parse(arguments) {
        ParseOutcome::Run(cli) => cli,
        ParseOutcome::Print(text) => {
            let mut console = Console::new(stdout, stderr, look);
            return printed(
                console.print(&wrap_help(&text, HELP_COLUMNS_MAX)),
                &mut console,
            );
        }
        ParseOutcome::Refuse(text) => {
            Console::new(stdout, stderr, look).say(&text);
            return codes::USAGE;
        }
    };
    if let Command::Run(args) = &cli.command
        && args.detached
    {
        // Its output will be a file's.
        look = Look::default();
    }
    // Log lines would tear a line that is drawn over and over, and a dumb terminal can't draw it.
    look.live = stderr_is_terminal
        && !matches!(&cli.command, Command::Run(args) if args.detached)
        && variables.get("TERM") != Some("dumb")
        && !cli.global.quiet
        && cli.global.verbose == 0;
    look.quiet = cli.global.quiet;
    let mut console = Console::new(stdout, stderr, look);
    let stdin = Stdin {
        reader: stdin,
        can_be_asked: stdin_is_terminal && stderr_is_terminal,
    };
    let performed = match &cli.command {
        // Before this process goes anywhere: the one in the background goes there itself.
        Command::Run(args) if args.detach => detach(&command_line, args, &mut console),
        _ => perform(&cli, (&command_line, variables), stdin, &mut console),
    };
    match performed {
        Ok(code) => code,
        Err(error) => {
            console.clear_live();
            if wants_json(&cli.command) {
                // The failure is what stdout is for here; one of printing it is told below.
                console.print(&format!("{}\n", error.to_result())).ok();
            }
            console.fail(&error);
            exit::of_error(error.code)
        }
    }
}

/// The standard input, and whether a person at a terminal is behind it who sees a question.
struct Stdin<'a> {
    reader: &'a mut dyn Read,
    can_be_asked: bool,
}

fn printed(printed: Result<(), ToolError>, console: &mut Console<'_>) -> u8 {
    match printed {
        Ok(()) => codes::SUCCESS,
        Err(error) => {
            console.fail(&error);
            exit::of_error(error.code)
        }
    }
}

fn perform(
    cli: &Cli,
    (command_line, variables): (&[OsString], Variables),
    stdin: Stdin<'_>,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    logging::begin(&cli.global, variables.get("RUST_LOG"));
    let variables = match starts_agents(&cli.command) {
        true => scope::enter(command_line, cli.global.directory.as_deref(), variables),
        false => variables,
    };
    let surroundings = Surroundings::enter(cli.global.directory.as_deref(), variables)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| {
            ToolError::new(
                ErrorCode::Io,
                format!("the leader's event loop could not be started: {error}"),
            )
        })?;
    let code = runtime.block_on(command(&cli.command, &surroundings, stdin, console));
    // Whatever still blocks in a thread must not keep the process.
    runtime.shutdown_background();
    code
}

async fn command(
    command: &Command,
    surroundings: &Surroundings,
    stdin: Stdin<'_>,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    match command {
        Command::Run(args) => run(args, surroundings, stdin.reader, console).await,
        Command::Serve(args) => serve(args, surroundings, console).await,
        Command::Ps(args) => ps(args, surroundings, console).await,
        Command::Status(args) => status(args, surroundings, console).await,
        Command::Logs(args) => logs(args, surroundings, console).await,
        Command::Kill(args) => kill(args, surroundings, console).await,
        Command::Resume(args) => resume(args, surroundings, console).await,
        Command::Wait(args) => wait(args, surroundings, console).await,
        Command::Demo(args) => demo(args, surroundings, console).await,
        Command::Config(args) => config(args, surroundings, console),
        Command::Doctor(args) => doctor(args, surroundings, console).await,
        Command::Trust(args) => {
            let asked = match stdin.can_be_asked {
                true => Asked::Person(stdin.reader),
                false => Asked::Nobody,
            };
            trust(args, surroundings, asked, console)
        }
    }
}

/// Whether a command starts agents, or tells how they would be held.
fn starts_agents(command: &Command) -> bool {
    match command {
        Command::Run(_) | Command::Serve(_) | Command::Resume(_) | Command::Doctor(_) => true,
        Command::Ps(_)
        | Command::Status(_)
        | Command::Logs(_)
        | Command::Kill(_)
        | Command::Wait(_)
        | Command::Config(_)
        | Command::Demo(_)
        | Command::Trust(_) => false,
    }
}

/// Whether refusals are wanted as JSON on stdout too.
fn wants_json(command: &Command) -> bool {
    match command {
        Command::Run(args) => args.json || args.stream_json,
        Command::Serve(args) => args.json,
        Command::Ps(args) => args.json,
        Command::Status(args) => args.json,
        Command::Logs(args) => args.json,
        Command::Kill(args) => args.json,
        Command::Resume(args) => args.json || args.stream_json,
        Command::Wait(args) => args.json,
        Command::Config(args) => args.json,
        Command::Doctor(args) => args.json,
        Command::Demo(args) => args.json,
        Command::Trust(args) => args.json,
    }
}
