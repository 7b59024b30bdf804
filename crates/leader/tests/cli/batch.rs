//! `leader run --batch` and `--detach`, with a worker that is a few lines of shell.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{DELIVERS, Ended, Place, Running, STUBBORN, WORKS, until};

/// A worker whose end is what its task asks for.
const OBEYS: &str = r#"hello
journal
echo "$out" >>"$own/../../../order"
case $(cat "$own/task.md") in
    *fail*) finished false 'could not' ;;
    *crash*) exit 9 ;;
    *late*) sleep 30 ;;
    *HANG*) while read -r line; do case $line in *agent/stop*) exit 143;; esac; done ;;
    *) echo done >"$out/a.txt"; finished true 'wrote a.txt' ;;
esac"#;

/// An item: id, task, needs.
type Spec<'a> = (&'a str, &'a str, &'a [&'a str]);

/// What a batch comes to: its items, its exit code, how each ends.
type Mix<'a> = (&'a [Spec<'a>], i32, &'a [&'a str]);

/// A batch file.
fn batch(place: &Place, items: &[Spec]) -> String {
    let lines: Vec<String> = items
        .iter()
        .map(|(id, task, needs)| {
            let mut line = json!({"id": id, "task": task, "needs": needs});
            if task.contains("late") {
                line["timeout_seconds"] = json!(1);
            }
            format!("{line}\n")
        })
        .collect();
    fs::write(place.workspace().join("b.jsonl"), lines.concat()).unwrap();
    "b.jsonl".to_owned()
}

fn manifest(place: &Place) -> Value {
    let bytes = fs::read(place.workspace().join("m.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// `id status reason` of each item.
fn ends(manifest: &Value) -> Vec<String> {
    let items = manifest["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| {
            let reason = item["stop_reason"].as_str().unwrap_or("-");
            let (id, status) = (&item["id"], &item["status"]);
            format!(
                "{} {} {reason}",
                id.as_str().unwrap(),
                status.as_str().unwrap()
            )
        })
        .collect()
}

fn run_batch(place: &Place, items: &[Spec], more: &[&str]) -> Ended {
    let file = batch(place, items);
    let arguments = ["run", "--batch", &file, "--manifest", "m.json"];
    place.run(&[&arguments, more].concat())
}

#[test]
fn every_mix_of_ends_has_its_exit_code_and_its_record() {
    let table: [Mix; 5] = [
        (
            &[("a", "good", &[]), ("b", "good", &["a"])],
            0,
            &["a completed -", "b completed -"],
        ),
        (
            &[("a", "good", &[]), ("b", "late", &[])],
            124,
            &["a completed -", "b timed_out deadline"],
        ),
        (
            &[
                ("a", "late", &[]),
                ("b", "good", &["a"]),
                ("c", "good", &["b"]),
            ],
            124,
            &[
                "a timed_out deadline",
                "b skipped dependency_failed",
                "c skipped dependency_failed",
            ],
        ),
        (
            &[("a", "fail", &[]), ("b", "late", &[]), ("c", "good", &[])],
            1,
            &[
                "a failed reported_failure",
                "b timed_out deadline",
                "c completed -",
            ],
        ),
        (
            &[("a", "crash", &[]), ("b", "good", &[])],
            1,
            &["a failed worker_crashed", "b completed -"],
        ),
    ];
    for (items, code, expected) in table {
        let place = Place::new(OBEYS);
        place.configure("[limits]\ngrace_seconds = 0");
        let ended = run_batch(&place, items, &["--json"]);
        assert_eq!(ended.code(), Some(code), "{items:?}: {ended:?}");
        let manifest = manifest(&place);
        assert_eq!(ends(&manifest), expected, "{items:?}");
        assert_eq!(ended.json(), manifest, "what is printed is what is kept");
        assert_eq!(manifest["exit_code"], code);
        assert_eq!(manifest["success"], code == 0);
        assert!(manifest["ended_at"].is_string(), "{manifest}");
    }
}

#[test]
fn a_worker_that_can_not_start_is_the_environments_fault() {
    let place = Place::new(OBEYS);
    let file = batch(&place, &[("a", "good", &[])]);
    let ended = place.run(&["run", "--batch", &file, "--worker-bin", "none"]);
    assert_eq!(ended.code(), Some(3), "{ended:?}");
}

#[test]
fn a_diamond_runs_in_order_and_is_told_where_the_results_lie() {
    let place = Place::new(OBEYS);
    let items: &[Spec] = &[
        ("top", "join", &["left", "right"]),
        ("left", "l", &["base"]),
        ("right", "r", &["base"]),
        ("base", "b", &[]),
    ];
    let ended = run_batch(&place, items, &[]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let manifest = manifest(&place);
    let dir = |at: usize| manifest["items"][at]["deliverables_dir"].as_str().unwrap();
    let order = fs::read_to_string(place.workspace().join("order")).unwrap();
    let order: Vec<&str> = order
        .lines()
        .map(|line| line.rsplit('/').next().unwrap())
        .collect();
    let place_of = |at: usize| {
        let name = dir(at).rsplit('/').next().unwrap();
        order.iter().position(|line| *line == name).unwrap()
    };
    assert_eq!(
        (place_of(3), place_of(0), order.len()),
        (0, 3, 4),
        "{order:?}"
    );
    let task =
        fs::read_to_string(place.workspace().join(dir(0)).join(".subagent/task.md")).unwrap();
    assert!(task.starts_with("join\n"), "{task}");
    for (at, id) in [(1, "left"), (2, "right")] {
        let line = format!("- {id} ({}): {}", &id[..1], dir(at));
        assert!(task.contains(&line), "{task}");
    }
    // `printf 'done\n' | sha256sum`.
    let sum = "d117fa006ba9208500b2930ce69cbde436c647afa917cb7396a9bc9111a46dd2";
    assert_eq!(
        manifest["items"][3]["files"],
        json!([{"path": "a.txt", "bytes": 5, "sha256": sum}])
    );
}

#[test]
fn fail_fast_stops_the_others_and_begins_nothing_more() {
    let place = Place::new(OBEYS);
    place.configure("[limits]\nmax_concurrent = 2");
    let items: &[Spec] = &[
        ("a", "HANG", &[]),
        ("b", "fail", &[]),
        ("c", "good", &["a"]),
    ];
    let ended = run_batch(&place, items, &["--fail-fast"]);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let expected = [
        "a terminated leader_stopped",
        "b failed reported_failure",
        "c skipped fail_fast",
    ];
    assert_eq!(ends(&manifest(&place)), expected);
}

#[test]
fn bad_files_are_refused_whole_before_anything_is_made() {
    let place = Place::new(OBEYS);
    let long = format!("{{\"id\":\"a\",\"task\":\"{}\"}}", "x".repeat(10 << 20));
    let table: [(&[u8], &[&str]); 9] = [
        (b"", &["line 1: there is no item"]),
        (b"{\"id\":\"a\",\"task\":\"t\"} trailing", &["line 1: it is no JSON object"]),
        (b"\xef\xbb\xbf[]\r\n{\"id\":\"a\"}", &["line 1: it must be an object", "line 2: missing parameter `task`"]),
        (b"{\"id\":\"a\xff\"}", &["line 1: it is not UTF-8"]),
        (long.as_bytes(), &["line 1: it has", "task_file"]),
        (b"{\"id\":\"a\",\"task\":\"t\",\"needs\":[\"b\"]}\n{\"id\":\"b\",\"task\":\"t\",\"needs\":[\"a\"]}", &["`a` needs `b` needs `a`"]),
        (b"{\"id\":\"a\",\"task\":\"t\",\"timeout\":5}", &["unknown parameter `timeout`", "`timeout_seconds`"]),
        (b"{\"id\":\"a\",\"task\":\"t\",\"deliverables_dir\":\"../x\"}", &["line 1:", "`..`"]),
        (b"{\"id\":\"a\",\"task\":\"t\",\"timeout_seconds\":99999}\n{\"id\":\"b\",\"task\":\"t\",\"model\":\"zzz\"}", &["line 1: `timeout_seconds` must be", "line 2:", "zzz"]),
    ];
    for (bytes, words) in table {
        fs::write(place.workspace().join("b.jsonl"), bytes).unwrap();
        let ended = place.run(&["run", "--batch", "b.jsonl", "--manifest", "m.json"]);
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(2), ""),
            "{words:?}"
        );
        for word in words {
            assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
        }
    }
    for path in [".", "none.jsonl"] {
        let ended = place.run(&["run", "--batch", path]);
        assert_eq!(ended.code(), Some(2), "{ended:?}");
    }
    fs::create_dir(place.workspace().join("full")).unwrap();
    fs::write(place.workspace().join("full/x"), "x").unwrap();
    fs::write(
        place.workspace().join("b.jsonl"),
        "{\"id\":\"a\",\"task\":\"t\",\"deliverables_dir\":\"full\"}\n",
    )
    .unwrap();
    let ended = place.run(&["run", "--batch", "b.jsonl"]);
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("line 1: its deliverables_dir `full` is not empty")
    );
    assert!(!place.workspace().join(".muster/runs").exists());
    assert!(!place.workspace().join("m.json").exists());
}

#[test]
fn lines_of_an_editor_from_stdin_run() {
    let place = Place::new(OBEYS);
    let mut command = place.leader(&["run", "--batch", "-", "--json", "-q"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let text = "\u{FEFF}{\"id\":\"a\",\"task\":\"good\",\"agent_id\":150}\r\n\r\n{\"id\":\"b\",\"task\":\"good\"}";
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let ended = running.end();
    assert_eq!(
        (ended.code(), ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    let manifest = ended.json();
    assert_eq!(manifest["items"][0]["agent_id"], 150);
    assert_eq!(manifest["items"][1]["agent_id"], 1);
}

#[test]
fn one_signal_stops_in_order_and_the_batch_goes_on_later() {
    let place = Place::new(OBEYS);
    place.configure("[limits]\nmax_concurrent = 1");
    let items: &[Spec] = &[
        ("a", "good", &[]),
        ("b", "HANG", &[]),
        ("c", "good", &["b"]),
    ];
    let file = batch(&place, items);
    let running = place.start(&["run", "--batch", &file, "--manifest", "m.json"]);
    until("the second item at work", || {
        let text = fs::read_to_string(place.workspace().join("order")).unwrap_or_default();
        (text.lines().count() == 2).then_some(())
    });
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.code(), Some(130), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("Ctrl-C: stopping all agents in order"),
        "{ended:?}"
    );
    let expected = [
        "a completed -",
        "b terminated leader_stopped",
        "c skipped leader_stopped",
    ];
    assert_eq!(ends(&manifest(&place)), expected);
    let first = manifest(&place)["items"][0].clone();
    // The hanging item is cut off again: its line is as it was.
    let running = place.start(&["run", "--batch", &file, "--manifest", "m.json", "--resume"]);
    until("the second item at work again", || {
        let text = fs::read_to_string(place.workspace().join("order")).unwrap_or_default();
        (text.lines().count() == 3).then_some(())
    });
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().code(), Some(143));
    // With another line it begins from the beginning, in its own directory, and all comes right.
    batch(
        &place,
        &[
            ("a", "good", &[]),
            ("b", "good now", &[]),
            ("c", "good", &["b"]),
        ],
    );
    let ended = place.run(&["run", "--batch", &file, "--manifest", "m.json", "--resume"]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("begin from the beginning: `b`"),
        "{ended:?}"
    );
    let after = manifest(&place);
    assert_eq!(
        ends(&after),
        ["a completed -", "b completed -", "c completed -"]
    );
    assert_eq!(after["items"][0], first, "what was completed is as it was");
    assert_eq!(after["items"][1]["attempts"], 3);
    assert_eq!(after["earlier_conversations"].as_array().unwrap().len(), 2);
    // Once more there is nothing to do, and nothing is done.
    let again = place.run(&["run", "--batch", &file, "--manifest", "m.json", "--resume"]);
    assert_eq!(again.code(), Some(0), "{again:?}");
    assert_eq!(manifest(&place)["items"], after["items"]);
    assert_eq!(manifest(&place)["conversation"], after["conversation"]);
}

#[test]
fn failed_items_keep_their_end_unless_they_are_to_be_tried_again() {
    let place = Place::new(OBEYS);
    let items: &[Spec] = &[("a", "fail", &[]), ("b", "good", &["a"])];
    let file = batch(&place, items);
    let resume = ["run", "--batch", &file, "--manifest", "m.json", "--resume"];
    let missing = place.run(&resume);
    assert_eq!(missing.code(), Some(2), "{missing:?}");
    assert_eq!(run_batch(&place, items, &[]).code(), Some(1));
    assert_eq!(place.run(&resume).code(), Some(1));
    assert_eq!(manifest(&place)["items"][0]["attempts"], 1);
    let retried = place.run(&[&resume[..], &["--retry-failed"]].concat());
    assert_eq!(retried.code(), Some(1), "{retried:?}");
    let after = manifest(&place);
    assert_eq!(after["items"][0]["attempts"], 2);
    assert_eq!(after["items"][0]["agent_id"], 1);
    // A completed item's line may not change, and one that ran may not go.
    batch(&place, &[("x", "good", &[])]);
    let gone = place.run(&resume);
    assert_eq!(gone.code(), Some(2), "{gone:?}");
    assert!(
        gone.stderr.contains("not in the batch file any more: `a`"),
        "{gone:?}"
    );
}

#[test]
fn a_second_signal_kills_a_deaf_batch() {
    let place = Place::new(STUBBORN);
    place.configure("[limits]\ngrace_seconds = 60");
    let file = batch(&place, &[("a", "t", &[]), ("b", "t", &[])]);
    let running = place.start(&["run", "--batch", &file, "--json"]);
    let journals = [1, 2].map(|n| {
        place.workspace().join(format!(
            "sub_agent_results/agent_{n}/.subagent/journal.jsonl"
        ))
    });
    until("both workers", || {
        journals.iter().all(|path| path.exists()).then_some(())
    });
    running.signal(Signal::SIGINT);
    until("the stop", || {
        let log = fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
        log.contains("run.stopping").then_some(())
    });
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.code(), Some(130), "{ended:?}");
    assert_eq!(
        ends(&ended.json()),
        ["a terminated leader_stopped", "b terminated leader_stopped"]
    );
}

#[test]
fn events_are_streamed_and_a_reader_that_leaves_ends_the_batch() {
    let place = Place::new(OBEYS);
    let ended = run_batch(
        &place,
        &[("a", "good", &[]), ("b", "fail", &[])],
        &["--stream-json"],
    );
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let settled: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "item.settled")
        .collect();
    assert_eq!(settled.len(), 2);
    assert_eq!(lines.first().unwrap()["event"], "run.started");
    assert_eq!(lines.last().unwrap()["result"], manifest(&place));
    let place = Place::new(OBEYS);
    let file = batch(&place, &[("a", "HANG", &[])]);
    let mut command = place.leader(&[
        "run",
        "--batch",
        &file,
        "--stream-json",
        "--manifest",
        "m.json",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = until("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    // The first line that is not read may be written before or after the agent's beginning.
    let end = &ends(&manifest(&place))[0];
    assert!(end.ends_with(" leader_stopped"), "{end}");
}

#[test]
fn a_detached_batch_is_waited_for_like_a_run() {
    let place = Place::new(OBEYS);
    let file = batch(&place, &[("a", "good", &[]), ("b", "late", &["a"])]);
    let told = place.run(&[
        "run",
        "--batch",
        &file,
        "--manifest",
        "m.json",
        "--detach",
        "--json",
    ]);
    assert_eq!(
        (told.code(), told.stderr.as_str()),
        (Some(0), ""),
        "{told:?}"
    );
    let told = told.json();
    assert_eq!(
        (&told["agents"][0]["item"], &told["later"]),
        (&json!("a"), &json!(1)),
        "{told}"
    );
    let waited = place.run(&["wait", told["conversation"].as_str().unwrap()]);
    assert_eq!(waited.code(), Some(124), "{waited:?}");
    let manifest = manifest(&place);
    assert_eq!(ends(&manifest), ["a completed -", "b timed_out deadline"]);
    let log = fs::read_to_string(told["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("[1/2] completed   a "), "{log}");
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last, manifest);
}

#[test]
fn a_detached_run_has_a_session_of_its_own_and_its_refusals_are_the_callers() {
    let place = Place::new(WORKS);
    let told = place
        .run(&["run", "--detach", "--json", "Write a file."])
        .json();
    let pid = told["pid"].as_u64().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // Fields 6 and 7 of proc_pid_stat(5): session and terminal.
    assert_eq!(
        (fields[3], fields[4]),
        (pid.to_string().as_str(), "0"),
        "{stat}"
    );
    let agent = told["agents"][0]["task_id"].as_str().unwrap();
    until("the agent in the list", || {
        let seen = place.run(&["ps", "--json"]).json();
        (seen["runs"][0]["agents"][0]["last_action"] == "thinking hard").then_some(())
    });
    let waiting = place.start(&["wait", agent]);
    assert_eq!(place.run(&["kill", agent]).code(), Some(0));
    assert_eq!(waiting.end().code(), Some(1));
    let conversation = told["conversation"].as_str().unwrap();
    assert_eq!(place.run(&["wait", conversation]).code(), Some(1));
    until("the end of the leader", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    for (arguments, code) in [
        (vec!["run", "--detach", ""], 2),
        (vec!["run", "--detach", "--worker-bin", "none", "t"], 3),
    ] {
        let refused = place.run(&arguments);
        assert_eq!(
            (refused.code(), refused.stdout.as_str()),
            (Some(code), ""),
            "{refused:?}"
        );
        assert!(refused.stderr.starts_with("error: "), "{refused:?}");
    }
}

#[test]
fn a_detached_leader_that_is_killed_is_told_as_such() {
    let place = Place::new(WORKS);
    let told = place
        .run(&["run", "--detach", "--json", "Write a file."])
        .json();
    let conversation = told["conversation"].as_str().unwrap();
    let waiting = place.start(&["wait", conversation]);
    let pid = i32::try_from(told["pid"].as_u64().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let waited = waiting.end();
    assert_eq!(waited.code(), Some(1), "{waited:?}");
    assert!(
        waited.stdout.contains("Sub-agent 1 (leader_died)"),
        "{waited:?}"
    );
}

#[test]
fn a_manifest_of_a_batch_that_runs_or_was_broken_off_is_not_written_over() {
    let place = Place::new(OBEYS);
    let file = batch(&place, &[("a", "HANG", &[])]);
    let arguments = ["run", "--batch", &file, "--manifest", "m.json"];
    let running = place.start(&arguments);
    until("the agent's beginning", || {
        place.workspace().join("order").exists().then_some(())
    });
    for more in [&[][..], &["--resume"]] {
        let second = place.run(&[&arguments, more].concat());
        assert_eq!(second.code(), Some(3), "{second:?}");
        assert!(second.stderr.contains("whose leader runs"), "{second:?}");
    }
    running.signal(Signal::SIGKILL);
    running.end();
    let over = place.run(&arguments);
    assert_eq!(over.code(), Some(2), "{over:?}");
    assert!(
        over.stderr.contains("was broken off") && over.stderr.contains("--resume"),
        "{over:?}"
    );
    fs::write(place.workspace().join("m.json"), "my notes").unwrap();
    assert_eq!(place.run(&arguments).code(), Some(2));
    assert_eq!(
        fs::read_to_string(place.workspace().join("m.json")).unwrap(),
        "my notes"
    );
}

#[test]
fn five_run_at_once_and_the_rest_is_queued() {
    let place = Place::new(DELIVERS);
    let names: Vec<String> = (1..=12).map(|n| format!("i{n}")).collect();
    let items: Vec<Spec> = names
        .iter()
        .map(|name| (name.as_str(), "Write a file.", &[][..]))
        .collect();
    let ended = run_batch(&place, &items, &[]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .starts_with("batch of 12 items: 12 completed ("),
        "{ended:?}"
    );
    let log = fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        match line["event"].as_str().unwrap() {
            "agent.starting" => running += 1,
            "agent.ended" => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!((running, most), (0, 5), "{log}");
    assert!(log.contains("agent.queued"), "{log}");
}
