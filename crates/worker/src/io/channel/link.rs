//! One task that owns both directions of the channel; the rest of the worker talks to it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use protocol::channel::{DeliveredMessage, PROGRESS, ProgressParams};
use protocol::limits::PROGRESS_PER_SECOND_MAX;
use protocol::status::StopReason;
use protocol::wire::{Frame, LineSplitter, RpcError};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::dispatch::{Junk, Meaning, meaning};
use super::standard_io::{Input, Output};
use crate::core::throttle::Throttle;
use crate::io::clock::Clock;

/// Events of the leader that wait for the agent. When they are full, reading stops, and the
/// leader notices that its writes wait.
const EVENTS_MAX: usize = 256;
/// Bytes that wait to be written. Beyond it, what can be spared is dropped: texts as they come
/// and answers to pings; never an acknowledgement, a call or the outcome.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// One read.
const READ_BYTES: usize = 64 * 1024;

/// What the leader says.
#[derive(Debug, Clone, PartialEq)]
pub enum FromLeader {
    /// Messages for the next turn boundary.
    Deliver(Vec<DeliveredMessage>),
    /// Save and leave.
    Stop {
        /// Why.
        reason: StopReason,
    },
    /// Come to an end.
    WrapUp {
        /// Until the stop.
        seconds_left: u64,
    },
    /// The deadline is another.
    Deadline {
        /// Until the stop.
        remaining_ms: u64,
        /// Whether the clock stands still.
        paused: bool,
    },
    /// One of the above, sent as a request: the answer goes out with it.
    Asked {
        /// What was asked.
        event: Box<FromLeader>,
        /// The answer.
        answer: Frame,
    },
    /// Nobody is there any more.
    Gone,
}

/// Why a call to the leader has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The leader refused it.
    #[error("the leader refused `{method}`: {error}")]
    Refused {
        /// What was called.
        method: String,
        /// Its answer.
        error: RpcError,
    },
    /// The leader is gone.
    #[error("the leader is gone")]
    Gone,
}

enum Outgoing {
    /// Must arrive.
    Frame(Frame),
    /// Must arrive, and is the last word: the progress that waits goes before it.
    Last(Frame),
    /// May be dropped when the leader reads too slowly.
    Spare(Frame),
    Call {
        method: String,
        params: Value,
        answer: oneshot::Sender<Result<Value, RpcError>>,
    },
    /// Everything before it is written, or can't be.
    Flush(oneshot::Sender<()>),
}

/// The worker's side of the channel. Cheap to clone; all clones talk to the same task.
#[derive(Debug, Clone)]
pub struct Leader {
    // Without a bound of its own: the task empties it whenever it runs, and bounds what it
    // holds itself.
    outgoing: mpsc::UnboundedSender<Outgoing>,
    progress: watch::Sender<Option<ProgressParams>>,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Outgoing::Frame(_) => "Frame",
            Outgoing::Last(_) => "Last",
            Outgoing::Spare(_) => "Spare",
            Outgoing::Call { .. } => "Call",
            Outgoing::Flush(_) => "Flush",
        })
    }
}

impl Leader {
    /// Calls a method and waits for its answer. Dropping it forgets the answer, not the call.
    ///
    /// # Errors
    /// When the leader refuses, or is gone.
    pub async fn call(&self, method: &str, params: impl Serialize) -> Result<Value, CallError> {
        let (answer, result) = oneshot::channel();
        let call = Outgoing::Call {
            method: method.to_owned(),
            params: to_value(params),
            answer,
        };
        self.outgoing.send(call).map_err(|_| CallError::Gone)?;
        match result.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(CallError::Refused {
                method: method.to_owned(),
                error,
            }),
            Err(_) => Err(CallError::Gone),
        }
    }

    /// Says something that must arrive.
    pub fn notify(&self, method: &str, params: impl Serialize) {
        self.send(Outgoing::Frame(Frame::notification(
            method,
            to_value(params),
        )));
    }

    /// Says the last word; the latest progress goes before it, however soon.
    pub fn notify_last(&self, method: &str, params: impl Serialize) {
        self.send(Outgoing::Last(Frame::notification(
            method,
            to_value(params),
        )));
    }

    /// Says something that may be dropped when the leader does not keep up.
    pub fn notify_spare(&self, method: &str, params: impl Serialize) {
        self.send(Outgoing::Spare(Frame::notification(
            method,
            to_value(params),
        )));
    }

    /// Tells how far the agent is. Only the latest counts; it goes out as often as is allowed.
    pub fn progress(&self, progress: ProgressParams) {
        self.progress.send_replace(Some(progress));
    }

    /// Waits until everything is written, at most so long.
    pub async fn flush(&self, within: Duration) {
        let (done, flushed) = oneshot::channel();
        self.send(Outgoing::Flush(done));
        // Too late or gone: there is nothing more to do about it, the files are written.
        drop(tokio::time::timeout(within, flushed).await);
    }

    fn send(&self, outgoing: Outgoing) {
        // When the task has ended the leader is gone, which the agent hears as an event.
        drop(self.outgoing.send(outgoing));
    }
}

fn to_value(params: impl Serialize) -> Value {
    serde_json::to_value(params).unwrap_or(Value::Null)
}

/// Opens the channel on two descriptors, pipes or sockets, and starts the task that owns it.
///
/// # Errors
/// When they are neither: a regular file or a terminal is no channel.
pub fn open(input: OwnedFd, output: OwnedFd) -> io::Result<(Leader, mpsc::Receiver<FromLeader>)> {
    let (outgoing, commands) = mpsc::unbounded_channel();
    let (progress, latest) = watch::channel(None);
    let (events, incoming) = mpsc::channel(EVENTS_MAX);
    let link = Link {
        input: Input::new(input)?,
        output: Output::new(output)?,
        splitter: LineSplitter::default(),
        junk: Junk::default(),
        commands,
        latest,
        events,
        arrived: VecDeque::new(),
        queue: VecDeque::new(),
        throttle: Throttle::per_second(PROGRESS_PER_SECOND_MAX),
        clock: Clock::start(),
        calls: HashMap::new(),
        next_id: 1,
        flushes: Vec::new(),
        is_open: true,
    };
    drop(tokio::spawn(link.serve()));
    let leader = Leader { outgoing, progress };
    Ok((leader, incoming))
}

struct Link {
    input: Input,
    output: Output,
    splitter: LineSplitter,
    junk: Junk,
    commands: mpsc::UnboundedReceiver<Outgoing>,
    latest: watch::Receiver<Option<ProgressParams>>,
    events: mpsc::Sender<FromLeader>,
    /// Events that the agent has not taken yet.
    arrived: VecDeque<FromLeader>,
    queue: VecDeque<u8>,
    throttle: Throttle<ProgressParams>,
    clock: Clock,
    calls: HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>,
    next_id: u64,
    flushes: Vec<oneshot::Sender<()>>,
    is_open: bool,
}

impl Link {
    /// Serves both directions until the agent has dropped its side.
    async fn serve(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        let events = self.events.clone();
        loop {
            let due = self.throttle.due_ms().map(|at| self.clock.moment(at));
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                Ok(()) = self.latest.changed() => self.take_progress(),
                () = sleep_until(due) => {
                    let due = self.throttle.take_due(self.clock.now_ms());
                    self.push_progress(due);
                }
                permit = events.reserve(), if !self.arrived.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.arrived.pop_front() {
                            permit.send(event);
                        }
                    }
                    // The agent listens no more; its last words still go out.
                    Err(_) => self.arrived.clear(),
                },
                read = self.input.read(&mut buffer), if self.is_open && self.arrived.is_empty() => {
                    match read {
                        Ok(0) | Err(_) => self.close(),
                        Ok(count) => self.received(&buffer[..count]),
                    }
                }
                written = self.output.write(self.queue.as_slices().0), if !self.queue.is_empty() => {
                    match written {
                        Ok(count) => drop(self.queue.drain(..count)),
                        Err(_) => {
                            self.queue.clear();
                            self.close();
                        }
                    }
                }
            }
            if self.queue.is_empty() {
                for flush in self.flushes.drain(..) {
                    flush.send(()).ok();
                }
            }
        }
    }

    fn take(&mut self, command: Outgoing) {
        match command {
            Outgoing::Frame(frame) => self.push(&frame),
            Outgoing::Last(frame) => {
                if self.latest.has_changed().unwrap_or(false) {
                    self.take_progress();
                }
                let last = self.throttle.take_last();
                self.push_progress(last);
                self.push(&frame);
            }
            Outgoing::Spare(frame) => {
                if self.queue.len() < QUEUE_BYTES_MAX {
                    self.push(&frame);
                }
            }
            Outgoing::Call {
                method,
                params,
                answer,
            } => {
                if !self.is_open {
                    // Dropping the sender tells the caller.
                    return;
                }
                let id = self.next_id;
                self.next_id += 1;
                self.calls.insert(id, answer);
                self.push(&Frame::request(id, &method, params));
            }
            Outgoing::Flush(done) => self.flushes.push(done),
        }
    }

    fn take_progress(&mut self) {
        let news = self.latest.borrow_and_update().clone();
        if let Some(news) = news {
            let due = self.throttle.offer(self.clock.now_ms(), news);
            self.push_progress(due);
        }
    }

    fn push(&mut self, frame: &Frame) {
        if self.is_open {
            self.queue.extend(frame.to_line().as_bytes());
        }
    }

    fn push_progress(&mut self, progress: Option<ProgressParams>) {
        if let Some(progress) = progress {
            self.push(&Frame::notification(PROGRESS, to_value(progress)));
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        for line in self.splitter.push(bytes) {
            self.understand(meaning(&line));
        }
    }

    fn understand(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Event(FromLeader::Asked { event, answer }) => {
                self.push(&answer);
                self.arrived.push_back(*event);
            }
            Meaning::Event(event) => self.arrived.push_back(event),
            Meaning::Reply(frame) => self.take(Outgoing::Spare(frame)),
            Meaning::Answer { id, outcome } => match self.calls.remove(&id) {
                // The caller may have given up; its answer is then nobody's.
                Some(call) => drop(call.send(outcome)),
                None => self.note_junk(&format!("an answer to a call {id} that is not open")),
            },
            Meaning::Junk(why) => self.note_junk(&why),
        }
    }

    fn note_junk(&mut self, why: &str) {
        if let Some(text) = self.junk.note(why) {
            tracing::warn!(
                lines = self.junk.lines,
                why = text,
                "no frame from the leader"
            );
        }
    }

    /// The other end is gone: nothing comes, nothing goes.
    fn close(&mut self) {
        if !self.is_open {
            return;
        }
        self.is_open = false;
        if let Some(line) = self.splitter.end() {
            self.understand(meaning(&line));
        }
        self.calls.clear();
        self.arrived.push_back(FromLeader::Gone);
    }
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;

    use serde_json::json;

    use super::*;

    /// A channel over two sockets; the leader's ends come back too.
    fn channel() -> (
        Leader,
        mpsc::Receiver<FromLeader>,
        UnixStream,
        BufReader<UnixStream>,
    ) {
        let (theirs, input) = UnixStream::pair().unwrap();
        let (output, hears) = UnixStream::pair().unwrap();
        let (leader, events) = open(input.into(), output.into()).unwrap();
        (leader, events, theirs, BufReader::new(hears))
    }

    /// Reads lines up to and with the one of this method, on a thread of its own.
    async fn hear_until(
        mut hears: BufReader<UnixStream>,
        method: &'static str,
    ) -> (Vec<String>, BufReader<UnixStream>) {
        tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                assert_ne!(
                    hears.read_line(&mut line).unwrap(),
                    0,
                    "{method} never came"
                );
                let last = line.contains(&format!("\"{method}\""));
                lines.push(line);
                if last {
                    return (lines, hears);
                }
            }
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn a_leader_that_does_not_read_costs_texts_and_nothing_else() {
        let (leader, _events, _theirs, hears) = channel();
        let text = "x".repeat(1024 * 1024);
        for n in 0..20 {
            leader.notify_spare("text", json!({"n": n, "text": text}));
            leader.notify("must", json!({ "n": n }));
            // Lets the task take it, so that its queue and not this loop decides.
            tokio::task::yield_now().await;
        }
        leader.notify_last("last", json!({}));
        let (lines, _hears) = hear_until(hears, "last").await;
        let count = |method: &str| {
            let wanted = format!("\"method\":\"{method}\"");
            lines.iter().filter(|line| line.contains(&wanted)).count()
        };
        assert_eq!(count("must"), 20);
        let texts = count("text");
        let most = QUEUE_BYTES_MAX / text.len() + 1;
        assert!((1..=most).contains(&texts), "{texts} of {most}");
    }

    #[tokio::test]
    async fn the_last_progress_goes_before_the_last_word() {
        let (leader, _events, _theirs, hears) = channel();
        for n in 0..50 {
            leader.progress(ProgressParams {
                stats: protocol::stats::Stats::default(),
                last_action: format!("step {n}"),
                state: protocol::status::Status::Running,
                output_tail: String::new(),
            });
            tokio::task::yield_now().await;
        }
        leader.notify_last("last", json!({}));
        leader.flush(Duration::from_secs(30)).await;
        let (lines, _hears) = hear_until(hears, "last").await;
        assert!(lines[lines.len() - 2].contains("step 49"), "{lines:?}");
        assert!(lines.len() <= 4, "{}", lines.len());
    }

    #[tokio::test]
    async fn more_events_than_fit_wait_and_none_is_lost() {
        let (_leader, mut events, mut theirs, _hears) = channel();
        let sent = EVENTS_MAX as u64 * 3;
        let lines: String = (0..sent)
            .map(|n| Frame::notification("agent/wrap_up", json!({ "seconds_left": n })).to_line())
            .collect();
        theirs.write_all(lines.as_bytes()).unwrap();
        drop(theirs);
        for n in 0..sent {
            let expected = FromLeader::WrapUp { seconds_left: n };
            assert_eq!(events.recv().await, Some(expected));
        }
        assert_eq!(events.recv().await, Some(FromLeader::Gone));
    }

    #[tokio::test]
    async fn calls_that_are_open_when_the_leader_leaves_have_no_result() {
        let (leader, mut events, theirs, mut hears) = channel();
        let call = tokio::spawn({
            let leader = leader.clone();
            async move { leader.call("tools/call", json!({})).await }
        });
        tokio::task::spawn_blocking(move || hears.read_exact(&mut [0]).unwrap())
            .await
            .unwrap();
        drop(theirs);
        assert_eq!(call.await.unwrap(), Err(CallError::Gone));
        assert_eq!(events.recv().await, Some(FromLeader::Gone));
        assert_eq!(
            leader.call("tools/call", json!({})).await,
            Err(CallError::Gone)
        );
    }
}
