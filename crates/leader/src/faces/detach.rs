//! `leader run --detach`: both ends of a leader that goes on in the background.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{AgentId, ConversationId, TaskId};
use protocol::result::StartedResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::RunArgs;
use crate::driver::Handle;
use crate::faces::console::{Console, code_of};
use crate::os::detached::{self, Announcer};
use crate::render::width::plain;

/// The flag that asks for it.
const FLAG: &str = "--detach";
/// The flag of the process that does it.
const INNER_FLAG: &str = "--detached";
/// Agents that are listed for people; the rest is counted.
const AGENTS_SHOWN_MAX: usize = 20;

/// An agent that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedAgent {
    /// Its item in the batch, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Its number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
}

impl AcceptedAgent {
    /// The agent of a single run.
    pub fn of(started: &StartedResult) -> Self {
        AcceptedAgent {
            item: None,
            agent_id: started.agent_id,
            task_id: started.task_id.clone(),
        }
    }
}

/// What the leader in the background says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Detached {
    conversation: ConversationId,
    log: PathBuf,
    agents: Vec<AcceptedAgent>,
    /// Items of a batch that have no agent yet.
    later: usize,
}

/// The one line, so that it is not taken for the result of a refusal.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    detached: Detached,
}

/// The inner end: leaves the terminal's session; none when this leader is not in the background.
///
/// # Errors
/// When the flag was given by hand, or the system refuses.
pub fn begin(args: &RunArgs) -> Result<Option<Announcer>, ToolError> {
    if !args.detached {
        return Ok(None);
    }
    Announcer::begin().map(Some).map_err(|error| {
        ToolError::new(
            code_of(&error),
            format!("this leader could not leave its terminal: {error}"),
        )
        .hint("`--detach` is the flag to use")
    })
}

/// The inner end: tells that the work is accepted, and lets go of the outer one.
///
/// # Errors
/// When the outer end has gone or the output's file can't be made.
pub fn announce(
    announcer: Announcer,
    handle: &Handle,
    agents: Vec<AcceptedAgent>,
    later: usize,
) -> Result<(), ToolError> {
    let line = Announcement {
        detached: Detached {
            conversation: handle.conversation().clone(),
            log: detached::output_path(handle.run_dir()),
            agents,
            later,
        },
    };
    let text = serde_json::to_string(&line).unwrap_or_default();
    announcer
        .announce(handle.run_dir(), &text)
        .map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("the leader could not go into the background: {error}"),
            )
            .hint("whoever started it may be gone; its agents are stopped")
        })
}

/// The outer end: starts the leader in the background and returns once it has accepted the work.
///
/// # Errors
/// When it can't be started. What it refuses it tells itself, and its code is given back.
pub fn detach(
    arguments: &[OsString],
    args: &RunArgs,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let read = |stdout: &str| {
        let line = stdout.lines().next()?;
        serde_json::from_str::<Announcement>(line).ok()
    };
    let told = detached::start_again(&inner_arguments(arguments), |stdout| read(stdout).is_some())
        .map_err(|error| {
            ToolError::new(
                ErrorCode::SpawnFailed,
                format!("the leader could not be started in the background: {error}"),
            )
        })?;
    if let Some(Announcement { detached }) = read(&told.stdout) {
        let text = match args.json || args.stream_json {
            true => format!("{}\n", value_of(&detached, told.pid)),
            false => text_of(&detached, told.pid),
        };
        console.print(&text)?;
        return Ok(protocol::exit::SUCCESS);
    }
    console.print(&told.stdout)?;
    match told.ended.map(detached::code_of) {
        Some(Ok(code)) if code != protocol::exit::SUCCESS => Ok(code),
        Some(Err(signal)) => Err(ToolError::new(
            ErrorCode::Internal,
            format!("the leader in the background died of signal {signal} before it had begun"),
        )),
        Some(Ok(_)) | None => Ok(protocol::exit::SUCCESS),
    }
}

/// The same arguments for the process in the background. Words behind `--` are no flags.
fn inner_arguments(arguments: &[OsString]) -> Vec<OsString> {
    let mut flags_are_over = false;
    arguments
        .iter()
        .skip(1)
        .map(|argument| {
            flags_are_over |= argument == "--";
            match !flags_are_over && argument == FLAG {
                true => OsString::from(INNER_FLAG),
                false => argument.clone(),
            }
        })
        .collect()
}

fn value_of(detached: &Detached, pid: u32) -> Value {
    json!({
        "success": true,
        "conversation": detached.conversation,
        "pid": pid,
        "log": detached.log,
        "agents": detached.agents,
        "later": detached.later,
    })
}

fn text_of(detached: &Detached, pid: u32) -> String {
    let conversation = &detached.conversation;
    let mut text = format!("{conversation} runs in the background (pid {pid})\n");
    for agent in detached.agents.iter().take(AGENTS_SHOWN_MAX) {
        let item = agent
            .item
            .as_deref()
            .map_or(String::new(), |item| format!(" {}", plain(item)));
        text.push_str(&format!("  {} {}{item}\n", agent.agent_id, agent.task_id));
    }
    let more = detached.agents.len().saturating_sub(AGENTS_SHOWN_MAX);
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    if detached.later > 0 {
        text.push_str(&format!("  {} items will follow\n", detached.later));
    }
    text.push_str(&format!("wait:   leader wait {conversation}\n"));
    text.push_str(&format!("output: {}\n", shown(&detached.log)));
    text
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_process_has_the_same_arguments_but_for_the_flag() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            inner_arguments(&words(&[
                "leader", "-C", "d", "run", "--detach", "--json", "--", "--detach"
            ])),
            words(&["-C", "d", "run", "--detached", "--json", "--", "--detach"])
        );
    }

    #[test]
    fn what_is_told_names_the_conversation_and_how_to_wait() {
        let detached = Detached {
            conversation: ConversationId::new("conv_00000001").unwrap(),
            log: "/w/output.log".into(),
            agents: (1..=22)
                .map(|number| AcceptedAgent {
                    item: Some(format!("i{number}")),
                    agent_id: AgentId::new(number).unwrap(),
                    task_id: TaskId::new(format!("sub_{number:08}")).unwrap(),
                })
                .collect(),
            later: 3,
        };
        let text = text_of(&detached, 7);
        assert!(
            text.starts_with("conv_00000001 runs in the background (pid 7)\n  1 sub_00000001 i1\n")
        );
        assert!(text.ends_with(
            "  20 sub_00000020 i20\n  and 2 more\n  3 items will follow\nwait:   leader wait conv_00000001\noutput: /w/output.log\n"
        ), "{text}");
        assert_eq!(value_of(&detached, 7)["agents"][21]["item"], "i22");
    }
}
