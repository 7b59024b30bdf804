//! Commands of agents under a leader, on every rung that can be asked for here, as whoever runs
//! the tests and as a user who owns nothing: what a command started ends with it, and it can end
//! nobody else.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::leader::Ended;
use system_tests::{Liveness, Serve, Turn, Workspace, executable, run, tool_texts, until, within};

const BUDGET: Duration = Duration::from_secs(90);
/// How soon after the word that something has ended all of it must be gone.
const SOON: Duration = Duration::from_secs(2);
const DONE: &str = "ran the command that the task asked for, as the script says";
const NOTE: &str = "[note: a background process was left and ended; a command's processes do not \
                    outlive it]";
/// A user that owns nothing and runs nothing on any machine.
const ORDINARY: &str = "12345";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Myself,
    Ordinary,
}

/// Where a test takes place: the highest rung that may be tried, and the user.
type Setting = (&'static str, User);

/// All settings with one of these rungs. Only root can become another user.
fn settings(rungs: &[&'static str]) -> Vec<Setting> {
    let users = match nix::unistd::geteuid().is_root() {
        true => vec![User::Myself, User::Ordinary],
        false => vec![User::Myself],
    };
    rungs
        .iter()
        .flat_map(|rung| users.iter().map(|user| (*rung, *user)))
        .collect()
}

/// Rungs on which nothing of a command outlives it.
const HOLDING: &[&str] = &["pidns", "subreaper"];
/// All that can be asked for without a delegated cgroup.
const ALL: &[&str] = &["pidns", "subreaper", "group"];

/// Does the same in every setting, side by side: most of the time goes into waiting.
fn each(rungs: &[&'static str], test: impl Fn(Setting) + Sync) {
    let _bin = Bin::hold();
    std::thread::scope(|scope| {
        for setting in settings(rungs) {
            let test = &test;
            scope.spawn(move || test(setting));
        }
    });
}

/// The executables where every user can reach them. They are there as long as a test holds them.
struct Bin(tempfile::TempDir);

impl Bin {
    fn hold() -> Arc<Bin> {
        // Shared by all tests of this process, the last of which takes the folder away; a static
        // value would never be dropped.
        static SHARED: Mutex<Weak<Bin>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let bin = Arc::new(Bin::make());
            *shared = Arc::downgrade(&bin);
            bin
        })
    }

    fn make() -> Bin {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        // By another process: a file that this one has open for writing can't be executed by a
        // child that another test forks meanwhile.
        let script = "cp -l \"$@\" \"$0\" 2>/dev/null || cp \"$@\" \"$0\"";
        let made = Command::new("sh")
            .args(["-c", script])
            .arg(folder.path())
            .args(["leader", "worker", "jail"].map(executable))
            .status()
            .unwrap();
        assert!(made.success());
        Bin(folder)
    }

    fn leader(&self) -> PathBuf {
        self.0.path().join("leader")
    }
}

struct Scene {
    workspace: Workspace,
    user: User,
    bin: Arc<Bin>,
}

impl Scene {
    /// A workspace that the user may write to, with the models `default` and those of `more`.
    fn new((rung, user): Setting, turns: &[Turn], more: &[(&str, &[Turn])]) -> Self {
        let workspace = Workspace::new();
        workspace.script("default", turns);
        for (name, turns) in more {
            workspace.script(name, turns);
        }
        workspace.configure(&format!("[confinement]\nhighest = \"{rung}\"\n"));
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        open(workspace.path().parent().unwrap(), 0o755);
        open(&workspace.path(), 0o777);
        open(&workspace.home(), 0o777);
        Scene {
            workspace,
            user,
            bin: Bin::hold(),
        }
    }

    /// A pipe that the user's processes may hold.
    fn alive(&self) -> Liveness {
        let alive = Liveness::new(&self.workspace.path(), "alive");
        let mode = Permissions::from_mode(0o666);
        std::fs::set_permissions(self.workspace.join("alive"), mode).unwrap();
        alive
    }

    /// The leader as the user's command.
    fn leader(&self, arguments: &[&str]) -> Command {
        let mut command = match self.user {
            User::Myself => Command::new(self.bin.leader()),
            User::Ordinary => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid", ORDINARY, "--regid", ORDINARY])
                    .args(["--clear-groups", "--"])
                    .arg(self.bin.leader());
                command
            }
        };
        command
            .args(arguments)
            .current_dir(self.workspace.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.workspace.home())
            .env("LANG", "C.UTF-8");
        command
    }

    fn run(&self) -> Ended {
        let words = ["run", "--json", "--summary", "runs commands", "run it"];
        let ended = run(&mut self.leader(&words), BUDGET);
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended
    }

    fn serve(&self) -> Served {
        let serve = Serve::start_as(&self.workspace, |command| {
            *command = self.leader(&["serve", "--json"]);
        });
        Served {
            serve,
            user: self.user,
        }
    }

    fn told(&self) -> Vec<String> {
        tool_texts(&self.workspace.conversation("sub_agent_results/agent_1"))
    }
}

/// A leader that serves its user, and shuts down in the end.
struct Served {
    serve: Serve,
    user: User,
}

impl Served {
    fn call(&self, method: &str, params: Value) -> Value {
        self.as_user(|serve| serve.call(method, params))
    }

    /// A control socket serves its own user alone, and that is whoever connects: one thread of
    /// this process can be somebody else for that.
    fn as_user<T: Send>(&self, work: impl FnOnce(&Serve) -> T + Send) -> T {
        let thread = || {
            if self.user == User::Ordinary {
                let uid: libc::uid_t = ORDINARY.parse().unwrap();
                let unchanged = libc::uid_t::MAX;
                // SAFETY: the call takes numbers alone. By the system call itself, for the
                // library's function would change every thread.
                let done = unsafe { libc::syscall(libc::SYS_setresuid, unchanged, uid, unchanged) };
                assert_eq!(done, 0);
            }
            work(&self.serve)
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What is left to do is done by the leader's own guard.
        self.as_user(|serve| serve.connect().send("shutdown", json!({})));
        self.serve.wait(Duration::from_secs(15));
    }
}

/// Starts an agent that goes on after its commands, with this model.
fn start(serve: &Served, model: &str) {
    let params = json!({"summary": "runs commands", "task": "run it", "run_in_background": true,
                        "model_key": model});
    let answer = serve.call("create_sub_agent", params);
    assert_eq!(answer["status"], "running", "{answer}");
}

fn terminate(serve: &Served) -> (Value, Duration) {
    within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})))
}

/// A shell command whose processes hold the pipe.
const HOLD: &str = "exec 9>alive; echo up >&9; ";

/// The model has nothing more to say for as long as the test takes.
fn silence() -> Turn {
    Turn::text("late").late(600_000)
}

#[test]
fn a_time_out_ends_the_pipeline_below_the_shell_and_its_pipe_disturbs_nothing() {
    // Only the shell wrapper was killed; the pipeline below it lived on and held the output.
    each(ALL, |setting| {
        let pipeline = "mkfifo p; (while :; do echo x; sleep 1; done) > p & cat p";
        let scene = Scene::new(
            setting,
            &[
                Turn::command_within(&format!("{HOLD}{pipeline}"), 3),
                Turn::calls(&[
                    ("search_workspace", json!({"query": "x"})),
                    ("run_command", json!({"command": "ls"})),
                ]),
                Turn::finish(DONE),
            ],
            &[],
        );
        let mut alive = scene.alive();
        let took = scene.run().took;
        assert!(took >= Duration::from_secs(3), "{setting:?} {took:?}");
        assert!(took < Duration::from_secs(15), "{setting:?} {took:?}");
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
        let told = scene.told();
        let head = "[failed: timed out (timeout of 3 s); the command and its processes were ended \
                    with SIGTERM; ";
        assert!(told[0].starts_with(head), "{setting:?} {told:?}");
        assert!(told[0].contains("]\nx\nx\n"), "{setting:?} {told:?}");
        assert!(
            !told[1].contains("\"success\":false"),
            "{setting:?} {told:?}"
        );
        let listing = "[exit code 0; 26 bytes of output]\nalive\np\nsub_agent_results\n";
        assert_eq!(told[2], listing, "{setting:?}");
    });
}

#[test]
fn burners_of_cpu_are_gone_with_their_command_and_however_the_agent_ends() {
    // Dozens of endless background jobs of one agent still ran nine hours later.
    let burn = "for i in 1 2 3 4 5 6 7 8; do yes >/dev/null & done; echo ok";
    each(ALL, |setting| {
        let scene = Scene::new(
            setting,
            &[Turn::command(&format!("{HOLD}{burn}")), Turn::finish(DONE)],
            &[],
        );
        let mut alive = scene.alive();
        scene.run();
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
        let expected = format!("[exit code 0; 3 bytes of output]\n{NOTE}\nok\n");
        assert_eq!(scene.told()[0], expected, "{setting:?}");
    });
    // Terminated while they burn.
    each(ALL, |setting| {
        let waits = format!("{HOLD}{burn}; sleep 400");
        let scene = Scene::new(setting, &[Turn::command(&waits)], &[]);
        let mut alive = scene.alive();
        let serve = scene.serve();
        start(&serve, "default");
        assert!(alive.wait_up(1, BUDGET));
        let (answer, _) = terminate(&serve);
        assert_eq!(answer["status"], "terminated", "{answer}");
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
    });
}

#[test]
fn a_session_of_its_own_saves_no_process_from_the_end_of_its_command() {
    // A kill by process group reached nothing that had made its own session.
    let away = "setsid sh -c 'sleep 400' </dev/null >/dev/null 2>&1 & echo x";
    each(HOLDING, |setting| {
        // The agent lives on, so that it is the command's end that ends the process.
        let scene = Scene::new(
            setting,
            &[Turn::command(&format!("{HOLD}{away}")), silence()],
            &[],
        );
        let mut alive = scene.alive();
        let serve = scene.serve();
        start(&serve, "default");
        assert!(alive.wait_up(1, BUDGET));
        assert!(alive.wait_gone(BUDGET).is_some(), "{setting:?}");
        let answered = until(BUDGET, || {
            let status = serve.call("get_sub_agent_status", json!({"agent_id": 1}));
            assert_eq!(status["agents"][0]["status"], "running", "{status}");
            (status["agents"][0]["commands"] == 1).then_some(())
        });
        assert!(answered.is_some(), "{setting:?}");
        let (answer, _) = terminate(&serve);
        assert_eq!(answer["status"], "terminated", "{answer}");
        let expected = format!("[exit code 0; 2 bytes of output]\n{NOTE}\nx\n");
        assert_eq!(scene.told()[0], expected, "{setting:?}");
    });
    // Terminated while the command runs.
    each(HOLDING, |setting| {
        let stays = format!("{HOLD}{away}; sleep 400");
        let scene = Scene::new(setting, &[Turn::command(&stays)], &[]);
        let mut alive = scene.alive();
        let serve = scene.serve();
        start(&serve, "default");
        assert!(alive.wait_up(1, BUDGET));
        let (answer, _) = terminate(&serve);
        assert_eq!(answer["status"], "terminated", "{answer}");
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
    });
}

#[test]
fn one_that_ignores_the_polite_signal_is_killed_after_the_grace_and_it_is_told() {
    // The stop sent only the polite signal; the task ignored it and was reported as killed.
    let deaf = format!("{HOLD}trap '' TERM INT HUP; echo up; sleep 400; sleep 400");
    each(ALL, |setting| {
        let scene = Scene::new(
            setting,
            &[Turn::command_within(&deaf, 3), Turn::finish(DONE)],
            &[],
        );
        let mut alive = scene.alive();
        scene.run();
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
        let expected = "[failed: timed out (timeout of 3 s); the command and its processes were \
                        ended with SIGKILL, since SIGTERM was not obeyed in time; 3 bytes of \
                        output]\nup\n";
        assert_eq!(scene.told()[0], expected, "{setting:?}");
    });
    each(ALL, |setting| {
        let scene = Scene::new(setting, &[Turn::command(&deaf)], &[]);
        let mut alive = scene.alive();
        let serve = scene.serve();
        start(&serve, "default");
        assert!(alive.wait_up(1, BUDGET));
        let (answer, took) = terminate(&serve);
        assert_eq!(answer["status"], "terminated", "{answer}");
        assert!(took < Duration::from_secs(10), "{setting:?} {took:?}");
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
    });
}

#[test]
fn a_command_that_kills_its_parent_hurts_its_worker_only_where_nothing_holds_it() {
    // An agent killed its own harness, with uncommitted work lost.
    let kill = "echo half > sub_agent_results/agent_1/part.txt; kill -9 $PPID; echo unharmed";
    each(ALL, |setting| {
        let (rung, _) = setting;
        let scene = Scene::new(
            setting,
            &[Turn::command(kill), Turn::finish(DONE)],
            &[("other", &[Turn::command("true"), Turn::finish(DONE)])],
        );
        let serve = scene.serve();
        start(&serve, "default");
        let answer = serve.call("wait_sub_agents", json!({"timeout_seconds": 60}));
        let agent = &answer["agents"][0];
        assert_eq!(agent["deliverables_files"], json!(["part.txt"]), "{answer}");
        assert_eq!(agent["status"], "completed", "{setting:?} {answer}");
        // On the lowest rung it has killed the jail that held it, and itself with that.
        if rung != "group" {
            assert!(scene.told()[0].contains("unharmed\n"), "{setting:?}");
        }
        // Others go on in any case.
        start(&serve, "other");
        let answer = serve.call("wait_sub_agents", json!({"timeout_seconds": 60}));
        let statuses: Vec<&Value> = answer["agents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|agent| agent["agent_id"] == 2)
            .map(|agent| &agent["status"])
            .collect();
        assert_eq!(statuses, ["completed"], "{setting:?} {answer}");
    });
}

#[test]
fn a_command_can_not_signal_the_leader() {
    each(ALL, |setting| {
        let kill = "for signal in TERM STOP KILL; do kill -$signal $(cat leader.pid); done; \
                    echo tried";
        let scene = Scene::new(setting, &[Turn::command(kill), Turn::finish(DONE)], &[]);
        let serve = scene.serve();
        let pid = serve.serve.pid().to_string();
        scene.workspace.write("leader.pid", &pid);
        start(&serve, "default");
        let answer = serve.call("wait_sub_agents", json!({"timeout_seconds": 60}));
        assert_eq!(answer["agents"][0]["status"], "completed", "{answer}");
        let told = scene.told();
        assert!(told[0].ends_with("tried\n"), "{setting:?} {told:?}");
        let refusals = ["No such process", "Operation not permitted"];
        let refused: usize = refusals
            .iter()
            .map(|words| told[0].matches(words).count())
            .sum();
        assert_eq!(refused, 3, "{setting:?} {told:?}");
    });
}

#[test]
fn a_command_in_the_background_is_told_of_and_ends_with_its_agent() {
    // A server that was started with `&` was lost with its shell, and one that was waited for cost
    // an agent its deadline.
    let background = |command: &str| {
        let arguments = json!({"command": command, "run_in_background": true,
            "timeout_seconds": 600});
        ("run_command", arguments)
    };
    each(ALL, |setting| {
        let stays = format!("{HOLD}sleep 400");
        let mut turns = vec![
            Turn::calls(&[background(&stays), background("sleep 0.3; echo two")]),
            Turn::call("check_background", json!({"command_id": "bg_2"})),
            Turn::calls(&[background("echo three")]),
        ];
        // The model goes on with its work, and is told of the end somewhere on the way.
        turns.extend((0..10).map(|n| Turn::command(&format!("sleep 0.2; echo {n}"))));
        turns.push(Turn::finish(DONE));
        let scene = Scene::new(setting, &turns, &[]);
        let mut alive = scene.alive();
        scene.run();
        assert!(alive.wait_gone(SOON).is_some(), "{setting:?}");
        let told = scene.told();
        assert!(
            told[0].contains("bg_1") && told[1].contains("bg_2"),
            "{told:?}"
        );
        let two = "[bg_2 completed: sleep 0.3; echo two]\n[exit code 0; 4 bytes of output]\ntwo";
        assert_eq!(told[2], two, "{setting:?}");
        let conversation = scene.workspace.conversation("sub_agent_results/agent_1");
        let announced: Vec<&str> = conversation["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["role"] == "user")
            .filter_map(|message| message["content"].as_str())
            .filter(|text| text.contains("<background-results>"))
            .collect();
        assert_eq!(announced.len(), 1, "{setting:?} {announced:?}");
        let three = "<command id=\"bg_3\" state=\"completed\" line=\"echo three\">\n\
                     [exit code 0; 6 bytes of output]\nthree\n</command>";
        assert!(announced[0].contains(three), "{announced:?}");
        assert_eq!(conversation["stats"]["commands"], 13, "{setting:?}");
    });
}
