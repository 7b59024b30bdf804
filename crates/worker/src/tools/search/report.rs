//! What a search found, kept within bounds, and how it is told.

use super::meter::Stopped;
use crate::tools::limits;

/// Results as they come in.
#[derive(Debug)]
pub(crate) struct Report {
    rows: String,
    rows_chars: usize,
    shown: u64,
    shown_max: u64,
    /// All matches, shown or not.
    matches: u64,
    /// Files with a match.
    files: u64,
    /// Files and directories that could not be read.
    pub(crate) unreadable: u64,
}

impl Report {
    /// Nothing found yet; at most `shown_max` matches will be shown.
    pub(crate) fn new(shown_max: usize) -> Self {
        Report {
            rows: String::new(),
            rows_chars: 0,
            shown: 0,
            shown_max: shown_max as u64,
            matches: 0,
            files: 0,
            unreadable: 0,
        }
    }

    /// Counts a file that has a match.
    pub(crate) fn file(&mut self) {
        self.files += 1;
    }

    /// Takes in one match, which is only spelled out when it is shown. Hands back false when no
    /// more are counted.
    pub(crate) fn take(&mut self, row: impl FnOnce() -> String) -> bool {
        self.matches += 1;
        if self.shown < self.shown_max && self.shown + 1 == self.matches {
            let row = row();
            let chars = row.chars().count() + 1;
            if self.rows_chars + chars <= limits::SEARCH_CHARS_MAX {
                self.rows.push_str(&row);
                self.rows.push('\n');
                self.rows_chars += chars;
                self.shown += 1;
            }
        }
        self.matches < limits::SEARCH_COUNTED_MAX
    }

    /// The matches, and in brackets how many there are and what is missing.
    pub(crate) fn tell(self, what: &str, stopped: Option<Stopped>) -> String {
        let mut told = self.rows;
        let (matches, files) = (self.matches, self.files);
        let counted = if matches == 0 {
            format!("no match for {what}")
        } else {
            format!(
                "{matches} match{} in {files} file{}",
                if matches == 1 { "" } else { "es" },
                if files == 1 { "" } else { "s" }
            )
        };
        told.push_str(&format!("[{counted}]\n"));
        let left_out = matches - self.shown;
        if left_out > 0 {
            told.push_str(&format!(
                "[{left_out} of them are left out: narrow the query or `glob`{}]\n",
                if self.shown < self.shown_max {
                    ""
                } else {
                    ", or raise `max_results`"
                }
            ));
        }
        let why = match stopped {
            None | Some(Stopped::Cancelled) => None,
            Some(Stopped::Time) => Some("the time for a search was up"),
            Some(Stopped::Entries) => Some("there are too many files"),
            Some(Stopped::Bytes) => Some("the files are too long"),
            Some(Stopped::Matches) => Some("there are too many matches"),
        };
        if let Some(why) = why {
            told.push_str(&format!(
                "[not everything was searched, since {why}: narrow it with `glob`]\n"
            ));
        }
        if self.unreadable > 0 {
            told.push_str(&format!(
                "[{} files or directories could not be read]\n",
                self.unreadable
            ));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let mut report = Report::new(2);
        report.file();
        for n in 1..=5 {
            assert!(report.take(|| format!("row {n}")));
        }
        assert_eq!(
            report.tell("`x`", None),
            "row 1\nrow 2\n[5 matches in 1 file]\n[3 of them are left out: narrow the query or \
             `glob`, or raise `max_results`]\n"
        );
    }

    #[test]
    fn long_rows_fill_the_report_before_the_count_does() {
        let mut report = Report::new(1_000);
        for _ in 0..100 {
            report.take(|| "x".repeat(299));
        }
        let told = report.tell("`x`", Some(Stopped::Time));
        assert!(told.chars().count() < 30_000);
        assert_eq!(told.matches(&"x".repeat(299)).count(), 80);
        assert!(told.contains("[20 of them are left out: narrow the query or `glob`]"));
        assert!(told.contains("[not everything was searched, since the time"));
    }

    #[test]
    fn nothing_found_is_said_and_counting_ends_somewhere() {
        assert_eq!(Report::new(1).tell("`x`", None), "[no match for `x`]\n");
        let mut report = Report::new(1);
        let counted = (0..limits::SEARCH_COUNTED_MAX)
            .filter(|_| report.take(String::new))
            .count();
        assert_eq!(counted as u64, limits::SEARCH_COUNTED_MAX - 1);
    }
}
