//! Parameters, results and JSON Schemas of the tools, and how loosely parameters are read.

pub mod leader;
pub mod need;
pub mod parse;
pub mod schema;
pub mod web;
pub mod worker;

pub use parse::{Params, parse_params, parse_params_by, parse_text};
pub use schema::schema_of;

use serde_json::Value;

/// One tool as both sides know it. Its description lies in the prompts, `tools/{name}.md`.
#[derive(Debug, Clone, Copy)]
pub struct ToolDef {
    /// Its name, exactly as models call it.
    pub name: &'static str,
    /// Whether it changes nothing, so that calls of one turn may run side by side.
    pub read_only: bool,
    /// The schema of its parameters.
    pub schema: fn() -> Value,
}
