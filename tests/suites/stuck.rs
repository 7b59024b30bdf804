//! A process in an uninterruptible wait, which no signal ends: what a hung network disk does. Here
//! it is a disk in a file that is frozen for a while.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use serde_json::json;
use system_tests::{Serve, Turn, Workspace, process, skipped, until, within};

const BUDGET: Duration = Duration::from_secs(60);

/// Mounts a small disk where nobody else sees it, and becomes the leader. Another process freezes
/// the disk when it is told to, and thaws it at the next word, or by itself after a while: whatever
/// becomes of the test, nothing else could end those that wait for it.
const FREEZER: &str = r#"
truncate -s 8M ../home/disk.img && mkfs.ext4 -q -F ../home/disk.img && mkdir -p disk &&
mount -o loop ../home/disk.img disk && chmod 0777 disk ||
    { echo '{"socket":"","conversation":""}'; exit 9; }
exec 3<>words
(setsid bash -c '
    trap "" HUP INT TERM
    read -r -t 60 word <&3 && fsfreeze --freeze disk && : >frozen
    read -r -t 25 word <&3
    fsfreeze --unfreeze disk
' </dev/null >/dev/null 2>&1 &)
exec "$@" 3<&-
"#;

#[test]
fn a_process_that_waits_for_a_hung_disk_is_told_and_keeps_its_slot_alone() {
    let mountable = nix::unistd::geteuid().is_root()
        && [
            "/dev/loop-control",
            "/usr/sbin/mkfs.ext4",
            "/usr/sbin/fsfreeze",
        ]
        .iter()
        .all(|path| std::path::Path::new(path).exists());
    if !mountable {
        skipped("a disk that hangs needs root, loop devices, mkfs.ext4 and fsfreeze");
        return;
    }
    let workspace = Workspace::new();
    let mut alive = workspace.liveness("alive");
    let stuck = format!(
        "{} until [ -e frozen ]; do sleep 0.02; done; echo x >disk/file",
        alive.hold()
    );
    workspace.script("default", &[Turn::command(&stuck)]);
    workspace.script(
        "calm",
        &[
            Turn::command("echo calm"),
            Turn::finish("ran its command beside a hung disk"),
        ],
    );
    workspace.configure("[limits]\ngrace_seconds = 0\nmax_concurrent = 2\n");
    nix::unistd::mkfifo(&workspace.join("words"), Mode::from_bits_truncate(0o600)).unwrap();
    let mut serve = Serve::start_as(&workspace, |command| {
        let leader = std::mem::replace(command, Command::new("unshare"));
        command
            .args(["--mount", "--", "bash", "-c", FREEZER, "bash"])
            .arg(leader.get_program())
            .args(leader.get_args())
            .current_dir(workspace.path())
            .env_clear()
            .envs(leader.get_envs().filter_map(|(k, v)| Some((k, v?))));
    });
    if serve.conversation.is_empty() {
        skipped("no disk in a file can be mounted here");
        return;
    }
    let say = |word: &str| std::fs::write(workspace.join("words"), format!("{word}\n")).unwrap();
    let mut client = serve.connect();
    let create = |n: u32, model: &str, background: bool| {
        json!({"agent_id": n, "summary": "meets a hung disk", "task": "go", "model_key": model,
               "run_in_background": background})
    };
    client.call("create_sub_agent", create(1, "default", true));
    assert!(alive.wait_up(1, BUDGET));
    say("freeze");
    // For longer than an ordinary disk keeps anybody waiting.
    let mut seen: Option<(i32, Instant)> = None;
    let hangs = until(BUDGET, || {
        let tree = process::descendants(serve.pid());
        let waiting = tree
            .into_iter()
            .filter(|_| workspace.join("frozen").exists())
            .find(|pid| process::state(*pid) == Some('D'));
        seen = waiting.map(|pid| match seen {
            Some((before, since)) if before == pid => (pid, since),
            _ => (pid, Instant::now()),
        });
        seen.filter(|(_, since)| since.elapsed() > Duration::from_millis(500))
    });
    assert!(hangs.is_some(), "nobody waits for the disk");
    let (answer, took) = within(|| client.call("terminate_sub_agent", json!({"agent_id": 1})));
    assert_eq!(answer["error"]["code"], "timed_out", "{answer}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let status = client.call("get_sub_agent_status", json!({"agent_id": 1}));
    let agent = &status["agents"][0];
    assert_eq!(agent["status"], "stopping", "{status}");
    let pids = agent["unkillable"]["pids"].as_array().unwrap();
    assert!(!pids.is_empty(), "{status}");
    // The others go on.
    let calm = client.call("create_sub_agent", create(2, "calm", false));
    assert_eq!(calm["status"], "completed", "{calm}");
    say("thaw");
    let wanted = json!({"agent_ids": [1], "timeout_seconds": 30});
    let ended = client.call("wait_sub_agents", wanted);
    assert_eq!(ended["agents"][0]["status"], "terminated", "{ended}");
    assert!(alive.wait_gone(Duration::from_secs(3)).is_some());
    client.call("shutdown", json!({}));
    assert!(serve.wait(BUDGET).is_some());
}
