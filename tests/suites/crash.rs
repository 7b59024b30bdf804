//! `kill -9` of workers and leaders at any point: nothing is left, nothing is torn.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Liveness, Serve, Turn, Workspace, run, until};

/// Kills of each kind in an ordinary run; `MUSTER_KILLS` asks for more.
fn rounds() -> u32 {
    std::env::var("MUSTER_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(12)
}

/// A small generator of delays, so that a run can be repeated from its printed seed.
struct Delays(u64);

impl Delays {
    fn next_ms(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn busy_turns() -> Vec<Turn> {
    (0..40)
        .map(|n| {
            if n % 4 == 3 {
                Turn::command("echo work; sleep 0.05")
            } else {
                Turn::call(
                    "write_file",
                    json!({"file_path": format!("w{n}.txt"), "content": "x".repeat(n * 50)}),
                )
                .late(5)
            }
        })
        .chain([Turn::finish(
            "wrote a good number of files and ran some commands",
        )])
        .collect()
}

fn assert_truthful(workspace: &Workspace, answer: &Value, dir: &str) {
    let status = answer["status"].as_str().unwrap_or_default();
    assert!(["failed", "completed"].contains(&status), "{answer}");
    assert_eq!(answer["success"], status == "completed", "{answer}");
    let path = workspace.join(format!("{dir}/.subagent/conversations.json"));
    if path.exists() {
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(file["status"], status, "{file}");
        assert!(file["completed_at"].is_string(), "{file}");
    }
}

#[test]
fn a_worker_killed_at_any_point_leaves_a_truthful_end() {
    let workspace = Workspace::scripted(&busy_turns());
    let serve = Serve::start(&workspace);
    let seed = u64::from(std::process::id());
    let mut delays = Delays(seed);
    let mut client = serve.connect();
    for round in 1..=rounds() {
        let id = client.send(
            "create_sub_agent",
            json!({"agent_id": round, "summary": "is killed in its work", "task": "work"}),
        );
        let init = until(Duration::from_secs(20), || {
            super::supervisor::descendants(serve.pid()).first().copied()
        });
        std::thread::sleep(Duration::from_millis(delays.next_ms(400)));
        // The deepest process of the tree is the worker or a command of it; both are fair game.
        let tree = super::supervisor::descendants(serve.pid());
        let victim = tree.last().copied().or(init);
        if let Some(pid) = victim {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).ok();
        }
        let answer = client.answer(id);
        let dir = format!("sub_agent_results/agent_{round}");
        assert_truthful(&workspace, &answer, &dir);
    }
    let gone = until(Duration::from_secs(3), || {
        super::supervisor::descendants(serve.pid())
            .is_empty()
            .then_some(())
    });
    assert!(gone.is_some(), "seed {seed}");
}

#[test]
fn a_leader_killed_at_any_point_leaves_no_process_and_a_log_that_folds() {
    let seed = u64::from(std::process::id());
    let mut delays = Delays(seed);
    for round in 0..rounds() / 2 {
        let workspace = Workspace::new();
        let mut alive = Liveness::new(&workspace.path(), "alive");
        let hold = format!("{} sleep 300", alive.hold());
        workspace.script("default", &[Turn::command(&hold)]);
        workspace.configure("");
        let mut serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let agents = 3;
        for n in 1..=agents {
            client.send(
                "create_sub_agent",
                json!({"agent_id": n, "summary": "sleeps until it is ended", "task": "sleep",
                       "run_in_background": true}),
            );
        }
        let up = alive.wait_up(if round % 2 == 0 { 3 } else { 1 }, Duration::from_secs(30));
        assert!(up, "round {round}: the commands do not start");
        std::thread::sleep(Duration::from_millis(delays.next_ms(50)));
        serve.kill();
        let gone = alive.wait_gone(Duration::from_secs(3));
        assert!(
            gone.is_some(),
            "round {round}, seed {seed}: processes are left"
        );
        let ps = run(
            workspace.command("leader").args(["ps", "--json"]),
            Duration::from_secs(30),
        );
        assert_eq!(ps.code(), 0, "{ps:?}");
        let told = ps.json();
        let agents = told["runs"][0]["agents"].as_array().unwrap();
        assert!(!agents.is_empty(), "{told}");
        for agent in agents {
            let status = agent["status"].as_str().unwrap();
            assert!(
                ["interrupted", "terminated"].contains(&status),
                "seed {seed}: {told}"
            );
            let dir = agent["deliverables_dir"].as_str().unwrap();
            let path = workspace.join(format!("{dir}/.subagent/conversations.json"));
            if path.exists() {
                assert_eq!(workspace.conversation(dir)["status"], status, "seed {seed}");
            }
        }
    }
}

#[test]
fn ctrl_c_stops_in_order_and_a_second_one_at_once() {
    use nix::sys::signal::{Signal, kill};
    for (signal, code, twice) in [
        (Signal::SIGINT, 130, false),
        (Signal::SIGINT, 130, true),
        (Signal::SIGTERM, 143, false),
        (Signal::SIGHUP, 129, false),
    ] {
        let workspace = Workspace::new();
        let mut alive = Liveness::new(&workspace.path(), "alive");
        let hold = format!("{} sleep 300", alive.hold());
        workspace.script("default", &[Turn::command(&hold)]);
        workspace.configure("");
        let child = workspace
            .command("leader")
            .args(["run", "--summary", "is interrupted", "go"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(alive.wait_up(1, Duration::from_secs(30)));
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, signal).unwrap();
        if twice {
            std::thread::sleep(Duration::from_millis(200));
            kill(pid, signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal}: {output:?}");
        assert!(
            alive.wait_gone(Duration::from_secs(2)).is_some(),
            "{signal}"
        );
        let file = workspace.conversation("sub_agent_results/agent_1");
        assert_eq!(file["status"], "terminated", "{file}");
    }
}
