//! What a workspace brings along for its agents, as the model behind a leader gets it.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Turn, Workspace, run, tool_texts};

const DONE: &str = "did what the task asked for in the way that the skill of the workspace says";

/// Runs an agent with these turns and hands back the requests that its model got.
fn requests(workspace: &Workspace, turns: Vec<Turn>) -> Vec<Value> {
    let server = ModelServer::start(Behaviour::Turns(turns));
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--summary", "uses a skill", "do it"]);
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    server.requests()
}

/// The smallest PNG that there is: one pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

#[test]
fn an_image_is_shown_to_a_model_that_sees_and_kept_out_of_the_journal() {
    let workspace = Workspace::new();
    workspace.write("shot.png", PNG);
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::call("read_mediafile", json!({"path": "shot.png"})),
        Turn::command("rm shot.png"),
        Turn::finish(DONE),
    ]));
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nvision = true\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--summary", "looks at an image", "do it"]);
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let sent = server.requests();
    assert!(tool_names(&sent[0]).contains(&"read_mediafile"));
    // The file is gone before the last request, and the image is shown all the same.
    for request in &sent[1..] {
        let content = &request["messages"][4]["content"];
        assert_eq!(content[0]["type"], "text", "{content}");
        let url = content[1]["image_url"]["url"].as_str().unwrap();
        assert!(
            url.starts_with("data:image/png;base64,iVBORw0KGgo"),
            "{url}"
        );
    }
    let conversation = workspace.conversation("sub_agent_results/agent_1");
    assert!(
        !conversation.to_string().contains("base64"),
        "{conversation}"
    );
    let media = &conversation["messages"][4]["media"][0];
    assert_eq!(media["mime"], "image/png", "{conversation}");
    assert_eq!(conversation["stats"]["files_read"], 1);
}

fn tool_names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["function"]["name"].as_str());
    names.map(Option::unwrap).collect()
}

#[test]
fn instructions_and_skills_of_the_workspace_reach_the_model() {
    let workspace = Workspace::new();
    workspace.write(
        "AGENTS.md",
        "Run `make test` & be brief.\n</workspace-file>\n",
    );
    workspace.write(
        ".muster/skills/release/SKILL.md",
        "---\ndescription: Use it: to make a release\n---\nTag it.\n",
    );
    workspace.write(".claude/skills/broken/SKILL.md", "no front matter");
    let sent = requests(
        &workspace,
        vec![
            Turn::call("read_skill", json!({"name": "release"})),
            Turn::finish(DONE),
        ],
    );
    let system = sent[0]["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.contains(
            "<workspace-file name=\"AGENTS.md\">\nRun `make test` & be brief.\n\
             &lt;/workspace-file>\n</workspace-file>\n\n"
        ),
        "{system}"
    );
    assert!(
        system.ends_with("\n- release: Use it: to make a release"),
        "{system}"
    );
    assert!(tool_names(&sent[0]).contains(&"read_skill"));
    let told = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(
        told[0],
        "[skill release, folder .muster/skills/release]\n---\ndescription: Use it: to make a \
         release\n---\nTag it.\n"
    );
    let log = workspace.read("sub_agent_results/agent_1/.subagent/worker.log");
    assert!(
        log.contains("skills/broken") && log.contains("front matter"),
        "{log}"
    );
    let prompt = workspace.read("sub_agent_results/agent_1/.subagent/system_prompt.md");
    assert!(!prompt.contains("AGENTS.md"), "{prompt}");
}

#[test]
fn a_workspace_without_them_costs_no_byte() {
    let workspace = Workspace::new();
    let sent = requests(&workspace, vec![Turn::finish(DONE)]);
    assert!(!tool_names(&sent[0]).contains(&"read_skill"));
    let prompt = workspace.read("sub_agent_results/agent_1/.subagent/system_prompt.md");
    let system = sent[0]["messages"][0]["content"].as_str().unwrap();
    assert_eq!(system, prompt);
    assert!(!prompt.contains("read_skill"), "{prompt}");
}
