//! HTML as Markdown: the main text by the readability rules, or all of it.

use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};

use super::text::{Part, Readable};
use crate::tools::limits;

/// What is no text of a page.
const SKIPPED: &[&str] = &[
    "script", "style", "meta", "head", "noscript", "template", "svg", "iframe", "canvas", "object",
];
/// Elements that the parser closes by itself, or that hold nothing: they never nest.
const NEVER_NESTED: &[&str] = &[
    "area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta",
    "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot", "th",
    "thead", "tr", "track", "wbr",
];
/// The main text is taken for the whole page when it has at least this share of its text, as a
/// divisor: pages of references are tables and lists, of which the rules keep little.
const MAIN_SHARE: usize = 3;

/// Reads a page. A page that nests deeper than any that a person wrote is told without its marks,
/// for parsing it would take time with the square of its depth and a stack of its own.
pub(super) fn read(html: &str, address: &str, part: Part) -> Readable {
    if nesting(html) > limits::WEB_NESTING_MAX {
        return Readable {
            title: String::new(),
            text: without_marks(html),
        };
    }
    let document = Document::from(html);
    let title = document.select("title").text().trim().to_owned();
    let full = tidy(&document.md(Some(SKIPPED)));
    let main = match part {
        Part::Main => main_text(document, address),
        Part::Full => None,
    };
    Readable {
        title: title.split_whitespace().collect::<Vec<_>>().join(" "),
        text: main
            .filter(|main| main.len() >= full.len() / MAIN_SHARE)
            .unwrap_or(full),
    }
}

fn main_text(document: Document, address: &str) -> Option<String> {
    let config = Config {
        max_elements_to_parse: limits::WEB_ELEMENTS_MAX,
        text_mode: TextMode::Markdown,
        ..Config::default()
    };
    let article = Readability::with_document(document, Some(address), Some(config))
        .ok()?
        .parse()
        .ok()?;
    let text = tidy(&article.text_content);
    (!text.is_empty()).then_some(text)
}

/// A text with at most one empty line in a row, and no blanks at the ends of lines.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.trim().lines() {
        let line = line.trim_end();
        empty_lines = if line.is_empty() { empty_lines + 1 } else { 0 };
        if empty_lines < 2 {
            tidied.push_str(line);
            tidied.push('\n');
        }
    }
    tidied.trim_end().to_owned()
}

/// How deep elements lie in each other, at least roughly, without parsing.
fn nesting(html: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for tag in html.split('<').skip(1) {
        if let Some(closing) = tag.strip_prefix('/') {
            if closing.starts_with(|c: char| c.is_ascii_alphabetic()) && !never_nests(closing) {
                depth = depth.saturating_sub(1);
            }
        } else if tag.starts_with(|c: char| c.is_ascii_alphabetic()) && !never_nests(tag) {
            depth += 1;
            deepest = deepest.max(depth);
        }
    }
    deepest
}

fn never_nests(tag: &str) -> bool {
    let end = tag
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(tag.len());
    NEVER_NESTED
        .iter()
        .any(|known| known.eq_ignore_ascii_case(&tag[..end]))
}

/// The text between the marks.
fn without_marks(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        text.push(' ');
        rest = rest[at..].find('>').map_or("", |end| &rest[at + end + 1..]);
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> String {
        format!("<html><head><title>A\n title</title></head><body>{body}</body></html>")
    }

    fn read_main(body: &str) -> Readable {
        read(&page(body), "https://example.org/a/", Part::Main)
    }

    #[test]
    fn the_main_text_comes_without_menus() {
        let menu = "<nav><ul><li><a href=/x>Home</a></li><li><a href=/y>Shop</a></li></ul></nav>";
        let sentence = "<p>This is a sentence of the article, which goes on, and on, and on.</p>";
        let article = format!("<article><h1>Head</h1>{}</article>", sentence.repeat(20));
        let read = read_main(&format!("{menu}{article}<footer>Imprint</footer>"));
        assert_eq!(read.title, "A title");
        assert!(
            read.text.contains("This is a sentence of the article"),
            "{read:?}"
        );
        assert!(
            !read.text.contains("Shop") && !read.text.contains("Imprint"),
            "{read:?}"
        );
    }

    #[test]
    fn a_page_of_references_is_told_whole() {
        let entries: String = (0..60)
            .map(|n| format!("<h4><a href=\"#f{n}\">fn function_{n}(x: u32) -> u32</a></h4>"))
            .collect();
        let read = read_main(&format!("<p>Short words about it.</p><div>{entries}</div>"));
        for n in [0, 30, 59] {
            assert!(
                read.text.contains(&format!("function\\_{n}"))
                    || read.text.contains(&format!("function_{n}")),
                "{read:?}"
            );
        }
    }

    #[test]
    fn scripts_and_styles_are_no_text() {
        let body = "<style>p{}</style><p>Seen</p><script>hidden()</script><noscript>no</noscript>";
        let read = read(&page(body), "https://example.org/", Part::Full);
        assert_eq!(read.text, "Seen");
    }

    #[test]
    fn a_page_that_nests_without_end_costs_no_time_and_no_stack() {
        for mark in ["div", "b", "table", "svg"] {
            let open = format!("<{mark}>");
            let body = open.repeat(400_000) + "deep";
            let begun = std::time::Instant::now();
            assert_eq!(read_main(&body).text, "A title deep", "{mark}");
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(20),
                "{mark}"
            );
        }
        // At the limit it is parsed.
        let marks = limits::WEB_NESTING_MAX - 4;
        let body = "<div>".repeat(marks) + "deep" + &"</div>".repeat(marks);
        assert_eq!(read_main(&body).text, "deep");
    }

    #[test]
    fn unclosed_paragraphs_and_items_are_not_taken_for_nesting() {
        let body = "<p>one<li>two<br><td>three".repeat(10_000);
        assert!(nesting(&page(&body)) < 10);
    }
}
