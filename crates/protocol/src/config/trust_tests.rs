//! What a workspace's file may do on its own, key by key, and what it may once it was accepted.

use super::keys::Key;
use super::*;

const PATH: &str = "muster.toml";

fn layers(user: &str, workspace: &str, trust: FileTrust) -> Layers {
    let file = |name: &str, text: &str| {
        Some(ConfigFile {
            name: name.to_owned(),
            text: text.to_owned(),
        })
    };
    Layers {
        user: file("user.toml", user),
        workspace: file(PATH, workspace),
        trust,
        ..Layers::default()
    }
}

fn accepted() -> FileTrust {
    FileTrust::Accepted {
        at: "2026-11-30T20:00:00Z".to_owned(),
    }
}

/// One key in a file, as TOML.
fn line(path: &str, value: &str) -> String {
    match path.split_once('.') {
        Some((section, name)) => format!("[{section}]\n{name} = {value}\n"),
        None => format!("{path} = {value}\n"),
    }
}

/// What a workspace's file may do with a key.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Set it to anything: it takes nothing away and opens nothing.
    Free,
    /// Only from the first value to the second one.
    Tighten {
        loose: &'static str,
        tight: &'static str,
    },
    /// Only add to what is there.
    Add {
        held: &'static str,
        more: &'static str,
    },
    /// Nothing at all; here are two values of it.
    Nothing {
        held: &'static str,
        wanted: &'static str,
    },
}

/// The rule of every key there is. A new key needs a line here: may a file that came with a
/// repository set it, and if so, in which direction?
const RULES: &[(&str, Rule)] = &[
    ("language", Rule::Free),
    // A number of agents, a time or a size: less is tighter.
    ("limits.max_concurrent", fewer()),
    ("limits.max_live", fewer()),
    ("limits.timeout_seconds_min", fewer()),
    ("limits.timeout_seconds_max", fewer()),
    ("limits.start_timeout_seconds", fewer()),
    ("limits.max_total_per_run", fewer()),
    ("limits.max_total_tokens", fewer()),
    ("limits.queue_timeout_seconds", fewer()),
    ("limits.grace_seconds", fewer()),
    ("limits.idle_timeout_seconds", fewer()),
    ("limits.answer_timeout_seconds", fewer()),
    (
        "limits.result_bytes",
        Rule::Tighten {
            loose: "60000",
            tight: "5000",
        },
    ),
    (
        "limits.admission",
        Rule::Tighten {
            loose: "\"queue\"",
            tight: "\"reject\"",
        },
    ),
    (
        "confinement.require",
        Rule::Tighten {
            loose: "\"none\"",
            tight: "\"pidns\"",
        },
    ),
    // What is tried at all would hold agents by less, and a directory of somebody else's by more
    // than is theirs.
    (
        "confinement.highest",
        Rule::Nothing {
            held: "\"cgroup2\"",
            wanted: "\"group\"",
        },
    ),
    (
        "confinement.cgroup",
        Rule::Nothing {
            held: "\"/mine\"",
            wanted: "\"/theirs\"",
        },
    ),
    (
        "confinement.write",
        Rule::Tighten {
            loose: "\"workspace\"",
            tight: "\"scope\"",
        },
    ),
    (
        "confinement.network",
        Rule::Tighten {
            loose: "\"full\"",
            tight: "\"model\"",
        },
    ),
    (
        "confinement.git",
        Rule::Tighten {
            loose: "\"writable\"",
            tight: "\"read\"",
        },
    ),
    (
        "confinement.secret_paths",
        Rule::Add {
            held: "[\"~/mine\"]",
            more: "[\"~/theirs\"]",
        },
    ),
    (
        "confinement.memory",
        Rule::Tighten {
            loose: "\"2GiB\"",
            tight: "\"1GiB\"",
        },
    ),
    ("confinement.cpu_seconds", fewer()),
    (
        "confinement.disk",
        Rule::Tighten {
            loose: "\"2GiB\"",
            tight: "\"1GiB\"",
        },
    ),
    // What commands could tell others.
    (
        "confinement.env_allow",
        Rule::Nothing {
            held: "[\"MINE\"]",
            wanted: "[\"THEIRS\"]",
        },
    ),
    // Where the workspace's content goes, and what agents are told.
    (
        "default_model",
        Rule::Nothing {
            held: "\"script:mine\"",
            wanted: "\"script:theirs\"",
        },
    ),
    (
        "prompts_dir",
        Rule::Nothing {
            held: "\"mine\"",
            wanted: "\"theirs\"",
        },
    ),
    // Keeping less would remove the traces of what its agents did.
    (
        "retention.days",
        Rule::Nothing {
            held: "9",
            wanted: "1",
        },
    ),
    (
        "retention.runs",
        Rule::Nothing {
            held: "9",
            wanted: "1",
        },
    ),
];

const fn fewer() -> Rule {
    Rule::Tighten {
        loose: "50",
        tight: "2",
    }
}

/// What a key holds, in the words of `wishes`, for a user's file and a workspace's.
fn held(path: &str, user: &str, workspace: &str, trust: FileTrust) -> Settings {
    let layers = layers(&line(path, user), &line(path, workspace), trust);
    resolve(&layers).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn same(mut one: Settings, mut other: Settings) -> bool {
    for settings in [&mut one, &mut other] {
        settings.warnings.clear();
    }
    one == other
}

#[test]
fn every_key_has_a_rule_and_a_workspace_keeps_it() {
    let keys: Vec<String> = Key::all().map(Key::path).collect();
    for key in &keys {
        assert!(
            RULES.iter().any(|(path, _)| path == key),
            "`{key}` has no rule here: may a workspace's file set it, and in which direction?"
        );
    }
    assert_eq!(RULES.len(), keys.len());
    for (path, rule) in RULES {
        let own = |value| held(path, value, value, FileTrust::Never);
        match *rule {
            Rule::Free => {
                let set = held(path, "\"en\"", "\"zh\"", FileTrust::Never);
                assert_eq!(set.sources[*path], "muster.toml:1");
                assert_eq!(set.warnings, Vec::<String>::new());
            }
            Rule::Tighten { loose, tight } => {
                let tightened = held(path, loose, tight, FileTrust::Never);
                assert_eq!(tightened.sources[*path], "muster.toml:2", "{path}");
                assert_eq!(tightened.warnings, Vec::<String>::new(), "{path}");
                let loosened = held(path, tight, loose, FileTrust::Never);
                assert_eq!(loosened.warnings.len(), 2, "{path}");
                assert!(same(loosened, own(tight)), "{path} was loosened");
            }
            Rule::Add { held: mine, more } => {
                let added = held(path, mine, more, FileTrust::Never);
                assert_eq!(added.sources[*path], "muster.toml:2", "{path}");
                assert_eq!(added.warnings, Vec::<String>::new(), "{path}");
                assert_eq!(added.secret_paths, ["~/mine", "~/theirs"], "{path}");
            }
            Rule::Nothing { held: mine, wanted } => {
                for (mine, wanted) in [(mine, wanted), (wanted, mine)] {
                    let set = held(path, mine, wanted, FileTrust::Never);
                    assert_eq!(set.warnings.len(), 2, "{path}");
                    assert!(same(set, own(mine)), "{path} was set");
                }
            }
        }
    }
}

#[test]
fn an_accepted_file_sets_every_key_and_says_that_it_was_trusted() {
    for (path, rule) in RULES {
        let (mine, theirs) = match *rule {
            Rule::Free => ("\"en\"", "\"zh\""),
            Rule::Tighten { loose, tight } => (tight, loose),
            Rule::Add { held, more } => (held, more),
            Rule::Nothing { held, wanted } => (held, wanted),
        };
        let set = held(path, mine, theirs, accepted());
        let line = if path.contains('.') { 2 } else { 1 };
        assert_eq!(
            set.sources[*path],
            format!("muster.toml:{line} (trusted)"),
            "{path}"
        );
        assert_eq!(set.warnings, Vec::<String>::new(), "{path}");
    }
}

/// The key of the environment goes to a server of the environment, of the user's file, or of a
/// file that the user accepted, and to no other.
#[test]
fn only_an_accepted_file_says_where_a_key_goes() {
    let file = "default_model = \"team\"\n[models.team]\nprovider = \"openai\"\n\
                base_url = \"https://team.example/v1\"\nmodel = \"m\"\n\
                api_key_env = \"OPENAI_API_KEY\"\n";
    let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "tok123456789".to_owned());
    let changed = FileTrust::Changed {
        at: "then".to_owned(),
    };
    for (trust, server) in [
        (FileTrust::Never, "https://api.openai.com/v1"),
        (changed, "https://api.openai.com/v1"),
        (accepted(), "https://team.example/v1"),
    ] {
        let settings = resolve(&layers("", file, trust.clone())).unwrap();
        let spec = select_model(&settings, None, &key).unwrap();
        assert_eq!(spec.base_url, server, "{trust:?}");
    }
}

#[test]
fn a_file_that_changed_says_so_and_one_that_only_tightens_does_not() {
    let changed = || FileTrust::Changed {
        at: "then".to_owned(),
    };
    let loose = resolve(&layers("", "[limits]\ngrace_seconds = 60\n", changed())).unwrap();
    assert_eq!(
        loose.warnings.last().unwrap(),
        "muster.toml: has changed since it was accepted (then), so that it is not trusted any \
         more; `leader trust` shows what it wants now"
    );
    let never = resolve(&layers("", "[team]\nprompts = 1\n", FileTrust::Never)).unwrap();
    assert_eq!(
        never.warnings.len(),
        1,
        "a later section can't be accepted: {never:?}"
    );
    let tight = resolve(&layers("", "[limits]\ngrace_seconds = 1\n", changed())).unwrap();
    assert_eq!(tight.warnings, Vec::<String>::new());
}

#[test]
fn a_wish_is_told_with_what_holds_in_its_place_whoever_set_that() {
    let mut asked = layers(
        "[limits]\nmax_concurrent = 3\n[models.team]\nprovider = \"openai\"\n\
         base_url = \"http://mine.example/v1\"\nmodel = \"mine\"\n",
        "prompts_dir = \"a\\u001b[2Jb\"\n[limits]\nmax_concurrent = 9\ngrace_seconds = 60\n\
         [models.team]\nbase_url = \"http://theirs.example/v1\"\n\
         headers = {X-Team = \"value\"}\n[models.new]\nmodel = \"n\"\n[retention]\ndays = 1\n",
        accepted(),
    );
    asked.variables = vec![("MUSTER_GRACE_SECONDS".to_owned(), "2".to_owned())];
    let told: Vec<[String; 5]> = wishes(&asked)
        .unwrap()
        .into_iter()
        .map(|wish| {
            [
                wish.key,
                wish.place,
                wish.wanted,
                wish.in_force,
                wish.source,
            ]
        })
        .collect();
    let row = |row: [&str; 5]| row.map(str::to_owned);
    assert_eq!(
        told,
        [
            row([
                "prompts_dir",
                "muster.toml:1",
                r#""a\u{1b}[2Jb""#,
                "(none)",
                "built-in"
            ]),
            row([
                "limits.max_concurrent",
                "muster.toml:3",
                "9",
                "3",
                "user.toml:2"
            ]),
            row([
                "limits.grace_seconds",
                "muster.toml:4",
                "60",
                "2",
                "MUSTER_GRACE_SECONDS"
            ]),
            row([
                "models.team.base_url",
                "muster.toml:6",
                "\"http://theirs.example/v1\"",
                "\"http://mine.example/v1\"",
                "user.toml:3"
            ]),
            row([
                "models.team.headers",
                "muster.toml:7",
                "{\"X-Team\" = (hidden)}",
                "(hidden)",
                "user.toml:3"
            ]),
            row([
                "models.new.model",
                "muster.toml:9",
                "\"n\"",
                "(none)",
                "built-in"
            ]),
            row(["retention.days", "muster.toml:11", "1", "30", "built-in"]),
        ]
    );
    assert!(
        wishes(&asked)
            .unwrap()
            .iter()
            .all(|wish| !wish.meaning().is_empty())
    );
    let quiet = layers("", "[limits]\nmax_concurrent = 1\n", FileTrust::Never);
    assert_eq!(wishes(&quiet).unwrap(), Vec::new());
}

#[test]
fn a_part_of_a_later_version_can_not_be_accepted() {
    let error = resolve(&layers("", "[launcher]\nkind = \"command\"\n", accepted())).unwrap_err();
    assert_eq!(error.kind, ConfigErrorKind::NotAvailable);
    let secret = "[models.m]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\nmodel = \"m\"\n\
                  api_key = \"tok123456789\"\n";
    let error = resolve(&layers("", secret, accepted())).unwrap_err();
    assert_eq!(error.kind, ConfigErrorKind::SecretInFile);
}
