//! What a server writes on its standard error: the first of it goes to a file, the last is kept
//! for whoever is told that the server is gone.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use protocol::secret::Mask;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::tools::limits;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 4 * 1024;

/// Somebody who reads it to its end.
#[derive(Debug)]
pub(super) struct Stderr(JoinHandle<String>);

impl Stderr {
    /// Reads a stream to its end beside everything else; secrets are masked.
    pub(super) fn follow(
        stream: impl AsyncRead + Unpin + Send + 'static,
        file: &Path,
        mask: &Mask,
    ) -> Stderr {
        let file = open(file);
        Stderr(tokio::spawn(read(stream, file, mask.clone())))
    }

    /// The last that it wrote, once it has ended.
    pub(super) async fn last_words(mut self) -> String {
        let wait = Duration::from_millis(limits::OUTPUT_DRAIN_MS);
        match timeout(wait, &mut self.0).await {
            Ok(words) => words.unwrap_or_default(),
            // Somebody else holds the stream.
            Err(_) => {
                self.0.abort();
                String::new()
            }
        }
    }
}

/// No link is followed: the folder is the agent's own, and it may have been prepared.
fn open(path: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path);
    match opened {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "an MCP server has no log file");
            None
        }
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, mut file: Option<File>, mask: Mask) -> String {
    let mut masked = mask.stream();
    let mut piece = vec![0; PIECE_BYTES];
    let mut room = limits::MCP_LOG_BYTES_MAX;
    let mut tail = Vec::new();
    loop {
        // A stream that can't be read has nothing more to tell.
        let count = stream.read(&mut piece).await.unwrap_or(0);
        let mut clean = Vec::new();
        if count == 0 {
            masked.finish(&mut clean);
            keep(&clean, &mut file, &mut room, &mut tail);
            return String::from_utf8_lossy(&tail).trim().to_owned();
        }
        masked.push(&piece[..count], &mut clean);
        keep(&clean, &mut file, &mut room, &mut tail);
    }
}

fn keep(bytes: &[u8], file: &mut Option<File>, room: &mut usize, tail: &mut Vec<u8>) {
    let fitting = &bytes[..bytes.len().min(*room)];
    *room -= fitting.len();
    if let Some(log) = file
        && log.write_all(fitting).is_err()
    {
        // A full disk: the words are lost, the server is not.
        *file = None;
    }
    tail.extend_from_slice(bytes);
    tail.drain(..tail.len().saturating_sub(limits::MCP_TAIL_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_goes_to_the_file_the_last_is_kept_and_secrets_are_in_neither() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mcp_a.log");
        let secret = "tok-0123456789".to_owned();
        let said = format!(
            "{secret}\n{}\nthe end\n",
            "x".repeat(limits::MCP_LOG_BYTES_MAX)
        );
        let stream = std::io::Cursor::new(said.into_bytes());
        let mask = Mask::of([&secret]);
        let words = Stderr::follow(stream, &path, &mask).last_words().await;
        assert!(words.ends_with("x\nthe end"), "{words}");
        assert!(words.len() <= limits::MCP_TAIL_BYTES);
        let log = std::fs::read_to_string(&path).unwrap();
        assert_eq!(log.len(), limits::MCP_LOG_BYTES_MAX);
        assert!(!log.contains(&secret));
    }

    #[tokio::test]
    async fn a_link_in_the_place_of_the_file_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (path, other) = (root.path().join("mcp_a.log"), root.path().join("other"));
        std::fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let stream = std::io::Cursor::new(b"words".to_vec());
        let words = Stderr::follow(stream, &path, &Mask::default())
            .last_words()
            .await;
        assert_eq!(words, "words");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
    }
}
