//! What may know what: the rules of ARCHITECTURE.md that a machine can hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Every Rust file below a folder of the repository.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![root().join(folder)];
    while let Some(folder) = queue.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                queue.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether a file holds nothing but tests.
fn is_test(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    let in_folder = file.components().any(|part| part.as_os_str() == "tests");
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || in_folder && file.starts_with(root().join("crates"))
}

/// A file's text up to its tests, without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn crates_depend_only_where_the_architecture_allows_it() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("protocol", &[][..]),
        ("confine", &[]),
        ("leader", &["protocol", "confine"]),
        ("worker", &["protocol", "confine"]),
        ("system-tests", &["protocol"]),
        ("benches", &["protocol", "confine", "leader"]),
    ]);
    let metadata = metadata();
    let ours: Vec<&Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["source"].is_null())
        .collect();
    assert_eq!(ours.len(), allowed.len());
    for package in ours {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let dependency = dependency["name"].as_str().unwrap();
            if allowed.contains_key(dependency) {
                assert!(
                    allowed[name].contains(&dependency),
                    "{name} -> {dependency}"
                );
            }
        }
    }
}

#[test]
fn the_leader_has_no_model_client_and_nobody_has_a_second_tls() {
    let metadata = metadata();
    let leader = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "leader")
        .unwrap();
    for dependency in leader["dependencies"].as_array().unwrap() {
        let name = dependency["name"].as_str().unwrap();
        assert!(
            !["reqwest", "rustls", "hyper"].contains(&name),
            "leader -> {name}"
        );
    }
    // One crate with default features brings these, and four times the start cost with them.
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        assert!(
            !["aws-lc-sys", "openssl-sys", "native-tls", "h2"].contains(&name),
            "{name}"
        );
    }
}

#[test]
fn the_pure_modules_touch_no_clock_file_socket_or_thread() {
    let impure = [
        "std::fs",
        "std::net",
        "std::thread",
        "std::process",
        "std::env",
        "Instant::now",
        "SystemTime",
        "tokio::",
        "nix::",
        "libc::",
        "std::os::unix",
        "crate::os",
        "crate::store",
        "crate::io",
        "crate::model",
        "crate::tools",
        "crate::faces",
        "crate::driver",
    ];
    let pure = [
        "crates/leader/src/core",
        "crates/worker/src/core",
        "crates/protocol/src",
    ];
    for folder in pure {
        let files = sources(folder);
        assert!(!files.is_empty(), "{folder} is gone");
        for file in files.into_iter().filter(|file| !is_test(file)) {
            let code = code(&file);
            for word in impure {
                assert!(!code.contains(word), "{} has `{word}`", file.display());
            }
        }
    }
}

#[test]
fn only_confine_forks_or_restricts() {
    let forbidden = [
        "pre_exec",
        "fork(",
        "unshare",
        "setrlimit",
        "prctl",
        "landlock",
        "nix::mount",
        "nix::sched",
    ];
    for folder in [
        "crates/leader/src",
        "crates/worker/src",
        "crates/protocol/src",
    ] {
        for file in sources(folder) {
            let code = code(&file);
            for word in forbidden {
                assert!(!code.contains(word), "{} has `{word}`", file.display());
            }
        }
    }
}

#[test]
fn the_top_level_holds_what_it_may_and_nothing_else() {
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "crates",
        "prompts",
        "sub_agent_results",
        "tests",
        "benches",
        "docs",
        "examples",
        "README.md",
        "ARCHITECTURE.md",
        "SPECIFICATION.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "rust-toolchain.toml",
        "rustfmt.toml",
        "clippy.toml",
    ];
    let output = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .unwrap();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let top = line.split('/').next().unwrap();
        assert!(top.starts_with('.') || allowed.contains(&top), "{top}");
    }
}

/// Whether a text names a path of somebody's machine, which means nothing on another.
fn names_a_machine(text: &str) -> bool {
    // In two pieces, so that this file names none.
    [["/wo", "rk/"], ["/ro", "ot/"]].iter().any(|pieces| {
        let path = pieces.concat();
        text.match_indices(&path)
            // Not the middle of a longer path, such as a user's `~/work/`.
            .any(|(at, _)| {
                !text[..at].ends_with(|c: char| c.is_alphanumeric() || "~._-}".contains(c))
            })
    })
}

/// Whether a text names an accident by a code, `X-YY-01`, instead of in words.
fn names_a_code(text: &str) -> bool {
    let is_code = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        matches!(parts[..], ["O", area, number]
            if area.len() == 2
                && area.chars().all(|c| c.is_ascii_uppercase())
                && number.len() == 2
                && number.chars().all(|c| c.is_ascii_digit()))
    };
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .any(is_code)
}

#[test]
fn what_a_machine_or_a_list_elsewhere_knows_is_told_apart() {
    for named in [
        ["see /wo", "rk/x"],
        ["at `/ro", "ot/.cache`"],
        ["(/wo", "rk/main)"],
    ] {
        assert!(names_a_machine(&named.concat()), "{named:?}");
    }
    for free in ["/home/me/work/x", "~/work/", "network/", "/rootless/"] {
        assert!(!names_a_machine(free), "{free}");
    }
    assert!(names_a_code(&["the accident O-", "PR-01."].concat()));
    for free in ["O-RDONLY", "O-PR-1", "UTF-8", "NO-OP-01"] {
        assert!(!names_a_code(free), "{free}");
    }
}

#[test]
fn files_speak_of_the_product_alone() {
    let output = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output()
        .unwrap();
    let mut looked_at = 0;
    for name in String::from_utf8_lossy(&output.stdout).lines() {
        // Not all are texts, and one may be deleted already.
        let Ok(text) = fs::read_to_string(root().join(name)) else {
            continue;
        };
        looked_at += 1;
        for (number, line) in text.lines().enumerate() {
            assert!(
                !names_a_machine(line) && !names_a_code(line),
                "{name}:{}: {line}",
                number + 1
            );
        }
    }
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn lock_files_name_no_registry_but_the_public_ones() {
    // Somebody's mirror in a lock file makes a clean checkout of everybody else fail.
    let public = [
        "https://github.com/rust-lang/crates.io-index",
        "https://registry.npmjs.org/",
    ];
    let mut seen = 0;
    for name in ["Cargo.lock", "tests/peers/package-lock.json"] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let sources = text.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with("source = ") || line.starts_with("\"resolved\":")
        });
        for line in sources {
            seen += 1;
            assert!(
                public.iter().any(|registry| line.contains(registry)),
                "{name}: {line}"
            );
        }
    }
    assert!(seen > 0, "no sources were found to look at");
}

/// Files that are longer than the aim of 400 lines without their tests. The list may only shrink.
const LONG_FILES: &[&str] = &[];

#[test]
fn files_keep_to_the_aim_of_four_hundred_lines() {
    let mut long: Vec<String> = Vec::new();
    for folder in ["crates", "tests/src"] {
        for file in sources(folder) {
            let in_tests = is_test(&file);
            let text = fs::read_to_string(&file).unwrap();
            let lines = text
                .lines()
                .take_while(|line| *line != "#[cfg(test)]")
                .count();
            if lines > 400 && !in_tests {
                long.push(file.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    let known: Vec<String> = LONG_FILES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(long, known);
}

#[test]
fn every_test_that_the_specification_names_is_there() {
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    let suites: String = sources("tests/suites")
        .iter()
        .map(|file| {
            let module = file.file_stem().unwrap().to_string_lossy().into_owned();
            let code = fs::read_to_string(file).unwrap();
            code.lines()
                .filter_map(|line| line.trim().strip_prefix("fn "))
                .filter_map(|line| line.split('(').next())
                .map(|name| format!("suites::{module}::{name}\n"))
                .collect::<String>()
        })
        .collect();
    let mut seen = 0;
    for name in text
        .split('`')
        .filter(|name| name.starts_with("suites::") && *name != "suites::module::test")
    {
        let whole = name.matches("::").count() > 1;
        let found = suites.lines().any(|line| {
            if whole {
                line == name
            } else {
                line.starts_with(&format!("{name}::"))
            }
        });
        assert!(found, "SPECIFICATION.md names `{name}`, which is not there");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}
