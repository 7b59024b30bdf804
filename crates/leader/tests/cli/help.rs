//! What people read first, pinned word for word.

use std::path::PathBuf;

use crate::support::Place;

/// Set it to write the pages anew.
const UPDATE: &str = "UPDATE_HELP";

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/help")
        .join(format!("{name}.txt"))
}

#[test]
fn help_says_what_it_always_said() {
    let place = Place::new("");
    let commands = [
        "run", "serve", "ps", "status", "logs", "kill", "resume", "wait", "demo", "config",
        "doctor", "trust",
    ];
    let pages = commands
        .iter()
        .map(|command| (*command, vec![*command, "--help"]))
        .chain([("leader", vec!["--help"])]);
    for (name, arguments) in pages {
        let ended = place.run(&arguments);
        assert_eq!(
            (ended.code(), ended.stderr.as_str()),
            (Some(0), ""),
            "{name}"
        );
        for line in ended.stdout.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(page(name), &ended.stdout).unwrap();
        }
        let pinned = std::fs::read_to_string(page(name)).unwrap_or_default();
        assert_eq!(
            ended.stdout, pinned,
            "the help of {name} has changed; run this test with {UPDATE}=1 if it is meant"
        );
    }
}

#[test]
fn every_exit_code_stands_in_the_help_of_run() {
    let help = Place::new("").run(&["run", "--help"]).stdout;
    for (code, meaning) in protocol::exit::LEADER_TABLE {
        assert!(help.contains(&format!("{code:>3}  {meaning}\n")), "{code}");
    }
}

#[test]
fn the_version_is_one_line_on_stdout() {
    let ended = Place::new("").run(&["--version"]);
    assert_eq!(ended.code(), Some(0));
    assert_eq!(
        ended.stdout,
        format!("leader {}\n", env!("CARGO_PKG_VERSION"))
    );
}
