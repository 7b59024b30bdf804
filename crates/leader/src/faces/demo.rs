//! `leader demo`: one sub-agent, start to end, with a scripted model and no network.

use std::path::{Path, PathBuf};

use protocol::config::Settings;
use protocol::error::{ErrorCode, ToolError};
use protocol::result::AgentResult;
use protocol::status::StopReason;
use protocol::tool::leader::CreateSubAgentParams;
use serde_json::{Value, json};

use crate::cli::DemoArgs;
use crate::driver::{CreateOrderRequest, Origin};
use crate::exit;
use crate::faces::console::{Console, code_of};
use crate::faces::interrupt::Interrupts;
use crate::faces::run::drive::drive;
use crate::faces::run::output::Output;
use crate::faces::session::{Session, SessionOrder};
use crate::faces::surroundings::{Surroundings, flags};
use crate::render::result::result_text;
use crate::render::style::Tone;
use crate::render::width::plain_lines;
use crate::settings::{Variables, load};

/// What the agent is told to do.
const TASK: &str = "\
Read notes.txt in the workspace and write an overview of it to overview.md in the deliverables
directory: a heading, the number of planets, and one line for each planet.";
/// The same in a few words.
const SUMMARY: &str = "Overview of notes.txt";
/// The file that the agent finds.
const NOTES: &str = "Mercury: smallest\nVenus: hottest\nEarth: ours\nMars: red\n";
/// What its model says.
const SCRIPT: &str = "script.jsonl";
/// The file that it delivers.
const DELIVERED: &str = "overview.md";
/// The most of the delivered file that is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 2 * 1024;
/// The deadline of the agent; the demo is over in a few seconds.
const TIMEOUT_SECONDS: i64 = 20;
/// How long the scripted model takes for an answer, so that a person sees something happen.
const DELAY_MS: u64 = 700;

/// Tells the story.
///
/// # Errors
/// When the temporary workspace can't be made, or the machine is not fit.
pub async fn demo(
    args: &DemoArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let place = tempfile::Builder::new()
        .prefix("muster-demo-")
        .tempdir()
        .map_err(|error| no_place(&error))?;
    let told = tell(args, surroundings, place.path(), console).await;
    if args.keep {
        let path = place.keep();
        console.print(&format!("\nKept: {}\n", path.display()))?;
    } else {
        let path = place.path().to_owned();
        place.close().map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("`{}` could not be removed: {error}", path.display()),
            )
        })?;
        console.print("\nEverything of the demo is removed again; --keep keeps it.\n")?;
    }
    told
}

fn no_place(error: &std::io::Error) -> ToolError {
    ToolError::new(
        code_of(error),
        format!("a temporary workspace could not be made: {error}"),
    )
    .hint("TMPDIR names the directory for it")
}

async fn tell(
    args: &DemoArgs,
    surroundings: &Surroundings,
    place: &Path,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let workspace = prepare(place).map_err(|error| no_place(&error))?;
    chapter(
        console,
        1,
        "A workspace with one file in it, and a task for a sub-agent:",
    )?;
    console.print(&indented(NOTES))?;
    console.print(&format!("\n{}\n", indented(TASK).trim_end()))?;
    chapter(
        console,
        2,
        "The leader starts a worker process for it, under a deadline and OS limits.\n   \
         Its model is a script: what it says is fixed, everything else is real.",
    )?;
    let inside = Surroundings {
        workspace: workspace.clone(),
        variables: quiet_variables(&surroundings.variables),
    };
    let settings = demo_settings(&workspace)?;
    let mut interrupts =
        Interrupts::listen().map_err(|error| ToolError::new(ErrorCode::Io, error.to_string()))?;
    let session = Session::open(SessionOrder {
        surroundings: &inside,
        settings,
        worker_bin: args.worker_bin.clone(),
    })
    .await?;
    let driven = drive(
        session.handle(),
        session.handle().create(order()),
        Output::Text,
        &mut interrupts,
        console,
    )
    .await;
    session
        .close(StopReason::ConversationClosed, &mut interrupts)
        .await;
    let driven = driven?;
    let result = driven.result?;
    chapter(console, 3, "It has ended, and so has every process of it:")?;
    let text = result_text(&result, console.look().out);
    console.print(&indented(&text))?;
    if result.success {
        chapter(console, 4, &format!("What it delivered, {DELIVERED}:"))?;
        console.print(&indented(&delivered(&workspace, &result)?))?;
    }
    let ends = [(result.status, result.stop_reason)];
    Ok(exit::of_run(&ends, driven.stopped_by))
}

fn chapter(console: &mut Console<'_>, number: u32, text: &str) -> Result<(), ToolError> {
    let head = console
        .look()
        .out
        .paint(Tone::Strong, &format!("{number}."));
    let gap = if number == 1 { "" } else { "\n" };
    console.print(&format!("{gap}{head} {text}\n"))
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", format!("   {line}").trim_end()))
        .collect()
}

/// Makes the workspace: the notes, and the script, which must lie where the worker sees it. An
/// agent has a temporary directory of its own, so that would not be beside the workspace.
fn prepare(place: &Path) -> std::io::Result<PathBuf> {
    let workspace = place.canonicalize()?;
    std::fs::write(workspace.join("notes.txt"), NOTES)?;
    let lines: String = replies().iter().map(|reply| format!("{reply}\n")).collect();
    std::fs::write(workspace.join(SCRIPT), lines)?;
    Ok(workspace)
}

/// What the scripted model says, in order.
fn replies() -> [Value; 4] {
    let call = |text: &str, name: &str, arguments: Value| {
        json!({
            "text": text,
            "tool_calls": [{"name": name, "arguments": arguments}],
            "delay_ms": DELAY_MS,
            "usage": {"prompt": 400, "completion": 40},
        })
    };
    let overview = "# Overview\n\n4 planets:\n\n- Mercury: smallest\n- Venus: hottest\n\
                    - Earth: ours\n- Mars: red\n";
    [
        call(
            "I look at the notes first.",
            "read_file",
            json!({"path": "notes.txt"}),
        ),
        call(
            "I count the planets.",
            "run_command",
            json!({"command": "wc -l < notes.txt"}),
        ),
        call(
            "I write the overview.",
            "write_file",
            json!({"file_path": format!("{{deliverables_dir}}/{DELIVERED}"), "content": overview}),
        ),
        call(
            "Done.",
            "finish_task",
            json!({
                "success": true,
                "summary": "overview.md lists the four planets of notes.txt with what is said \
                            of each, and their number.",
            }),
        ),
    ]
}

/// The demo is the same everywhere: of the environment only what finds executables counts.
fn quiet_variables(variables: &Variables) -> Variables {
    variables
        .pairs()
        .into_iter()
        .filter(|(name, _)| {
            !name.starts_with("MUSTER_") || matches!(name.as_str(), "MUSTER_WORKER" | "MUSTER_JAIL")
        })
        .collect()
}

/// No file of the user's has a say, so that a broken one does not break the demo.
fn demo_settings(workspace: &Path) -> Result<Settings, ToolError> {
    let model = format!("script:{}", workspace.join(SCRIPT).display());
    let flags = flags(Some(&model), Some(&"en".to_owned()));
    load(workspace, &Variables::default(), flags)
}

fn order() -> CreateOrderRequest {
    CreateOrderRequest {
        params: CreateSubAgentParams {
            summary: Some(SUMMARY.to_owned()),
            task: TASK.to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..CreateSubAgentParams::default()
        },
        origin: Origin::Person,
        item: None,
    }
}

fn delivered(workspace: &Path, result: &AgentResult) -> Result<String, ToolError> {
    let path = workspace.join(&result.deliverables_dir).join(DELIVERED);
    let bytes = std::fs::read(&path).map_err(|error| {
        ToolError::new(
            code_of(&error),
            format!("`{}` could not be read: {error}", path.display()),
        )
    })?;
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    Ok(plain_lines(&String::from_utf8_lossy(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_the_only_model_and_lies_where_the_agent_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = prepare(dir.path()).unwrap();
        let settings = demo_settings(&workspace).unwrap();
        assert!(settings.models.is_empty());
        let model = settings.default_model.unwrap();
        let script = PathBuf::from(model.strip_prefix("script:").unwrap());
        assert!(script.starts_with(&workspace));
        let lines = std::fs::read_to_string(script).unwrap();
        assert_eq!(lines.lines().count(), replies().len());
        assert_eq!(
            std::fs::read_to_string(workspace.join("notes.txt")).unwrap(),
            NOTES
        );
    }

    #[test]
    fn the_users_variables_have_no_say() {
        let variables: Variables = [
            ("MUSTER_MAX_CONCURRENT", "0"),
            ("MUSTER_WORKER", "/w"),
            ("PATH", "/bin"),
        ]
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        let left: Vec<String> = quiet_variables(&variables)
            .pairs()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(left, ["MUSTER_WORKER", "PATH"]);
    }
}
