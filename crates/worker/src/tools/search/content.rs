//! Searching lines of files.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Encoding as SearchEncoding, Searcher, SearcherBuilder, Sink, SinkMatch,
};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use protocol::error::{ErrorCode, ToolError};

use super::meter::{Meter, Metered, Stopped};
use super::query::Filter;
use super::report::Report;
use super::walk::{EntryKind, walk};
use crate::tools::paths::open_regular;
use crate::tools::text::{Encoding, readable, recognise};
use crate::tools::{ToolContext, limits, names};

/// Finds lines in files.
///
/// # Errors
/// When the workspace can't be opened.
pub(crate) fn search_content(
    context: &ToolContext,
    matcher: &RegexMatcher,
    query: &str,
    filter: Option<&Filter>,
    meter: &mut Meter,
    report: &mut Report,
) -> Result<(), ToolError> {
    let mut files = Files::of(&context.workspace).map_err(|error| {
        ToolError::new(ErrorCode::Io, format!("can't open the workspace: {error}"))
    })?;
    let mut searchers = Searchers::new(query);
    let mut unread = 0;
    let unreadable = walk(context, meter, |relative, kind, meter| {
        if kind == EntryKind::Link || filter.is_some_and(|filter| !filter.fits(relative)) {
            return;
        }
        let searched = files
            .open(relative)
            .and_then(|file| searchers.search(file, matcher, relative, meter, report));
        if searched.is_err() {
            unread += 1;
        }
    });
    report.unreadable += unreadable + unread;
    Ok(())
}

/// Opens files by their path below the workspace without following a link, whatever has become
/// of the path since it was listed. Files of one directory come one after the other, so the last
/// directory is kept open.
#[derive(Debug)]
struct Files {
    root: OwnedFd,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Files {
    fn of(workspace: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Files {
            root: nix::fcntl::open(workspace, flags, Mode::empty())?,
            last: None,
        })
    }

    fn open(&mut self, relative: &Path) -> io::Result<File> {
        let name = relative.file_name().unwrap_or_default();
        let directory = self.directory(relative.parent().unwrap_or(Path::new("")))?;
        open_regular(directory.as_fd(), name, "")
            .map(|(file, _)| file)
            .map_err(io::Error::other)
    }

    fn directory(&mut self, relative: &Path) -> io::Result<&OwnedFd> {
        let kept = self.last.take().filter(|(path, _)| path == relative);
        let opened = match kept {
            Some((_, directory)) => directory,
            None => self.walk_to(relative)?,
        };
        let (_, directory) = self.last.insert((relative.to_owned(), opened));
        Ok(directory)
    }

    fn walk_to(&self, relative: &Path) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut directory = self.root.try_clone()?;
        for name in relative {
            directory = openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(directory)
    }
}

/// The engines, one for each way in which files are read.
#[derive(Debug)]
struct Searchers {
    /// UTF-8 and what is like it, and UTF-16 with a mark.
    plain: Searcher,
    /// GBK, only where the query has a character that looks different in it.
    gbk: Option<Searcher>,
}

impl Searchers {
    fn new(query: &str) -> Self {
        let gbk = (!query.is_ascii())
            .then(|| SearchEncoding::new("gbk").ok())
            .flatten()
            .map(|encoding| searcher(Some(encoding)));
        Searchers {
            plain: searcher(None),
            gbk,
        }
    }

    fn search(
        &mut self,
        mut file: File,
        matcher: &RegexMatcher,
        relative: &Path,
        meter: &mut Meter,
        report: &mut Report,
    ) -> io::Result<()> {
        let searcher = match &mut self.gbk {
            Some(gbk) if is_gbk(&mut file)? => gbk,
            Some(_) | None => &mut self.plain,
        };
        let mut hits = Hits {
            matcher,
            relative,
            report,
            hit: false,
            counted_all: true,
        };
        let reader = Metered {
            inner: file,
            meter: &mut *meter,
        };
        searcher.search_reader(matcher, reader, &mut hits)?;
        if !hits.counted_all {
            meter.stop(Stopped::Matches);
        }
        Ok(())
    }
}

fn searcher(encoding: Option<SearchEncoding>) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .line_terminator(grep_matcher::LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(limits::SEARCH_HEAP_BYTES_MAX))
        .encoding(encoding)
        .build()
}

fn is_gbk(file: &mut File) -> io::Result<bool> {
    let mut start = vec![0; limits::SEARCH_SNIFF_BYTES];
    let count = file.read(&mut start)?;
    file.rewind()?;
    let whole = count < start.len();
    Ok(recognise(&start[..count], whole).encoding == Encoding::Gbk)
}

/// Takes in the matches of one file.
#[derive(Debug)]
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    relative: &'a Path,
    report: &'a mut Report,
    hit: bool,
    counted_all: bool,
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if !std::mem::replace(&mut self.hit, true) {
            self.report.file();
        }
        let (matcher, relative) = (self.matcher, self.relative);
        self.counted_all = self.report.take(|| {
            let line = found.bytes();
            let at = matcher
                .find(line)
                .ok()
                .flatten()
                .map_or(0, |hit| hit.start());
            format!(
                "{}:{}: {}",
                names::show(relative),
                found.line_number().unwrap_or_default(),
                around(line, at)
            )
        });
        Ok(self.counted_all)
    }
}

/// A line, or of a long one what is around a place in it.
fn around(line: &[u8], at: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Every character has at least one byte, so a line of few bytes is short.
    if line.len() <= limits::SEARCH_LINE_CHARS_MAX {
        return readable(line).into_owned();
    }
    // Enough for the characters that are shown, at four bytes each.
    let bytes_max = limits::SEARCH_LINE_CHARS_MAX * 4;
    let mut from = at
        .min(line.len())
        .saturating_sub(limits::SEARCH_BEFORE_BYTES);
    // Not inside a character.
    while from > 0 && line.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
        from -= 1;
    }
    let to = line.len().min(from + bytes_max);
    let text = String::from_utf8_lossy(&line[from..to]);
    let shown: String = text.chars().take(limits::SEARCH_LINE_CHARS_MAX).collect();
    let before = if from > 0 { "… " } else { "" };
    let after = if to < line.len() || shown.len() < text.len() {
        " …"
    } else {
        ""
    };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        assert_eq!(around(b"short\r\n", 3), "short");
        let line = format!("{}needle{}\n", "好".repeat(1_000), "b".repeat(5_000));
        let shown = around(line.as_bytes(), 3_000);
        assert!(
            shown.starts_with("… 好") && shown.ends_with("b …"),
            "{shown}"
        );
        assert!(shown.contains("needle") && !shown.contains('\u{fffd}'));
        assert_eq!(shown.chars().count(), limits::SEARCH_LINE_CHARS_MAX + 4);
        let at_the_end = around(format!("{}end", "x".repeat(5_000)).as_bytes(), 5_000);
        assert!(at_the_end.ends_with("xend"), "{at_the_end}");
    }
}
