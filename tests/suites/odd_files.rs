//! Files as they lie in real workspaces, and what the file tools of a worker do with them when a
//! model asks over a connection.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Turn, Workspace, run, tool_texts};

const DONE: &str = "tried every file that the task named, and wrote down what came of each";

/// What the tools answered to these calls, each in a turn of its own.
fn answers(workspace: &Workspace, calls: &[(&str, Value)]) -> Vec<String> {
    let mut turns: Vec<Turn> = calls
        .iter()
        .map(|(name, arguments)| Turn::call(name, arguments.clone()))
        .collect();
    turns.push(Turn::finish(DONE));
    let server = ModelServer::start(Behaviour::Turns(turns));
    workspace.configure(&format!(
        "[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    workspace.write("task.md", "try every file");
    let mut worker = workspace.command("worker");
    worker.args(["--task-file", "task.md", "--deliverables-dir", "out"]);
    let ended = run(&mut worker, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let mut texts = tool_texts(&workspace.conversation("out"));
    texts.truncate(calls.len());
    texts
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    let replacement = json!({"old_string": old, "new_string": new});
    (
        "edit_file",
        json!({"file_path": path, "replacements": [replacement]}),
    )
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({"path": path}))
}

fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"file_path": path, "content": "new\n"}))
}

fn bytes(workspace: &Workspace, name: &str) -> Vec<u8> {
    std::fs::read(workspace.join(name)).unwrap()
}

/// A file, what it holds, the edit, and what it holds then.
type Case = (
    &'static str,
    &'static [u8],
    &'static str,
    &'static str,
    &'static [u8],
);

#[test]
fn an_edit_leaves_every_other_byte_as_it_was() {
    // Reading showed LF where CRLF stood, and no edit ever matched; a mark that nobody sees did
    // the same to the first line; editors added a newline at the end; an edit of plain letters made
    // a thousand accented ones elsewhere in the file unreadable, unseen for a long time.
    let files: [Case; 6] = [
        (
            "crlf",
            b"a\r\nb\r\nc\r\n",
            "a\nb",
            "a\nB",
            b"a\r\nB\r\nc\r\n",
        ),
        (
            "mark",
            b"\xef\xbb\xbfx=1\n",
            "x=1",
            "x=2",
            b"\xef\xbb\xbfx=2\n",
        ),
        ("end", b"a\nb", "b", "c", b"a\nc"),
        ("gone", b"a\nc", "c", "", b"a\n"),
        ("latin1", b"caf\xe9\nx=1\n", "x=1", "x=2", b"caf\xe9\nx=2\n"),
        (
            "gbk",
            b"\xc4\xe3\xba\xc3\nx=1\n",
            "x=1",
            "x=2",
            b"\xc4\xe3\xba\xc3\nx=2\n",
        ),
    ];
    let workspace = Workspace::new();
    let mut calls = Vec::new();
    for (name, before, old, new, _) in files {
        workspace.write(name, before);
        calls.push(edit(name, old, new));
    }
    calls.push(read("mark"));
    let texts = answers(&workspace, &calls);
    for (at, (name, .., after)) in files.iter().enumerate() {
        assert_eq!(bytes(&workspace, name), *after, "{name}: {}", texts[at]);
        let answer: Value = serde_json::from_str(&texts[at]).unwrap();
        assert_eq!(answer["success"], true, "{name}: {answer}");
    }
    assert!(!texts[6].contains('\u{feff}'), "{:?}", texts[6]);
    assert!(texts[6].contains("x=2"), "{:?}", texts[6]);
}

#[test]
fn an_edit_that_is_not_clear_changes_nothing() {
    // The first of several matches was changed, and success reported.
    let workspace = Workspace::new();
    let text = "a\nx=1\nb\nx=1\nc\nx=1\n";
    workspace.write("f", text);
    let calls = [
        edit("f", "x=1", "x=2"),
        edit("f", "", "x=2"),
        edit("f", "x=1", "x=1"),
    ];
    let texts = answers(&workspace, &calls);
    assert!(texts[0].contains("3 times"), "{texts:?}");
    assert!(texts[0].contains("2, 4, 6"), "{texts:?}");
    for text in &texts {
        let answer: Value = serde_json::from_str(text).unwrap();
        assert_eq!(answer["success"], false, "{answer}");
    }
    assert_eq!(workspace.read("f"), text);
}

#[test]
fn a_pipe_in_the_workspace_blocks_nothing() {
    // To open a named pipe waits for its other end, for ever, and no time-out stood in the way.
    let workspace = Workspace::new();
    workspace.write("f", "needle\n");
    let pipe = workspace.join("p");
    let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let calls = [
        read("p"),
        edit("p", "a", "b"),
        write("p"),
        ("search_workspace", json!({"query": "needle"})),
    ];
    let texts = answers(&workspace, &calls);
    for text in &texts[..3] {
        let answer: Value = serde_json::from_str(text).unwrap();
        assert_eq!(answer["error"]["code"], "not_a_file", "{answer}");
    }
    assert!(texts[3].contains("f:1: needle"), "{texts:?}");
}

#[test]
fn modes_of_files_survive_edits_and_writes() {
    // A temporary file took the place of a script, which could not be run any more.
    let workspace = Workspace::new();
    let mut calls = Vec::new();
    for (name, mode) in [("run.sh", 0o755), ("private", 0o600)] {
        let path = workspace.write(name, "#!/bin/sh\necho old\n");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        calls.push(edit(name, "old", "older"));
        calls.push(write(name));
    }
    answers(&workspace, &calls);
    for (name, mode) in [("run.sh", 0o755), ("private", 0o600)] {
        let found = std::fs::metadata(workspace.join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{name}");
        assert_eq!(workspace.read(name), "new\n");
    }
}

#[test]
fn names_that_are_no_text_are_listed_and_read_as_listed() {
    // A name that is no UTF-8 broke a listing; one of an invisible character led a walker round
    // and round.
    let long = "n".repeat(255);
    let names: [(&[u8], &str); 6] = [
        (b"bad\xff.txt", "bad\\xff.txt"),
        ("\u{feff}/x".as_bytes(), "\\xef\\xbb\\xbf/x"),
        ("\u{3000}/x".as_bytes(), "\\xe3\\x80\\x80/x"),
        (b"-rf", "-rf"),
        (b"a\nb", "a\\x0ab"),
        (long.as_bytes(), &long),
    ];
    let workspace = Workspace::new();
    let mut calls = vec![("search_workspace", json!({"query": "*", "kind": "files"}))];
    for (name, shown) in names {
        let path = workspace.join(OsStr::from_bytes(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "needle\n").unwrap();
        calls.push(read(shown));
    }
    let texts = answers(&workspace, &calls);
    for (at, (_, shown)) in names.iter().enumerate() {
        assert!(texts[0].contains(&format!("{shown}\n")), "{}", texts[0]);
        assert!(texts[at + 1].contains("needle"), "{}", texts[at + 1]);
    }
}

#[test]
fn writes_that_must_fail_are_told_and_the_run_goes_on() {
    // Errors must reach the model and not end its worker.
    let workspace = Workspace::new();
    workspace.write("f", "file");
    for name in ["d", "closed"] {
        std::fs::create_dir(workspace.join(name)).unwrap();
    }
    let closed = workspace.join("closed");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    let long = "n".repeat(300);
    let paths = ["d", "f/x", &long, "", "a\0b", "closed/x"];
    let calls: Vec<_> = paths.iter().map(|path| write(path)).collect();
    let texts = answers(&workspace, &calls);
    // No mode of a directory keeps root out.
    // SAFETY: the call has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    for (path, text) in paths.iter().zip(&texts) {
        let answer: Value = serde_json::from_str(text).unwrap();
        let refused = *path != "closed/x" || !root;
        assert_eq!(answer["success"], !refused, "{path:?}: {answer}");
        assert_eq!(answer["error"].is_object(), refused, "{path:?}: {answer}");
    }
    assert_eq!(workspace.read("f"), "file");
    let mut names: Vec<_> = std::fs::read_dir(workspace.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["closed", "d", "f", "out", "task.md"]);
}
