//! How much memory a worker takes, whatever its tools meet. A gigabyte of output once took the
//! agent's process, and the whole session with it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use system_tests::{Turn, Workspace, tool_texts, until};

const BUDGET: Duration = Duration::from_secs(400);
const DONE: &str = "read and searched what is far too large to be held in memory as a whole";
/// The most that a worker may ever have held, in KiB.
const PEAK_KIB_MAX: u64 = 64 * 1024;

/// The most that a process has held so far (`VmHWM` of proc(5)); none once it is gone.
fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs a worker with these turns. Hands back its peak and what its tools told.
fn peak_of(turns: &[Turn]) -> (u64, Vec<String>) {
    let mut turns = turns.to_vec();
    // The peak only grows, and is read while this lasts.
    turns.push(Turn::command("sleep 1"));
    turns.push(Turn::finish(DONE));
    let workspace = Workspace::scripted(&turns);
    workspace.write("task.md", "meet large things");
    let mut command = workspace.command("worker");
    command
        .args(["--task-file", "task.md", "--output-format", "json"])
        .args(["--timeout-seconds", "390"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut worker = command.spawn().unwrap();
    let mut peak = 0;
    let status = until(BUDGET, || {
        peak = peak_kib(worker.id()).unwrap_or(0).max(peak);
        worker.try_wait().unwrap()
    });
    let Some(status) = status else {
        worker.kill().unwrap();
        worker.wait().unwrap();
        panic!("the worker did not end in {BUDGET:?}");
    };
    assert!(status.success(), "{status:?}");
    let told = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    (peak, told)
}

#[test]
fn a_gigabyte_of_output_and_a_line_without_end_cost_little_memory() {
    let (peak, told) = peak_of(&[
        Turn::command_within("yes 'some line of output' | head -c 1000000000", 380),
        Turn::command_within("head -c 50000000 /dev/zero | tr '\\0' x", 100),
    ]);
    assert!(
        told[0].starts_with("[exit code 0; 1000000000 bytes of output, "),
        "{:.200}",
        told[0]
    );
    assert!(
        told[1].starts_with("[exit code 0; 50000000 bytes of output, "),
        "{:.200}",
        told[1]
    );
    assert!(told.iter().all(|text| text.chars().count() < 30_000));
    assert!(peak > 0 && peak < PEAK_KIB_MAX, "{peak} KiB");
}

#[test]
fn a_file_of_two_hundred_megabytes_costs_little_memory() {
    let (peak, told) = peak_of(&[
        Turn::command("yes 'some line of a long file' | head -c 200000000 > long.txt"),
        Turn::call("read_file", json!({"path": "long.txt"})),
        Turn::call(
            "read_file",
            json!({"path": "long.txt", "start_line": 5_000_000}),
        ),
        Turn::call("search_workspace", json!({"query": "no such line"})),
        Turn::command("head -c 50000000 /dev/zero | tr '\\0' x > line.txt"),
        Turn::call("read_file", json!({"path": "line.txt"})),
        Turn::call(
            "search_workspace",
            json!({"query": "xxxx", "glob": "line.txt"}),
        ),
        Turn::call(
            "edit_file",
            json!({"file_path": "long.txt", "replacements":
            [{"old_string": "some", "new_string": "any"}]}),
        ),
        Turn::command("rm long.txt line.txt"),
    ]);
    assert!(
        told[1].contains("some line of a long file"),
        "{:.200}",
        told[1]
    );
    assert!(told[7].contains("too_large"), "{:.200}", told[7]);
    assert!(peak > 0 && peak < PEAK_KIB_MAX, "{peak} KiB");
}
