//! The time of day is set while agents run: deadlines and counts go by the steady clock.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::wall_clock::WallClock;
use system_tests::{Rung, Serve, Turn, Workspace, on_each, skipped, within};

const BUDGET: Duration = Duration::from_secs(60);
const HOUR: i64 = 3_600;

#[test]
fn a_time_of_day_that_jumps_ends_nobody_early_and_lets_nobody_run_on() {
    // When the clock was set, all that waited timed out at once, and times went negative.
    on_each(&[Rung::Pidns], |ground| {
        let workspace = Workspace::on(ground);
        let clock = match WallClock::of(&workspace) {
            Ok(clock) => clock,
            Err(why) => return skipped(&why),
        };
        let mut alive = workspace.liveness("alive");
        let hold = format!("{} sleep 300", alive.hold());
        workspace.script("default", &[Turn::command(&hold)]);
        workspace.script(
            "brief",
            &[
                Turn::command("sleep 4"),
                Turn::finish("slept for a while as the task says"),
            ],
        );
        workspace.configure("[limits]\ngrace_seconds = 1\ntimeout_seconds_min = 1\n");
        let serve = Serve::start_as(&workspace, |command| clock.rule(command));
        let mut client = serve.connect();
        let create = |n: u32, model: &str, timeout: u32| {
            json!({"agent_id": n, "summary": "sees the clock jump", "task": "go",
                   "model_key": model, "timeout_seconds": timeout})
        };
        let (endless, brief) = (
            client.send("create_sub_agent", create(1, "default", 6)),
            client.send("create_sub_agent", create(2, "brief", 60)),
        );
        let (answers, took) = within(|| {
            assert!(alive.wait_up(1, BUDGET));
            clock.jump(2 * HOUR);
            // Far enough that whoever goes by the time of day has seen it.
            std::thread::sleep(Duration::from_millis(1_500));
            clock.jump(-3 * HOUR);
            [client.answer(endless), client.answer(brief)]
        });
        let [endless, brief] = answers;
        assert_eq!(endless["status"], "timed_out", "{ground:?}: {endless}");
        assert_eq!(brief["status"], "completed", "{ground:?}: {brief}");
        // The deadline of 6 s, and what a grace and a busy machine take.
        assert!(took < Duration::from_secs(15), "{ground:?}: {took:?}");
        for (agent, least, most) in [(&endless, 5, 9), (&brief, 3, 7)] {
            let seconds = agent["stats"]["runtime_seconds"].as_u64().unwrap();
            assert!((least..=most).contains(&seconds), "{ground:?}: {agent}");
            let dir = agent["deliverables_dir"].as_str().unwrap();
            let file = workspace.conversation(dir);
            let times = ["created_at", "completed_at"].map(|key| file[key].as_str().unwrap());
            assert!(times[0] <= times[1], "{ground:?}: {file}");
        }
        // The clock was really another one for the leader.
        let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
        let stamps: Vec<String> = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|record| record["ts"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            stamps.windows(2).any(|pair| pair[0] > pair[1]),
            "{ground:?}: {stamps:?}"
        );
        let gone = alive.wait_gone(Duration::from_secs(2));
        assert!(gone.is_some(), "{ground:?}");
    });
}
