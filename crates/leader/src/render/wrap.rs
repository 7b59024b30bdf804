//! Long lines broken between words, so that a terminal need not break them inside one.

use crate::render::width::char_columns;

/// Below this many columns nothing is broken: it would be a column of words.
const COLUMNS_MIN: usize = 40;
/// How much further in a broken line goes on, where it says nothing better itself.
const HANG_COLUMNS: usize = 2;
/// Where the explanations of options begin in a page of help.
const HELP_COLUMNS: usize = 10;

/// A text whose lines take at most `width` columns, as far as its words allow. A line goes on
/// below where its own text begins: behind the number of a list, or the name of a table's row.
pub fn wrap(text: &str, width: usize) -> String {
    if width < COLUMNS_MIN {
        return text.to_owned();
    }
    let broken = text.split('\n').map(|line| {
        let hang = hang_of(line).min(width / 2);
        break_line(line, width, hang)
    });
    broken.collect::<Vec<_>>().join("\n")
}

/// A page of help whose lines take at most `width` columns. Its paragraphs are filled anew: they
/// were written to another width.
pub fn wrap_help(page: &str, width: usize) -> String {
    let mut filled: Vec<String> = Vec::new();
    let mut before = None;
    for line in page.split('\n') {
        let indent = indent_of(line);
        let is_prose = [0, HELP_COLUMNS].contains(&indent)
            && !line.trim().is_empty()
            && !line.trim_start().starts_with("- ")
            && !line.trim_start().starts_with('[');
        match filled.last_mut() {
            Some(last) if is_prose && before == Some(indent) => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => filled.push(line.trim_end().to_owned()),
        }
        before = is_prose.then_some(indent);
    }
    let broken = filled
        .iter()
        .map(|line| break_line(line, width, indent_of(line)));
    broken.collect::<Vec<_>>().join("\n")
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The column in which the rest of a line goes on.
fn hang_of(line: &str) -> usize {
    let seen = without_colours(line);
    let indent = indent_of(&seen);
    let text = &seen[indent..];
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    if digits > 0 && text[digits..].starts_with(". ") {
        return indent + digits + 2;
    }
    // A name, two spaces or more, a value: columns of a table.
    if let Some((name, value)) = text.split_once("  ") {
        let columns = |text: &str| text.chars().map(char_columns).sum::<usize>();
        let gap = indent_of(value) + 2;
        return indent + columns(name) + gap;
    }
    indent + HANG_COLUMNS
}

fn break_line(line: &str, width: usize, hang: usize) -> String {
    let mut done = String::with_capacity(line.len());
    let mut used = 0;
    for piece in pieces(line) {
        let (gap, word) = piece.split_at(indent_of(piece));
        let columns = seen_columns(word);
        // What fits on no line, such as a path to be copied, is left to the terminal where it is.
        let fits_below = hang + columns <= width || used > width;
        if !done.is_empty() && fits_below && used + gap.len() + columns > width {
            done.push('\n');
            done.push_str(&" ".repeat(hang));
            used = hang + columns;
        } else {
            done.push_str(gap);
            used += gap.len() + columns;
        }
        done.push_str(word);
    }
    done
}

/// Each word of a line with the spaces before it.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let gap = indent_of(rest);
        let end = rest[gap..].find(' ').map_or(rest.len(), |at| gap + at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

fn seen_columns(word: &str) -> usize {
    without_colours(word).chars().map(char_columns).sum()
}

/// The text without our colours, which take no column: `ESC [ … m` (ECMA-48, SGR).
fn without_colours(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, code)) = rest.split_once("\x1b[") {
        seen.push_str(before);
        rest = code.split_once('m').map_or("", |(_, after)| after);
    }
    seen.push_str(rest);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::style::{Style, Tone};

    #[test]
    fn lines_are_broken_between_words_and_go_on_below_their_text() {
        let table = [
            ("", ""),
            ("short\n", "short\n"),
            (
                "hint: a word and another word and a third one, and so on and on",
                "hint: a word and another word and a\n  third one, and so on and on",
            ),
            (
                "  1. export ONE_VARIABLE (or ANOTHER_VARIABLE, A_THIRD)",
                "  1. export ONE_VARIABLE (or\n     ANOTHER_VARIABLE, A_THIRD)",
            ),
            (
                "config       /home/user/muster.toml (not there), /w/muster.toml",
                "config       /home/user/muster.toml (not\n             there), /w/muster.toml",
            ),
            (
                "error: /a/path/that/is/longer/than/the/whole/terminal/is is gone",
                "error: /a/path/that/is/longer/than/the/whole/terminal/is\n  is gone",
            ),
            (
                "生成 接口 文档 生成接口文档生成接口文档 文档文档文档",
                "生成 接口 文档 生成接口文档生成接口文档\n  文档文档文档",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(wrap(text, 40), expected);
            assert_eq!(wrap(text, 39 - 1), text, "too narrow for any of it");
        }
    }

    #[test]
    fn colours_take_no_columns() {
        let mark = Style::Colour.paint(Tone::Bad, "error:");
        let name = Style::Colour.paint(Tone::Strong, "model   ");
        let fits = format!("{mark} exactly as long as forty columns!");
        assert_eq!(wrap(&fits, 40), fits);
        assert_eq!(
            wrap(
                &format!("{name} one two three four five six seven eight"),
                40
            ),
            format!("{name} one two three four five six\n         seven eight")
        );
    }

    #[test]
    fn paragraphs_of_help_are_filled_and_the_rest_keeps_its_lines() {
        let page = "Usage: x [OPTIONS]\n\nOptions:\n      --flag <N>\n          One two three four \
                    five\n          six. Default: 1.\n          \n          [possible values: a]\n\
                    \nExamples:\n  x --flag 1\n  x --flag 2\n";
        let expected = "Usage: x [OPTIONS]\n\nOptions:\n      --flag <N>\n          One two three \
                        four\n          five six. Default:\n          1.\n\n          [possible \
                        values:\n          a]\n\nExamples:\n  x --flag 1\n  x --flag 2\n";
        assert_eq!(wrap_help(page, 28), expected);
    }
}
