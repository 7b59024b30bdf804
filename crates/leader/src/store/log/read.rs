//! Reads a log back, as far as it is whole, and folds it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use protocol::event::EventLine;
use protocol::limits::LINE_BYTES_MAX;

use crate::core::fold::FoldedRun;
use crate::core::record::Record;
use crate::store::log::error::LogError;

/// The log's name in a run's folder.
pub const LOG_FILE: &str = "events.jsonl";

/// What was found in a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadLog {
    /// Its records, folded.
    pub run: FoldedRun,
    /// The last number that was given; 0 in an empty log.
    pub last_seq: u64,
    /// Lines that are no event, or an event of a newer version.
    pub foreign_lines: u64,
    /// Bytes after the last whole line.
    pub torn_bytes: u64,
    /// Bytes up to and including the last whole line.
    pub(super) whole_bytes: u64,
    /// Whether the torn end is an event that lacks nothing but its newline.
    pub(super) lacks_newline: bool,
}

/// Reads and folds the log of the run's folder `dir`; nothing is changed. A log that is not there
/// is an empty one.
///
/// # Errors
/// When the file is there and can't be read.
pub fn read(dir: &Path) -> Result<ReadLog, LogError> {
    read_until(dir, |_| false)
}

/// As [`read`], but no further than to the event with which it is enough.
///
/// # Errors
/// When the file is there and can't be read.
pub fn read_until(dir: &Path, is_enough: impl Fn(&FoldedRun) -> bool) -> Result<ReadLog, LogError> {
    let path = dir.join(LOG_FILE);
    match File::open(&path) {
        Ok(file) => read_lines(file, is_enough).map_err(|error| LogError::io("read", &path, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReadLog::default()),
        Err(error) => Err(LogError::io("open", &path, error)),
    }
}

fn read_lines(file: File, is_enough: impl Fn(&FoldedRun) -> bool) -> io::Result<ReadLog> {
    let mut reader = BufReader::new(file);
    let mut found = ReadLog::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let (bytes, ended) = read_line(&mut reader, &mut line)?;
        if bytes == 0 {
            return Ok(found);
        }
        let event = serde_json::from_slice::<EventLine>(&line).ok();
        if !ended {
            found.lacks_newline = event.is_some();
            if let Some(event) = event {
                take_event(&mut found, &event);
            }
            found.torn_bytes = bytes;
            return Ok(found);
        }
        found.whole_bytes += bytes;
        match event {
            Some(event) => take_event(&mut found, &event),
            None => found.foreign_lines += 1,
        }
        if is_enough(&found.run) {
            return Ok(found);
        }
    }
}

fn take_event(found: &mut ReadLog, event: &EventLine) {
    found.last_seq = found.last_seq.max(event.seq);
    match Record::of_line(event) {
        Some(record) => found.run.take(record),
        None => found.foreign_lines += 1,
    }
}

/// Reads up to the next newline, keeping at most [`LINE_BYTES_MAX`] of it (a longer one is no line
/// of ours, and is cut so that it does not parse). Says how many bytes it took and whether the
/// newline was there.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<(u64, bool)> {
    let mut taken = 0;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok((taken, false));
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(buffer.len(), |at| at + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        let text = newline.unwrap_or(used);
        line.extend_from_slice(&buffer[..text.min(room)]);
        reader.consume(used);
        taken += used as u64;
        if newline.is_some() {
            return Ok((taken, true));
        }
    }
}
