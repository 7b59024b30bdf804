//! The worker's side of the keeper's socket.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, SockType, getsockopt, sendmsg, sockopt};

use super::{CommandSpec, ENV_KEEPER, KEEPER_FD};
use crate::limits;
use crate::report::to_json;

/// Why a command was not handed to the keeper.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The variable is there and the socket is not.
    #[error("descriptor {KEEPER_FD} is not the keeper's socket, although {ENV_KEEPER} says so")]
    NoSocket(#[source] io::Error),
    /// The socket was taken before.
    #[error("the keeper's socket was already taken in this process")]
    Taken,
    /// The command does not fit into one message.
    #[error(
        "the command and its environment have {bytes} bytes; at most {} fit (hint: put long text \
         into a file)",
        limits::COMMAND_BYTES_MAX
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The report socket could not be made.
    #[error("could not make a report socket")]
    Report(#[source] io::Error),
    /// The keeper did not take the message.
    #[error("could not reach the keeper (hint: if it is gone, the worker has to be started anew)")]
    Send(#[source] io::Error),
}

/// The socket to the keeper. One message starts one command; any thread may send.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Takes the socket that this process was started with; `None` where there is no keeper, as on
    /// rungs without namespaces.
    ///
    /// Call it once and early: until then the socket would pass on to child processes.
    ///
    /// # Errors
    /// When the socket was taken before, or [`ENV_KEEPER`] is set without one.
    pub fn inherited() -> Result<Option<Client>, ClientError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if std::env::var_os(ENV_KEEPER).as_deref() != Some(KEEPER_FD.to_string().as_ref()) {
            return Ok(None);
        }
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(ClientError::Taken);
        }
        let absent = |errno: Errno| ClientError::NoSocket(errno.into());
        // SAFETY: the number is only asked about here; a closed one gives EBADF.
        let unowned = unsafe { BorrowedFd::borrow_raw(KEEPER_FD) };
        match getsockopt(&unowned, sockopt::SockType).map_err(absent)? {
            SockType::SeqPacket => {}
            _ => return Err(absent(Errno::ENOTSOCK)),
        }
        fcntl(unowned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(absent)?;
        // SAFETY: the jail passed it to this process to own, and it is taken only once.
        let socket = unsafe { OwnedFd::from_raw_fd(KEEPER_FD) };
        Ok(Some(Client { socket }))
    }

    /// Starts a command and returns its report socket, which does not block.
    ///
    /// On it come lines as of [`crate::report::JailLine`]: `jail/started` or `jail/failed`, then
    /// `jail/ended`, then the end of file. Dropping it kills the command at once. `init_pid` in
    /// them is a number of the tree's namespace. The three descriptors may be closed after this.
    ///
    /// # Errors
    /// When the command is too large, or the keeper can't be reached. What the keeper refuses is
    /// told by `jail/failed`.
    pub fn start(
        &self,
        spec: &CommandSpec,
        stdin: BorrowedFd<'_>,
        stdout: BorrowedFd<'_>,
        stderr: BorrowedFd<'_>,
    ) -> Result<UnixStream, ClientError> {
        let text = to_json(spec);
        if text.len() > limits::COMMAND_BYTES_MAX {
            return Err(ClientError::TooLarge { bytes: text.len() });
        }
        let (ours, theirs) = UnixStream::pair().map_err(ClientError::Report)?;
        ours.set_nonblocking(true).map_err(ClientError::Report)?;
        let passed = [
            stdin.as_raw_fd(),
            stdout.as_raw_fd(),
            stderr.as_raw_fd(),
            theirs.as_raw_fd(),
        ];
        let parts = [IoSlice::new(text.as_bytes())];
        let control = [ControlMessage::ScmRights(&passed)];
        loop {
            let sent = sendmsg::<()>(
                self.socket.as_raw_fd(),
                &parts,
                &control,
                MsgFlags::MSG_NOSIGNAL,
                None,
            );
            match sent {
                Ok(_) => return Ok(ours),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(ClientError::Send(errno.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A command whose message has exactly so many bytes.
    fn spec_of(bytes: usize) -> CommandSpec {
        let mut spec = CommandSpec::new(vec!["".into()], "/".into());
        spec.argv[0] = "a".repeat(bytes - to_json(&spec).len()).into();
        spec
    }

    #[test]
    fn a_message_fits_up_to_the_limit_and_is_refused_one_past_it() {
        let (theirs, socket) = crate::keeper::socket().unwrap();
        let client = Client { socket };
        let null = std::fs::File::open("/dev/null").unwrap();
        let start = |bytes| client.start(&spec_of(bytes), null.as_fd(), null.as_fd(), null.as_fd());
        let report = start(limits::COMMAND_BYTES_MAX).unwrap();
        let mut buffer = vec![0; limits::COMMAND_BYTES_MAX + 1];
        let size = nix::unistd::read(&theirs, &mut buffer).unwrap();
        assert_eq!(
            serde_json::from_slice::<CommandSpec>(&buffer[..size])
                .unwrap()
                .argv
                .len(),
            1
        );
        assert_eq!(size, limits::COMMAND_BYTES_MAX);
        drop(report);
        let error = start(limits::COMMAND_BYTES_MAX + 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the command and its environment have 163841 bytes; at most 163840 fit (hint: put \
             long text into a file)"
        );
    }

    #[test]
    fn a_keeper_that_is_gone_is_an_error_and_no_signal() {
        let (theirs, socket) = crate::keeper::socket().unwrap();
        drop(theirs);
        let client = Client { socket };
        let null = std::fs::File::open("/dev/null").unwrap();
        let sent = client.start(&spec_of(200), null.as_fd(), null.as_fd(), null.as_fd());
        assert!(matches!(sent, Err(ClientError::Send(_))), "{sent:?}");
    }
}
