//! The commands that look and act from another terminal.

use std::io::Write;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{DELIVERS, Place, Running, Serve, WORKS, order, until};

/// A run whose agent is at work.
fn at_work(place: &Place) -> Running {
    let running = place.start(&["run", "--json", "Write a file."]);
    until("a running agent", || {
        let seen = place.run(&["ps", "--json"]).json();
        let agent = &seen["runs"][0]["agents"][0];
        (agent["last_action"] == "thinking hard").then_some(())
    });
    running
}

#[test]
fn a_run_is_seen_and_ended_from_another_terminal() {
    let place = Place::new(WORKS);
    let running = at_work(&place);
    let table = place.run(&["ps"]);
    assert_eq!(table.code(), Some(0), "{table:?}");
    assert!(table.stdout.contains(" live\n"), "{table:?}");
    assert!(table.stdout.contains("thinking hard"), "{table:?}");
    let shown = place.run(&["status", "1"]);
    assert!(
        shown
            .stdout
            .starts_with("running Sub-agent 1: Write a file.\n"),
        "{shown:?}"
    );
    let logs = place.run(&["logs", "Sub-agent 1"]);
    assert_eq!(logs.stdout, "agent half way\n", "{logs:?}");
    let killed = place.run(&["kill", "1"]);
    assert_eq!(killed.code(), Some(0), "{killed:?}");
    assert!(killed.stdout.contains("half.txt"), "{killed:?}");
    let ended = running.end();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert_eq!(ended.json()["stop_reason"], "terminated");
    let again = place.run(&["kill", "1"]);
    assert_eq!(again.code(), Some(1), "{again:?}");
    assert!(again.stderr.contains("has ended: terminated"), "{again:?}");
}

#[test]
fn an_ended_run_is_told_from_its_files() {
    let place = Place::new(DELIVERS);
    assert_eq!(place.run(&["ps"]).stdout, "no runs in this workspace\n");
    let task = place.run(&["run", "--json", "Write a file."]).json()["task_id"].clone();
    let below = place.workspace().join("below");
    std::fs::create_dir(&below).unwrap();
    let mut command = place.leader(&["status", "--json", task.as_str().unwrap()]);
    command.current_dir(&below);
    let shown = Running::start(command).end().json();
    assert_eq!(shown["live"], false);
    assert_eq!(shown["agent"]["status"], "completed");
    assert_eq!(
        shown["agent"]["deliverables_dir"],
        "sub_agent_results/agent_1"
    );
    let logs = place.run(&["logs", "--json", "1"]);
    assert_eq!(
        logs.stdout,
        "{\"kind\":\"message\",\"role\":\"assistant\",\"content\":\"half way\"}\n"
    );
    let waited = place.run(&["wait", "1"]);
    assert_eq!(
        (waited.code(), waited.stdout.as_str()),
        (Some(0), "completed Sub-agent 1\n"),
        "{waited:?}"
    );
    let unknown = place.run(&["status", "9"]);
    assert_eq!(unknown.code(), Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("no agent `9`"), "{unknown:?}");
}

#[test]
fn a_wait_returns_with_the_end_or_the_clock() {
    let place = Place::new(WORKS);
    let nobody = place.run(&["wait"]);
    assert_eq!(
        (nobody.code(), nobody.stdout.as_str()),
        (Some(0), "no live agents\n")
    );
    let running = at_work(&place);
    let late = place.run(&["wait", "--timeout-seconds", "1"]);
    assert_eq!(late.code(), Some(124), "{late:?}");
    assert_eq!(late.stdout, "running Sub-agent 1\n");
    let waiting = place.start(&["wait", "--json", "1"]);
    let follower = place.start(&["logs", "-f", "1"]);
    place.run(&["kill", "1"]);
    let waited = waiting.end();
    assert_eq!(waited.code(), Some(1), "{waited:?}");
    let waited = waited.json();
    assert_eq!(waited["agents"][0]["status"], "terminated", "{waited}");
    assert_eq!(waited["running"], json!([]));
    assert_eq!(running.end().code(), Some(1));
    let followed = follower.end();
    assert_eq!(followed.code(), Some(0), "{followed:?}");
    assert!(
        followed.stdout.starts_with("agent half way\n"),
        "{followed:?}"
    );
}

/// The socket of a leader that was killed closed a moment before its lock was free; who looked in
/// between saw nobody and answered with success.
#[test]
fn a_wait_at_a_leader_that_is_killed_tells_of_it_and_does_not_hang() {
    for whole in [false, true] {
        let place = Place::new(WORKS);
        let running = at_work(&place);
        let dir = place.run_dir();
        let conversation = dir.file_name().unwrap().to_str().unwrap();
        let word = if whole { conversation } else { "1" };
        let late = place.run(&["wait", word, "--timeout-seconds", "1"]);
        assert_eq!(late.code(), Some(124), "{late:?}");
        let waiting = place.start(&["wait", word]);
        running.signal(Signal::SIGKILL);
        let waited = waiting.end();
        assert_eq!(waited.code(), Some(1), "{waited:?}");
        assert_eq!(waited.stdout, "interrupted Sub-agent 1 (leader_died)\n");
        let again = place.run(&["wait", word]);
        assert_eq!((again.code(), again.stdout), (Some(1), waited.stdout));
        running.end();
    }
    let nobody = Place::new(WORKS).run(&["wait", "conv_00000000"]);
    assert_eq!(nobody.code(), Some(2), "{nobody:?}");
}

#[test]
fn steps_are_followed_as_they_are_made() {
    let place = Place::new(WORKS);
    let running = at_work(&place);
    let shown = place.path("shown");
    let mut follower = place
        .leader(&["logs", "-f", "1"])
        .stdout(std::fs::File::create(&shown).unwrap())
        .spawn()
        .unwrap();
    let shows = |wanted: &str| (std::fs::read_to_string(&shown).unwrap() == wanted).then_some(());
    until("the first step", || shows("agent half way\n"));
    let journal = place
        .workspace()
        .join("sub_agent_results/agent_1/.subagent/journal.jsonl");
    let lines = std::fs::read_to_string(&journal).unwrap();
    let step = lines.lines().last().unwrap().replace("half way", "further");
    let mut journal = std::fs::File::options().append(true).open(journal).unwrap();
    // A line may come in two pieces.
    let (head, tail) = step.split_at(10);
    journal.write_all(head.as_bytes()).unwrap();
    journal.write_all(format!("{tail}\n").as_bytes()).unwrap();
    until("the second", || shows("agent half way\nagent further\n"));
    place.run(&["kill", "1"]);
    running.end();
    let status = until("the follower's end", || follower.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_run_whose_leader_was_killed_is_closed_by_the_next_look() {
    let place = Place::new(WORKS);
    let running = at_work(&place);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code(), None);
    let seen = place.run(&["ps", "--json"]).json();
    assert_eq!(seen["runs"][0]["state"], "ended", "{seen}");
    let agent = &seen["runs"][0]["agents"][0];
    assert_eq!(agent["status"], "interrupted", "{seen}");
    assert_eq!(agent["stop_reason"], "leader_died", "{seen}");
    let results = place.workspace().join("sub_agent_results/agent_1");
    let conversation = results.join(".subagent/conversations.json");
    let conversation: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(conversation).unwrap()).unwrap();
    assert_eq!(conversation["status"], "interrupted", "{conversation}");
    assert_eq!(
        conversation["messages"][0]["content"], "half way",
        "{conversation}"
    );
    let log = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    assert!(log.contains("run.ended"), "{log}");
    let waited = place.run(&["wait", "1"]);
    assert_eq!(waited.code(), Some(1), "{waited:?}");
}

#[test]
fn two_live_agents_of_one_number_are_listed_and_told_apart() {
    let place = Place::new(WORKS);
    let serves = [Serve::start(&place), Serve::start(&place)];
    for (at, serve) in serves.iter().enumerate() {
        let mut params = order(1, true);
        params["deliverables_dir"] = json!(format!("out{at}"));
        let started = serve.connect().call("create_sub_agent", params);
        assert_eq!(started["success"], true, "{started}");
    }
    let ambiguous = place.run(&["kill", "1"]);
    assert_eq!(ambiguous.code(), Some(2), "{ambiguous:?}");
    for serve in &serves {
        let conversation = serve.told["conversation"].as_str().unwrap();
        assert!(ambiguous.stderr.contains(conversation), "{ambiguous:?}");
    }
    let conversation = serves[1].told["conversation"].as_str().unwrap();
    let killed = place.run(&["kill", "--json", &format!("{conversation}/1")]);
    assert_eq!(killed.json()["deliverables_dir"], "out1", "{killed:?}");
    let seen = serves[0]
        .connect()
        .call("get_sub_agent_status", json!({"agent_id": 1}));
    assert_eq!(seen["agents"][0]["status"], "running", "{seen}");
}

#[test]
fn the_configuration_is_shown_with_its_sources() {
    let place = Place::new(DELIVERS);
    place.configure("[limits]\nmax_concurrent = 7");
    let mut command = place.leader(&["config"]);
    command.env("MUSTER_GRACE_SECONDS", "1");
    let ended = Running::start(command).end();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let line = |start: &str| {
        let line = ended.stdout.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {ended:?}"))
            .to_owned()
    };
    let user = place.path("home/.config/muster/muster.toml");
    assert_eq!(
        line("limits.max_concurrent"),
        format!("limits.max_concurrent = 7  # {}:2", user.display())
    );
    assert_eq!(
        line("limits.grace_seconds"),
        "limits.grace_seconds = 1  # MUSTER_GRACE_SECONDS"
    );
}
