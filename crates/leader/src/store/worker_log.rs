//! `worker.log`: what a worker printed, head and tail, within a fixed size.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use protocol::job::LOG_FILE;
use protocol::limits;
use protocol::secret::{Mask, MaskStream};

use crate::os::files::Dir;

/// The end that is kept when the log is over its size.
const TAIL_BYTES: usize = 1024 * 1024;

/// One worker's log. A file that can't be written does not stop the worker: its text is then only
/// counted, and [`WorkerLog::finish`] says why.
#[derive(Debug)]
pub struct WorkerLog {
    mask: Mask,
    /// What was written last may be the beginning of a secret.
    stream: MaskStream,
    file: Option<File>,
    error: Option<io::Error>,
    head_bytes_max: u64,
    tail_bytes_max: usize,
    head_bytes: u64,
    total_bytes: u64,
    /// What came after the head, at most `tail_bytes_max` of it.
    tail: VecDeque<u8>,
    /// The last of everything, for an error message.
    last: VecDeque<u8>,
}

impl WorkerLog {
    /// A new log in an agent's folder, without what `mask` hides.
    pub fn create(dir: &Dir, mask: Mask) -> WorkerLog {
        WorkerLog::with_limits(
            dir.create_new(Path::new(LOG_FILE)),
            limits::WORKER_LOG_BYTES_MAX - TAIL_BYTES as u64,
            TAIL_BYTES,
            mask,
        )
    }

    fn with_limits(
        file: io::Result<File>,
        head_bytes_max: u64,
        tail_bytes_max: usize,
        mask: Mask,
    ) -> Self {
        let (file, error) = match file {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        WorkerLog {
            stream: mask.stream(),
            mask,
            file,
            error,
            head_bytes_max,
            tail_bytes_max,
            head_bytes: 0,
            total_bytes: 0,
            tail: VecDeque::new(),
            last: VecDeque::new(),
        }
    }

    /// Takes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        let mut plain = Vec::with_capacity(bytes.len());
        self.stream.push(bytes, &mut plain);
        self.keep(&plain);
    }

    /// Keeps what was held back as the possible beginning of a secret: nothing more comes.
    fn settle(&mut self) {
        let mut plain = Vec::new();
        std::mem::replace(&mut self.stream, self.mask.stream()).finish(&mut plain);
        self.keep(&plain);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        keep_last(&mut self.last, bytes, limits::OUTPUT_TAIL_BYTES_MAX);
        let room = self.head_bytes_max - self.head_bytes;
        let head = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.head_bytes += head as u64;
        self.put(&bytes[..head]);
        keep_last(&mut self.tail, &bytes[head..], self.tail_bytes_max);
    }

    /// The last lines, as text, at the end or as if it were there.
    pub fn last_text(&mut self) -> String {
        self.settle();
        let bytes: Vec<u8> = self.last.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let whole = self.total_bytes <= limits::OUTPUT_TAIL_BYTES_MAX as u64;
        // What stands before the first newline is the rest of a line, unless all of it is there.
        let text = match text.split_once('\n') {
            Some((_, rest)) if !whole && !rest.trim().is_empty() => rest,
            _ => &text,
        };
        protocol::result::tail(text.trim(), limits::OUTPUT_TAIL_BYTES_MAX).to_owned()
    }

    /// Writes the tail, with a mark where something is left out.
    ///
    /// # Errors
    /// With the first failure of making or writing the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.settle();
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let gone = self.total_bytes - self.head_bytes - tail.len() as u64;
        if gone > 0 {
            self.put(format!("\n… {gone} bytes left out …\n").as_bytes());
        }
        self.put(&tail);
        self.error.map_or(Ok(()), Err)
    }

    fn put(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(bytes) {
            self.file = None;
            self.error = Some(error);
        }
    }
}

fn keep_last(kept: &mut VecDeque<u8>, bytes: &[u8], most: usize) {
    let bytes = &bytes[bytes.len().saturating_sub(most)..];
    let over = (kept.len() + bytes.len()).saturating_sub(most);
    kept.drain(..over);
    kept.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&[u8]]) -> String {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut log = WorkerLog::with_limits(File::create(&path), 6, 4, Mask::default());
        for piece in pieces {
            log.write(piece);
        }
        log.finish().unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn head_and_tail_are_kept_with_a_mark_between() {
        assert_eq!(written(&[b"abc", b"def"]), "abcdef");
        assert_eq!(written(&[b"abcdefghij"]), "abcdefghij");
        assert_eq!(
            written(&[b"abcdefghijk"]),
            "abcdef\n… 1 bytes left out …\nhijk"
        );
        assert_eq!(
            written(&[b"abcd", b"efgh", b"ijkl", b"mn"]),
            "abcdef\n… 4 bytes left out …\nklmn"
        );
    }

    #[test]
    fn a_key_that_comes_in_two_pieces_is_in_neither_file_nor_message() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mask = Mask::of(["tok123456789"]);
        let mut log = WorkerLog::with_limits(File::create(&path), 1_000, 1_000, mask);
        log.write(b"the key is tok123");
        log.write(b"456789, says tok12");
        assert_eq!(log.last_text(), "the key is [masked], says tok12");
        log.finish().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "the key is [masked], says tok12");
    }

    #[test]
    fn the_last_lines_are_at_hand_for_a_message() {
        let mut log =
            WorkerLog::with_limits(Err(io::Error::other("full")), 10, 10, Mask::default());
        log.write(b"first\nsecond\n");
        assert_eq!(log.last_text(), "first\nsecond");
        log.write(&b"x".repeat(limits::OUTPUT_TAIL_BYTES_MAX));
        log.write(b"\nlast line\n");
        assert_eq!(log.last_text(), "last line");
        assert_eq!(log.finish().unwrap_err().to_string(), "full");
    }
}
