//! SearXNG: `GET /search?q=…&format=json`. A server gives JSON only where its settings list it.

use reqwest::{Client, RequestBuilder, Url};

/// The question. The key, where a server stands behind one, is a bearer token.
pub(super) fn request(
    client: &Client,
    base: &Url,
    key: Option<&str>,
    query: &str,
) -> RequestBuilder {
    let mut url = base.clone();
    let path = format!("{}/search", base.path().trim_end_matches('/'));
    url.set_path(&path);
    url.query_pairs_mut()
        .append_pair("q", query)
        .append_pair("format", "json");
    let request = client.get(url);
    match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}
