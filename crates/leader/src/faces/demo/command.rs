//! From the arguments of `leader demo` to its exit code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use protocol::config::Settings;
use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::status::StopReason;
use serde_json::json;

use crate::cli::DemoArgs;
use crate::faces::console::{Console, code_of};
use crate::faces::demo::play::{Played, Telling, play};
use crate::faces::demo::pulse::Pulse;
use crate::faces::demo::script::{Role, SCRIPT, prepare};
use crate::faces::demo::truth::Seen;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::session::{Session, SessionOrder};
use crate::faces::surroundings::{Surroundings, flags};
use crate::render::demo::{Shown, beginning, ending, look_next};
use crate::settings::{Variables, load};

/// The most of a delivered file that is shown, in bytes.
const SHOWN_BYTES_MAX: u64 = 2 * 1024;

/// Tells the story.
///
/// # Errors
/// When the temporary workspace can't be made or removed, or the machine is not fit.
pub async fn demo(
    args: &DemoArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let mut interrupts = Interrupts::listen().map_err(|error| {
        ToolError::new(ErrorCode::Io, format!("signals can't be caught: {error}"))
    })?;
    let place = tempfile::Builder::new()
        .prefix("muster-demo-")
        .tempdir()
        .map_err(|error| no_place(&error))?;
    let told = tell(args, surroundings, place.path(), &mut interrupts, console).await;
    let path = place.path().to_owned();
    // Whoever breaks it off wants nothing of it left.
    let keep = args.keep && matches!(told, Ok(Told::Through(_)));
    if keep {
        let kept = place.keep();
        debug_assert_eq!(kept, path);
    } else {
        place.close().map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("`{}` could not be removed: {error}", path.display()),
            )
        })?;
    }
    match told? {
        Told::Through(seen) => last_word(args, &seen, keep.then_some(path.as_path()), console),
        Told::Interrupted(interrupt) => {
            console.say(&format!(
                "{}: everything of the demo is ended and removed\n",
                interrupt.name()
            ));
            Ok(interrupt.exit_code())
        }
    }
}

fn no_place(error: &std::io::Error) -> ToolError {
    ToolError::new(
        code_of(error),
        format!("a temporary workspace could not be made: {error}"),
    )
    .hint("TMPDIR names the directory for it")
}

/// What came of the story.
enum Told {
    Through(Box<Seen>),
    Interrupted(Interrupt),
}

async fn tell(
    args: &DemoArgs,
    surroundings: &Surroundings,
    place: &Path,
    interrupts: &mut Interrupts,
    console: &mut Console<'_>,
) -> Result<Told, ToolError> {
    let workspace = prepare(place).map_err(|error| no_place(&error))?;
    let mut pulse = Pulse::of(&workspace).map_err(|error| no_place(&error))?;
    let telling = match args.json {
        true => Telling::Silently,
        false => Telling::Aloud,
    };
    if telling == Telling::Aloud {
        console.print(&beginning(console.look().out))?;
    }
    let inside = Surroundings {
        workspace: workspace.clone(),
        variables: quiet_variables(&surroundings.variables),
    };
    let session = Session::open(SessionOrder {
        surroundings: &inside,
        settings: demo_settings(&workspace)?,
        worker_bin: args.worker_bin.clone(),
        reserved_numbers: BTreeSet::new(),
    })
    .await?;
    let played = play(
        session.handle(),
        &mut pulse,
        telling,
        session.curtain(),
        interrupts,
        console,
    )
    .await;
    console.clear_live();
    if let Ok(Played::Interrupted(interrupt)) = &played {
        console.say(&format!("{}: ending the agents\n", interrupt.name()));
    }
    session
        .close(StopReason::ConversationClosed, interrupts)
        .await;
    match played {
        Ok(Played::Through(seen)) => {
            if telling == Telling::Aloud {
                let shown = shown_files(&workspace, &seen)?;
                console.print(&ending(&seen, &shown, console.look().out))?;
            }
            Ok(Told::Through(Box::new(seen)))
        }
        // On a rung that does not hold it, the process that was left behind is told to end, too.
        Ok(Played::Interrupted(interrupt)) => {
            clear(&mut pulse).await;
            Ok(Told::Interrupted(interrupt))
        }
        Err(error) => {
            clear(&mut pulse).await;
            Err(error)
        }
    }
}

async fn clear(pulse: &mut Pulse) {
    match pulse.end().await {
        Ok(true) => {}
        Ok(false) => tracing::warn!("the process that was left behind ends within a minute"),
        Err(error) => tracing::warn!(%error, "the process that was left behind can't be told"),
    }
}

fn last_word(
    args: &DemoArgs,
    seen: &Seen,
    kept: Option<&Path>,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let untruths = seen.untruths();
    let text = match args.json {
        true => format!("{}\n", value_of(seen, &untruths, kept)),
        false => look_next(
            &untruths,
            seen.took_ms,
            &own_name(),
            kept,
            console.look().out,
        ),
    };
    console.print(&text)?;
    Ok(match untruths.is_empty() {
        true => exit::SUCCESS,
        false => exit::FAILURE,
    })
}

fn value_of(seen: &Seen, untruths: &[String], kept: Option<&Path>) -> serde_json::Value {
    json!({
        "success": untruths.is_empty(),
        "untruths": untruths,
        "took_ms": seen.took_ms,
        "left_behind": {"rung": seen.rung(), "fate": seen.fate.word()},
        "agents": seen.results,
        "workspace": kept,
    })
}

/// How this executable was called, so that what is shown can be typed.
fn own_name() -> String {
    std::env::args_os()
        .next()
        .map_or_else(|| "leader".to_owned(), |name| name.display().to_string())
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

/// The delivered files that the story shows, as far as they are there.
fn shown_files(workspace: &Path, seen: &Seen) -> Result<Vec<Shown>, ToolError> {
    let mut shown = Vec::new();
    for role in Role::ALL {
        if let (Some(name), Some(result)) = (role.shown_file(), seen.result(role))
            && result.deliverables_files.iter().any(|file| file == name)
        {
            let path = PathBuf::from(&result.deliverables_dir).join(name);
            shown.push(Shown {
                role,
                text: read_some(&workspace.join(&path))?,
                path,
            });
        }
    }
    Ok(shown)
}

fn read_some(path: &Path) -> Result<String, ToolError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(SHOWN_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("`{}` could not be read: {error}", path.display()),
            )
        })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::demo::truth::test_kit::seen;

    #[test]
    fn the_script_is_the_only_model_and_lies_where_the_agents_see_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = prepare(dir.path()).unwrap();
        let settings = demo_settings(&workspace).unwrap();
        assert!(settings.models.is_empty());
        let model = settings.default_model.unwrap();
        let script = PathBuf::from(model.strip_prefix("script:").unwrap());
        assert_eq!(script, workspace.join(SCRIPT));
        assert!(script.exists());
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

    #[test]
    fn a_program_gets_what_was_seen() {
        let story = seen("pidns");
        let value = value_of(&story, &story.untruths(), None);
        assert_eq!(value["success"], true);
        assert_eq!(
            value["left_behind"],
            json!({"rung": "pidns", "fate": "died_with_its_agent"})
        );
        assert_eq!(value["agents"].as_array().unwrap().len(), 3);
        assert_eq!(value["workspace"], serde_json::Value::Null);
    }
}
