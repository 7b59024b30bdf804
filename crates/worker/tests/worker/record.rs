//! What becomes of the record when the agent or the disk works against it.

use std::fs;
use std::process::Command;

use protocol::status::{Status, StopReason};
use serde_json::{Value, json};

use crate::harness::{Place, assert_paired, finishes, runs, stderr, stdout};

#[test]
fn a_deleted_folder_is_made_again() {
    let place = Place::new(json!([runs("rm -rf out"), finishes(true)]));
    let output = place.run().args(["--output-format=json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["deliverables_files"], json!([]));
    let conversation = place.conversation();
    assert_paired(&conversation);
    assert_eq!(conversation.status, Status::Completed);
    let folded = protocol::journal::fold(&place.journal(), &conversation.task_id).unwrap();
    assert_eq!(folded.file, conversation);
}

#[test]
fn a_file_in_the_place_of_the_folder_is_a_failure_with_a_reason() {
    let place = Place::new(json!([runs("rm -rf out; echo mine > out"), finishes(true)]));
    let output = place.run().args(["--output-format=json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["stop_reason"], StopReason::BadResultFile.as_str());
    assert!(
        result["result_summary"]
            .as_str()
            .unwrap()
            .contains(".subagent")
    );
    let mine = fs::read_to_string(place.path("ws/out")).unwrap();
    assert_eq!(mine, "mine\n");
}

#[test]
fn at_a_limit_of_the_disk_the_last_whole_conversation_stands() {
    // A file-size limit stands in for a full disk: the write fails in the middle all the same,
    // and once left a torn file that no one could read.
    let long = "x".repeat(20_000);
    let replies: Vec<Value> = (0..10).map(|n| runs(&format!(": {n} {long}"))).collect();
    let place = Place::new(json!(replies));
    let mut limited = Command::new("sh");
    let worker = place.run();
    limited
        .args(["-c", "ulimit -f 128; exec \"$0\" \"$@\""])
        .arg(worker.get_program())
        .args(worker.get_args())
        .current_dir(worker.get_current_dir().unwrap())
        .env_clear();
    for (name, value) in worker.get_envs() {
        limited.env(name, value.unwrap());
    }
    let output = limited.arg("--output-format=json").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["stop_reason"], StopReason::DiskLimit.as_str());
    // The file that stands is whole, and no temporary one is left beside it.
    place.conversation();
    let left: Vec<String> = fs::read_dir(place.own_file(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tmp"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    let task_id = place.conversation().task_id;
    let folded = protocol::journal::fold(&place.journal(), &task_id).unwrap();
    assert_eq!(folded.skipped, 0, "no torn line");
}
