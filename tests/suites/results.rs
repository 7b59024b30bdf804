//! What a result says of the files that a worker left, whatever it left.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Rung, Serve, Turn, Workspace, executable, on_each, until, within};

const BUDGET: Duration = Duration::from_secs(60);

/// With mounts of its own an agent can neither remove nor replace its folder, so what is made of that
/// is shown where there are none.
const UNPINNED: &str = "[confinement]\nhighest = \"group\"\n";

fn faking(workspace: &Workspace) -> Serve {
    Serve::start_as(workspace, |command| {
        command.env("MUSTER_WORKER", executable("fake_worker"));
    })
}

fn fake(serve: &Serve, name: &str) -> Value {
    serve.call(
        "create_sub_agent",
        json!({"summary": "a misbehaving one", "task": format!("fake: {name}")}),
    )
}

#[test]
fn a_result_file_that_is_none_fails_the_agent_with_its_reason() {
    // A half-written record made the whole session unreadable.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    for name in [
        "half a result",
        "empty result",
        "null result",
        "list result",
        "wrong types",
        "deep result",
    ] {
        let answer = fake(&serve, name);
        assert_eq!(answer["status"], "failed", "{name}: {answer}");
        assert_eq!(answer["stop_reason"], "bad_result_file", "{name}: {answer}");
        assert_eq!(answer["deliverables_files"], json!(["kept.txt"]), "{name}");
        assert_eq!(answer["partial_results"], true, "{name}");
    }
    let nothing = fake(&serve, "exit 0");
    assert_eq!(nothing["status"], "failed", "{nothing}");
}

#[test]
fn an_earlier_runs_result_is_not_this_runs() {
    // The consumer read a stale file of an earlier run because the new one never came.
    let workspace = Workspace::scripted(&[]);
    workspace.write(
        "docs/.subagent/conversations.json",
        json!({"format": 1, "agent_id": 1, "task_id": "sub_00000000-0000-7000-8000-000000000000",
               "summary": "s", "status": "completed", "created_at": "2026-03-10T12:00:00Z",
               "completed_at": "2026-03-10T12:00:01Z", "messages": [],
               "result": {"success": true, "summary": "the old one", "stop_reason": null}})
        .to_string(),
    );
    let serve = faking(&workspace);
    for name in ["exit 7", "exit 0"] {
        let answer = serve.call(
            "create_sub_agent",
            json!({"summary": "takes an old folder", "task": format!("fake: {name}"),
                   "deliverables_dir": "docs", "reuse_deliverables_dir": true}),
        );
        assert_eq!(answer["status"], "failed", "{name}: {answer}");
        assert_ne!(answer["result_summary"], "the old one");
    }
}

#[test]
fn links_and_pipes_in_place_of_the_result_are_not_followed() {
    // Reading follows links; opening a pipe blocks for ever.
    let workspace = Workspace::scripted(&[]);
    workspace.configure(UNPINNED);
    let outside = workspace.path().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let serve = faking(&workspace);
    for name in [
        "linked folder",
        "fifo result",
        "linked result",
        "device result",
        "huge result",
    ] {
        let (answer, took) = within(|| fake(&serve, name));
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
        assert_eq!(answer["status"], "failed", "{name}: {answer}");
        assert_eq!(answer["stop_reason"], "bad_result_file", "{name}: {answer}");
    }
    assert_eq!(
        std::fs::read_dir(outside).unwrap().count(),
        0,
        "nothing was written through the link"
    );
}

#[test]
fn links_among_the_deliverables_are_listed_not_followed() {
    // Recursive listing followed links in circles.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let (answer, took) = within(|| fake(&serve, "links"));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(
        answer["deliverables_files"],
        json!(["d1/l", "d2/l", "dangling", "loop", "real.txt", "root"])
    );
    assert_eq!(
        answer["deliverables_skipped"],
        json!([{"name": "pipe", "why": "fifo"}])
    );
}

#[test]
fn a_hundred_thousand_files_are_counted_and_cut() {
    // The list of what an agent made goes into a message to a model.
    let command = "mkdir -p sub_agent_results/agent_1/n && cd sub_agent_results/agent_1/n && seq 1 100000 | xargs touch && touch ../made";
    let workspace = Workspace::scripted(&[
        Turn::command_within(command, 300),
        Turn::finish("made very many files, as the task wanted it"),
    ]);
    let serve = Serve::start(&workspace);
    let started = serve.call(
        "create_sub_agent",
        json!({"summary": "makes many files", "task": "make them", "run_in_background": true}),
    );
    assert_eq!(started["status"], "running", "{started}");
    let made = workspace.join("sub_agent_results/agent_1/made");
    let seen = until(Duration::from_secs(60), || made.exists().then_some(()));
    assert!(seen.is_some(), "the files are not made");
    let (told, took) = within(|| serve.call("wait_sub_agents", json!({"timeout_seconds": 60})));
    assert!(took < Duration::from_secs(10), "{took:?}");
    let answer = &told["agents"][0];
    assert_eq!(answer["status"], "completed", "{told}");
    assert_eq!(answer["deliverables_truncated"], true, "{answer}");
    assert_eq!(answer["deliverables_count"], 100_001, "{answer}");
    assert!(
        told.to_string().len() < 8 * 1024,
        "{}",
        told.to_string().len()
    );
}

#[test]
fn a_deliverables_dir_that_escapes_is_refused_before_anything_is_made() {
    // Parent segments led to other agents' files; an absolute path became a relative one.
    let workspace = Workspace::scripted(&[Turn::finish("never comes to this, the dir is refused")]);
    workspace.write("taken", "a file");
    workspace.write("full/old.txt", "from before");
    std::os::unix::fs::symlink("/tmp", workspace.join("out")).unwrap();
    let before = names(&workspace);
    let serve = Serve::start(&workspace);
    for dir in [
        "../x",
        "/tmp/x",
        "a/../../x",
        "",
        ".",
        "~/x",
        "a/\u{0}",
        "out",
        "out/x",
        ".git",
        ".muster/x",
        "taken",
    ] {
        let answer = serve.call(
            "create_sub_agent",
            json!({"summary": "writes elsewhere", "task": "go", "deliverables_dir": dir}),
        );
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        assert!(
            ["outside_workspace", "deliverables_dir_refused"].contains(&code),
            "{dir:?}: {answer}"
        );
    }
    let full = serve.call(
        "create_sub_agent",
        json!({"summary": "takes a full one", "task": "go", "deliverables_dir": "full"}),
    );
    assert_eq!(
        full["error"]["code"], "deliverables_dir_not_empty",
        "{full}"
    );
    assert_eq!(names(&workspace), before);
}

/// What lies in the workspace, but the leader's own folder.
/// Somebody moved an agent's folder away while it worked and put a link to another place there; what
/// the agent and its leader wrote from then on would have landed in that place.
#[test]
fn a_folder_that_is_replaced_by_a_link_meanwhile_leads_nobody_outside() {
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Group], |ground| {
        let workspace = Workspace::on(ground);
        workspace.script(
            "default",
            &[
                Turn::command(
                    "echo up > sub_agent_results/agent_1/up; until [ -e go ]; do sleep 0.02; done",
                ),
                Turn::call(
                    "write_file",
                    json!({"file_path": "sub_agent_results/agent_1/late.txt", "content": "x"}),
                ),
                Turn::finish("wrote what there was to write, wherever that went"),
            ],
        );
        workspace.configure("");
        let outside = workspace.path().parent().unwrap().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let id = client.send(
            "create_sub_agent",
            json!({"summary": "is led away", "task": "go"}),
        );
        let folder = workspace.join("sub_agent_results/agent_1");
        assert!(until(BUDGET, || folder.join("up").exists().then_some(())).is_some());
        std::fs::rename(&folder, workspace.join("moved")).unwrap();
        symlink(&outside, &folder).unwrap();
        workspace.write("go", "go");
        let answer = client.answer(id);
        // Whatever it makes of that, it is told, and nothing was written through the link.
        assert!(answer["status"].is_string(), "{ground:?} {answer}");
        let there: Vec<_> = std::fs::read_dir(&outside).unwrap().collect();
        assert_eq!(there.len(), 0, "{ground:?} {there:?} {answer}");
        let alive = serve.call("list_active_sub_agents", json!({}));
        assert_eq!(alive["agents"], json!([]), "{ground:?}");
    });
}

fn names(workspace: &Workspace) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(workspace.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".muster")
        .collect();
    names.sort();
    names
}

#[test]
fn two_agents_never_share_a_folder() {
    // Parallel agents overwrote each other's output.
    let workspace = Workspace::scripted(&[]);
    std::fs::create_dir(workspace.join("docs")).unwrap();
    std::os::unix::fs::symlink("docs", workspace.join("alias")).unwrap();
    let serve = faking(&workspace);
    let create = |dir: &str, name: &str, background: bool| {
        serve.call(
            "create_sub_agent",
            json!({"summary": "wants one folder", "task": format!("fake: {name}"),
                   "deliverables_dir": dir, "run_in_background": background,
                   "reuse_deliverables_dir": true}),
        )
    };
    assert_eq!(create("docs", "hang", true)["status"], "running");
    for dir in ["docs", "docs/", "./docs//", "docs/api", "alias"] {
        let answer = create(dir, "hang", true);
        assert_eq!(
            answer["error"]["code"], "deliverables_overlap",
            "{dir}: {answer}"
        );
        assert!(
            answer["error"]["message"].as_str().unwrap().contains('1'),
            "{answer}"
        );
    }
    serve.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert_eq!(create("docs", "exit 7", false)["status"], "failed");
    // Nested the other way round: what holds an agent's folder is not to be had either.
    assert_eq!(create("docs/api", "hang", true)["status"], "running");
    let above = create("docs", "hang", true);
    assert_eq!(above["error"]["code"], "deliverables_overlap", "{above}");
}

#[test]
fn a_claim_without_files_is_told_as_one() {
    // Completed and a nice report; on disk nothing.
    let workspace =
        Workspace::scripted(&[Turn::finish("wrote report.md with all the findings in it")]);
    let serve = Serve::start(&workspace);
    let answer = serve.call(
        "create_sub_agent",
        json!({"summary": "claims a report", "task": "write it"}),
    );
    assert_eq!(answer["deliverables_files"], json!([]), "{answer}");
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("no file"), "{answer}");
}

#[test]
fn an_agent_that_deletes_its_folder_ends_in_words() {
    let removed = [
        Turn::command("rm -rf sub_agent_results/agent_1"),
        Turn::finish("removed everything that there was to remove here"),
    ];
    let workspace = Workspace::scripted(&removed);
    workspace.configure(UNPINNED);
    let serve = Serve::start(&workspace);
    let answer = serve.call(
        "create_sub_agent",
        json!({"summary": "deletes its own", "task": "go"}),
    );
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["deliverables_files"], json!([]));

    let replaced = [
        Turn::command("rm -rf sub_agent_results/agent_2 && echo x > sub_agent_results/agent_2"),
        Turn::finish("replaced everything that there was by one file"),
    ];
    workspace.script("default", &replaced);
    let answer = serve.call(
        "create_sub_agent",
        json!({"summary": "replaces its own", "task": "go"}),
    );
    assert_eq!(answer["status"], "failed", "{answer}");
    assert_eq!(answer["stop_reason"], "bad_result_file", "{answer}");
    assert!(answer["error"]["message"].is_string(), "{answer}");
    let alive = serve.call("list_active_sub_agents", json!({}));
    assert_eq!(alive["agents"], json!([]), "{alive}");
}
