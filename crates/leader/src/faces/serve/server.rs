//! Takes callers of the control socket, as many as there may be, and lets them finish at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use protocol::socket::SOCKET_FILE;
use protocol::wire::{Frame, RpcError};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::faces::serve::connection::{self, Service};
use crate::faces::serve::socket::listen_in;

/// Callers at once.
pub const CONNECTIONS_MAX: usize = 64;
/// How long callers may take to read their last answers when the conversation has ended.
const FLUSH_MS: u64 = 1_000;
/// The pause after a connection that the system could not give us, such as for want of
/// descriptors; without it the loop would spin until one is free.
const ACCEPT_PAUSE_MS: u64 = 100;
/// The code of the answer to a caller that is not wanted.
const REFUSED: i64 = -32_001;

/// An open control socket. Dropping it ends all connections; [`ControlSocket::close`] lets them
/// read their answers first.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    closing: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl ControlSocket {
    /// Opens the socket in the folder of a run. The caller holds that run's lock.
    ///
    /// # Errors
    /// When the system refuses; the file system may have no sockets.
    pub fn open<S: Service>(run_dir: &Path, service: S) -> io::Result<Self> {
        let listener = UnixListener::from_std(listen_in(run_dir)?)?;
        let (closing, watched) = watch::channel(false);
        Ok(ControlSocket {
            path: run_dir.join(SOCKET_FILE),
            closing,
            accepting: tokio::spawn(accept(listener, service, watched)),
        })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes no more callers and no more calls, lets answers that are under way go out, and
    /// removes the file.
    ///
    /// # Errors
    /// When the file can't be removed.
    pub async fn close(mut self) -> io::Result<()> {
        self.closing.send_replace(true);
        // The only error is a panic of the task, after which nothing is open any more.
        (&mut self.accepting).await.ok();
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<S: Service>(
    listener: UnixListener,
    service: S,
    mut closing: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = connections.join_next(), if !connections.is_empty() => continue,
            _ = closing.wait_for(|closing| *closing) => break,
        };
        match accepted {
            Ok((stream, _)) => match admit(&stream, connections.len()) {
                Ok(()) => {
                    let serving = connection::serve(stream, service.clone(), closing.clone());
                    connections.spawn(async {
                        if let Err(error) = serving.await {
                            tracing::warn!(%error, "a caller of the control socket was not served");
                        }
                    });
                }
                Err(why) => turn_away(&stream, why),
            },
            Err(error) => {
                tracing::warn!(%error, "the control socket could not take a caller");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    // Whoever has not read its answers by now is cut off.
    tokio::time::timeout(Duration::from_millis(FLUSH_MS), finished)
        .await
        .ok();
}

/// Whether a caller may come in.
fn admit(stream: &UnixStream, connections: usize) -> Result<(), String> {
    let peer = stream
        .peer_cred()
        .map_err(|error| format!("the system does not say who you are: {error}"))?;
    judge(peer.uid(), geteuid().as_raw(), connections)
}

/// The rule of [`admit`].
fn judge(peer_uid: u32, own_uid: u32, connections: usize) -> Result<(), String> {
    if peer_uid != own_uid {
        return Err(format!(
            "this conversation belongs to user {own_uid}, not to user {peer_uid}"
        ));
    }
    if connections >= CONNECTIONS_MAX {
        return Err(format!(
            "{CONNECTIONS_MAX} connections are open already; close one"
        ));
    }
    Ok(())
}

/// Says why, as far as that goes without waiting.
fn turn_away(stream: &UnixStream, why: String) {
    let line = Frame::error(Value::Null, RpcError::new(REFUSED, why)).to_line();
    stream.try_write(line.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::serve::connection::{Event, Events};
    use crate::faces::serve::socket::connect_to;
    use std::io::{BufRead, BufReader, Write};

    #[derive(Debug, Clone)]
    struct Echo;

    impl Service for Echo {
        type Events = Never;

        async fn call(&self, method: &str, _: Value) -> Result<Value, RpcError> {
            Ok(Value::from(method))
        }

        async fn subscribe(&self, _: Option<u64>) -> Result<Never, RpcError> {
            Ok(Never)
        }
    }

    struct Never;

    impl Events for Never {
        async fn next(&mut self) -> Option<Event> {
            std::future::pending().await
        }
    }

    /// What a blocking caller hears, on a thread of its own.
    async fn say(run_dir: &Path, line: &'static str) -> (std::os::unix::net::UnixStream, Value) {
        let run_dir = run_dir.to_owned();
        let said = tokio::task::spawn_blocking(move || {
            let mut stream = connect_to(&run_dir).unwrap();
            // A caller that is turned away may find the other end closed.
            stream.write_all(line.as_bytes()).ok();
            let mut heard = String::new();
            BufReader::new(&stream).read_line(&mut heard).unwrap();
            (stream, serde_json::from_str(&heard).unwrap())
        });
        said.await.unwrap()
    }

    #[test]
    fn only_the_owner_comes_in_and_only_so_often() {
        assert_eq!(judge(7, 7, CONNECTIONS_MAX - 1), Ok(()));
        assert!(judge(7, 7, CONNECTIONS_MAX).is_err());
        let foreign = judge(0, 7, 0).unwrap_err();
        assert!(foreign.contains("user 7"), "{foreign}");
    }

    #[tokio::test]
    async fn a_caller_over_the_limit_is_told_and_room_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::open(dir.path(), Echo).unwrap();
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let (stream, answer) = say(dir.path(), "{\"id\":1,\"method\":\"m\"}\n").await;
            assert_eq!(answer["result"], "m");
            held.push(stream);
        }
        let (_, refused) = say(dir.path(), "{\"id\":1,\"method\":\"m\"}\n").await;
        assert_eq!(refused["error"]["code"], REFUSED);
        held.clear();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let (_, answer) = say(dir.path(), "{\"id\":1,\"method\":\"m\"}\n").await;
            if answer["result"] == "m" {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{answer}");
        }
        socket.close().await.unwrap();
    }

    #[tokio::test]
    async fn closing_cuts_off_who_only_listens_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::open(dir.path(), Echo).unwrap();
        assert_eq!(socket.path(), dir.path().join(SOCKET_FILE));
        let (stream, answer) = say(
            dir.path(),
            "{\"id\":1,\"method\":\"subscribe\",\"params\":{}}\n",
        )
        .await;
        assert_eq!(answer["result"]["subscribed"], true);
        socket.close().await.unwrap();
        assert!(!dir.path().join(SOCKET_FILE).exists());
        let ended = tokio::task::spawn_blocking(move || {
            let mut rest = String::new();
            BufReader::new(&stream).read_line(&mut rest).unwrap()
        });
        assert_eq!(ended.await.unwrap(), 0);
    }
}
