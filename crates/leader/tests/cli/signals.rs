//! Ctrl-C and its kin.

use nix::sys::signal::Signal;

use crate::support::{Place, Running, STUBBORN, WORKS, until};

/// Starts a run and waits until its worker has begun.
fn started(place: &Place, arguments: &[&str]) -> Running {
    let running = place.start(arguments);
    let journal = place
        .workspace()
        .join("sub_agent_results/agent_1/.subagent/journal.jsonl");
    until("the worker's beginning", || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        text.contains("half way").then_some(())
    });
    running
}

#[test]
fn the_first_signal_stops_in_order_and_shows_what_is_left() {
    for (signal, code, name) in [
        (Signal::SIGINT, 130, "Ctrl-C"),
        (Signal::SIGTERM, 143, "SIGTERM"),
        (Signal::SIGHUP, 129, "SIGHUP"),
    ] {
        let place = Place::new(WORKS);
        let running = started(&place, &["run", "Write a file."]);
        let half = place.workspace().join("sub_agent_results/agent_1/half.txt");
        until("half of the work", || half.exists().then_some(()));
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code(), Some(code), "{ended:?}");
        assert!(
            ended.stderr.starts_with(&format!("{name}: stopping")),
            "{ended:?}"
        );
        assert!(
            ended.stdout.starts_with("terminated Sub-agent 1: "),
            "{ended:?}"
        );
        assert!(
            ended.stdout.contains("reason: leader_stopped\n"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("  half.txt\n"), "{ended:?}");
    }
}

#[test]
fn the_second_signal_kills_at_once() {
    let place = Place::new(STUBBORN);
    // Without the second signal this grace would be longer than the test may take.
    place.configure("[limits]\ngrace_seconds = 60");
    let start = std::time::Instant::now();
    let running = started(&place, &["run", "--json", "Write a file."]);
    running.signal(Signal::SIGINT);
    // The first one must be taken before the second, or the two fall into one.
    until("the stop", || {
        let log = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
        log.contains("run.stopping").then_some(())
    });
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.code(), Some(130), "{ended:?}");
    assert_eq!(ended.json()["status"], "terminated");
    assert!(start.elapsed().as_secs() < 50, "{:?}", start.elapsed());
    assert!(ended.stderr.contains("killing"), "{ended:?}");
}
