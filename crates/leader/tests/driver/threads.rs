//! Threads and tasks of the leader that end before its agents do. The death signal of a process
//! follows the thread that started it, and whoever drops a handle forgets a child.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leader::driver::Driver;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use protocol::status::Status;

use crate::support::{
    BUDGET, Bench, PRELUDE, agent, alive_pipe, config, until, within, write_script,
};

/// Waits for a file of its test before it is done.
const UNTIL_TOLD: &str = r#"alive; hello
until [ -e "$out/go" ]; do sleep 0.02; done
finished true 'was told to end'"#;

/// Ignores every polite signal and leaves a daemon behind that does so too.
const ENDLESS: &str = r#"trap '' TERM HUP INT; alive
setsid sh -c 'trap "" TERM HUP INT; echo up; while :; do sleep 1; done' >"$out/daemon" 2>&1 &
hello; while :; do sleep 1; done"#;

/// A runtime as the leader's own, with blocking threads that end soon, and how many have.
fn runtime() -> (tokio::runtime::Runtime, Arc<AtomicUsize>) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_millis(50))
        .on_thread_stop(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    (runtime, ended)
}

#[test]
fn an_agent_outlives_the_thread_that_asked_for_it() {
    let (runtime, ended) = runtime();
    runtime.block_on(async {
        let bench = Arc::new(Bench::new(UNTIL_TOLD).await);
        // Every blocking thread that is there by now ends first.
        let before = Arc::clone(&ended);
        let asking = Arc::clone(&bench);
        let here = tokio::runtime::Handle::current();
        let asked = tokio::task::spawn_blocking(move || {
            here.block_on(asking.start_agent(agent("d1")));
            before.load(Ordering::SeqCst)
        });
        let before = within(asked).await.unwrap();
        until(|| bench.events().contains(&"agent.initialized".into())).await;
        // Nothing uses a blocking thread now, so that the one that asked ends.
        until(|| ended.load(Ordering::SeqCst) > before).await;
        assert_eq!(bench.status(1).await["status"], "running");
        std::fs::write(bench.at("d1/go"), "").unwrap();
        bench.until_status(1, "completed").await;
        let bench = Arc::into_inner(bench).unwrap();
        bench.end().await;
    });
}

#[test]
fn a_runtime_that_is_dropped_takes_its_agents_along() {
    let place = tempfile::tempdir().unwrap();
    let script = format!("{PRELUDE}{ENDLESS}\n");
    write_script(&place.path().join("worker.sh"), &script);
    let mut alive = alive_pipe(place.path());
    let (runtime, _) = runtime();
    let (jails, complete) = runtime.block_on(async {
        let (handle, task) = Driver::start(config(place.path(), "")).await.unwrap();
        // The driver's task and the handle are forgotten with the runtime, as after a panic that
        // unwinds through it.
        std::mem::forget(task);
        let order = |dir: &str| leader::driver::CreateOrderRequest {
            params: protocol::tool::leader::CreateSubAgentParams {
                run_in_background: Some(true),
                ..agent(dir)
            },
            origin: leader::driver::Origin::Person,
            item: None,
        };
        for dir in ["d1", "d2"] {
            within(handle.create(order(dir))).await.unwrap();
        }
        let log = handle.run_dir().join("events.jsonl");
        let text = || std::fs::read_to_string(&log).unwrap();
        until(|| text().matches("agent.initialized").count() == 2).await;
        let daemons = ["d1", "d2"].map(|dir| place.path().join(dir).join("daemon"));
        let up = |path| std::fs::read_to_string(path).is_ok_and(|said| said == "up\n");
        until(|| daemons.iter().all(up)).await;
        let jails: Vec<i32> = text()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|record| record["event"] == "agent.running")
            .map(|record| i32::try_from(record["process"]["pid"].as_i64().unwrap()).unwrap())
            .collect();
        std::mem::forget(handle);
        (jails, text().contains(r#""kill":"complete""#))
    });
    assert_eq!(jails.len(), 2);
    drop(runtime);
    let start = Instant::now();
    for jail in jails {
        // Ended, and left for this process to reap, or reaped already.
        let reaped = loop {
            match waitpid(Pid::from_raw(jail), Some(WaitPidFlag::WNOHANG)) {
                Ok(nix::sys::wait::WaitStatus::StillAlive) if start.elapsed() < BUDGET => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                other => break other,
            }
        };
        assert!(
            matches!(
                reaped,
                Ok(nix::sys::wait::WaitStatus::Signaled(_, _, _)) | Err(nix::errno::Errno::ECHILD)
            ),
            "{reaped:?}"
        );
    }
    if complete {
        while !matches!(alive.read(&mut [0; 64]), Ok(0)) {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "a process is left"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[tokio::test]
async fn a_driver_that_panics_leaves_no_agent_behind() {
    let mut bench = Bench::new(ENDLESS).await;
    let started = bench.start_agent(agent("d1")).await;
    let daemon = bench.at("d1/daemon");
    until(|| std::fs::read_to_string(&daemon).is_ok_and(|said| said == "up\n")).await;
    assert_eq!(started.status, Status::Running);
    let complete = bench.status(1).await["rung"] != "group";
    // A panic drops what the task owns, as its abortion does.
    bench.abort_driver().await;
    if complete {
        let gone = bench.until_nobody_is_alive().await;
        assert!(gone < Duration::from_secs(2), "{gone:?}");
    }
    // Whoever asks is told, and does not wait for ever.
    let refused = within(bench.create(agent("d2"))).await.unwrap_err();
    assert!(!refused.message.is_empty());
    within(bench.handle.closed()).await;
}
