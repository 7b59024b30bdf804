//! The control socket of a real leader.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Caller, DELIVERS, Place, Serve, WORKS, order, until};

#[test]
fn serve_says_where_it_is_and_only_the_owner_may_come() {
    let place = Place::new(DELIVERS);
    let mut serve = Serve::start(&place);
    let socket = place.run_dir().join("leader.sock");
    assert_eq!(serve.told["socket"], socket.to_str().unwrap());
    let conversation = place.run_dir();
    let conversation = conversation.file_name().unwrap().to_str().unwrap();
    assert_eq!(serve.told["conversation"], conversation);
    let mode = fs::symlink_metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(serve.connect().call("shutdown", json!({}))["success"], true);
    assert_eq!(serve.end(), (Some(0), String::new()));
    assert!(!socket.exists());
}

#[test]
fn of_six_at_once_five_run_and_the_sixth_is_told_why() {
    // Calls above the limit were once cut away silently.
    let place = Place::new(WORKS);
    let mut serve = Serve::start(&place);
    let mut callers = [serve.connect(), serve.connect()];
    let ids: Vec<(usize, u64)> = (1..=6)
        .map(|number| {
            let by = number as usize % 2;
            (
                by,
                callers[by].send("create_sub_agent", order(number, true)),
            )
        })
        .collect();
    let mut started = BTreeSet::new();
    let mut refused = Vec::new();
    for (by, id) in ids {
        let result = callers[by].answer(id)["result"].clone();
        match result["success"] == true {
            true => {
                assert_eq!(result["status"], "running", "{result}");
                started.insert(result["agent_id"].as_u64().unwrap());
            }
            false => refused.push(result["error"].clone()),
        }
    }
    assert_eq!((started.len(), refused.len()), (5, 1), "{refused:?}");
    assert_eq!(refused[0]["code"], "too_many_agents");
    assert!(
        refused[0]["message"].as_str().unwrap().contains('5'),
        "{refused:?}"
    );
    let active = callers[0].call("list_active_sub_agents", json!({}));
    assert_eq!(active["agents"].as_array().unwrap().len(), 5, "{active}");
    assert_eq!(callers[0].call("shutdown", json!({}))["success"], true);
    assert_eq!(serve.end().0, Some(0));
}

#[test]
fn a_blocking_create_holds_up_nothing_and_a_caller_that_leaves_ends_no_agent() {
    let place = Place::new(WORKS);
    let serve = Serve::start(&place);
    let mut caller = serve.connect();
    caller.send("create_sub_agent", order(1, false));
    let mut other = serve.connect();
    let running = |caller: &mut Caller| {
        until("a running agent", || {
            let agents = caller.call("ps", json!({}))["agents"].clone();
            (agents[0]["last_action"] == "thinking hard").then(|| agents[0].clone())
        })
    };
    // On the connection of the blocking call as well as on another.
    let seen = running(&mut caller);
    assert_eq!(seen["status"], "running");
    drop(caller);
    assert_eq!(running(&mut other)["agent_id"], 1);
    let ended = other.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert_eq!(ended["status"], "terminated", "{ended}");
    assert_eq!(ended["deliverables_files"], json!(["half.txt"]));
    let again = other.call("terminate_sub_agent", json!({"agent_id": 1}));
    assert_eq!(again["error"]["code"], "already_ended", "{again}");
}

#[test]
fn malformed_calls_get_errors_under_their_ids_and_the_connection_lives() {
    let place = Place::new(DELIVERS);
    let serve = Serve::start(&place);
    let mut caller = serve.connect();
    for (line, id, code) in [
        ("this is no JSON", Value::Null, -32_700),
        (r#"{"id":0,"method":7}"#, json!(0), -32_600),
        (r#"{"id":0,"method":"terminate"}"#, json!(0), -32_601),
        (
            r#"{"id":"x","method":"logs","params":{"agnet":"1"}}"#,
            json!("x"),
            -32_602,
        ),
        (r#"{"id":1,"method":"ps","params":[]}"#, json!(1), -32_602),
    ] {
        caller.send_line(line);
        let answer = caller.line();
        assert_eq!(answer["id"], id, "{answer}");
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    caller.send_line(&"x".repeat(5 << 20));
    let long = caller.line();
    assert_eq!(long["error"]["code"], -32_600, "{long}");
    assert!(
        long["error"]["message"]
            .as_str()
            .unwrap()
            .contains("5242880"),
        "{long}"
    );
    // A tool's failure is a result.
    let refused = caller.call("create_sub_agent", json!({"taks": "t"}));
    assert_eq!(refused["error"]["code"], "invalid_parameters", "{refused}");
    assert!(
        refused["error"]["hint"].as_str().unwrap().contains("task"),
        "{refused}"
    );
    for bad in [json!(0), json!(100), json!(-1), json!(1.5)] {
        let params = json!({"agent_id": bad, "summary": "s", "task": "t"});
        let refused = caller.call("create_sub_agent", params);
        assert_eq!(refused["error"]["code"], "invalid_parameters", "{refused}");
    }
}

#[test]
fn a_number_is_used_once() {
    let place = Place::new(DELIVERS);
    let serve = Serve::start(&place);
    let mut caller = serve.connect();
    let ended = caller.call("create_sub_agent", order(1, false));
    assert_eq!(ended["status"], "completed", "{ended}");
    let again = caller.call("create_sub_agent", order(1, false));
    assert_eq!(again["error"]["code"], "agent_id_taken", "{again}");
    let text = caller.call(
        "create_sub_agent",
        json!({"agent_id": "2", "summary": "write a file", "task": "t"}),
    );
    assert_eq!(text["agent_id"], 2, "{text}");
}

#[test]
fn a_subscriber_gets_every_event_once_from_where_it_wants() {
    let place = Place::new(DELIVERS);
    let serve = Serve::start(&place);
    let mut caller = serve.connect();
    caller.call("create_sub_agent", order(1, false));
    let subscribed = caller.call("subscribe", json!({"after_seq": 1}));
    assert_eq!(subscribed["subscribed"], true);
    let mut seq = 1;
    loop {
        let line = caller.line();
        assert_eq!(line["method"], "event", "{line}");
        seq += 1;
        assert_eq!(line["params"]["seq"], seq, "{line}");
        if line["params"]["event"] == "agent.ended" {
            break;
        }
    }
    let mut other = serve.connect();
    assert_eq!(other.call("shutdown", json!({}))["success"], true);
    until("the end of the run", || {
        let line = caller.line();
        (line["params"]["event"] == "run.ended").then_some(())
    });
}

#[test]
fn the_methods_that_look_answer_for_the_whole_conversation() {
    let place = Place::new(DELIVERS);
    let serve = Serve::start(&place);
    let mut caller = serve.connect();
    caller.call("create_sub_agent", order(1, false));
    let waited = caller.call("wait", json!({"agents": ["1"], "mode": "all"}));
    assert_eq!(waited["agents"][0]["status"], "completed", "{waited}");
    let logs = caller.call("logs", json!({"agent": "1"}));
    assert_eq!(logs["status"], "completed", "{logs}");
    assert_eq!(logs["steps"][0]["content"], "half way", "{logs}");
    assert_eq!(logs["more"], false);
    let rest = caller.call("logs", json!({"agent": "1", "after": logs["next"]}));
    assert_eq!(rest["steps"], json!([]));
    let config = caller.call("config", json!({}));
    assert_eq!(config["limits"]["max_concurrent"], 5, "{config}");
    let unknown = caller.call("logs", json!({"agent": "9"}));
    assert_eq!(unknown["error"]["code"], "unknown_agent", "{unknown}");
}

#[test]
fn a_signal_ends_the_conversation_and_all_its_agents() {
    let place = Place::new(WORKS);
    let mut serve = Serve::start(&place);
    let mut caller = serve.connect();
    let id = caller.send("create_sub_agent", order(1, false));
    until("a running agent", || {
        let agents = serve.connect().call("ps", json!({}))["agents"].clone();
        (agents[0]["last_action"] == "thinking hard").then_some(())
    });
    serve.signal(Signal::SIGTERM);
    let ended = caller.answer(id)["result"].clone();
    assert_eq!(ended["status"], "terminated", "{ended}");
    assert_eq!(ended["stop_reason"], "leader_stopped");
    assert_eq!(serve.end(), (Some(143), String::new()));
}

#[test]
fn a_workspace_deeper_than_an_address_is_long_serves_and_is_seen() {
    let deep = format!("{}/{}", "d".repeat(100), "e".repeat(100));
    let place = Place::at(WORKS, &deep);
    let mut serve = Serve::start(&place);
    let socket = serve.told["socket"].as_str().unwrap().to_owned();
    assert!(socket.len() > 200);
    // The path is too long for this test as well, so it goes the way of its directory.
    let directory = place.run_dir();
    let connect = || {
        let held = fs::File::open(&directory).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
        Caller::new(UnixStream::connect(format!("/proc/self/fd/{fd}/leader.sock")).unwrap())
    };
    connect().call("create_sub_agent", order(1, true));
    let seen = place.run(&["ps", "--json"]).json();
    assert_eq!(seen["runs"][0]["state"], "live", "{seen}");
    assert_eq!(seen["runs"][0]["agents"][0]["agent_id"], 1, "{seen}");
    connect().call("shutdown", json!({}));
    assert_eq!(serve.end().0, Some(0));
}
