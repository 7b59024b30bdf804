//! A system that refuses what a start needs, or what a record needs: each refusal is told in its
//! own words, nothing of a half-made start is left, and what works again is used again.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{
    Ground, Refusals, Rung, Serve, Turn, Whose, Workspace, grounds, process, run, until,
};

const BUDGET: Duration = Duration::from_secs(60);
/// Descriptors that a leader may hold more or fewer of from one moment to the next.
const DESCRIPTORS_SPARE: usize = 3;

/// A workspace of workers that misbehave on demand, with room for one.
fn faking(ground: Ground) -> Workspace {
    let workspace = Workspace::on(ground);
    workspace.script("default", &[]);
    workspace.configure("[limits]\nmax_concurrent = 1\ngrace_seconds = 1\n");
    workspace
}

fn brief() -> Value {
    json!({"summary": "is started while it can't be", "task": "fake: brief"})
}

/// A leader whose calls the value can refuse.
fn serve(workspace: &Workspace, refusals: &Refusals) -> Serve {
    Serve::start_as(workspace, |command| {
        *command = refusals.command(workspace, "leader");
        command
            .args(["serve", "--json"])
            .env("MUSTER_WORKER", workspace.executable("fake_worker"));
    })
}

/// Nothing of any start is left: no process, no descriptor.
fn assert_as_before(serve: &Serve, descriptors: usize, told: &str) {
    let calm = until(Duration::from_secs(10), || {
        let now = process::descriptors(serve.pid()).len();
        let gone = process::children(serve.pid()).is_empty();
        (gone && now.abs_diff(descriptors) <= DESCRIPTORS_SPARE).then_some(())
    });
    assert!(
        calm.is_some(),
        "{told}: {descriptors} descriptors before, now {:?}; children {:?}",
        process::descriptors(serve.pid()),
        process::children(serve.pid())
    );
}

#[test]
fn a_start_that_the_system_refuses_is_told_frees_its_slot_and_leaves_nothing() {
    let faults: [(&[&str], Whose, i32, &str); 6] = [
        // A table of processes that is full, and memory that is out: for the leader, then for the
        // jail, which has to fork too.
        (
            &["clone", "clone3"],
            Whose::Its,
            libc::EAGAIN,
            "Resource temporarily unavailable",
        ),
        (
            &["clone", "clone3"],
            Whose::Its,
            libc::ENOMEM,
            "Cannot allocate memory",
        ),
        (
            &["clone", "clone3"],
            Whose::Everybodys,
            libc::EAGAIN,
            "Resource temporarily unavailable",
        ),
        // No descriptor left: for the pipes of a child, for the hold on it, and in the jail.
        (&["pipe2"], Whose::Its, libc::EMFILE, "Too many open files"),
        (
            &["pidfd_open"],
            Whose::Its,
            libc::EMFILE,
            "Too many open files",
        ),
        (
            &["socketpair"],
            Whose::Everybodys,
            libc::EMFILE,
            "Too many open files",
        ),
    ];
    for ground in grounds(&[Rung::Pidns, Rung::Subreaper]) {
        for (calls, whose, errno, word) in faults {
            let told = format!("{ground:?} {calls:?} {whose:?} {word}");
            let workspace = faking(ground);
            let refusals = Refusals::of(&workspace, whose, calls);
            let serve = serve(&workspace, &refusals);
            let mut client = serve.connect();
            let first = client.call("create_sub_agent", brief());
            assert_eq!(first["status"], "completed", "{told}: {first}");
            assert!(
                until(BUDGET, || process::children(serve.pid())
                    .is_empty()
                    .then_some(()))
                .is_some()
            );
            let before = process::descriptors(serve.pid()).len();
            for _ in 0..3 {
                refusals.begin(errno);
                let refused = client.call("create_sub_agent", brief());
                refusals.end();
                assert_eq!(refused["success"], false, "{told}: {refused}");
                assert!(refused.to_string().contains(word), "{told}: {refused}");
            }
            assert!(refusals.count() >= 3, "{told}");
            assert_as_before(&serve, before, &told);
            let next = client.call("create_sub_agent", brief());
            assert_eq!(next["status"], "completed", "{told}: {next}");
        }
    }
}

/// The result of one agent that does nothing, with these calls refused from the start.
fn run_without(
    ground: Ground,
    calls: &[&str],
    errno: i32,
    require: &str,
) -> (system_tests::Ended, usize) {
    let workspace = Workspace::on(ground);
    let done = "there was nothing to do, as the task says";
    workspace.script("default", &[Turn::command("echo ran"), Turn::finish(done)]);
    workspace.configure("");
    let refusals = Refusals::of(&workspace, Whose::Everybodys, calls);
    refusals.begin(errno);
    let mut command = refusals.command(&workspace, "leader");
    command
        .args(["run", "--json", "--summary", "runs on less", "go"])
        .env("MUSTER_CONFINEMENT_REQUIRE", require);
    let ended = run(&mut command, BUDGET);
    let agents = std::fs::read_dir(workspace.join("sub_agent_results"));
    (ended, agents.map_or(0, Iterator::count))
}

#[test]
fn what_a_kernel_lacks_is_told_as_a_gap_and_a_required_rung_refused() {
    // As on older kernels, and under a container's filter.
    let lacks: [(&[&str], i32, &str, &str); 5] = [
        (
            &["clone3"],
            libc::ENOSYS,
            "subreaper",
            "Function not implemented",
        ),
        (
            &["landlock_create_ruleset"],
            libc::ENOSYS,
            "pidns",
            "Landlock",
        ),
        (
            &["landlock_create_ruleset"],
            libc::EOPNOTSUPP,
            "pidns",
            "Landlock",
        ),
        (
            &["clone3", "landlock_create_ruleset"],
            libc::ENOSYS,
            "group",
            "setsid",
        ),
        (&["mount"], libc::EPERM, "pidns", "/proc"),
    ];
    for ground in grounds(&[Rung::Pidns]) {
        for (calls, errno, rung, word) in lacks {
            let told = format!("{ground:?} {calls:?} {errno}");
            let (ended, _) = run_without(ground, calls, errno, "none");
            assert_eq!(ended.code(), 0, "{told}: {ended:?}");
            let confinement = ended.json()["confinement"].take();
            assert_eq!(confinement["rung"], rung, "{told}: {confinement}");
            assert!(
                confinement["gaps"].to_string().contains(word),
                "{told}: {confinement}"
            );
            let (ended, agents) = run_without(ground, calls, errno, "pidns");
            let expected = if rung == "pidns" { 0 } else { 5 };
            assert_eq!(ended.code(), expected, "{told}: {ended:?}");
            assert_eq!(agents, usize::from(rung == "pidns"), "{told}");
        }
        // Without a hold on its children that can't be mistaken, no leader starts any.
        let (ended, _) = run_without(ground, &["pidfd_open"], libc::ENOSYS, "none");
        assert_ne!(ended.code(), 0, "{ground:?}: {ended:?}");
        assert!(
            format!("{ended:?}").contains("Function not implemented"),
            "{ground:?}: {ended:?}"
        );
    }
}

#[test]
fn a_disk_that_fails_under_the_log_stops_the_agents_and_says_so() {
    let workspace = Workspace::new();
    let mut alive = workspace.liveness("alive");
    let hold = format!("{} sleep 300", alive.hold());
    workspace.script("default", &[Turn::command(&hold)]);
    workspace.configure("[limits]\ngrace_seconds = 1");
    let refusals = Refusals::of(&workspace, Whose::Its, &["fsync", "fdatasync"]);
    let serve = Serve::start_as(&workspace, |command| {
        *command = refusals.command(&workspace, "leader");
        command.args(["serve", "--json"]);
    });
    let mut client = serve.connect();
    let create = |n: u32| {
        json!({"agent_id": n, "summary": "works until the disk fails", "task": "go",
               "run_in_background": true})
    };
    let first = client.call("create_sub_agent", create(1));
    assert_eq!(first["status"], "running", "{first}");
    assert!(alive.wait_up(1, BUDGET));
    refusals.begin(libc::EIO);
    // The one that meets the fault may have been started by then; it is ended with the others.
    client.call("create_sub_agent", create(2));
    assert!(alive.wait_gone(Duration::from_secs(10)).is_some());
    refusals.end();
    // A record that may be lost is not made up for later: the log stays closed to new agents.
    let third = client.call("create_sub_agent", create(3));
    assert_eq!(third["success"], false, "{third}");
    let ended = until(BUDGET, || {
        let left = client.call("list_active_sub_agents", json!({}));
        (left["agents"] == json!([])).then_some(())
    });
    assert!(ended.is_some(), "an agent has no end");
    drop(client);
    drop(serve);
    let said = std::fs::read_to_string(workspace.home().join("serve.log")).unwrap();
    assert!(said.contains("the event log can't be written"), "{said}");
    assert!(said.contains("Input/output error"), "{said}");
    // The agent's own files lie elsewhere, and tell its end; what is on the disk of the log folds.
    let file = workspace.conversation("sub_agent_results/agent_1");
    assert_eq!(file["status"], "terminated", "{file}");
    let ps = run(workspace.command("leader").args(["ps", "--json"]), BUDGET);
    assert_eq!(ps.code(), 0, "{ps:?}");
    let agents = ps.json()["runs"][0]["agents"].take();
    assert!(!agents.as_array().unwrap().is_empty(), "{ps:?}");
    for agent in agents.as_array().unwrap() {
        let status = agent["status"].as_str().unwrap();
        assert!(["interrupted", "terminated"].contains(&status), "{agent}");
    }
}
