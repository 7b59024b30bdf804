//! `web_search`: results of the configured search engine.

use std::time::Duration;

use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{WEB_SEARCH, WebSearchParams};
use serde_json::Value;

use super::web::{Hit, search};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, limits, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct WebSearch;

impl Tool for WebSearch {
    fn name(&self) -> &'static str {
        WEB_SEARCH
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::SearchingWeb, &subject::of(arguments, "query"))
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
    let params: WebSearchParams = parse_text(arguments)?;
    let results = params
        .max_results
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(limits::HITS_DEFAULT);
    let hits = search(&context.web, &params.query, results, within).await?;
    Ok(ToolOutput {
        value: Value::String(tell(&hits)),
        tally: Tally {
            searches: 1,
            ..Tally::default()
        },
    })
}

fn tell(hits: &[Hit]) -> String {
    if hits.is_empty() {
        return "[no results]".to_owned();
    }
    let told: Vec<String> = hits
        .iter()
        .enumerate()
        .map(|(at, hit)| {
            let lines = [hit.title.as_str(), hit.url.as_str(), hit.snippet.as_str()];
            let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            format!("{}. {}", at + 1, lines.join("\n   "))
        })
        .collect();
    told.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use protocol::error::ErrorCode;

    #[test]
    fn results_are_numbered_lines() {
        let hit = |title: &str, snippet: &str| Hit {
            title: title.to_owned(),
            url: "https://one.example/".to_owned(),
            snippet: snippet.to_owned(),
        };
        assert_eq!(
            tell(&[hit("One", "about one"), hit("", "")]),
            "1. One\n   https://one.example/\n   about one\n2. https://one.example/"
        );
        assert_eq!(tell(&[]), "[no results]");
    }

    #[tokio::test]
    async fn without_an_engine_it_says_what_to_configure() {
        let ground = Ground::new();
        let error = WebSearch
            .call(&ground.context, r#"{"query":"q"}"#, Duration::from_secs(5))
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::WebSearchUnavailable);
    }
}
