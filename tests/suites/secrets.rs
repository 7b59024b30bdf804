//! A key that the leader knows reaches the worker and nobody else: not an environment, a command
//! line, a file, a log, an answer, or the model itself when a command comes upon it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{
    Ground, Rung, Serve, Turn, Workspace, grounds, process, run, tool_texts, until,
};

const ALL: [Rung; 3] = [Rung::Pidns, Rung::Subreaper, Rung::Group];
const BUDGET: Duration = Duration::from_secs(60);
/// The model's key. Commands look for it with [`PATTERN`], which does not find itself.
const KEY: &str = "tok123456789abcdefgh";
const PATTERN: &str = "tok12345678[9]abc";
/// Another secret of the leader's environment.
const TOKEN: &str = "ghp_Abcdef0123456789";
const DONE: &str = "ran the commands that the task asked for, as the script says";

/// A workspace on this ground whose model is the server, with its key in `CORP_MODEL`.
fn workspace(ground: Ground, server: &ModelServer, more: &str) -> Workspace {
    let workspace = Workspace::on(ground);
    let config = format!(
        "default_model = \"served\"\n{more}\n[models.served]\nprovider = \"openai\"\n\
         base_url = \"{}\"\nmodel = \"m\"\napi_key_env = \"CORP_MODEL\"\n",
        server.base_url()
    );
    let folder = workspace.home().join(".config/muster");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("muster.toml"), config).unwrap();
    workspace
}

/// Runs one agent in a leader that knows the secrets, and gives what it printed.
fn run_agent(workspace: &Workspace) -> system_tests::leader::Ended {
    let mut command = workspace.command("leader");
    command
        .env("CORP_MODEL", KEY)
        .env("GH_TOKEN", TOKEN)
        .env("AWS_SECRET_ACCESS_KEY", "s")
        .env("TERM", "xterm")
        .args(["run", "--stream-json", "--summary", "looks for keys", "go"]);
    run(&mut command, BUDGET)
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().filter_map(Result::ok) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// The files of the run in which a text stands, but for those that the test put there.
fn holders(workspace: &Workspace, text: &str) -> Vec<PathBuf> {
    let mut found = files(&workspace.path());
    found.retain(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        !path.ends_with("notes.txt") && !path.ends_with("halves.sh") && contains(&bytes, text)
    });
    found
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[test]
fn no_command_and_no_file_of_a_run_has_the_key() {
    // Every provider key was inherited by every command, and one was dumped into a public place.
    for ground in grounds(&ALL) {
        let count = |what: &str| {
            Turn::command(&format!(
                "cat {what} 2>/dev/null | tr '\\0' '\\n' | grep -c '{PATTERN}'"
            ))
        };
        let server = ModelServer::start(Behaviour::Turns(vec![
            Turn::command("env"),
            count("/proc/[0-9]*/environ"),
            count("/proc/[0-9]*/cmdline"),
            Turn::command(&format!("grep -rc '{PATTERN}' . | grep -v ':0$'; true")),
            Turn::command("ulimit -c unlimited; ulimit -Hc; echo \"PATH=$PATH HOME=$HOME\""),
            Turn::finish(DONE),
        ]));
        let workspace = workspace(ground, &server, "");
        let ended = run_agent(&workspace);
        assert_eq!(ended.code(), 0, "{ground:?}: {ended:?}");
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        let [env, environ, cmdline, grep, cores, ..] = texts.as_slice() else {
            panic!("{ground:?}: {texts:?}")
        };
        for hidden in ["CORP_MODEL", "GH_TOKEN", "AWS_SECRET", "tok123", "[masked]"] {
            assert!(!env.contains(hidden), "{ground:?} {hidden}: {env}");
        }
        for kept in ["PATH=", "HOME=", "LANG=C.UTF-8", "TERM="] {
            assert!(env.contains(kept), "{ground:?} {kept}: {env}");
        }
        for text in [environ, cmdline] {
            let count = text
                .lines()
                .find(|line| line.bytes().all(|c| c.is_ascii_digit()));
            assert_eq!(count, Some("0"), "{ground:?}: {text}");
        }
        assert!(
            !grep.contains(".subagent") && !grep.contains(".muster"),
            "{grep}"
        );
        assert!(cores.lines().any(|line| line == "0"), "{ground:?}: {cores}");
        for secret in [KEY, TOKEN] {
            assert_eq!(
                holders(&workspace, secret),
                Vec::<PathBuf>::new(),
                "{ground:?}"
            );
            for printed in [&ended.stdout, &ended.stderr] {
                assert!(!printed.contains(secret), "{ground:?}: {printed}");
            }
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 6, "{ground:?}");
    }
}

#[test]
fn a_key_that_a_command_comes_upon_is_masked_everywhere() {
    // A command printed the key; it stayed in the transcript for ever.
    let halves = format!(
        "printf 'split:%s' {}; sleep 0.3; echo {}",
        &KEY[..9],
        &KEY[9..]
    );
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::command("echo \"pre-$(head -1 notes.txt)-post\"; tail -1 notes.txt"),
        Turn::call("read_file", json!({"path": "notes.txt"})),
        Turn::command("sh ./halves.sh"),
        Turn::command(
            "head -1 notes.txt | tr -d '\\n' | base64; head -1 notes.txt | od -An -tx1 | tr -d ' \\n'",
        ),
        Turn::call("search_workspace", json!({"query": "tok1234567"})),
        // Cut out of the middle of a long output, and into a file for long results.
        Turn::command("yes \"$(head -1 notes.txt)\" | head -c 3000000"),
        Turn::command("head -1 notes.txt >&2; cat no_such_file_$(head -1 notes.txt)"),
        Turn::call(
            "write_file",
            json!({"path": "sub_agent_results/agent_1/a.txt", "content": "a"}),
        ),
        Turn::call(
            "finish_task",
            json!({"success": true, "summary":
            format!("The key of this machine is {KEY} and it was found where it lay, in the notes.")}),
        ),
    ]));
    let workspace = workspace(Ground::PLAIN, &server, "");
    workspace.write("notes.txt", format!("{KEY}\n{TOKEN}\n"));
    workspace.write("halves.sh", &halves);
    let ended = run_agent(&workspace);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(
        texts[0].contains("pre-[masked]-post\n[masked]"),
        "{texts:?}"
    );
    assert!(texts[1].contains("[masked]"), "{texts:?}");
    assert!(texts[2].contains("split:[masked]"), "{texts:?}");
    assert_eq!(texts[3].matches("[masked]").count(), 2, "{}", texts[3]);
    assert!(texts[4].contains("[masked]"), "{texts:?}");
    assert!(texts[6].contains("no_such_file_[masked]"), "{texts:?}");
    let conversation = workspace.conversation("sub_agent_results/agent_1");
    let summary = conversation["result"]["summary"].as_str().unwrap();
    assert!(summary.contains("is [masked] and"), "{summary}");
    let told: Vec<u8> = server
        .requests()
        .iter()
        .flat_map(|request| request.to_string().into_bytes())
        .collect();
    // As it is, and in base64 and hexadecimal.
    for form in [KEY, TOKEN, "dG9rMTIzNDU2Nzg5", "746f6b313233343536373839"] {
        assert!(!contains(&told, form), "the model was told {form}");
        assert_eq!(holders(&workspace, form), Vec::<PathBuf>::new(), "{form}");
        assert!(!ended.stdout.contains(form), "{form}: {}", ended.stdout);
        assert!(!ended.stderr.contains(form), "{form}: {}", ended.stderr);
    }
    // Half a key tells most of it: nothing of a good length is left either.
    for start in (0..KEY.len() - 12).map(|at| &KEY[at..at + 12]) {
        assert_eq!(holders(&workspace, start), Vec::<PathBuf>::new(), "{start}");
    }
}

#[test]
fn a_worker_that_masks_nothing_is_masked_by_its_leader() {
    let workspace = Workspace::scripted(&[]);
    let serve = Serve::start_as(&workspace, |command| {
        command
            .env("MUSTER_WORKER", workspace.executable("fake_worker"))
            .env("DEPLOY_TOKEN", TOKEN);
    });
    let task = format!("fake: shell\necho \"the token {TOKEN}\" >&2; exit 0");
    let answer = serve.call(
        "create_sub_agent",
        json!({"summary": "tells what it knows", "task": task}),
    );
    assert!(!answer.to_string().contains(TOKEN), "{answer}");
    let log = workspace.read("sub_agent_results/agent_1/.subagent/worker.log");
    assert!(log.contains("the token [masked]"), "{log}");
    let events = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    assert!(!events.contains(TOKEN), "{events}");
    assert!(events.contains("[masked]"), "{events}");
}

#[test]
fn only_what_the_user_allows_by_name_reaches_commands() {
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::command(
            "test \"${#GH_TOKEN}\" = 20 && echo token:there; test -z \"$CORP_MODEL\" && echo \
             key:away; test -z \"$AWS_SECRET_ACCESS_KEY\" && echo aws:away; echo \"$GH_TOKEN\"",
        ),
        Turn::finish(DONE),
    ]));
    let more = "[confinement]\nenv_allow = [\"GH_TOKEN\", \"CORP_MODEL\"]\n";
    let workspace = workspace(Ground::PLAIN, &server, more);
    let ended = run_agent(&workspace);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    // A model's key is for nobody, whatever is allowed; and what is allowed is masked all the same.
    for line in ["token:there", "key:away", "aws:away", "[masked]"] {
        assert!(texts[0].lines().any(|found| found == line), "{}", texts[0]);
    }
}

/// Tries everything that shows one process another's secrets, on the numbers that its file names,
/// and prints what succeeded.
const LOOK: &str = r#"
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
SYS_pidfd_open, SYS_pidfd_getfd = 434, 438
seen = []
for name, pid in json.load(open("pids.json")).items():
    for what in ["environ", "mem", "maps", "fd/0", "auxv", "stack"]:
        try:
            with open(f"/proc/{pid}/{what}", "rb") as file:
                file.read(1)
            seen.append(f"{name}:{what}")
        except OSError as error:
            if what == "mem" and error.errno == 5:
                seen.append(f"{name}:mem")
    try:
        os.listdir(f"/proc/{pid}/fd")
        os.readlink(f"/proc/{pid}/fd/0")
        seen.append(f"{name}:fd")
    except OSError:
        pass
    try:
        os.readlink(f"/proc/{pid}/cwd")
        seen.append(f"{name}:cwd")
    except OSError:
        pass
    if libc.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0:
        seen.append(f"{name}:ptrace")
        libc.ptrace(PTRACE_DETACH, pid, 0, 0)
    pidfd = libc.syscall(SYS_pidfd_open, pid, 0)
    if pidfd >= 0 and libc.syscall(SYS_pidfd_getfd, pidfd, 0, 0) >= 0:
        seen.append(f"{name}:getfd")
    buffer = ctypes.create_string_buffer(8)
    class Vec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
    vec = Vec(ctypes.addressof(buffer), 8)
    far = Vec(0x400000, 8)
    if libc.process_vm_readv(pid, ctypes.byref(vec), 1, ctypes.byref(far), 1, 0) >= 0:
        seen.append(f"{name}:vm_readv")
print("seen:" + ",".join(seen) + ":end")
"#;

#[test]
fn no_command_looks_into_its_leader_or_its_worker() {
    for ground in grounds(&ALL) {
        let workspace = Workspace::on(ground);
        workspace.write("look.py", LOOK);
        workspace.script(
            "default",
            &[
                Turn::command("until test -e go; do sleep 0.05; done; python3 look.py"),
                Turn::finish(DONE),
            ],
        );
        workspace.configure("");
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let call = client.send(
            "create_sub_agent",
            json!({"summary": "looks around", "task": "look around"}),
        );
        let worker = until(BUDGET, || worker_below(serve.pid())).expect("a worker");
        // Where commands have numbers of their own, their worker has none of these.
        let pids = json!({"leader": serve.pid(), "worker": worker, "first": 1});
        workspace.write("pids.json", pids.to_string());
        workspace.write("go", "");
        let answer = client.answer(call);
        assert_eq!(answer["status"], "completed", "{ground:?}: {answer}");
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        let seen = texts[0]
            .lines()
            .find(|line| line.starts_with("seen:"))
            .unwrap();
        let own: Vec<&str> = seen["seen:".len()..seen.len() - ":end".len()]
            .split(',')
            .filter(|what| what.starts_with("leader") || what.starts_with("worker"))
            .collect();
        assert_eq!(own, [""; 0], "{ground:?}: {seen}");
        if ground.rung == Rung::Pidns {
            assert_eq!(seen, "seen::end", "{ground:?}");
        }
    }
}

/// The worker of the only agent: of all below the leader, the one that was executed as `worker`.
fn worker_below(leader: i32) -> Option<i32> {
    process::descendants(leader).into_iter().find(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .next()
                .is_some_and(|program| program.ends_with(b"/worker"))
        })
    })
}

#[test]
fn an_error_of_the_model_server_does_not_tell_the_key() {
    // Some servers quote the key that they refuse.
    let body = json!({"error": {"message": format!("Incorrect API key provided: {KEY}")}});
    let server = ModelServer::start(Behaviour::Fixed(401, "application/json", body.to_string()));
    let workspace = workspace(Ground::PLAIN, &server, "");
    let ended = run_agent(&workspace);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(holders(&workspace, KEY), Vec::<PathBuf>::new());
    for printed in [&ended.stdout, &ended.stderr] {
        assert!(!printed.contains(KEY), "{printed}");
    }
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["stop_reason"], "model_error", "{last}");
}
