//! Where the control socket lies in the file system, and how it is reached.
//!
//! A socket's address holds at most 107 bytes of path, and workspaces lie deeper than that. The
//! way there is then a descriptor of the directory: `/proc/self/fd/N/leader.sock` is always short.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use protocol::socket::SOCKET_FILE;

/// Bytes of path that an address takes, its final zero left out (unix(7)).
const ADDRESS_BYTES_MAX: usize = 107;
/// Connections that the kernel keeps until they are taken.
const BACKLOG: i32 = 64;

/// A path that names the socket shortly enough, and the descriptor that it may go through, which
/// must stay open as long as the path is used.
#[derive(Debug)]
struct ShortPath {
    path: PathBuf,
    _directory: Option<File>,
}

fn short_path(run_dir: &Path) -> io::Result<ShortPath> {
    let path = run_dir.join(SOCKET_FILE);
    if path.as_os_str().as_bytes().len() <= ADDRESS_BYTES_MAX {
        return Ok(ShortPath {
            path,
            _directory: None,
        });
    }
    let directory = File::open(run_dir)?;
    Ok(ShortPath {
        path: PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(SOCKET_FILE),
        _directory: Some(directory),
    })
}

/// Listens at `run_dir/leader.sock`, mode 0600. The caller holds the run's lock, so a socket that
/// lies there already belongs to nobody and is removed.
///
/// # Errors
/// When the directory is missing or the system refuses.
pub fn listen_in(run_dir: &Path) -> io::Result<UnixListener> {
    let short = short_path(run_dir)?;
    match std::fs::remove_file(&short.path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let fd: OwnedFd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )?;
    // On Linux the file takes its mode from the unbound socket, so there is no moment at which
    // somebody else could connect.
    fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(&short.path)?)?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(UnixListener::from(fd))
}

/// Connects to the socket of a run.
///
/// # Errors
/// When there is none, or nobody listens on it.
pub fn connect_to(run_dir: &Path) -> io::Result<UnixStream> {
    let short = short_path(run_dir)?;
    UnixStream::connect(&short.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    fn round_trip(run_dir: &Path) {
        let listener = listen_in(run_dir).unwrap();
        listener.set_nonblocking(false).unwrap();
        let mode = std::fs::symlink_metadata(run_dir.join(SOCKET_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = connect_to(run_dir).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        served.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[test]
    fn only_the_owner_reaches_it_and_a_left_over_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        round_trip(dir.path());
        assert_eq!(
            connect_to(dir.path()).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        round_trip(dir.path());
    }

    #[test]
    fn a_workspace_deeper_than_an_address_is_long_works() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        round_trip(&deep);
    }

    #[test]
    fn a_run_without_a_socket_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let missing = connect_to(dir.path()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(listen_in(&dir.path().join("gone")).is_err());
    }
}
