//! Trees that fork without end, and ends at every moment of a start.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use confine::policy::JailPolicy;
use confine::report::{JailLine, ProcessCap, Rung};
use confine::signal::Signal;

use crate::support::{BUDGET, KEEP, User, exactly, signal, start, start_script, users};

/// Forks as fast as it may; each of them ends by itself after 30 s. Tells how many there could be.
const BOMB: &str = "
import os, sys, time
end = time.monotonic() + 30
children = 0
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        children += 1
    except BlockingIOError:
        break
print('children', children, flush=True)
while time.monotonic() < end:
    try:
        if os.fork() == 0: continue
    except BlockingIOError:
        time.sleep(0.001)
";

fn children(line: &str) -> Option<u32> {
    line.strip_prefix("children ")?.parse().ok()
}

#[test]
fn a_fork_bomb_stays_under_its_cap_and_is_gone_at_once_with_its_jail() {
    for user in users() {
        let policy = JailPolicy {
            process_cap: 60,
            ..exactly(Rung::Pidns)
        };
        let mut jail = start(user, &policy, &["python3", "-c", BOMB]);
        if jail.started().confinement.procs != ProcessCap::Tree {
            continue;
        }
        let most = jail.line(children);
        // The numbers below 300 can be had once, before the kernel's numbers have wrapped.
        assert!((1..=360).contains(&most), "{most} children of {user:?}");
        let killed = Instant::now();
        signal(&jail.child, Signal::SIGKILL);
        assert!(
            jail.live.is_empty_within(Duration::from_secs(3)),
            "{user:?}"
        );
        assert!(killed.elapsed() < Duration::from_secs(3));
        assert_eq!(jail.child.wait().unwrap().signal(), Some(9));
    }
}

#[test]
fn a_fork_bomb_in_one_command_does_not_keep_the_others_from_starting() {
    for user in users() {
        let script = format!(
            r#"
import json, os, socket
keeper = socket.socket(fileno=3)
null = os.open('/dev/null', os.O_RDWR)
def run(argv, cap, timeout_ms):
    spec = {{'format': 1, 'argv': argv, 'cwd': '/', 'env': [['PATH', '/usr/bin:/bin']],
            'timeout_ms': timeout_ms, 'open_files': None, 'file_size_bytes': None,
            'cpu_seconds': None, 'process_cap': cap, 'network': 'full'}}
    ours, theirs = socket.socketpair()
    socket.send_fds(keeper, [json.dumps(spec).encode()], [null, null, null, theirs.fileno()])
    theirs.close()
    return ours.makefile()
bomb = run(['python3', '-c', {BOMB:?}], 40, 600)
bomb.readline()
for _ in range(3):
    print(json.loads(run(['/bin/true'], None, None).readlines()[-1])['params']['exit_code'])
print(json.loads(bomb.readlines()[-1])['params']['reason'])
print(len([name for name in os.listdir('/proc') if name.isdigit()]))
"#
        );
        let end = start(user, &exactly(Rung::Pidns), &["python3", "-c", &script]).finish();
        assert_eq!(end.output, "0\n0\n0\ntimed_out\n3\n", "{user:?}");
    }
}

#[test]
fn on_a_subreaper_an_ordinary_users_tasks_are_capped_and_all_of_them_end() {
    for user in users() {
        let policy = JailPolicy {
            process_cap: 60,
            ..exactly(Rung::Subreaper)
        };
        let root = user == User::Myself && nix::unistd::geteuid().is_root();
        if root {
            // Nothing bounds root here, which is told; a bomb would be the machine's problem.
            let end = start_script(user, &policy, "exit 0").finish();
            assert_eq!(end.started.unwrap().confinement.procs, ProcessCap::None);
            continue;
        }
        let mut jail = start(user, &policy, &["python3", "-c", BOMB]);
        assert_eq!(jail.started().confinement.procs, ProcessCap::Uid);
        // Other tests have processes of that user too, which come and go.
        assert!(jail.line(children) <= 200);
        drop(jail.stdin.take());
        assert!(jail.live.is_empty_within(BUDGET), "{user:?}");
        assert_eq!(jail.finish().status.signal(), Some(9));
    }
}

/// Numbers that look random and are the same in every run.
fn scattered(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |last| {
        Some(
            last.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        )
    })
    .map(|number| number >> 33)
}

#[test]
fn a_jail_killed_at_any_moment_of_its_start_leaves_nothing() {
    let script = format!("setsid sleep 1000 & printf x >&{KEEP}; sleep 1000");
    let mut delays = scattered(7).map(|number| Duration::from_micros(number % 12_000));
    for user in users() {
        for delay in delays.by_ref().take(75) {
            let mut jail = start_script(user, &exactly(Rung::Pidns), &script);
            std::thread::sleep(delay);
            signal(&jail.child, Signal::SIGKILL);
            assert!(
                jail.live.is_empty_within(BUDGET),
                "{user:?} after {delay:?}"
            );
            assert_eq!(jail.child.wait().unwrap().signal(), Some(9));
        }
    }
}

#[test]
fn a_channel_closed_at_any_moment_of_the_start_leaves_nothing() {
    let script = format!("setsid sleep 1000 & printf x >&{KEEP}; sleep 1000");
    let mut delays = scattered(11).map(|number| Duration::from_micros(number % 12_000));
    for (user, rung) in crate::support::everywhere() {
        if rung == Rung::Group {
            continue;
        }
        for delay in delays.by_ref().take(20) {
            let mut jail = start_script(user, &exactly(rung), &script);
            std::thread::sleep(delay);
            drop(jail.stdin.take());
            assert!(
                jail.live.is_empty_within(BUDGET),
                "{user:?} {rung} after {delay:?}"
            );
            let end = jail.finish();
            assert_eq!(end.status.signal(), Some(9));
            assert!(
                matches!(end.last, Some(JailLine::Ended(_))),
                "{:?}",
                end.last
            );
        }
    }
}

#[test]
fn a_kill_empties_the_tree_soon() {
    for user in users() {
        let mut times = Vec::new();
        for _ in 0..30 {
            let script = format!("setsid bash -c 'printf x >&{KEEP}; sleep 1000' & sleep 1000");
            let mut jail = start_script(user, &exactly(Rung::Pidns), &script);
            jail.live.wait_for_marks(1);
            let killed = Instant::now();
            signal(&jail.child, Signal::SIGKILL);
            assert!(jail.live.is_empty_within(BUDGET));
            times.push(killed.elapsed());
            jail.child.wait().unwrap();
        }
        times.sort();
        // Twenty-five times the median of a quiet machine: this one runs other tests meanwhile.
        assert!(times[15] < Duration::from_millis(50), "{user:?}: {times:?}");
    }
}
