//! Batches of real workers: a hundred at once, and leaders that are killed in their midst.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Ended, Random, Serve, Turn, Workspace, rounds, run, until};

use crate::peers::{aimock, fixtures, get, missing, serve_fixtures};

/// Long enough for a hundred agents on a busy machine; never waited out when all is well.
const BUDGET: Duration = Duration::from_secs(300);
/// Kills of one batch's leaders.
const KILLS: usize = 4;
/// The manifest of all of them.
const MANIFEST: &str = "manifest.json";

fn items(workspace: &Workspace, count: usize, needs: impl Fn(usize) -> Vec<String>) {
    let lines: String = (0..count)
        .map(|n| {
            let line = json!({"id": format!("i{n}"), "task": format!("carry out i{n}"),
                              "needs": needs(n)});
            format!("{line}\n")
        })
        .collect();
    workspace.write("items.jsonl", lines);
}

fn batch(workspace: &Workspace, more: &[&str]) -> Command {
    let mut command = workspace.command("leader");
    command
        .args([
            "run",
            "--batch",
            "items.jsonl",
            "--manifest",
            MANIFEST,
            "-q",
        ])
        .args(more);
    command
}

fn manifest(workspace: &Workspace) -> Value {
    serde_json::from_str(&workspace.read(MANIFEST)).expect("a manifest is whole at every moment")
}

/// How many runs of each item began, and how many were completed, by all event logs.
fn told_by_logs(workspace: &Workspace) -> BTreeMap<String, (u64, u64)> {
    let mut items: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut dirs: Vec<_> = std::fs::read_dir(workspace.join(".muster/runs"))
        .unwrap()
        .map(|run| run.unwrap().path())
        .collect();
    dirs.sort();
    for dir in dirs {
        let mut of_task = BTreeMap::new();
        // A leader that was killed before it began its log has begun nothing else.
        let log = std::fs::read_to_string(dir.join("events.jsonl")).unwrap_or_default();
        for line in log.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let task = event["agent"]["task_id"].as_str().unwrap_or_default();
            match event["event"].as_str().unwrap() {
                "agent.created" => {
                    let id = event["job"]["item"]["id"].as_str().unwrap().to_owned();
                    let (begun, completed) = items.entry(id.clone()).or_default();
                    assert_eq!(*completed, 0, "{id} is run again after its success");
                    *begun += 1;
                    of_task.insert(task.to_owned(), id);
                }
                "agent.ended" if event["result"]["status"] == "completed" => {
                    items.get_mut(&of_task[task]).unwrap().1 += 1;
                }
                _ => {}
            }
        }
    }
    items
}

/// Holds the manifest against the logs and against the files, each digest made anew.
fn assert_true(workspace: &Workspace, count: usize) {
    let manifest = manifest(workspace);
    let records = manifest["items"].as_array().unwrap();
    assert_eq!(records.len(), count);
    let logs = told_by_logs(workspace);
    let mut dirs = BTreeSet::new();
    for record in records {
        let id = record["id"].as_str().unwrap();
        assert_eq!(record["status"], "completed", "{record}");
        let (begun, completed) = logs[id];
        assert_eq!(
            (record["attempts"].as_u64(), completed),
            (Some(begun), 1),
            "{record}"
        );
        let dir = record["deliverables_dir"].as_str().unwrap();
        assert!(dirs.insert(dir.to_owned()), "{dir} is of two items");
        for file in record["files"].as_array().unwrap() {
            let path = workspace.join(dir).join(file["path"].as_str().unwrap());
            let summed = run(Command::new("sha256sum").arg(&path), BUDGET).stdout;
            assert_eq!(
                summed.split(' ').next(),
                file["sha256"].as_str(),
                "{record}"
            );
            let size = std::fs::metadata(&path).unwrap().len();
            assert_eq!(file["bytes"].as_u64(), Some(size));
        }
    }
    assert!(manifest["ended_at"].is_string());
    assert_eq!(manifest["exit_code"], 0);
}

/// A restarted batch once ran what was done a second time, and forgot what had ended between the
/// last writing of its record and the kill.
#[test]
fn a_batch_whose_leader_is_killed_again_and_again_records_each_end_once() {
    let seed = rounds("MUSTER_SEED", 41);
    let mut random = Random::new(seed.into());
    for round in 0..rounds("MUSTER_ROUNDS", 3) {
        let write = json!({"file_path": "{deliverables_dir}/r.txt", "content": "of {agent_id}"});
        let finish = Turn::finish("wrote r.txt with the number of its agent").late(100);
        let mut turns = vec![Turn::call("write_file", write).late(100)];
        // A kill between a report and its record lets the model report once more.
        turns.resize(1 + KILLS + 1, finish);
        let workspace = Workspace::scripted(&turns);
        let count = 24;
        items(&workspace, count, |n| match n % 6 {
            5 => vec![format!("i{}", n - 1), format!("i{}", n - 2)],
            _ => Vec::new(),
        });
        let mut more: &[&str] = &[];
        for _ in 0..KILLS {
            let mut leader = batch(&workspace, more)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // Before its manifest is there the batch has not begun, and is not gone on with.
            let begun = until(BUDGET, || {
                let is_new = workspace.join(MANIFEST).exists();
                (is_new || leader.try_wait().unwrap().is_some()).then_some(())
            });
            assert!(begun.is_some());
            random.pause(Duration::from_millis(1_500));
            leader.kill().ok();
            leader.wait().unwrap();
            manifest(&workspace);
            more = &["--resume"];
        }
        let ended: Ended = run(&mut batch(&workspace, &["--resume"]), BUDGET);
        assert_eq!(ended.code(), 0, "seed {seed}, round {round}: {ended:?}");
        assert_true(&workspace, count);
    }
}

#[test]
fn a_hundred_items_and_a_hundred_creates_share_one_model() {
    let turns = vec![
        Turn::command("echo first"),
        Turn::finish("ran one command and reported the end of it"),
    ];
    let server = ModelServer::start(Behaviour::Turns(turns));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[limits]\nadmission = \"queue\"\n[models.m]\n\
         provider = \"openai\"\nmodel = \"mock\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    items(&workspace, 100, |_| Vec::new());
    let ended = run(&mut batch(&workspace, &[]), BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_true(&workspace, 100);
    // Each item asked twice, and no item more.
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for request in server.requests() {
        let first = request["messages"][1]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        *asked.entry(first).or_default() += 1;
    }
    assert_eq!(asked.len(), 100);
    assert!(asked.values().all(|times| *times == 2), "{asked:?}");
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    let ids: Vec<u64> = (0..99)
        .map(|n| {
            let dir = format!("socket/{n}");
            client.send(
                "create_sub_agent",
                json!({"summary": "one of a hundred", "task": "go", "deliverables_dir": dir}),
            )
        })
        .collect();
    for id in ids {
        let answer = client.answer(id);
        assert_eq!(answer["status"], "completed", "{answer}");
    }
    // A conversation has 99 numbers for its creates; the hundredth is told so.
    let spent = client.call(
        "create_sub_agent",
        json!({"summary": "one more", "task": "go"}),
    );
    assert_eq!(spent["success"], false, "{spent}");
    let told = spent["error"].to_string();
    assert!(told.contains("99"), "{spent}");
}

#[test]
fn a_batch_of_a_hundred_with_a_model_server_that_others_wrote() {
    let Some(cli) = aimock() else {
        return missing("aimock");
    };
    let workspace = Workspace::new();
    let folder = workspace.home().join("fixtures");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f.json"), fixtures().to_string()).unwrap();
    let (_peer, port) = serve_fixtures(&cli, &folder);
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"gpt-mock\"\n\
         base_url = \"http://127.0.0.1:{port}/v1\"\n"
    ));
    items(&workspace, 100, |_| Vec::new());
    let ended = run(&mut batch(&workspace, &[]), BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_true(&workspace, 100);
    let journal: Value = serde_json::from_str(&get(port, "/__aimock/journal").unwrap()).unwrap();
    let entries = journal
        .as_array()
        .or(journal["entries"].as_array())
        .unwrap();
    let is_chat = |entry: &&Value| {
        let path = entry["path"].as_str();
        path.is_some_and(|path| path.contains("chat/completions"))
    };
    assert_eq!(entries.iter().filter(is_chat).count(), 300);
}
