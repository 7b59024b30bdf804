//! What is sought, made from what a model wrote.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use protocol::error::{ErrorCode, ToolError};

use crate::tools::{limits, names};

/// Matches lines of files.
///
/// # Errors
/// When the pattern is none, or could match over a line end.
pub(crate) fn content_matcher(query: &str, regex: bool) -> Result<RegexMatcher, ToolError> {
    if query.contains('\n') {
        return Err(ToolError::new(
            ErrorCode::InvalidParameters,
            "`query` has a line end; the search goes line by line",
        )
        .hint("search for one of its lines"));
    }
    builder(regex)
        .multi_line(true)
        .crlf(true)
        .build(query)
        .map_err(|error| bad_pattern(&error))
}

fn builder(regex: bool) -> RegexMatcherBuilder {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(!regex)
        .size_limit(limits::SEARCH_PATTERN_BYTES_MAX)
        .dfa_size_limit(limits::SEARCH_PATTERN_BYTES_MAX);
    builder
}

fn bad_pattern(error: &grep_regex::Error) -> ToolError {
    ToolError::new(
        ErrorCode::InvalidParameters,
        format!("`query` is no regular expression that can be searched for: {error}"),
    )
    .hint("leave out `regex` to search for the text exactly as it is")
}

/// Matches names of files.
#[derive(Debug)]
pub(crate) enum NameQuery {
    /// A part of the path, or a pattern such as `*.rs`.
    Plain {
        /// The text as it is, in any case when it has no upper-case letter.
        part: RegexMatcher,
        /// The text as a pattern, where it has the signs of one.
        pattern: Option<Filter>,
    },
    /// A regular expression on the path.
    Regex(RegexMatcher),
}

impl NameQuery {
    /// Reads a query.
    ///
    /// # Errors
    /// When it is no regular expression.
    pub(crate) fn new(query: &str, regex: bool) -> Result<Self, ToolError> {
        let matcher = builder(regex)
            .case_smart(!regex)
            .build(query)
            .map_err(|error| bad_pattern(&error))?;
        if regex {
            return Ok(NameQuery::Regex(matcher));
        }
        let has_signs = query.contains(['*', '?', '[', '{']);
        Ok(NameQuery::Plain {
            part: matcher,
            // A name may well hold brackets, so a bad pattern is just a text.
            pattern: has_signs.then(|| Filter::new(query).ok()).flatten(),
        })
    }

    /// Whether a path, relative to the workspace, fits.
    pub(crate) fn fits(&self, relative: &Path) -> bool {
        let (matcher, pattern) = match self {
            NameQuery::Plain { part, pattern } => (part, pattern.as_ref()),
            NameQuery::Regex(matcher) => (matcher, None),
        };
        // The shown form as well, since that is what a model has seen.
        let shown = names::show(relative);
        let is_match = |bytes: &[u8]| matcher.is_match(bytes).unwrap_or(false);
        is_match(relative.as_os_str().as_bytes())
            || is_match(shown.as_bytes())
            || pattern.is_some_and(|pattern| pattern.fits(relative))
    }
}

/// Chooses files by a pattern such as `*.rs`, `src/**/*.ts`, `{a,b}/*` or a directory; with `!`
/// before it, all others.
#[derive(Debug)]
pub(crate) struct Filter {
    set: GlobSet,
    wanted: bool,
}

impl Filter {
    /// Reads a pattern. Without a slash it fits names in every directory.
    ///
    /// # Errors
    /// When it is malformed.
    pub(crate) fn new(pattern: &str) -> Result<Self, ToolError> {
        let (wanted, pattern) = match pattern.strip_prefix('!') {
            Some(rest) => (false, rest),
            None => (true, pattern),
        };
        let anchored = pattern.trim_end_matches('/').contains('/');
        let plain = pattern
            .trim_start_matches("./")
            .trim_start_matches('/')
            .trim_end_matches('/');
        let path = if anchored {
            plain.to_owned()
        } else {
            format!("**/{plain}")
        };
        let bad = |error: globset::Error| {
            ToolError::new(
                ErrorCode::InvalidParameters,
                format!("`{pattern}` is no pattern for file names: {}", error.kind()),
            )
            .hint("patterns look like `*.rs`, `src/**/*.ts` or `docs/`")
        };
        let mut set = GlobSetBuilder::new();
        // A pattern that names a directory means what is in it.
        for glob in [path.clone(), format!("{path}/**")] {
            set.add(
                GlobBuilder::new(&glob)
                    .literal_separator(true)
                    .build()
                    .map_err(bad)?,
            );
        }
        Ok(Filter {
            set: set.build().map_err(bad)?,
            wanted,
        })
    }

    /// Whether a path, relative to the workspace, is chosen.
    pub(crate) fn fits(&self, relative: &Path) -> bool {
        self.set.is_match(relative) == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(query: &str, regex: bool, line: &str) -> bool {
        content_matcher(query, regex)
            .unwrap()
            .is_match(line.as_bytes())
            .unwrap()
    }

    #[test]
    fn a_query_is_a_text_unless_it_is_said_to_be_a_pattern() {
        assert!(lines("a(b", false, "x a(b y"));
        assert!(!lines("a.b", false, "axb"));
        assert!(lines("a.b", true, "axb"));
        assert!(lines("^end$", true, "end\r\n"));
        assert!(!lines("End", false, "end"));
    }

    #[test]
    fn patterns_that_are_none_are_refused_with_a_way_on() {
        for (query, regex) in [
            ("a(b", true),
            ("a\nb", false),
            ("a\\nb", true),
            ("[z-a]", true),
        ] {
            let error = content_matcher(query, regex).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameters, "{query}");
            assert!(!error.hint.is_empty());
        }
        let huge = content_matcher("((a{1,1000}){1,1000}){1,1000}", true).unwrap_err();
        assert_eq!(huge.code, ErrorCode::InvalidParameters);
    }

    #[test]
    fn names_fit_by_part_pattern_or_expression() {
        let fits = |query: &str, regex, path: &str| {
            NameQuery::new(query, regex).unwrap().fits(Path::new(path))
        };
        assert!(fits("route", false, "src/api/Routes.py"));
        assert!(!fits("Route", false, "src/api/routes.py"));
        assert!(fits("api/r", false, "src/api/routes.py"));
        assert!(fits("*.py", false, "src/api/routes.py"));
        assert!(!fits("*.rs", false, "src/api/routes.py"));
        assert!(fits("[id].tsx", false, "app/[id].tsx"));
        assert!(fits(r"^src/.*\.py$", true, "src/api/routes.py"));
        assert!(fits(r"a\x0ab", false, "d/a\nb"));
    }

    #[test]
    fn a_filter_means_what_people_mean() {
        let fits = |pattern: &str, path: &str| Filter::new(pattern).unwrap().fits(Path::new(path));
        assert!(fits("*.rs", "a.rs") && fits("*.rs", "src/b/a.rs"));
        assert!(fits("src/**/*.rs", "src/a.rs") && fits("src/**/*.rs", "src/b/a.rs"));
        assert!(!fits("src/*.rs", "src/b/a.rs"));
        assert!(fits("./src/", "src/b/a.rs") && fits("src", "src/b/a.rs"));
        assert!(fits("/src/b", "src/b/a.rs") && !fits("b/a.rs", "src/b/a.rs"));
        assert!(fits("*.{rs,ts}", "x/a.ts"));
        assert!(!fits("!*.rs", "a.rs") && fits("!*.rs", "a.ts"));
        assert_eq!(
            Filter::new("a[").unwrap_err().code,
            ErrorCode::InvalidParameters
        );
    }
}
