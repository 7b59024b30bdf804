//! How the items of a batch hang together: which needs which, and what stands against it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use protocol::error::closest;

use crate::core::batch::file::{Item, Problem};

/// Ids of a circle that are told.
const CIRCLE_SHOWN_MAX: usize = 12;

/// Finds what each item needs, by its place in the list.
///
/// # Errors
/// With every id that is there twice or not at all, every circle, and every directory or number
/// that two items claim.
pub fn link(items: &[Item]) -> Result<Vec<Vec<usize>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        if let Some(first) = by_id.get(item.id.as_str()) {
            let what = format!(
                "the id `{}` is that of line {} too",
                item.id, items[*first].line
            );
            problems.push(Problem::new(item.line, what));
        } else {
            by_id.insert(&item.id, at);
        }
    }
    let mut needs = Vec::new();
    for item in items {
        let mut found = Vec::new();
        for id in &item.needs {
            match by_id.get(id.as_str()) {
                Some(at) => found.push(*at),
                None => problems.push(unknown_need(item, id, items)),
            }
        }
        found.sort_unstable();
        found.dedup();
        needs.push(found);
    }
    problems.extend(circles(items, &needs));
    problems.extend(shared_dirs(items));
    problems.extend(shared_numbers(items));
    match problems.is_empty() {
        true => Ok(needs),
        false => Err(problems),
    }
}

fn unknown_need(item: &Item, id: &str, items: &[Item]) -> Problem {
    let near = closest(id, items.iter().map(|item| item.id.as_str()));
    Problem {
        hint: near.map_or(String::new(), |near| format!("did you mean `{near}`?")),
        ..Problem::new(
            item.line,
            format!("`needs` names `{id}`, which no line has"),
        )
    }
}

/// Every circle, once each, at the line of its first item. Items are walked along their needs with
/// a stack of our own, for a chain may be as long as the file.
fn circles(items: &[Item], needs: &[Vec<usize>]) -> Vec<Problem> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Not; items.len()];
    let mut problems = Vec::new();
    for start in 0..items.len() {
        if seen[start] != Seen::Not {
            continue;
        }
        let mut way = vec![(start, 0)];
        seen[start] = Seen::OnTheWay;
        while let Some((at, next)) = way.last_mut() {
            let Some(need) = needs[*at].get(*next).copied() else {
                seen[*at] = Seen::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match seen[need] {
                Seen::Not => {
                    seen[need] = Seen::OnTheWay;
                    way.push((need, 0));
                }
                Seen::OnTheWay => {
                    let from = way.iter().position(|(at, _)| *at == need).unwrap_or(0);
                    let circle: Vec<usize> = way[from..].iter().map(|(at, _)| *at).collect();
                    problems.push(circle_problem(items, &circle));
                }
                Seen::Done => {}
            }
        }
    }
    problems
}

fn circle_problem(items: &[Item], circle: &[usize]) -> Problem {
    let mut names: Vec<String> = circle
        .iter()
        .take(CIRCLE_SHOWN_MAX)
        .map(|at| format!("`{}`", items[*at].id))
        .collect();
    if circle.len() > CIRCLE_SHOWN_MAX {
        names.push(format!("{} more", circle.len() - CIRCLE_SHOWN_MAX));
    }
    let first = circle.first().copied().unwrap_or(0);
    names.push(format!("`{}`", items[first].id));
    Problem {
        hint: "take one of these needs away".to_owned(),
        ..Problem::new(
            items[first].line,
            format!(
                "items need each other in a circle: {}",
                names.join(" needs ")
            ),
        )
    }
}

/// Deliverables dirs that are, hold or lie in another item's: the files of the one would be listed
/// as the other's.
fn shared_dirs(items: &[Item]) -> Vec<Problem> {
    let mut taken: BTreeMap<PathBuf, &Item> = BTreeMap::new();
    let mut problems = Vec::new();
    let dirs: Vec<(PathBuf, &Item)> = items
        .iter()
        .filter_map(|item| {
            let text = item.create.deliverables_dir.as_deref()?;
            Some((Path::new(text).components().collect(), item))
        })
        .collect();
    for (dir, item) in &dirs {
        taken.entry(dir.clone()).or_insert(item);
    }
    for (dir, item) in &dirs {
        let other = dir.ancestors().find_map(|above| {
            let holder = taken.get(above)?;
            (holder.line != item.line).then_some(holder)
        });
        if let Some(other) = other {
            let theirs = other.create.deliverables_dir.as_deref().unwrap_or_default();
            let what = format!(
                "its deliverables_dir `{}` is or lies in that of line {}, `{theirs}`",
                dir.display(),
                other.line
            );
            problems.push(Problem::new(item.line, what));
        }
    }
    problems
}

fn shared_numbers(items: &[Item]) -> Vec<Problem> {
    let mut taken: HashMap<(Option<&str>, i64), usize> = HashMap::new();
    let mut problems = Vec::new();
    for item in items {
        let Some(number) = item.create.agent_id else {
            continue;
        };
        let key = (item.create.role_id.as_deref(), number);
        if let Some(line) = taken.get(&key) {
            let what = format!("agent_id {number} is that of line {line} too");
            problems.push(Problem::new(item.line, what));
        } else {
            taken.insert(key, item.line);
        }
    }
    problems
}

#[cfg(test)]
pub(crate) fn sample(line: usize, id: &str, needs: &[&str]) -> Item {
    Item {
        line,
        id: id.to_owned(),
        sha256: format!("sha of {id}"),
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        create: protocol::tool::leader::CreateSubAgentParams {
            task: id.to_owned(),
            summary: Some(id.to_owned()),
            ..Default::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(items: &[Item]) -> Vec<String> {
        let problems = link(items).unwrap_err();
        problems
            .iter()
            .map(|problem| format!("{}: {} {}", problem.line, problem.what, problem.hint))
            .collect()
    }

    #[test]
    fn a_diamond_is_linked() {
        let items = [
            sample(1, "top", &["left", "right", "left"]),
            sample(2, "left", &["base"]),
            sample(3, "right", &["base"]),
            sample(4, "base", &[]),
        ];
        assert_eq!(link(&items), Ok(vec![vec![1, 2], vec![3], vec![3], vec![]]));
    }

    #[test]
    fn what_does_not_hang_together_is_told_by_line() {
        let items = [
            sample(1, "parse", &[]),
            sample(2, "parse", &["prase"]),
            sample(3, "self", &["self"]),
        ];
        assert_eq!(
            told(&items),
            [
                "2: the id `parse` is that of line 1 too ",
                "2: `needs` names `prase`, which no line has did you mean `parse`?",
                "3: items need each other in a circle: `self` needs `self` take one of these needs away",
            ]
        );
    }

    #[test]
    fn a_circle_is_told_as_a_path_once() {
        let items = [
            sample(1, "in", &["a"]),
            sample(2, "a", &["b"]),
            sample(3, "b", &["c"]),
            sample(4, "c", &["a"]),
        ];
        assert_eq!(
            told(&items),
            [
                "2: items need each other in a circle: `a` needs `b` needs `c` needs `a` take one of these needs away"
            ]
        );
        // A chain as long as a file may be is walked without the call stack.
        let long: Vec<Item> = (0..10_000)
            .map(|n| sample(n + 1, &n.to_string(), &[&((n + 1) % 10_000).to_string()]))
            .collect();
        let told = told(&long);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("needs 9988 more needs `0`"), "{}", told[0]);
    }

    #[test]
    fn two_items_share_no_directory_and_no_number() {
        let with = |line, dir: &str, number| {
            let mut item = sample(line, &line.to_string(), &[]);
            item.create.deliverables_dir = Some(dir.to_owned());
            item.create.agent_id = number;
            item
        };
        let items = [
            with(1, "out/a", Some(7)),
            with(2, "out/a/", None),
            with(3, "out/b", Some(7)),
            with(4, "out/b/deep", None),
            with(5, "out/bc", None),
        ];
        assert_eq!(
            told(&items),
            [
                "2: its deliverables_dir `out/a` is or lies in that of line 1, `out/a` ",
                "4: its deliverables_dir `out/b/deep` is or lies in that of line 3, `out/b` ",
                "3: agent_id 7 is that of line 1 too ",
            ]
        );
    }
}
