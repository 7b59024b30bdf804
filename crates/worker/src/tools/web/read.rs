//! One page from its address to its text.

use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};

use super::fetch::{Page, fetch, read_url};
use super::text::{Part, Readable, readable};
use crate::tools::{blocking, limits};

/// A page as a model may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Where it came from in the end.
    pub(crate) address: String,
    /// Empty where the page says none.
    pub(crate) title: String,
    /// Markdown, or the text as it is.
    pub(crate) text: String,
    /// Whether the page was longer than what is read of one.
    pub(crate) cut: bool,
}

/// Reads the page at an address, its main text or all of it. `allowed` names the hosts whose
/// addresses need not be public.
///
/// # Errors
/// When the address is refused, the page can't be had, or it is no text.
pub(crate) async fn page(
    address: &str,
    full: bool,
    allowed: &[String],
    within: Duration,
) -> Result<Shown, ToolError> {
    let page = fetch(read_url(address)?, allowed, within).await?;
    let part = if full { Part::Full } else { Part::Main };
    let parse = Duration::from_secs(limits::WEB_PARSE_SECONDS_MAX).min(within);
    blocking::read(parse, "reading the page", move || show(&page, part)).await
}

fn show(page: &Page, part: Part) -> Result<Shown, ToolError> {
    let address = page.url.to_string();
    let Readable { title, text } = readable(&page.content_type, &page.body, &address, part)
        .map_err(|why| {
            ToolError::new(ErrorCode::BinaryFile, format!("`{address}` {why}"))
                .hint("only pages of text can be read; look for one that says the same")
        })?;
    Ok(Shown {
        address,
        title,
        text,
        cut: page.cut,
    })
}
