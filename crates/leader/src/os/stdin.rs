//! The standard input as a sign of life of whoever started this process.

use std::io;
use std::os::fd::AsFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// What is read in one go, and thrown away.
const READ_BYTES: usize = 1024;

/// Waits until every writer of a standard input that is a pipe is gone, as the kernel sees to when
/// its holder dies. Anything but a pipe counts as closed. Cancel-safe: what is lost is wanted by
/// nobody.
pub async fn closed() {
    if let Err(error) = read_to_end().await {
        tracing::debug!(%error, "the standard input can't be watched");
    }
}

async fn read_to_end() -> io::Result<()> {
    // The main thread holds the lock of `Stdin`; a descriptor of its own needs none.
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stdin = Receiver::from_owned_fd(stdin)?;
    let mut bytes = [0; READ_BYTES];
    while stdin.read(&mut bytes).await? > 0 {}
    Ok(())
}
