//! The floor of an agent: two blocking requests with one file written between them, and a record
//! put in place by a rename. No TLS, no runtime, no supervision, nothing but the standard library.
//!
//! Arguments: the port of the model server, the file to write, and optionally `shell`, which
//! starts a sleeping shell first.

#![expect(
    clippy::disallowed_methods,
    reason = "a floor does by itself what others may not"
)]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// What both requests carry beside the messages.
const TOOLS: &str = r#"[{"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{"file_path":{"type":"string"},"content":{"type":"string"}},"required":["file_path","content"]}}}]"#;
const TASK: &str = r#"{"role":"user","content":"Write the file."}"#;
const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"write_file","arguments":"{}"}}]}"#;
const DONE: &str = r#"{"role":"tool","tool_call_id":"c1","content":"ok"}"#;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let [_, port, out, rest @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("usage: floor_agent PORT FILE [shell]"));
    };
    if rest.first().is_some_and(|word| word == "shell") {
        let shell = Command::new("/bin/sh")
            .args(["-c", "sleep 60; :"])
            .spawn()?;
        // It is killed with the group of this process.
        drop(shell);
    }
    let mut server = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    server.set_nodelay(true)?;
    let first = post(&mut server, &body(TASK))?;
    if first.contains("\"write_file\"") {
        fs::write(out, "hello\n")?;
    }
    let last = post(&mut server, &body(&[TASK, CALL, DONE].join(",")))?;
    let out = Path::new(out);
    let folder = out.parent().unwrap_or(out).join("floor");
    fs::create_dir_all(&folder)?;
    let fresh = folder.join("fresh");
    fs::write(&fresh, format!("{{\"final\":{last:?}}}"))?;
    fs::rename(fresh, folder.join("conversations.json"))
}

fn body(messages: &str) -> String {
    format!(r#"{{"model":"floor","messages":[{messages}],"tools":{TOOLS}}}"#)
}

/// Sends a request and gives the body of its answer; an empty one when the server hangs up.
fn post(server: &mut TcpStream, body: &str) -> io::Result<String> {
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    server.write_all(request.as_bytes())?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        let read = server.read(&mut piece)?;
        if read == 0 {
            return Ok(String::new());
        }
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, rest)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|value| value.trim().parse::<usize>().ok())
            .unwrap_or(0);
        if rest.len() >= length {
            return Ok(rest.to_owned());
        }
    }
}
