//! Disks that are full where results and manifests are written.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Ended, Turn, Workspace, run, skipped};

const BUDGET: Duration = Duration::from_secs(60);

/// Runs a script with `leader` as `$0` where it may mount file systems that nobody else sees; none
/// where that can't be.
fn with_mounts(workspace: &Workspace, script: &str) -> Option<Ended> {
    let mounts = Command::new("unshare").args(["-m", "true"]).status();
    if !nix::unistd::geteuid().is_root() || !mounts.is_ok_and(|status| status.success()) {
        skipped("a small file system needs mount(2) as root");
        return None;
    }
    let words = ["unshare", "-m", "sh", "-c", script].map(Into::into);
    Some(run(&mut workspace.command_under(&words, "leader"), BUDGET))
}

/// A full disk once left results of no bytes, and whoever read them crashed.
#[test]
fn a_result_that_finds_no_room_is_told_and_never_left_half_written() {
    let workspace = Workspace::scripted(&[
        Turn::command("head -c 2M /dev/zero >sub_agent_results/agent_1/fill; echo filled"),
        Turn::finish("filled the disk and reported the end of it"),
    ]);
    let script = "mkdir sub_agent_results && mount -t tmpfs -o size=1m none sub_agent_results && \
                  \"$0\" run --json go; code=$?; cd sub_agent_results/agent_1/.subagent; \
                  ls -A; echo --; cat conversations.json; exit $code";
    let Some(ended) = with_mounts(&workspace, script) else {
        return;
    };
    assert_eq!(ended.code(), 1, "{ended:?}");
    let mut lines = ended.stdout.lines();
    let answer: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(
        (&answer["status"], &answer["stop_reason"]),
        (&json!("failed"), &json!("disk_limit")),
        "{answer}"
    );
    assert_eq!(answer["deliverables_files"], json!(["fill"]), "{answer}");
    // What was there before is whole, nothing half written lies beside it, and that the last of it
    // could not be written is told.
    let files: Vec<&str> = lines.by_ref().take_while(|line| *line != "--").collect();
    let expected = [
        "conversations.json",
        "job.json",
        "journal.jsonl",
        "system_prompt.md",
        "task.md",
        "worker.log",
    ];
    assert_eq!(files, expected);
    let conversation: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(conversation["task_id"], answer["task_id"]);
    assert!(
        ended
            .stderr
            .contains("the conversation could not be completed")
            && ended.stderr.contains("No space left on device"),
        "{ended:?}"
    );
}

/// A manifest that can't be written at the beginning refuses the batch; one that can't be written
/// later is told, and the one before stays whole.
#[test]
fn a_manifest_that_finds_no_room_is_told_and_the_one_before_stays_whole() {
    let workspace = Workspace::scripted(&[
        Turn::command("read -r go <go"),
        Turn::finish("did what there was to be done"),
    ]);
    let items: String = (0..3)
        .map(|n| {
            let needs: Vec<String> = (0..n).map(|before| format!("i{before}")).collect();
            format!(
                "{}\n",
                json!({"id": format!("i{n}"), "task": "go", "needs": needs})
            )
        })
        .collect();
    workspace.write("items.jsonl", items);
    let full = "mkdir m && mount -t tmpfs -o size=64k none m && mkfifo go && \
                fill() { dd if=/dev/zero of=m/fill bs=1k 2>/dev/null; }; \
                batch() { \"$0\" run --batch items.jsonl --manifest m/m.json -q >/dev/null; };";
    let at_first = format!("{full} fill; batch; code=$?; ls m; exit $code");
    let Some(refused) = with_mounts(&workspace, &at_first) else {
        return;
    };
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert_eq!(refused.stdout, "fill\n");
    let words = "error: the manifest `m/m.json` could not be written: No space left on device";
    assert!(refused.stderr.starts_with(words), "{refused:?}");
    assert!(
        !workspace.join("sub_agent_results").exists(),
        "no agent was started"
    );
    std::fs::remove_file(workspace.join("go")).unwrap();
    std::fs::remove_dir(workspace.join("m")).unwrap();
    // The disk fills up while the first item waits for its word.
    let later = format!(
        "{full} batch & batch=$!; exec 3<>go; until grep -qs accepted m/m.json; do sleep 0.02; done; fill; \
         echo go >&3; echo go >&3; echo go >&3; wait $batch; code=$?; cat m/m.json; \
         rm m/fill; \"$0\" run --batch items.jsonl --manifest m/m.json --resume -q >/dev/null && cat m/m.json; \
         exit $code"
    );
    let ended = with_mounts(&workspace, &later).unwrap();
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(
        ended.stderr.contains("No space left on device"),
        "{ended:?}"
    );
    let manifests = serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>();
    let of_items: Vec<Vec<String>> = manifests
        .map(|manifest| {
            let items = manifest.unwrap()["items"].as_array().unwrap().clone();
            let told = |item: &Value| format!("{} {}", item["status"], item["attempts"]);
            items.iter().map(told).collect()
        })
        .collect();
    // With room again the ends are taken from the log, and nothing runs twice.
    let expected = [
        ["\"accepted\" 1", "\"pending\" 0", "\"pending\" 0"],
        ["\"completed\" 1"; 3],
    ];
    assert_eq!(of_items, expected, "{ended:?}");
}
