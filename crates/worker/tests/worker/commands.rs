//! Commands and what holds them: the keeper of the worker's jail, a jail of their own, or their
//! process group; as whoever runs the tests, and as a user who owns nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use confine::policy::JailPolicy;
use confine::report::Rung;
use nix::sys::signal::Signal;
use protocol::conversation::Role;
use serde_json::{Value, json};

use crate::harness::{Alive, Place, calls, finishes, jail, runs, stderr};

/// A user that owns nothing and runs nothing on any machine.
const ORDINARY: &str = "12345";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Keeper,
    Jail,
    /// A jail that can have no namespaces.
    Subreaper,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Myself,
    Ordinary,
}

/// Starts the jail beside it where no namespace can be made any more: not without a capability, of
/// which none is left, and not inside a user namespace, of which none more is allowed.
const WITHOUT_NAMESPACES: &str = r#"#!/bin/sh
exec unshare -U -r /bin/sh -c '
    echo 0 > /proc/sys/user/max_user_namespaces &&
    exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
' sh "${0%-without-namespaces}" "$@"
"#;

/// The executables where every user can reach them: the build directory may be private. They are
/// there as long as a test holds them.
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
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // By another process: a file that this one has open for writing can't be executed by a
        // child that another test forks meanwhile.
        let script = "cp -l \"$1\" \"$2\" \"$0\" 2>/dev/null || cp \"$1\" \"$2\" \"$0\" || exit 1; \
                      printf '%s' \"$3\" > \"$0/jail-without-namespaces\" && \
                      chmod 755 \"$0/jail-without-namespaces\"";
        let made = Command::new("sh")
            .args(["-c", script])
            .arg(folder.path())
            .arg(env!("CARGO_BIN_EXE_worker"))
            .arg(jail())
            .arg(WITHOUT_NAMESPACES)
            .status()
            .unwrap();
        assert!(made.success());
        Bin(folder)
    }
}

fn bin(name: &str) -> PathBuf {
    bin_folder().join(name)
}

fn bin_folder() -> PathBuf {
    Bin::hold().0.path().canonicalize().unwrap()
}

fn as_user(user: User, program: &Path) -> Command {
    match user {
        User::Myself => Command::new(program),
        User::Ordinary => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", ORDINARY, "--regid", ORDINARY])
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        }
    }
}

/// Only root can become another user.
fn users() -> Vec<User> {
    match nix::unistd::geteuid().is_root() {
        true => vec![User::Myself, User::Ordinary],
        false => vec![User::Myself],
    }
}

/// Whether this machine lets a user have namespaces; where it does not, there is no keeper, and a
/// jail holds commands as a subreaper.
fn has_namespaces(user: User) -> bool {
    let policy = JailPolicy {
        require: Rung::Pidns,
        ..JailPolicy::default()
    };
    let mut command = as_user(user, &bin("jail"));
    command.args(policy.to_args("/bin/true".as_ref(), &[]));
    command.output().unwrap().status.success()
}

/// Every way in which a command's whole tree is held, with every user.
fn holding() -> Vec<(Way, User)> {
    let mut all = Vec::new();
    for user in users() {
        if has_namespaces(user) {
            all.push((Way::Keeper, user));
        }
        all.push((Way::Jail, user));
        // With a namespace one can be made that allows no more of them.
        if has_namespaces(user) {
            all.push((Way::Subreaper, user));
        }
    }
    all
}

/// Does the same for each, side by side: most of the time goes into waiting.
fn each(all: Vec<(Way, User)>, test: impl Fn(Way, User) + Sync) {
    std::thread::scope(|scope| {
        for (way, user) in all {
            let test = &test;
            scope.spawn(move || test(way, user));
        }
    });
}

/// Every way there is, with every user.
fn everywhere() -> Vec<(Way, User)> {
    let groups = users().into_iter().map(|user| (Way::Group, user));
    holding().into_iter().chain(groups).collect()
}

/// A place whose agent makes these replies.
fn place(replies: &[Value]) -> Place {
    let place = Place::new(json!(replies));
    place.open_to_all();
    place
}

/// The usual run, with its commands held in this way.
fn worker(place: &Place, way: Way, user: User) -> Command {
    worker_in(place, way, user, JailPolicy::default())
}

/// The same, with a jail of `policy` around a worker that has a keeper.
fn worker_in(place: &Place, way: Way, user: User, policy: JailPolicy) -> Command {
    let root = place.workspace().parent().unwrap().to_path_buf();
    let arguments = [
        "--task-file=task.md",
        "--workspace=ws",
        "--deliverables-dir=out",
        "--model=script:script.yaml",
        "--output-format=json",
    ];
    let mut command = match way {
        Way::Keeper => {
            let policy = JailPolicy {
                require: Rung::Pidns,
                cwd: Some(root.clone()),
                visible: vec![root.clone(), bin_folder()],
                ..policy
            };
            let arguments = arguments.map(Into::into);
            let mut command = as_user(user, &bin("jail"));
            command.args(policy.to_args(bin("worker").as_os_str(), &arguments));
            command
        }
        Way::Jail | Way::Subreaper | Way::Group => {
            let mut command = as_user(user, &bin("worker"));
            command.args(arguments);
            command
        }
    };
    command
        .current_dir(&root)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", &root)
        .stdin(std::process::Stdio::null());
    match way {
        Way::Keeper | Way::Jail => {}
        Way::Subreaper => {
            command.env("MUSTER_JAIL", bin("jail-without-namespaces"));
        }
        Way::Group => {
            command.env("MUSTER_JAIL", "/no/such/jail");
        }
    }
    command
}

/// Runs it to its end, which must be a good one.
fn finished(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

/// What the model was told of each call.
fn told(place: &Place) -> Vec<String> {
    place
        .conversation()
        .messages
        .into_iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| message.content.unwrap_or_default())
        .collect()
}

/// What a command printed, without the line on how it ended; it must have ended well.
fn output_of(text: &str) -> &str {
    let (head, output) = text.split_once('\n').unwrap();
    assert!(head.starts_with("[exit code 0; "), "{text}");
    output
}

fn within(command: &str, timeout_seconds: u64) -> Value {
    calls(&[(
        "run_command",
        json!({"command": command, "timeout_seconds": timeout_seconds}),
    )])
}

/// The start of a command whose processes hold the pipe `alive` of the workspace.
const HOLD: &str = "exec 9>alive; echo >&9; ";

/// The same with the pipe `aliveN`: with one pipe for several commands in a row the moment in
/// which nobody holds it would be too short to be seen.
fn hold(number: usize) -> String {
    format!("exec 9>alive{number}; echo >&9; ")
}

/// The pipes for it.
fn pipes(place: &Place, count: usize) -> Vec<Alive> {
    let path = |number| place.workspace().join(format!("alive{number}"));
    (0..count).map(|number| Alive::new(&path(number))).collect()
}

/// A command that ends once the test has made the file `go` in the workspace.
fn waits_for_go() -> Value {
    runs("while ! [ -e go ]; do sleep 0.02; done")
}

#[test]
fn exit_codes_and_signals_are_exact_and_background_output_is_kept() {
    let _bin = Bin::hold();
    let cases = [
        ("exit 0", "[exit code 0; 0 bytes of output]\n[no output]"),
        (
            "exit 1",
            "[failed: exit code 1; 0 bytes of output]\n[no output]",
        ),
        (
            "exit 125",
            "[failed: exit code 125; 0 bytes of output]\n[no output]",
        ),
        (
            "exit 126",
            "[failed: exit code 126; 0 bytes of output]\n[no output]",
        ),
        (
            "exit 127",
            "[failed: exit code 127; 0 bytes of output]\n[no output]",
        ),
        (
            "exit 255",
            "[failed: exit code 255; 0 bytes of output]\n[no output]",
        ),
        (
            "printf before; kill -9 $$",
            "[failed: killed by SIGKILL (signal 9); 6 bytes of output]\nbefore",
        ),
        (
            "kill -TERM $$",
            "[failed: killed by SIGTERM (signal 15); 0 bytes of output]\n[no output]",
        ),
        (
            "kill -40 $$",
            "[failed: killed by signal 40; 0 bytes of output]\n[no output]",
        ),
        (
            "exit 137",
            "[failed: exit code 137; 0 bytes of output]\n[no output]",
        ),
        // A helper that outlives the shell by a moment brings its output to an end.
        (
            "(sleep 0.1; echo late) & echo first",
            "[exit code 0; 11 bytes of output]\nfirst\nlate\n",
        ),
        (
            "sleep 300 >/dev/null & echo started",
            "[exit code 0; 8 bytes of output]\n[note: a background process was left and ended; a \
             command's processes do not outlive it]\nstarted\n",
        ),
        (
            "echo out; echo err >&2",
            "[exit code 0; 8 bytes of output]\nout\nerr\n",
        ),
    ];
    let mut replies: Vec<Value> = cases.iter().map(|(command, _)| runs(command)).collect();
    replies.push(finishes(true));
    let expected: Vec<&str> = cases.iter().map(|(_, told)| *told).collect();
    each(everywhere(), |way, user| {
        let place = place(&replies);
        finished(&mut worker(&place, way, user));
        let told = told(&place);
        assert_eq!(told[..cases.len()], expected, "{way:?} {user:?}");
    });
}

#[test]
fn a_command_sees_its_own_processes_alone_and_can_hurt_nobody_else() {
    let _bin = Bin::hold();
    // An agent once killed its own harness, with uncommitted work lost.
    let mut all = holding();
    all.retain(|&(way, user)| way != Way::Subreaper && has_namespaces(user));
    for (way, user) in all {
        let place = place(&[
            runs("echo $$ $PPID; set -- /proc/[0-9]*; echo $#"),
            runs("kill -9 $PPID; kill -9 1; kill -TERM 1; echo unharmed"),
            runs("kill -9 -1; kill -STOP $PPID; echo unharmed"),
            runs(
                "for n in 3 4 5 6 7 8; do [ -e /proc/$$/fd/$n ] && echo $n; done; \
                  echo ${MUSTER_KEEPER-none}",
            ),
            // What one command leaves in /tmp is there for the next.
            runs("f=$(mktemp); echo kept > $f; echo $f > name"),
            runs("cat $(cat name); rm $(cat name)"),
            finishes(true),
        ]);
        finished(&mut worker(&place, way, user));
        let told = told(&place);
        assert_eq!(output_of(&told[0]), "2 1\n2\n", "{way:?} {user:?}");
        for text in &told[1..3] {
            assert!(output_of(text).ends_with("unharmed\n"), "{way:?} {text}");
        }
        assert_eq!(output_of(&told[3]), "none\n", "{way:?} {user:?}");
        assert_eq!(output_of(&told[5]), "kept\n", "{way:?} {user:?}");
    }
}

#[test]
fn below_a_subreaper_a_command_can_not_kill_what_holds_it() {
    let _bin = Bin::hold();
    let mut all = holding();
    all.retain(|(way, _)| *way == Way::Subreaper);
    each(all, |way, user| {
        let place = place(&[
            runs("kill -9 $PPID; kill -STOP $PPID; echo unharmed"),
            runs("cat /proc/$PPID/comm"),
            finishes(true),
        ]);
        finished(&mut worker(&place, way, user));
        let told = told(&place);
        assert!(output_of(&told[0]).ends_with("unharmed\n"), "{}", told[0]);
        assert_eq!(output_of(&told[1]), "jail\n", "{user:?}");
    });
}

#[test]
fn a_time_out_ends_the_whole_pipeline_and_what_it_leaves_disturbs_nothing() {
    let _bin = Bin::hold();
    // Only the shell was killed once; the pipeline below it lived on and held the output.
    each(everywhere(), |way, user| {
        let pipeline = "mkfifo p; (while :; do echo x; sleep 0.2; done) > p & cat p";
        let place = place(&[
            within(&format!("{HOLD}{pipeline}"), 1),
            waits_for_go(),
            calls(&[("search_workspace", json!({"query": "x"}))]),
            runs("ls"),
            finishes(true),
        ]);
        let mut alive = Alive::new(&place.path("ws/alive"));
        let begun = Instant::now();
        let mut running = Place::start(&mut worker(&place, way, user));
        alive.wait_for_holder();
        alive.wait_for_nobody();
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(1), "{took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        fs::write(place.path("ws/go"), "").unwrap();
        assert_eq!(running.end().code(), Some(0), "{way:?} {user:?}");
        let told = told(&place);
        let head = "[failed: timed out (timeout of 1 s); the command and its processes were ended \
                    with SIGTERM; ";
        assert!(told[0].starts_with(head), "{way:?} {}", told[0]);
        assert!(told[0].contains("]\nx\nx\n"), "{way:?} {}", told[0]);
        assert!(!told[2].contains("\"success\":false"), "{}", told[2]);
        assert_eq!(output_of(&told[3]), "alive\ngo\nout\np\n");
    });
}

#[test]
fn one_that_ignores_the_polite_signal_is_killed_and_that_is_told() {
    let _bin = Bin::hold();
    each(everywhere(), |way, user| {
        let deaf = format!(
            "{}trap '' TERM INT HUP; echo up; sleep 400; sleep 400",
            hold(0)
        );
        // The shell obeys, and what it runs does not.
        let half = format!(
            "{}(trap '' TERM; while :; do sleep 1; done) & echo up; sleep 400",
            hold(1)
        );
        let stopped = format!("{}echo up; kill -STOP $$", hold(2));
        let place = place(&[
            within(&deaf, 1),
            within(&half, 1),
            within(&stopped, 1),
            waits_for_go(),
            finishes(true),
        ]);
        let pipes = pipes(&place, 3);
        let mut running = Place::start(&mut worker(&place, way, user));
        for mut alive in pipes {
            alive.wait_for_holder();
            alive.wait_for_nobody();
        }
        fs::write(place.path("ws/go"), "").unwrap();
        assert_eq!(running.end().code(), Some(0), "{way:?} {user:?}");
        let head = "[failed: timed out (timeout of 1 s); the command and its processes were ended \
                    with ";
        let killed = format!("{head}SIGKILL, since SIGTERM was not obeyed in time; 3 bytes");
        let asked = format!("{head}SIGTERM; 3 bytes");
        for (text, start) in told(&place).iter().zip([&killed, &killed, &asked]) {
            assert!(text.starts_with(start), "{way:?} {user:?} {text}");
        }
    });
}

#[test]
fn whatever_escaped_from_its_group_ends_with_the_command_and_the_agent_goes_on() {
    let _bin = Bin::hold();
    // A kill by process group reached nothing that had made its own session; one orphan lived for
    // days. Burners of CPU were left behind in the same way.
    let escapees = [
        "setsid sh -c 'sleep 400' </dev/null >/dev/null 2>&1 & echo x",
        "setsid sh -c \"trap '' TERM HUP INT; (setsid sleep 400 &) ; sleep 400\" >/dev/null 2>&1 & \
         echo x",
        "setsid sh -c 'kill -STOP $$' >/dev/null 2>&1 & echo x",
        "for i in 1 2 3 4 5 6 7 8; do yes >/dev/null & done; echo x",
    ];
    each(holding(), |way, user| {
        let mut replies: Vec<Value> = escapees
            .iter()
            .enumerate()
            .map(|(number, command)| runs(&format!("{}{command}", hold(number))))
            .collect();
        replies.extend([waits_for_go(), finishes(true)]);
        let place = place(&replies);
        let pipes = pipes(&place, escapees.len());
        let mut running = Place::start(&mut worker(&place, way, user));
        for mut alive in pipes {
            alive.wait_for_holder();
            alive.wait_for_nobody();
        }
        // All of them are gone while the agent still runs.
        fs::write(place.path("ws/go"), "").unwrap();
        assert_eq!(running.end().code(), Some(0), "{way:?} {user:?}");
        let note = "[exit code 0; 2 bytes of output]\n[note: a background process was left and \
                    ended; a command's processes do not outlive it]\nx\n";
        assert_eq!(told(&place)[..4], [note; 4], "{way:?} {user:?}");
    });
}

#[test]
fn however_a_worker_ends_its_command_ends_at_once_with_all_that_escaped_from_it() {
    let _bin = Bin::hold();
    let stuck = format!(
        "{HOLD}trap '' TERM; setsid sh -c \"trap '' TERM; sleep 400\" >/dev/null 2>&1 & sleep 400"
    );
    let ends = [
        (Some(Signal::SIGTERM), 60, Some(143)),
        (Some(Signal::SIGKILL), 60, None),
        // Its deadline.
        (None, 2, Some(124)),
    ];
    each(holding(), |way, user| {
        for (signal, seconds, code) in ends {
            let place = place(&[runs(&stuck)]);
            let mut alive = Alive::new(&place.path("ws/alive"));
            let mut command = worker(&place, way, user);
            command.arg(format!("--timeout-seconds={seconds}"));
            let mut running = Place::start(&mut command);
            alive.wait_for_holder();
            if let Some(signal) = signal {
                running.signal(signal);
            }
            assert_eq!(running.end().code(), code, "{way:?} {user:?}");
            alive.wait_for_nobody();
        }
    });
}

#[test]
fn no_higher_rung_is_tried_for_commands_than_the_configuration_allows() {
    let _bin = Bin::hold();
    let place = place(&[runs("true"), finishes(true)]);
    for highest in ["group", "subreaper"] {
        let mut command = worker(&place, Way::Jail, User::Myself);
        command.env("MUSTER_CONFINEMENT_HIGHEST", highest);
        let shown = finished(command.arg("--dry-run"));
        let dry: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(dry["commands"]["rung"], highest, "{dry}");
        // A jail ends even a mere group when its worker is killed.
        assert_eq!(dry["commands"]["held_by"], "jail", "{dry}");
    }
}

#[test]
fn the_limit_of_processes_is_told_in_words() {
    let _bin = Bin::hold();
    for user in users().into_iter().filter(|user| has_namespaces(*user)) {
        let policy = JailPolicy {
            process_cap: 40,
            ..JailPolicy::default()
        };
        // Short processes first, so that numbers have wrapped and only the cap's worth is left.
        let script = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done; \
                      n=0; while [ $n -lt 80 ]; do sleep 30 & n=$((n+1)); done; echo never";
        let place = place(&[runs(script), runs("echo still"), finishes(true)]);
        finished(&mut worker_in(&place, Way::Keeper, user, policy));
        let told = told(&place);
        assert!(
            told[0].contains("no further process could be started"),
            "{}",
            told[0]
        );
        assert!(!told[0].contains("never"), "{}", told[0]);
        assert_eq!(output_of(&told[1]), "still\n");
    }
}

#[test]
fn how_commands_are_held_is_told_before_and_after_a_run() {
    let _bin = Bin::hold();
    each(everywhere(), |way, user| {
        let place = place(&[runs("echo x > out/a"), finishes(true)]);
        let shown = finished(worker(&place, way, user).arg("--dry-run"));
        let lines = String::from_utf8(shown.stdout).unwrap();
        let dry: Value = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(|line: &Value| line.get("job").is_some())
            .unwrap();
        let ran = finished(&mut worker(&place, way, user));
        let lines = String::from_utf8(ran.stdout).unwrap();
        let result: Value = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(|line: &Value| line.get("status").is_some())
            .unwrap();
        let commands = &result["confinement"]["commands"];
        assert_eq!(*commands, dry["commands"], "{way:?} {user:?}");
        let by = match way {
            Way::Keeper => "keeper",
            Way::Jail | Way::Subreaper => "jail",
            Way::Group => "process group",
        };
        assert_eq!(commands["held_by"], by, "{user:?}");
        let warning = result["warnings"][0].as_str();
        match way {
            Way::Keeper | Way::Jail => {
                let rung = match has_namespaces(user) {
                    true => "pidns",
                    false => "subreaper",
                };
                assert_eq!(commands["rung"], rung, "{way:?} {user:?}");
                assert_eq!(warning.is_none(), has_namespaces(user), "{warning:?}");
            }
            Way::Subreaper => {
                assert_eq!(commands["rung"], "subreaper", "{user:?}");
                assert!(warning.unwrap().contains("only the rung `subreaper`"));
            }
            Way::Group => {
                assert_eq!(commands["rung"], "group", "{user:?}");
                assert!(warning.unwrap().contains("there is no `/no/such/jail`"));
            }
        }
    });
}
