//! `leader trust`: what the workspace's own file wants beyond tightening, and its acceptance.

use std::io::Read;

use protocol::config::{FileTrust, Wish, fingerprint};
use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use serde_json::{Value, json};

use crate::cli::TrustArgs;
use crate::faces::console::{Console, code_of};
use crate::faces::surroundings::Surroundings;
use crate::os::clock;
use crate::render::trust::{list_text, wishes_text};
use crate::settings::{WORKSPACE_FILE, WorkspaceFile};
use crate::store::trust::{NoStore, TrustStore};

/// Of the answer to a question, in bytes.
const ANSWER_BYTES_MAX: usize = 64;

/// Who can be asked.
pub enum Asked<'a> {
    /// A person at a terminal.
    Person(&'a mut dyn Read),
    /// Nobody.
    Nobody,
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Asked::Person(_) => "Person",
            Asked::Nobody => "Nobody",
        })
    }
}

/// Shows, accepts, takes back or lists.
///
/// # Errors
/// When the file can't be used, nobody can be asked, or the acceptance can't be kept.
pub fn trust(
    args: &TrustArgs,
    surroundings: &Surroundings,
    asked: Asked<'_>,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let variables = &surroundings.variables;
    let store = TrustStore::of(|name| variables.lookup(name), &surroundings.workspace)
        .map_err(|why| no_store(&why))?;
    if args.list {
        return list(args, &store, console);
    }
    if args.revoke {
        return revoke(args, surroundings, &store, console);
    }
    let view = surroundings.workspace_file()?;
    if !args.json {
        console.show(&wishes_text(&view, console.look().out), false)?;
    }
    let accepts = match (&view.trust, view.wishes.is_empty(), args.show) {
        // Nothing is left to be decided.
        (_, true, _) | (_, _, true) | (FileTrust::Accepted { .. }, _, _) => false,
        (FileTrust::Never | FileTrust::Changed { .. }, false, false) => {
            agrees(args, asked, console)?
        }
    };
    if accepts {
        accept(surroundings, &view, &store)?;
    }
    let text = match (args.json, accepts) {
        (true, _) => format!("{}\n", view_value(&view, accepts)),
        (false, true) => format!("accepted: {}\n", view.path.display()),
        (false, false) => String::new(),
    };
    console.show(&text, args.json)?;
    Ok(exit::SUCCESS)
}

/// Whether the content that was shown is accepted.
fn agrees(
    args: &TrustArgs,
    asked: Asked<'_>,
    console: &mut Console<'_>,
) -> Result<bool, ToolError> {
    if args.yes {
        return Ok(true);
    }
    let Asked::Person(input) = asked else {
        return Err(ToolError::new(
            ErrorCode::InvalidParameters,
            "nothing was accepted: nobody can be asked, for stdin or stderr is no terminal",
        )
        .hint("`leader trust --yes` accepts without asking, `leader trust --show` only shows"));
    };
    if args.json {
        return Ok(false);
    }
    console.say("Accept exactly this content? [y/N] ");
    let answer = read_line(input).map_err(|error| {
        ToolError::new(code_of(&error), format!("no answer could be read: {error}"))
    })?;
    let agreed = is_yes(&answer);
    if !agreed {
        console.say("not accepted\n");
    }
    Ok(agreed)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// One line, byte by byte: what stands behind it is not ours.
fn read_line(input: &mut dyn Read) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < ANSWER_BYTES_MAX && input.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Remembers the content that was shown, once it is known that it can be used.
fn accept(
    surroundings: &Surroundings,
    view: &WorkspaceFile,
    store: &TrustStore,
) -> Result<(), ToolError> {
    let Some(file) = &view.file else {
        return Ok(());
    };
    surroundings.check_accepted(file).map_err(|error| {
        ToolError::new(
            error.code,
            format!(
                "not accepted, for it could not be used then: {}",
                error.message
            ),
        )
        .hint(error.hint)
    })?;
    store
        .accept(&view.path, file.text.as_bytes(), clock::timestamp())
        .map_err(|error| {
            let path = store.record_path(&view.path);
            ToolError::new(
                code_of(&error),
                format!(
                    "the acceptance could not be kept in `{}`: {error}",
                    path.display()
                ),
            )
            .hint("make that folder writable, or name another with XDG_STATE_HOME")
        })
}

fn view_value(view: &WorkspaceFile, accepted_now: bool) -> Value {
    let (word, at) = match &view.trust {
        FileTrust::Never => ("never", None),
        FileTrust::Accepted { at } => ("accepted", Some(at)),
        FileTrust::Changed { at } => ("changed", Some(at)),
    };
    let word = if accepted_now { "accepted" } else { word };
    let file = view.file.as_ref();
    json!({
        "success": true,
        "file": view.path,
        "present": file.is_some(),
        "sha256": file.map(|file| fingerprint(file.text.as_bytes())),
        "trust": word,
        "accepted_before": at,
        "accepted_now": accepted_now,
        "wishes": view.wishes.iter().map(wish_value).collect::<Vec<Value>>(),
    })
}

fn wish_value(wish: &Wish) -> Value {
    let mut value = json!(wish);
    value["meaning"] = json!(wish.meaning());
    value
}

fn revoke(
    args: &TrustArgs,
    surroundings: &Surroundings,
    store: &TrustStore,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let path = surroundings.workspace.join(WORKSPACE_FILE);
    let was = store.revoke(&path).map_err(|error| {
        let record = store.record_path(&path);
        ToolError::new(
            code_of(&error),
            format!("`{}` could not be removed: {error}", record.display()),
        )
    })?;
    let shown = path.display();
    let text = match (args.json, was) {
        (true, _) => format!(
            "{}\n",
            json!({"success": true, "file": path, "revoked": was})
        ),
        (false, true) => format!("not trusted any more: {shown}\n"),
        (false, false) => format!("was not trusted: {shown}\n"),
    };
    console.show(&text, args.json)?;
    Ok(exit::SUCCESS)
}

fn list(args: &TrustArgs, store: &TrustStore, console: &mut Console<'_>) -> Result<u8, ToolError> {
    let records = store.list().map_err(|error| {
        ToolError::new(
            code_of(&error),
            format!("the acceptances could not be read: {error}"),
        )
    })?;
    let text = match args.json {
        true => format!("{}\n", json!({"success": true, "files": records})),
        false => list_text(&records),
    };
    console.show(&text, args.json)?;
    Ok(exit::SUCCESS)
}

fn no_store(why: &NoStore) -> ToolError {
    let hint = match why {
        NoStore::NoHome => "set HOME, or XDG_STATE_HOME to an absolute path",
        NoStore::InWorkspace(_) => {
            "work in a directory below it, or name another state folder with XDG_STATE_HOME"
        }
    };
    ToolError::new(ErrorCode::InvalidParameters, why.to_string()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, wanted) in [
            ("y\n", true),
            ("YES\r\n", true),
            (" y", true),
            ("", false),
            ("\n", false),
            ("n\ny\n", false),
            ("yeah\n", false),
        ] {
            let mut input = answer.as_bytes();
            assert_eq!(
                is_yes(&read_line(&mut input).unwrap()),
                wanted,
                "{answer:?}"
            );
        }
        let endless = "y".repeat(2 * ANSWER_BYTES_MAX);
        let line = read_line(&mut endless.as_bytes()).unwrap();
        assert_eq!(line.len(), ANSWER_BYTES_MAX);
    }

    #[test]
    fn what_was_typed_behind_the_answer_is_left_alone() {
        let mut input = "y\nrest".as_bytes();
        read_line(&mut input).unwrap();
        assert_eq!(input, b"rest");
    }
}
