//! Tavily: `POST /search` with a bearer key.

use reqwest::{Client, RequestBuilder, Url};
use serde_json::json;

/// The question.
pub(super) fn request(
    client: &Client,
    base: &Url,
    key: Option<&str>,
    query: &str,
    results: usize,
) -> RequestBuilder {
    let mut url = base.clone();
    let path = format!("{}/search", base.path().trim_end_matches('/'));
    url.set_path(&path);
    let request = client
        .post(url)
        .json(&json!({"query": query, "max_results": results}));
    match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}
