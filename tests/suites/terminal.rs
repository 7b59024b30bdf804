//! A leader on a terminal: its keys, its closing, its colours.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::terminal::{CTRL_C, CTRL_Z, Terminal};
use system_tests::{Ground, Liveness, Rung, Turn, Workspace, on_each, process, serve, until};

const BUDGET: Duration = Duration::from_secs(60);

/// A serving leader on a terminal, with two agents whose commands tell of a Ctrl-C that reaches
/// them and obey nothing else.
fn serving(ground: Ground, grace_seconds: u32) -> (Workspace, Terminal, Liveness) {
    let workspace = Workspace::on(ground);
    let mut alive = workspace.liveness("alive");
    let deaf = format!(
        "trap 'echo reached >interrupted' INT; trap '' TERM HUP; {} while :; do sleep 0.1; done",
        alive.hold()
    );
    workspace.script("default", &[Turn::command(&deaf)]);
    workspace.configure(&format!("[limits]\ngrace_seconds = {grace_seconds}\n"));
    let mut command = workspace.command("leader");
    command.args(["serve", "--json"]).env("TERM", "xterm");
    let terminal = Terminal::start(&command);
    let told = until(BUDGET, || {
        let shown = terminal.shown();
        let line = shown.lines().find(|line| line.starts_with('{'))?;
        serde_json::from_str::<Value>(line).ok()
    });
    let told = told.unwrap_or_else(|| panic!("no socket: {}", terminal.shown()));
    let socket = told["socket"].as_str().unwrap();
    let mut client = serve::Client::connect(ground.user, socket.as_ref());
    for n in 1..=2 {
        let create = json!({"agent_id": n, "summary": "is ended from a terminal", "task": "go",
                            "run_in_background": true});
        let started = client.call("create_sub_agent", create);
        assert_eq!(started["status"], "running", "{ground:?}: {started}");
    }
    assert!(alive.wait_up(2, BUDGET), "{ground:?}");
    (workspace, terminal, alive)
}

fn assert_ended(workspace: &Workspace, mut alive: Liveness, told: &str) {
    assert!(
        alive.wait_gone(Duration::from_secs(2)).is_some(),
        "{told}: a process is left"
    );
    for n in 1..=2 {
        let file = workspace.conversation(&format!("sub_agent_results/agent_{n}"));
        assert_eq!(file["status"], "terminated", "{told}: {file}");
    }
    assert!(
        !workspace.join("interrupted").exists(),
        "{told}: the key reached a command"
    );
}

#[test]
fn ctrl_c_reaches_the_leader_alone_and_a_second_one_kills_at_once() {
    // Interrupting the parent left the children, which had got the key too or had not.
    on_each(&[Rung::Pidns, Rung::Subreaper, Rung::Group], |ground| {
        let told = format!("{ground:?}");
        let (workspace, mut terminal, alive) = serving(ground, 60);
        terminal.press(CTRL_C);
        assert!(terminal.wait_for("Ctrl-C", BUDGET), "{}", terminal.shown());
        terminal.press(CTRL_C);
        let (status, shown) = terminal.end(Duration::from_secs(30));
        assert_eq!(status.unwrap().code(), Some(130), "{told}: {shown}");
        assert_ended(&workspace, alive, &told);
    });
}

#[test]
fn a_terminal_that_is_closed_ends_its_leader_and_all_that_it_started() {
    on_each(&[Rung::Pidns, Rung::Subreaper, Rung::Group], |ground| {
        let told = format!("{ground:?}");
        let (workspace, mut terminal, alive) = serving(ground, 1);
        terminal.close();
        let (status, shown) = terminal.end(Duration::from_secs(30));
        assert_eq!(status.unwrap().code(), Some(129), "{told}: {shown}");
        assert_ended(&workspace, alive, &told);
    });
}

/// The shell's prompt once stood behind the live line, and was written over by the next one.
#[test]
fn the_live_line_goes_before_ctrl_z_and_comes_back_after_fg() {
    let workspace = Workspace::scripted(&[Turn::command("sleep 60")]);
    workspace.configure("[limits]\ngrace_seconds = 1\n");
    let mut command = workspace.command("leader");
    command.args(["run", "--summary", "is stopped and goes on", "go"]);
    let mut terminal = Terminal::start(command.env("TERM", "xterm"));
    let line = "Sub-agent 1 running";
    assert!(terminal.wait_for(line, BUDGET), "{}", terminal.shown());
    for round in 1..=2 {
        terminal.press(CTRL_Z);
        let stopped = until(BUDGET, || {
            (process::state(terminal.pid()) == Some('T')).then_some(())
        });
        assert!(stopped.is_some(), "{round}: {}", terminal.shown());
        let shown = until(BUDGET, || {
            let shown = terminal.shown();
            shown.ends_with("\r\x1b[K").then_some(shown)
        });
        let before = shown.unwrap_or_else(|| panic!("{round}: {:?}", terminal.shown()));
        kill(Pid::from_raw(terminal.pid()), Signal::SIGCONT).unwrap();
        let again = until(BUDGET, || {
            let shown = terminal.shown();
            shown[before.len()..].contains(line).then_some(())
        });
        assert!(again.is_some(), "{round}: {:?}", terminal.shown());
    }
    terminal.press(CTRL_C);
    let (status, shown) = terminal.end(BUDGET);
    assert_eq!(status.unwrap().code(), Some(130), "{shown}");
}

#[test]
fn colours_are_for_a_terminal_whose_user_wants_them() {
    let shown = |variables: &[(&str, &str)]| {
        let workspace =
            Workspace::scripted(&[Turn::finish("there was nothing to do in this task")]);
        let mut command = workspace.command("leader");
        command.args(["run", "--summary", "is shown on a terminal", "go"]);
        command.envs(variables.iter().copied());
        let (status, shown) = Terminal::start(&command).end(BUDGET);
        assert_eq!(status.unwrap().code(), Some(0), "{shown}");
        shown
    };
    // The sequences that set a colour end in an `m`.
    let coloured = |text: &str| {
        text.split("\x1b[").skip(1).any(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
            end.is_some_and(|end| rest[end..].starts_with('m'))
        })
    };
    let xterm = ("TERM", "xterm");
    let text = shown(&[xterm]);
    assert!(coloured(&text), "{text:?}");
    let text = shown(&[xterm, ("NO_COLOR", "")]);
    assert!(coloured(&text), "an empty one counts as none: {text:?}");
    for variables in [
        [xterm, ("NO_COLOR", "1")],
        [("TERM", "dumb"), ("LANG", "C.UTF-8")],
    ] {
        let text = shown(&variables);
        assert!(!coloured(&text), "{variables:?}: {text:?}");
        assert!(text.contains("there was nothing to do"), "{text:?}");
    }
}
