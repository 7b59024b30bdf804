//! The web tools behind a leader: what they are counted as, and where their key goes.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Turn, Workspace, run, tool_texts};

const DONE: &str = "searched the web and read a page of it, as the task of this run asked for";
const KEY: &str = "tok-search-123456789";

fn model(server: &ModelServer) -> String {
    format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    )
}

/// Every file below a folder that holds a text.
fn holding(folder: &Path, text: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            holding(&path, text, found);
        } else if path.is_file()
            && std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(text.len()).any(|w| w == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn a_search_and_a_page_are_counted_and_their_key_is_in_no_file_and_no_command() {
    let results = json!({"results": [{"title": "The page", "url": "https://one.example/",
        "content": "what it says"}]});
    let json_type = "application/json";
    let engine = ModelServer::start(Behaviour::Fixed(200, json_type, results.to_string()));
    let html = "<html><head><title>Manual</title></head><body><script>x</script><p>Use <b>all</b> \
                of it.</p></body></html>";
    let site = ModelServer::start(Behaviour::Fixed(200, "text/html", html.to_owned()));
    let page = format!("{}/manual", site.base_url());
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::calls(&[
            ("web_search", json!({"query": "the manual"})),
            ("extract_webpage", json!({"url": page})),
        ]),
        Turn::command("env"),
        Turn::finish(DONE),
    ]));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "{}[web]\nsearch = \"searxng\"\nbase_url = \"{}\"\napi_key_env = \"SEARCH_VALUE\"\n\
         allow_hosts = [\"127.0.0.1\"]\n",
        model(&server),
        engine.base_url()
    ));
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "looks into the web", "do it"])
        .env("SEARCH_VALUE", KEY);
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["stats"]["searches"], 1, "{result}");
    assert_eq!(result["stats"]["web_pages"], 1, "{result}");
    let told = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(
        told[0],
        "1. The page\n   https://one.example/\n   what it says"
    );
    assert_eq!(
        told[1],
        format!("[page {page}, titled \"Manual\"]\nUse **all** of it.")
    );
    assert!(
        told[2].contains("PATH=") && !told[2].contains(KEY),
        "{}",
        told[2]
    );
    let mut found = Vec::new();
    holding(workspace.path().parent().unwrap(), KEY, &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn without_a_section_for_the_web_no_model_hears_of_it() {
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::call("extract_webpage", json!({"url": "https://example.org/"})),
        Turn::finish(DONE),
    ]));
    let workspace = Workspace::new();
    workspace.configure(&model(&server));
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--summary", "has no web at all", "do it"]);
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let first = server.requests().remove(0);
    let tools = first["tools"].as_array().unwrap();
    let is_web = |tool: &&Value| {
        let name = tool["function"]["name"].as_str().unwrap();
        name.contains("web")
    };
    assert_eq!(tools.iter().filter(is_web).count(), 0);
    let system = first["messages"][0]["content"].as_str().unwrap();
    assert!(!system.contains("web"), "{system}");
    let told = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    let answer: Value = serde_json::from_str(&told[0]).unwrap();
    assert_eq!(answer["error"]["code"], "not_available", "{answer}");
}
