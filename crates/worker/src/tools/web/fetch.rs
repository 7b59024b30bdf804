//! Fetching one page: every hop is looked up first, checked, and connected to at the address that
//! was checked, so that a name can't mean one address for the check and another for the request.
//!
//! No proxy of the environment is used: a proxy would look the name up once more, out of sight.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::address::refusal;
use crate::io::clock;
use crate::model::client_to;
use crate::tools::limits;

/// What is asked for.
const ACCEPTED: &str = "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.8";

/// A page as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// Where it came from in the end.
    pub(super) url: Url,
    /// Its type and parameters, as the server says; empty when it says nothing.
    pub(super) content_type: String,
    /// At most [`limits::WEB_PAGE_BYTES_MAX`].
    pub(super) body: Vec<u8>,
    /// Whether there was more of it.
    pub(super) cut: bool,
}

/// Reads an address as a model writes it.
///
/// # Errors
/// When it is none, or not for the web.
pub(super) fn read_url(text: &str) -> Result<Url, ToolError> {
    let wrong = |why: &str| {
        ToolError::new(ErrorCode::InvalidParameters, format!("`url` {why}"))
            .hint("give a whole address, such as https://example.org/page")
    };
    if text.len() > limits::WEB_URL_BYTES_MAX {
        return Err(wrong("is too long"));
    }
    let url = Url::parse(text.trim()).map_err(|error| wrong(&format!("is no address: {error}")))?;
    check_url(&url).map_err(|why| wrong(&why))?;
    Ok(url)
}

fn check_url(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "must begin with http:// or https://, not {}:",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must hold no user name and no password".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".to_owned());
    }
    Ok(())
}

/// Fetches a page, following at most [`limits::WEB_REDIRECTS_MAX`] redirects. `allowed` names the
/// hosts whose addresses need not be public.
///
/// # Errors
/// When an address is refused, the server can't be reached or answers with a failure, or it takes
/// longer than `within`.
pub(super) async fn fetch(
    url: Url,
    allowed: &[String],
    within: Duration,
) -> Result<Page, ToolError> {
    let within = within.min(Duration::from_secs(limits::WEB_SECONDS_MAX));
    let deadline = clock::after(within);
    let late = |url: &Url| {
        ToolError::new(
            ErrorCode::TimedOut,
            format!("`{url}` took longer than {} s", within.as_secs()),
        )
        .hint("try another page, or later")
    };
    let mut url = url;
    for _ in 0..=limits::WEB_REDIRECTS_MAX {
        let hop = timeout_at(deadline, hop(&url, allowed, deadline)).await;
        match hop.map_err(|_| late(&url))?? {
            Hop::Page(page) => return Ok(page),
            Hop::To(next) => url = next,
        }
    }
    Err(failed(
        &url,
        &format!("redirects more than {} times", limits::WEB_REDIRECTS_MAX),
    ))
}

enum Hop {
    Page(Page),
    To(Url),
}

async fn hop(url: &Url, allowed: &[String], deadline: Instant) -> Result<Hop, ToolError> {
    let (host, addresses) = look_up(url, allowed).await?;
    let connect = Duration::from_secs(limits::WEB_CONNECT_SECONDS);
    let client = client_to(&host, &addresses, connect)
        .map_err(|error| failed(url, &format!("can't be fetched: {error}")))?;
    let sent = client.get(url.clone()).header(ACCEPT, ACCEPTED).send();
    let response = sent
        .await
        .map_err(|error| failed(url, &format!("can't be reached: {}", root_cause(&error))))?;
    let status = response.status();
    if let Some(next) = redirect(url, status, response.headers())? {
        return Ok(Hop::To(next));
    }
    if !status.is_success() {
        let code = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => ErrorCode::NotFound,
            _ => ErrorCode::WebFailed,
        };
        return Err(ToolError::new(code, format!("`{url}` answers {status}"))
            .hint("check the address, or use another source"));
    }
    let header = |name| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    if let Some(encoding) = header(CONTENT_ENCODING).filter(|e| !e.eq_ignore_ascii_case("identity"))
    {
        // Nothing compressed was asked for, so that no small answer can become a large one.
        return Err(failed(url, &format!("is packed with `{encoding}`")));
    }
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let (body, cut) = read_body(url, response, deadline).await?;
    Ok(Hop::Page(Page {
        url: url.clone(),
        content_type,
        body,
        cut,
    }))
}

/// The host and the addresses that may be connected to.
async fn look_up(url: &Url, allowed: &[String]) -> Result<(String, Vec<SocketAddr>), ToolError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    let number = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = match number.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host.as_str(), port))
            .await
            .map_err(|error| failed(url, &format!("has a host that can't be looked up: {error}")))?
            .take(limits::WEB_ADDRESSES_MAX)
            .collect(),
    };
    if addresses.is_empty() {
        return Err(failed(url, "has a host without an address"));
    }
    let is_allowed = allowed.iter().any(|name| {
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case(number)
    });
    let refused = addresses
        .iter()
        .find_map(|address| Some((address.ip(), refusal(address.ip())?)));
    match refused {
        Some((address, why)) if !is_allowed => Err(ToolError::new(
            ErrorCode::AddressRefused,
            format!("`{url}` is refused: its host is {address}, {why}"),
        )
        .hint(
            "only public pages can be read; whoever runs this agent can name the host in \
             `web.allow_hosts`",
        )),
        _ => Ok((host, addresses)),
    }
}

/// Where an answer sends to, if it does.
fn redirect(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, ToolError> {
    let moved = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = headers.get(LOCATION).filter(|_| moved) else {
        return Ok(None);
    };
    let next = location
        .to_str()
        .ok()
        .and_then(|location| url.join(location).ok())
        .ok_or_else(|| failed(url, "redirects to what is no address"))?;
    check_url(&next).map_err(|why| failed(url, &format!("redirects to an address that {why}")))?;
    Ok(Some(next))
}

async fn read_body(
    url: &Url,
    mut response: reqwest::Response,
    deadline: Instant,
) -> Result<(Vec<u8>, bool), ToolError> {
    let mut body = Vec::new();
    loop {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                let room = limits::WEB_PAGE_BYTES_MAX - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return Ok((body, true));
                }
            }
            Ok(Ok(None)) => return Ok((body, false)),
            Ok(Err(error)) if body.is_empty() => {
                let cause = root_cause(&error);
                return Err(failed(url, &format!("breaks off at once: {cause}")));
            }
            // The beginning of a page is worth more than a failure.
            Ok(Err(_)) | Err(_) => return Ok((body, true)),
        }
    }
}

fn failed(url: &Url, what: &str) -> ToolError {
    ToolError::new(ErrorCode::WebFailed, format!("`{url}` {what}"))
        .hint("check the address, or use another source")
}

/// The innermost reason, for the outer ones only repeat the address.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
