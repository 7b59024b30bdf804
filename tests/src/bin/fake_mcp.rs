//! An MCP server of fixed words and faults: `fake_mcp MODE`. What a mode does is said at its arm.
//! Its tools: `echo` gives its argument back, `env` the value of a variable and `die` ends it.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let mut output = std::io::stdout().lock();
    if mode == "flood" {
        // Never an answer, and always something to read.
        while writeln!(output, "{}", json!({"jsonrpc": "2.0", "method": "noise"})).is_ok() {}
        return ExitCode::FAILURE;
    }
    if mode == "noisy" {
        writeln!(output, "Starting up, this is no JSON").ok();
    }
    writeln!(std::io::stderr(), "fake_mcp is up in mode {mode}").ok();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            return ExitCode::FAILURE;
        };
        // Nothing is ever answered.
        if mode == "silent" || message["id"].is_null() {
            continue;
        }
        let (id, params) = (&message["id"], &message["params"]);
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            }),
            "tools/list" => page(&params["cursor"]),
            "tools/call" => match params["name"].as_str().unwrap_or_default() {
                "die" => {
                    writeln!(std::io::stderr(), "dying as asked").ok();
                    return ExitCode::FAILURE;
                }
                // As if it had been asked something that takes for ever.
                "hang" => continue,
                name => call(name, &params["arguments"]),
            },
            _ => continue,
        };
        if mode == "noisy" {
            let stray = json!({"jsonrpc": "2.0", "id": 987_654, "result": {"stray": true}});
            writeln!(output, "{stray}").ok();
        }
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        if writeln!(output, "{answer}")
            .and_then(|()| output.flush())
            .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Two pages of tools.
fn page(cursor: &Value) -> Value {
    let tool = |name: &str, description: &str| {
        json!({"name": name, "description": description, "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object", "properties": {"text": {"type": "string"}}}})
    };
    if cursor.is_null() {
        json!({"tools": [tool("echo", "Gives its text back"), tool("env", "Tells a variable")],
            "nextCursor": "more"})
    } else {
        json!({"tools": [tool("die", "Ends the server"), tool("hang", "Never answers")]})
    }
}

fn call(name: &str, arguments: &Value) -> Value {
    let text = arguments["text"].as_str().unwrap_or_default();
    match name {
        "env" => {
            let found = std::env::var(text).unwrap_or_else(|_| "(not set)".to_owned());
            json!({"content": [{"type": "text", "text": format!("{} bytes: {found}", found.len())}]})
        }
        "echo" if text.is_empty() => {
            json!({"content": [{"type": "text", "text": "there is no text"}], "isError": true})
        }
        _ => json!({"content": [{"type": "text", "text": text}]}),
    }
}
