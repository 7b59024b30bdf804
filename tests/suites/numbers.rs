//! Process numbers that come back: in a namespace with few of them a number is another process's
//! a moment after its owner has gone, and no signal of ours ever meets that one.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::stat::Mode;
use serde_json::{Value, json};
use system_tests::{Serve, Workspace, skipped, until};

const BUDGET: Duration = Duration::from_secs(60);

/// The first process of a namespace whose numbers end soon. It starts the leader, and strangers of
/// its own, each in a session, on whichever number it is asked for; all of it ends with it.
const KEEPER: &str = r#"
import json, os, subprocess, sys
with open('/proc/sys/kernel/pid_max', 'w') as file:
    file.write('420')
def start():
    return subprocess.Popen(['sleep', '120'], start_new_session=True)
# Numbers below 300 are handed out once.
number = 0
while number < 300:
    process = start()
    number = process.pid
    process.kill()
    process.wait()
leader = subprocess.Popen(sys.argv[1:])
strangers = {}
# What a jail that was killed leaves dead is the first process's to wait for, and keeps the number of
# its group until then.
def reap():
    own = {leader.pid} | {it.pid for it in strangers.values()}
    try:
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in own:
                return
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        pass
def occupy(wanted):
    reap()
    for _ in range(2000):
        process = start()
        if process.pid == wanted:
            strangers[wanted] = process
            return True
        process.kill()
        process.wait()
    return False
def ended():
    return sorted(number for number, it in strangers.items() if it.poll() is not None)
last = False
while not last:
    with open('ask') as asked:
        for line in asked:
            words = line.split()
            last = words[0] == 'last'
            if words[0] == 'occupy':
                answer = occupy(int(words[1]))
            elif last:
                answer = [leader.wait(), ended()]
            else:
                answer = ended()
            with open('answer.tmp', 'w') as file:
                json.dump(answer, file)
            os.rename('answer.tmp', 'answer')
"#;

/// Asks the keeper for something and gives its answer.
fn ask(workspace: &Workspace, what: &str) -> Value {
    std::fs::remove_file(workspace.join("answer")).ok();
    // Opened without waiting for a reader that may have gone.
    let pipe = until(BUDGET, || {
        std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(workspace.join("ask"))
            .ok()
    });
    writeln!(pipe.expect("the keeper listens"), "{what}").unwrap();
    let answer = until(BUDGET, || std::fs::read(workspace.join("answer")).ok());
    serde_json::from_slice(&answer.expect("the keeper answers")).unwrap()
}

/// The numbers of the jails in the log, as their leader sees them.
fn jails(workspace: &Workspace, serve: &Serve) -> Vec<u64> {
    let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["event"] == "agent.running")
        .map(|record| record["process"]["pid"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_number_that_came_back_is_never_signalled() {
    // A stop that came late met the process, and the group, that had the number by then.
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can make a namespace of few numbers here");
        return;
    }
    let workspace = Workspace::new();
    workspace.script("default", &[]);
    workspace.configure("[limits]\ngrace_seconds = 0\n");
    workspace.write("keeper.py", KEEPER);
    nix::unistd::mkfifo(&workspace.join("ask"), Mode::from_bits_truncate(0o600)).unwrap();
    let mut serve = few_numbers(&workspace);
    let mut client = serve.connect();
    let mut occupied = Vec::new();
    for n in 1..=12 {
        // One that is ended, and one that ends by itself.
        let background = n % 2 == 1;
        let task = if background {
            "fake: hang"
        } else {
            "fake: brief"
        };
        let created = client.call(
            "create_sub_agent",
            json!({"agent_id": n, "summary": "has a number for a while", "task": task,
                   "run_in_background": background}),
        );
        assert!(created["error"].is_null(), "{created}");
        if background {
            let ended = client.call("terminate_sub_agent", json!({"agent_id": n}));
            assert_eq!(ended["status"], "terminated", "{ended}");
        }
        // Its number, and the group that was called so, are a stranger's now.
        let number = *jails(&workspace, &serve).last().unwrap();
        // Whoever looks at processes just then may have it for a moment.
        let occupy = || (ask(&workspace, &format!("occupy {number}")) == json!(true)).then_some(());
        assert!(until(BUDGET, occupy).is_some(), "{number} stays taken");
        occupied.push(number);
        let late = client.call("terminate_sub_agent", json!({"agent_id": n}));
        assert_eq!(late["error"]["code"], "already_ended", "{late}");
    }
    occupied.sort_unstable();
    occupied.dedup();
    assert_eq!(occupied.len(), 12, "each number has one owner at a time");
    let none = json!([]);
    assert_eq!(ask(&workspace, "ended"), none, "strangers were ended");
    // A leader that goes signals nobody else either.
    client.call("shutdown", json!({}));
    drop(client);
    let last = ask(&workspace, "last");
    assert_eq!(last, json!([0, none]), "strangers were ended");
    assert!(serve.wait(BUDGET).is_some());
}

/// A leader in a namespace of a few hundred process numbers.
fn few_numbers(workspace: &Workspace) -> Serve {
    Serve::start_as(workspace, |command| {
        let leader = std::mem::replace(command, Command::new("unshare"));
        command
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "python3"])
            .arg(workspace.join("keeper.py"))
            .arg(leader.get_program())
            .args(leader.get_args())
            .current_dir(workspace.path())
            .env_clear()
            .envs(leader.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env("MUSTER_WORKER", workspace.executable("fake_worker"));
    })
}
