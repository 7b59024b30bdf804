//! Caps on what one agent may use, and variables that its commands get all the same.

use super::*;
use crate::job::Caps;

fn file(name: &str, text: &str) -> Option<ConfigFile> {
    Some(ConfigFile {
        name: name.to_owned(),
        text: text.to_owned(),
    })
}

fn layers(user: &str, workspace: &str, variables: &[(&str, &str)]) -> Layers {
    Layers {
        user: file("user.toml", user),
        workspace: file("muster.toml", workspace),
        variables: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Layers::default()
    }
}

const OWN: &str = "[confinement]\nmemory = \"2GiB\"\ncpu_seconds = 60\ndisk = 1048576\n\
                   env_allow = [\"GH_TOKEN\"]\n";

#[test]
fn a_cap_is_a_number_or_a_size() {
    let settings = resolve(&layers(OWN, "", &[])).unwrap();
    let caps = Caps {
        memory_bytes: Some(2 << 30),
        cpu_seconds: Some(60),
        disk_bytes: Some(1 << 20),
    };
    assert_eq!(settings.caps(), caps);
    assert_eq!(settings.env_allow, ["GH_TOKEN"]);
    assert_eq!(settings.sources["confinement.memory"], "user.toml:2");
    let none = resolve(&layers("", "", &[])).unwrap();
    assert!(none.caps().is_empty() && none.env_allow.is_empty());
}

#[test]
fn variables_say_them_too() {
    let variables = [
        ("MUSTER_CONFINEMENT_MEMORY", "64 MiB"),
        ("MUSTER_CONFINEMENT_CPU_SECONDS", "7"),
        ("MUSTER_CONFINEMENT_DISK", "2000000"),
        ("MUSTER_CONFINEMENT_ENV_ALLOW", "GH_TOKEN, NPM_TOKEN"),
    ];
    let settings = resolve(&layers(OWN, "", &variables)).unwrap();
    let caps = Caps {
        memory_bytes: Some(64 << 20),
        cpu_seconds: Some(7),
        disk_bytes: Some(2_000_000),
    };
    assert_eq!(settings.caps(), caps);
    assert_eq!(settings.env_allow, ["GH_TOKEN", "NPM_TOKEN"]);
}

#[test]
fn a_workspace_lowers_caps_and_gives_commands_no_variable() {
    let theirs = "[confinement]\nmemory = \"1GiB\"\ncpu_seconds = 61\ndisk = \"1MiB\"\n\
                  env_allow = [\"AWS_SECRET_ACCESS_KEY\"]\n";
    let settings = resolve(&layers(OWN, theirs, &[])).unwrap();
    let caps = Caps {
        memory_bytes: Some(1 << 30),
        cpu_seconds: Some(60),
        disk_bytes: Some(1 << 20),
    };
    assert_eq!(settings.caps(), caps);
    assert_eq!(settings.env_allow, ["GH_TOKEN"]);
    assert_eq!(
        settings.warnings,
        [
            "muster.toml:3: `confinement.cpu_seconds` is ignored: a workspace's file may only \
             tighten it, and it is 60 already (user.toml:3)",
            "muster.toml:5: `confinement.env_allow` is ignored: a workspace's file may only \
             choose the language and tighten limits and confinement; put it into your own file",
            "muster.toml: wants more than tightening; `leader trust` shows it and can accept it",
        ]
    );
    // Where there is no cap, any is tighter.
    let settings = resolve(&layers("", theirs, &[])).unwrap();
    assert_eq!(settings.memory, Some(1 << 30));
}

#[test]
fn what_is_no_cap_is_told_with_the_range() {
    for (line, message) in [
        (
            "memory = \"lots\"",
            "`confinement.memory` must be a size such as \"2GiB\", from 64 MiB to 1024 TiB, not \
             \"lots\"",
        ),
        (
            "memory = \"63MiB\"",
            "`confinement.memory` must be a size such as \"2GiB\", from 64 MiB to 1024 TiB, not \
             \"63MiB\"",
        ),
        (
            "disk = true",
            "`confinement.disk` must be a size such as \"2GiB\", from 1 MiB to 1024 TiB, not true",
        ),
        (
            "cpu_seconds = \"60\"",
            "`confinement.cpu_seconds` must be a whole number from 1 to 1073741824, not \"60\"",
        ),
        (
            "cpu_seconds = 0",
            "`confinement.cpu_seconds` must be a whole number from 1 to 1073741824, not 0",
        ),
    ] {
        let text = format!("[confinement]\n{line}");
        let error = resolve(&layers(&text, "", &[])).unwrap_err();
        assert_eq!(error.to_string(), format!("user.toml:2: {message}"));
    }
}
