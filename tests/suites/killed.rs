//! What somebody else kills: the leader, a jail, its init. The end is told as what it was, and
//! what the killed process was to end ends all the same.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::{
    Escapees, Ground, Rung, Serve, Turn, Workspace, on_each, process, run, until, within,
};

const ALL: [Rung; 4] = [Rung::Cgroup2, Rung::Pidns, Rung::Subreaper, Rung::Group];
const NAMESPACES: [Rung; 2] = [Rung::Cgroup2, Rung::Pidns];
const UP: Duration = Duration::from_secs(60);
const GONE: Duration = Duration::from_secs(2);

fn send(pid: i32, signal: Signal) {
    assert!(pid > 1, "{pid}");
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn background() -> Value {
    json!({"summary": "is ended by a test", "task": "go", "run_in_background": true})
}

/// A leader with one agent whose command holds the pipe and starts what tries to escape.
fn escaping(ground: Ground, escapees: fn(&Workspace) -> Escapees) -> (Workspace, Serve, Escapees) {
    let workspace = Workspace::on(ground);
    let mut escapees = escapees(&workspace);
    workspace.script("default", &[Turn::command(&escapees.command())]);
    workspace.configure("[limits]\ngrace_seconds = 1\n");
    let serve = Serve::start(&workspace);
    let started = serve.call("create_sub_agent", background());
    assert_eq!(started["status"], "running", "{ground:?}: {started}");
    escapees.wait_up(UP);
    (workspace, serve, escapees)
}

fn reached(workspace: &Workspace) -> Escapees {
    match workspace.ground().rung {
        Rung::Group => Escapees::within_the_group(workspace),
        Rung::Subreaper | Rung::Pidns | Rung::Cgroup2 => Escapees::all(workspace),
    }
}

/// The one jail that a leader has.
fn jail_of(serve: &Serve) -> i32 {
    let children = process::children(serve.pid());
    let [jail] = children.as_slice() else {
        panic!("one jail: {children:?}")
    };
    *jail
}

/// How the agent ended, as whoever waits for it is told.
fn end(serve: &Serve) -> Value {
    let wanted = json!({"agent_ids": [1], "timeout_seconds": 60});
    serve.call("wait_sub_agents", wanted)["agents"][0].clone()
}

#[test]
fn what_escaped_ends_with_a_leader_that_dies_of_a_fault_of_its_own() {
    // A panic that aborts, a bad instruction, and what the kernel sends when memory is out.
    on_each(&ALL, |ground| {
        let signals = match ground.rung {
            Rung::Pidns => &[Signal::SIGABRT, Signal::SIGILL, Signal::SIGKILL][..],
            Rung::Cgroup2 | Rung::Subreaper | Rung::Group => &[Signal::SIGABRT],
        };
        for signal in signals {
            let (workspace, mut serve, mut escapees) = escaping(ground, reached);
            send(serve.pid(), *signal);
            let gone = escapees.alive.wait_gone(GONE);
            assert!(gone.is_some(), "{ground:?} {signal}");
            let status = serve.wait(UP).unwrap();
            assert_eq!(status.signal(), Some(*signal as i32), "{ground:?}");
            let ps = run(workspace.command("leader").args(["ps", "--json"]), UP);
            assert_eq!(ps.code(), 0, "{ground:?} {signal}: {ps:?}");
            let agent = &ps.json()["runs"][0]["agents"][0];
            assert_eq!(agent["status"], "interrupted", "{ground:?}: {agent}");
        }
    });
}

#[test]
fn a_jail_that_somebody_kills_takes_its_namespace_along_and_is_told() {
    on_each(&NAMESPACES, |ground| {
        let (_workspace, serve, mut escapees) = escaping(ground, reached);
        let (ended, took) = within(|| {
            send(jail_of(&serve), Signal::SIGKILL);
            end(&serve)
        });
        assert_eq!(ended["status"], "failed", "{ground:?}: {ended}");
        assert_eq!(ended["stop_reason"], "killed_from_outside", "{ended}");
        assert!(took < Duration::from_secs(3), "{ground:?}: {took:?}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        assert_eq!(process::descendants(serve.pid()), [0; 0], "{ground:?}");
    });
}

#[test]
fn a_jail_that_somebody_kills_takes_its_worker_along_where_nothing_else_holds_it() {
    // Below a namespace that is all: what a command left behind may go on then, as the gaps of
    // these rungs say.
    on_each(&[Rung::Subreaper, Rung::Group], |ground| {
        let workspace = Workspace::on(ground);
        workspace.script("default", &[Turn::text("late").late(600_000)]);
        workspace.configure("");
        let serve = Serve::start(&workspace);
        serve.call("create_sub_agent", background());
        let worker = until(UP, || {
            let tree = process::descendants(serve.pid());
            (tree.len() > 1 && initialized(&workspace, &serve)).then(|| tree[tree.len() - 1])
        });
        let worker = worker.unwrap();
        send(jail_of(&serve), Signal::SIGKILL);
        let ended = end(&serve);
        assert_eq!(ended["status"], "failed", "{ground:?}: {ended}");
        assert_eq!(ended["stop_reason"], "killed_from_outside", "{ended}");
        let gone = until(GONE, || {
            matches!(process::state(worker), None | Some('Z')).then_some(())
        });
        assert!(gone.is_some(), "{ground:?}: {:?}", process::state(worker));
    });
}

fn initialized(workspace: &Workspace, serve: &Serve) -> bool {
    let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    log.contains("agent.initialized")
}

#[test]
fn an_init_that_somebody_kills_is_told_as_that() {
    on_each(&NAMESPACES, |ground| {
        let (_workspace, serve, mut escapees) = escaping(ground, reached);
        let below = process::children(jail_of(&serve));
        let [init] = below.as_slice() else {
            panic!("{ground:?}: one init: {below:?}")
        };
        send(*init, Signal::SIGKILL);
        let ended = end(&serve);
        assert_eq!(ended["status"], "failed", "{ground:?}: {ended}");
        assert_eq!(ended["stop_reason"], "killed_from_outside", "{ended}");
        assert!(ended.to_string().contains("SIGKILL"), "{ended}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
    });
}

#[test]
fn a_jail_that_somebody_stops_saves_nothing_from_a_terminate() {
    on_each(&ALL, |ground| {
        let (_workspace, serve, mut escapees) = escaping(ground, reached);
        let jail = jail_of(&serve);
        send(jail, Signal::SIGSTOP);
        let stopped = until(UP, || (process::state(jail) == Some('T')).then_some(()));
        assert!(stopped.is_some(), "{ground:?}");
        let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
        assert_eq!(answer["status"], "terminated", "{ground:?}: {answer}");
        assert!(took < Duration::from_secs(6), "{ground:?}: {took:?}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        assert_eq!(process::descendants(serve.pid()), [0; 0], "{ground:?}");
    });
}

#[test]
fn nothing_can_leave_the_cgroup_of_its_tree_and_live() {
    // Root may move any process of its own into any group, and make groups in its own, which keep
    // that from being removed.
    on_each(&[Rung::Cgroup2], |ground| {
        let workspace = Workspace::on(ground);
        let delegated = workspace.delegated().unwrap().path();
        let groups = [delegated.parent().unwrap(), &delegated.join("leader")];
        let [machine, own] = groups.map(|group| group.join("cgroup.procs").display().to_string());
        let leave = format!(
            "mkdir -p \"$(ls -d {}/muster-*)/inner/most\"\n\
             for group in '{machine}' '{own}'; do echo $$ >\"$group\"; done 2>/dev/null\n\
             exec sh held.sh\n",
            delegated.display()
        );
        workspace.write("leave.sh", leave);
        let mut escapees = Escapees::within_the_group(&workspace);
        escapees.and("setsid sh leave.sh &");
        workspace.script("default", &[Turn::command(&escapees.command())]);
        workspace.configure("[limits]\ngrace_seconds = 0\n");
        let mut serve = Serve::start(&workspace);
        serve.call("create_sub_agent", background());
        escapees.wait_up(UP);
        let answer = serve.call("terminate_sub_agent", json!({"agent_id": 1}));
        assert_eq!(answer["status"], "terminated", "{ground:?}: {answer}");
        assert!(escapees.alive.wait_gone(GONE).is_some(), "{ground:?}");
        // A killed jail can't remove its group: the leader does it at its end.
        serve.call("shutdown", json!({}));
        assert!(serve.wait(UP).is_some(), "{ground:?}");
        assert_eq!(workspace.delegated().unwrap().groups(), 0, "{ground:?}");
    });
}
