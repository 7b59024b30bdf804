//! Lines of a stream, none longer than it may be.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line, without its newline.
    Line(Vec<u8>),
    /// One that is longer than it may be; what follows it can't be told from it.
    TooLong,
    /// Nothing more; a last line without a newline is none.
    End,
}

/// Takes a stream apart. What was read and not given stays, so that a wait may be dropped.
#[derive(Debug)]
pub(super) struct Lines<R> {
    stream: R,
    held: Vec<u8>,
    /// How many of the held bytes are known to have no newline.
    searched: usize,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The lines of a stream, each of so many bytes at most.
    pub(super) fn new(stream: R, bytes_max: usize) -> Self {
        Lines {
            stream,
            held: Vec::new(),
            searched: 0,
            bytes_max,
        }
    }

    /// Waits for the next line. May be dropped and called again.
    ///
    /// # Errors
    /// When the system can't read.
    pub(super) async fn next(&mut self) -> io::Result<Next> {
        loop {
            let found = self.held[self.searched..].iter().position(|b| *b == b'\n');
            if let Some(at) = found {
                let rest = self.held.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                self.searched = 0;
                return Ok(match line.len() > self.bytes_max {
                    true => Next::TooLong,
                    false => Next::Line(line),
                });
            }
            self.searched = self.held.len();
            if self.searched > self.bytes_max {
                return Ok(Next::TooLong);
            }
            if self.stream.read_buf(&mut self.held).await? == 0 {
                return Ok(Next::End);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let bytes: &[u8] = b"one\n\nthree\nrest";
        let mut lines = Lines::new(bytes, 5);
        for wanted in ["one", "", "three"] {
            assert_eq!(lines.next().await.unwrap(), Next::Line(wanted.into()));
        }
        assert_eq!(lines.next().await.unwrap(), Next::End);
        let mut lines = Lines::new(&b"123456\n"[..], 5);
        assert_eq!(lines.next().await.unwrap(), Next::TooLong);
        let mut endless = Lines::new(tokio::io::repeat(b'x'), 5_000);
        assert_eq!(endless.next().await.unwrap(), Next::TooLong);
    }
}
