//! The front matter of a `SKILL.md`: YAML between two lines `---`, of which the name and the
//! description count. Other keys are somebody else's and are passed over.

use serde::Deserialize;
use serde_saphyr::{Budget, Options};

use crate::tools::limits;

/// What a skill says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Front {
    /// Its name; none leaves it to its folder.
    pub(crate) name: Option<String>,
    /// What it is for.
    pub(crate) description: String,
}

#[derive(Debug, Default, Deserialize)]
struct Keys {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

/// Reads the front matter at the start of a file.
///
/// # Errors
/// In words, when there is none, it has no end, is too long, is no YAML, or lacks a description.
pub(crate) fn read(text: &str) -> Result<Front, String> {
    let header = header(text)?;
    let keys = match parse(header) {
        Ok(keys) => keys,
        // Real files hold `description: Use it: when asked`, which no YAML reader takes.
        Err(error) => parse(&quoted(header)).map_err(|_| error)?,
    };
    let filled = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
    Ok(Front {
        name: filled(keys.name),
        description: filled(keys.description)
            .ok_or("its front matter has no `description`, which says what it is for")?,
    })
}

/// The lines between the two marks.
fn header(text: &str) -> Result<&str, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let body = text
        .strip_prefix("---")
        .and_then(|rest| rest.strip_prefix("\r\n").or(rest.strip_prefix('\n')))
        .ok_or("it has no front matter: its first line must be `---`")?;
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok(&body[..at]);
        }
        at += line.len();
        if at > limits::SKILL_FRONT_BYTES_MAX {
            return Err(format!(
                "its front matter has more than {} bytes, or no second line `---`",
                limits::SKILL_FRONT_BYTES_MAX
            ));
        }
    }
    Err("its front matter has no end: a second line `---` is missing".to_owned())
}

fn parse(header: &str) -> Result<Keys, String> {
    if header.trim().is_empty() {
        return Ok(Keys::default());
    }
    let mut budget = Budget::default();
    budget.max_events = limits::SKILL_FRONT_EVENTS_MAX;
    let mut options = Options::default();
    options.budget = Some(budget);
    serde_saphyr::from_str_with_options(header, options).map_err(|error| {
        let words = error.to_string();
        let first = words.lines().next().unwrap_or_default();
        format!("its front matter is no valid YAML: {first}")
    })
}

/// The same with the plain values of the top level in quotes.
fn quoted(header: &str) -> String {
    header
        .lines()
        .map(|line| match line.split_once(": ") {
            Some((key, value)) if is_plain(key, value) => {
                format!("{key}: {}\n", serde_json::Value::from(value.trim()))
            }
            _ => format!("{line}\n"),
        })
        .collect()
}

fn is_plain(key: &str, value: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = value.trim_start().chars().next();
    key.chars().all(word) && begins.is_some_and(|c| !"\"'[{|>&*!%@`#".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(name: Option<&str>, description: &str) -> Front {
        Front {
            name: name.map(str::to_owned),
            description: description.to_owned(),
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        for (text, wanted) in [
            (
                "---\nname: pdf\ndescription: d\n---\nbody",
                front(Some("pdf"), "d"),
            ),
            ("\u{feff}---\r\ndescription: d\r\n---\r\n", front(None, "d")),
            (
                "---\nname: a\ndescription: Use it: when asked\nallowed-tools: [x]\n---",
                front(Some("a"), "Use it: when asked"),
            ),
            (
                "---\ndescription: >\n  two\n  lines\nmetadata:\n  v: 1\n---\n",
                front(None, "two lines\n"),
            ),
            (
                "---\nname: 123\ndescription: \"q: r\"\n---",
                front(Some("123"), "q: r"),
            ),
        ] {
            assert_eq!(read(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("---\ndescription: {}\n---\n", "x".repeat(20_000));
        for (text, words) in [
            ("", "no front matter"),
            ("# Title\n---\n", "no front matter"),
            ("---", "no front matter"),
            ("---\nname: a\n", "no end"),
            ("---\nname: a\n---\n", "no `description`"),
            ("---\n---\n", "no `description`"),
            ("---\ndescription: ' '\n---\n", "no `description`"),
            ("---\ndescription: [a\n---\n", "no valid YAML"),
            ("---\n- a\n---\n", "no valid YAML"),
            (long.as_str(), "more than"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text:.40}: {error}");
        }
    }

    #[test]
    fn aliases_that_multiply_are_refused_soon() {
        let mut text = "---\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..40 {
            let before = format!("*a{}, ", n - 1).repeat(9);
            text.push_str(&format!("a{n}: &a{n} [{before}]\n"));
        }
        text.push_str("description: d\n---\n");
        let begun = std::time::Instant::now();
        let error = read(&text).unwrap_err();
        assert!(error.contains("no valid YAML"), "{error}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }
}
