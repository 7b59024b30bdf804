//! A question to the configured search engine, and what every engine has in common.

use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::web::{Engine, SearchSpec};
use reqwest::{RequestBuilder, StatusCode, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::fetch::root_cause;
use super::{Web, searxng, tavily};
use crate::model::client;
use crate::tools::limits;

/// One result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// Asks the engine for so many results; it may give fewer.
///
/// # Errors
/// `web_search_unavailable` without an engine; otherwise what the engine says, without its key.
pub(crate) async fn search(
    web: &Web,
    query: &str,
    results: usize,
    within: Duration,
) -> Result<Vec<Hit>, ToolError> {
    let Some(spec) = web.spec.as_ref().and_then(|spec| spec.search.as_ref()) else {
        return Err(ToolError::new(
            ErrorCode::WebSearchUnavailable,
            "no search engine is configured",
        )
        .hint(
            "go on without; whoever runs this agent can set `search` and `base_url` in the \
             section [web] of the configuration",
        ));
    };
    let within = within.min(Duration::from_secs(limits::SEARCH_ENGINE_SECONDS_MAX));
    let asked = timeout(within, ask(spec, web.key.as_deref(), query, results)).await;
    let late = || failed(spec, &format!("did not answer in {} s", within.as_secs()));
    let answer = asked.map_err(|_| late())??;
    let hits = hits(&answer).ok_or_else(|| failed(spec, "answered with what is no result"))?;
    Ok(hits.into_iter().take(results).collect())
}

async fn ask(
    spec: &SearchSpec,
    key: Option<&str>,
    query: &str,
    results: usize,
) -> Result<Value, ToolError> {
    let base = Url::parse(&spec.base_url)
        .map_err(|error| failed(spec, &format!("has a wrong `base_url`: {error}")))?;
    let connect = Duration::from_secs(limits::WEB_CONNECT_SECONDS);
    let client = client(&base, connect)
        .map_err(|error| failed(spec, &format!("can't be asked: {error}")))?;
    let request: RequestBuilder = match spec.engine {
        Engine::Searxng => searxng::request(&client, &base, key, query),
        Engine::Tavily => tavily::request(&client, &base, key, query, results),
    };
    let mut response = request
        .send()
        .await
        .map_err(|error| failed(spec, &format!("can't be reached: {}", root_cause(&error))))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| failed(spec, &format!("breaks off: {}", root_cause(&error))))?
    {
        if body.len() + chunk.len() > limits::SEARCH_ENGINE_BYTES_MAX {
            return Err(failed(spec, "answers without end"));
        }
        body.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        return Err(refused(spec, status));
    }
    serde_json::from_slice(&body).map_err(|_| failed(spec, "answered with what is no JSON"))
}

/// Both engines of this version, and most others, list results in one way.
fn hits(answer: &Value) -> Option<Vec<Hit>> {
    let text = |value: &Value, most: usize| -> String {
        let words = value.as_str().unwrap_or_default();
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(most).collect()
    };
    let results = answer["results"].as_array()?;
    let hits = results.iter().filter(|result| result["url"].is_string());
    Some(
        hits.map(|result| Hit {
            title: text(&result["title"], limits::HIT_TITLE_CHARS_MAX),
            url: text(&result["url"], limits::WEB_URL_BYTES_MAX),
            snippet: text(&result["content"], limits::HIT_SNIPPET_CHARS_MAX),
        })
        .collect(),
    )
}

fn refused(spec: &SearchSpec, status: StatusCode) -> ToolError {
    let error = failed(spec, &format!("answers {status}"));
    let hint = match (status.as_u16(), spec.engine) {
        (403, Engine::Searxng) => {
            "its server gives no JSON: `formats` under `search` in its settings must hold `json`"
        }
        (401 | 403, _) => "its key is wrong or not set: see `api_key_env` in the section [web]",
        (429, _) => "too many questions: wait a while, or go on without",
        _ => "try again later, or go on without",
    };
    ToolError {
        hint: hint.to_owned(),
        ..error
    }
}

fn failed(spec: &SearchSpec, what: &str) -> ToolError {
    let engine = spec.engine.as_str();
    ToolError::new(
        ErrorCode::WebFailed,
        format!("the search engine {engine} {what}"),
    )
    .hint("try again later, or go on without")
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
