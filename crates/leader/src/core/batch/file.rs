//! Reads a batch file: JSON Lines, each an item. Every line is looked at, so that all that is wrong
//! is told at once.

use protocol::batch::BatchLine;
use protocol::error::{ErrorCode, ToolError};
use protocol::limits::{BATCH_ITEMS_MAX, BATCH_LINE_BYTES_MAX};
use protocol::tool::leader::CreateSubAgentParams;
use protocol::tool::{parse_params_by, schema_of};
use serde_json::Value;

/// Problems that one error tells; the rest is counted.
const PROBLEMS_SHOWN_MAX: usize = 20;
/// Characters of one problem that are told.
const PROBLEM_CHARS_MAX: usize = 400;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Its number, from 1.
    pub line: usize,
    /// What.
    pub what: String,
    /// What to try; may be empty.
    pub hint: String,
}

impl Problem {
    /// A problem of a line without a hint.
    pub fn new(line: usize, what: impl Into<String>) -> Self {
        Problem {
            line,
            what: what.into(),
            hint: String::new(),
        }
    }

    /// A refusal as a problem of the line that it is about.
    pub fn of(line: usize, error: &ToolError) -> Self {
        Problem {
            line,
            what: error.message.clone(),
            hint: error.hint.clone(),
        }
    }

    fn shown(&self) -> String {
        let whole = match self.hint.as_str() {
            "" => self.what.clone(),
            hint => format!("{} ({hint})", self.what),
        };
        let mut text: String = whole.chars().take(PROBLEM_CHARS_MAX).collect();
        if text.len() < whole.len() {
            text.push('…');
        }
        format!("line {}: {text}", self.line)
    }
}

/// All problems of a file as one refusal; none when there are none.
pub fn refusal(name: &str, mut problems: Vec<Problem>) -> Option<ToolError> {
    problems.sort();
    problems.dedup();
    if problems.is_empty() {
        return None;
    }
    let mut text = format!(
        "{name} is not fit to run, and nothing was started; {} of it {} wrong:",
        match problems.len() {
            1 => "one thing".to_owned(),
            count => format!("{count} things"),
        },
        if problems.len() == 1 { "is" } else { "are" },
    );
    for problem in problems.iter().take(PROBLEMS_SHOWN_MAX) {
        text.push_str("\n  ");
        text.push_str(&problem.shown());
    }
    if problems.len() > PROBLEMS_SHOWN_MAX {
        text.push_str(&format!(
            "\n  and {} more",
            problems.len() - PROBLEMS_SHOWN_MAX
        ));
    }
    Some(ToolError::new(ErrorCode::InvalidParameters, text).hint(
        "each line is one JSON object, such as {\"id\": \"a\", \"task\": \"…\", \"needs\": []}",
    ))
}

/// A line that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: usize,
    /// What it says.
    pub parsed: BatchLine,
    /// Its text, without space around it.
    pub text: String,
}

/// An item of a batch whose line holds together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its line's number, from 1.
    pub line: usize,
    /// What it is called.
    pub id: String,
    /// SHA-256 of its line and of its task file.
    pub sha256: String,
    /// What it needs, by id.
    pub needs: Vec<String>,
    /// The create that it stands for.
    pub create: CreateSubAgentParams,
}

/// Reads all lines. A byte order mark, carriage returns before newlines and empty lines are an
/// editor's and mean nothing.
pub fn lines(bytes: &[u8]) -> (Vec<Line>, Vec<Problem>) {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let schema = schema_of::<BatchLine>();
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    for (at, raw) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if raw.trim_ascii().is_empty() {
            continue;
        }
        if lines.len() + problems.len() >= BATCH_ITEMS_MAX {
            let what = format!("there are more than {BATCH_ITEMS_MAX} items, the most for a batch");
            problems.push(Problem::new(at + 1, what));
            break;
        }
        match read(at + 1, raw.trim_ascii(), &schema) {
            Ok(line) => lines.push(line),
            Err(problem) => problems.push(problem),
        }
    }
    if lines.is_empty() && problems.is_empty() {
        problems.push(Problem::new(1, "there is no item: the file is empty"));
    }
    (lines, problems)
}

fn read(number: usize, raw: &[u8], schema: &Value) -> Result<Line, Problem> {
    if raw.len() > BATCH_LINE_BYTES_MAX {
        let what = format!(
            "it has {} bytes; the most for a line is {BATCH_LINE_BYTES_MAX}",
            raw.len()
        );
        return Err(Problem {
            hint: "put long material into files of the workspace, or use `task_file`".to_owned(),
            ..Problem::new(number, what)
        });
    }
    let text = std::str::from_utf8(raw).map_err(|error| {
        let at = error.valid_up_to() + 1;
        Problem::new(
            number,
            format!("it is not UTF-8: its bad byte is number {at}"),
        )
    })?;
    let value: Value = serde_json::from_str(text).map_err(|error| {
        // Its own line number is always 1 here.
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or_default();
        Problem::new(
            number,
            format!(
                "it is no JSON object: {why}, at character {}",
                error.column()
            ),
        )
    })?;
    let parsed = parse_params_by::<BatchLine>(value, schema).map_err(|error| {
        let error = ToolError {
            message: error.message.replacen("the arguments must", "it must", 1),
            ..error
        };
        Problem::of(number, &error)
    })?;
    Ok(Line {
        number,
        parsed,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &[u8]) -> Vec<String> {
        let (_, problems) = lines(text);
        problems.iter().map(Problem::shown).collect()
    }

    #[test]
    fn what_editors_add_means_nothing() {
        let text =
            "\u{FEFF}{\"id\":\"a\",\"task\":\"t\"}\r\n\n  \t\r\n{\"id\":\"b\",\"task\":\"文\"}";
        let (read, problems) = lines(text.as_bytes());
        assert_eq!(problems, []);
        let seen: Vec<_> = read
            .iter()
            .map(|line| (line.number, line.parsed.id.as_str(), line.text.len()))
            .collect();
        assert_eq!(seen, [(1, "a", 21), (4, "b", 23)]);
    }

    #[test]
    fn each_bad_line_is_told_with_its_number() {
        assert_eq!(told(b""), ["line 1: there is no item: the file is empty"]);
        assert_eq!(
            told(b"\n \n"),
            ["line 1: there is no item: the file is empty"]
        );
        let bad = b"{\"id\":\"a\",\"task\":\"t\"} x\n[]\nnull\n{\"id\"\n{\"id\":\"caf\xe9\"}\n{\"id\":\"b\",\"tsak\":\"t\"}\n";
        let told = told(bad);
        assert_eq!(told.len(), 6, "{told:?}");
        for (at, words) in [
            (
                0,
                "line 1: it is no JSON object: trailing characters, at character 23",
            ),
            (1, "line 2: it must be an object, not a list"),
            (2, "line 3: it must be an object, not null"),
            (3, "line 4: it is no JSON object: EOF"),
            (4, "line 5: it is not UTF-8: its bad byte is number 11"),
            (5, "line 6: unknown parameter `tsak` (did you mean `task`?"),
        ] {
            assert!(told[at].starts_with(words), "{}", told[at]);
        }
    }

    #[test]
    fn a_long_line_and_too_many_lines_are_refused() {
        let long = format!("{{\"id\":\"a\",\"task\":\"{}\"}}", "x".repeat(10 << 20));
        let words = format!("line 1: it has {} bytes; the most", long.len());
        assert!(told(long.as_bytes())[0].starts_with(&words));
        let many = "{\"id\":\"a\",\"task\":\"t\"}\n".repeat(BATCH_ITEMS_MAX);
        assert_eq!(told(many.as_bytes()), Vec::<String>::new());
        let more = format!("{many}{{\"id\":\"a\",\"task\":\"t\"}}\n");
        assert_eq!(told(more.as_bytes()).len(), 1);
    }

    #[test]
    fn a_refusal_tells_so_many_and_counts_the_rest() {
        assert_eq!(refusal("f", Vec::new()), None);
        let many = (1..=25)
            .rev()
            .map(|line| Problem::new(line, "bad"))
            .collect();
        let error = refusal("the batch file `f`", many).unwrap();
        assert_eq!(error.code, ErrorCode::InvalidParameters);
        assert!(
            error
                .message
                .starts_with("the batch file `f` is not fit to run")
        );
        assert!(error.message.contains("\n  line 1: bad\n  line 2: bad\n"));
        assert!(
            error.message.ends_with("\n  line 20: bad\n  and 5 more"),
            "{error}"
        );
    }
}
