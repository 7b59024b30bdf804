//! A leader that serves, and a client of its control socket.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};

/// A running `leader serve`; killed when dropped, and its agents with it.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    socket: PathBuf,
}

impl Serve {
    /// Starts one in the ground's workspace and waits until it can be called.
    ///
    /// # Errors
    /// When it does not say where its socket is.
    pub fn start(ground: &Ground) -> Result<Serve, BenchError> {
        let log = ground.beside("serve.log");
        let stderr = std::fs::File::create(&log).map_err(BenchError::io("make a log"))?;
        Serve::begin(ground, stderr.into(), "warn")
    }

    /// As [`Serve::start`], with the leader's own account of what it decides on its stderr.
    ///
    /// # Errors
    /// As [`Serve::start`].
    pub fn start_with_log(ground: &Ground) -> Result<(Serve, BufReader<PipeReader>), BenchError> {
        let (log, stderr) = std::io::pipe().map_err(BenchError::io("make a pipe"))?;
        let serve = Serve::begin(ground, stderr.into(), "debug")?;
        Ok((serve, BufReader::new(log)))
    }

    fn begin(ground: &Ground, stderr: Stdio, level: &str) -> Result<Serve, BenchError> {
        let mut child = ground
            .ours("leader")
            .args(["serve", "--json"])
            .env("RUST_LOG", level)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(BenchError::io("start `leader serve`"))?;
        let mut line = String::new();
        let read = child
            .stdout
            .take()
            .map(|out| BufReader::new(out).read_line(&mut line));
        let told: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let Some(socket) = told["socket"].as_str().map(PathBuf::from) else {
            drop(child.kill());
            drop(child.wait());
            return Err(BenchError::Failed(format!(
                "`leader serve` named no socket ({read:?}): {line}"
            )));
        };
        Ok(Serve { child, socket })
    }

    /// The leader's process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn connect(&self) -> Result<Client, BenchError> {
        let failed = "reach the control socket";
        let stream = connect(&self.socket).map_err(BenchError::io(failed))?;
        let of = |stream: &UnixStream| {
            stream.set_read_timeout(Some(BUDGET))?;
            stream.try_clone()
        };
        let reader = of(&stream).map_err(BenchError::io(failed))?;
        Ok(Client {
            stream,
            reader: BufReader::new(reader),
            next: 0,
        })
    }

    /// Starts an agent in the background, with its results in this folder of the workspace.
    ///
    /// # Errors
    /// When the leader refuses.
    pub fn create(client: &mut Client, folder: &str) -> Result<u64, BenchError> {
        let answer = client.call(
            "create_sub_agent",
            json!({"task": "Write the file.", "summary": "write a file",
                   "deliverables_dir": folder, "run_in_background": true}),
        )?;
        answer["agent_id"]
            .as_u64()
            .ok_or_else(|| BenchError::Failed(format!("no agent was started: {answer}")))
    }

    /// Kills the leader as a crash would, at the moment given back, and leaves it to
    /// [`Serve::reap`].
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<Instant, BenchError> {
        let moment = Instant::now();
        self.child
            .kill()
            .map_err(BenchError::io("kill the leader"))?;
        Ok(moment)
    }

    /// Waits for the leader's end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn reap(&mut self) -> Result<(), BenchError> {
        let waited = self.child.wait();
        waited
            .map(drop)
            .map_err(BenchError::io("wait for the leader"))
    }
}

/// Connects to a socket by way of its folder's descriptor, for an address holds no more than 107
/// bytes of a path (unix(7)).
fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let folder = std::fs::File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let name = socket.file_name().unwrap_or_default();
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    UnixStream::connect(short.join(name))
}

impl Drop for Serve {
    fn drop(&mut self) {
        // One that has ended can't be killed, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection to a control socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    next: u64,
}

impl Client {
    /// Sends a call and gives its id.
    ///
    /// # Errors
    /// When the leader has gone.
    pub fn send(&mut self, method: &str, params: Value) -> Result<u64, BenchError> {
        let id = self.next;
        self.next += 1;
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.stream
            .write_all(format!("{frame}\n").as_bytes())
            .map_err(BenchError::io(format!("call `{method}`")))?;
        Ok(id)
    }

    /// The next line, whatever it is.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn line(&mut self) -> Result<Value, BenchError> {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .map_err(BenchError::io("read the control socket"))?;
        serde_json::from_str(&line)
            .map_err(|error| BenchError::Failed(format!("no JSON of the leader: {error}: {line}")))
    }

    /// A call and its answer; events that come before it are passed over.
    ///
    /// # Errors
    /// When the call is refused, or not answered in time.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, BenchError> {
        let id = self.send(method, params)?;
        loop {
            let mut line = self.line()?;
            if line["id"].as_u64() == Some(id) {
                let result = line["result"].take();
                return if result["success"] == json!(true) {
                    Ok(result)
                } else {
                    Err(BenchError::Failed(format!(
                        "`{method}` failed: {result}{}",
                        line["error"]
                    )))
                };
            }
        }
    }
}
