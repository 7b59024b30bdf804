//! The private line between the jail and the processes inside: one message a packet.
//!
//! The program never holds this socket (it is closed on exec), so it can forge nothing on it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::limits;
use crate::path_text;
use crate::report::{Confinement, EndReason, Step, to_json};
use crate::steps::StepError;
use crate::sys::best_effort;
use crate::verdict::Verdict;

/// What the inside tells the jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// All is set up; the program waits for the word to be executed.
    Ready(Confinement),
    /// A step failed; nothing was executed.
    Failed(StepError),
    /// The program ended; told again when what it had left behind has ended too.
    Ended {
        verdict: Verdict,
        reason: EndReason,
        left_behind: bool,
    },
    /// A mount fell off, because somebody outside replaced what it stood on.
    Fallen {
        #[serde(with = "path_text::one")]
        path: PathBuf,
        again: bool,
    },
}

/// What the jail finds on its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// A message.
    Message(Message),
    /// Nothing yet.
    Nothing,
    /// Nobody is left to send anything.
    Closed,
}

/// The jail's end.
#[derive(Debug)]
pub(crate) struct JailEnd(OwnedFd);

/// The end that init and the program-to-be share.
#[derive(Debug)]
pub(crate) struct InnerEnd(OwnedFd);

/// Makes the line.
pub(crate) fn line() -> Result<(JailEnd, InnerEnd), StepError> {
    let pair = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    );
    let (jail, inner) =
        pair.map_err(|errno| StepError::errno(Step::Descriptors, errno, "make a socket pair"))?;
    Ok((JailEnd(jail), InnerEnd(inner)))
}

impl JailEnd {
    /// The descriptor to poll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What there is to read now.
    pub(crate) fn next(&self) -> Next {
        let mut buffer = vec![0; limits::INSIDE_MESSAGE_BYTES_MAX];
        match receive(&self.0, &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => Next::Nothing,
            Ok(0) | Err(_) => Next::Closed,
            Ok(size) => match serde_json::from_slice(&buffer[..size]) {
                Ok(message) => Next::Message(message),
                // Both ends are this very program, so only a message that was cut is unreadable.
                Err(_) => Next::Closed,
            },
        }
    }

    /// Gives the word to execute the program.
    pub(crate) fn go(&self) {
        // If the inside is gone this fails, and its end is noticed by its pidfd.
        best_effort(send(self.0.as_raw_fd(), b"go", MsgFlags::MSG_NOSIGNAL));
    }
}

impl InnerEnd {
    /// Tells the jail.
    pub(crate) fn tell(&self, message: &Message) {
        // If the jail is gone, this process is being killed for it.
        let text = to_json(message);
        best_effort(send(
            self.0.as_raw_fd(),
            text.as_bytes(),
            MsgFlags::MSG_NOSIGNAL,
        ));
    }

    /// Waits for the word to execute the program; false when the jail is gone.
    pub(crate) fn wait_for_go(&self) -> bool {
        let mut buffer = [0; 8];
        matches!(receive(&self.0, &mut buffer, MsgFlags::empty()), Ok(2))
    }
}

fn receive(fd: &OwnedFd, buffer: &mut [u8], flags: MsgFlags) -> Result<usize, Errno> {
    loop {
        match recv(fd.as_raw_fd(), buffer, flags) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
