//! Commands of a model, run for real under a leader.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::leader::Ended;
use system_tests::{Liveness, Serve, Turn, Workspace, run, tool_texts};

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
    assert!(texts[0].starts_with("[exit code 0; "), "{texts:?}");
    assert!(texts[0].contains("\nstarted\n"), "{texts:?}");
    assert!(
        texts[0].contains("[note: a background process was left"),
        "{texts:?}"
    );
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
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    for word in ["got:\n", "EOFError", "end\n"] {
        assert!(texts[0].contains(word), "{texts:?}");
    }
}

#[test]
fn pagers_and_editors_do_not_wait_for_a_key() {
    // A version-control command opened a pager or an editor and waited for a key press.
    let workspace = Workspace::scripted(&[
        Turn::calls(&[
            ("run_command", json!({"command": "git log"})),
            (
                "run_command",
                json!({"command": "git commit --allow-empty"}),
            ),
        ]),
        Turn::finish(DONE),
    ]);
    // The editor is opened only where a commit could be made.
    workspace.configure("[confinement]\ngit = \"writable\"\n");
    let git = "git init -q . && git config user.email a@b && git config user.name n && \
               for i in $(seq 1 500); do \
               printf 'commit refs/heads/main\\ncommitter n <a@b> %s +0000\\ndata 4\\nc%03d\\n' $i $i; \
               done | git fast-import --quiet && git symbolic-ref HEAD refs/heads/main";
    let made = run(
        std::process::Command::new("sh")
            .args(["-c", git])
            .current_dir(workspace.path()),
        Duration::from_secs(60),
    );
    assert_eq!(made.code(), 0, "{made:?}");
    // The leader has a terminal, as at a person's desk; its agent's commands must not see it.
    let on_terminal = "import os, pty, sys; \
                       sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let leader = workspace.command("leader");
    let mut command = std::process::Command::new("python3");
    command
        .current_dir(workspace.path())
        .env_clear()
        .envs(
            leader
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .args(["-c", on_terminal])
        .arg(leader.get_program())
        .args(["run", "--summary", "looks at the history", "look"]);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(texts[0].starts_with("[exit code 0; "), "{}", texts[0]);
    assert!(
        texts[0].contains("c500") && texts[0].contains("c001"),
        "{}",
        texts[0].len()
    );
    assert!(texts[0].len() < 64 * 1024, "{}", texts[0].len());
    assert!(texts[1].starts_with("[failed: exit code "), "{texts:?}");
    assert!(texts[1].contains("editor"), "{}", texts[1]);
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
    assert_eq!(
        texts[0],
        "[failed: killed by SIGKILL (signal 9); 6 bytes of output]\nbefore"
    );
    assert_eq!(
        texts[1],
        "[failed: killed by SIGTERM (signal 15); 6 bytes of output]\nbefore"
    );
    assert_eq!(
        texts[2],
        "[failed: exit code 137; 0 bytes of output]\n[no output]"
    );
}

#[test]
fn the_task_stands_in_no_argument_list() {
    // A clean-up command killed by pattern; the prompt stood in the agent's own argument list.
    let workspace = Workspace::new();
    let mut alive = Liveness::new(&workspace.path(), "alive");
    let look = "grep -al ZEBRA4[2] /proc/[0-9]*/cmdline; echo looked";
    let turns = [
        Turn::command(&format!("{look}; {} exec sleep 300", alive.hold())),
        Turn::finish(DONE),
    ];
    workspace.script("default", &turns);
    workspace.configure("");
    let serve = Serve::start(&workspace);
    serve.call(
        "create_sub_agent",
        json!({"summary": "looks for ZEBRA42 now", "run_in_background": true,
               "task": "Look for the word ZEBRA42 in the files."}),
    );
    assert!(alive.wait_up(1, Duration::from_secs(30)));
    // The agent sees only its own processes; from outside all of them are seen.
    let tree = super::supervisor::descendants(serve.pid());
    assert!(tree.len() >= 3, "jail, worker and command: {tree:?}");
    let holds_the_task = |pid: &i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains("ZEBRA42")
    };
    let found: Vec<&i32> = tree.iter().filter(|pid| holds_the_task(pid)).collect();
    assert!(found.is_empty(), "{found:?}");
    let status = serve.call("get_sub_agent_status", json!({"agent_id": 1}));
    assert_eq!(status["agents"][0]["status"], "running", "{status}");
    let ended = serve.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert_eq!(ended["status"], "terminated", "{ended}");
    let journal = workspace.read("sub_agent_results/agent_1/.subagent/journal.jsonl");
    assert!(journal.contains("ZEBRA42"), "the task did arrive");
    assert!(!journal.contains("/cmdline\\nlooked"), "{journal}");
}

#[test]
fn a_foreground_server_meets_its_time_out() {
    // The model started a server in the foreground and the tool waited for ever.
    let workspace = Workspace::new();
    let mut alive = Liveness::new(&workspace.path(), "alive");
    let server = format!(
        "{} echo up; exec python3 -m http.server --bind 127.0.0.1 0",
        alive.hold()
    );
    let turns = [Turn::command_within(&server, 3), Turn::finish(DONE)];
    workspace.script("default", &turns);
    workspace.configure("");
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(
        texts[0].starts_with("[failed: timed out (timeout of 3 s)"),
        "{texts:?}"
    );
    assert!(texts[0].contains("\nup\n"), "{texts:?}");
    assert!(alive.wait_gone(Duration::from_secs(2)).is_some());
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
        texts[0].starts_with("[failed: timed out (timeout of 3 s)"),
        "{texts:?}"
    );
    // Nobody spins on the closed pipes meanwhile.
    assert!(ended.cpu < Duration::from_secs(2), "{:?}", ended.cpu);
}

#[test]
fn a_gigabyte_of_output_costs_no_memory() {
    // Output was collected without a limit; the agent ran out of memory.
    let workspace = Workspace::scripted(&[
        Turn::command("head -c 1073741824 /dev/zero | tr '\\0' x"),
        Turn::command("head -c 52428800 /dev/zero | tr '\\0' y >&2"),
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
    for (text, letter) in texts.iter().zip(['x', 'y']) {
        assert!(text.len() < 64 * 1024, "{}", text.len());
        assert!(text.contains("left out in the middle"), "{}", text.len());
        assert!(text.ends_with(letter) || text.ends_with(']'), "no tail");
    }
    assert!(ended.peak_kib < 200 * 1024, "{} KiB", ended.peak_kib);
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
    // Every frame of a progress bar went to the model as one long line.
    assert_eq!(
        texts[0],
        "[exit code 0; 128914 bytes of output]\n20000%\nsecond\nthird\n"
    );
    // Output in another encoding spoiled the transcript until the model gave empty replies.
    let lost = '\u{fffd}';
    assert!(
        texts[1].starts_with("[exit code 0; 13 bytes of output]\n") && !texts[1].contains('\0'),
        "{:?}",
        texts[1]
    );
    assert!(
        texts[1].contains("abc") && texts[1].contains(lost),
        "{:?}",
        texts[1]
    );
    // With a child that kept the pipe the output of the failure was lost.
    assert!(
        texts[2].starts_with("[failed: exit code 3; 1288907 bytes of output"),
        "{}",
        &texts[2][..200]
    );
    assert!(
        texts[2].contains("[note: a background process was left"),
        "{}",
        &texts[2][..300]
    );
    assert!(
        texts[2].ends_with("200000\nFAIL_REASON\n"),
        "{}",
        texts[2].len()
    );
    assert!(texts[2].len() < 64 * 1024, "{}", texts[2].len());
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
fn long_texts_of_wide_characters_are_cut_nowhere_but_between_them() {
    // The same slicing, in everything else that is shortened: summary, task, report, file names.
    for ascii in 0..4 {
        let wide = |count: usize| format!("{}{}", "a".repeat(ascii), "固🌍".repeat(count));
        let name = format!("sub_agent_results/agent_1/{}", wide(30));
        let report = wide(1_900);
        let workspace = Workspace::scripted(&[
            Turn::call(
                "write_file",
                json!({"file_path": name, "content": wide(20_000)}),
            ),
            Turn::call("read_file", json!({"path": name})),
            Turn::finish(&report),
        ]);
        let serve = Serve::start(&workspace);
        let answer = serve.call(
            "create_sub_agent",
            json!({"summary": wide(90), "task": wide(20_000)}),
        );
        assert_eq!(answer["status"], "completed", "{answer}");
        assert_eq!(answer["summary"], wide(90));
        assert_eq!(answer["deliverables_files"], json!([wide(30)]));
        let told = answer["result_summary"].as_str().unwrap();
        assert!(told.starts_with(&wide(100)), "{told}");
        assert!(!told.contains('\u{fffd}'), "{told}");
        assert!(answer.to_string().len() < 8 * 1024);
        let file = workspace.conversation("sub_agent_results/agent_1");
        assert_eq!(file["result"]["summary"], json!(report));
        let first = file["messages"][1]["content"].as_str().unwrap();
        assert!(first.contains(&wide(20_000)), "{}", first.len());
        assert!(!file.to_string().contains('\u{fffd}'));
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
