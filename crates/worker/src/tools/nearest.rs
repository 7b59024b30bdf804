//! The place of a text that is most like one that does not occur in it.

use std::collections::HashMap;

use similar::{Algorithm, capture_diff_slices, diff_ratio};

use super::limits;

/// How alike two texts must be to be worth showing.
const LIKENESS_MIN: f32 = 0.6;

/// Some lines of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nearest {
    /// The number of the first, from 1.
    pub(crate) first_line: usize,
    /// The number of the last.
    pub(crate) last_line: usize,
    /// The lines.
    pub(crate) text: String,
    /// Whether they differ from what was sought in blanks alone.
    pub(crate) only_blanks: bool,
}

/// Finds the lines most like `sought`; none when nothing is.
pub(crate) fn nearest(text: &str, sought: &str) -> Option<Nearest> {
    let lines: Vec<&str> = text.lines().take(limits::NEAREST_LINES_MAX).collect();
    let wanted: Vec<&str> = sought.lines().collect();
    if lines.is_empty() || wanted.is_empty() {
        return None;
    }
    if let Some(start) = same_but_for_blanks(&lines, &wanted) {
        return Some(excerpt(&lines, start, wanted.len(), true));
    }
    let (anchor_at, anchor) = wanted
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().len())?;
    let wanted_chars = compared_chars(wanted.iter().copied());
    candidates(&lines, anchor)
        .into_iter()
        .map(|line| line.saturating_sub(anchor_at))
        .map(|start| {
            let end = lines.len().min(start + wanted.len());
            (likeness(&lines[start..end], &wanted_chars), start)
        })
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, start)| excerpt(&lines, start, wanted.len(), false))
}

fn same_but_for_blanks(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    let squeezed: Vec<String> = wanted.iter().map(|line| squeeze(line)).collect();
    if squeezed.iter().all(String::is_empty) || wanted.len() > lines.len() {
        return None;
    }
    let lines: Vec<String> = lines.iter().map(|line| squeeze(line)).collect();
    lines
        .windows(squeezed.len())
        .position(|window| window == squeezed)
}

fn squeeze(line: &str) -> String {
    line.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The lines that share most pairs of characters with the anchor.
fn candidates(lines: &[&str], anchor: &str) -> Vec<usize> {
    let sought = pairs(anchor);
    let sought_count: usize = sought.values().sum();
    let mut scored: Vec<(usize, usize)> = lines
        .iter()
        .enumerate()
        .filter_map(|(index, line)| {
            let own = pairs(line);
            let shared: usize = own
                .iter()
                .map(|(pair, count)| sought.get(pair).map_or(0, |sought| *sought.min(count)))
                .sum();
            let count: usize = own.values().sum();
            // In thousandths, so that it can be sorted; twice the shared of all pairs.
            let all = sought_count + count;
            (shared > 0 && all > 0).then(|| (shared * 2_000 / all, index))
        })
        .collect();
    scored.sort_by_key(|(score, index)| (std::cmp::Reverse(*score), *index));
    scored.truncate(limits::NEAREST_PLACES_MAX);
    scored.into_iter().map(|(_, index)| index).collect()
}

fn pairs(line: &str) -> HashMap<(char, char), usize> {
    let chars: Vec<char> = line
        .trim()
        .chars()
        .take(limits::NEAREST_CHARS_MAX)
        .collect();
    let mut pairs = HashMap::new();
    for pair in chars.windows(2) {
        *pairs.entry((pair[0], pair[1])).or_default() += 1;
    }
    pairs
}

fn compared_chars<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<char> {
    lines
        .flat_map(|line| line.chars().chain(std::iter::once('\n')))
        .take(limits::NEAREST_CHARS_MAX)
        .collect()
}

fn likeness(lines: &[&str], wanted: &[char]) -> f32 {
    let own = compared_chars(lines.iter().copied());
    let operations = capture_diff_slices(Algorithm::Myers, wanted, &own);
    diff_ratio(&operations, wanted.len(), own.len())
}

fn excerpt(lines: &[&str], start: usize, count: usize, only_blanks: bool) -> Nearest {
    let end = lines.len().min(start + count);
    let shown_end = end.min(start + limits::NEAREST_SHOWN_LINES_MAX);
    let mut text = String::new();
    for line in &lines[start..shown_end] {
        text.extend(line.chars().take(limits::NEAREST_CHARS_MAX));
        text.push('\n');
    }
    Nearest {
        first_line: start + 1,
        last_line: shown_end,
        text,
        only_blanks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "fn main() {\n    let total = price * count;\n    println!(\"{total}\");\n}\n";

    #[test]
    fn a_text_that_is_nearly_there_is_found() {
        assert_eq!(
            nearest(TEXT, "let totl = price * count;\nprintln!(\"{total}\")"),
            Some(Nearest {
                first_line: 2,
                last_line: 3,
                text: "    let total = price * count;\n    println!(\"{total}\");\n".to_owned(),
                only_blanks: false,
            })
        );
    }

    #[test]
    fn wrong_indentation_is_told_apart() {
        let found = nearest(
            TEXT,
            "\tlet total = price  * count;\n\tprintln!(\"{total}\");",
        )
        .unwrap();
        assert!(found.only_blanks);
        assert_eq!((found.first_line, found.last_line), (2, 3));
    }

    #[test]
    fn what_is_like_nothing_is_not_guessed() {
        assert_eq!(nearest(TEXT, "zzzzqqqq wwww"), None);
        assert_eq!(nearest("", "a"), None);
        assert_eq!(nearest(TEXT, "\n"), None);
        assert_eq!(nearest("a\n", &"line\n".repeat(500)), None);
    }

    #[test]
    fn a_large_text_takes_bounded_time() {
        let begun = std::time::Instant::now();
        let text: String = (0..20_000)
            .map(|n| format!("let value_{n} = {n} * {n};\n"))
            .collect();
        let sought: String = (0..60)
            .map(|n| format!("let other_{n} = {n} + {n};\n"))
            .collect();
        let _either_way = nearest(&text, &sought);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }
}
