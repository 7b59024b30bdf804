//! `leader doctor` on this machine and on worse ones, its proof, and rungs told as they are.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::{
    Delegated, Ended, Ground, Liveness, Rung, Serve, Turn, User, Workspace, grounds,
    model::{Behaviour, ModelServer},
    run, skipped, until,
};

const BUDGET: Duration = Duration::from_secs(60);

/// A ground on which namespaces can't be had, as on a machine that has switched them off.
fn bare_grounds() -> Vec<Ground> {
    grounds(&[Rung::Subreaper])
}

fn scripted(ground: Ground) -> Workspace {
    let workspace = Workspace::on(ground);
    workspace.script(
        "default",
        &[Turn::finish("There was nothing to do in this task.")],
    );
    workspace.configure("");
    workspace
}

/// The leader with one variable more. Nobody's local model server is asked: nothing listens on
/// port 1.
fn leader_with(workspace: &Workspace, name: &str, value: &str) -> Command {
    let mut leader = workspace.command("leader");
    leader.env("OLLAMA_HOST", "127.0.0.1:1").env(name, value);
    leader
}

fn doctor(workspace: &Workspace, arguments: &[&str]) -> Ended {
    doctor_with(workspace, ("LC_ALL", "C"), arguments)
}

fn doctor_with(workspace: &Workspace, (name, value): (&str, &str), arguments: &[&str]) -> Ended {
    let mut leader = leader_with(workspace, name, value);
    run(leader.arg("doctor").args(arguments), BUDGET)
}

fn words(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[test]
fn where_all_is_well_everything_is_told_and_the_code_is_0() {
    for ground in grounds(&[Rung::Pidns]) {
        let workspace = scripted(ground);
        let ended = doctor(&workspace, &["--json"]);
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        let report = ended.json();
        assert_eq!(
            (&report["success"], &report["verdict"]),
            (&json!(true), &json!("ready"))
        );
        let told: Vec<(&str, &str)> = report["programs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                (
                    it["name"].as_str().unwrap(),
                    it["version"].as_str().unwrap(),
                )
            })
            .collect();
        let version = env!("CARGO_PKG_VERSION");
        let (worker, jail) = (format!("worker {version}"), format!("jail {version}"));
        assert_eq!(told, [("worker", worker.as_str()), ("jail", jail.as_str())]);
        let enforced = &report["confinement"]["enforced"];
        for key in [
            "rung",
            "kill",
            "procs",
            "memory",
            "network",
            "filesystem",
            "gaps",
        ] {
            assert!(!enforced[key].is_null(), "{key}: {enforced}");
        }
        assert_eq!(report["model"]["provider"], "script");
        assert!(report["workspace"]["free_bytes"].as_u64().unwrap() > 0);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(report["kernel"], kernel.trim());
        let file = workspace.home().join(".config/muster/muster.toml");
        assert_eq!(
            report["config"]["files"][0],
            json!({"path": file, "present": true})
        );
        let text = doctor(&workspace, &[]);
        assert!(text.stdout.ends_with("\nagents can run here\n"), "{text:?}");
        assert_eq!(text.stderr, "");
    }
}

/// A model was once told to be fine because a file named it.
#[test]
fn a_model_is_asked_for_a_word_and_what_it_says_is_told() {
    let workspace = Workspace::new();
    let models = [
        (Behaviour::Turns(vec![Turn::text("OK")]), 0, "answered"),
        (
            Behaviour::Fixed(
                401,
                "application/json",
                "{\"error\":{\"message\":\"no such key here\"}}".to_owned(),
            ),
            3,
            "failed",
        ),
    ];
    for (behaviour, code, outcome) in models {
        let server = ModelServer::start(behaviour);
        workspace.configure(&format!(
            "[models.m]\nprovider = \"openai\"\nbase_url = \"{}\"\nmodel = \"small\"\n\
             api_key_env = \"MY_API_KEY\"\n",
            server.base_url()
        ));
        let asked = |arguments: &[&str]| {
            let mut command = workspace.command("leader");
            command.arg("doctor").args(arguments);
            run(command.env("MY_API_KEY", "tok123456789"), BUDGET)
        };
        let ended = asked(&["--json"]);
        assert_eq!(ended.code(), code, "{ended:?}");
        let model = &ended.json()["model"];
        assert_eq!(model["reached"]["outcome"], outcome, "{model}");
        assert_eq!(server.requests().len(), 1, "one request and no retry");
        assert!(!ended.stdout.contains("tok123456789"), "{ended:?}");
        if code != 0 {
            let text = asked(&[]).stdout;
            for word in [
                "does not answer",
                "no such key here",
                "MY_API_KEY",
                "--no-model",
            ] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        let before = server.requests().len();
        let quiet = asked(&["--no-model", "--json"]);
        assert_eq!(quiet.code(), 0, "{quiet:?}");
        assert_eq!(server.requests().len(), before);
    }
}

#[test]
fn what_a_run_enforces_is_what_the_doctor_told() {
    for ground in grounds(&[Rung::Pidns]) {
        let workspace = scripted(ground);
        let report = doctor(&workspace, &["--json"]).json();
        let mut leader = workspace.command("leader");
        let result = run(leader.args(["run", "--json", "do it"]), BUDGET).json();
        // Besides, an agent has gaps that come of its own places, and tells of its commands.
        let told = &report["confinement"]["enforced"];
        let mut enforced = result["confinement"].clone();
        let commands = enforced.as_object_mut().unwrap().remove("commands");
        assert_eq!(commands.unwrap()["held_by"], "keeper", "{ground:?}");
        let gaps = std::mem::replace(&mut enforced["gaps"], told["gaps"].clone());
        assert_eq!(enforced, *told, "{ground:?}");
        for gap in words(&told["gaps"]) {
            assert!(words(&gaps).contains(&gap), "{ground:?}: {gap}");
        }
        let mut leader = workspace.command("leader");
        let ps = run(leader.args(["ps", "--json"]), BUDGET).json();
        let agent = &ps["runs"][0]["agents"][0];
        assert_eq!(agent["confinement"], result["confinement"], "{ps}");
        assert_eq!(agent["rung"], result["confinement"]["rung"]);
    }
}

#[test]
fn without_a_model_or_with_a_broken_file_agents_can_not_run() {
    let workspace = Workspace::new();
    let ended = doctor(&workspace, &["--json"]);
    assert_eq!(ended.code(), 3, "{ended:?}");
    let report = ended.json();
    assert_eq!(report["verdict"], "not_ready");
    let hint = report["model"]["problem"]["hint"].as_str().unwrap();
    assert!(hint.contains("OPENAI_API_KEY"), "{hint}");
    let workspace = scripted(Ground::PLAIN);
    workspace.configure("nonsense = 1");
    let ended = doctor(&workspace, &[]);
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("muster.toml:2: unknown key `nonsense`"),
        "{ended:?}"
    );
    // The rest is looked at all the same.
    assert!(ended.stdout.contains("\njail         "), "{ended:?}");
}

/// A machine with `user.max_user_namespaces = 0` once gave process groups without a word.
#[test]
fn with_user_namespaces_switched_off_the_rung_and_the_line_that_brings_the_next_are_told() {
    for ground in bare_grounds() {
        let ended = doctor(&scripted(ground), &["--json"]);
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        let confinement = ended.json()["confinement"].take();
        assert_eq!(confinement["enforced"]["rung"], "subreaper");
        assert_eq!(confinement["enforced"]["kill"], "best_effort");
        assert_eq!(
            confinement["next"],
            json!({
                "rung": "pidns",
                "reason": "user namespaces are switched off (user.max_user_namespaces = 0)",
                "remedy": "sudo sysctl -w user.max_user_namespaces=15000",
            })
        );
        let gaps = words(&confinement["enforced"]["gaps"]).join("\n");
        assert!(gaps.contains("No space left on device"), "{gaps}");
    }
}

#[test]
fn a_required_rung_that_can_not_be_had_refuses_every_start_with_the_line_that_brings_it() {
    let require = ("MUSTER_CONFINEMENT_REQUIRE", "pidns");
    for ground in bare_grounds() {
        let workspace = scripted(ground);
        for arguments in [&["run", "--json", "do it"][..], &["serve", "--json"]] {
            let mut leader = leader_with(&workspace, require.0, require.1);
            let ended = run(leader.args(arguments), BUDGET);
            assert_eq!(ended.code(), 5, "{ended:?}");
            let error = ended.json()["error"].take();
            assert_eq!(error["code"], "confinement_refused");
            assert_eq!(
                error["message"],
                "`confinement.require` is `pidns`, and this machine holds only `subreaper`: user \
                 namespaces are switched off (user.max_user_namespaces = 0)"
            );
            let hint = error["hint"].as_str().unwrap();
            let line = "for `pidns`: sudo sysctl -w user.max_user_namespaces=15000\n";
            assert!(hint.starts_with(line), "{hint}");
        }
        assert!(!workspace.join("sub_agent_results").exists());
        let ended = doctor_with(&workspace, require, &["--json"]);
        assert_eq!(ended.code(), 5, "{ended:?}");
        assert_eq!(ended.json()["verdict"], "require_not_met");
        let ended = doctor_with(&workspace, require, &["--prove"]);
        assert_eq!(ended.code(), 5, "{ended:?}");
        assert!(ended.stderr.contains("sudo sysctl -w"), "{ended:?}");
        let ended = doctor_with(&workspace, (require.0, "subreaper"), &[]);
        assert_eq!(ended.code(), 0, "{ended:?}");
    }
}

/// As in a container that was given no capability: namespaces are refused although the machine
/// has them. Only root has capabilities to give up.
#[test]
fn a_container_without_capabilities_is_told_what_it_lacks() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let workspace = scripted(Ground::PLAIN);
    let mut leader = Command::new("setpriv");
    leader
        .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
        .arg(workspace.executable("leader"))
        .args(["doctor", "--json"])
        .current_dir(workspace.path())
        .env("HOME", workspace.home());
    let ended = run(&mut leader, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let confinement = ended.json()["confinement"].take();
    assert_eq!(confinement["enforced"]["rung"], "subreaper");
    assert_eq!(confinement["next"]["rung"], "pidns");
    let gaps = words(&confinement["enforced"]["gaps"]).join("\n");
    assert!(gaps.contains("Operation not permitted"), "{gaps}");
}

/// Checks a proof of which every kill left nothing, and gives its rungs.
fn proven(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.code(), 0, "{ended:?}");
    let proof = ended.json();
    assert_eq!(
        (&proof["success"], &proof["survivors"]),
        (&json!(true), &json!(0))
    );
    let mut rungs = Vec::new();
    for rung in proof["rungs"].as_array().unwrap() {
        let rounds: Vec<(&str, u64, u64, u64)> = rung["rounds"]
            .as_array()
            .unwrap()
            .iter()
            .map(|round| {
                let number = |key: &str| round[key].as_u64().unwrap();
                assert!(round["empty_ms"].as_f64().unwrap() > 0.0);
                (
                    round["ending"].as_str().unwrap(),
                    number("agents"),
                    number("processes"),
                    number("survivors"),
                )
            })
            .collect();
        assert_eq!(
            rounds,
            [("terminated", 1, 4, 0), ("leader_killed", 3, 12, 0)]
        );
        let key = &rung["key"];
        assert_eq!(key["looks"], 4, "{key}");
        assert!(key["files_looked_at"].as_u64().unwrap() > 10, "{key}");
        for place in ["environment", "environ", "cmdline", "files"] {
            assert_eq!(key[place], 0, "{key}");
        }
        let tried: Vec<(&str, &str, usize, bool)> = rung["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempts| {
                assert_eq!(attempts["broken"], json!([]), "{attempts}");
                let ways = attempts["ways"].as_u64().unwrap();
                assert!(
                    ways > 0 && attempts["writes"].as_u64().unwrap() > 10,
                    "{attempts}"
                );
                let came = attempts["connections"].as_u64().unwrap();
                assert!(came == 0 || came == ways, "{attempts}");
                (
                    attempts["write"].as_str().unwrap(),
                    attempts["network"].as_str().unwrap(),
                    attempts["open"].as_array().unwrap().len(),
                    came > 0,
                )
            })
            .collect();
        // Where all is open the attempts succeed, so that they are real ones.
        let open = match rung["confinement"]["filesystem"].as_str() {
            Some("workspace") => 3,
            _ => 10,
        };
        let expected = [
            ("workspace", "full", open, true),
            ("scope", "model", 0, false),
        ];
        assert_eq!(tried, expected, "{rung}");
        rungs.push(rung["rung"].as_str().unwrap().to_owned());
    }
    rungs
}

#[test]
fn a_proof_kills_on_every_rung_and_nothing_survives() {
    for ground in grounds(&[Rung::Pidns]) {
        let workspace = Workspace::on(ground);
        let home = workspace.home();
        let place = ("TMPDIR", home.to_str().unwrap());
        let ended = doctor_with(&workspace, place, &["--prove", "--json"]);
        let rungs = proven(&ended);
        assert_eq!(rungs[0], "pidns", "{ended:?}");
        let left = std::fs::read_dir(workspace.home()).unwrap().count();
        assert_eq!(left, 0, "its workspace is removed");
        assert!(!workspace.join(".muster").exists());
    }
}

#[test]
fn a_proof_without_namespaces_shows_the_rung_below_at_work() {
    for ground in bare_grounds() {
        let ended = doctor(&Workspace::on(ground), &["--prove", "--json"]);
        assert_eq!(proven(&ended), ["subreaper"], "{ground:?}");
    }
}

/// A proof that can't fail proves nothing: a worker that writes down what it is told leaks its key.
#[test]
fn a_proof_finds_a_key_that_a_worker_leaks() {
    use std::os::unix::fs::PermissionsExt;
    let workspace = Workspace::new();
    // Without mounts of its own, which could hide the real worker from the leaky one.
    workspace.configure("[confinement]\nhighest = \"subreaper\"\n");
    let leaky = workspace.home().join("worker");
    let script = format!(
        "#!/bin/sh\ntee -a leak.txt | exec '{}' \"$@\"\n",
        workspace.executable("worker").display()
    );
    std::fs::write(&leaky, script).unwrap();
    std::fs::set_permissions(&leaky, PermissionsExt::from_mode(0o755)).unwrap();
    let worker = ("MUSTER_WORKER", leaky.to_str().unwrap());
    let ended = doctor_with(&workspace, worker, &["--prove", "--json"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let proof = ended.json();
    assert_eq!(
        (&proof["success"], &proof["survivors"], &proof["leaks"]),
        (
            &json!(false),
            &json!(0),
            &json!(proof["rungs"].as_array().unwrap().len())
        )
    );
    assert_eq!(proof["rungs"][0]["key"]["files"], 1, "{proof}");
}

/// A proof that can't fail proves nothing: on the weakest rung everything survives.
#[test]
fn a_proof_on_the_weakest_rung_counts_what_survives() {
    let highest = ("MUSTER_CONFINEMENT_HIGHEST", "group");
    let ended = doctor_with(&Workspace::new(), highest, &["--prove", "--json"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let proof = ended.json();
    assert_eq!(proof["rungs"][0]["rung"], "group");
    assert_eq!(
        (&proof["success"], &proof["survivors"]),
        (&json!(false), &json!(16))
    );
}

/// Whoever loses patience with a proof is not left with its processes.
#[test]
fn a_proof_that_is_killed_or_interrupted_leaves_no_process() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let workspace = Workspace::new();
        let mut live = Liveness::new(&workspace.home(), "live");
        // The pipe is held by the proof and by the leader that it starts; the jails of agents
        // close what is not theirs, and their trees are what the other tests are about.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{}exec \"$0\" doctor --prove", live.hold()))
            .arg(workspace.executable("leader"))
            .current_dir(workspace.path())
            .env("HOME", workspace.home())
            .env("TMPDIR", workspace.home())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(live.wait_up(1, BUDGET));
        // Its workspace is there once it has begun.
        let begun = until(BUDGET, || {
            let entries = std::fs::read_dir(workspace.home()).unwrap();
            let mut names = entries.map(|entry| entry.unwrap().file_name());
            names
                .any(|name| name.to_string_lossy().starts_with("muster-prove-"))
                .then_some(())
        });
        assert_eq!(begun, Some(()));
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, signal).unwrap();
        let status = child.wait().unwrap();
        assert!(
            live.wait_gone(Duration::from_secs(10)).is_some(),
            "{signal}"
        );
        if signal == Signal::SIGKILL {
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        } else {
            // The wish to end came while it could be heard, or the proof was over before.
            assert!(matches!(status.code(), Some(130 | 0)), "{status}");
            let left = std::fs::read_dir(workspace.home()).unwrap().count();
            assert_eq!(left, 1, "only the pipe of this test is left");
        }
    }
}

/// A delegated directory, which only root can make here, and only where the tree is mounted.
fn delegated() -> Option<Delegated> {
    Delegated::make(User::Myself)
        .map_err(|why| skipped(&why))
        .ok()
}

#[test]
fn a_delegated_cgroup_is_the_highest_rung_and_proven_as_one() {
    let Some(delegated) = delegated() else {
        return;
    };
    let workspace = scripted(Ground::PLAIN);
    workspace.configure(&format!("{}\nrequire = \"cgroup2\"", delegated.settings()));
    let ended = doctor(&workspace, &["--json"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let confinement = ended.json()["confinement"].take();
    assert_eq!(confinement["enforced"]["rung"], "cgroup2");
    assert_eq!(confinement["next"], Value::Null);
    let ended = doctor(&workspace, &["--prove", "--json"]);
    let rungs = proven(&ended);
    assert_eq!(rungs[0], "cgroup2");
}

/// The directory of a scope goes with its scope, in the middle of a run: the agents after that are
/// held by less, and it must be seen.
#[test]
fn a_rung_lost_in_mid_run_is_an_event_and_a_warning_and_told_beside_what_was_asked() {
    let Some(delegated) = delegated() else {
        return;
    };
    let workspace = scripted(Ground::PLAIN);
    workspace.configure(&delegated.settings());
    let serve = Serve::start(&workspace);
    let create = |number: u32| {
        serve.call(
            "create_sub_agent",
            json!({
                "agent_id": number,
                "summary": "do nothing at all",
                "task": "Do nothing.",
                "run_in_background": false,
            }),
        )
    };
    let first = create(1);
    assert_eq!(first["confinement"]["rung"], "cgroup2", "{first}");
    assert_eq!(first["confinement"]["asked"], Value::Null);
    let told = words(&first["warnings"]).join("\n");
    assert!(!told.contains("stood in this run"), "{told}");
    delegated.remove();
    let second = create(2);
    assert_eq!(second["status"], "completed", "{second}");
    assert_eq!(second["confinement"]["rung"], "pidns");
    assert_eq!(second["confinement"]["asked"], json!({"rung": "cgroup2"}));
    let warnings = words(&second["warnings"]).join("\n");
    assert!(
        warnings.contains("its confinement is `pidns`, and `cgroup2` stood in this run before"),
        "{warnings}"
    );
    let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    let lost: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["event"] == "agent.rung_lost")
        .collect();
    assert_eq!(lost.len(), 1, "{log}");
    assert_eq!(
        (
            &lost[0]["agent"]["agent_id"],
            &lost[0]["had"],
            &lost[0]["has"]
        ),
        (&json!(2), &json!("cgroup2"), &json!("pidns"))
    );
}
