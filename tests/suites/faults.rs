//! Whatever an agent started, and however it tries to get away, ends with it: by terminate, with
//! the leader, with its worker. Each is tried as every user that this run can be, on every rung.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{
    Escapees, Ground, Rung, Serve, Turn, Workspace, grounds, process, run, tool_texts, until,
    within,
};

const ALL: [Rung; 4] = [Rung::Cgroup2, Rung::Pidns, Rung::Subreaper, Rung::Group];
/// How long all the processes of a tree may take to come up on a busy machine.
const UP: Duration = Duration::from_secs(30);
/// How long a tree may take to be empty after the answer that says so: the kernel closes the
/// descriptors of a killed process a moment after its parent has been told.
const GONE: Duration = Duration::from_secs(2);
const DONE: &str = "ran the command that the task asked for, as the script says";

fn background(task: &str) -> Value {
    json!({"summary": "is ended by a test", "task": task, "run_in_background": true})
}

/// The escapees that the rung promises to reach.
fn reached(workspace: &Workspace) -> Escapees {
    match workspace.ground().rung {
        Rung::Group => Escapees::within_the_group(workspace),
        Rung::Subreaper | Rung::Pidns | Rung::Cgroup2 => Escapees::all(workspace),
    }
}

/// A leader with one agent, a command of which has started everything that may escape.
fn escaping(ground: Ground, more: &str) -> (Workspace, Serve, Escapees) {
    let workspace = Workspace::on(ground);
    let mut escapees = reached(&workspace);
    workspace.script("default", &[Turn::command(&escapees.command())]);
    workspace.configure(more);
    let serve = Serve::start(&workspace);
    let started = serve.call("create_sub_agent", background("let them go"));
    assert_eq!(started["status"], "running", "{ground:?}: {started}");
    escapees.wait_up(UP);
    (workspace, serve, escapees)
}

/// The rung that the log tells of the first agent.
fn recorded_rung(workspace: &Workspace, serve: &Serve) -> String {
    let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    let confined = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|record| record["event"] == "agent.confined")
        .unwrap();
    confined["confinement"]["rung"].as_str().unwrap().to_owned()
}

#[test]
fn what_escaped_is_gone_when_terminate_answers() {
    for ground in grounds(&ALL) {
        let (workspace, serve, mut escapees) = escaping(ground, "[limits]\ngrace_seconds = 1\n");
        assert_eq!(recorded_rung(&workspace, &serve), ground.rung.name());
        let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(answer["status"], "terminated", "{ground:?}: {answer}");
        assert!(took < Duration::from_secs(5), "{ground:?}: {took:?}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        assert_eq!(process::descendants(serve.pid()), [0; 0], "{ground:?}");
    }
}

#[test]
fn what_escaped_is_gone_when_terminate_kills_at_once() {
    for ground in grounds(&ALL) {
        let (_workspace, serve, mut escapees) = escaping(ground, "[limits]\ngrace_seconds = 0\n");
        let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(answer["status"], "terminated", "{ground:?}: {answer}");
        assert!(took < Duration::from_secs(3), "{ground:?}: {took:?}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        assert_eq!(process::descendants(serve.pid()), [0; 0], "{ground:?}");
    }
}

#[test]
fn what_escaped_ends_with_a_leader_that_is_killed() {
    for ground in grounds(&ALL) {
        let (workspace, mut serve, mut escapees) = escaping(ground, "");
        serve.kill();
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        let ps = run(workspace.command("leader").args(["ps", "--json"]), UP);
        assert_eq!(ps.code(), 0, "{ground:?}: {ps:?}");
        let agent = &ps.json()["runs"][0]["agents"][0];
        assert_eq!(agent["status"], "interrupted", "{ground:?}: {agent}");
    }
}

#[test]
fn a_stopped_worker_is_gone_when_terminate_answers() {
    for ground in grounds(&ALL) {
        let (_workspace, serve, mut escapees) = escaping(ground, "[limits]\ngrace_seconds = 1\n");
        // Jail, init, keeper, worker and all below them.
        for pid in process::descendants(serve.pid()) {
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).ok();
        }
        let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(answer["status"], "terminated", "{ground:?}: {answer}");
        assert!(took < Duration::from_secs(6), "{ground:?}: {took:?}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
    }
}

#[test]
fn a_slot_is_free_only_once_what_a_worker_left_is_gone() {
    // A worker ended and its children lived on, uncounted.
    for ground in grounds(&ALL) {
        let workspace = Workspace::on(ground);
        let mut escapees = reached(&workspace);
        workspace.script("default", &[]);
        workspace.configure("[limits]\nmax_concurrent = 1\ngrace_seconds = 1\n");
        let serve = Serve::start_as(&workspace, |command| {
            command.env("MUSTER_WORKER", workspace.executable("fake_worker"));
        });
        let mut client = serve.connect();
        let task = format!("fake: shell\n{}", escapees.command_that_ends());
        let call = client.send(
            "create_sub_agent",
            json!({"summary": "leaves its children", "task": task}),
        );
        escapees.wait_up(UP);
        workspace.write("go", "");
        let answer = client.answer(call);
        assert_eq!(answer["status"], "failed", "{ground:?}: {answer}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        let next = client.call(
            "create_sub_agent",
            json!({"summary": "finds the slot free", "task": "fake: brief"}),
        );
        assert_eq!(next["status"], "completed", "{ground:?}: {next}");
    }
}

#[test]
fn a_command_that_leaves_a_holder_of_its_output_hangs_nothing() {
    // Reading to the end of a pipe that a grandchild holds is the commonest hang there is.
    for ground in grounds(&[Rung::Pidns, Rung::Subreaper]) {
        let workspace = Workspace::on(ground);
        workspace.script(
            "default",
            &[
                Turn::command("bash -c 'exec > >(tee copy.txt); echo through'"),
                Turn::command("setsid sleep 60 & echo held"),
                Turn::command("read -r line; echo \"got:$line\"; cat </dev/tty; echo after"),
                Turn::command("head -c 33554432 /dev/zero | tr '\\0' x; echo; echo flooded"),
                Turn::finish(DONE),
            ],
        );
        workspace.configure("");
        let mut command = workspace.command("leader");
        command.args(["run", "--json", "--summary", "meets held outputs", "go"]);
        let ended = run(&mut command, Duration::from_secs(60));
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        for (text, word) in texts.iter().zip(["through", "held", "got:", "flooded"]) {
            assert!(text.contains(word), "{ground:?} {word}: {text}");
        }
        assert!(texts[2].contains("after"), "{ground:?}: {texts:?}");
    }
}

#[test]
fn a_worker_that_can_not_start_frees_its_slot_and_leaves_no_zombie() {
    for ground in grounds(&[Rung::Pidns, Rung::Subreaper]) {
        let workspace = Workspace::on(ground);
        let link = workspace.home().join("worker");
        let fake = workspace.executable("fake_worker");
        let point_to = |target: &std::path::Path| {
            std::fs::remove_file(&link).ok();
            std::os::unix::fs::symlink(target, &link).unwrap();
        };
        point_to(&fake);
        workspace.script("default", &[]);
        workspace.configure("[limits]\nmax_concurrent = 1\n");
        let serve = Serve::start_as(&workspace, |command| {
            command.env("MUSTER_WORKER", &link);
        });
        let program = |name: &str, content: &[u8], mode| {
            use std::os::unix::fs::PermissionsExt;
            let path = workspace.write(name, content);
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let faults = [
            (workspace.join("vanished"), "is not there"),
            (program("plain", b"#!/bin/sh\n", 0o644), "is not executable"),
            (program("text", b"hello\n", 0o755), "neither"),
            (
                program("bad_elf", b"\x7fELFgarbage", 0o755),
                "Exec format error",
            ),
            (
                program("lost", b"#!/no/such/interpreter\n", 0o755),
                "No such file or directory",
            ),
        ];
        for (target, word) in faults {
            point_to(&target);
            let answer = serve.call(
                "create_sub_agent",
                json!({"summary": "can not be started", "task": "fake: brief"}),
            );
            assert_eq!(answer["success"], false, "{ground:?} {word}: {answer}");
            assert!(
                answer.to_string().contains(word),
                "{ground:?} {word}: {answer}"
            );
            assert_eq!(process::children(serve.pid()), [0; 0], "{ground:?} {word}");
        }
        point_to(&fake);
        let answer = serve.call(
            "create_sub_agent",
            json!({"summary": "finds the slot free", "task": "fake: brief"}),
        );
        assert_eq!(answer["status"], "completed", "{ground:?}: {answer}");
    }
}

/// Starts the leader through `wrapper` and gives what the only command of an agent has printed.
fn printed_under(wrapper: &[&str], ground: Ground, turns: &[Turn]) -> (String, Workspace) {
    let workspace = Workspace::on(ground);
    workspace.script("default", turns);
    workspace.configure("");
    let leader = workspace.command("leader");
    let mut command = std::process::Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(leader.get_program())
        .args(leader.get_args())
        .args(["run", "--json", "--summary", "shows what it got", "go"])
        .current_dir(workspace.path())
        .env_clear()
        .envs(leader.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    (texts[0].clone(), workspace)
}

#[test]
fn stray_descriptors_of_the_leader_reach_neither_worker_nor_command() {
    // A descriptor without close-on-exec, which a shell or a service manager handed to the leader.
    let stray = "exec 7</etc/passwd 8<>/dev/udp/127.0.0.1/9 9<. && exec \"$@\"";
    let wrapper = ["bash", "-c", stray, "bash"];
    // The listed shell's parent is init or the jail where the command has them, else the worker.
    let listing = "ls /proc/$$/fd; ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c '/etc/passwd'; true";
    for ground in grounds(&ALL) {
        let (text, _workspace) = printed_under(
            &wrapper,
            ground,
            &[Turn::command(listing), Turn::finish(DONE)],
        );
        let lines: Vec<&str> = text.lines().skip(1).collect();
        match ground.rung {
            // Only its own tree is in sight.
            Rung::Pidns | Rung::Cgroup2 => {
                assert_eq!(lines, ["0", "1", "2", "0"], "{ground:?}: {text}")
            }
            // The leader itself is in sight, and holds it.
            Rung::Subreaper | Rung::Group => {
                assert_eq!(lines[..3], ["0", "1", "2"], "{ground:?}: {text}");
            }
        }
    }
}

#[test]
fn signals_that_the_leader_ignores_or_blocks_are_default_in_a_command() {
    let wrapper = ["env", "--ignore-signal=TERM", "--block-signal=USR1"];
    for ground in grounds(&ALL) {
        let (text, _workspace) = printed_under(
            &wrapper,
            ground,
            &[
                Turn::command("grep -E '^Sig(Blk|Ign):' /proc/self/status"),
                Turn::finish(DONE),
            ],
        );
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let none = "0000000000000000";
        assert_eq!(
            lines,
            [format!("SigBlk:\t{none}"), format!("SigIgn:\t{none}")],
            "{ground:?}: {text}"
        );
    }
}

#[test]
fn a_leader_that_ignores_term_still_ends_its_agents_in_time() {
    // An ignored signal is inherited; a worker that got it so was deaf to the second step.
    let workspace = Workspace::new();
    let mut escapees = Escapees::all(&workspace);
    workspace.script("default", &[Turn::command(&escapees.command())]);
    workspace.configure("[limits]\ngrace_seconds = 1\n");
    let serve = Serve::start_as(&workspace, |command| {
        let program = command.get_program().to_owned();
        let inner = std::mem::replace(command, std::process::Command::new("env"));
        command
            .arg("--ignore-signal=TERM")
            .arg(program)
            .args(inner.get_args())
            .current_dir(workspace.path())
            .env_clear()
            .envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    });
    serve.call("create_sub_agent", background("let them go"));
    escapees.wait_up(UP);
    let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
    assert_eq!(answer["status"], "terminated", "{answer}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(escapees.alive.wait_gone(GONE).is_some());
}

#[test]
fn a_process_number_in_an_old_log_is_never_trusted() {
    // A supervisor believed the number in its state file after a restart, and ended a stranger.
    let workspace = Workspace::scripted(&[Turn::text("late").late(600_000)]);
    let mut serve = Serve::start(&workspace);
    serve.call("create_sub_agent", background("wait"));
    let log = format!(".muster/runs/{}/events.jsonl", serve.conversation);
    let running = until(UP, || {
        let text = workspace.read(&log);
        text.contains("agent.initialized").then_some(text)
    })
    .unwrap();
    serve.kill();
    let mut stranger = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let forged: Vec<String> = running
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            if record["event"] == "agent.running" {
                record["process"]["pid"] = json!(stranger.id());
            }
            record.to_string()
        })
        .collect();
    workspace.write(&log, format!("{}\n", forged.join("\n")));
    let ps = run(workspace.command("leader").args(["ps", "--json"]), UP);
    let agent = &ps.json()["runs"][0]["agents"][0];
    assert_eq!(agent["status"], "interrupted", "{ps:?}");
    let killed = run(workspace.command("leader").args(["kill", "1"]), UP);
    let lives = stranger.try_wait().unwrap().is_none();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(lives, "{killed:?}");
}

#[test]
fn a_worker_outlives_a_burst_and_a_long_silence() {
    // A death signal follows the thread that started the child; a pool's idle thread ends after
    // ten seconds, and its children were killed with it.
    let workspace = Workspace::scripted(&[Turn::text("late").late(12_000), Turn::finish(DONE)]);
    let serve = Serve::start(&workspace);
    let mut clients: Vec<_> = (0..10).map(|_| serve.connect()).collect();
    let mut calls = Vec::new();
    for _ in 0..5 {
        for client in &mut clients {
            calls.push(client.send("logs", json!({"agent": 1})));
        }
    }
    let first = serve.call("create_sub_agent", background("wait"));
    assert_eq!(first["status"], "running", "{first}");
    for (n, call) in calls.into_iter().enumerate() {
        clients[n % 10].answer(call);
    }
    let (answer, took) = within(|| serve.call("wait_sub_agents", json!({"timeout_seconds": 60})));
    assert_eq!(answer["agents"][0]["status"], "completed", "{answer}");
    assert!(took > Duration::from_secs(11), "{took:?}");
}
