//! Many processes at once and many agents one after the other: a fork bomb, a storm of creates, a
//! row of kills. The leader stays answerable, and afterwards everything is as it was.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::{
    Ground, Random, Rung, Serve, Times, Turn, Workspace, grounds, on_each, process, process_time,
    rounds, until, within,
};

use super::crash::assert_one_end_each;

const UP: Duration = Duration::from_secs(30);

/// Forks until the kernel refuses, says how often that worked, and goes on trying. Its children
/// hold the liveness pipe too, and all end by themselves after a while.
const BOMB: &str = "
import os, time
os.write(9, b'up\\n')
end, count, told = time.monotonic() + 40, 0, False
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            time.sleep(40)
            os._exit(0)
        count += 1
    except BlockingIOError:
        if not told:
            open('full.tmp', 'w').write(str(count))
            os.rename('full.tmp', 'full')
            told = True
        time.sleep(0.002)
";

/// A leader whose workers misbehave on demand.
fn faking(workspace: &Workspace) -> Serve {
    Serve::start_as(workspace, |command| {
        command.env("MUSTER_WORKER", workspace.executable("fake_worker"));
    })
}

fn fake(name: &str, more: Value) -> Value {
    let mut params = json!({"summary": "one of many agents", "task": format!("fake: {name}")});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    params
}

#[test]
fn a_fork_bomb_meets_the_cap_and_harms_nobody_else() {
    // The cap by user does not hold for root, and one bomb took the machine with it.
    for ground in grounds(&[Rung::Pidns]) {
        let workspace = Workspace::on(ground);
        let mut alive = workspace.liveness("alive");
        workspace.write("bomb.py", BOMB);
        let hold = alive.hold();
        workspace.script(
            "default",
            &[Turn::command(&format!("{hold} python3 bomb.py"))],
        );
        workspace.script(
            "calm",
            &[
                Turn::command("for n in 1 2 3 4 5; do sh -c 'sleep 0.1' || exit 9; done"),
                Turn::finish("five processes were started while the bomb went off"),
            ],
        );
        workspace.configure("[limits]\ngrace_seconds = 0\n");
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        client.call(
            "create_sub_agent",
            json!({"summary": "forks until it can't", "task": "go", "run_in_background": true}),
        );
        let full = until(UP, || std::fs::read_to_string(workspace.join("full")).ok());
        let count: u32 = full.unwrap().parse().unwrap();
        // The cap counts the worker, its threads and the shells as well, and the lowest 300
        // numbers, most of which a young namespace can still hand out, come on top.
        assert!((900..=1_324).contains(&count), "{ground:?}: {count}");
        let calm = client.send(
            "create_sub_agent",
            json!({"summary": "works beside a bomb", "task": "go", "model_key": "calm"}),
        );
        let mut times = Times::default();
        for _ in 0..21 {
            let (status, took) =
                within(|| serve.call("get_sub_agent_status", json!({"agent_id": 1})));
            assert_eq!(status["agents"][0]["status"], "running", "{status}");
            times.add(took);
        }
        assert!(
            times.percentile(50) < Duration::from_millis(200),
            "{times:?}"
        );
        let answer = client.answer(calm);
        assert_eq!(answer["status"], "completed", "{ground:?}: {answer}");
        assert!(alive.wait_up(1, UP));
        let (ended, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(ended["status"], "terminated", "{ground:?}: {ended}");
        assert!(took < Duration::from_secs(3), "{ground:?}: {took:?}");
        assert!(
            alive.wait_gone(Duration::from_secs(2)).is_some(),
            "{ground:?}"
        );
    }
}

#[test]
fn a_storm_of_creates_never_starts_more_than_the_cap_and_loses_no_slot() {
    // Two hundred at once: a conversation has 99 numbers, so that three leaders share them, each
    // with a few numbers kept for the end.
    const AGENTS: [usize; 3] = [67, 67, 66];
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper], |ground| {
        // All that is there on the ordinary ground, a third of it on each of the others.
        let agents = if ground == Ground::PLAIN {
            &AGENTS[..]
        } else {
            &AGENTS[..1]
        };
        std::thread::scope(|scope| {
            for count in agents {
                scope.spawn(move || storm(ground, *count));
            }
        });
    });
}

/// One leader's part of the storm, and its own end.
fn storm(ground: Ground, agents: usize) {
    let workspace = Workspace::on(ground);
    workspace.script("default", &[]);
    workspace.configure("[limits]\nadmission = \"queue\"\ngrace_seconds = 1\n");
    let mut serve = faking(&workspace);
    let seed = u64::from(std::process::id());
    let told = format!("{ground:?}, seed {seed}");
    let (done, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut client = serve.connect();
    let answers: Vec<Value> = std::thread::scope(|scope| {
        // Counts trees all the time.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let trees = process::children(serve.pid()).len();
                most.fetch_max(trees, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Kills whatever it finds below the leader: a jail, an init, a keeper, a worker; fewer than
        // there are agents, so that on a slow machine too some are left to complete.
        scope.spawn(|| {
            let mut random = Random::new(seed);
            for _ in 0..agents / 2 {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                random.pause(Duration::from_millis(60));
                let tree = process::descendants(serve.pid());
                let nth = random.below(tree.len() as u64) as usize;
                if let Some(pid) = tree.get(nth) {
                    kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
                }
            }
        });
        let calls: Vec<u64> = (0..agents)
            .map(|_| client.send("create_sub_agent", fake("brief", json!({}))))
            .collect();
        let answers = calls.into_iter().map(|call| client.answer(call)).collect();
        done.store(true, Ordering::SeqCst);
        answers
    });
    let most = most.load(Ordering::SeqCst);
    assert!((1..=5).contains(&most), "{told}: {most} trees");
    for answer in &answers {
        let status = answer["status"].as_str().unwrap_or_default();
        assert!(
            ["completed", "failed"].contains(&status),
            "{told}: {answer}"
        );
    }
    let mut names: Vec<&str> = answers
        .iter()
        .map(|answer| answer["task_id"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), agents, "{told}");
    let completed = answers
        .iter()
        .filter(|a| a["status"] == "completed")
        .count();
    assert!(completed > 0, "{told}: every one was killed");
    assert_eq!(process::children(serve.pid()), [0; 0]);
    let last = client.call("create_sub_agent", fake("brief", json!({})));
    assert_eq!(last["status"], "completed", "{told}: {last}");
    client.call("shutdown", json!({}));
    assert!(serve.wait(UP).is_some(), "{told}");
    assert_one_end_each(&workspace, &serve.conversation, &told);
}

#[test]
fn a_kill_without_grace_takes_no_longer_than_a_few_processes() {
    for ground in grounds(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper]) {
        // All of them where the machine's own rung is, for the others enough to see a fault.
        let count = if ground == Ground::PLAIN { 40 } else { 8 };
        kills_without_grace(ground, rounds("MUSTER_KILLS", count).min(90));
    }
}

/// The time of a small write that is on the disk at its end.
fn sync_time(workspace: &Workspace) -> Duration {
    let (written, took) = within(|| {
        let mut file = std::fs::File::create(workspace.join("synced"))?;
        file.write_all(b"a line\n")?;
        file.sync_data()
    });
    written.unwrap();
    took
}

/// Kills so many agents, each compared with processes that are started at the same moment.
fn kills_without_grace(ground: Ground, count: u32) {
    let workspace = Workspace::on(ground);
    workspace.script("default", &[]);
    workspace.configure("[limits]\ngrace_seconds = 0\n");
    let serve = faking(&workspace);
    let mut client = serve.connect();
    let (mut times, mut floor, mut disk) = <(Times, Times, Times)>::default();
    for n in 1..=count {
        let more = json!({"agent_id": n, "run_in_background": true});
        client.call("create_sub_agent", fake("hang", more));
        let partial = workspace.join(format!("sub_agent_results/agent_{n}/partial.txt"));
        assert!(until(UP, || partial.exists().then_some(())).is_some());
        let (answer, took) = within(|| client.call("terminate_sub_agent", json!({"agent_id": n})));
        assert_eq!(answer["status"], "terminated", "{answer}");
        times.add(took);
        // One after the other, so that all meet the same machine.
        floor.add(process_time());
        disk.add(sync_time(&workspace));
    }
    let told = format!(
        "{ground:?}: kills: {}; processes: {}; writes to the disk: {}",
        times.summary(),
        floor.summary(),
        disk.summary()
    );
    // The answer comes once the tree has been reaped and the records of it, and the conversation,
    // are on the disk.
    // Of a short row a high percentile is a single round, which may have met anything.
    for percent in [50, if count < 20 { 75 } else { 95 }] {
        let kill = times.percentile(percent);
        let (process, write) = (floor.percentile(percent), disk.percentile(percent));
        assert!(kill < process * 60 + write * 6, "{told}");
    }
    std::io::stderr()
        .write_all(format!("{told}\n").as_bytes())
        .unwrap();
}

#[test]
fn twenty_kills_leave_no_zombie_and_no_descriptor() {
    // A dropped handle was killed but never waited for; dead entries piled up.
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper], |ground| {
        let workspace = Workspace::on(ground);
        workspace.script("default", &[Turn::text("late").late(600_000)]);
        workspace.configure("[limits]\ngrace_seconds = 1\n");
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let before = process::descriptors(serve.pid()).len();
        for n in 1..=20 {
            let started = client.call(
                "create_sub_agent",
                json!({"agent_id": n, "summary": "is created and ended", "task": "wait",
                       "run_in_background": true}),
            );
            assert_eq!(started["status"], "running", "{started}");
            let ended = client.call("terminate_sub_agent", json!({"agent_id": n}));
            assert_eq!(ended["status"], "terminated", "{ended}");
        }
        let calm = until(Duration::from_secs(2), || {
            let after = process::descriptors(serve.pid()).len();
            (process::zombies(serve.pid()).is_empty() && after.abs_diff(before) <= 5).then_some(())
        });
        let after = process::descriptors(serve.pid());
        assert!(calm.is_some(), "{ground:?}: {before} before, now {after:?}");
    });
}
