//! A long row of spawns and kills leaves everything where it was. `MUSTER_CHURN` asks for more of
//! them than an ordinary run makes.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use system_tests::{
    Delegated, Ground, Rung, Serve, Times, Workspace, grounds, process, rounds, until, within,
};

const UP: Duration = Duration::from_secs(30);
/// Spawns after which a leader has made everything that it makes once.
const WARM_UP: u32 = 10;
/// Numbers of agents that one conversation of a test uses; it has 99.
const AGENTS_PER_CONVERSATION: u32 = 90;
/// What a leader may keep of each agent that has ended: its record, which `status` still shows.
const KIB_PER_AGENT_MAX: u64 = 48;
/// What the allocator may keep beyond that.
const KIB_SPARE: u64 = 3 * 1024;

/// What a leader holds.
#[derive(Debug, Clone, Copy)]
struct Holdings {
    zombies: usize,
    descriptors: usize,
    mounts: usize,
    resident_kib: u64,
}

fn holdings(pid: i32) -> Holdings {
    Holdings {
        zombies: process::zombies(pid).len(),
        descriptors: process::descriptors(pid).len(),
        mounts: process::mounts(pid),
        resident_kib: process::resident_kib(pid),
    }
}

#[test]
fn a_long_row_of_spawns_and_kills_leaves_everything_where_it_was() {
    for ground in grounds(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper]) {
        // The whole row where the machine's own rung is, for the others enough to see a leak.
        let count = if ground == Ground::PLAIN { 60 } else { 15 };
        long_row(ground, rounds("MUSTER_CHURN", count));
    }
}

fn long_row(ground: Ground, mut left: u32) {
    let (mut spawns, mut kills) = (Times::default(), Times::default());
    let machine_mounts = process::mounts(i32::try_from(std::process::id()).unwrap());
    while left > 0 {
        let count = left.min(AGENTS_PER_CONVERSATION);
        left -= count;
        let workspace = Workspace::on(ground);
        workspace.script("default", &[]);
        workspace.configure("[limits]\ngrace_seconds = 0\n");
        let serve = Serve::start_as(&workspace, |command| {
            command.env("MUSTER_WORKER", workspace.executable("fake_worker"));
        });
        let mut client = serve.connect();
        let mut before = holdings(serve.pid());
        for n in 1..=count {
            let partial = workspace.join(format!("sub_agent_results/agent_{n}/partial.txt"));
            let create = json!({"agent_id": n, "summary": "one of a long row", "task": "fake: hang",
                                "run_in_background": true});
            let (up, took) = within(|| {
                client.call("create_sub_agent", create);
                until(UP, || partial.exists().then_some(()))
            });
            assert!(up.is_some(), "{ground:?}: agent {n} does not come up");
            spawns.add(took);
            let (ended, took) =
                within(|| client.call("terminate_sub_agent", json!({"agent_id": n})));
            assert_eq!(ended["status"], "terminated", "{ended}");
            kills.add(took);
            if n == WARM_UP {
                before = holdings(serve.pid());
            }
        }
        let back = until(Duration::from_secs(2), || {
            let now = holdings(serve.pid());
            let may_have_kib =
                before.resident_kib + u64::from(count) * KIB_PER_AGENT_MAX + KIB_SPARE;
            // The last group is removed by the leader at its end, those before it by each start.
            let groups = workspace.delegated().map_or(0, Delegated::groups);
            (now.zombies == 0
                && now.descriptors.abs_diff(before.descriptors) <= 5
                && now.mounts == before.mounts
                && groups <= 1
                && now.resident_kib <= may_have_kib)
                .then_some(())
        });
        let now = holdings(serve.pid());
        assert!(
            back.is_some(),
            "{ground:?}, {left} to go: {before:?} became {now:?}"
        );
    }
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(process::mounts(own), machine_mounts);
    let text = format!(
        "{ground:?}: created to first file: {}\nterminate without grace: {}\n",
        spawns.summary(),
        kills.summary()
    );
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}
