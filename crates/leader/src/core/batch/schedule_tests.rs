use super::*;
use proptest::prelude::*;

fn entry(needs: &[usize]) -> Entry {
    Entry {
        needs: needs.to_vec(),
        start: Start::Run(Want::Anew),
        places: None,
    }
}

fn all_next(schedule: &mut Schedule, live_max: usize) -> Vec<usize> {
    std::iter::from_fn(|| schedule.next(live_max)).collect()
}

#[test]
fn a_diamond_runs_from_its_base() {
    let (mut it, skipped) =
        Schedule::new(vec![entry(&[1, 2]), entry(&[3]), entry(&[3]), entry(&[])]);
    assert_eq!(skipped, []);
    assert_eq!(all_next(&mut it, 9), [3]);
    assert_eq!(it.settled(3, true), []);
    assert_eq!(all_next(&mut it, 9), [1, 2]);
    assert_eq!(it.settled(1, true), []);
    assert_eq!(all_next(&mut it, 9), Vec::<usize>::new());
    assert_eq!(it.settled(2, true), []);
    assert_eq!(all_next(&mut it, 9), [0]);
    assert!(!it.is_over());
    it.settled(0, true);
    assert!(it.is_over());
}

#[test]
fn who_needs_a_failed_item_is_skipped_with_its_cause_and_the_others_run() {
    let (mut it, _) = Schedule::new(vec![
        entry(&[]),
        entry(&[0]),
        entry(&[1]),
        entry(&[]),
        entry(&[3, 0]),
    ]);
    assert_eq!(all_next(&mut it, 9), [0, 3]);
    let skip = |item, cause| Skipped {
        item,
        reason: SkipReason::DependencyFailed,
        cause: Some(cause),
    };
    let mut skipped = it.settled(0, false);
    skipped.sort_by_key(|skipped| skipped.item);
    assert_eq!(skipped, [skip(1, 0), skip(2, 1), skip(4, 0)]);
    assert_eq!(it.settled(0, false), [], "an end counts once");
    assert_eq!(it.settled(3, true), []);
    assert!(it.is_over());
}

#[test]
fn what_an_earlier_run_settled_is_not_run_and_counts() {
    let settled = |good| Entry {
        start: Start::Settled { good },
        ..entry(&[])
    };
    let again = Entry {
        start: Start::Run(Want::Again),
        ..entry(&[])
    };
    let (mut it, skipped) = Schedule::new(vec![
        settled(true),
        settled(false),
        entry(&[0]),
        entry(&[1]),
        again,
    ]);
    assert_eq!(skipped.iter().map(|s| s.item).collect::<Vec<_>>(), [3]);
    // Who goes on comes before who is new, wherever it stands.
    assert_eq!(all_next(&mut it, 9), [4, 2]);
}

#[test]
fn a_stop_begins_nothing_more() {
    let (mut it, _) = Schedule::new(vec![entry(&[]), entry(&[]), entry(&[0]), entry(&[])]);
    assert_eq!(all_next(&mut it, 2), [0, 1]);
    let skipped = it.stop(SkipReason::FailFast, Some(1));
    assert_eq!(skipped.iter().map(|s| s.item).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(it.settled(0, true), []);
    assert_eq!((it.next(9), it.is_over(), it.live()), (None, false, 1));
    it.settled(1, false);
    assert!(it.is_over());
}

#[test]
fn two_that_write_the_same_place_run_one_after_the_other() {
    let at = |dir: Option<&str>, paths: &[&str]| Entry {
        places: places(
            dir,
            &paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>(),
        ),
        ..entry(&[])
    };
    let (mut it, _) = Schedule::new(vec![
        at(Some("out/a"), &["src/"]),
        at(Some("out/b"), &["src/lib"]),
        at(Some("out/c"), &["docs"]),
        at(None, &["./src"]),
        at(None, &[]),
    ]);
    assert_eq!(all_next(&mut it, 9), [0, 2, 4]);
    it.settled(0, true);
    assert_eq!(all_next(&mut it, 9), [1]);
    it.settled(1, true);
    assert_eq!(all_next(&mut it, 9), [3]);
}

proptest! {
    /// Whatever needs what, and however each ends: every item is begun once or skipped once, never
    /// before its needs have succeeded, and the schedule comes to its end.
    #[test]
    fn every_item_is_begun_or_skipped_once(
        needs in proptest::collection::vec(proptest::collection::vec(0usize..40, 0..4), 1..40),
        good in proptest::collection::vec(proptest::bool::weighted(0.8), 40),
        live_max in 1usize..6,
        stop_after in proptest::option::of(0usize..40),
    ) {
        let entries: Vec<Entry> = needs
            .iter()
            .enumerate()
            // Needs of earlier items alone make no circle.
            .map(|(at, needs)| {
                let mut needs: Vec<usize> = needs.iter().filter(|need| **need < at).copied().collect();
                needs.sort_unstable();
                needs.dedup();
                entry(&needs)
            })
            .collect();
        let count = entries.len();
        let edges: Vec<Vec<usize>> = entries.iter().map(|entry| entry.needs.clone()).collect();
        let (mut it, at_once) = Schedule::new(entries);
        prop_assert!(at_once.is_empty());
        let (mut begun, mut skipped, mut done) = (vec![0; count], vec![0; count], vec![false; count]);
        let mut live = std::collections::VecDeque::new();
        let mut ends = 0;
        while !it.is_over() {
            while let Some(item) = it.next(live_max) {
                begun[item] += 1;
                prop_assert!(edges[item].iter().all(|need| done[*need]));
                live.push_back(item);
            }
            prop_assert!(!live.is_empty() && live.len() <= live_max);
            prop_assert_eq!(live.len(), it.live());
            let item = live.pop_front().unwrap();
            done[item] = good[item];
            let mut more = it.settled(item, good[item]);
            ends += 1;
            if stop_after == Some(ends) {
                more.extend(it.stop(SkipReason::LeaderStopped, None));
            }
            for skip in more {
                skipped[skip.item] += 1;
            }
        }
        for item in 0..count {
            prop_assert_eq!(begun[item] + skipped[item], 1, "item {}", item);
        }
    }
}
