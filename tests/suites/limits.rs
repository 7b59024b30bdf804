//! What an agent uses of the machine is bounded for its whole tree: who uses more is ended with a
//! reason of its own and figures, and nobody else is.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{
    Ground, Rung, Serve, Turn, Workspace, grounds, process, run, tool_texts, until,
};

const ALL: [Rung; 3] = [Rung::Pidns, Rung::Subreaper, Rung::Group];
const BUDGET: Duration = Duration::from_secs(60);
const DONE: &str = "ran the commands that the task asked for, as the script says";
const MIB: u64 = 1 << 20;

/// A workspace whose default model does these turns, and whose model `other` waits for a file and
/// then delivers.
fn workspace(ground: Ground, turns: &[Turn], caps: &str) -> Workspace {
    let workspace = Workspace::on(ground);
    workspace.script("default", turns);
    workspace.script(
        "other",
        &[
            Turn::command("until test -e go; do sleep 0.05; done; echo went on"),
            Turn::finish(DONE),
        ],
    );
    workspace.configure(&format!(
        "[limits]\ngrace_seconds = 2\n[confinement]\n{caps}\n"
    ));
    workspace
}

fn order(summary: &str) -> Value {
    json!({"summary": summary, "task": "do what the script says"})
}

/// Runs an agent that uses too much beside one that does not, and gives the answer for it.
fn ends_alone(ground: Ground, turn: Turn, caps: &str) -> (Workspace, Value) {
    let workspace = workspace(ground, &[turn, Turn::finish(DONE)], caps);
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    let mut other = order("goes on all the while");
    other["model_key"] = json!("other");
    let other = client.send("create_sub_agent", other);
    let answer = client.call("create_sub_agent", order("uses far too much"));
    assert_eq!(answer["status"], "failed", "{ground:?}: {answer}");
    workspace.write("go", "");
    let other = client.answer(other);
    assert_eq!(other["status"], "completed", "{ground:?}: {other}");
    assert!(
        until(BUDGET, || process::descendants(serve.pid())
            .is_empty()
            .then_some(()))
        .is_some(),
        "{ground:?}"
    );
    (workspace, answer)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// A python program that holds so much memory for a while in each of some processes.
fn hogs(processes: u32, how: &str) -> Turn {
    Turn::command(&format!(
        "for n in $(seq {processes}); do python3 -c '\nimport signal, time\nsignal.alarm(40)\n\
         {how}\ntime.sleep(30)' & done; wait"
    ))
}

#[test]
fn an_agent_whose_tree_takes_too_much_memory_is_ended_alone() {
    // Each of its processes is far below the cap; only their sum is above it.
    for ground in grounds(&ALL) {
        let hog = hogs(8, "held = bytearray(60 << 20)");
        let (_workspace, answer) = ends_alone(ground, hog, "memory = \"256MiB\"");
        assert_eq!(
            answer["stop_reason"], "out_of_memory",
            "{ground:?}: {answer}"
        );
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("of at most 256 MiB"), "{message}");
        let peak = number(&answer["usage"]["memory_peak_bytes"]);
        assert!((256 * MIB..600 * MIB).contains(&peak), "{ground:?}: {peak}");
        let confinement = &answer["confinement"];
        assert_eq!(
            confinement["memory"], "watchdog",
            "{ground:?}: {confinement}"
        );
        let limit = json!({"bytes": 256 * MIB, "held_by": "watchdog"});
        assert_eq!(confinement["limits"]["memory"], limit, "{ground:?}");
    }
}

#[test]
fn memory_without_a_process_of_its_own_counts_as_well() {
    // Memory that is shared, and memory that no process has mapped.
    let anonymous = "import mmap\nheld = mmap.mmap(-1, 300 << 20)\n\
                     for at in range(0, 300 << 20, 4096): held[at] = 1";
    let unmapped = "import os\nheld = os.memfd_create(\"held\")\n\
                    for at in range(300): os.write(held, bytes(1 << 20))";
    for ground in grounds(&[Rung::Pidns]) {
        for how in [anonymous, unmapped] {
            let (_workspace, answer) = ends_alone(ground, hogs(1, how), "memory = \"256MiB\"");
            assert_eq!(
                answer["stop_reason"], "out_of_memory",
                "{ground:?}: {answer}"
            );
        }
    }
}

#[test]
fn memory_that_processes_share_counts_once() {
    // Eight processes with the same 60 MiB: 480 MiB to a sum that counts them with each.
    let how = "import mmap, os\nheld = mmap.mmap(-1, 60 << 20)\n\
               for at in range(0, 60 << 20, 4096): held[at] = 1\n\
               children = []\nfor n in range(7):\n    pid = os.fork()\n    if pid == 0:\n        \
               total = sum(held[at] for at in range(0, 60 << 20, 4096))\n        \
               time.sleep(2)\n        os._exit(0)\n    children.append(pid)\n\
               for pid in children: os.waitpid(pid, 0)\nos._exit(0)";
    for ground in grounds(&[Rung::Pidns, Rung::Group]) {
        let workspace = workspace(
            ground,
            &[hogs(1, how), Turn::finish(DONE)],
            "memory = \"256MiB\"",
        );
        let mut command = workspace.command("leader");
        command.args(["run", "--json", "--summary", "shares its memory", "go"]);
        let ended = run(&mut command, BUDGET);
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        let peak = number(&ended.json()["usage"]["memory_peak_bytes"]);
        assert!((60 * MIB..256 * MIB).contains(&peak), "{ground:?}: {peak}");
    }
}

#[test]
fn an_agent_that_uses_up_its_processor_time_is_stopped_alone() {
    // A process may ignore the signal that the kernel sends at the limit.
    for ground in grounds(&ALL) {
        let spin =
            Turn::command("trap '' XCPU; for n in 1 2; do (while :; do :; done) & done; wait");
        let (workspace, answer) = ends_alone(ground, spin, "cpu_seconds = 1");
        assert_eq!(answer["stop_reason"], "cpu_limit", "{ground:?}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("of at most 1.0 s"), "{message}");
        let cpu_ms = number(&answer["usage"]["cpu_ms"]);
        assert!((1_000..8_000).contains(&cpu_ms), "{ground:?}: {cpu_ms}");
        // It was stopped in order: its record says why.
        let conversation = workspace.conversation(answer["deliverables_dir"].as_str().unwrap());
        assert_eq!(
            conversation["result"]["stop_reason"], "cpu_limit",
            "{ground:?}"
        );
    }
}

#[test]
fn time_of_many_short_processes_adds_up() {
    // No single process comes near the limit.
    let short = Turn::command(
        "end=$(($(date +%s) + 30)); while test $(date +%s) -lt $end; do i=0; while test $i -lt \
         20000; do i=$((i+1)); done; sh -c 'i=0; while test $i -lt 20000; do i=$((i+1)); done'; done",
    );
    let (_workspace, answer) = ends_alone(Ground::PLAIN, short, "cpu_seconds = 1");
    assert_eq!(answer["stop_reason"], "cpu_limit", "{answer}");
}

#[test]
fn an_agent_that_fills_the_disk_with_small_files_is_stopped_alone() {
    for ground in grounds(&[Rung::Pidns, Rung::Group]) {
        let many = Turn::command(
            "cd sub_agent_results/agent_2 && n=0; while test $n -lt 3000; do n=$((n+1)); head -c \
             20000 /dev/zero > file_$n; done; sleep 30",
        );
        let (_workspace, answer) = ends_alone(ground, many, "disk = \"16MiB\"");
        assert_eq!(answer["stop_reason"], "disk_limit", "{ground:?}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("of at most 16 MiB"), "{message}");
        assert!(
            number(&answer["usage"]["disk_peak_bytes"]) > 16 * MIB,
            "{answer}"
        );
        assert_eq!(answer["partial_results"], true, "{ground:?}");
    }
}

#[test]
fn one_file_that_grows_too_large_is_told_to_the_model() {
    for ground in grounds(&[Rung::Pidns, Rung::Subreaper]) {
        let turns = [
            Turn::command("head -c 20000000 /dev/zero > large; echo code $?; ls -l large"),
            Turn::command("trap '' XFSZ; dd if=/dev/zero of=large bs=1M count=20"),
            Turn::finish(DONE),
        ];
        let workspace = workspace(ground, &turns, "disk = \"8MiB\"");
        let mut command = workspace.command("leader");
        command.args(["run", "--json", "--summary", "writes a large file", "go"]);
        let ended = run(&mut command, BUDGET);
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        // 128 and SIGXFSZ; nothing is beyond the limit.
        assert!(texts[0].contains("code 153"), "{ground:?}: {texts:?}");
        assert!(texts[0].contains("8388608"), "{ground:?}: {texts:?}");
        assert!(texts[1].contains("File too large"), "{ground:?}: {texts:?}");
    }
}

#[test]
fn a_process_that_takes_every_descriptor_hurts_itself_alone() {
    let hog = "python3 -c '\nimport os\nheld = []\ntry:\n    while True: held.append(os.open(\"/dev/null\", 0))\n\
               except OSError as error: print(len(held) > 3000, error.strerror)'";
    for ground in grounds(&[Rung::Pidns]) {
        let turns = [
            Turn::command(hog),
            Turn::command("echo after"),
            Turn::finish(DONE),
        ];
        let workspace = workspace(ground, &turns, "");
        let serve = Serve::start(&workspace);
        let before = process::descriptors(serve.pid()).len();
        let answer = serve.call("create_sub_agent", order("takes every descriptor"));
        assert_eq!(answer["status"], "completed", "{ground:?}: {answer}");
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        assert!(texts[0].contains("True Too many open files"), "{texts:?}");
        assert!(texts[1].contains("after"), "{texts:?}");
        let grown = process::descriptors(serve.pid())
            .len()
            .saturating_sub(before);
        assert!(grown < 10, "{ground:?}: {grown}");
    }
}

#[test]
fn runtimes_that_reserve_far_more_than_they_use_run_within_a_cap() {
    // A limit on address space that was meant for memory broke every run of such a runtime.
    let threads = "python3 -c '\nimport threading, time\n\
                   all = [threading.Thread(target=time.sleep, args=(0.2,)) for n in range(64)]\n\
                   [one.start() for one in all]\n[one.join() for one in all]\nprint(\"joined\")'";
    let turns = [
        Turn::command("command -v node >/dev/null || exit 0; node -e 'console.log(6 * 7)'"),
        Turn::command(threads),
        Turn::command("ulimit -v"),
        Turn::finish(DONE),
    ];
    let workspace = workspace(Ground::PLAIN, &turns, "memory = \"512MiB\"");
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--summary", "runs large runtimes", "go"]);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(
        texts[0].contains("42") || !texts[0].contains("rror"),
        "{texts:?}"
    );
    assert!(texts[1].contains("joined"), "{texts:?}");
    assert!(texts[2].contains("unlimited"), "{texts:?}");
}
