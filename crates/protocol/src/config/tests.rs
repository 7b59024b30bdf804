//! Tables over layers, keys and choices of a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::channel::WebKey;
use crate::confinement::{GitMode, JobConfinement, NetworkMode, WriteMode};
use crate::error::ErrorCode;
use crate::job::{EmptyContent, ModelSpec, ModelTimeouts, Provider};
use crate::limits;
use crate::status::{Language, ThinkingMode};
use crate::web::{Engine, SearchSpec, WebSpec};

/// The last word on a workspace's file of which something was ignored.
const MORE: &str =
    "muster.toml: wants more than tightening; `leader trust` shows it and can accept it";

fn file(name: &str, text: &str) -> Option<ConfigFile> {
    Some(ConfigFile {
        name: name.to_owned(),
        text: text.to_owned(),
    })
}

fn layers(user: &str, workspace: &str) -> Layers {
    Layers {
        user: file("user.toml", user),
        workspace: file("muster.toml", workspace),
        ..Layers::default()
    }
}

fn user(text: &str) -> Result<Settings, ConfigError> {
    resolve(&layers(text, ""))
}

fn workspace(text: &str) -> Result<Settings, ConfigError> {
    resolve(&layers("", text))
}

fn variables(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn flag(flag: &str, key: &str, value: &str) -> Flag {
    Flag {
        flag: flag.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn without_any_layer_the_built_in_values_hold() {
    let settings = resolve(&Layers::default()).unwrap();
    assert_eq!(
        settings.limits,
        LimitSettings {
            max_concurrent: 5,
            max_live: 20,
            timeout_seconds_min: 60,
            timeout_seconds_max: 3600,
            start_timeout_seconds: 10,
            max_total_per_run: None,
            max_total_tokens: None,
            admission: Admission::Reject,
            queue_timeout_seconds: 3600,
            grace_seconds: 5,
            idle_timeout_seconds: 60,
            answer_timeout_seconds: 600,
            result_bytes: 8192,
        }
    );
    assert_eq!(settings.language, LanguageChoice::Auto);
    assert_eq!(settings.require, RequiredRung::None);
    assert_eq!(
        (settings.highest, settings.cgroup),
        (RequiredRung::Cgroup2, None)
    );
    assert_eq!((settings.default_model, settings.prompts_dir), (None, None));
    assert_eq!(
        (settings.models, settings.warnings),
        (BTreeMap::new(), vec![])
    );
    let sources: Vec<_> = settings.sources.values().collect();
    assert_eq!(sources.len(), 29);
    assert!(sources.iter().all(|source| *source == "built-in"));
}

#[test]
fn later_layers_win_and_each_value_knows_its_source() {
    let mut all = layers(
        "language = \"en\"\n[limits]\nmax_concurrent = 50\ngrace_seconds = 9\nanswer_timeout_seconds = 30\n",
        "[limits]\nmax_concurrent = 40\ngrace_seconds = 8\n",
    );
    all.variables = variables(&[
        ("MUSTER_GRACE_SECONDS", " 10 "),
        ("MUSTER_MAX_CONCURRENT", "60"),
        ("MUSTER_CONFINEMENT_REQUIRE", "pidns"),
        ("MUSTER_CONFINEMENT_HIGHEST", "pidns"),
        ("MUSTER_CONFINEMENT_CGROUP", "/sys/fs/cgroup/mine"),
        ("MUSTER_CONFINEMENT_WRITE", "scope"),
        ("MUSTER_CONFINEMENT_SECRET_PATHS", "~/keys:/etc/keys"),
        ("MUSTER_DEFAULT_MODEL", ""),
        ("PATH", "/bin"),
    ]);
    all.flags = vec![
        flag("--lang", "language", "zh"),
        flag("--max-concurrent", "limits.max_concurrent", "7"),
    ];
    let settings = resolve(&all).unwrap();
    assert_eq!(settings.warnings, Vec::<String>::new());
    assert_eq!(settings.language, LanguageChoice::Zh);
    assert_eq!(settings.require, RequiredRung::Pidns);
    assert_eq!(settings.highest, RequiredRung::Pidns);
    assert_eq!(settings.cgroup, Some("/sys/fs/cgroup/mine".into()));
    assert_eq!(settings.write, WriteMode::Scope);
    assert_eq!(settings.secret_paths, ["~/keys", "/etc/keys"]);
    assert_eq!(settings.limits.max_concurrent, 7);
    assert_eq!(settings.limits.max_live, 28);
    assert_eq!(settings.limits.grace_seconds, 10);
    assert_eq!(settings.limits.answer_timeout_seconds, 30);
    for (key, source) in [
        ("language", "--lang"),
        ("limits.max_concurrent", "--max-concurrent"),
        ("limits.grace_seconds", "MUSTER_GRACE_SECONDS"),
        ("limits.answer_timeout_seconds", "user.toml:5"),
        ("limits.max_live", "built-in"),
        ("confinement.require", "MUSTER_CONFINEMENT_REQUIRE"),
        ("confinement.highest", "MUSTER_CONFINEMENT_HIGHEST"),
        ("confinement.cgroup", "MUSTER_CONFINEMENT_CGROUP"),
        ("confinement.write", "MUSTER_CONFINEMENT_WRITE"),
        (
            "confinement.secret_paths",
            "MUSTER_CONFINEMENT_SECRET_PATHS",
        ),
    ] {
        assert_eq!(settings.sources[key], source, "{key}");
    }
}

#[test]
fn every_number_is_taken_at_its_limits_and_refused_past_them() {
    for (name, min, max) in [
        ("max_concurrent", 1, 1000),
        ("max_live", 1, 5000),
        ("timeout_seconds_min", 1, 86_400),
        ("timeout_seconds_max", 1, 86_400),
        ("start_timeout_seconds", 1, 600),
        ("max_total_per_run", 1, 1_000_000),
        ("max_total_tokens", 1, i64::MAX),
        ("queue_timeout_seconds", 1, 86_400),
        ("grace_seconds", 0, 60),
        ("idle_timeout_seconds", 1, 86_400),
        ("answer_timeout_seconds", 1, 86_400),
        ("result_bytes", 4096, 65_536),
    ] {
        // The greatest minimum needs a maximum that allows it.
        let beside = if name == "timeout_seconds_min" {
            "timeout_seconds_max = 86400"
        } else {
            ""
        };
        let with = |value: i64| user(&format!("[limits]\n{name} = {value}\n{beside}\n"));
        for good in [min, max] {
            let settings = with(good).unwrap();
            let shown = serde_json::to_value(&settings.limits).unwrap();
            assert_eq!(shown[name], json!(good), "{name}");
        }
        let mut bad = vec![min - 1, -1];
        bad.extend(max.checked_add(1));
        for bad in bad {
            assert_eq!(
                with(bad).unwrap_err().to_string(),
                format!(
                    "user.toml:2: `limits.{name}` must be a whole number from {min} to {max}, not {bad}"
                )
            );
        }
    }
}

#[test]
fn a_cap_that_is_no_number_is_refused_with_key_value_range_and_line() {
    // A cap of 0 or of a text once meant "no cap" to somebody's configuration loader.
    for (value, shown, kind) in [
        ("0", "0", ConfigErrorKind::OutOfRange),
        ("-3", "-3", ConfigErrorKind::OutOfRange),
        ("1001", "1001", ConfigErrorKind::OutOfRange),
        ("\"many\"", "\"many\"", ConfigErrorKind::WrongType),
        ("\"5\"", "\"5\"", ConfigErrorKind::WrongType),
        ("1.5", "1.5", ConfigErrorKind::WrongType),
        ("true", "true", ConfigErrorKind::WrongType),
        ("[5]", "a list", ConfigErrorKind::WrongType),
        ("2026-03-10", "a date", ConfigErrorKind::WrongType),
    ] {
        let text = format!("# caps\n\n[limits]\nmax_concurrent = {value}\n");
        for (error, name) in [
            (user(&text).unwrap_err(), "user.toml"),
            (workspace(&text).unwrap_err(), "muster.toml"),
        ] {
            assert_eq!(error.kind, kind, "{value}");
            assert_eq!(
                error.to_string(),
                format!(
                    "{name}:4: `limits.max_concurrent` must be a whole number from 1 to 1000, not {shown}"
                )
            );
        }
    }
    let huge = user("[limits]\nmax_concurrent = 99999999999999999999\n").unwrap_err();
    assert!(huge.to_string().starts_with("user.toml:2: "), "{huge}");
    for (value, shown) in [("0", "0"), ("x", "\"x\""), ("5 agents", "\"5 agents\"")] {
        let error = resolve(&Layers {
            variables: variables(&[("MUSTER_MAX_CONCURRENT", value)]),
            ..Layers::default()
        })
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "MUSTER_MAX_CONCURRENT: `limits.max_concurrent` must be a whole number from 1 to 1000, not {shown}"
            )
        );
    }
}

#[test]
fn words_are_taken_as_they_are_and_nothing_else() {
    for (text, expected) in [
        (
            "language = \"fr\"",
            "user.toml:1: `language` must be one of \"auto\", \"zh\", \"en\", not \"fr\"",
        ),
        (
            "language = 1",
            "user.toml:1: `language` must be one of \"auto\", \"zh\", \"en\", not 1",
        ),
        (
            "[limits]\nadmission = \"Queue\"",
            "user.toml:2: `limits.admission` must be one of \"reject\", \"queue\", not \"Queue\"",
        ),
        (
            "[confinement]\nrequire = \"docker\"",
            "user.toml:2: `confinement.require` must be one of \"none\", \"group\", \"subreaper\", \"pidns\", \"cgroup2\", not \"docker\"",
        ),
        (
            "[confinement]\nhighest = \"none\"",
            "user.toml:2: `confinement.highest` must be one of \"group\", \"subreaper\", \"pidns\", \"cgroup2\", not \"none\"",
        ),
        (
            "[confinement]\nnetwork = \"off\"",
            "user.toml:2: `confinement.network` must be one of \"full\", \"model\", \"none\", not \"off\"",
        ),
        (
            "[confinement]\nsecret_paths = [\"keys\"]",
            "user.toml:2: `confinement.secret_paths` must be a list of absolute paths or paths that begin with `~/`, not a list",
        ),
        (
            "[confinement]\nenv_allow = \"A\"",
            "user.toml:2: `confinement.env_allow` must be a list of names of variables, not \"A\"",
        ),
        (
            "[confinement]\ncgroup = \"muster\"",
            "user.toml:2: `confinement.cgroup` must be an absolute path, not \"muster\"",
        ),
        (
            "[confinement]\nrequire = \"pidns\"\nhighest = \"group\"",
            "user.toml:3: `confinement.require` is \"pidns\" and `confinement.highest` is \"group\"",
        ),
        (
            "prompts_dir = \"\"",
            "user.toml:1: `prompts_dir` must be a text of at least one character, not \"\"",
        ),
        (
            "default_model = true",
            "user.toml:1: `default_model` must be a text, not true",
        ),
    ] {
        assert_eq!(user(text).unwrap_err().to_string(), expected);
    }
    let settings =
        user("[limits]\nadmission = \"queue\"\n[confinement]\nrequire = \"cgroup2\"").unwrap();
    assert_eq!(settings.limits.admission, Admission::Queue);
    assert_eq!(settings.require, RequiredRung::Cgroup2);
}

#[test]
fn an_unknown_key_is_told_with_the_closest_known_one_and_its_line() {
    for (text, message, hint) in [
        (
            "\nlangauge = \"zh\"",
            "user.toml:2: unknown key `langauge`",
            "did you mean `language`?",
        ),
        (
            "[limits]\nmax_concurent = 3",
            "user.toml:2: unknown key `limits.max_concurent`",
            "did you mean `max_concurrent`?",
        ),
        (
            "[limit]\nmax_concurrent = 3",
            "user.toml:1: unknown key `limit`",
            "did you mean `limits`?",
        ),
        (
            "[confinement]\nrequired = \"pidns\"",
            "user.toml:2: unknown key `confinement.required`",
            "did you mean `require`?",
        ),
        (
            "[models.m]\nprovider = \"openai\"\nbase-url = \"http://h/v1\"",
            "user.toml:3: unknown key `models.m.base-url`",
            "did you mean `base_url`?",
        ),
        (
            "[models.m.timeouts]\nconnect = 1",
            "user.toml:2: unknown key `models.m.timeouts.connect`",
            "did you mean `connect_seconds`?",
        ),
    ] {
        let error = user(text).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::UnknownKey);
        assert_eq!(error.report(), format!("{message}\nhint: {hint}"));
    }
    // The workspace's own keys are no better than the user's.
    let error = workspace("[limits]\nmax_concurent = 3").unwrap_err();
    assert_eq!(
        error.to_string(),
        "muster.toml:2: unknown key `limits.max_concurent`"
    );
}

#[test]
fn a_file_that_is_no_toml_is_told_by_name_and_line() {
    for (text, line) in [
        ("language = \"zh\"\n[limits\n", 2),
        ("a = 1\na = 2\n", 2),
        ("x", 1),
        ("\n\n= 5", 3),
    ] {
        for (error, name) in [
            (user(text).unwrap_err(), "user.toml"),
            (workspace(text).unwrap_err(), "muster.toml"),
        ] {
            assert_eq!(error.kind, ConfigErrorKind::Syntax, "{text}");
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("{name}:{line}: no valid TOML: ")),
                "{message}"
            );
        }
    }
    assert!(user("\u{feff}language = \"zh\"\r\n").is_ok());
    let long = |bytes: usize| format!("#{}", "x".repeat(bytes - 1));
    assert!(user(&long(limits::CONFIG_BYTES_MAX)).is_ok());
    let error = user(&long(limits::CONFIG_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "user.toml: 1048577 bytes; the most is 1048576"
    );
}

#[test]
fn a_section_that_is_none_is_told() {
    let error = user("limits = 5").unwrap_err();
    assert_eq!(
        error.report(),
        "user.toml:1: `limits` must be a section, not a whole number\n\
         hint: write a line `[limits]` and its keys below it"
    );
    let error = user("[models]\nm = \"gpt\"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "user.toml:2: `models.m` must be a section, not a text"
    );
}

#[test]
fn a_workspace_has_no_say_in_what_is_tried_and_where() {
    let settings = workspace("[confinement]\nhighest = \"group\"\ncgroup = \"/mine\"").unwrap();
    assert_eq!(
        (settings.highest, settings.cgroup),
        (RequiredRung::Cgroup2, None)
    );
    let told: Vec<bool> = settings
        .warnings
        .iter()
        .map(|warning| warning.contains("is ignored: a workspace's file may only"))
        .collect();
    assert_eq!(told, [true, true, false]);
}

#[test]
fn parts_of_later_versions_are_refused_in_the_users_file() {
    for (text, key, line) in [
        ("[agents.bash]\ntimeout_seconds = 5", "agents", 1),
        ("[launcher]\nkind = \"local\"", "launcher", 1),
        ("[team]\n", "team", 1),
        ("[confinement]\npids = 5", "confinement.pids", 2),
    ] {
        let error = user(text).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::NotAvailable);
        assert_eq!(
            error.to_string(),
            format!("user.toml:{line}: `{key}` is not available in this version")
        );
    }
}

#[test]
fn the_web_is_there_only_where_a_person_wrote_it_down() {
    assert_eq!(user("").unwrap().web, None);
    let pages = WebSpec {
        pages: true,
        ..WebSpec::default()
    };
    assert_eq!(user("[web]\n").unwrap().web, Some(pages));
    let full = "[web]\nsearch = \"searxng\"\nbase_url = \"http://127.0.0.1:8888/\"\n\
                api_key_env = \"SEARCH_KEY\"\npages = false\nallow_hosts = [\"docs.internal\", \"::1\"]\n";
    let settings = user(full).unwrap();
    let web = WebSpec {
        search: Some(SearchSpec {
            engine: Engine::Searxng,
            base_url: "http://127.0.0.1:8888".to_owned(),
            api_key_env: Some("SEARCH_KEY".to_owned()),
        }),
        pages: false,
        allow_hosts: vec!["docs.internal".to_owned(), "::1".to_owned()],
    };
    assert_eq!(settings.web.as_ref(), Some(&web));
    assert_eq!(settings.sources["web"], "user.toml:1");
    let env = environment(&[("SEARCH_KEY", "tok123456789")]);
    let key = web_key(Some(&web), &env).unwrap();
    assert_eq!(format!("{key:?}"), "Some(WebKey(set))");
    assert_eq!(key, Some(WebKey("tok123456789".to_owned())));
    let error = web_key(Some(&web), &environment(&[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the search engine wants its key in `SEARCH_KEY`, which is not set"
    );
    let tavily = user("[web]\nsearch = \"tavily\"\n").unwrap().web.unwrap();
    let search = tavily.search.unwrap();
    assert_eq!(search.base_url, "https://api.tavily.com");
}

#[test]
fn what_the_web_section_can_not_mean_is_refused() {
    for (text, words) in [
        ("serach = \"tavily\"", "did you mean `search`"),
        (
            "search = \"bing\"",
            "must be one of \"searxng\", \"tavily\"",
        ),
        ("search = \"searxng\"", "lacks `base_url`"),
        ("base_url = \"http://h\"", "lacks `search`"),
        ("api_key = \"tok123456789\"", "`web.api_key`"),
        ("allow_hosts = \"x\"", "a list of hosts"),
        ("allow_hosts = [\"http://x/\"]", "a list of hosts"),
        ("allow_hosts = [5]", "a list of hosts"),
        ("pages = 1", "true or false"),
    ] {
        let error = user(&format!("[web]\n{text}\n")).unwrap_err();
        let report = error.report();
        assert!(report.contains(words), "{text}: {report}");
        assert!(!report.contains("tok123456789"), "{report}");
        assert!(report.contains("user.toml:"), "{report}");
    }
    assert!(user("web = 5").is_err());
}

#[test]
fn a_workspace_tightens_and_never_loosens() {
    let user = "[limits]\nmax_concurrent = 10\ngrace_seconds = 8\nadmission = \"queue\"\n\
                max_total_tokens = 1000\n[confinement]\nrequire = \"subreaper\"\n";
    let resolved = resolve(&layers(
        user,
        "language = \"zh\"\n[limits]\nmax_concurrent = 3\nmax_live = 12\ngrace_seconds = 8\n\
         timeout_seconds_max = 120\nmax_total_per_run = 7\nadmission = \"reject\"\n\
         max_total_tokens = 999\n[confinement]\nrequire = \"pidns\"\n",
    ))
    .unwrap();
    assert_eq!(resolved.warnings, Vec::<String>::new());
    assert_eq!(resolved.language, LanguageChoice::Zh);
    assert_eq!(resolved.require, RequiredRung::Pidns);
    let limits = &resolved.limits;
    assert_eq!((limits.max_concurrent, limits.max_live), (3, 12));
    assert_eq!(
        (limits.timeout_seconds_max, limits.timeout_seconds_default()),
        (120, 120)
    );
    assert_eq!(
        (limits.max_total_per_run, limits.max_total_tokens),
        (Some(7), Some(999))
    );
    assert_eq!(limits.admission, Admission::Reject);
    assert_eq!(resolved.sources["limits.max_concurrent"], "muster.toml:3");
    assert_eq!(resolved.sources["limits.grace_seconds"], "user.toml:3");

    let looser = resolve(&layers(
        user,
        "[limits]\nmax_concurrent = 11\ngrace_seconds = 60\nmax_total_tokens = 2000\n\
         [confinement]\nrequire = \"none\"\n",
    ))
    .unwrap();
    let own = resolve(&layers(user, "")).unwrap();
    let warning = |line: u32, key: &str, holds: &str, from: u32| {
        format!(
            "muster.toml:{line}: `{key}` is ignored: a workspace's file may only tighten it, and it \
             is {holds} already (user.toml:{from})"
        )
    };
    // Entries are taken in the order of the file, so warnings are as well.
    assert_eq!(
        looser.warnings,
        [
            warning(2, "limits.max_concurrent", "10", 2),
            warning(3, "limits.grace_seconds", "8", 3),
            warning(4, "limits.max_total_tokens", "1000", 5),
            warning(6, "confinement.require", "\"subreaper\"", 7),
            MORE.to_owned(),
        ]
    );
    assert_eq!(
        Settings {
            warnings: vec![],
            ..looser
        },
        own
    );
    let queue = workspace("[limits]\nadmission = \"queue\"").unwrap();
    assert_eq!(queue.limits.admission, Admission::Reject);
    assert_eq!(queue.warnings.len(), 2);
}

#[test]
fn a_workspace_can_redirect_no_model_no_key_and_no_prompt() {
    // A cloned repository that could name a base_url would be sent the user's key.
    let hostile = "default_model = \"evil\"\nprompts_dir = \"evil\"\n\
                   [models.main]\nprovider = \"openai\"\nbase_url = \"http://evil.example/v1\"\n\
                   model = \"x\"\napi_key_env = \"OPENAI_API_KEY\"\n\
                   [launcher]\nprefix = [\"sh\"]\n[agents.bash]\n[web]\n\
                   [confinement]\nnetwork = \"full\"\nenv_allow = [\"A_TOKEN\"]\n";
    let own = "[models.main]\nprovider = \"openai\"\nbase_url = \"https://good.example/v1\"\nmodel = \"m\"\n";
    let resolved = resolve(&layers(own, hostile)).unwrap();
    let without = resolve(&layers(own, "")).unwrap();
    let ignored = |line: u32, key: &str| {
        format!(
            "muster.toml:{line}: `{key}` is ignored: a workspace's file may only choose the language \
             and tighten limits and confinement; put it into your own file"
        )
    };
    assert_eq!(
        resolved.warnings,
        [
            ignored(1, "default_model"),
            ignored(2, "prompts_dir"),
            ignored(3, "models"),
            ignored(8, "launcher"),
            ignored(10, "agents"),
            ignored(11, "web"),
            ignored(14, "confinement.env_allow"),
            MORE.to_owned(),
        ]
    );
    assert_eq!(
        Settings {
            warnings: vec![],
            ..resolved
        },
        without
    );
    let alone = workspace(hostile).unwrap();
    let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "tok123456789".to_owned());
    let chosen = select_model(&alone, None, &env).unwrap();
    assert_eq!(chosen.base_url, "https://api.openai.com/v1");
}

#[test]
fn values_that_cannot_hold_together_are_told() {
    let error = user("[limits]\ntimeout_seconds_min = 90\ntimeout_seconds_max = 80").unwrap_err();
    assert_eq!(
        error.report(),
        "user.toml:3: `limits.timeout_seconds_min` is 90 and `limits.timeout_seconds_max` is 80\n\
         hint: `timeout_seconds_min` must not be greater than `timeout_seconds_max`"
    );
    let error = user("[limits]\ntimeout_seconds_min = 4000").unwrap_err();
    assert_eq!(error.place.as_deref(), Some("user.toml:2"));
    let error = user("[limits]\nmax_concurrent = 9\nmax_live = 8").unwrap_err();
    assert_eq!(error.kind, ConfigErrorKind::Conflict);
    // What nobody set follows, and so does what a workspace's file made too large.
    let follows = user("[limits]\ntimeout_seconds_max = 30\nmax_live = 3").unwrap();
    assert_eq!(follows.limits.timeout_seconds_min, 30);
    assert_eq!(follows.limits.max_concurrent, 3);
    assert_eq!(follows.sources["limits.max_concurrent"], "user.toml:3");
    let tightened = resolve(&layers(
        "[limits]\nmax_concurrent = 9\ntimeout_seconds_min = 50",
        "[limits]\nmax_live = 2\ntimeout_seconds_max = 40",
    ))
    .unwrap();
    assert_eq!(tightened.limits.max_concurrent, 2);
    assert_eq!(tightened.limits.timeout_seconds_min, 40);
    let many = user("[limits]\nmax_concurrent = 1000").unwrap();
    assert_eq!(many.limits.max_live, 4000);
}

#[test]
fn a_model_is_read_with_all_its_keys() {
    let settings = user(
        r#"
default_model = "main"
[models.main]
provider = "openai"
base_url = "https://host.example/v1/"
model = "big"
api_key_env = "MY_KEY"
max_output_tokens = 4096
context_tokens = 128000
stream = false
send_reasoning = false
vision = true
empty_content = "empty"
thinking_mode = "thinking"
price_prompt = 2
price_completion = 0.5
price_cached = 0.1
headers = { "X-Title" = "muster" }
[models.main.thinking]
fast = { enable_thinking = false }
thinking = { enable_thinking = true, budget = 9 }
[models.main.body]
temperature = 0.2
tool_choice = "auto"
stop = ["a", "b"]
extra = { deep = [1, { k = true }] }
[models.main.timeouts]
first_byte_seconds = 7
[models."qwen2.5:0.5b"]
provider = "script"
model = "replies.yaml"
"#,
    )
    .unwrap();
    let map = |value: serde_json::Value| value.as_object().unwrap().clone();
    let expected = ModelSpec {
        api_key_env: Some("MY_KEY".into()),
        max_output_tokens: Some(4096),
        context_tokens: Some(128_000),
        stream: false,
        send_reasoning: false,
        vision: true,
        empty_content: EmptyContent::Empty,
        thinking_mode: Some(ThinkingMode::Thinking),
        thinking: BTreeMap::from([
            ("fast".into(), map(json!({"enable_thinking": false}))),
            (
                "thinking".into(),
                map(json!({"enable_thinking": true, "budget": 9})),
            ),
        ]),
        headers: BTreeMap::from([("X-Title".into(), "muster".into())]),
        body: map(json!({
            "temperature": 0.2, "tool_choice": "auto", "stop": ["a", "b"],
            "extra": {"deep": [1, {"k": true}]},
        })),
        timeouts: ModelTimeouts {
            first_byte_seconds: 7,
            ..ModelTimeouts::default()
        },
        price_prompt: Some(2.0),
        price_completion: Some(0.5),
        price_cached: Some(0.1),
        ..ModelSpec::new("main", Provider::Openai, "https://host.example/v1", "big")
    };
    assert_eq!(settings.models["main"], expected);
    assert_eq!(
        settings.models["qwen2.5:0.5b"],
        ModelSpec::new("qwen2.5:0.5b", Provider::Script, "", "replies.yaml")
    );
    assert_eq!(settings.default_model.as_deref(), Some("main"));
    assert_eq!(settings.sources["models.main"], "user.toml:3");
    // Every key of a model's spec can be set, but the one that names it.
    let spec = serde_json::to_value(&expected).unwrap();
    assert_eq!(spec.as_object().unwrap().len(), 19);
}

#[test]
fn a_model_that_is_not_right_is_told_without_its_values() {
    let model = |line: &str| {
        user(&format!(
            "[models.m]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\nmodel = \"x\"\n{line}\n"
        ))
    };
    assert!(model("").is_ok());
    for (line, message) in [
        (
            "max_output_tokens = 0",
            "`models.m.max_output_tokens` must be a whole number from 1 to 100000000",
        ),
        (
            "stream = \"yes\"",
            "`models.m.stream` must be true or false, not a text",
        ),
        (
            "price_prompt = -1",
            "`models.m.price_prompt` must be a price of a million tokens, 0 or more",
        ),
        (
            "price_prompt = nan",
            "`models.m.price_prompt` must be a price of a million tokens, 0 or more",
        ),
        (
            "empty_content = \"none\"",
            "`models.m.empty_content` must be one of \"null\", \"empty\"",
        ),
        (
            "timeouts = { gap_seconds = 0 }",
            "`models.m.timeouts.gap_seconds` must be a whole number from 1 to 3600",
        ),
        (
            "headers = { \"a b\" = \"c\" }",
            "`models.m.headers.a b` must be a header whose name is of letters, digits and `-`",
        ),
        (
            "headers = { A = \"c\\n\" }",
            "`models.m.headers.A` must be a text of printable ASCII characters",
        ),
        (
            "body = { messages = [] }",
            "`models.m.body.messages` is set by muster itself",
        ),
        (
            "body = { d = 2026-03-10 }",
            "`models.m.body.d` must be no date; quote it",
        ),
        (
            "thinking = { slow = {} }",
            "unknown key `models.m.thinking.slow`",
        ),
    ] {
        let error = model(line).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("user.toml:5: {message}"),
            "{line}"
        );
    }
    for (text, message) in [
        (
            "[models.m]\nmodel = \"x\"\nbase_url = \"http://h\"",
            "user.toml:1: `models.m` lacks `provider`",
        ),
        (
            "[models.m]\nprovider = \"openai\"\nbase_url = \"http://h\"",
            "user.toml:1: `models.m` lacks `model`",
        ),
        (
            "[models.m]\nprovider = \"openai\"\nmodel = \"x\"",
            "user.toml:1: `models.m` lacks `base_url`",
        ),
        (
            "[models.m]\nprovider = \"opnai\"",
            "user.toml:2: `models.m.provider` must be one of \"openai\", \"anthropic\", \"script\"",
        ),
    ] {
        assert_eq!(user(text).unwrap_err().to_string(), message);
    }
    for key in ["http://h", "script:x", "a b", "a#b", "", &"x".repeat(65)] {
        let text = format!("[models.\"{key}\"]\nprovider = \"script\"\nmodel = \"x\"");
        assert_eq!(
            user(&text).unwrap_err().kind,
            ConfigErrorKind::OutOfRange,
            "{key}"
        );
    }
}

#[test]
fn the_url_of_a_server_is_checked() {
    let model = |url: &str| {
        user(&format!(
            "[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{url}\"\n"
        ))
        .map(|settings| settings.models["m"].base_url.clone())
    };
    assert_eq!(
        model("http://127.0.0.1:8080/v1//").unwrap(),
        "http://127.0.0.1:8080/v1"
    );
    assert_eq!(model("https://[::1]:80").unwrap(), "https://[::1]:80");
    for bad in [
        "host/v1",
        "ftp://h/v1",
        "http://",
        "http:///v1",
        "http://user:tok123456789@h/v1",
        "http://h/v1?key=tok123456789",
        "http://h /v1",
        "http://h/v1/chat/completions",
    ] {
        let error = model(bad).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::OutOfRange, "{bad}");
        assert!(!error.report().contains("tok123456789"), "{error}");
    }
}

#[test]
fn a_secret_in_a_file_is_refused_and_never_shown() {
    let secret = "tok123456789";
    for text in [
        format!("api_key = \"{secret}\""),
        format!("openai_api_key = \"{secret}\""),
        format!("[limits]\napi_key = \"{secret}\""),
        format!("[models.m]\napi_key = \"{secret}\""),
        format!("[models.m]\napi-key = [\"{secret}\"]"),
        format!("[models.m]\ntoken = \"{secret}\""),
        format!("[models.m]\napi_key_env = \"sk-{secret}\""),
        format!("[models.m.headers]\nAuthorization = \"Bearer {secret}\""),
        format!("[models.m.headers]\nX-Auth-Token = \"{secret}\""),
        format!("[models.m.body]\napi_key = \"{secret}\""),
    ] {
        let error = user(&text).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::SecretInFile, "{text}");
        assert!(error.place.is_some());
        assert!(!error.report().contains(secret), "{}", error.report());
        assert!(!error.hint.is_empty());
    }
    // Values that do not fit are not shown either: they might be keys in the wrong place.
    for text in [
        format!("[models.m]\nprovider = \"{secret}\""),
        format!("[models.m]\nbase_url = \"{secret}\""),
        format!("[models.m]\nstream = \"{secret}\""),
        format!("[models.m]\napi_key = {secret}"),
        format!("[models.m]\napi_key = \"{secret}"),
    ] {
        let error = user(&text).unwrap_err();
        assert!(!error.report().contains(secret), "{}", error.report());
    }
}

#[test]
fn a_slip_in_the_name_of_a_variable_is_told_and_a_foreign_one_is_not() {
    let settings = resolve(&Layers {
        variables: variables(&[
            ("MUSTER_MAX_CONCURENT", "9"),
            ("MUSTER_WORKER", "/bin/worker"),
            ("MUSTER_CONFIG", "x"),
            ("MUSTER_NESTED", "1"),
            ("MUSTER_API_KEY", "tok123456789"),
            ("MUSTER_SOMETHING_ELSE", "x"),
            ("MUSTERMARK", "x"),
        ]),
        ..Layers::default()
    })
    .unwrap();
    assert_eq!(
        settings.warnings,
        ["MUSTER_MAX_CONCURENT: is ignored; did you mean MUSTER_MAX_CONCURRENT?"]
    );
    assert_eq!(settings.limits.max_concurrent, 5);
    let error = resolve(&Layers {
        flags: vec![flag("--x", "limits.nonsense", "1")],
        ..Layers::default()
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "--x: unknown key `limits.nonsense`");
}

#[test]
fn the_language_follows_the_task_unless_it_is_fixed() {
    for (choice, summary, task, expected) in [
        (
            LanguageChoice::Auto,
            "write docs",
            "write the docs",
            Language::En,
        ),
        (LanguageChoice::Auto, "write docs", "写文档", Language::Zh),
        (
            LanguageChoice::Auto,
            "写文档",
            "write the docs",
            Language::Zh,
        ),
        (LanguageChoice::En, "写文档", "写文档", Language::En),
        (LanguageChoice::Zh, "write docs", "", Language::Zh),
    ] {
        assert_eq!(
            choice.for_agent(summary, task),
            expected,
            "{choice:?} {summary}"
        );
    }
}

const TWO: &str = "[models.fast]\nprovider = \"openai\"\nbase_url = \"http://a/v1\"\nmodel = \"f\"\n\
                   [models.claude]\nprovider = \"anthropic\"\nbase_url = \"http://b\"\nmodel = \"c\"\n";

fn environment(list: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    move |wanted: &str| {
        list.iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| (*value).to_owned())
    }
}

#[test]
fn a_choice_is_a_key_a_url_or_a_script() {
    let settings = user(TWO).unwrap();
    let none = environment(&[]);
    let choose = |wanted: &str| select_model(&settings, Some(wanted), &none);
    assert_eq!(choose("fast").unwrap(), settings.models["fast"]);
    assert_eq!(
        choose("http://127.0.0.1:8080/v1/#org/qwen#1").unwrap(),
        ModelSpec::new(
            "flag",
            Provider::Openai,
            "http://127.0.0.1:8080/v1",
            "org/qwen#1"
        )
    );
    assert_eq!(
        choose("script:dir/a.yaml").unwrap(),
        ModelSpec::new("flag", Provider::Script, "", "dir/a.yaml")
    );
    let unknown = choose("fats").unwrap_err();
    assert_eq!(
        unknown.report(),
        "no model `fats` is configured\nhint: did you mean `fast`? Configured: `claude`, `fast`"
    );
    assert_eq!(unknown.to_tool_error().code, ErrorCode::UnknownModel);
    assert_eq!(choose("claude").unwrap(), settings.models["claude"]);
    for bad in [
        "script:",
        "http://h/v1",
        "http://h/v1#",
        "ftp://h#x",
        "http://u:p@h/v1#x",
    ] {
        assert_eq!(
            choose(bad).unwrap_err().kind,
            ConfigErrorKind::OutOfRange,
            "{bad}"
        );
    }
}

#[test]
fn what_a_model_chooses_is_a_configured_key_and_nothing_else() {
    // A model that may name a URL could send a key, and what it read, to a server of its own.
    let settings = user(TWO).unwrap();
    assert_eq!(
        model_by_key(&settings, "fast").unwrap(),
        settings.models["fast"]
    );
    for bad in [
        "http://evil.example/v1#x",
        "script:/etc/passwd",
        "ollama/m",
        "nope",
        "",
    ] {
        let error = model_by_key(&settings, bad).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::UnknownModel, "{bad}");
    }
}

#[test]
fn without_a_choice_the_default_then_the_only_one_then_the_environment_counts() {
    let openai = environment(&[("OPENAI_API_KEY", "tok123456789")]);
    let default = user(&format!("default_model = \"fast\"\n{TWO}")).unwrap();
    assert_eq!(
        select_model(&default, None, &openai).unwrap(),
        default.models["fast"]
    );
    let url = user("default_model = \"http://h/v1#x\"").unwrap();
    assert_eq!(select_model(&url, None, &openai).unwrap().model, "x");
    let only = user(&TWO[..TWO.find("[models.claude]").unwrap()]).unwrap();
    assert_eq!(
        select_model(&only, None, &openai).unwrap(),
        only.models["fast"]
    );
    let several = select_model(&user(TWO).unwrap(), None, &openai).unwrap_err();
    assert_eq!(several.kind, ConfigErrorKind::Conflict);
    assert!(
        several.hint.contains("`claude`, `fast`"),
        "{}",
        several.hint
    );
    let wrong = user("\ndefault_model = \"nope\"").unwrap();
    assert_eq!(
        select_model(&wrong, None, &openai).unwrap_err().report(),
        "user.toml:2: no model `nope` is configured\nhint: configured: none"
    );
}

#[test]
fn the_environment_names_a_model_by_its_keys() {
    let settings = resolve(&Layers::default()).unwrap();
    let spec = |url: &str, model: &str, key: Option<&str>| ModelSpec {
        api_key_env: key.map(str::to_owned),
        ..ModelSpec::new("env", Provider::Openai, url, model)
    };
    let table: [(&'static [(&str, &str)], ModelSpec); 7] = [
        (
            &[("OPENAI_API_KEY", "k"), ("DEEPSEEK_API_KEY", "k")],
            spec(
                "https://api.openai.com/v1",
                "gpt-5-mini",
                Some("OPENAI_API_KEY"),
            ),
        ),
        (
            &[
                ("OPENAI_API_KEY", "k"),
                ("OPENAI_BASE_URL", "http://h:1/v1/"),
                ("OPENAI_MODEL", " m "),
            ],
            spec("http://h:1/v1", "m", Some("OPENAI_API_KEY")),
        ),
        (
            &[("OPENAI_BASE_URL", "http://h:1/v1"), ("OPENAI_MODEL", "m")],
            spec("http://h:1/v1", "m", None),
        ),
        (
            &[("OPENAI_API_KEY", ""), ("DEEPSEEK_API_KEY", "k")],
            spec(
                "https://api.deepseek.com/v1",
                "deepseek-chat",
                Some("DEEPSEEK_API_KEY"),
            ),
        ),
        (
            &[("MOONSHOT_API_KEY", "k"), ("MOONSHOT_MODEL", "kimi")],
            spec(
                "https://api.moonshot.cn/v1",
                "kimi",
                Some("MOONSHOT_API_KEY"),
            ),
        ),
        (
            &[("ANTHROPIC_API_KEY", "k"), ("DASHSCOPE_API_KEY", "k")],
            ModelSpec {
                provider: Provider::Anthropic,
                ..spec(
                    "https://api.anthropic.com",
                    "claude-sonnet-4-5",
                    Some("ANTHROPIC_API_KEY"),
                )
            },
        ),
        (
            &[
                ("OLLAMA_BASE_URL", "http://h:11434/v1"),
                ("OLLAMA_MODEL", "m"),
            ],
            spec("http://h:11434/v1", "m", None),
        ),
    ];
    for (variables, expected) in table {
        assert_eq!(
            select_model(&settings, None, &environment(variables)).unwrap(),
            expected
        );
    }
    let no_name = environment(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://h/v1")]);
    assert_eq!(
        select_model(&settings, None, &no_name)
            .unwrap_err()
            .to_string(),
        "OPENAI_BASE_URL is set, but OPENAI_MODEL is not"
    );
    let bad_url = environment(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "h")]);
    assert_eq!(
        select_model(&settings, None, &bad_url)
            .unwrap_err()
            .place
            .as_deref(),
        Some("OPENAI_BASE_URL")
    );
}

#[test]
fn a_provider_and_a_name_are_a_model() {
    let settings = user(TWO).unwrap();
    /// Choice, variables, dialect, address, name, variable of the key.
    type Row = (
        &'static str,
        &'static [(&'static str, &'static str)],
        Provider,
        &'static str,
        &'static str,
        Option<&'static str>,
    );
    let table: [Row; 7] = [
        (
            "anthropic/claude-x",
            &[],
            Provider::Anthropic,
            "https://api.anthropic.com",
            "claude-x",
            Some("ANTHROPIC_API_KEY"),
        ),
        (
            "openai/gpt-x",
            &[("OPENAI_API_KEY", "k")],
            Provider::Openai,
            "https://api.openai.com/v1",
            "gpt-x",
            Some("OPENAI_API_KEY"),
        ),
        (
            "openrouter/vendor/name:free",
            &[],
            Provider::Openai,
            "https://openrouter.ai/api/v1",
            "vendor/name:free",
            Some("OPENROUTER_API_KEY"),
        ),
        (
            "ollama/qwen2.5:7b",
            &[("OPENAI_API_KEY", "k")],
            Provider::Openai,
            "http://127.0.0.1:11434/v1",
            "qwen2.5:7b",
            None,
        ),
        (
            "openai/m",
            &[("OPENAI_BASE_URL", "http://h/v1")],
            Provider::Openai,
            "http://h/v1",
            "m",
            None,
        ),
        (
            "https://api.anthropic.com/v1#claude-x",
            &[("ANTHROPIC_API_KEY", "k")],
            Provider::Anthropic,
            "https://api.anthropic.com/v1",
            "claude-x",
            Some("ANTHROPIC_API_KEY"),
        ),
        (
            "http://127.0.0.1:1#claude-x",
            &[("ANTHROPIC_API_KEY", "k")],
            Provider::Openai,
            "http://127.0.0.1:1",
            "claude-x",
            None,
        ),
    ];
    for (choice, variables, provider, url, model, key) in table {
        let expected = ModelSpec {
            api_key_env: key.map(str::to_owned),
            ..ModelSpec::new("flag", provider, url, model)
        };
        let env = environment(variables);
        let spec = select_model(&settings, Some(choice), &env).unwrap();
        assert_eq!(spec, expected, "{choice}");
    }
    for unknown in ["openai/", "nobody/m", "/m"] {
        let error = select_model(&settings, Some(unknown), &environment(&[])).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::UnknownModel, "{unknown}");
    }
}

#[test]
fn without_any_model_three_ways_are_told() {
    let settings = resolve(&Layers::default()).unwrap();
    let error = select_model(&settings, None, &environment(&[])).unwrap_err();
    assert!(error.is_no_model());
    assert_eq!(error.to_tool_error().code, ErrorCode::NoModel);
    assert_eq!(
        error.report(),
        "no model configured\nhint: three ways to go on:
  1. export OPENAI_API_KEY (or ANTHROPIC_API_KEY, DEEPSEEK_API_KEY, DASHSCOPE_API_KEY, MOONSHOT_API_KEY, ZHIPUAI_API_KEY, OPENROUTER_API_KEY)
  2. name a server: --model http://127.0.0.1:11434/v1#MODEL, or --model ollama/MODEL
  3. put a [models.KEY] with provider, base_url, model and api_key_env into your muster.toml"
    );
}

#[test]
fn a_key_goes_only_where_it_is_meant_to_go() {
    let settings = resolve(&Layers::default()).unwrap();
    let key_for = |url: &str, variables: &'static [(&str, &str)]| {
        let choice = format!("{url}#m");
        select_model(&settings, Some(&choice), &environment(variables))
            .unwrap()
            .api_key_env
    };
    let openai: &'static [(&str, &str)] = &[("OPENAI_API_KEY", "k")];
    let own: &'static [(&str, &str)] = &[("OPENAI_API_KEY", "k"), ("MUSTER_API_KEY", "k")];
    let moved: &'static [(&str, &str)] = &[
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_BASE_URL", "http://proxy:8/v1"),
    ];
    let name = |text: &str| Some(text.to_owned());
    assert_eq!(
        key_for("https://API.openai.com/v2", openai),
        name("OPENAI_API_KEY")
    );
    assert_eq!(key_for("http://api.openai.com/v1", openai), None);
    assert_eq!(
        key_for("https://api.openai.com.evil.example/v1", openai),
        None
    );
    assert_eq!(key_for("http://127.0.0.1:8080/v1", openai), None);
    assert_eq!(
        key_for("http://127.0.0.1:8080/v1", own),
        name("MUSTER_API_KEY")
    );
    assert_eq!(key_for("http://proxy:8/v1", moved), name("OPENAI_API_KEY"));
    assert_eq!(key_for("https://api.openai.com/v1", moved), None);
}

#[test]
fn a_key_is_read_from_its_variable_and_never_told() {
    let spec = |variable: Option<&str>| ModelSpec {
        api_key_env: variable.map(str::to_owned),
        ..ModelSpec::new("m", Provider::Openai, "http://h/v1", "x")
    };
    let env = environment(&[
        ("GOOD", " tok123456789\n"),
        ("BAD", "tok123456789 x"),
        ("EMPTY", " "),
    ]);
    assert_eq!(api_key(&spec(None), &env).unwrap(), None);
    assert_eq!(
        api_key(&spec(Some("GOOD")), &env).unwrap(),
        Some("tok123456789".into())
    );
    let bad = api_key(&spec(Some("BAD")), &env).unwrap_err();
    assert!(!bad.report().contains("tok123456789"), "{}", bad.report());
    for missing in ["EMPTY", "NOT_THERE"] {
        let error = api_key(&spec(Some(missing)), &env).unwrap_err();
        assert_eq!(error.kind, ConfigErrorKind::NoKey);
        assert_eq!(
            error.to_string(),
            format!("model `m` wants its key in `{missing}`, which is not set")
        );
    }
}

proptest! {
    #[test]
    fn no_text_of_a_workspace_loosens_a_limit_or_brings_a_model(
        head in prop_oneof![Just(""), Just("[limits]\n")],
        lines in proptest::collection::vec(
            prop_oneof![
                Just("[limits]".to_owned()),
                Just("[models.x]".to_owned()),
                Just("[confinement]".to_owned()),
                ("(max_concurrent|max_live|grace_seconds|timeout_seconds_max|result_bytes)", 0u32..9_000)
                    .prop_map(|(key, value)| format!("{key} = {value}")),
                "(admission|require|language|default_model|api_key) = \"(queue|none|pidns|zh|x)\"",
                "[\\[\\]{}=\"'#a-z0-9_. -]{0,20}",
            ],
            0..8,
        )
    ) {
        let own = "[limits]\nmax_concurrent = 100\n[confinement]\nrequire = \"subreaper\"\n";
        let before = user(own).unwrap();
        if let Ok(after) = resolve(&layers(own, &format!("{head}{}", lines.join("\n")))) {
            prop_assert_eq!(after.models.len(), 0);
            prop_assert_eq!(after.default_model, None);
            prop_assert!(after.require >= before.require);
            let (new, old) = (&after.limits, &before.limits);
            prop_assert!(new.max_concurrent <= old.max_concurrent);
            prop_assert!(new.max_live <= old.max_live);
            prop_assert!(new.max_concurrent <= new.max_live);
            prop_assert!(new.grace_seconds <= old.grace_seconds);
            prop_assert!(new.timeout_seconds_max <= old.timeout_seconds_max);
            prop_assert!(new.timeout_seconds_min <= new.timeout_seconds_max);
            prop_assert!(new.result_bytes <= old.result_bytes);
            prop_assert_eq!(new.admission, old.admission);
        }
    }
}

#[test]
fn a_workspace_narrows_files_and_network_and_adds_to_what_is_hidden() {
    let own = "[confinement]\nnetwork = \"model\"\ngit = \"writable\"\nsecret_paths = [\"~/keys\"]\n\
               env_allow = [\"CI_TOKEN\"]\n";
    let resolved = resolve(&layers(
        own,
        "[confinement]\nwrite = \"scope\"\nnetwork = \"none\"\ngit = \"read\"\n\
         secret_paths = [\"/srv/keys\", \"~/keys\"]\n",
    ))
    .unwrap();
    assert_eq!(resolved.warnings, Vec::<String>::new());
    let expected = JobConfinement {
        write: WriteMode::Scope,
        network: NetworkMode::None,
        git: GitMode::Read,
        env_allow: vec!["CI_TOKEN".to_owned()],
    };
    assert_eq!(resolved.job_confinement(), expected);
    assert_eq!(resolved.secret_paths, ["~/keys", "/srv/keys"]);
    let looser = resolve(&layers(
        "[confinement]\nwrite = \"scope\"\nnetwork = \"model\"\n",
        "[confinement]\nwrite = \"workspace\"\nnetwork = \"full\"\ngit = \"writable\"\n",
    ))
    .unwrap();
    // Each of the three, and that there is a way to accept them.
    assert_eq!(looser.warnings.len(), 4, "{:?}", looser.warnings);
    let expected = JobConfinement {
        write: WriteMode::Scope,
        network: NetworkMode::Model,
        ..JobConfinement::default()
    };
    assert_eq!(looser.job_confinement(), expected);
}
