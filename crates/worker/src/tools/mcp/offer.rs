//! What a server offers, read from its list of tools.

use protocol::mcp::tool_names;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::session::{Fault, Session};
use crate::model::OfferedTool;
use crate::tools::limits;

/// One tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// Its name at the server.
    pub(super) name: String,
    /// What a model is told of it, with the name that a model calls.
    pub(super) offered: OfferedTool,
}

/// Asks for all tools, page by page.
///
/// # Errors
/// As a request's.
pub(super) async fn list<R, W>(
    session: &mut Session<R, W>,
    server: &str,
) -> Result<Vec<Found>, Fault>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut raw = Vec::new();
    let mut params = json!({});
    for _ in 0..limits::MCP_PAGES_MAX {
        let mut page = session.request("tools/list", params).await?;
        let Value::Array(tools) = page["tools"].take() else {
            return Err(Fault::Odd("its list of tools is none".to_owned()));
        };
        raw.extend(tools);
        let cursor = page["nextCursor"].take();
        if !cursor.is_string() || raw.len() >= limits::MCP_TOOLS_MAX {
            break;
        }
        params = json!({"cursor": cursor});
    }
    if raw.len() > limits::MCP_TOOLS_MAX {
        tracing::warn!(
            server,
            most = limits::MCP_TOOLS_MAX,
            "an MCP server has too many tools"
        );
        raw.truncate(limits::MCP_TOOLS_MAX);
    }
    Ok(found(raw, server))
}

/// The tools of a list in its order, without those that have no name of their own or whose schema
/// is no object or too large to stand in each request.
fn found(raw: Vec<Value>, server: &str) -> Vec<Found> {
    let mut plain: Vec<(String, String, Value)> = Vec::new();
    for mut tool in raw {
        let schema = match tool["inputSchema"].take() {
            Value::Null => json!({"type": "object", "properties": {}}),
            schema => schema,
        };
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        let known = plain.iter().any(|(earlier, _, _)| *earlier == name);
        let fits = schema.is_object() && schema.to_string().len() <= limits::MCP_SCHEMA_BYTES_MAX;
        if name.is_empty() || known || !fits {
            tracing::warn!(server, tool = name, "a tool of an MCP server is left out");
            continue;
        }
        let text = tool["description"].as_str().unwrap_or_default();
        let text = text.chars().take(limits::MCP_DESCRIPTION_CHARS_MAX);
        plain.push((name, text.collect(), schema));
    }
    let names: Vec<String> = plain.iter().map(|(name, _, _)| name.clone()).collect();
    let called = tool_names(server, &names);
    plain
        .into_iter()
        .zip(called)
        .map(|((name, description, parameters), called)| Found {
            name,
            offered: OfferedTool {
                name: called,
                description,
                parameters,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: &[Value]) -> String {
        let line =
            |(at, page): (usize, &Value)| format!("{}\n", json!({"id": at + 1, "result": page}));
        pages.iter().enumerate().map(line).collect()
    }

    #[tokio::test]
    async fn all_pages_are_read_and_what_is_no_tool_is_left_out() {
        let schema = json!({"type": "object"});
        let text = pages(&[
            json!({"tools": [
                {"name": "one", "description": "d".repeat(9_000), "inputSchema": schema},
                {"name": "one", "inputSchema": schema},
                {"name": "", "inputSchema": schema},
                {"name": "odd", "inputSchema": [1]},
                {"name": "vast", "inputSchema": {"x": "y".repeat(limits::MCP_SCHEMA_BYTES_MAX)}},
            ], "nextCursor": "2"}),
            json!({"tools": [{"name": "two"}]}),
        ]);
        let mut session = Session::new(text.as_bytes(), tokio::io::sink());
        let tools = list(&mut session, "s").await.unwrap();
        let names: Vec<(&str, &str)> = tools
            .iter()
            .map(|tool| (tool.name.as_str(), tool.offered.name.as_str()))
            .collect();
        assert_eq!(names, [("one", "mcp__s__one"), ("two", "mcp__s__two")]);
        let told = &tools[0].offered;
        assert_eq!(told.description.len(), limits::MCP_DESCRIPTION_CHARS_MAX);
        assert_eq!(tools[1].offered.parameters["type"], "object");
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_bounded() {
        let endless: Vec<Value> = (0..limits::MCP_PAGES_MAX + 1)
            .map(|page| json!({"tools": [{"name": page.to_string()}], "nextCursor": "again"}))
            .collect();
        let text = pages(&endless);
        let mut session = Session::new(text.as_bytes(), tokio::io::sink());
        let tools = list(&mut session, "s").await.unwrap();
        assert_eq!(tools.len(), limits::MCP_PAGES_MAX);
        let many: Vec<Value> = (0..=limits::MCP_TOOLS_MAX)
            .map(|number| json!({"name": number.to_string()}))
            .collect();
        let text = pages(&[json!({"tools": many})]);
        let mut session = Session::new(text.as_bytes(), tokio::io::sink());
        let tools = list(&mut session, "s").await.unwrap();
        assert_eq!(tools.len(), limits::MCP_TOOLS_MAX);
    }
}
