//! What a task is told of the results that it builds on.

use super::prompts::Prompts;

/// The results of one earlier task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildsOn {
    /// What that task is called in its batch.
    pub item: String,
    /// What it was to do, in a few words.
    pub summary: String,
    /// Where its results lie, relative to the workspace.
    pub deliverables_dir: String,
}

impl Prompts {
    /// The task's text with the places of the results that it builds on; the text alone where
    /// there are none.
    pub fn task_that_builds_on(&self, task: &str, places: &[BuildsOn]) -> String {
        if places.is_empty() {
            return task.to_owned();
        }
        let lines: Vec<String> = places
            .iter()
            .map(|place| {
                self.phrase(
                    "builds_on_place",
                    &[
                        ("item", &place.item),
                        ("summary", &place.summary),
                        ("deliverables_dir", &place.deliverables_dir),
                    ],
                )
            })
            .collect();
        self.file(
            "builds_on.md",
            &[("task", task.trim_end()), ("places", &lines.join("\n"))],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Language;

    #[test]
    fn a_task_names_where_the_results_lie_that_it_builds_on() {
        let places = [BuildsOn {
            item: "parse {x}".to_owned(),
            summary: "Parse it".to_owned(),
            deliverables_dir: "out/parse".to_owned(),
        }];
        let text = Prompts::builtin(Language::En).task_that_builds_on("Join {them}.\n", &places);
        assert!(
            text.starts_with("Join {them}.\n\n[Results to build on]\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n- parse {x} (Parse it): out/parse"),
            "{text}"
        );
        let text = Prompts::builtin(Language::Zh).task_that_builds_on("合并。", &places);
        assert!(text.contains("【可用的前置结果】"), "{text}");
        assert!(text.contains("out/parse"), "{text}");
        let alone = Prompts::builtin(Language::En).task_that_builds_on("t\n", &[]);
        assert_eq!(alone, "t\n");
    }
}
