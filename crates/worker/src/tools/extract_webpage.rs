//! `extract_webpage`: a public page as Markdown.

use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{EXTRACT_WEBPAGE, ExtractWebpageParams, PagePart};
use serde_json::Value;

use super::web::{Shown, page};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, limits, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct ExtractWebpage;

impl Tool for ExtractWebpage {
    fn name(&self) -> &'static str {
        EXTRACT_WEBPAGE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Reading, &subject::of(arguments, "url"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(run(context, arguments, within))
    }
}

async fn run(context: &ToolContext, arguments: &str, within: Duration) -> ToolResult {
    let params: ExtractWebpageParams = parse_text(arguments)?;
    let Some(spec) = context.web.spec.as_ref().filter(|spec| spec.pages) else {
        return Err(ToolError::new(
            ErrorCode::NotAvailable,
            "this agent may not read pages of the web",
        )
        .hint(
            "go on without; whoever runs this agent can add a section [web] to the configuration",
        ));
    };
    let full = params.part == Some(PagePart::Full);
    let shown = page(&params.url, full, &spec.allow_hosts, within).await?;
    let most = params
        .max_chars
        .and_then(|chars| usize::try_from(chars).ok())
        .unwrap_or(limits::WEB_CHARS_DEFAULT)
        .min(limits::WEB_CHARS_MAX);
    Ok(ToolOutput {
        value: Value::String(tell(&shown, most)),
        tally: Tally {
            web_pages: 1,
            ..Tally::default()
        },
    })
}

fn tell(page: &Shown, chars_max: usize) -> String {
    let chars = page.text.chars().count();
    let mut told = format!("[page {}", page.address);
    if !page.title.is_empty() {
        told.push_str(&format!(", titled {:?}", page.title));
    }
    if page.cut {
        told.push_str(&format!(
            ", only its first {} bytes",
            limits::WEB_PAGE_BYTES_MAX
        ));
    }
    told.push_str("]\n");
    if page.text.is_empty() {
        told.push_str("[no text; the page may be made by scripts alone]");
        return told;
    }
    let end = page.text.char_indices().nth(chars_max);
    told.push_str(&page.text[..end.map_or(page.text.len(), |(at, _)| at)]);
    if end.is_some() {
        told.push_str(&format!(
            "\n[cut at {chars_max} of {chars} characters; `max_chars` shows up to {}]",
            limits::WEB_CHARS_MAX
        ));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use crate::tools::web::Web;
    use protocol::web::WebSpec;
    use serde_json::json;

    const PLENTY: Duration = Duration::from_secs(20);

    fn shown(text: &str, cut: bool) -> Shown {
        Shown {
            address: "https://example.org/".to_owned(),
            title: "A \"title\"".to_owned(),
            text: text.to_owned(),
            cut,
        }
    }

    #[test]
    fn a_page_is_told_with_its_place_and_cut_at_characters() {
        let head = "[page https://example.org/, titled \"A \\\"title\\\"\"";
        assert_eq!(tell(&shown("文字", false), 2), format!("{head}]\n文字"));
        assert_eq!(
            tell(&shown("文字", true), 1),
            format!(
                "{head}, only its first {} bytes]\n文\n[cut at 1 of 2 characters; `max_chars` \
                 shows up to {}]",
                limits::WEB_PAGE_BYTES_MAX,
                limits::WEB_CHARS_MAX
            )
        );
        assert!(tell(&shown("", false), 5).ends_with("made by scripts alone]"));
    }

    #[tokio::test]
    async fn it_is_for_those_who_have_the_web_and_for_public_pages() {
        let mut ground = Ground::new();
        let call = |url: &str| json!({"url": url}).to_string();
        let local = call("http://127.0.0.1:9/");
        let error = ExtractWebpage
            .call(&ground.context, &local, PLENTY)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAvailable);
        ground.context.web = std::sync::Arc::new(Web {
            spec: Some(WebSpec {
                pages: true,
                ..WebSpec::default()
            }),
            key: None,
        });
        let error = ExtractWebpage
            .call(&ground.context, &local, PLENTY)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::AddressRefused);
    }
}
