//! What the next leader makes of runs whose leader died, and how their agents go on.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{
    Ended, Ground, Rung, Serve, Turn, Workspace, on_each, run, skipped, tool_texts, until,
};

/// Long enough for anything on a busy machine; never waited out when all is well.
const BUDGET: Duration = Duration::from_secs(60);
/// Where the only agent's files lie.
const DIR: &str = "sub_agent_results/agent_1";

fn leader(workspace: &Workspace, arguments: &[&str]) -> Ended {
    run(workspace.command("leader").args(arguments), BUDGET)
}

/// A workspace whose agent writes a file and then sleeps in a command, and a leader that has been
/// killed meanwhile. With it come the agent's run and the turns that its model has had: a scripted
/// model goes on in its script behind the answers that stand in the conversation.
fn killed(ground: Ground) -> (Workspace, String, Vec<Turn>) {
    let workspace = Workspace::on(ground);
    let mut alive = workspace.liveness("alive");
    let hold = format!("{} sleep 300", alive.hold());
    let first = Turn::call(
        "write_file",
        json!({"file_path": "before.txt", "content": "kept"}),
    );
    let turns = vec![first, Turn::command(&hold)];
    workspace.script("default", &turns);
    workspace.configure("");
    let mut serve = Serve::start(&workspace);
    let started = serve.call(
        "create_sub_agent",
        json!({"summary": "is cut off in its work", "task": "the task as it was given",
               "run_in_background": true}),
    );
    assert!(alive.wait_up(1, BUDGET), "{started}");
    serve.kill();
    assert!(alive.wait_gone(Duration::from_secs(5)).is_some());
    let task = started["task_id"].as_str().unwrap().to_owned();
    (workspace, task, turns)
}

fn logs_of(workspace: &Workspace) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(workspace.join(".muster/runs")).unwrap();
    let mut logs: Vec<PathBuf> = runs
        .map(|run| run.unwrap().path().join("events.jsonl"))
        .collect();
    logs.sort();
    logs
}

#[test]
fn an_agent_that_was_cut_off_goes_on_where_it_was() {
    on_each(&[Rung::Pidns], |ground| {
        let (workspace, cut_off, mut turns) = killed(ground);
        let ps = leader(&workspace, &["ps", "--json"]).json();
        assert_eq!(ps["notices"][0]["task_id"], json!(cut_off), "{ps}");
        assert_eq!(ps["notices"][0]["status"], "interrupted", "{ps}");
        let shown = leader(&workspace, &["ps"]).stdout;
        assert!(
            shown.contains(&format!("`leader resume {cut_off}`")),
            "{shown}"
        );
        // What the agent could have changed is not what it goes on with.
        let own = workspace.join(DIR).join(".subagent");
        for name in ["task.md", "job.json"] {
            let text = std::fs::read_to_string(own.join(name)).unwrap();
            let changed = text.replace("the task as it was given", "something else");
            std::fs::write(
                own.join(name),
                changed.replace("\"timeout_seconds\": 600", "\"timeout_seconds\": 1"),
            )
            .unwrap();
        }
        let after = json!({"file_path": format!("{DIR}/after.txt"), "content": "new"});
        turns.push(Turn::call("write_file", after));
        turns.push(Turn::finish("went on to the end"));
        workspace.script("default", &turns);
        let ended = leader(
            &workspace,
            &["resume", "1", "--json", "--timeout-seconds", "50"],
        );
        assert_eq!(ended.code(), 0, "{ended:?}");
        let result = ended.json();
        assert_eq!(result["status"], "completed", "{result}");
        assert_eq!(
            (&result["agent_id"], &result["deliverables_dir"]),
            (&json!(1), &json!(DIR))
        );
        assert_ne!(result["task_id"], json!(cut_off));
        assert_eq!(result["deliverables_files"], json!(["after.txt"]));
        assert!(
            result["stats"]["runtime_seconds"].as_u64() < Some(30),
            "{result}"
        );
        let file = workspace.conversation(DIR);
        assert_eq!(
            (&file["task_id"], &file["status"]),
            (&result["task_id"], &json!("completed"))
        );
        let messages = file["messages"].as_array().unwrap();
        assert_eq!(messages[0]["role"], "system");
        assert!(
            messages[1]["content"]
                .as_str()
                .unwrap()
                .contains("the task as it was given")
        );
        // The call that was cut off has its answer, so that calls and results are pairs.
        let calls: usize = messages
            .iter()
            .filter_map(|message| message["tool_calls"].as_array())
            .map(Vec::len)
            .sum();
        let texts = tool_texts(&file);
        assert_eq!((calls, texts.len()), (4, 4), "{file}");
        assert!(texts[0].contains("before.txt"), "{texts:?}");
        // The worker may have come to say so itself before the kernel ended it: the words are the same.
        let answer: Value = serde_json::from_str(&texts[1]).unwrap();
        assert_eq!(answer["error"]["code"], "cancelled", "{texts:?}");
        let job: Value =
            serde_json::from_str(&workspace.read(&format!("{DIR}/.subagent/job.json"))).unwrap();
        assert_eq!(
            (&job["resumes"], &job["attempt"]),
            (&json!(cut_off), &json!(2))
        );
        assert_eq!(job["limits"]["timeout_seconds"], 50);
        assert_eq!(
            workspace.read(&format!("{DIR}/.subagent/task.md")),
            "the task as it was given"
        );
        // Its notice is done, and there is nothing left to go on with.
        let ps = leader(&workspace, &["ps", "--json"]).json();
        assert_eq!(ps["notices"], json!([]), "{ps}");
        for whom in [cut_off.as_str(), "1"] {
            let again = leader(&workspace, &["resume", whom, "--json"]);
            assert_eq!(again.json()["error"]["code"], "already_ended", "{again:?}");
            assert_ne!(again.code(), 0);
        }
    });
}

#[test]
fn an_agent_that_lives_is_not_started_twice() {
    on_each(&[Rung::Pidns], |ground| {
        let (workspace, cut_off, mut turns) = killed(ground);
        let mut alive = workspace.liveness("second");
        let hold = format!("{} sleep 300", alive.hold());
        turns.push(Turn::command(&hold));
        workspace.script("default", &turns);
        let mut child = workspace
            .command("leader")
            .args(["resume", "1", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(alive.wait_up(1, BUDGET));
        for whom in ["1", cut_off.as_str()] {
            let refused = leader(&workspace, &["resume", whom, "--json"]);
            let error = &refused.json()["error"];
            assert_eq!(error["code"], "already_ended", "{refused:?}");
            assert!(!error["hint"].as_str().unwrap().is_empty(), "{refused:?}");
        }
        // Killed once more, it can go on once more.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alive.wait_gone(Duration::from_secs(5)).is_some());
        turns.push(Turn::finish("the third one did it"));
        workspace.script("default", &turns);
        let ended = leader(&workspace, &["resume", "1", "--json"]);
        assert_eq!(ended.json()["status"], "completed", "{ended:?}");
        let file = workspace.conversation(DIR);
        assert_eq!(tool_texts(&file).len(), 4, "{file}");
        let job: Value =
            serde_json::from_str(&workspace.read(&format!("{DIR}/.subagent/job.json"))).unwrap();
        assert_eq!(job["attempt"], 3);
    });
}

#[test]
fn a_log_that_names_a_strangers_process_signals_nobody() {
    // A supervisor trusted a bare number from its state after a reboot, and ended another program.
    on_each(&[Rung::Pidns], |ground| {
        for boot in [None, Some("00000000-0000-4000-8000-000000000000")] {
            let (workspace, _, _) = killed(ground);
            let mut stranger = Command::new("sleep").arg("300").spawn().unwrap();
            forge(&workspace, stranger.id(), boot);
            let ps = leader(&workspace, &["ps", "--json"]).json();
            assert_eq!(ps["runs"][0]["agents"][0]["status"], "interrupted", "{ps}");
            // Neither is it by whoever asks for the end of that agent.
            let killed = leader(&workspace, &["kill", "1"]);
            let lives = stranger.try_wait().unwrap().is_none();
            stranger.kill().unwrap();
            stranger.wait().unwrap();
            assert!(lives, "{ground:?} {boot:?}: {killed:?}");
        }
    });
}

/// Writes into the only log that an agent was this process, of this boot of the machine or of
/// another one.
fn forge(workspace: &Workspace, pid: u32, boot: Option<&str>) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let start: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
    let [log] = logs_of(workspace).try_into().unwrap();
    let forged: String = std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["event"] == "agent.running" {
                event["process"]["pid"] = json!(pid);
                event["process"]["start_ticks"] = json!(start);
                if let Some(boot) = boot {
                    assert!(event["process"]["boot_id"].is_string(), "{event}");
                    event["process"]["boot_id"] = json!(boot);
                }
            }
            format!("{event}\n")
        })
        .collect();
    assert!(forged.contains(&format!("\"pid\":{pid}")), "{forged}");
    std::fs::write(&log, forged).unwrap();
}

#[test]
fn agents_of_a_dead_leader_are_never_listed_as_running() {
    // Old runs came back as running after a restart, and nobody ever closed them.
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper], |ground| {
        let workspace = Workspace::on(ground);
        let mut alive = workspace.liveness("alive");
        workspace.script(
            "default",
            &[Turn::command(&format!("{} sleep 600", alive.hold()))],
        );
        workspace.configure("");
        let mut serve = Serve::start(&workspace);
        let create = |n: u32| {
            json!({"agent_id": n, "summary": "works until its leader dies", "task": "go",
                   "run_in_background": true})
        };
        for n in 1..=4 {
            serve.call("create_sub_agent", create(n));
        }
        assert!(alive.wait_up(4, BUDGET));
        serve.kill();
        assert!(
            alive.wait_gone(Duration::from_secs(2)).is_some(),
            "{ground:?}"
        );
        // Looked at by many at once: one of them closes the run, once.
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| assert_eq!(leader(&workspace, &["ps", "--json"]).code(), 0));
            }
        });
        let [log] = logs_of(&workspace).try_into().unwrap();
        let records: Vec<Value> = std::fs::read_to_string(log)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let ends: Vec<&Value> = records
            .iter()
            .filter(|record| record["event"] == "agent.ended")
            .map(|record| &record["result"]["stop_reason"])
            .collect();
        assert_eq!(ends, ["leader_died"; 4], "{ground:?}");
        assert_eq!(records.last().unwrap()["event"], "run.ended", "{ground:?}");
        let next = Serve::start(&workspace);
        let listed = next.call("list_active_sub_agents", json!({}));
        assert_eq!(listed["agents"], json!([]), "{ground:?}: {listed}");
        // Numbers and directories are free again.
        let mut again = create(1);
        again["reuse_deliverables_dir"] = json!(true);
        let again = next.call("create_sub_agent", again);
        assert_eq!(again["status"], "running", "{ground:?}: {again}");
    });
}

#[test]
fn a_log_that_is_torn_anywhere_is_closed_with_what_is_whole() {
    on_each(&[Rung::Pidns], |ground| {
        let (workspace, task, _) = killed(ground);
        let [log] = logs_of(&workspace).try_into().unwrap();
        let whole = std::fs::read(&log).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        let cuts = ends
            .iter()
            .skip(1)
            .flat_map(|end| [end - 30, *end, end + 1]);
        for cut in cuts {
            std::fs::write(&log, &whole[..cut]).unwrap();
            let ps = leader(&workspace, &["ps", "--json"]);
            assert_eq!(ps.code(), 0, "cut at {cut}: {ps:?}");
            // Cut before its agent was created, the run has none and is no line of the list.
            let runs = ps.json()["runs"].as_array().unwrap().clone();
            for agent in runs
                .iter()
                .flat_map(|run| run["agents"].as_array().unwrap())
            {
                assert_eq!(agent["task_id"], json!(task), "cut at {cut}");
                let status = agent["status"].as_str().unwrap();
                assert!(
                    ["interrupted", "terminated"].contains(&status),
                    "cut at {cut}: {status}"
                );
            }
            // What was whole is as it was, and what came after a torn line stands on its own.
            let text = std::fs::read(&log).unwrap();
            let kept = whole[..cut]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .unwrap()
                + 1;
            assert_eq!(text[..kept], whole[..kept], "cut at {cut}");
            let lines: Vec<Value> = String::from_utf8(text)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let last = lines.last().unwrap();
            assert_eq!(last["event"], "run.ended", "cut at {cut}");
            let torn = log.with_file_name("events.torn");
            // An event that lacks nothing but its newline is no torn one.
            if serde_json::from_slice::<Value>(&whole[kept..cut]).is_err() && kept < cut {
                let aside = std::fs::read(&torn).unwrap();
                assert!(aside.starts_with(&whole[kept..cut]), "cut at {cut}");
                assert!(ps.stderr.contains("events.torn"), "{ps:?}");
            }
            std::fs::remove_file(&torn).ok();
        }
    });
}

#[test]
fn a_full_disk_under_the_log_stops_the_agents_and_says_so() {
    let mounts = Command::new("unshare").args(["-m", "true"]).status();
    if !nix::unistd::geteuid().is_root() || !mounts.is_ok_and(|status| status.success()) {
        skipped("a small file system needs mount(2) as root");
        return;
    }
    let workspace = Workspace::new();
    let mut alive = workspace.liveness("alive");
    let hold = format!("{} sleep 300", alive.hold());
    workspace.script("default", &[Turn::command(&hold)]);
    workspace.configure("[limits]\ngrace_seconds = 1");
    std::fs::create_dir_all(workspace.join(".muster")).unwrap();
    // Room for the beginning of the log and not for its end: what is left after the run's start
    // is taken away while the agent works.
    let script = "mount -t tmpfs -o size=256k none .muster && \
                  \"$0\" run --json --summary 'meets a full disk' go & leader=$!; \
                  read -r go <fill; dd if=/dev/zero of=.muster/fill bs=1k 2>/dev/null; \
                  kill -TERM $leader; wait $leader";
    nix::unistd::mkfifo(
        &workspace.join("fill"),
        nix::sys::stat::Mode::from_bits_truncate(0o600),
    )
    .unwrap();
    let environment = workspace.command("leader");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(system_tests::executable("leader"));
    command.current_dir(workspace.path()).env_clear();
    for (name, value) in environment.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(alive.wait_up(1, BUDGET));
    std::fs::write(workspace.join("fill"), "go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("the event log can't be written"),
        "{output:?}"
    );
    assert!(stderr.contains("No space left on device"), "{output:?}");
    assert!(alive.wait_gone(Duration::from_secs(5)).is_some());
    // The agent's own files lie elsewhere, and tell its end whole.
    let file = workspace.conversation(DIR);
    assert_eq!(file["status"], "terminated", "{file}");
    let gone = until(Duration::from_secs(1), || {
        (!workspace.join(".muster/runs").exists()).then_some(())
    });
    assert!(gone.is_some(), "the small file system was the run's own");
}
