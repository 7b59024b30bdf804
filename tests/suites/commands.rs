//! Commands of a model, run for real under a leader.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::leader::Ended;
use system_tests::{Liveness, Turn, Workspace, run, tool_texts};

const BUDGET: Duration = Duration::from_secs(90);
const DONE: &str = "ran the command that the task asked for, as the script says";

/// One agent under `leader run`.
pub(crate) fn leader_run(workspace: &Workspace, more: &[&str]) -> Ended {
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "runs one command", "run it"])
        .args(more);
    run(&mut command, BUDGET)
}

/// What the tools answered when the model made these turns, and the run itself.
fn after(turns: &[Turn]) -> (Vec<String>, Ended, Workspace) {
    let workspace = Workspace::scripted(turns);
    let ended = leader_run(&workspace, &[]);
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    (texts, ended, workspace)
}

#[test]
fn a_background_child_does_not_hold_up_the_answer() {
    // A command ended, but a grandchild had inherited its output pipe; the tool waited for
    // end-of-file and the whole agent froze.
    let workspace = Workspace::new();
    let mut alive = Liveness::new(&workspace.path(), "alive");
    let command = format!("({} exec sleep 300) & echo started", alive.hold());
    workspace.script("default", &[Turn::command(&command), Turn::finish(DONE)]);
    workspace.configure("");
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(texts[0].contains("started"), "{texts:?}");
    assert!(texts[0].contains("background"), "{texts:?}");
    assert!(alive.wait_gone(Duration::from_secs(2)).is_some());
}

#[test]
fn a_child_in_a_session_of_its_own_does_not_outlive_the_agent() {
    // A kill by process group reached nothing that had made its own session.
    let workspace = Workspace::new();
    let mut alive = Liveness::new(&workspace.path(), "alive");
    let held = format!("{} exec sleep 400", alive.hold());
    let command = format!("setsid sh -c \"{held}\" </dev/null >/dev/null 2>&1 & sleep 0.3; echo x");
    workspace.script("default", &[Turn::command(&command), Turn::finish(DONE)]);
    workspace.configure("");
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(
        alive.wait_gone(Duration::from_secs(2)).is_some(),
        "{ended:?}"
    );
}

#[test]
fn standard_input_is_empty_from_the_start() {
    // A command waiting for input froze the agent for good.
    let (texts, ended, _workspace) = after(&[
        Turn::command("read -r x; echo got:$x; python3 -c 'input()'; echo end"),
        Turn::finish(DONE),
    ]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    for word in ["got:", "EOFError", "end"] {
        assert!(texts[0].contains(word), "{texts:?}");
    }
}

#[test]
fn pagers_and_editors_do_not_wait_for_a_key() {
    let workspace = Workspace::scripted(&[
        Turn::calls(&[
            ("run_command", json!({"command": "git log"})),
            (
                "run_command",
                json!({"command": "git commit --allow-empty", "timeout_seconds": 20}),
            ),
        ]),
        Turn::finish(DONE),
    ]);
    let git = "git init -q . && git config user.email a@b && git config user.name n && \
               for i in $(seq 1 500); do echo \"commit refs/heads/main
committer n <a@b> $i +0000
data 3
c$i
\"; done > /dev/null; git commit -q --allow-empty -m first && \
               for i in $(seq 1 40); do git commit -q --allow-empty -m c$i; done";
    let made = run(
        std::process::Command::new("sh")
            .args(["-c", git])
            .current_dir(workspace.path()),
        Duration::from_secs(60),
    );
    assert_eq!(made.code(), 0, "{made:?}");
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(texts[0].contains("c40"), "{texts:?}");
    assert!(!texts[1].contains("timed out"), "{texts:?}");
}

#[test]
fn a_signal_is_told_apart_from_an_exit_code() {
    // A command killed by the kernel had no exit code; the tool turned that into 0.
    let (texts, _, _workspace) = after(&[
        Turn::command("printf before; kill -9 $$"),
        Turn::command("printf before; kill -TERM $$"),
        Turn::command("exit 137"),
        Turn::finish(DONE),
    ]);
    assert!(
        texts[0].contains("before") && texts[0].contains("SIGKILL"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("before") && texts[1].contains("SIGTERM"),
        "{texts:?}"
    );
    assert!(
        texts[2].contains("137") && !texts[2].contains("SIGKILL"),
        "{texts:?}"
    );
}

#[test]
fn the_task_stands_in_no_argument_list() {
    // A clean-up command killed by pattern; the prompt stood in the agent's own argument list.
    let workspace = Workspace::scripted(&[
        Turn::command("grep -al ZEBRA4[2] /proc/[0-9]*/cmdline; echo looked"),
        Turn::finish(DONE),
    ]);
    let task = workspace.write("task.txt", "Look for the word ZEBRA42 in the files.");
    let mut command = workspace.command("leader");
    command
        .args([
            "run",
            "--json",
            "--summary",
            "looks for a word",
            "--task-file",
        ])
        .arg(task);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(texts[0].contains("looked"), "{texts:?}");
    assert!(!texts[0].contains("/cmdline"), "{texts:?}");
}

#[test]
fn a_foreground_server_meets_its_time_out() {
    let (texts, ended, _workspace) = after(&[
        Turn::command_within("echo up; exec python3 -m http.server --bind 127.0.0.1 0", 3),
        Turn::finish(DONE),
    ]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    assert!(texts[0].contains("up"), "{texts:?}");
    assert!(
        texts[0].contains("timed out") || texts[0].contains("time-out"),
        "{texts:?}"
    );
}

#[test]
fn closed_outputs_are_no_end() {
    // End-of-file on both pipes is no proof that the process ended.
    let (texts, ended, _workspace) = after(&[
        Turn::command_within("exec >&- 2>&-; sleep 400", 3),
        Turn::finish(DONE),
    ]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    assert!(
        texts[0].contains("timed out") || texts[0].contains("time-out"),
        "{texts:?}"
    );
}

#[test]
fn a_gigabyte_of_output_costs_no_memory() {
    // Output was collected without a limit; the agent ran out of memory.
    let workspace = Workspace::scripted(&[
        Turn::command("head -c 1073741824 /dev/zero | tr '\\0' x"),
        Turn::command("head -c 52428800 /dev/zero | tr '\\0' y >&2"),
        Turn::command("grep VmHWM /proc/$PPID/status"),
        Turn::finish(DONE),
    ]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(
        texts[0].contains("1073741824"),
        "{}",
        &texts[0][..texts[0].len().min(300)]
    );
    assert!(
        texts[1].contains("52428800"),
        "{}",
        &texts[1][..texts[1].len().min(300)]
    );
    for text in &texts[..2] {
        assert!(text.len() < 64 * 1024, "{}", text.len());
    }
}

#[test]
fn output_that_is_no_plain_text_stays_readable() {
    let (texts, ended, workspace) = after(&[
        Turn::command(
            "for i in $(seq 1 20000); do printf '\\r%d%%' $i; done; echo; printf 'first\\rsecond\\nthird\\n'",
        ),
        Turn::command(
            "printf '\\377\\376\\000abc\\303'; printf '\\307\\375\\266\\257\\306\\367' >&2",
        ),
        Turn::command("sleep 20 & seq 1 200000; echo FAIL_REASON >&2; exit 3"),
        Turn::finish(DONE),
    ]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(
        texts[0].len() < 1000 && texts[0].contains("20000%"),
        "{}",
        texts[0].len()
    );
    assert!(
        texts[0].contains("second") && texts[0].contains("third"),
        "{}",
        texts[0]
    );
    assert!(texts[1].contains("abc"), "{}", texts[1]);
    assert!(texts[2].contains("FAIL_REASON"), "{}", texts[2].len());
    assert!(
        texts[2].contains('3') && texts[2].contains("background"),
        "{}",
        texts[2].len()
    );
    let conversation: Value = workspace.conversation("sub_agent_results/agent_1");
    assert_eq!(conversation["status"], "completed");
}

#[test]
fn a_cut_never_splits_a_character() {
    // Slicing at the byte cap inside a character panicked; the command gave nothing at all.
    let commands: Vec<Turn> = (0..4)
        .map(|k| {
            Turn::command(&format!(
                "python3 -c \"print('a'*{k}+'固'*40000+'🌍'*40000)\""
            ))
        })
        .chain([Turn::finish(DONE)])
        .collect();
    let (texts, ended, _workspace) = after(&commands);
    assert_eq!(ended.code(), 0, "{ended:?}");
    for text in &texts[..4] {
        assert!(text.contains('固') && text.contains('🌍'), "{}", text.len());
    }
}

#[test]
fn what_the_product_writes_for_a_flood_stays_under_its_cap() {
    // A background task's output file grew to 1.7 TB and filled the disk.
    let (texts, ended, workspace) = after(&[
        Turn::command("yes verylongline & sleep 3; echo done"),
        Turn::finish(DONE),
    ]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(texts[0].contains("exit code 0"), "{}", texts[0].len());
    let written: u64 = walk(&workspace.join("sub_agent_results"));
    assert!(written < 12 * 1024 * 1024, "{written}");
}

fn walk(folder: &std::path::Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let kind = entry.metadata().unwrap();
            if kind.is_dir() {
                walk(&entry.path())
            } else {
                kind.len()
            }
        })
        .sum()
}
