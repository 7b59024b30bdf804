//! What the documents say must be what the types say.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::channel::{
    ACK, AckParams, DEADLINE, DELIVER, DELTA, DeadlineParams, DeliverParams, DeltaParams, FINISHED,
    FinishedParams, INITIALIZE, InitializeParams, InitializeResult, OUTPUT, OutputParams, PING,
    PROGRESS, ProgressParams, STOP, StopParams, TOOLS_CALL, ToolsCallParams, WRAP_UP, WrapUpParams,
};
use protocol::config::{ConfigFile, Layers, resolve};
use protocol::conversation::ConversationFile;
use protocol::event::EventLine;
use protocol::exit;
use protocol::journal::JournalLine;
use protocol::socket::{EVENT, METHODS};
use protocol::tool::leader::{
    CREATE_SUB_AGENT, CreateSubAgentParams, GET_SUB_AGENT_STATUS, GetSubAgentStatusParams,
    LEADER_TOOLS, TERMINATE_SUB_AGENT, TerminateSubAgentParams,
};
use protocol::tool::parse_params;
use protocol::wire::Frame;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks of a document that are fenced as `kind`.
fn blocks(document: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in document.lines() {
        match &mut block {
            None if line == format!("```{kind}") => block = Some(String::new()),
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

fn fits<T: DeserializeOwned>(value: &Value) {
    if let Err(error) = serde_json::from_value::<T>(value.clone()) {
        panic!("{error}: {value}");
    }
}

/// Checks the params of a channel's frame, and gives its method.
fn check_channel(frame: &Frame) -> Option<&str> {
    let (method, params) = match frame {
        Frame::Request { method, params, .. } | Frame::Notification { method, params } => {
            (method.as_str(), params)
        }
        Frame::Response { outcome, .. } => {
            let result = outcome.as_ref().expect("a good answer");
            if result.get("model").is_some() {
                fits::<InitializeResult>(result);
            }
            return None;
        }
    };
    match method {
        INITIALIZE => fits::<InitializeParams>(params),
        TOOLS_CALL => fits::<ToolsCallParams>(params),
        PROGRESS => fits::<ProgressParams>(params),
        OUTPUT => fits::<OutputParams>(params),
        DELTA => fits::<DeltaParams>(params),
        ACK => fits::<AckParams>(params),
        FINISHED => fits::<FinishedParams>(params),
        DELIVER => fits::<DeliverParams>(params),
        STOP => fits::<StopParams>(params),
        WRAP_UP => fits::<WrapUpParams>(params),
        DEADLINE => fits::<DeadlineParams>(params),
        PING => assert!(params.is_null()),
        other => panic!("no method of the channel: {other}"),
    }
    Some(method)
}

#[test]
fn every_line_of_the_channels_document_is_what_the_types_read() {
    let text = document("protocol.md");
    let (mut frames, mut conversations, mut journal) = (0, 0, 0);
    for line in blocks(&text, "json").iter().flat_map(|block| block.lines()) {
        let value: Value = serde_json::from_str(line).unwrap();
        if value.get("jsonrpc").is_some() {
            check_channel(&Frame::parse(line.as_bytes()).unwrap());
            frames += 1;
        } else if value.get("kind").is_some() {
            fits::<JournalLine>(&value);
            journal += 1;
        } else {
            fits::<ConversationFile>(&value);
            conversations += 1;
        }
    }
    assert_eq!((frames, journal, conversations), (2, 3, 1));
    let session = blocks(&text, "session").remove(0);
    let methods: Vec<(char, String)> = session
        .lines()
        .filter_map(|line| {
            let frame = Frame::parse(&line.as_bytes()[2..]).unwrap();
            let method = check_channel(&frame)?.to_owned();
            Some((line.chars().next().unwrap(), method))
        })
        .collect();
    let expected = [
        ('>', INITIALIZE),
        ('>', PROGRESS),
        ('<', DELIVER),
        ('>', ACK),
        ('<', PING),
        ('>', PROGRESS),
        ('>', FINISHED),
    ];
    let expected = expected.map(|(side, method)| (side, method.to_owned()));
    assert_eq!(methods, expected);
}

#[test]
fn the_channels_document_names_every_method_and_exit_code() {
    let text = document("protocol.md");
    for method in [
        INITIALIZE, TOOLS_CALL, PROGRESS, OUTPUT, DELTA, ACK, FINISHED, DELIVER, STOP, WRAP_UP,
        DEADLINE, PING,
    ] {
        assert!(text.contains(&format!("| `{method}` |")), "{method}");
    }
    for (code, _) in exit::WORKER_TABLE {
        let named = text
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
            .flat_map(|cell| cell.split(", "))
            .any(|cell| cell == code.to_string());
        assert!(named, "{code}");
    }
}

/// Set it to write docs/exit-codes.md anew.
const UPDATE_EXIT_CODES: &str = "UPDATE_EXIT_CODES_DOC";

const EXIT_CODES_INTRODUCTION: &str = "\
# Exit codes

This page is generated from `crates/protocol/src/exit.rs` by the test `docs` of that crate; run it
with `UPDATE_EXIT_CODES_DOC=1` to write the page anew.
";

/// The whole page, made of the tables that the executables print in their help.
fn exit_codes_document() -> String {
    let parts = [
        (
            "`leader`",
            "The worst end of a run decides. It is never 0 while an agent is alive, or ended in \
             anything but success.",
            exit::LEADER_TABLE,
        ),
        (
            "`worker`",
            "Death by a signal has no code of its own; the leader records the signal.",
            exit::WORKER_TABLE,
        ),
        (
            "`jail`",
            "Otherwise the jail ends as its program did: with its code, or by its signal.",
            exit::JAIL_TABLE,
        ),
    ];
    let mut page = EXIT_CODES_INTRODUCTION.to_owned();
    for (program, rule, table) in parts {
        page.push_str(&format!(
            "\n## {program}\n\n{rule}\n\n| code | means |\n|---|---|\n"
        ));
        for (code, meaning) in table {
            page.push_str(&format!("| {code} | {meaning} |\n"));
        }
    }
    page
}

#[test]
fn the_exit_codes_document_is_made_of_the_tables() {
    let wanted = exit_codes_document();
    if std::env::var_os(UPDATE_EXIT_CODES).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exit-codes.md");
        std::fs::write(path, &wanted).unwrap();
    }
    assert_eq!(
        document("exit-codes.md"),
        wanted,
        "docs/exit-codes.md is not what the tables say; run this test with {UPDATE_EXIT_CODES}=1"
    );
}

#[test]
fn the_sockets_document_names_every_method_and_its_calls_are_accepted() {
    let text = document("socket.md");
    let tools = LEADER_TOOLS.iter().map(|tool| tool.name);
    let methods: BTreeSet<&str> = tools.chain(METHODS.iter().copied()).collect();
    for method in &methods {
        assert!(text.contains(&format!("\n| `{method}` |")), "{method}");
    }
    let mut called = BTreeSet::new();
    for line in blocks(&text, "session")
        .iter()
        .flat_map(|block| block.lines())
    {
        match Frame::parse(&line.as_bytes()[2..]).unwrap() {
            Frame::Request { method, params, .. } => {
                assert!(line.starts_with('>'), "{line}");
                match method.as_str() {
                    CREATE_SUB_AGENT => drop(parse_params::<CreateSubAgentParams>(params).unwrap()),
                    TERMINATE_SUB_AGENT => {
                        drop(parse_params::<TerminateSubAgentParams>(params).unwrap());
                    }
                    GET_SUB_AGENT_STATUS => {
                        drop(parse_params::<GetSubAgentStatusParams>(params).unwrap());
                    }
                    _ => assert!(params.is_null(), "{line}"),
                }
                called.insert(method);
            }
            Frame::Notification { method, params } => {
                assert_eq!((line.starts_with('<'), method.as_str()), (true, EVENT));
                fits::<EventLine>(&params);
            }
            Frame::Response { .. } => assert!(line.starts_with('<'), "{line}"),
        }
    }
    // One call of the example is wrong, to show what is answered to it.
    let unknown: Vec<_> = called
        .iter()
        .filter(|method| !methods.contains(method.as_str()))
        .collect();
    assert_eq!(unknown, ["terminate"]);
}

#[test]
fn the_configurations_document_has_every_key_and_its_example_is_accepted() {
    let text = document("configuration.md");
    let example = blocks(&text, "toml").remove(0);
    let settings = resolve(&Layers {
        user: Some(ConfigFile {
            name: "muster.toml".to_owned(),
            text: example,
        }),
        ..Layers::default()
    })
    .unwrap();
    assert_eq!(
        settings.models.keys().collect::<Vec<_>>(),
        ["local", "main"]
    );
    let limits = serde_json::to_value(&settings.limits).unwrap();
    for key in settings
        .sources
        .keys()
        .filter(|key| !key.starts_with("models."))
    {
        let name = key.strip_prefix("limits.").unwrap_or(key);
        let variable = format!("MUSTER_{}", name.replace('.', "_").to_uppercase());
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| `{key}` |")))
            .unwrap_or_else(|| panic!("no row for {key}"));
        assert!(row.ends_with(&format!("| `{variable}` |")), "{row}");
        if let Some(number) = limits.get(name).and_then(Value::as_u64)
            && name != "max_live"
        {
            assert!(row.contains(&format!("| {number} |")), "{row}");
        }
    }
    let model = serde_json::to_value(&settings.models["main"]).unwrap();
    let shown = blocks(&text, "toml").remove(0);
    for key in model
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| *key != "key")
    {
        assert!(shown.contains(key.as_str()), "{key}");
    }
}
