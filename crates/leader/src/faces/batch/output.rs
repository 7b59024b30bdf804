//! The three ways in which a batch prints what it came to, and its exit code.

use protocol::error::ToolError;
use protocol::manifest::{Manifest, ManifestItem};
use serde_json::{Value, json};

use crate::faces::console::Console;
use crate::faces::run::output::Output;
use crate::os::terminal;
use crate::render::batch::batch_text;

/// Columns where stdout is no terminal.
const PLAIN_COLUMNS: usize = 200;

/// Prints that an item is settled, where events are wanted.
///
/// # Errors
/// When stdout can't be written.
pub fn print_settled(
    output: Output,
    record: &ManifestItem,
    console: &mut Console<'_>,
) -> Result<(), ToolError> {
    match output {
        Output::StreamJson => {
            let line = json!({"event": "item.settled", "item": record});
            console.print(&format!("{line}\n"))
        }
        Output::Text | Output::Json => Ok(()),
    }
}

/// Prints the end.
///
/// # Errors
/// When stdout can't be written.
pub fn print_end(
    output: Output,
    manifest: &Manifest,
    shown: Option<&str>,
    seconds: u64,
    console: &mut Console<'_>,
) -> Result<(), ToolError> {
    let value = || serde_json::to_value(manifest).unwrap_or(Value::Null);
    match output {
        Output::Text => {
            let width = terminal::columns(std::io::stdout()).unwrap_or(PLAIN_COLUMNS);
            let mut text = batch_text(manifest, seconds, console.look().out, width);
            if let Some(shown) = shown {
                text.push_str(&format!(
                    "manifest: {}\n",
                    crate::render::width::plain(shown)
                ));
            }
            console.print(&text)
        }
        Output::Json => console.print(&format!("{}\n", value())),
        Output::StreamJson => {
            let line = json!({"event": "result", "result": value()});
            console.print(&format!("{line}\n"))
        }
    }
}
