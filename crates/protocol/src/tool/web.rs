//! Parameters of the tools for the web.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::worker::out_of_range;
use crate::error::ToolError;
use crate::limits;
use crate::tool::Params;

/// Parameters of [`super::worker::WEB_SEARCH`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WebSearchParams {
    /// What to search for.
    pub query: String,
    /// Most results, default 5.
    #[serde(default)]
    #[schemars(range(min = 1, max = 20))]
    pub max_results: Option<i64>,
}

impl Params for WebSearchParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.query.trim().is_empty() {
            return Err(out_of_range("query", "a text of at least one character"));
        }
        if self.query.chars().count() > limits::WEB_QUERY_CHARS_MAX {
            let most = limits::WEB_QUERY_CHARS_MAX;
            return Err(out_of_range("query", &format!("at most {most} characters")));
        }
        match self.max_results {
            Some(n) if !(1..=20).contains(&n) => Err(out_of_range("max_results", "1 to 20")),
            _ => Ok(()),
        }
    }
}

/// Which part of a page [`super::worker::EXTRACT_WEBPAGE`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PagePart {
    /// The main text.
    Main,
    /// All of it.
    Full,
}

/// Parameters of [`super::worker::EXTRACT_WEBPAGE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ExtractWebpageParams {
    /// The page's address.
    pub url: String,
    /// Most characters to show.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_chars: Option<i64>,
    /// `main` text (default) or `full` page.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["main", "full"]))]
    pub part: Option<PagePart>,
}

impl Params for ExtractWebpageParams {
    fn check(&self) -> Result<(), ToolError> {
        match self.max_chars {
            Some(n) if n < 1 => Err(out_of_range("max_chars", "1 or more")),
            _ => Ok(()),
        }
    }
}
