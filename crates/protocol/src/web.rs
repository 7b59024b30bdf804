//! What agents may have of the web: a search engine, and pages.

use serde::{Deserialize, Serialize};

use crate::status::words;

words!(
    /// A search engine.
    Engine {
        /// A SearXNG server that gives JSON.
        Searxng = "searxng",
        /// Tavily.
        Tavily = "tavily",
    }
);

/// `[web]`, resolved. It names where the key is, never the key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSpec {
    /// The engine; none leaves `web_search` out.
    #[serde(default)]
    pub search: Option<SearchSpec>,
    /// Whether pages may be read.
    #[serde(default)]
    pub pages: bool,
    /// Hosts whose pages may be read although their addresses are not public.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
}

/// Where to search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSpec {
    /// The engine.
    pub engine: Engine,
    /// Up to and not including `/search`.
    pub base_url: String,
    /// The environment variable that holds the key; none for engines that want none.
    #[serde(default)]
    pub api_key_env: Option<String>,
}
