//! Five agents at once, each with a scope of its own, that try to write everywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::ground::ORDINARY;
use system_tests::{Ground, Rung, Serve, Turn, User, Workspace, on_each, run, tool_texts, until};

const AGENTS: usize = 5;
const BUDGET: Duration = Duration::from_secs(60);
const DONE: &str = "tried everything that the script of this test told it to try";
/// Of the system, for another one may lie where an unused user can't reach it.
const PYTHON: &str = "/usr/bin/python3";

/// What must succeed in both modes, or the attempts beside it would prove nothing.
const OWN: &[&str] = &[
    "echo x > OWN/a && echo x >> OWN/a && mv OWN/a OWN/b && rm OWN/b",
    "ln -sfn W/area_M OWN/link && ln -sfn W/.git OWN/git && ln -sfn W OWN/root",
    "echo x > OWN/fd && exec 5<OWN/fd && echo y > /proc/self/fd/5 && grep -q y OWN/fd",
    "exec 5<OWN && echo x > /proc/self/fd/5/below",
    "echo x > OWN/old && PYTHON -c \"import os; open('OWN/new','w'); os.replace('OWN/old','OWN/new')\"",
    "git -C OWN init -q repo && git -C OWN/repo config a.b c",
    "git -C OWN/repo -c user.name=n -c user.email=a@b commit -q --allow-empty -m x",
    "echo 1 > OWN/one && echo 2 > OWN/two && PYTHON -c \"import ctypes, sys; sys.exit(ctypes.CDLL(None).renameat2(-100, b'OWN/one', -100, b'OWN/two', 2))\" && grep -q 2 OWN/one",
    "echo x > OWN/h && ln OWN/h OWN/hard && chmod 600 OWN/hard && touch OWN/hard",
];

/// What an agent's result says about the next list.
const GAP_TOLD: &str = "commands may write other agents' directories in the workspace, but for those \
     in sub_agent_results and .worktrees (`confinement.write = \"scope\"` keeps them apart)";

/// What is open in mode `workspace`, as docs/confinement.md lists it, and closed in `scope`; with
/// the path that it changes.
const GAPS: &[(&str, &str)] = &[
    ("echo x > W/area_M/new_N", "area_M/new_N"),
    ("echo x >> W/area_M/kept_N", "area_M/kept_N"),
    ("echo x > OWN/link/through_N", "area_M/through_N"),
    (
        "exec 5<W/area_M/fd_N && echo x > /proc/self/fd/5",
        "area_M/fd_N",
    ),
    (
        "exec 5<W/area_M && echo x > /proc/self/fd/5/at_N",
        "area_M/at_N",
    ),
    (
        "ln W/area_M/hard_N OWN/linked && echo x > OWN/linked",
        "area_M/hard_N",
    ),
    ("mv W/area_M/moved_N OWN/moved", "area_M/moved_N"),
    (
        "echo x > OWN/t && mv -f OWN/t W/area_M/over_N",
        "area_M/over_N",
    ),
    ("rm -f W/area_M/gone_N", "area_M/gone_N"),
    ("chmod 640 W/area_M/mode_N", "area_M/mode_N"),
    (
        "PYTHON -c \"open('W/area_M/python_N','w')\"",
        "area_M/python_N",
    ),
    ("echo x > W/root_N", "root_N"),
    ("mkdir W/folder_N", "folder_N"),
    ("echo x > OWN/root/linked_root_N", "linked_root_N"),
];

/// What must fail in both modes.
const NEVER: &[&str] = &[
    // Results and records of another, and the folder around them.
    "echo x > W/sub_agent_results/agent_M/new",
    "echo x >> W/sub_agent_results/agent_M/.subagent/journal.jsonl",
    "echo x >> W/sub_agent_results/agent_N/.subagent/journal.jsonl",
    "mv W/sub_agent_results/agent_M OWN/stolen",
    "mv W/sub_agent_results W/results",
    "rm -r W/sub_agent_results/agent_M",
    // The repository.
    "echo x > W/.git/hooks/pre-commit",
    "echo x >> W/.git/config",
    "echo x >> OWN/git/config",
    "echo x > OWN/git/hooks/post-commit",
    "exec 5<W/.git/config && echo x > /proc/self/fd/5",
    "exec 5<W/.git && echo x > /proc/self/fd/5/hooks/post-commit",
    "exec 5<W/ && echo x >> /proc/self/fd/5/.git/config",
    "git -C W config a.b c",
    "git --git-dir W/.git config core.hooksPath OWN",
    "git -C W -c user.name=n -c user.email=a@b commit -q --allow-empty -m x",
    "git -C W update-ref refs/heads/other HEAD",
    "mv W/.git W/gone_N",
    "mv W/.git OWN/gone",
    "mv OWN/git/hooks OWN/hooks",
    "cp -r W/.git OWN/copy && mv W/.git W/gone_N && mv OWN/copy W/.git",
    "cp -r W/.git OWN/swap && PYTHON -c \"import ctypes, sys; sys.exit(ctypes.CDLL(None).renameat2(-100, b'OWN/swap', -100, b'W/.git', 2))\"",
    "PYTHON -c \"import os; os.rename('W/.git', 'W/gone_N')\"",
    "PYTHON -c \"open('W/.git/hooks/pre-commit','w').write('x')\"",
    "ln W/.git/config OWN/config && echo x >> OWN/config",
    "chmod 777 W/.git/hooks",
    // What is read before the next run.
    "echo x >> W/muster.toml",
    "echo x > OWN/root/muster.toml",
    "echo x > OWN/t1 && mv -f OWN/t1 W/muster.toml",
    "mv W/muster.toml W/other_N.toml",
    "rm -f W/muster.toml",
    "sed -i s/a/b/ W/muster.toml",
    "exec 5<W/muster.toml && echo x > /proc/self/fd/5",
    "PYTHON -c \"import os; open('OWN/t2','w'); os.replace('OWN/t2','W/muster.toml')\"",
    "echo x > W/.mcp.json",
    "echo x > OWN/t3 && mv -f OWN/t3 W/.mcp.json",
    "rm -f W/.mcp.json",
    "ln W/.mcp.json OWN/mcp && echo x > OWN/mcp",
    "ln -sfn OWN/t4 W/.mcp.json",
    "echo x > W/.claude/settings.json",
    "echo x > W/.team/config.json",
    "rm -f W/.tasks/task_1.json",
    "echo x > W/.worktrees/other/a",
    "echo x > W/.muster/agents.md",
    "mv W/.muster W/muster_N",
    // Outside.
    "echo x > OUT/new",
    "echo x >> OUT/outside",
    "ln -sfn OUT OWN/outside && echo x > OWN/outside/new",
    "chmod 600 OUT/outside",
    "chown ID OUT/outside",
    "touch OUT/outside",
    "rm -f OUT/outside",
    "ln OUT/outside OWN/out && echo x > OWN/out",
    "mv W W2",
];

/// What the file tools must refuse in both modes, and the words that tell the path.
const BY_TOOL: &[(&str, &str)] = &[
    ("area_M/tool_N", "area_M/tool_N"),
    ("area_N/own/link/tool_N", "area_M/tool_N"),
    ("tool_N", "tool_N"),
    (
        "sub_agent_results/agent_M/tool",
        "sub_agent_results/agent_M/tool",
    ),
    (
        "sub_agent_results/agent_N/.subagent/x",
        "sub_agent_results/agent_N/.subagent/x",
    ),
    (".git/hooks/pre-commit", ".git/hooks/pre-commit"),
    ("area_N/own/git/hooks/pre-commit", ".git/hooks/pre-commit"),
    ("area_N/own/root/.git/config", ".git/config"),
    ("muster.toml", "muster.toml"),
    (".mcp.json", ".mcp.json"),
    ("../home/tool", "../home/tool"),
];

/// Files that `edit_file` must not change.
const BY_EDIT: &[&str] = &["area_M/kept_N", ".git/config", "muster.toml", ".mcp.json"];

/// A command whose refusals the model reads, and the paths that they tell.
const ALOUD: (&str, &[&str]) = (
    "echo x >> W/.git/config; sh -c 'echo x > W/muster.toml'; touch OUT/outside; git -C W config a.b c",
    &[".git/config", "muster.toml", "/outside", "config file"],
);

/// A workspace with a repository and five areas, owned by the ground's user.
struct Place {
    workspace: Workspace,
    /// Outside the workspace, and outside `/tmp`, which agents have one of their own of.
    outside: tempfile::TempDir,
}

impl Place {
    fn on(ground: Ground, mode: &str) -> Place {
        let workspace = Workspace::on(ground);
        let git = "git init -q . && git -c safe.directory=* -c user.name=n -c user.email=a@b commit -q \
                   --allow-empty -m one";
        let made = run(
            Command::new("sh")
                .args(["-c", git])
                .current_dir(workspace.path()),
            Duration::from_secs(60),
        );
        assert_eq!(made.code(), 0, "{made:?}");
        for (name, text) in [
            ("muster.toml", "# a configuration\n"),
            (".mcp.json", "{\"a\": 1}\n"),
            (".claude/agents.md", "a\n"),
            (".team/config.json", "a\n"),
            (".tasks/task_1.json", "a\n"),
            (".worktrees/other/a", "a\n"),
            (".git/hooks/sample", "a\n"),
        ] {
            workspace.write(name, text);
        }
        for victim in 1..=AGENTS {
            workspace.write(&format!("area_{victim}/own/.keep"), "");
            for attacker in 1..=AGENTS {
                for name in ["kept", "fd", "hard", "moved", "over", "gone", "mode"] {
                    workspace.write(&format!("area_{victim}/{name}_{attacker}"), "a\n");
                }
            }
        }
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::write(outside.path().join("outside"), "a\n").unwrap();
        let place = Place { workspace, outside };
        for number in 1..=AGENTS {
            let turns = place.turns(number);
            place.workspace.script(&format!("m{number}"), &turns);
        }
        place
            .workspace
            .configure(&format!("[confinement]\nwrite = \"{mode}\"\n"));
        if ground.user == User::Ordinary {
            hand_over(&place.workspace.path());
            hand_over(&place.workspace.home());
            hand_over(place.outside.path());
        }
        place
    }

    /// A line with its places filled in, as agent `number` is told it.
    fn fill(&self, line: &str, number: usize) -> String {
        let workspace = self.workspace.path();
        let path = workspace.to_str().unwrap();
        let own = format!("{path}/area_{number}/own");
        let id = match self.workspace.ground().user {
            User::Myself => 0,
            User::Ordinary => ORDINARY,
        };
        let line = line
            .replace("PYTHON", PYTHON)
            .replace("ID", &id.to_string())
            .replace("_M", &format!("_{}", number % AGENTS + 1))
            .replace("_N", &format!("_{number}"));
        // A path that is filled in may hold any letter, so nothing is looked for behind one.
        let words = line.split(' ').map(|word| match word {
            "W" => path.to_owned(),
            "W2" => format!("{path}2"),
            word => word
                .replace("W/", &format!("{path}/"))
                .replace("OWN", &own)
                .replace("OUT", self.outside.path().to_str().unwrap()),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// One command that tries all, each on its own, and prints the number of each success.
    fn tries<'a>(&self, lines: impl Iterator<Item = &'a str>, number: usize) -> Turn {
        let tries: String = lines
            .enumerate()
            .map(|(at, line)| {
                let line = self.fill(line, number);
                format!("( {line} ) </dev/null >/dev/null 2>&1 && echo {at}\n")
            })
            .collect();
        Turn::command(&format!("{tries}echo end"))
    }

    fn turns(&self, number: usize) -> Vec<Turn> {
        let mut turns = vec![
            self.tries(OWN.iter().copied(), number),
            self.tries(GAPS.iter().map(|(line, _)| *line), number),
            self.tries(NEVER.iter().copied(), number),
        ];
        for (path, _) in BY_TOOL {
            let path = self.fill(path, number);
            let arguments = json!({"file_path": path, "content": "x\n"});
            turns.push(Turn::call("write_file", arguments));
        }
        for path in BY_EDIT {
            let path = self.fill(path, number);
            let arguments = json!({"file_path": path, "replacements": [{"old_string": "a", "new_string": "b"}]});
            turns.push(Turn::call("edit_file", arguments));
        }
        turns.push(Turn::command(&self.fill(ALOUD.0, number)));
        turns.push(Turn::finish(DONE));
        turns
    }

    /// Everything that no agent may have changed by itself, by its path, as a line of text.
    fn state(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let root = self.workspace.path();
        list(&root, &root, &mut found);
        for elsewhere in [self.workspace.home().as_path(), self.outside.path()] {
            list(elsewhere, elsewhere.parent().unwrap(), &mut found);
        }
        found
    }
}

/// Gives a folder and all in it to the ordinary user.
fn hand_over(path: &Path) {
    lchown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in path.read_dir().unwrap() {
            hand_over(&entry.unwrap().path());
        }
    }
}

/// What the product itself writes while agents run, and what is an agent's own.
fn is_expected_to_change(name: &str) -> bool {
    let own = (1..=AGENTS).any(|number| name == format!("area_{number}/own"));
    own || [
        ".muster/runs",
        ".muster/claims",
        ".muster/cache",
        "home/serve.log",
        ".git/info/exclude",
    ]
    .contains(&name)
}

fn list(directory: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if is_expected_to_change(&name) || name.ends_with("/.subagent") {
            continue;
        }
        let meta = path.symlink_metadata().unwrap();
        let text = match meta.is_file() {
            true => String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
            false => String::new(),
        };
        let (mode, owner) = (meta.permissions().mode(), meta.uid());
        found.insert(name, format!("{mode:o} {owner} {text}"));
        if meta.is_dir() {
            list(&path, root, found);
        }
    }
}

/// Paths that are new, gone or other.
fn changed(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let names = before.keys().chain(after.keys());
    names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}

/// Runs all five at once to their ends, and hands back what each was told and how it ended.
fn run_all(place: &Place) -> Vec<(Vec<String>, Value)> {
    let serve = Serve::start(&place.workspace);
    let mut client = serve.connect();
    for number in 1..=AGENTS {
        let started = client.call(
            "create_sub_agent",
            json!({"summary": "tries to write elsewhere", "task": "Try to write everywhere.",
                   "agent_id": number, "model_key": format!("m{number}"),
                   "write_paths": [format!("area_{number}")], "run_in_background": true}),
        );
        assert_eq!(started["status"], "running", "{started}");
    }
    let mut ended = client.call(
        "wait_sub_agents",
        json!({"mode": "all", "timeout_seconds": 300}),
    );
    let mut ends = ended["agents"].take();
    let ends = ends.as_array_mut().unwrap();
    ends.sort_by_key(|end| end["agent_id"].as_u64());
    assert_eq!(ends.len(), AGENTS, "{ends:?}");
    let told = ends.iter_mut().map(|end| {
        let folder = end["deliverables_dir"].as_str().unwrap();
        (
            tool_texts(&place.workspace.conversation(folder)),
            end.take(),
        )
    });
    told.collect()
}

/// What a command printed that numbers its successes.
fn printed(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(_, rest)| rest)
}

fn all_of(count: usize) -> String {
    let numbers: String = (0..count).map(|number| format!("{number}\n")).collect();
    format!("{numbers}end\n")
}

/// The paths at which the gaps of all agents show.
fn gaps_of_all(place: &Place) -> BTreeSet<String> {
    let of = |number| GAPS.iter().map(move |(_, path)| place.fill(path, number));
    (1..=AGENTS).flat_map(of).collect()
}

/// Checks that each refusal is told to the model, with the path.
fn check_refusals(place: &Place, number: usize, texts: &[String], whose: &str) {
    let told = BY_TOOL
        .iter()
        .map(|(_, shown)| *shown)
        .chain(BY_EDIT.iter().copied());
    let answers = &texts[3..3 + BY_TOOL.len() + BY_EDIT.len()];
    for (shown, answer) in told.zip(answers) {
        let shown = place.fill(shown, number);
        let refused =
            answer.contains("outside_write_scope") || answer.contains("outside_workspace");
        assert!(
            refused && answer.contains(&shown),
            "{shown}: {answer} {whose}"
        );
    }
    let aloud = &texts[3 + BY_TOOL.len() + BY_EDIT.len()];
    for word in ALOUD.1 {
        assert!(aloud.contains(word), "{word}: {aloud} {whose}");
    }
    let note = "[note: \"Read-only file system\": this agent's confinement allows writing only";
    assert!(aloud.contains(note), "{aloud} {whose}");
    let refusals = aloud.matches(": Read-only file system").count();
    assert_eq!(refusals, ALOUD.1.len(), "{aloud} {whose}");
}

fn try_all(ground: Ground, mode: &str) {
    let place = Place::on(ground, mode);
    let before = place.state();
    let ends = run_all(&place);
    for (at, (texts, end)) in ends.iter().enumerate() {
        let number = at + 1;
        let whose = format!("{ground:?} {mode} agent {number}: {end}");
        assert_eq!(end["status"], "completed", "{whose}");
        assert_eq!(end["confinement"]["filesystem"], mode, "{whose}");
        let gaps = match mode {
            "scope" => json!([]),
            _ => json!([GAP_TOLD]),
        };
        assert_eq!(end["confinement"]["gaps"], gaps, "{whose}");
        assert_eq!(printed(&texts[0]), all_of(OWN.len()), "{whose}");
        let open = if mode == "scope" { 0 } else { GAPS.len() };
        assert_eq!(printed(&texts[1]), all_of(open), "{whose}");
        assert_eq!(printed(&texts[2]), "end\n", "{whose}");
        check_refusals(&place, number, texts, &whose);
    }
    let expected = match mode {
        "scope" => BTreeSet::new(),
        _ => gaps_of_all(&place),
    };
    let mut changes = changed(&before, &place.state());
    // Made by the leader, and by nobody else filled.
    for number in 1..=AGENTS {
        assert!(changes.remove(&format!("sub_agent_results/agent_{number}")));
    }
    for name in [".muster", ".muster/.gitignore", "sub_agent_results"] {
        changes.remove(name);
    }
    assert_eq!(changes, expected, "{ground:?} {mode}");
}

#[test]
fn in_scope_no_agent_of_five_writes_anywhere_but_in_its_own() {
    on_each(&[Rung::Pidns], |ground| try_all(ground, "scope"));
}

#[test]
fn in_workspace_what_five_agents_can_write_is_the_list_of_known_gaps() {
    on_each(&[Rung::Pidns], |ground| try_all(ground, "workspace"));
}

#[test]
fn a_protected_name_that_is_replaced_from_outside_is_protected_again_and_an_event() {
    on_each(&[Rung::Pidns], |ground| {
        let workspace = Workspace::on(ground);
        workspace.write(".mcp.json", "{}\n");
        let wait = "touch ready; until [ -e go ]; do sleep 0.05; done; echo x > .mcp.json";
        let turns = [Turn::command(wait), Turn::finish(DONE)];
        workspace.script("default", &turns);
        workspace.configure("");
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        client.call(
            "create_sub_agent",
            json!({"summary": "waits for a change", "task": "Wait.", "run_in_background": true}),
        );
        assert!(until(BUDGET, || workspace.join("ready").exists().then_some(())).is_some());
        workspace.write("new.json", "{\"new\": 1}\n");
        std::fs::rename(workspace.join("new.json"), workspace.join(".mcp.json")).unwrap();
        let log = format!(".muster/runs/{}/events.jsonl", serve.conversation);
        let path = workspace.join(".mcp.json").canonicalize().unwrap();
        let replaced = || {
            let text = workspace.read(&log);
            let events = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            events
                .filter(|event: &Value| event["event"] == "agent.name_replaced")
                .map(|event| (event["path"].clone(), event["again"].clone()))
                .collect::<Vec<_>>()
        };
        let told = until(BUDGET, || (!replaced().is_empty()).then_some(()));
        assert!(told.is_some(), "{ground:?}");
        assert_eq!(replaced(), [(json!(path), json!(true))], "{ground:?}");
        workspace.write("go", "");
        client.call("wait_sub_agents", json!({"timeout_seconds": 60}));
        let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
        assert!(texts[0].contains("Read-only file system"), "{texts:?}");
        assert_eq!(workspace.read(".mcp.json"), "{\"new\": 1}\n", "{ground:?}");
    });
}

/// A result said `network: full` of an agent whose commands reached nothing, and only a log told how
/// its commands were held.
#[test]
fn how_commands_are_held_is_told_beside_what_holds_their_worker() {
    on_each(&[Rung::Cgroup2, Rung::Pidns, Rung::Subreaper], |ground| {
        let workspace = Workspace::on(ground);
        workspace.script("default", &[Turn::finish("had nothing to do and said so")]);
        workspace.configure("[confinement]\nnetwork = \"model\"\n");
        let ended = run(
            workspace.command("leader").args(["run", "--json", "go"]),
            Duration::from_secs(60),
        );
        assert_eq!(ended.code(), 0, "{ground:?} {ended:?}");
        let result: Value = serde_json::from_str(&ended.stdout).unwrap();
        let told = &result["confinement"];
        assert_eq!(told["network"], "full", "{ground:?} {told}");
        // What does not hold for their worker is told there.
        let expected = match ground.rung {
            Rung::Cgroup2 | Rung::Pidns => {
                json!({"held_by": "keeper", "rung": "pidns", "network": "loopback", "gaps": []})
            }
            _ => {
                assert_ne!(told["gaps"], json!([]), "{ground:?} {told}");
                json!({"held_by": "jail", "rung": "subreaper", "network": "nothing",
                       "asked_network": "loopback", "gaps": []})
            }
        };
        assert_eq!(told["commands"], expected, "{ground:?}");
        // The log tells the same, also to whoever reads it when the leader is gone.
        let conversation = result_conversation(&workspace);
        let log = workspace.read(&format!(".muster/runs/{conversation}/events.jsonl"));
        let mut initialized = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|record| record["event"] == "agent.initialized")
            .unwrap();
        initialized["commands"]["gaps"] = json!([]);
        assert_eq!(initialized["commands"], expected, "{ground:?}");
    });
}

/// The one run of a workspace.
fn result_conversation(workspace: &Workspace) -> String {
    let mut runs = std::fs::read_dir(workspace.join(".muster/runs")).unwrap();
    let run = runs.next().unwrap().unwrap();
    run.file_name().into_string().unwrap()
}

/// A workspace that is a home directory holds the user's own configuration and acceptances: an agent
/// that may write the workspace could have granted itself the rest.
#[test]
fn what_the_user_decides_by_is_kept_where_the_workspace_is_a_home() {
    on_each(&[Rung::Cgroup2, Rung::Pidns], |ground| {
        let workspace = Workspace::on(ground);
        let attempts = [
            "echo x >> .config/muster/muster.toml",
            "rm -f .config/muster/muster.toml",
            "echo x > .config/muster/new",
            "mv .config/muster .config/other",
            "mv .config .other",
            "echo x > .local/state/muster/trust/made",
            "mv .local/state .local/other",
        ];
        let tries: String = attempts
            .iter()
            .enumerate()
            .map(|(n, attempt)| format!("({attempt}) 2>/dev/null && echo broke {n}; "))
            .collect();
        workspace.script(
            "default",
            &[
                Turn::command(&format!("{tries} echo x > .config/open && echo open")),
                Turn::finish(DONE),
            ],
        );
        workspace.configure("");
        let config = std::fs::read(workspace.home().join(".config/muster/muster.toml")).unwrap();
        workspace.write(".config/muster/muster.toml", &config);
        workspace.write(".local/state/muster/trust/kept", "kept");
        if ground.user == User::Ordinary {
            hand_over(&workspace.path());
        }
        let mut leader = workspace.command("leader");
        leader.env("HOME", workspace.path());
        let ended = run(leader.args(["run", "--json", "go"]), BUDGET);
        assert_eq!(ended.code(), 0, "{ground:?} {ended:?}");
        let said = &tool_texts(&workspace.conversation("sub_agent_results/agent_1"))[0];
        assert!(said.contains("open") && !said.contains("broke"), "{said}");
        assert_eq!(
            workspace.read(".config/muster/muster.toml").into_bytes(),
            config
        );
        let trust = std::fs::read_dir(workspace.join(".local/state/muster/trust")).unwrap();
        assert_eq!(trust.count(), 1);
    });
}
