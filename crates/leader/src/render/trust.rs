//! What a workspace's file wants, for the person who decides on it.

use protocol::config::{FileTrust, TrustRecord, Wish, fingerprint};

use crate::render::style::{Style, Tone};
use crate::render::width::{cut, plain};
use crate::settings::WorkspaceFile;

/// Of one value, in columns; a longer one is to be read in the file.
const VALUE_COLUMNS_MAX: usize = 400;
/// Characters of a fingerprint that are shown.
const FINGERPRINT_CHARS: usize = 16;

/// What the file wants beside what holds, and how it is trusted.
pub fn wishes_text(view: &WorkspaceFile, style: Style) -> String {
    let path = plain(&view.path.display().to_string());
    let Some(file) = &view.file else {
        return format!("{path} is not there, so there is nothing to accept\n");
    };
    if view.wishes.is_empty() {
        return format!(
            "{path} wants nothing that needs your word: what it sets may only tighten\n"
        );
    }
    let mut text = format!("{path} wants more than tightening:\n\n");
    for wish in &view.wishes {
        text.push_str(&wish_text(wish, style));
    }
    let print = fingerprint(file.text.as_bytes());
    let print = &print[..FINGERPRINT_CHARS.min(print.len())];
    let words = match &view.trust {
        FileTrust::Never => format!("It is not accepted (SHA-256 {print}…)."),
        FileTrust::Accepted { at } => {
            format!(
                "Exactly this content was accepted on {} (SHA-256 {print}…).",
                plain(at)
            )
        }
        FileTrust::Changed { at } => format!(
            "Another content of it was accepted on {}; this one (SHA-256 {print}…)\nis not.",
            plain(at)
        ),
    };
    let tone = match &view.trust {
        FileTrust::Accepted { .. } => Tone::Good,
        FileTrust::Never | FileTrust::Changed { .. } => Tone::Odd,
    };
    text.push_str(&format!("\n{}\n", style.paint(tone, &words)));
    text
}

fn wish_text(wish: &Wish, style: Style) -> String {
    let key = style.paint(Tone::Strong, &plain(&wish.key));
    format!(
        "  {key} = {}\n      now {} ({})\n      {}\n",
        value(&wish.wanted),
        value(&wish.in_force),
        plain(&wish.source),
        wish.meaning()
    )
}

fn value(text: &str) -> String {
    cut(&plain(text), VALUE_COLUMNS_MAX)
}

/// One accepted file a line.
pub fn list_text(records: &[TrustRecord]) -> String {
    if records.is_empty() {
        return "no file is accepted\n".to_owned();
    }
    records
        .iter()
        .map(|record| format!("{}  {}\n", plain(&record.accepted_at), plain(&record.path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::config::ConfigFile;
    use std::path::{Path, PathBuf};

    fn view(trust: FileTrust) -> WorkspaceFile {
        WorkspaceFile {
            path: PathBuf::from("/w/muster.toml"),
            file: Some(ConfigFile {
                name: "/w/muster.toml".to_owned(),
                text: "abc".to_owned(),
            }),
            trust,
            wishes: vec![Wish {
                key: "models.m.base_url".to_owned(),
                place: "/w/muster.toml:2".to_owned(),
                wanted: "\"http://h/v1\"".to_owned(),
                in_force: "(none)".to_owned(),
                source: "built-in".to_owned(),
            }],
        }
    }

    #[test]
    fn each_wish_stands_beside_what_holds_and_with_what_it_means() {
        assert_eq!(
            wishes_text(&view(FileTrust::Never), Style::Plain),
            "/w/muster.toml wants more than tightening:\n\n  \
             models.m.base_url = \"http://h/v1\"\n      now (none) (built-in)\n      \
             tasks and files that agents read are sent to this server\n\n\
             It is not accepted (SHA-256 ba7816bf8f01cfea…).\n"
        );
        let at = || "2026-11-30T20:00:00Z".to_owned();
        let accepted = wishes_text(&view(FileTrust::Accepted { at: at() }), Style::Plain);
        assert!(
            accepted.ends_with(
                "Exactly this content was accepted on 2026-11-30T20:00:00Z (SHA-256 \
                 ba7816bf8f01cfea…).\n"
            ),
            "{accepted}"
        );
        let changed = wishes_text(&view(FileTrust::Changed { at: at() }), Style::Plain);
        assert!(
            changed.contains("Another content of it was accepted on 2026-11-30T20:00:00Z"),
            "{changed}"
        );
    }

    #[test]
    fn where_nothing_is_wanted_nothing_is_asked() {
        let mut quiet = view(FileTrust::Never);
        quiet.wishes.clear();
        assert_eq!(
            wishes_text(&quiet, Style::Plain),
            "/w/muster.toml wants nothing that needs your word: what it sets may only tighten\n"
        );
        quiet.file = None;
        assert_eq!(
            wishes_text(&quiet, Style::Plain),
            "/w/muster.toml is not there, so there is nothing to accept\n"
        );
    }

    /// What is shown is what is decided on, so that a file must not rewrite the page.
    #[test]
    fn a_file_can_not_act_on_the_terminal_nor_flood_it() {
        let mut odd = view(FileTrust::Never);
        odd.wishes[0].key = "models.\u{1b}[2J.base_url".to_owned();
        odd.wishes[0].wanted = "x".repeat(2 * VALUE_COLUMNS_MAX);
        let text = wishes_text(&odd, Style::Plain);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.len() < VALUE_COLUMNS_MAX + 500, "{text}");
    }

    #[test]
    fn a_list_has_one_line_a_file() {
        assert_eq!(list_text(&[]), "no file is accepted\n");
        let record = TrustRecord::new(Path::new("/w/muster.toml"), b"", "then".to_owned());
        assert_eq!(list_text(&[record]), "then  /w/muster.toml\n");
    }
}
