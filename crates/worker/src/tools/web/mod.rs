//! The web: pages as text, behind a guard over addresses, and search engines.

mod address;
mod engine;
mod fetch;
mod html;
mod read;
mod searxng;
mod tavily;
mod text;

use protocol::web::WebSpec;

pub(crate) use engine::{Hit, search};
pub(crate) use read::{Shown, page};

/// What an agent has of the web.
#[derive(Clone, Default)]
pub struct Web {
    /// As configured; none for an agent without it.
    pub spec: Option<WebSpec>,
    /// The key of the search engine.
    pub key: Option<String>,
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = if self.key.is_some() { "set" } else { "none" };
        f.debug_struct("Web")
            .field("spec", &self.spec)
            .field("key", &key)
            .finish()
    }
}
