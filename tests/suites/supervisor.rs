//! What the supervisor does when workers misbehave, over the control socket.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Liveness, Serve, Turn, Workspace, executable, until, within};

/// A leader whose workers are the misbehaving ones.
fn faking(workspace: &Workspace) -> Serve {
    Serve::start_as(workspace, |command| {
        command.env("MUSTER_WORKER", executable("fake_worker"));
    })
}

fn task(name: &str, more: Value) -> Value {
    let mut params = json!({"summary": "a misbehaving one", "task": format!("fake: {name}")});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    params
}

fn quick_limits(workspace: &Workspace) {
    workspace.configure("[limits]\ngrace_seconds = 1\nstart_timeout_seconds = 2\n");
}

#[test]
fn a_worker_killed_from_outside_is_seen_within_a_second() {
    // A child killed with SIGKILL never wrote its end marker and showed as running for ever.
    let workspace = Workspace::scripted(&[
        Turn::command("echo half > sub_agent_results/agent_1/part.txt"),
        Turn::text("late").late(600_000),
    ]);
    workspace.configure("[limits]\nmax_concurrent = 1\n");
    let serve = Serve::start(&workspace);
    let started = serve.call(
        "create_sub_agent",
        json!({"summary": "waits for its model", "task": "wait", "run_in_background": true}),
    );
    assert_eq!(started["status"], "running", "{started}");
    let pid = worker_pid(&serve, &workspace, "sub_agent_results/agent_1");
    let part = workspace.join("sub_agent_results/agent_1/part.txt");
    // It is there a moment before anything is in it.
    let written = || std::fs::read_to_string(&part).is_ok_and(|text| text == "half\n");
    assert!(until(Duration::from_secs(20), || written().then_some(())).is_some());
    let mut listener = serve.connect();
    listener.call("subscribe", json!({"after_seq": 0}));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    let wanted = json!({"agent_ids": [1], "timeout_seconds": 20});
    let (answer, took) = within(|| serve.call("wait_sub_agents", wanted));
    assert!(took < Duration::from_secs(1), "{took:?}");
    let ended = &answer["agents"][0];
    assert_eq!(ended["status"], "failed", "{answer}");
    assert_eq!(ended["stop_reason"], "killed_from_outside", "{answer}");
    assert!(answer.to_string().contains("SIGKILL"), "{answer}");
    // The partial files are told, and the slot is free again.
    let again = serve.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert_eq!(again["error"]["code"], "already_ended", "{again}");
    let next = serve.call(
        "create_sub_agent",
        json!({"summary": "takes the free slot", "task": "wait", "run_in_background": true}),
    );
    assert_eq!(next["status"], "running", "{next}");
    // One end and one notice of it, whoever listens.
    let task = started["task_id"].clone();
    let mut seen = Vec::new();
    while !seen.contains(&"notice.done".to_owned()) {
        let event = listener.event();
        if event["params"]["agent"]["task_id"] == task {
            seen.push(event["params"]["event"].as_str().unwrap().to_owned());
        }
    }
    let count = |word: &str| seen.iter().filter(|event| *event == word).count();
    assert_eq!(
        (count("agent.ended"), count("notice.done")),
        (1, 1),
        "{seen:?}"
    );
    let conversation = workspace.conversation("sub_agent_results/agent_1");
    assert_eq!(conversation["status"], "failed");
    assert_eq!(
        std::fs::read_to_string(part).unwrap(),
        "half\n",
        "what it had made stays"
    );
}

/// The pid of the real worker, as its own command sees its parent outside any namespace of ours:
/// the test looks for the process that has the agent's journal open.
fn worker_pid(serve: &Serve, workspace: &Workspace, dir: &str) -> i32 {
    let journal = workspace.join(format!("{dir}/.subagent/journal.jsonl"));
    until(Duration::from_secs(20), || {
        descendants(serve.pid()).into_iter().find(|pid| {
            let Ok(fds) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
                return false;
            };
            fds.filter_map(Result::ok)
                .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == journal))
        })
    })
    .expect("a worker with its journal open")
}

/// Every process below `root`, by the kernel's lists of children.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.filter_map(Result::ok) {
            let children = std::fs::read_to_string(task.path().join("children"));
            for child in children.unwrap_or_default().split_whitespace() {
                if let Ok(child) = child.parse() {
                    found.push(child);
                    queue.push(child);
                }
            }
        }
    }
    found
}

#[test]
fn a_finished_worker_that_lingers_still_counts_as_completed() {
    // The child had its complete answer but some handle kept the process alive; the parent waited
    // 34 minutes and threw the work away.
    let workspace = Workspace::scripted(&[]);
    quick_limits(&workspace);
    let serve = faking(&workspace);
    for (name, budget) in [("channel then linger", 8), ("file then linger", 12)] {
        let (answer, took) = within(|| serve.call("create_sub_agent", task(name, json!({}))));
        assert!(took < Duration::from_secs(budget), "{name}: {took:?}");
        assert_eq!(answer["status"], "completed", "{name}: {answer}");
        assert_eq!(answer["success"], true);
        assert_eq!(answer["result_summary"], "the report is written");
        assert_eq!(answer["deliverables_files"], json!(["report.md"]));
        assert_eq!(answer["warnings"].as_array().unwrap().len(), 1, "{answer}");
    }
}

#[test]
fn six_calls_at_once_start_five_and_refuse_one() {
    // Calls above the limit were cut away silently.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let mut client = serve.connect();
    let ids: Vec<u64> = (1..=6)
        .map(|n| {
            let more = json!({"agent_id": n, "run_in_background": true});
            client.send("create_sub_agent", task("hang", more))
        })
        .collect();
    let answers: Vec<Value> = ids.iter().map(|id| client.answer(*id)).collect();
    let started = answers
        .iter()
        .filter(|answer| answer["status"] == "running")
        .count();
    assert_eq!(started, 5, "{answers:?}");
    let refused: Vec<&Value> = answers
        .iter()
        .filter(|answer| answer["success"] == false)
        .collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["error"]["code"], "too_many_agents");
    assert!(
        refused[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains('5'),
        "{}",
        refused[0]
    );
}

#[test]
fn a_cap_of_one_is_one() {
    // A wish for one sub-agent was silently raised to two.
    let workspace = Workspace::scripted(&[]);
    workspace.configure("[limits]\nmax_concurrent = 1\ngrace_seconds = 1\n");
    let serve = faking(&workspace);
    let background = || task("hang", json!({"run_in_background": true}));
    let first = serve.call("create_sub_agent", background());
    assert_eq!(first["status"], "running", "{first}");
    let second = serve.call("create_sub_agent", background());
    assert_eq!(second["error"]["code"], "too_many_agents", "{second}");
    serve.call("terminate_sub_agent", json!({"agent_id": 1}));
    let third = serve.call("create_sub_agent", background());
    assert_eq!(third["status"], "running", "{third}");
}

#[test]
fn above_the_cap_a_queue_keeps_its_order_when_it_is_asked_for() {
    let workspace =
        Workspace::scripted(&[Turn::finish("done and nothing to deliver, as asked for")]);
    workspace.configure("[limits]\nmax_concurrent = 1\nadmission = \"queue\"\n");
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    let create = |n: u32| json!({"agent_id": n, "summary": "one of a queue", "task": "finish", "run_in_background": true});
    let ids: Vec<u64> = (1..=3)
        .map(|n| client.send("create_sub_agent", create(n)))
        .collect();
    let answers: Vec<Value> = ids.iter().map(|id| client.answer(*id)).collect();
    assert!(
        answers.iter().all(|answer| answer["success"] == true),
        "{answers:?}"
    );
    let all = client.call(
        "wait_sub_agents",
        json!({"mode": "all", "timeout_seconds": 60}),
    );
    let ended = client.call("get_sub_agent_status", json!({"agent_ids": [1, 2, 3]}));
    for agent in ended["agents"].as_array().unwrap() {
        assert_eq!(agent["status"], "completed", "{all} {ended}");
    }
}

#[test]
fn a_number_is_used_once() {
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let create = |id: Value, name: &str, background: bool| {
        serve.call(
            "create_sub_agent",
            task(
                name,
                json!({"agent_id": id, "run_in_background": background}),
            ),
        )
    };
    assert_eq!(create(json!(1), "hang", true)["status"], "running");
    assert_eq!(
        create(json!(1), "hang", true)["error"]["code"],
        "agent_id_taken"
    );
    assert_eq!(create(json!("2"), "exit 7", false)["agent_id"], 2);
    assert_eq!(
        create(json!(2), "hang", true)["error"]["code"],
        "agent_id_taken"
    );
    for bad in [json!(0), json!(100), json!(-1), json!(1.5)] {
        let refused = create(bad.clone(), "hang", true);
        assert_eq!(
            refused["error"]["code"], "invalid_parameters",
            "{bad}: {refused}"
        );
    }
    let status = serve.call("get_sub_agent_status", json!({"agent_ids": [1, 77]}));
    assert_eq!(status["agents"][0]["status"], "running", "{status}");
    assert_eq!(status["agents"][1]["found"], false, "{status}");
}

#[test]
fn a_worker_that_never_says_hello_is_stopped() {
    let workspace = Workspace::scripted(&[]);
    quick_limits(&workspace);
    let serve = faking(&workspace);
    let (answer, took) =
        within(|| serve.call("create_sub_agent", task("never initialize", json!({}))));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(answer["status"], "failed", "{answer}");
    assert_eq!(answer["stop_reason"], "start_timeout", "{answer}");
}

#[test]
fn terminating_keeps_the_files_and_answers_a_second_time_in_words() {
    let workspace = Workspace::scripted(&[]);
    quick_limits(&workspace);
    let serve = faking(&workspace);
    serve.call(
        "create_sub_agent",
        task("hang", json!({"run_in_background": true})),
    );
    let partial = workspace.join("sub_agent_results/agent_1/partial.txt");
    assert!(until(Duration::from_secs(20), || partial.exists().then_some(())).is_some());
    let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["status"], "terminated");
    assert_eq!(answer["partial_results"], true);
    assert_eq!(answer["deliverables_files"], json!(["partial.txt"]));
    let again = serve.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert!(again.to_string().contains("already_ended"), "{again}");
    let unknown = serve.call("terminate_sub_agent", json!({"agent_id": 77}));
    assert_eq!(unknown["error"]["code"], "unknown_agent", "{unknown}");
}

#[test]
fn a_deadline_ends_a_deaf_worker_and_keeps_its_files() {
    let workspace = Workspace::scripted(&[]);
    workspace.configure("[limits]\ngrace_seconds = 1\ntimeout_seconds_min = 1\n");
    let serve = faking(&workspace);
    let (answer, took) = within(|| {
        serve.call(
            "create_sub_agent",
            task("hang", json!({"timeout_seconds": 2})),
        )
    });
    assert!(took < Duration::from_secs(2 + 1 + 2 + 2), "{took:?}");
    assert_eq!(answer["status"], "timed_out", "{answer}");
    assert_eq!(answer["stop_reason"], "deadline");
    assert_eq!(answer["success"], false);
    assert_eq!(answer["deliverables_files"], json!(["partial.txt"]));
    assert_eq!(answer["partial_results"], true);
}

#[test]
fn nothing_works_on_behind_the_answer_that_tells_of_a_time_out() {
    // The caller got a time-out while its sub-agent went on in the background.
    let workspace = Workspace::new();
    let mut alive = workspace.liveness("alive");
    let dir = "sub_agent_results/agent_1";
    let busy = format!(
        "{} n=0; while :; do n=$((n + 1)); echo $n >{dir}/count.txt; sleep 0.05; done",
        alive.hold()
    );
    workspace.script("default", &[Turn::command(&busy)]);
    workspace.script(
        "calm",
        &[Turn::finish("there was nothing to do in this task")],
    );
    workspace
        .configure("[limits]\nmax_concurrent = 1\ngrace_seconds = 1\ntimeout_seconds_min = 1\n");
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    let create = json!({"summary": "works beyond its time", "task": "go", "timeout_seconds": 2});
    let answer = client.call("create_sub_agent", create);
    assert_eq!(answer["status"], "timed_out", "{answer}");
    assert_eq!(answer["deliverables_files"], json!(["count.txt"]));
    assert_eq!(descendants(serve.pid()), [0; 0], "something is left");
    let files = ["count.txt", ".subagent/conversations.json"].map(|name| format!("{dir}/{name}"));
    let told = files.clone().map(|name| workspace.read(&name));
    assert!(alive.wait_gone(Duration::from_millis(500)).is_some());
    let active = client.call("list_active_sub_agents", json!({}));
    assert_eq!(active["agents"], json!([]), "{active}");
    let next = json!({"summary": "finds the slot free", "task": "go", "model_key": "calm"});
    let next = client.call("create_sub_agent", next);
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(files.map(|name| workspace.read(&name)), told);
}

#[test]
fn a_worker_that_prints_forty_megabytes_is_not_held_up() {
    // A piped stdout was never drained; the child blocked on the full pipe until its timeout.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let before = resident_kib(serve.pid());
    let answer = serve.call("create_sub_agent", task("chatty", json!({})));
    assert_eq!(answer["status"], "completed", "{answer}");
    let grown = resident_kib(serve.pid()).saturating_sub(before);
    assert!(grown < 10 * 1024, "the leader grew by {grown} KiB");
    let log = workspace.join("sub_agent_results/agent_1/.subagent/worker.log");
    let size = std::fs::metadata(log).unwrap().len();
    assert!(
        size <= protocol::limits::WORKER_LOG_BYTES_MAX + 4096,
        "{size}"
    );
    let log = workspace.read("sub_agent_results/agent_1/.subagent/worker.log");
    assert!(log.contains(" bytes left out …"), "no mark of the cut");
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn junk_around_good_frames_is_skipped() {
    // A banner on stdout broke the framing and ended the connection.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let answer = serve.call("create_sub_agent", task("junk", json!({})));
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["result_summary"], "good in spite of junk");
}

#[test]
fn a_line_without_end_costs_no_memory() {
    // A line reader collects for ever.
    let workspace = Workspace::scripted(&[]);
    quick_limits(&workspace);
    let serve = faking(&workspace);
    let before = resident_kib(serve.pid());
    for name in ["no newline", "huge frame"] {
        let answer = serve.call("create_sub_agent", task(name, json!({})));
        assert_eq!(answer["status"], "failed", "{name}: {answer}");
        assert_eq!(answer["stop_reason"], "start_timeout", "{name}: {answer}");
    }
    let grown = resident_kib(serve.pid()).saturating_sub(before);
    assert!(grown < 24 * 1024, "the leader grew by {grown} KiB");
}

#[test]
fn a_worker_that_dies_before_reading_is_an_answer_not_a_crash() {
    // Writing to the dead child's pipe brought the whole parent down.
    let workspace = Workspace::scripted(&[]);
    let serve = faking(&workspace);
    let long = format!("fake: exit 7\n{}", "x".repeat(190_000));
    for round in 1..=50 {
        let answer = serve.call(
            "create_sub_agent",
            json!({"summary": "dies at once", "task": long, "agent_id": round}),
        );
        assert_eq!(answer["status"], "failed", "{answer}");
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("exited with code 7"),
            "{answer}"
        );
    }
}

#[test]
fn a_grandchild_that_holds_the_pipe_delays_nothing() {
    // The parent waited for the pipes of the dead child to close; a descendant held them.
    let workspace = Workspace::scripted(&[]);
    workspace.configure("[limits]\nmax_concurrent = 1\n");
    let mut alive = Liveness::new(&workspace.path(), "alive");
    let serve = faking(&workspace);
    let (answer, took) = within(|| serve.call("create_sub_agent", task("grandchild", json!({}))));
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(answer["status"], "failed", "{answer}");
    assert_eq!(answer["stop_reason"], "bad_result_file", "{answer}");
    assert!(
        alive.wait_up(1, Duration::from_secs(1)),
        "there was a grandchild"
    );
    assert!(alive.wait_gone(Duration::from_secs(2)).is_some());
    let next = serve.call("create_sub_agent", task("exit 7", json!({})));
    assert_eq!(next["agent_id"], 2, "the slot is free: {next}");
    let gone = until(Duration::from_secs(2), || {
        descendants(serve.pid()).is_empty().then_some(())
    });
    assert!(gone.is_some(), "left: {:?}", descendants(serve.pid()));
}

#[test]
fn an_endpoint_that_says_nothing_fails_the_agent_with_its_reason() {
    // A background agent never made its first turn; nobody noticed for 13 minutes.
    use system_tests::model::{Behaviour, ModelServer};
    let server = ModelServer::start(Behaviour::Silent);
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n\
         timeouts = {{ first_byte_seconds = 1 }}\n",
        server.base_url()
    ));
    let serve = Serve::start(&workspace);
    serve.call(
        "create_sub_agent",
        json!({"summary": "waits for its model", "task": "go", "run_in_background": true}),
    );
    let waiting = until(Duration::from_secs(20), || {
        let status = serve.call("get_sub_agent_status", json!({"agent_id": 1}));
        let action = status["agents"][0]["last_action"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        action.contains("model").then_some(action)
    });
    assert!(waiting.is_some(), "no word of the model in last_action");
    let answer = serve.call("wait_sub_agents", json!({"timeout_seconds": 60}));
    assert_eq!(answer["agents"][0]["status"], "failed", "{answer}");
    assert_eq!(
        answer["agents"][0]["stop_reason"], "model_error",
        "{answer}"
    );
    let requests = server.requests().len();
    assert_eq!(requests, 3, "one request and two retries");
}
