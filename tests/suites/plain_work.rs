//! What people do every day goes on inside the confinement.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use system_tests::ground::ORDINARY;
use system_tests::{Ended, Ground, Rung, Turn, User, Workspace, on_each, run, skipped, tool_texts};

const BUDGET: Duration = Duration::from_secs(240);
const DONE: &str = "did the plain work that the script of this test told it to do";
/// Of the system, for another one may lie where an unused user can't reach it.
const PYTHON: &str = "/usr/bin/python3";
const GIT: &str = "git -c user.name=n -c user.email=a@b";

/// A server on the loopback and a request to it, in one process tree and on any free port.
const SERVER: &str = "\
import http.server, threading, urllib.request
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = 'http://127.0.0.1:%d/area/server.py' % server.server_port
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
assert b'serve_forever' in opener.open(address, timeout=20).read()
";

/// What is done in `area`, a folder that the agent may write: the program that it needs, and the
/// line. Nothing of it needs a network beyond the loopback.
const WORK: &[(&str, &str)] = &[
    (
        "git",
        "git init -q own && cd own && echo x > f && git add f && GIT commit -q -m one && test -z \"$(git status --short)\"",
    ),
    (
        "git",
        "git -C .. log --oneline -1 | grep -q first && git -C .. diff --stat && git -C .. status --short",
    ),
    (
        PYTHON,
        "PYTHON -c \"import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b'x'); f.flush()\"",
    ),
    (
        "node",
        "node -e \"require('fs').writeFileSync(require('os').tmpdir() + '/node', 'x')\"",
    ),
    (
        "mktemp",
        "f=$(mktemp) && echo x > $f && d=$(mktemp -d) && echo x > $d/x",
    ),
    (
        "make",
        "printf 'made:\\n\\techo x > made\\n' > Makefile && make && test -s made",
    ),
    (
        "cc",
        "echo 'int main(void) { return 0; }' > a.c && cc -o a.out a.c && ./a.out",
    ),
    (PYTHON, "cd .. && PYTHON area/server.py"),
    (
        PYTHON,
        "PYTHON -m venv --without-pip env && env/bin/python -c 'import sys; assert sys.prefix.endswith(\"env\")'",
    ),
    (
        "npm",
        "mkdir -p app pkg && echo '{\"name\":\"pkg\",\"version\":\"1.0.0\"}' > pkg/package.json && echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' > app/package.json && cd app && npm install --offline --no-audit --no-fund ../pkg && test -e node_modules/pkg/package.json",
    ),
];

fn sh(folder: &Path, line: &str) -> Ended {
    let mut command = Command::new("sh");
    run(
        command.args(["-c", line]).current_dir(folder),
        Duration::from_secs(120),
    )
}

/// A workspace with a repository of one commit, owned by the ground's user.
fn workspace(ground: Ground) -> Workspace {
    let workspace = Workspace::on(ground);
    workspace.write("area/server.py", SERVER);
    let line = format!(
        "git init -q . && echo x > tracked && git -c safe.directory=* add tracked && \
         {GIT} -c safe.directory=* commit -q -m first"
    );
    let made = sh(&workspace.path(), &line);
    assert_eq!(made.code(), 0, "{made:?}");
    workspace
}

/// Gives everything to the ground's user.
fn hand_over(workspace: &Workspace) {
    if workspace.ground().user == User::Ordinary {
        let made = sh(
            workspace.home().parent().unwrap(),
            &format!("chown -hR {ORDINARY}:{ORDINARY} workspace home"),
        );
        assert_eq!(made.code(), 0, "{made:?}");
    }
}

/// Runs one agent with these flags to its end.
fn leader_run(workspace: &Workspace, more: &[&str]) -> Ended {
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "does plain work", "do it"])
        .args(more);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    ended
}

/// Does all of it with one agent, each line as a command of its own.
///
/// `reach` is what the result calls what holds the network.
fn do_all(ground: Ground, write: &str, (network, reach): (&str, &str)) {
    let workspace = workspace(ground);
    let mut turns: Vec<Turn> = WORK
        .iter()
        .map(|(needs, line)| {
            let line = line.replace("PYTHON", PYTHON).replace("GIT", GIT);
            let line = format!(
                "command -v {needs} >/dev/null || {{ echo is missing; exit 0; }}; cd area && {line}"
            );
            Turn::command_within(&line, 100)
        })
        .collect();
    turns.push(Turn::command(
        "sed -n 's/^ *\\([^ ]*\\):.*/\\1/p' /proc/self/net/dev",
    ));
    turns.push(Turn::finish(DONE));
    workspace.script("default", &turns);
    workspace.configure("");
    hand_over(&workspace);
    let flags = [
        "--write",
        write,
        "--network",
        network,
        "--write-path",
        "area",
    ];
    let ended = leader_run(&workspace, &flags);
    let confinement = &ended.json()["confinement"];
    let held = json!([confinement["filesystem"], confinement["network"]]);
    assert_eq!(held, json!([write, reach]), "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    for ((needs, line), text) in WORK.iter().zip(&texts) {
        if text.ends_with("is missing\n") {
            skipped(&format!("`{needs}` is not on this machine"));
        }
        let whose = format!("{ground:?} {write} {network}");
        assert!(text.starts_with("[exit code 0; "), "{line}: {text} {whose}");
    }
    let interfaces = texts[WORK.len()].lines().skip(1).collect::<Vec<_>>();
    let alone = interfaces == ["lo"];
    assert!(alone || network == "full", "{network}: {interfaces:?}");
}

#[test]
fn plain_work_goes_on_in_both_modes_with_a_network() {
    on_each(&[Rung::Pidns], |ground| {
        for write in ["workspace", "scope"] {
            do_all(ground, write, ("full", "full"));
        }
    });
}

#[test]
fn plain_work_goes_on_in_both_modes_without_a_network() {
    on_each(&[Rung::Pidns], |ground| {
        for write in ["workspace", "scope"] {
            do_all(ground, write, ("none", "loopback"));
        }
        // What is told is of the worker, which has the network; its commands have not.
        do_all(ground, "scope", ("model", "full"));
    });
}

#[test]
fn an_agent_commits_in_a_linked_worktree_and_reaches_no_hook() {
    on_each(&[Rung::Pidns], |ground| {
        let workspace = workspace(ground);
        let made = sh(
            &workspace.path(),
            "git -c safe.directory=* worktree add -q -b mine trees/mine",
        );
        assert_eq!(made.code(), 0, "{made:?}");
        let commit = format!(
            "cd trees/mine && echo y >> tracked && git add tracked && {GIT} commit -q -m second \
             && git log --oneline -1"
        );
        let closed = "for f in .git/hooks/post-commit .git/config .git/HEAD tracked; do \
                      echo x >> $f && echo open $f; done; git config a.b c && echo open; true";
        let turns = [
            Turn::command(&commit),
            Turn::command(closed),
            Turn::finish(DONE),
        ];
        workspace.script("default", &turns);
        workspace.configure("");
        hand_over(&workspace);
        let flags = ["--write", "scope", "--write-path", "trees/mine"];
        leader_run(&workspace, &flags);
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        assert!(
            texts[0].starts_with("[exit code 0; ") && texts[0].ends_with(" second\n"),
            "{ground:?}: {texts:?}"
        );
        assert!(!texts[1].contains("open"), "{ground:?}: {texts:?}");
        let log = sh(
            &workspace.path(),
            "git -c safe.directory=* log --format=%s mine && git -c safe.directory=* fsck --strict",
        );
        assert_eq!((log.code(), log.stdout.as_str()), (0, "second\nfirst\n"));
    });
}

/// Where cargo and its packages lie, for an agent whose home is not the user's.
fn cargo_places() -> Option<[(&'static str, String); 2]> {
    let home = std::env::var("HOME").ok()?;
    let of = |name, folder| std::env::var(name).unwrap_or(format!("{home}/{folder}"));
    Some([
        ("CARGO_HOME", of("CARGO_HOME", ".cargo")),
        ("RUSTUP_HOME", of("RUSTUP_HOME", ".rustup")),
    ])
}

#[test]
fn a_crate_with_a_dependency_is_built_offline() {
    let Some(places) = cargo_places() else {
        return skipped("no home, so no cargo");
    };
    let build = "cargo build --offline --quiet && ./target/debug/it";
    for write in ["workspace", "scope"] {
        let workspace = workspace(Ground::PLAIN);
        workspace.write(
            "area/Cargo.toml",
            "[package]\nname = \"it\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\ncfg-if = \"1\"\n\n[workspace]\n",
        );
        workspace.write(
            "area/src/main.rs",
            "fn main() { cfg_if::cfg_if! { if #[cfg(unix)] { println!(\"built\") } } }\n",
        );
        // What can't be built outside can't be built inside either.
        let mut outside = Command::new("sh");
        outside
            .args(["-c", &format!("cp -r area plain && cd plain && {build}")])
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(workspace.path());
        let plain = run(&mut outside, BUDGET);
        if plain.code() != 0 {
            return skipped("cargo builds nothing offline here: the package is not downloaded");
        }
        let turns = [
            Turn::command_within(&format!("cd area && {build}"), 200),
            Turn::finish(DONE),
        ];
        workspace.script("default", &turns);
        workspace.configure("");
        let mut command = workspace.command("leader");
        command
            .args(["run", "--json", "--summary", "builds a crate", "do it"])
            .args([
                "--write",
                write,
                "--network",
                "none",
                "--write-path",
                "area",
            ])
            .envs(places.iter().map(|(name, value)| (*name, value)));
        let ended = run(&mut command, BUDGET);
        assert_eq!(ended.code(), 0, "{ended:?}");
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        assert!(texts[0].ends_with("\nbuilt\n"), "{write}: {texts:?}");
    }
}

/// What a package manager of this machine needs to reach its registry: variables that are set here,
/// files among them as copies where every agent sees them.
const REACH: &[&str] = &[
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// An installation from a registry: the program that it needs, and the line.
const INSTALLS: &[(&str, &str)] = &[
    (
        "npm",
        "mkdir app && cd app && echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' > package.json && npm install --no-audit --no-fund ms@2.1.3 && node -e \"require('ms')\"",
    ),
    (
        PYTHON,
        "PYTHON -m venv env && env/bin/pip install --quiet six==1.17.0 && env/bin/python -c 'import six'",
    ),
];

#[test]
fn packages_of_a_registry_are_installed_inside() {
    let registry = sh(Path::new("/"), "npm config get registry");
    let mut variables: Vec<(String, String)> = vec![(
        "npm_config_registry".to_owned(),
        registry.stdout.trim().to_owned(),
    )];
    for name in REACH {
        variables.extend(std::env::var(name).map(|value| ((*name).to_owned(), value)));
    }
    for (needs, line) in INSTALLS {
        let line = line.replace("PYTHON", PYTHON);
        // Whether it can be done at all is found out beside every confinement.
        let outside = tempfile::tempdir().unwrap();
        let mut plainly = Command::new("sh");
        plainly.args(["-c", &line]).current_dir(outside.path());
        let plainly = run(plainly.envs(variables.clone()), Duration::from_secs(120));
        if plainly.code() != 0 {
            assert!(std::env::var_os("CI").is_none(), "{needs}: {plainly:?}");
            skipped(&format!("`{needs}` reaches no registry here"));
            continue;
        }
        on_each(&[Rung::Pidns], |ground| {
            for write in ["workspace", "scope"] {
                let workspace = workspace(ground);
                workspace.script(
                    "default",
                    &[
                        Turn::command_within(&format!("cd area && {line}"), 200),
                        Turn::finish(DONE),
                    ],
                );
                workspace.configure("");
                let mut command = workspace.command("leader");
                command.args(["run", "--json", "--summary", "installs a package", "do it"]);
                command.args(["--write", write, "--write-path", "area"]);
                for (n, (name, value)) in variables.iter().enumerate() {
                    match std::fs::read(value) {
                        Ok(bytes) => {
                            let copy = workspace.write(&format!("area/reach-{n}"), bytes);
                            command.env(name, copy);
                        }
                        Err(_) => {
                            command.env(name, value);
                        }
                    }
                }
                hand_over(&workspace);
                let ended = run(&mut command, BUDGET);
                assert_eq!(ended.code(), 0, "{ended:?}");
                let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
                let told = format!("{ground:?} {write} {needs}: {}", texts[0]);
                assert!(texts[0].starts_with("[exit code 0; "), "{told}");
            }
        });
    }
}
