use super::*;
use crate::core::batch::needs::sample;
use crate::core::lifecycle::State;
use crate::core::record::AgentTag;
use crate::core::test_kit::{job, task};
use protocol::job::{ItemTag, JobSpec};
use protocol::manifest::MANIFEST_FORMAT;

fn conversation(number: u32) -> ConversationId {
    ConversationId::new(format!("conv_{number:08}")).unwrap()
}

/// Run `number` of the item `id`, in conversation 1.
fn ran(number: u32, id: &str, end: End) -> FoldedAgent {
    let job = JobSpec {
        item: Some(ItemTag {
            id: id.to_owned(),
            sha256: format!("sha of {id}"),
        }),
        ..job(number)
    };
    FoldedAgent {
        tag: AgentTag::of(&job),
        task: "t".to_owned(),
        deliverables: "/w/out".into(),
        write_paths: Vec::new(),
        state: State::Ended(end),
        process: None,
        confinement: serde_json::Value::Null,
        report: None,
        result: None,
        told: false,
        job,
    }
}

fn manifest(items: Vec<ManifestItem>) -> Manifest {
    Manifest {
        format: MANIFEST_FORMAT,
        conversation: conversation(1),
        earlier_conversations: Vec::new(),
        started_at: String::new(),
        ended_at: None,
        success: None,
        exit_code: None,
        items,
        other: serde_json::Map::new(),
    }
}

fn record(id: &str, run: Option<u32>, status: ItemStatus) -> ManifestItem {
    ManifestItem {
        task_id: run.map(task),
        attempts: u32::from(run.is_some()),
        status,
        deliverables_dir: run.map(|run| format!("kept/{run}")),
        ..ManifestItem::pending(id, &format!("sha of {id}"), Vec::new(), "s")
    }
}

fn decided(
    items: &[Item],
    records: Vec<ManifestItem>,
    agents: &[&FoldedAgent],
    retry_failed: bool,
) -> Result<Vec<Begin>, String> {
    let manifest = manifest(records);
    let known = Known {
        manifest: &manifest,
        agents,
        live: &BTreeSet::new(),
    };
    beginnings(items, known, retry_failed)
        .map(|all| all.into_iter().map(|one| one.begin).collect())
        .map_err(|error| error.message)
}

#[test]
fn each_end_has_its_rule_and_the_log_goes_before_the_manifest() {
    let again = |run| Begin::Again(task(run));
    let terminated = |reason| End::Terminated(reason);
    let table = [
        (
            End::Completed,
            Begin::KeepEnd(task(1)),
            Begin::KeepEnd(task(1)),
        ),
        (End::Interrupted, again(1), again(1)),
        (terminated(StopReason::LeaderStopped), again(1), again(1)),
        (terminated(StopReason::LeaderDied), again(1), again(1)),
        (
            terminated(StopReason::ConversationClosed),
            again(1),
            again(1),
        ),
        (
            terminated(StopReason::Terminated),
            Begin::KeepEnd(task(1)),
            again(1),
        ),
        (End::TimedOut, Begin::KeepEnd(task(1)), again(1)),
        (
            End::Failed(StopReason::NoFinish),
            Begin::KeepEnd(task(1)),
            again(1),
        ),
    ];
    for (end, plain, retried) in table {
        let agent = ran(1, "a", end);
        let items = [sample(1, "a", &[])];
        // The manifest lags behind: it knows of the agent, and not of its end.
        let lagging = || vec![record("a", Some(1), ItemStatus::Accepted)];
        for (retry, expected) in [(false, &plain), (true, &retried)] {
            let begun = decided(&items, lagging(), &[&agent], retry).unwrap();
            assert_eq!(begun, std::slice::from_ref(expected), "{end:?} {retry}");
        }
        // One that has the record keeps it.
        if plain == Begin::KeepEnd(task(1)) {
            let there = vec![record("a", Some(1), ItemStatus::Failed)];
            let begun = decided(&items, there, &[&agent], false).unwrap();
            assert_eq!(begun, [Begin::KeepRecord], "{end:?}");
        }
    }
}

#[test]
fn the_last_run_decides_also_one_that_was_taken_up_by_hand() {
    let first = ran(1, "a", End::Interrupted);
    let mut second = ran(2, "a", End::Interrupted);
    second.job.resumes = Some(task(1));
    let mut by_hand = ran(3, "a", End::Completed);
    by_hand.job.resumes = Some(task(2));
    by_hand.job.conversation = Some(conversation(9));
    let items = [sample(1, "a", &[])];
    let all = [&first, &second, &by_hand];
    let begun = decided(&items, Vec::new(), &all[..2], false).unwrap();
    assert_eq!(begun, [Begin::Again(task(2))]);
    let begun = decided(&items, Vec::new(), &all, false).unwrap();
    assert_eq!(begun, [Begin::KeepEnd(task(3))]);
    // An item of the same name in another batch is another item.
    let mut foreign = ran(7, "a", End::Completed);
    foreign.job.conversation = Some(conversation(8));
    let begun = decided(&items, Vec::new(), &[&foreign], false).unwrap();
    assert_eq!(begun, [Begin::Anew { reuse: None }]);
}

#[test]
fn what_no_log_tells_of_is_taken_from_the_manifest() {
    let anew = |dir: Option<&str>| Begin::Anew {
        reuse: dir.map(str::to_owned),
    };
    for (status, run, plain, retried) in [
        (ItemStatus::Pending, None, anew(None), anew(None)),
        (ItemStatus::Skipped, None, anew(None), anew(None)),
        (ItemStatus::Refused, None, anew(None), anew(None)),
        (
            ItemStatus::Completed,
            Some(1),
            Begin::KeepRecord,
            Begin::KeepRecord,
        ),
        (
            ItemStatus::Failed,
            Some(1),
            Begin::KeepRecord,
            anew(Some("kept/1")),
        ),
        (
            ItemStatus::Interrupted,
            Some(1),
            anew(Some("kept/1")),
            anew(Some("kept/1")),
        ),
        (
            ItemStatus::Accepted,
            Some(1),
            anew(Some("kept/1")),
            anew(Some("kept/1")),
        ),
    ] {
        for (retry, expected) in [(false, plain), (true, retried)] {
            let items = [sample(1, "a", &[])];
            let begun = decided(&items, vec![record("a", run, status)], &[], retry).unwrap();
            assert_eq!(begun, [expected], "{status} {retry}");
        }
    }
}

#[test]
fn a_changed_line_runs_anew_unless_it_is_done_and_none_that_ran_may_go() {
    let changed = |id: &str| Item {
        sha256: "another".to_owned(),
        ..sample(1, id, &[])
    };
    let failed = ran(1, "a", End::Failed(StopReason::NoFinish));
    let begun = decided(&[changed("a")], Vec::new(), &[&failed], false).unwrap();
    let reuse = Some("out/1".to_owned());
    assert_eq!(begun, [Begin::Anew { reuse }]);
    let done = ran(1, "a", End::Completed);
    let refused = decided(&[changed("a")], Vec::new(), &[&done], false).unwrap_err();
    assert!(refused.ends_with("have changed: `a`"), "{refused}");
    let kept = vec![record("a", Some(1), ItemStatus::Completed)];
    let refused = decided(&[changed("a")], kept, &[], true).unwrap_err();
    assert!(refused.ends_with("have changed: `a`"), "{refused}");
    let refused = decided(&[sample(1, "b", &[])], Vec::new(), &[&done], false).unwrap_err();
    assert!(refused.ends_with("any more: `a`"), "{refused}");
    let never_ran = vec![record("a", None, ItemStatus::Pending)];
    let begun = decided(&[sample(1, "b", &[])], never_ran, &[], false).unwrap();
    assert_eq!(begun, [Begin::Anew { reuse: None }]);
}

#[test]
fn an_item_whose_leader_lives_is_left_alone() {
    let agent = ran(1, "a", End::Interrupted);
    let manifest = manifest(Vec::new());
    let known = Known {
        manifest: &manifest,
        agents: &[&agent],
        live: &BTreeSet::from([conversation(1)]),
    };
    let error = beginnings(&[sample(1, "a", &[])], known, true).unwrap_err();
    assert_eq!(error.code, ErrorCode::AlreadyEnded);
    assert!(
        error.hint.contains("leader wait conv_00000001"),
        "{}",
        error.hint
    );
}
