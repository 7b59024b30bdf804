//! Takes stdin and stdout away from everything else in the process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use nix::unistd::{dup2_stdin, dup2_stdout};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Moves descriptors 0 and 1 to ones that no child inherits. In their places come /dev/null and
/// stderr: what a library or a tool prints lands in the log and can't break a frame, and what
/// reads stdin gets its end instead of the leader's words.
///
/// # Errors
/// When the system refuses; there is nothing left to go on with then.
pub fn take_standard_io() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let nothing = File::open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(io::stderr().as_fd())?;
    Ok((input, output))
}

enum Kind {
    Pipe,
    Socket,
}

/// A leader gives pipes; a launcher between, such as ssh, may give sockets. Nothing else can be
/// waited for without a thread that a blocked read would keep alive past the end.
fn kind_of(fd: OwnedFd, name: &str) -> io::Result<(Kind, OwnedFd)> {
    let file = File::from(fd);
    let found = file.metadata()?.file_type();
    let kind = if found.is_fifo() {
        Kind::Pipe
    } else if found.is_socket() {
        Kind::Socket
    } else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name} must be a pipe or a socket; a leader starts the worker so"),
        ));
    };
    Ok((kind, OwnedFd::from(file)))
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Where the leader's lines come from.
#[derive(Debug)]
pub(super) enum Input {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

impl Input {
    /// Takes over what was stdin.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        match kind_of(fd, "stdin")? {
            (Kind::Pipe, fd) => pipe::Receiver::from_owned_fd(fd).map(Input::Pipe),
            (Kind::Socket, fd) => socket(fd).map(Input::Socket),
        }
    }

    /// Waits for bytes; 0 is the end. Nothing is lost when it is dropped while it waits.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match self {
                Input::Pipe(pipe) => {
                    pipe.readable().await?;
                    pipe.try_read(buffer)
                }
                Input::Socket(socket) => {
                    socket.readable().await?;
                    socket.try_read(buffer)
                }
            };
            match result {
                Err(error) if is_no_end(&error) => {}
                result => return result,
            }
        }
    }
}

/// Where the worker's lines go.
#[derive(Debug)]
pub(super) enum Output {
    Pipe(pipe::Sender),
    Socket(UnixStream),
}

impl Output {
    /// Takes over what was stdout.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        match kind_of(fd, "stdout")? {
            (Kind::Pipe, fd) => pipe::Sender::from_owned_fd(fd).map(Output::Pipe),
            (Kind::Socket, fd) => socket(fd).map(Output::Socket),
        }
    }

    /// Waits until some bytes are written; how many. Nothing is written when it is dropped while
    /// it waits.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let result = match self {
                Output::Pipe(pipe) => {
                    pipe.writable().await?;
                    pipe.try_write(bytes)
                }
                Output::Socket(socket) => {
                    socket.writable().await?;
                    socket.try_write(bytes)
                }
            };
            match result {
                Err(error) if is_no_end(&error) => {}
                result => return result,
            }
        }
    }
}

fn is_no_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
