//! Starting workers: executables that are none, long tasks, and a reader of the live file.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Serve, Turn, Workspace, run};

const DONE: &str = "did all that the script had in it, which was not much at all";

#[test]
fn a_worker_that_cannot_be_started_says_which_and_why() {
    // The error named the shell although the working directory was what was missing.
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    let plain = workspace.write("not-executable", "#!/bin/sh\n");
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = workspace.write("no-shebang", "just some text\n");
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = workspace.join("folder");
    std::fs::create_dir(&folder).unwrap();
    let mut messages = Vec::new();
    for path in [workspace.join("missing"), plain, folder, text] {
        let mut command = workspace.command("leader");
        command
            .args([
                "run",
                "--json",
                "--summary",
                "can't be started",
                "go",
                "--worker-bin",
            ])
            .arg(&path);
        let ended = run(&mut command, Duration::from_secs(30));
        assert_eq!(ended.code(), 3, "{}: {ended:?}", path.display());
        assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(said.contains(&name), "{said}");
        messages.push(said.replace(&name, "X"));
    }
    messages.sort();
    messages.dedup();
    assert_eq!(messages.len(), 4, "{messages:?}");
}

#[test]
fn a_place_that_is_gone_is_named_and_not_the_worker() {
    // The error named the executable although the working directory was what was missing.
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    let gone = run(
        workspace
            .command("leader")
            .args(["-C", "no/such/place", "run", "do it"]),
        Duration::from_secs(30),
    );
    assert_eq!(gone.code(), 2, "{gone:?}");
    assert!(gone.stderr.contains("no/such/place"), "{gone:?}");
    let mut shell = std::process::Command::new("sh");
    shell
        .args([
            "-c",
            "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run 'do it'",
        ])
        .arg(workspace.command("leader").get_program())
        .current_dir(workspace.path())
        .env("HOME", workspace.home());
    let removed = run(&mut shell, Duration::from_secs(30));
    assert!([2, 3].contains(&removed.code()), "{removed:?}");
    assert!(removed.stderr.contains("directory"), "{removed:?}");
    assert!(!removed.stderr.contains("panicked"), "{removed:?}");
}

#[test]
fn long_tasks_arrive_byte_for_byte() {
    // One argument may have 128 KB at most; prompts on the command line failed before the start.
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    let serve = Serve::start_as(&workspace, |command| {
        // One variable may have 128 KiB, all of them 2 MiB.
        for number in 0..10 {
            command.env(format!("BALLAST_{number}"), "x".repeat(100_000));
        }
    });
    for (number, size) in [(1, 127 * 1024), (2, 129 * 1024), (3, 200_000)] {
        let task: String = (0..size)
            .map(|n| char::from(b'a' + (n % 26) as u8))
            .collect();
        let answer = serve.call(
            "create_sub_agent",
            json!({"agent_id": number, "summary": "has a very long task", "task": task}),
        );
        assert_eq!(answer["status"], "completed", "{answer}");
        let arrived = workspace.read(&format!(
            "sub_agent_results/agent_{number}/.subagent/task.md"
        ));
        assert_eq!(arrived, task);
        let conversation = workspace.conversation(&format!("sub_agent_results/agent_{number}"));
        assert!(
            conversation["messages"][1]["content"]
                .as_str()
                .unwrap()
                .contains(&task)
        );
    }
    let refused = serve.call(
        "create_sub_agent",
        json!({"summary": "has far too long a task", "task": "x".repeat(3_000_000)}),
    );
    assert_eq!(refused["error"]["code"], "too_large", "{refused}");
}

#[test]
fn at_a_file_size_limit_a_write_fails_and_the_worker_lives() {
    // The signal that comes with the limit killed the writer in the middle of its record. A
    // command that the worker starts dies of it all the same, as it would anywhere.
    let workspace = Workspace::scripted(&[
        Turn::call(
            "write_file",
            json!({"file_path": "full", "content": "one too many", "append": true}),
        ),
        Turn::command("ulimit -f 1; exec head -c 100000 /dev/zero > big"),
        Turn::finish(DONE),
    ]);
    workspace.write("task.md", "go");
    // In units of 512 or 1024 bytes, as the shell likes it; the file has as much or twice as much.
    let full = std::fs::File::create(workspace.join("full")).unwrap();
    full.set_len(4096 * 1024).unwrap();
    let worker = workspace.command("worker");
    let mut shell = std::process::Command::new("sh");
    shell
        .args([
            "-c",
            "ulimit -f 4096; exec \"$0\" --task-file task.md --output-format json",
        ])
        .arg(worker.get_program())
        .current_dir(workspace.path())
        .env_clear()
        .envs(
            worker
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let ended = run(&mut shell, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(ended.json()["status"], "completed", "{ended:?}");
    let texts = system_tests::tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    let refused: Value = serde_json::from_str(&texts[0]).unwrap();
    assert_eq!(refused["success"], false, "{texts:?}");
    assert_eq!(refused["error"]["code"], "too_large", "{texts:?}");
    assert_eq!(full.metadata().unwrap().len(), 4096 * 1024);
    assert!(texts[1].contains("killed by SIGXFSZ"), "{texts:?}");
}

#[test]
fn a_reader_of_the_live_file_never_sees_half_of_it() {
    let turns: Vec<Turn> = (0..49)
        .map(|n| {
            Turn::call(
                "write_file",
                json!({"file_path": format!("sub_agent_results/agent_1/f{n}"), "content": "文".repeat(2000)}),
            )
            .late(20)
        })
        .chain([Turn::finish(DONE)])
        .collect();
    let workspace = Workspace::scripted(&turns);
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    let id = client.send(
        "create_sub_agent",
        json!({"summary": "writes fifty files", "task": "go"}),
    );
    let path = workspace.join("sub_agent_results/agent_1/.subagent/conversations.json");
    let reader = std::thread::spawn(move || {
        let (mut reads, mut last) = (0u32, Value::Null);
        while !last["completed_at"].is_string() {
            if let Ok(bytes) = std::fs::read(&path) {
                reads += 1;
                last = serde_json::from_slice(&bytes)
                    .unwrap_or_else(|error| panic!("read {reads}: {error}, {} bytes", bytes.len()));
            }
            assert!(reads < 2_000_000, "the run does not end");
        }
        (reads, last)
    });
    let answer = client.answer(id);
    assert_eq!(answer["status"], "completed", "{answer}");
    let (reads, last) = reader.join().unwrap();
    assert!(reads > 10, "{reads}");
    assert_eq!(last["result"]["success"], true);
    assert_eq!(answer["deliverables_files"].as_array().unwrap().len(), 49);
}

#[test]
fn an_agent_can_neither_be_offered_nor_use_the_creating_tools() {
    // Two calls grew to about 240 agents in minutes because children kept the spawn tool.
    let workspace = Workspace::new();
    // Where the build lies under /tmp the agent would not see it, so it gets a copy.
    let leader = workspace.join("leader");
    std::fs::copy(system_tests::executable("leader"), &leader).unwrap();
    let turns = [
        Turn::call(
            "create_sub_agent",
            json!({"agent_id": 2, "role_id": "x", "task": "y"}),
        ),
        Turn::command(&format!(
            "'{}' run 'make another' ; echo code:$?",
            leader.display()
        )),
        Turn::finish(DONE),
    ];
    workspace.script("default", &turns);
    workspace.configure("");
    let serve = Serve::start(&workspace);
    let answer = serve.call(
        "create_sub_agent",
        json!({"summary": "wants to have children", "task": "go"}),
    );
    assert_eq!(answer["status"], "completed", "{answer}");
    let texts = system_tests::tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(texts[0].contains("not_granted"), "{texts:?}");
    assert!(
        texts[1].contains("nested") && !texts[1].contains("code:0"),
        "{texts:?}"
    );
}
