//! `leader logs N`: the steps of an agent, from its journal; with `-f` as they are made.

use std::io;
use std::path::Path;

use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::job::AGENT_DIR;
use protocol::socket::{STEPS_DEFAULT, WAIT};
use serde_json::json;

use crate::cli::LogsArgs;
use crate::faces::client::Client;
use crate::faces::console::Console;
use crate::faces::look::overview::{Meant, meant};
use crate::faces::steps::{Step, Steps, open_journal, read_steps};
use crate::faces::surroundings::Surroundings;
use crate::os::growth::Growth;
use crate::render::steps::step_text;

/// Prints them.
///
/// # Errors
/// When no agent or several are meant, its journal can't be read, or stdout can't be written.
pub async fn logs(
    args: &LogsArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let meant = meant(&surroundings.workspace, &args.agent).await?;
    let mut reader = Reader::of(&meant);
    if args.follow && meant.is_live {
        follow(&mut reader, args.json, console).await?;
    }
    // An agent that has ended writes no more: this finds the last of its steps.
    reader.print_new(args.json, console)?;
    if reader.printed == 0 && !args.json {
        console.say("no steps in its journal (yet, or a later run has replaced it)\n");
    }
    Ok(exit::SUCCESS)
}

/// Prints steps as they are made, until the agent has ended or nobody reads them.
async fn follow(
    reader: &mut Reader<'_>,
    as_json: bool,
    console: &mut Console<'_>,
) -> Result<(), ToolError> {
    let dir = Path::new(&reader.meant.agent.deliverables_dir).join(AGENT_DIR);
    let mut ended = std::pin::pin!(end_of(reader.meant));
    loop {
        // Set before the look, so that what is written during it is a change.
        let growth = Growth::watch(&reader.meant.workspace, &dir)
            .map_err(|error| not_watched(&dir, &error))?;
        reader.print_new(as_json, console)?;
        if console.out_is_closed() {
            return Ok(());
        }
        tokio::select! {
            () = &mut ended => return Ok(()),
            changed = growth.changed() => changed.map_err(|error| not_watched(&dir, &error))?,
        }
    }
}

fn not_watched(dir: &Path, error: &io::Error) -> ToolError {
    ToolError::new(
        ErrorCode::Io,
        format!("`{}` could not be watched: {error}", dir.display()),
    )
    .hint(
        "`leader logs` without `-f` shows what is there; the system's bounds are \
         `fs.inotify.max_user_instances` and `fs.inotify.max_user_watches`",
    )
}

/// Waits until the agent may write no more: it has ended, or its leader has, and it with it.
async fn end_of(meant: &Meant) {
    let params = json!({"agents": [meant.agent.task_id]});
    if let Ok(mut client) = Client::connect(&meant.run.path) {
        client.call_patiently(WAIT, params).await.ok();
    }
}

/// Reads a journal on from where it stopped.
struct Reader<'a> {
    meant: &'a Meant,
    next: u64,
    printed: usize,
}

impl<'a> Reader<'a> {
    fn of(meant: &'a Meant) -> Self {
        Reader {
            meant,
            next: 0,
            printed: 0,
        }
    }

    /// Prints every step that was not there before.
    fn print_new(&mut self, as_json: bool, console: &mut Console<'_>) -> Result<(), ToolError> {
        loop {
            let steps = read(self.meant, self.next)?;
            self.next = steps.next;
            self.printed += steps.steps.len();
            for step in &steps.steps {
                print(step, as_json, console)?;
            }
            if !steps.more || console.out_is_closed() {
                return Ok(());
            }
        }
    }
}

fn read(meant: &Meant, after: u64) -> Result<Steps, ToolError> {
    let limit = STEPS_DEFAULT as usize;
    let place = Path::new(&meant.agent.deliverables_dir);
    let read = match open_journal(&meant.workspace, place) {
        Ok(Some(mut journal)) => read_steps(&mut journal, &meant.agent.task_id, after, limit),
        Ok(None) => Ok(Steps {
            next: after,
            ..Steps::default()
        }),
        Err(error) => Err(error),
    };
    read.map_err(|error| {
        ToolError::new(
            ErrorCode::Io,
            format!(
                "the journal in `{}` could not be read: {error}",
                meant.agent.deliverables_dir
            ),
        )
    })
}

fn print(step: &Step, as_json: bool, console: &mut Console<'_>) -> Result<(), ToolError> {
    let text = match as_json {
        true => match serde_json::to_string(step) {
            Ok(line) => format!("{line}\n"),
            Err(error) => return Err(ToolError::new(ErrorCode::Internal, error.to_string())),
        },
        false => step_text(step, console.look().out),
    };
    console.show(&text, as_json)
}
