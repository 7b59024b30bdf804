//! How wide a text is on a terminal, and how it is made harmless there.

/// Columns that a character takes: 0 for marks that combine, 2 for the wide ones of East Asia and
/// for emoji, else 1. The ranges are those of Unicode's East Asian Width, in the large.
pub fn char_columns(c: char) -> usize {
    let code = u32::from(c);
    let combines = matches!(code,
        0x0300..=0x036F | 0x200B..=0x200F | 0x20D0..=0x20F0 | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F);
    let wide = matches!(code,
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0x33FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xA000..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1F64F
        | 0x1F680..=0x1F6FF | 0x1F900..=0x1F9FF | 0x20000..=0x3FFFD);
    if combines {
        0
    } else if wide {
        2
    } else {
        1
    }
}

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

/// A text cut to at most `limit` columns, with `…` where something is missing.
pub fn cut(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let next = used + char_columns(c);
        // One column is for the mark.
        if next + 1 > limit {
            break;
        }
        kept.push(c);
        used = next;
    }
    if limit > 0 {
        kept.push('…');
    }
    kept
}

/// A text filled up with spaces to `width` columns.
pub fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(missing))
}

/// One line of text without anything that a terminal would act on: what models and files say may
/// hold escape sequences, which could rewrite the screen or worse.
pub fn plain(text: &str) -> String {
    let spaced: String = text
        .chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if acts_on_terminals(c) => '\u{FFFD}',
            c => c,
        })
        .collect();
    spaced.trim().to_owned()
}

/// The same for several lines; line breaks and tabs stay.
pub fn plain_lines(text: &str) -> String {
    text.replace("\r\n", "\n")
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if acts_on_terminals(c) => '\u{FFFD}',
            c => c,
        })
        .collect()
}

/// Control characters, and the marks that turn the direction of text.
fn acts_on_terminals(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_takes_two_columns() {
        assert_eq!(columns("子智能体1"), 9);
        assert_eq!(columns("é"), 1);
        assert_eq!(columns("e\u{301}"), 1);
        assert_eq!(pad("文档", 6), "文档  ");
        assert_eq!(pad("longer", 3), "longer");
    }

    #[test]
    fn a_cut_never_takes_more_columns_than_it_may() {
        for text in ["abcdef", "生成接口文档", "a生b成c", ""] {
            for limit in 0..14 {
                let short = cut(text, limit);
                assert!(columns(&short) <= limit, "{short:?} in {limit}");
                assert_eq!(short == text, columns(text) <= limit);
            }
        }
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("生成接口", 4), "生…");
    }

    #[test]
    fn nothing_reaches_a_terminal_that_it_would_act_on() {
        assert_eq!(
            plain("a\x1b[2Jb\nc\u{9b}1m\u{202e}d "),
            "a\u{FFFD}[2Jb c\u{FFFD}1m\u{FFFD}d"
        );
        assert_eq!(plain_lines("a\r\nb\tc\x07\rd"), "a\nb\tc\u{FFFD}\u{FFFD}d");
    }
}
