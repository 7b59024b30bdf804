//! A tool of a server, as the loop sees it.

use std::sync::Arc;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::text::{ActionKind, Prompts};
use serde_json::{Map, Value};

use super::content::text_of;
use super::server::Server;
use crate::tools::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};

/// One tool of one server.
#[derive(Debug)]
pub(super) struct ServerTool {
    /// As models call it.
    name: String,
    /// As its server knows it.
    at_server: String,
    server: Arc<Server>,
}

impl ServerTool {
    pub(super) fn new(name: String, at_server: String, server: Arc<Server>) -> Self {
        ServerTool {
            name,
            at_server,
            server,
        }
    }

    async fn ask(&self, arguments: &str, within: Duration) -> ToolResult {
        let result = self
            .server
            .call(&self.at_server, object(arguments)?, within)
            .await?;
        let text = text_of(&result);
        if result["isError"] == Value::Bool(true) {
            return Err(ToolError::new(ErrorCode::McpFailed, text));
        }
        Ok(ToolOutput {
            value: Value::String(text),
            tally: Tally::default(),
        })
    }
}

/// The arguments; what they must be is for the server to say.
fn object(arguments: &str) -> Result<Value, ToolError> {
    if arguments.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let wrong = |why: String| Err(ToolError::new(ErrorCode::InvalidParameters, why));
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(_) => wrong("the arguments must be a JSON object".to_owned()),
        Err(error) => wrong(format!("the arguments are no valid JSON: {error}")),
    }
}

impl Tool for ServerTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn action(&self, _arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Calling, &self.name)
    }

    fn call<'a>(
        &'a self,
        _context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(self.ask(arguments, within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_an_object_or_nothing() {
        assert_eq!(object(" ").unwrap(), json!({}));
        assert_eq!(object("{\"a\":1}").unwrap(), json!({"a": 1}));
        for wrong in ["[1]", "{"] {
            assert_eq!(
                object(wrong).unwrap_err().code,
                ErrorCode::InvalidParameters
            );
        }
    }
}
