//! What a jail or the keeper tells of one command, on a socket that the command never holds.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;

use confine::report::{Ended, Failed, JailLine, Started};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::tools::limits::REPORT_BYTES_MAX;

/// What has been told so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// It is about to run, and what holds it.
    pub(super) started: Option<Started>,
    /// It did not start.
    pub(super) failed: Option<Failed>,
    /// It has ended, and everything that it had started.
    pub(super) ended: Option<Ended>,
}

/// The socket. Dropping it kills the command with everything that it has started.
#[derive(Debug)]
pub(super) struct Report {
    stream: UnixStream,
    text: Vec<u8>,
}

impl Report {
    /// Takes this side of the socket over.
    pub(super) fn new(stream: StdUnixStream) -> io::Result<Report> {
        stream.set_nonblocking(true)?;
        Ok(Report {
            stream: UnixStream::from_std(stream)?,
            text: Vec::new(),
        })
    }

    /// Waits until nothing more can be told. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        loop {
            match self.stream.read_buf(&mut self.text).await {
                Ok(0) => return Ok(()),
                // Whoever held the other side is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) if self.text.len() > REPORT_BYTES_MAX => {
                    return Err(io::Error::other("its report is too long"));
                }
                Ok(_) => {}
            }
        }
    }

    /// Has the command killed, and can still hear how it ended.
    pub(super) async fn hang_up(&mut self) -> io::Result<()> {
        match self.stream.shutdown().await {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        }
    }

    /// What has been told.
    pub(super) fn told(&self) -> Told {
        told(&String::from_utf8_lossy(&self.text))
    }
}

fn told(text: &str) -> Told {
    let mut told = Told::default();
    for line in text.lines().filter_map(JailLine::parse) {
        match line {
            JailLine::Started(started) => told.started = Some(started),
            JailLine::Failed(failed) => told.failed = Some(failed),
            JailLine::Ended(ended) => told.ended = Some(ended),
            // Init tells of the whole tree.
            JailLine::Fallen(_) => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use confine::report::EndReason;
    use std::io::Write;

    fn end() -> Ended {
        Ended {
            exit_code: Some(3),
            signal: None,
            reason: EndReason::Program,
            left_behind: true,
        }
    }

    #[tokio::test]
    async fn lines_are_read_to_the_end_however_they_come() {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        let mut report = Report::new(ours).unwrap();
        let line = JailLine::Ended(end()).to_line();
        let (first, rest) = line.split_at(20);
        theirs.write_all(first.as_bytes()).unwrap();
        let waited = tokio::time::timeout(std::time::Duration::ZERO, report.ended());
        assert!(waited.await.is_err(), "it has not ended");
        assert_eq!(report.told(), Told::default());
        theirs.write_all(rest.as_bytes()).unwrap();
        drop(theirs);
        report.ended().await.unwrap();
        let told = Told {
            ended: Some(end()),
            ..Told::default()
        };
        assert_eq!(report.told(), told);
    }

    #[tokio::test]
    async fn after_a_hang_up_the_end_is_still_heard() {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        let mut report = Report::new(ours).unwrap();
        report.hang_up().await.unwrap();
        let mut nothing = [0];
        assert_eq!(std::io::Read::read(&mut theirs, &mut nothing).unwrap(), 0);
        theirs
            .write_all(JailLine::Ended(end()).to_line().as_bytes())
            .unwrap();
        drop(theirs);
        report.ended().await.unwrap();
        assert_eq!(report.told().ended, Some(end()));
    }

    #[tokio::test]
    async fn a_report_is_bounded() {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        let mut report = Report::new(ours).unwrap();
        let writer =
            std::thread::spawn(move || theirs.write_all(&vec![b'x'; REPORT_BYTES_MAX + 1]));
        assert!(report.ended().await.is_err());
        drop(report);
        // It may have been cut short by the end of the reader.
        drop(writer.join().unwrap());
    }
}
