//! The kill ladder and job control: every stop reaches everything, whatever the worker does, and
//! each of its steps can be read in the log.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::{
    Ground, Liveness, Rung, Serve, Turn, Workspace, on_each, process, run, skipped, until, within,
};

/// Long enough for anything on a busy machine; never waited out when all is well.
const BUDGET: Duration = Duration::from_secs(60);
const ALL: [Rung; 4] = [Rung::Cgroup2, Rung::Pidns, Rung::Subreaper, Rung::Group];

fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

fn send(pid: i32, signal: Signal) {
    assert!(pid > 1);
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Starts a run in the background of the test.
fn start_run(workspace: &Workspace, arguments: &[&str]) -> Child {
    workspace
        .command("leader")
        .args(["run", "--json", "--summary", "works until it is ended"])
        .args(arguments)
        .arg("go")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The result of a run that was started so, and its exit code.
fn end_of(child: Child) -> (Value, i32) {
    let output = child.wait_with_output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (result, code)
}

/// The lines of the only run's log, as far as they are whole.
fn log_of(workspace: &Workspace) -> Vec<Value> {
    let runs = std::fs::read_dir(workspace.join(".muster/runs"));
    let logs: Vec<PathBuf> = runs
        .into_iter()
        .flatten()
        .map(|run| run.unwrap().path().join("events.jsonl"))
        .collect();
    let [log] = logs.as_slice() else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text
        .lines()
        .map_while(|line| serde_json::from_str(line).ok());
    lines.collect()
}

fn events(workspace: &Workspace) -> Vec<String> {
    let names = log_of(workspace).into_iter();
    names
        .map(|line| line["event"].as_str().unwrap().to_owned())
        .collect()
}

fn until_event(workspace: &Workspace, name: &str) {
    let there = until(BUDGET, || {
        events(workspace)
            .iter()
            .any(|event| event == name)
            .then_some(())
    });
    assert!(there.is_some(), "no {name}: {:?}", events(workspace));
}

/// A workspace whose agent holds the pipe and then runs `command`.
fn holding(ground: Ground, command: &str, config: &str) -> (Workspace, Liveness) {
    let workspace = Workspace::on(ground);
    let alive = workspace.liveness("alive");
    let hold = format!("{} {command}", alive.hold());
    // A command may get its time-out a moment before the agent its deadline.
    workspace.script(
        "default",
        &[Turn::command(&hold), Turn::command("sleep 300")],
    );
    workspace.configure(config);
    (workspace, alive)
}

/// Says something in the pipe all the time.
const TICKS: &str = "while :; do echo tick >&9; sleep 0.02; done";

#[test]
fn ctrl_z_stops_trees_and_clocks_and_fg_lets_them_go_on() {
    on_each(&ALL, |ground| {
        let (workspace, mut alive) = holding(ground, TICKS, "[limits]\ngrace_seconds = 1");
        let child = start_run(&workspace, &["--timeout-seconds", "3"]);
        assert!(alive.wait_up(5, BUDGET), "{:?}", events(&workspace));
        send(pid_of(&child), Signal::SIGTSTP);
        let stopped = until(BUDGET, || {
            (process::state(pid_of(&child)) == Some('T')).then_some(())
        });
        assert!(stopped.is_some());
        // The tree stood still before the leader did: after what it had said nothing comes, for
        // longer than all the time that the agent has.
        alive.wait_up(usize::MAX, Duration::ZERO);
        assert!(
            !alive.wait_up(1, Duration::from_millis(3_500)),
            "{ground:?}"
        );
        send(pid_of(&child), Signal::SIGCONT);
        assert!(alive.wait_up(10, BUDGET), "{:?}", events(&workspace));
        assert!(alive.wait_gone(BUDGET).is_some());
        let (result, code) = end_of(child);
        assert_eq!(
            (&result["status"], code),
            (&json!("timed_out"), 124),
            "{result}"
        );
        assert_eq!(result["stats"]["runtime_seconds"], 3, "{result}");
        let names = events(&workspace);
        let at = |name: &str| names.iter().position(|event| event == name);
        assert!(at("run.paused") < at("run.continued"), "{names:?}");
        assert!(at("run.continued") < at("agent.stopping"), "{names:?}");
    });
}

#[test]
fn a_leader_that_is_stopped_from_outside_pauses_nothing() {
    on_each(&ALL, |ground| {
        let (workspace, mut alive) = holding(ground, "sleep 300", "[limits]\ngrace_seconds = 1");
        let child = start_run(&workspace, &["--timeout-seconds", "2"]);
        assert!(alive.wait_up(1, BUDGET));
        send(pid_of(&child), Signal::SIGSTOP);
        // The worker minds its own copy of the deadline, and its jail ends what it leaves.
        let gone = alive.wait_gone(Duration::from_secs(20));
        assert_eq!(process::state(pid_of(&child)), Some('T'));
        // Well beyond the deadline, the grace and all that comes after them.
        std::thread::sleep(Duration::from_secs(4));
        send(pid_of(&child), Signal::SIGCONT);
        assert!(gone.is_some(), "{:?}", events(&workspace));
        let (result, code) = end_of(child);
        assert_eq!(
            (&result["status"], code),
            (&json!("timed_out"), 124),
            "{result}"
        );
        // What had ended meanwhile is neither stopped nor killed once more.
        let names = events(&workspace);
        let count = |name: &str| names.iter().filter(|event| *event == name).count();
        assert_eq!(count("agent.ended"), 1, "{ground:?}: {names:?}");
        assert_eq!(count("agent.signalled"), 0, "{ground:?}: {names:?}");
    });
}

#[test]
fn a_tree_that_somebody_has_stopped_is_ended_all_the_same() {
    on_each(&ALL, |ground| {
        let (workspace, mut alive) = holding(ground, "sleep 300", "[limits]\ngrace_seconds = 1");
        let child = start_run(&workspace, &["--timeout-seconds", "3"]);
        assert!(alive.wait_up(1, BUDGET));
        // Jail and init too: a stop of theirs must not save the tree.
        let start = Instant::now();
        for pid in process::descendants(pid_of(&child)) {
            send(pid, Signal::SIGSTOP);
        }
        assert!(alive.wait_gone(BUDGET).is_some());
        let (result, code) = end_of(child);
        assert_eq!(
            (&result["status"], code),
            (&json!("timed_out"), 124),
            "{result}"
        );
        // Deadline 3 s, grace 1 s, 2 s to be empty, and what a busy machine takes.
        assert!(
            start.elapsed() < Duration::from_secs(12),
            "{:?}",
            start.elapsed()
        );
        let signals: Vec<Value> = log_of(&workspace)
            .into_iter()
            .filter(|line| line["event"] == "agent.signalled")
            .map(|line| line["signal"].clone())
            .collect();
        // The SIGTERM comes with a SIGCONT, so that it may already be enough.
        assert_eq!(signals[0], "term", "{signals:?}");
    });
}

#[test]
fn a_second_kill_does_not_wait_for_the_grace() {
    on_each(&[Rung::Pidns], |ground| {
        // The worker is deaf; a grace of a minute would be longer than the test may take.
        let workspace = Workspace::on(ground);
        workspace.script("default", &[]);
        workspace.configure("[limits]\ngrace_seconds = 60");
        let worker = workspace.executable("fake_worker");
        let serve = Serve::start_as(&workspace, |command| {
            command.arg("--worker-bin").arg(&worker);
        });
        let mut client = serve.connect();
        client.call(
            "create_sub_agent",
            json!({"summary": "does not hear", "task": "fake: hang", "run_in_background": true}),
        );
        until_event(&workspace, "agent.initialized");
        let kill = || {
            let mut command = workspace.command("leader");
            command
                .args(["kill", "1", "--json"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            command
        };
        let ((first, second), took) = within(|| {
            let first = kill().spawn().unwrap();
            until_event(&workspace, "agent.stopping");
            let second = run(&mut kill(), BUDGET);
            (first.wait_with_output().unwrap(), second)
        });
        assert!(took < Duration::from_secs(40), "{took:?}");
        let first: Value = serde_json::from_slice(&first.stdout).unwrap();
        for answer in [first, second.json()] {
            assert_eq!(answer["status"], "terminated", "{answer}");
        }
    });
}

#[test]
fn a_hundred_terminates_at_once_make_one_end() {
    on_each(&[Rung::Pidns], |ground| {
        let (workspace, mut alive) = holding(ground, "sleep 300", "[limits]\ngrace_seconds = 5");
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        client.call(
            "create_sub_agent",
            json!({"summary": "is ended by many", "task": "go", "run_in_background": true}),
        );
        assert!(alive.wait_up(1, BUDGET));
        let mut others: Vec<_> = (0..4).map(|_| serve.connect()).collect();
        let calls: Vec<(usize, u64)> = (0..100)
            .map(|n| {
                let at = n % others.len();
                (
                    at,
                    others[at].send("terminate_sub_agent", json!({"agent_id": 1})),
                )
            })
            .collect();
        for (at, id) in calls {
            let answer = others[at].answer(id);
            let code = &answer["error"]["code"];
            assert!(
                answer["status"] == "terminated" || *code == "already_ended",
                "{answer}"
            );
        }
        assert!(alive.wait_gone(Duration::from_secs(5)).is_some());
        let count = |name: &str| {
            events(&workspace)
                .iter()
                .filter(|event| *event == name)
                .count()
        };
        assert_eq!((count("agent.ended"), count("agent.stopping")), (1, 1));
        let last = client.call("terminate_sub_agent", json!({"agent_id": 1}));
        assert_eq!(last["error"]["code"], "already_ended", "{last}");
    });
}

#[test]
fn a_tree_that_no_kill_ends_is_told_with_its_processes_and_keeps_its_slot() {
    on_each(&[Rung::Pidns], |ground| {
        // A process that is traced from outside its PID namespace stays after its kill until its
        // tracer looks, and init, which waits for it, with it: what a hung file system does, without
        // one.
        let (workspace, mut alive) = holding(
            ground,
            "sleep 300",
            "[limits]\ngrace_seconds = 0\nmax_concurrent = 1",
        );
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let started = client.call(
            "create_sub_agent",
            json!({"summary": "can not be ended", "task": "go", "run_in_background": true}),
        );
        assert_eq!(started["status"], "running", "{started}");
        assert!(alive.wait_up(1, BUDGET));
        let confined = log_of(&workspace)
            .into_iter()
            .find(|line| line["event"] == "agent.confined");
        if !confined.is_some_and(|line| line["confinement"]["kill"] == "complete") {
            skipped("this machine has no PID namespace to hold up");
            return;
        }
        let victims = process::descendants(serve.pid());
        let (go, wait) = channel::<()>();
        let (told, traced) = channel();
        let tracer = std::thread::spawn(move || {
            // The hold ends with this thread.
            let seized = seize_the_worker(&victims);
            told.send(seized).unwrap();
            wait.recv().ok();
        });
        if let Err(why) = traced.recv().unwrap() {
            skipped(&format!("no process can be traced here: {why}"));
            tracer.join().unwrap_or_default();
            return;
        }
        let (answer, took) = within(|| client.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(answer["error"]["code"], "timed_out", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("pids ") && message.contains("waits on"),
            "{message}"
        );
        assert!(
            took >= Duration::from_secs(2) && took < Duration::from_secs(15),
            "{took:?}"
        );
        let status = client.call("get_sub_agent_status", json!({"agent_id": 1}));
        let agent = &status["agents"][0];
        assert_eq!(agent["status"], "stopping", "{status}");
        assert!(
            !agent["unkillable"]["pids"].as_array().unwrap().is_empty(),
            "{status}"
        );
        let full = client.call(
            "create_sub_agent",
            json!({"summary": "finds no free slot", "task": "go", "run_in_background": true}),
        );
        assert_eq!(full["error"]["code"], "too_many_agents", "{full}");
        go.send(()).unwrap();
        tracer.join().unwrap();
        let ended = client.call(
            "wait_sub_agents",
            json!({"agent_ids": [1], "timeout_seconds": 30}),
        );
        assert_eq!(ended["agents"][0]["status"], "terminated", "{ended}");
        assert!(alive.wait_gone(Duration::from_secs(3)).is_some());
        assert!(events(&workspace).contains(&"agent.unkillable".to_owned()));
    });
}

/// Traces a process of the tree other than its jail and its init.
fn seize_the_worker(pids: &[i32]) -> Result<(), String> {
    let worker = pids.iter().rev().find(|pid| {
        // The jail and its init are the two whose executable is the jail's.
        std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe.file_name().is_some_and(|name| name == "worker"))
    });
    let worker = worker.ok_or("no worker in sight")?;
    // SAFETY: seizing reads and writes no memory of this process.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, *worker, 0, 0) };
    match seized {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        _ => Ok(()),
    }
}

#[test]
fn a_serving_leader_stops_in_order_at_the_first_signal_and_at_once_at_the_second() {
    on_each(&[Rung::Pidns], |ground| {
        for (signal, code, twice) in [
            (Signal::SIGINT, 130, true),
            (Signal::SIGINT, 130, false),
            (Signal::SIGTERM, 143, false),
            (Signal::SIGHUP, 129, false),
        ] {
            let grace = if twice { 60 } else { 1 };
            let (workspace, mut alive) = holding(
                ground,
                "trap '' TERM INT HUP; while :; do sleep 1; done",
                &format!("[limits]\ngrace_seconds = {grace}"),
            );
            let mut serve = Serve::start(&workspace);
            serve.call(
            "create_sub_agent",
            json!({"summary": "is ended with its leader", "task": "go", "run_in_background": true}),
        );
            assert!(alive.wait_up(1, BUDGET));
            send(serve.pid(), signal);
            if twice {
                until_event(&workspace, "run.stopping");
                send(serve.pid(), signal);
            }
            let status = serve.wait(Duration::from_secs(40));
            assert_eq!(
                status.and_then(|status| status.code()),
                Some(code),
                "{signal}"
            );
            assert!(
                alive.wait_gone(Duration::from_secs(3)).is_some(),
                "{signal}"
            );
            let file = workspace.conversation("sub_agent_results/agent_1");
            assert_eq!(file["status"], "terminated", "{signal}: {file}");
        }
    });
}

#[test]
fn a_worker_that_floods_its_output_meets_its_deadline() {
    on_each(&[Rung::Pidns], |ground| {
        let workspace = Workspace::on(ground);
        workspace.script("default", &[]);
        workspace.configure("[limits]\ngrace_seconds = 1");
        let worker = workspace.executable("fake_worker");
        let start = Instant::now();
        let ended = run(
            workspace
                .command("leader")
                .args(["run", "--json", "--timeout-seconds", "2", "fake: flood"])
                .arg("--worker-bin")
                .arg(&worker),
            BUDGET,
        );
        assert_eq!(ended.code(), 124, "{ended:?}");
        assert_eq!(ended.json()["status"], "timed_out");
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{:?}",
            start.elapsed()
        );
    });
}
