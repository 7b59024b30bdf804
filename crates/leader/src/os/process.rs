//! One task per child: it owns the process, drains what it prints, writes what it is told, and
//! reports its end once.
//!
//! The verdict is the wait status of the jail. What the pipes say is detail, and a process that
//! was left behind holding a pipe never delays the end: after the exit only what lies in the pipes
//! already is read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use confine::report::{Ended, Failed, Fallen, Started};
use confine::signal::{PidFd, Signal, SignalError};
use protocol::ids::TaskId;
use protocol::wire::Frame;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::core::usage::Measure;
use crate::os::child_output::Output;
use crate::os::identity;
use crate::store::worker_log::WorkerLog;

/// Lines that wait for a worker to read them.
const STDIN_LINES_MAX: usize = 256;
/// Bytes that wait for a worker to read them.
const STDIN_QUEUED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long one line may wait for a worker that does not read, in milliseconds.
const STDIN_STALL_MS: u64 = 10_000;
/// Bytes of one read. Two such buffers are held for each agent.
const READ_BYTES: usize = 8 * 1024;
/// After the exit: silence of a pipe that counts as its end, in milliseconds.
const DRAIN_IDLE_MS: u64 = 50;
/// After the exit: the longest reading altogether, in milliseconds.
const DRAIN_MS_MAX: u64 = 1_000;

/// What a child tells the driver, with whose it is.
#[derive(Debug)]
pub struct ChildMessage {
    /// Whose.
    pub task_id: TaskId,
    /// What.
    pub event: ChildEvent,
}

/// What happened to a child.
#[derive(Debug)]
pub enum ChildEvent {
    /// The jail stands; told at most once, before any frame of the worker.
    Started(Box<Started>),
    /// Somebody looked at what its processes use.
    Used(Measure),
    /// Somebody outside replaced a name that the jail guards; told a bounded number of times.
    Fallen(Fallen),
    /// The worker said something that is a frame.
    Frame(Frame),
    /// The worker does not read what it is told; it is to be stopped.
    NotReading,
    /// The process has ended; the last event.
    Ended(Box<ChildEnd>),
}

/// How the jail's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// The system could not say.
    Unknown,
}

/// Everything about a child's end.
#[derive(Debug, Clone)]
pub struct ChildEnd {
    /// The verdict.
    pub status: WaitStatus,
    /// What the jail said when it never started the worker.
    pub jail_failed: Option<Failed>,
    /// What the jail said at the end, if it lived to say it.
    pub jail_ended: Option<Ended>,
    /// The last lines on stderr.
    pub stderr_tail: String,
    /// What is odd about what it printed.
    pub warnings: Vec<String>,
}

/// What the driver holds of a live child.
#[derive(Debug)]
pub struct ChildHandle {
    pidfd: PidFd,
    below: Below,
    lines: mpsc::Sender<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
}

/// A hold on the process below the jail, once the jail has named it: init, whose end proves that
/// its namespace is empty, or the worker itself where there is no namespace.
type Below = Arc<OnceLock<Arc<PidFd>>>;

/// The worker does not read, and what waits for it has come to its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker does not read its channel")]
pub struct NotReading;

impl ChildHandle {
    /// The jail's process number, for display.
    pub fn pid(&self) -> u32 {
        self.pidfd.pid()
    }

    /// Queues a frame for the worker's stdin. To one that has ended nothing is said.
    ///
    /// # Errors
    /// When too much waits already.
    pub fn tell(&self, frame: &Frame) -> Result<(), NotReading> {
        let line = frame.to_line().into_bytes();
        let size = line.len();
        if self.queued_bytes.load(Ordering::Relaxed) + size > STDIN_QUEUED_BYTES_MAX {
            return Err(NotReading);
        }
        self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        match self.lines.try_send(line) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotReading),
        }
    }

    /// Signals the jail, which hands it on to the worker.
    ///
    /// # Errors
    /// When the kernel refuses. That the process has ended is no error.
    pub fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.pidfd.send(signal).map(drop)
    }

    /// Kills the tree: the jail, whose death the kernel passes on, and what stands below it, for
    /// the case that the jail is gone and the kernel did not.
    ///
    /// # Errors
    /// When the kernel refuses. That a process has ended is no error.
    pub fn kill(&self) -> Result<(), SignalError> {
        let jail = self.pidfd.send(Signal::SIGKILL);
        let below = match self.below.get() {
            Some(below) => below.send(Signal::SIGKILL).map(drop),
            None => Ok(()),
        };
        jail.map(drop).and(below)
    }
}

/// Takes over a child that was just started: from here its task alone waits for it.
///
/// # Errors
/// When the child can't be held by descriptor; it is then killed and reaped.
pub fn adopt(
    mut child: Child,
    task_id: TaskId,
    log: WorkerLog,
    events: mpsc::Sender<ChildMessage>,
) -> Result<ChildHandle, SignalError> {
    // The child can't have been reaped yet, for only its own task waits for it.
    let pidfd = PidFd::open(child.id().unwrap_or(0))?;
    let (lines, queue) = mpsc::channel(STDIN_LINES_MAX);
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let teller = Teller { task_id, events };
    let writer = child.stdin.take().map(|stdin| {
        tokio::spawn(write_lines(
            stdin,
            queue,
            Arc::clone(&queued_bytes),
            teller.clone(),
        ))
    });
    let below = Below::default();
    let output = Output::new(log);
    let ear = Ear {
        teller,
        below: Arc::clone(&below),
        jail_pid: pidfd.pid(),
    };
    tokio::spawn(async move {
        let end = follow(child, output, &ear).await;
        if let Some(writer) = writer {
            writer.abort();
        }
        ear.teller.tell(ChildEvent::Ended(Box::new(end))).await;
    });
    Ok(ChildHandle {
        pidfd,
        below,
        lines,
        queued_bytes,
    })
}

#[derive(Debug, Clone)]
struct Teller {
    task_id: TaskId,
    events: mpsc::Sender<ChildMessage>,
}

impl Teller {
    /// A driver that is gone wants no more events.
    async fn tell(&self, event: ChildEvent) {
        let message = ChildMessage {
            task_id: self.task_id.clone(),
            event,
        };
        drop(self.events.send(message).await);
    }
}

/// What hears a child's output.
#[derive(Debug)]
struct Ear {
    teller: Teller,
    below: Below,
    jail_pid: u32,
}

impl Ear {
    async fn hear(&self, events: Vec<ChildEvent>) {
        for event in events {
            if let ChildEvent::Started(started) = &event {
                hold_below(&self.below, started.init_pid, self.jail_pid);
            }
            self.teller.tell(event).await;
        }
    }
}

async fn write_lines(
    mut stdin: ChildStdin,
    mut queue: mpsc::Receiver<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
    teller: Teller,
) {
    while let Some(line) = queue.recv().await {
        let written = timeout(
            Duration::from_millis(STDIN_STALL_MS),
            stdin.write_all(&line),
        )
        .await;
        queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
        match written {
            Ok(Ok(())) => {}
            // It has closed its end: it is ending, or it never listens. Its end tells which.
            Ok(Err(_)) => return,
            Err(_) => {
                teller.tell(ChildEvent::NotReading).await;
                return;
            }
        }
    }
}

/// Reads both pipes until the process has ended, then what is left in them.
async fn follow(mut child: Child, mut output: Output, ear: &Ear) -> ChildEnd {
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let mut out = vec![0; READ_BYTES];
    let mut err = vec![0; READ_BYTES];
    let status = loop {
        tokio::select! {
            status = child.wait() => break wait_status(status),
            read = read_some(&mut stdout, &mut out) => {
                ear.hear(output.stdout(&out[..read])).await;
            }
            read = read_some(&mut stderr, &mut err) => {
                ear.hear(output.stderr(&err[..read])).await;
            }
        }
    };
    let drain = async {
        let idle = Duration::from_millis(DRAIN_IDLE_MS);
        while let Ok(read) = timeout(idle, read_or_end(&mut stdout, &mut out)).await {
            if read == 0 {
                break;
            }
            ear.hear(output.stdout(&out[..read])).await;
        }
        while let Ok(read) = timeout(idle, read_or_end(&mut stderr, &mut err)).await {
            if read == 0 {
                break;
            }
            ear.hear(output.stderr(&err[..read])).await;
        }
    };
    // What is still being written comes from a process that has no business any more.
    drop(timeout(Duration::from_millis(DRAIN_MS_MAX), drain).await);
    below_has_ended(&ear.below).await;
    output.end(status)
}

/// Waits until the process below the jail has ended, which the kernel may bring about a moment
/// after the jail's own end. How long that may take is the supervisor's business.
async fn below_has_ended(below: &Below) {
    let Some(below) = below.get() else { return };
    // A pidfd becomes readable at the end of its process (pidfd_open(2)).
    // SAFETY: the `Arc` keeps the hold, and the hold its one descriptor, open and the same for as
    // long as the registration lives.
    let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(below), Interest::READABLE) };
    match watched {
        Ok(watched) => drop(watched.readable().await),
        Err(_) => {
            // Without room for one more descriptor in the poll set the end is looked for.
            while !below.has_ended().unwrap_or(true) {
                tokio::time::sleep(Duration::from_millis(DRAIN_IDLE_MS)).await;
            }
        }
    }
}

/// Takes hold of the process that the jail named. Its number could be another's by now only if it
/// had ended, and then its parent would not be the jail.
fn hold_below(below: &Below, pid: u32, jail_pid: u32) {
    if let Ok(hold) = PidFd::open(pid)
        && identity::parent_of(pid).is_ok_and(|parent| parent == jail_pid)
    {
        // The jail names it once.
        below.set(Arc::new(hold)).ok();
    }
}

fn wait_status(status: std::io::Result<std::process::ExitStatus>) -> WaitStatus {
    use std::os::unix::process::ExitStatusExt;
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => WaitStatus::Exited(code),
        Ok((None, Some(signal))) => WaitStatus::Signaled(signal),
        Ok((None, None)) | Err(_) => WaitStatus::Unknown,
    }
}

/// Reads the next bytes; a pipe that has ended never becomes ready again.
async fn read_some<R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &mut [u8]) -> usize {
    match read_or_end(pipe, buffer).await {
        0 => std::future::pending().await,
        read => read,
    }
}

/// Reads the next bytes, or 0 at the end. An error of a pipe is its end.
async fn read_or_end<R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &mut [u8]) -> usize {
    let Some(open) = pipe else { return 0 };
    let read = open.read(buffer).await.unwrap_or(0);
    if read == 0 {
        *pipe = None;
    }
    read
}
