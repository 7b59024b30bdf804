//! The ground of the demo: a workspace with notes, three roles, and what their model says.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ids::AgentId;
use serde_json::{Value, json};

/// What the scripted model says.
pub const SCRIPT: &str = "script.yaml";
/// The notes that the agents find: path and content.
pub const NOTES: [(&str, &str); 2] = [
    (
        "notes/monday.txt",
        "Bread is bought.\nTODO call Ada about the engine\n",
    ),
    (
        "notes/tuesday.txt",
        "TODO fix the door\nThe cat is back.\nTODO water the plants\n",
    ),
];
/// The pipe that the process which cuts itself loose holds open while it lives.
pub const PIPE: &str = "alive.pipe";
/// The file whose presence ends that process where nothing else does.
pub const STOP: &str = "stop";
/// How long that process lives at most, in seconds, whatever becomes of the demo.
const LOOSE_SECONDS_MAX: u32 = 45;
/// How long the scripted model takes for an answer, so that a person sees something happen.
const DELAY_MS: u64 = 450;

/// One agent of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Does its work with real tools.
    Collects,
    /// Takes longer than it may.
    Dawdles,
    /// Leaves a process behind that has cut itself loose.
    LeavesOne,
}

impl Role {
    /// All of them, by number.
    pub const ALL: [Role; 3] = [Role::Collects, Role::Dawdles, Role::LeavesOne];

    /// Its agent's number.
    pub fn number(self) -> u32 {
        match self {
            Role::Collects => 1,
            Role::Dawdles => 2,
            Role::LeavesOne => 3,
        }
    }

    /// The role of an agent, if it is one of the story.
    pub fn of(agent: AgentId) -> Option<Role> {
        Role::ALL
            .into_iter()
            .find(|role| AgentId::new(role.number()).is_ok_and(|number| number == agent))
    }

    /// Its task in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Role::Collects => "Collect the open points",
            Role::Dawdles => "Write a long report",
            Role::LeavesOne => "Start a server",
        }
    }

    /// Its task.
    pub fn task(self) -> &'static str {
        match self {
            Role::Collects => {
                "Collect the open points (TODO) of all notes into todo.md in the deliverables \
                 directory, with a script that can do it again."
            }
            Role::Dawdles => "Write a long report about the notes into draft.md.",
            Role::LeavesOne => "Start a server for the notes in the background.",
        }
    }

    /// Its deadline, in seconds.
    pub fn timeout_seconds(self) -> i64 {
        match self {
            Role::Collects | Role::LeavesOne => 30,
            Role::Dawdles => 5,
        }
    }

    /// What the story says of it before it starts.
    pub fn intent(self) -> &'static str {
        match self {
            Role::Collects => "with real tools: search, a script, an edit",
            Role::Dawdles => "it takes longer than its 5 seconds",
            Role::LeavesOne => "and leaves a process behind, on purpose",
        }
    }

    /// The file that it delivers and the story shows.
    pub fn shown_file(self) -> Option<&'static str> {
        match self {
            Role::Collects => Some("todo.md"),
            Role::Dawdles => Some("draft.md"),
            Role::LeavesOne => None,
        }
    }

    fn replies(self) -> Vec<Value> {
        match self {
            Role::Collects => collects(),
            Role::Dawdles => dawdles(),
            Role::LeavesOne => leaves_one(),
        }
    }
}

fn says(text: &str, tool: &str, arguments: Value) -> Value {
    json!({
        "text": text,
        "tool_calls": [{"name": tool, "arguments": arguments}],
        "delay_ms": DELAY_MS,
        "usage": {"prompt": 400, "completion": 40},
    })
}

fn reports(summary: &str) -> Value {
    let report = json!({"success": true, "summary": summary});
    says("Done.", "finish_task", report)
}

fn collects() -> Vec<Value> {
    let script = "#!/bin/sh\n# One line for each open point, with the day that it is from.\n\
                  for day in monday tuesday; do\n    \
                  sed -n \"s/^TODO /- $day: /p\" notes/$day.txt\ndone\n";
    vec![
        says(
            "I look for the open points.",
            "search_workspace",
            json!({"query": "TODO"}),
        ),
        says(
            "A script can collect them.",
            "write_file",
            json!({"file_path": "{deliverables_dir}/collect.sh", "content": script}),
        ),
        says(
            "I run it.",
            "run_command",
            json!({"command": "sh {deliverables_dir}/collect.sh > {deliverables_dir}/todo.md && \
                               cat {deliverables_dir}/todo.md"}),
        ),
        says(
            "The plants can't wait.",
            "edit_file",
            json!({
                "file_path": "{deliverables_dir}/todo.md",
                "replacements": [{"old_string": "water the plants",
                                  "new_string": "water the plants (today)"}],
            }),
        ),
        reports("todo.md holds the three open points of the notes; collect.sh makes it anew."),
    ]
}

fn dawdles() -> Vec<Value> {
    vec![
        says(
            "I begin with a draft.",
            "write_file",
            json!({
                "file_path": "{deliverables_dir}/draft.md",
                "content": "# Report (draft)\n\nMonday: bread was bought.\nTuesday: …\n",
            }),
        ),
        says(
            "The rest takes a while.",
            "run_command",
            json!({"command": "sleep 60"}),
        ),
        reports("the report is whole"),
    ]
}

/// The process leaves its session, so that no signal to a process group reaches it, and lets go
/// of its output. It writes into the pipe for as long as it lives, and ends by itself.
fn leaves_one() -> Vec<Value> {
    let alive = format!(
        "n=0; while [ $n -lt {LOOSE_SECONDS_MAX} ] && [ ! -e {STOP} ]; do echo up; sleep 1; \
         n=$((n + 1)); done"
    );
    let command = format!(
        "setsid sh -c '{alive}' < /dev/null > {PIPE} 2> /dev/null & sleep 0.3; echo started"
    );
    vec![
        says(
            "I start it in the background.",
            "run_command",
            json!({"command": command}),
        ),
        reports("the server is started"),
    ]
}

/// Makes the workspace: the notes, the pipe, and the script, which must lie where the workers see
/// it. An agent has a temporary directory of its own, so that would not be beside the workspace.
///
/// # Errors
/// When something of it can't be made.
pub fn prepare(place: &Path) -> io::Result<PathBuf> {
    let workspace = place.canonicalize()?;
    std::fs::create_dir(workspace.join("notes"))?;
    for (name, content) in NOTES {
        std::fs::write(workspace.join(name), content)?;
    }
    let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
    nix::unistd::mkfifo(&workspace.join(PIPE), mode)?;
    let parts: Vec<Value> = Role::ALL
        .iter()
        .map(|role| json!({"agent_id": role.number(), "replies": role.replies()}))
        .collect();
    // JSON is a part of YAML.
    std::fs::write(workspace.join(SCRIPT), json!({"parts": parts}).to_string())?;
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_role() {
        for role in Role::ALL {
            let agent = AgentId::new(role.number()).unwrap();
            assert_eq!(Role::of(agent), Some(role));
        }
        assert_eq!(Role::of(AgentId::new(4).unwrap()), None);
    }

    #[test]
    fn the_ground_holds_what_the_story_needs() {
        let place = tempfile::tempdir().unwrap();
        let workspace = prepare(place.path()).unwrap();
        for (name, content) in NOTES {
            assert_eq!(
                std::fs::read_to_string(workspace.join(name)).unwrap(),
                content
            );
        }
        let script = std::fs::read_to_string(workspace.join(SCRIPT)).unwrap();
        let script: Value = serde_json::from_str(&script).unwrap();
        let turns: Vec<usize> = script["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["replies"].as_array().unwrap().len())
            .collect();
        assert_eq!(turns, [5, 3, 2]);
    }
}
