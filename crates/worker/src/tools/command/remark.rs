//! What a command's output says that a model may misread.

/// Words of a program, and what they mean here.
const MEANINGS: &[(&[&str], &str)] = &[
    (
        &["Read-only file system", "只读文件系统"],
        "\"Read-only file system\": this agent's confinement allows writing only in its write \
         scope; write there, or report that the task needs `write_paths`",
    ),
    (
        &["Device or resource busy", "设备或资源忙"],
        "\"Device or resource busy\": this agent's confinement protects the path from being \
         replaced or removed; use another path",
    ),
    (
        &[
            "fork: Resource temporarily unavailable",
            "fork: retry: Resource temporarily unavailable",
            "Cannot fork",
            "can't fork",
        ],
        "no further process could be started: the limit of processes is reached; use fewer jobs \
         at once",
    ),
];

/// The remarks on an output, each once.
pub(crate) fn remarks(output: &str) -> impl Iterator<Item = &'static str> {
    MEANINGS
        .iter()
        .filter(move |(words, _)| words.iter().any(|word| output.contains(word)))
        .map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confinement_is_named_where_it_shows() {
        let count = |text: &str| remarks(text).count();
        assert_eq!(count("all is well"), 0);
        let output = "touch: cannot touch '/x': Read-only file system\n";
        assert_eq!(count(&output.repeat(3)), 1);
        assert!(remarks(output).all(|remark| remark.contains("confinement")));
        assert_eq!(
            count("mv: cannot move '.git' to 'x': Device or resource busy"),
            1
        );
        for full in [
            "sh: 1: Cannot fork",
            "bash: fork: retry: Resource temporarily unavailable",
        ] {
            assert_eq!(count(full), 1, "{full}");
        }
    }
}
