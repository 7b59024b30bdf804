//! `kill -9` of workers and leaders at any point: nothing is left, nothing is torn, and each agent
//! has one end. `MUSTER_KILLS` asks for more of them than an ordinary run makes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::{
    Ground, Random, Rung, Serve, Times, Turn, Workspace, on_each, process, rounds, run, until,
    within,
};

const UP: Duration = Duration::from_secs(30);
/// Numbers of agents that one conversation of a test uses; it has 99.
const AGENTS_PER_CONVERSATION: u32 = 90;

const NAMESPACES: [Rung; 2] = [Rung::Cgroup2, Rung::Pidns];

/// How much of an ordinary run falls to a ground: all of it where the machine's own rung is, for
/// the others enough to see a fault.
fn share(ground: Ground, whole: u32) -> u32 {
    if ground == Ground::PLAIN {
        whole
    } else {
        whole / 3
    }
}

fn busy_turns(first: Option<Turn>) -> Vec<Turn> {
    let work = (0..40).map(|n| {
        if n % 4 == 3 {
            Turn::command("echo work; sleep 0.05")
        } else {
            Turn::call(
                "write_file",
                json!({"file_path": format!("w{n}.txt"), "content": "x".repeat(n * 50)}),
            )
            .late(5)
        }
    });
    first
        .into_iter()
        .chain(work)
        .chain([Turn::finish(
            "wrote a good number of files and ran some commands",
        )])
        .collect()
}

/// The conversation of an agent, if it has come to one, is whole and says what the leader says.
fn assert_truthful(workspace: &Workspace, agent: &Value, told: &str) {
    let dir = agent["deliverables_dir"].as_str().unwrap();
    if !workspace
        .join(dir)
        .join(".subagent/conversations.json")
        .exists()
    {
        return;
    }
    let file = workspace.conversation(dir);
    assert_eq!(file["status"], agent["status"], "{told}: {file}");
    assert!(file["completed_at"].is_string(), "{told}: {file}");
}

/// The log of a run is whole, and each agent that it knows has one end in it, told at most once.
pub(super) fn assert_one_end_each(workspace: &Workspace, conversation: &str, told: &str) {
    let log = workspace.read(&format!(".muster/runs/{conversation}/events.jsonl"));
    let records: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{told}: {e}: {line}")))
        .collect();
    let numbers: Vec<u64> = records.iter().map(|r| r["seq"].as_u64().unwrap()).collect();
    assert_eq!(
        numbers,
        (1..=records.len() as u64).collect::<Vec<_>>(),
        "{told}"
    );
    let of = |event: &str| {
        let mut tasks: Vec<&str> = records
            .iter()
            .filter(|record| record["event"] == event)
            .map(|record| record["agent"]["task_id"].as_str().unwrap())
            .collect();
        tasks.sort_unstable();
        tasks
    };
    assert_eq!(of("agent.created"), of("agent.ended"), "{told}: {log}");
    let notices = of("notice.done");
    let mut once = notices.clone();
    once.dedup();
    assert_eq!(notices, once, "{told}: {log}");
}

#[test]
fn a_worker_killed_at_any_point_leaves_a_truthful_end() {
    on_each(&NAMESPACES, |ground| {
        kill_workers(ground, rounds("MUSTER_KILLS", share(ground, 12)));
    });
}

fn kill_workers(ground: Ground, mut left: u32) {
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    while left > 0 {
        let count = left.min(AGENTS_PER_CONVERSATION);
        left -= count;
        let workspace = Workspace::on(ground);
        workspace.script("default", &busy_turns(None));
        workspace.configure("");
        let mut serve = Serve::start(&workspace);
        let mut client = serve.connect();
        for round in 1..=count {
            let told = format!("{ground:?}, seed {seed}, {left} and round {round}");
            let id = client.send(
                "create_sub_agent",
                json!({"agent_id": round, "summary": "is killed in its work", "task": "work"}),
            );
            let tree = || process::descendants(serve.pid());
            assert!(until(UP, || tree().first().copied()).is_some(), "{told}");
            random.pause(Duration::from_millis(400));
            // Jail, init, keeper, worker, a command of it: all are fair game.
            let tree = tree();
            let victim = usize::try_from(random.below(tree.len() as u64)).unwrap();
            if let Some(pid) = tree.get(victim) {
                kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
            }
            let answer = client.answer(id);
            let status = answer["status"].as_str().unwrap_or_default();
            assert!(
                ["failed", "completed"].contains(&status),
                "{told}: {answer}"
            );
            assert_eq!(answer["success"], status == "completed", "{told}: {answer}");
            assert_truthful(&workspace, &answer, &told);
            assert_eq!(process::descendants(serve.pid()), [0; 0], "{told}");
        }
        client.call("shutdown", json!({}));
        assert!(serve.wait(UP).is_some(), "seed {seed}");
        assert_one_end_each(&workspace, &serve.conversation, &format!("seed {seed}"));
    }
}

#[test]
fn a_leader_killed_at_any_point_leaves_no_process_and_a_log_that_folds() {
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper], |ground| {
        kill_leaders(ground, rounds("MUSTER_KILLS", share(ground, 10)))
    });
}

fn kill_leaders(ground: Ground, count: u32) {
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let mut times = Times::default();
    for round in 0..count {
        let told = format!("{ground:?}, seed {seed}, round {round}");
        let workspace = Workspace::on(ground);
        let mut alive = workspace.liveness("alive");
        let escapee = format!(
            "{} setsid sh -c 'echo up >&9; exec sleep 300' &",
            alive.hold()
        );
        let first = Turn::command(&format!("{escapee} sleep 0.1"));
        let stays = Turn::command(&format!("{escapee} exec sleep 300"));
        workspace.script("default", &busy_turns(Some(first)));
        workspace.script("stays", &[stays]);
        workspace.configure("");
        let mut serve = Serve::start(&workspace);
        let mut client = serve.connect();
        for n in 1..=5 {
            let model = if n == 5 { "stays" } else { "default" };
            client.send(
                "create_sub_agent",
                json!({"agent_id": n, "summary": "works until it is ended", "task": "work",
                       "run_in_background": true, "model_key": model}),
            );
        }
        // Half of them are struck in the middle of the work, the others at the beginning.
        let in_work = round % 2 == 0;
        if in_work {
            assert!(alive.wait_up(6, UP), "{told}: the commands do not start");
        }
        random.pause(Duration::from_millis(300));
        let struck = Instant::now();
        serve.kill();
        let gone = alive.wait_gone(Duration::from_secs(3));
        assert!(gone.is_some(), "{told}: processes are left");
        if in_work {
            times.add(struck.elapsed());
        }
        let ps = run(workspace.command("leader").args(["ps", "--json"]), UP);
        assert_eq!(ps.code(), 0, "{told}: {ps:?}");
        let found = ps.json();
        // A leader that died before its first agent has a run of nobody, which is not listed.
        for agent in found["runs"][0]["agents"].as_array().into_iter().flatten() {
            let status = agent["status"].as_str().unwrap();
            assert!(
                ["interrupted", "terminated", "completed"].contains(&status),
                "{told}: {found}"
            );
            assert_truthful(&workspace, agent, &told);
        }
        assert_one_end_each(&workspace, &serve.conversation, &told);
        // Whatever was about to begin when the leader died has had its time to begin.
        assert!(
            alive.wait_gone(Duration::from_millis(200)).is_some(),
            "{told}: a late one"
        );
    }
    let text = format!("{ground:?}: leader killed, all gone: {}\n", times.summary());
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

#[test]
fn ctrl_c_stops_in_order_and_a_second_one_at_once() {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
    ] {
        let workspace = Workspace::new();
        let mut alive = workspace.liveness("alive");
        let hold = format!("{} sleep 300", alive.hold());
        workspace.script("default", &[Turn::command(&hold)]);
        workspace.configure("");
        let child = interrupted(&mut workspace.command("leader"), "go");
        assert!(alive.wait_up(1, Duration::from_secs(30)));
        kill(pid_of(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal}: {output:?}");
        assert!(
            alive.wait_gone(Duration::from_secs(2)).is_some(),
            "{signal}"
        );
        let file = workspace.conversation("sub_agent_results/agent_1");
        assert_eq!(file["status"], "terminated", "{file}");
    }
    // A worker that is deaf to a stop has a long grace, unless somebody asks a second time.
    let workspace = Workspace::scripted(&[]);
    workspace.configure("[limits]\ngrace_seconds = 60\n");
    let mut command = workspace.command("leader");
    command.env("MUSTER_WORKER", system_tests::executable("fake_worker"));
    let mut child = interrupted(&mut command, "fake: hang");
    let partial = workspace.join("sub_agent_results/agent_1/partial.txt");
    assert!(until(Duration::from_secs(30), || partial.exists().then_some(())).is_some());
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = told.find(|line| {
        line.as_ref()
            .unwrap()
            .contains("stopping the agent in order")
    });
    assert!(first.is_some(), "the first one is not told");
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    let (status, took) = within(|| child.wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert!(took < Duration::from_secs(20), "{took:?}");
    let file = workspace.conversation("sub_agent_results/agent_1");
    assert_eq!(file["status"], "terminated", "{file}");
}

/// A run of one agent that is to be interrupted.
fn interrupted(leader: &mut Command, task: &str) -> Child {
    leader
        .args(["run", "--summary", "is interrupted", task])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}
