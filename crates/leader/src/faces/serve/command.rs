//! `leader serve`: a conversation that other programs use over its control socket.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::ids::ConversationId;
use protocol::status::StopReason;
use serde_json::json;

use crate::cli::ServeArgs;
use crate::driver::{Handle, StopMode};
use crate::faces::console::Console;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::session::{Session, SessionOrder};
use crate::faces::surroundings::{Surroundings, flags};
use crate::os::stdin;
use crate::settings::choose_model;

/// Serves until `shutdown` is called or a signal asks for the end.
///
/// # Errors
/// When the machine is not fit, or the socket can't be opened.
pub async fn serve(
    args: &ServeArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let flags = flags(args.model.as_ref(), args.lang.as_ref());
    let settings = surroundings.settings(flags, console)?;
    // Creates may name a model of their own, so this is worth a word and no more.
    if let Err(error) = choose_model(&settings, &surroundings.variables) {
        console.warn(&format!("{}: {}", error.message, error.hint));
    }
    let mut interrupts = Interrupts::listen().map_err(|error| {
        ToolError::new(ErrorCode::Io, format!("signals can't be caught: {error}"))
    })?;
    let session = Session::open(SessionOrder {
        surroundings,
        settings,
        worker_bin: args.worker_bin.clone(),
        reserved_numbers: BTreeSet::new(),
    })
    .await?;
    let served = match session.socket() {
        Ok(socket) => {
            let text = started_text(session.handle().conversation(), socket.path(), args.json);
            match console.print(&text) {
                Ok(()) => {
                    let handle = session.handle();
                    tokio::select! {
                        end = until_the_end(handle, &mut interrupts, console) => Ok(end),
                        // The close below kills what still runs: nobody is left to wait.
                        () = stdin::closed(), if args.while_stdin => {
                            handle.stop_all(StopReason::LeaderStopped, StopMode::Force).await;
                            Ok(None)
                        }
                    }
                }
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(ToolError::new(
            ErrorCode::Io,
            format!(
                "the control socket could not be opened in `{}`: {error}",
                session.handle().run_dir().display()
            ),
        )
        .hint("the workspace's file system must have sockets and room")),
    };
    session
        .close(StopReason::ConversationClosed, &mut interrupts)
        .await;
    Ok(served?.map_or(exit::SUCCESS, Interrupt::exit_code))
}

fn started_text(conversation: &ConversationId, socket: &Path, as_json: bool) -> String {
    match as_json {
        true => {
            let value = json!({
                "success": true,
                "conversation": conversation,
                "socket": socket,
                "pid": std::process::id(),
            });
            format!("{value}\n")
        }
        false => format!("{conversation} {}\n", socket.display()),
    }
}

/// Returns at the end of the conversation, with the signal that asked for it, if one did.
async fn until_the_end(
    handle: &Handle,
    interrupts: &mut Interrupts,
    console: &mut Console<'_>,
) -> Option<Interrupt> {
    let first = tokio::select! {
        () = handle.closed() => return None,
        interrupt = interrupts.next() => interrupt,
    };
    console.say(&format!(
        "{}: stopping all agents in order; once more kills them\n",
        first.name()
    ));
    tokio::select! {
        () = handle.stop_all(StopReason::LeaderStopped, StopMode::Graceful) => {}
        _ = interrupts.next() => {
            console.say("killing all agents\n");
            handle.stop_all(StopReason::LeaderStopped, StopMode::Force).await;
        }
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_the_socket_is() {
        let id = ConversationId::new("conv_0190a6e0-0001").unwrap();
        let path = Path::new("/w/.muster/runs/x/leader.sock");
        assert_eq!(
            started_text(&id, path, false),
            "conv_0190a6e0-0001 /w/.muster/runs/x/leader.sock\n"
        );
        let value: serde_json::Value =
            serde_json::from_str(&started_text(&id, path, true)).unwrap();
        assert_eq!(value["conversation"], "conv_0190a6e0-0001");
        assert_eq!(value["socket"], "/w/.muster/runs/x/leader.sock");
        assert_eq!(value["pid"], std::process::id());
    }
}
