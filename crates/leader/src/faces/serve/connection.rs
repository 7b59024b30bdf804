//! One caller of the control socket: its calls run side by side, its answers go out as they come,
//! and nothing of it outlives it but the agents that it created.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use protocol::socket::{EVENT, SUBSCRIBE, SubscribeParams};
use protocol::tool::parse_params;
use protocol::wire::{Frame, INVALID_PARAMS, LineSplitter, RpcError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::faces::serve::frames::{Asked, asked};

/// Calls of one connection that may wait for their answer at once.
pub const CALLS_IN_FLIGHT_MAX: usize = 128;
/// Subscriptions of one connection.
pub const SUBSCRIPTIONS_MAX: usize = 4;
/// Frames that wait for a caller to read them; whoever has more waits with them.
pub const WRITE_QUEUE_FRAMES_MAX: usize = 64;
/// Bytes read in one go.
const READ_BYTES: usize = 64 * 1024;
/// The code of an answer to a call that is one too many.
const BUSY: i64 = -32_000;

/// What stands behind the socket.
pub trait Service: Clone + Send + Sync + 'static {
    /// The stream that a subscription gives.
    type Events: Events;

    /// Makes a call. Dropping the future gives up its answer and nothing else.
    fn call(
        &self,
        method: &str,
        params: Value,
    ) -> impl Future<Output = Result<Value, RpcError>> + Send;

    /// Begins a subscription, after an event or with what comes.
    fn subscribe(
        &self,
        after_seq: Option<u64>,
    ) -> impl Future<Output = Result<Self::Events, RpcError>> + Send;
}

/// A stream of events.
pub trait Events: Send + 'static {
    /// The next one as params of its notification; none at the end of the conversation.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

/// The params of one `event` notification.
pub type Event = Value;

/// Why reading has stopped.
enum Stopped {
    /// The caller has nothing more to ask; it may still read.
    End,
    /// The caller can't be written to.
    Gone,
}

/// Serves one caller until it is gone, or until `closing` and everything asked is answered.
///
/// # Errors
/// When the system refuses a second descriptor for the connection.
pub async fn serve<S: Service>(
    stream: UnixStream,
    service: S,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()> {
    let watched = stream.as_fd().try_clone_to_owned()?.into();
    let (reading, writing) = stream.into_split();
    let (frames, queue) = mpsc::channel(WRITE_QUEUE_FRAMES_MAX);
    // Sets, because what is in them ends when they are dropped.
    let mut writer = JoinSet::new();
    writer.spawn(write_frames(writing, queue));
    let mut connection = Connection {
        service,
        frames,
        calls: JoinSet::new(),
        in_flight: Arc::new(Semaphore::new(CALLS_IN_FLIGHT_MAX)),
        subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
    };
    let stopped = tokio::select! {
        stopped = connection.read(reading) => stopped,
        // An error means that the server is gone, which closes too.
        _ = closing.wait_for(|closing| *closing) => Stopped::End,
    };
    if let Stopped::End = stopped {
        // End of input is no farewell: `nc -N` shuts its side down and waits for the answers. A
        // caller that is really gone hangs up, and its blocking calls end with it.
        tokio::select! {
            () = finish(connection, &mut writer) => {}
            () = hung_up(watched) => {}
        }
    }
    Ok(())
}

/// Waits for all calls, then for the last frame to be written.
async fn finish<S: Service>(connection: Connection<S>, writer: &mut JoinSet<()>) {
    let Connection {
        frames, mut calls, ..
    } = connection;
    while calls.join_next().await.is_some() {}
    drop(frames);
    writer.join_next().await;
}

/// Returns when the other end is closed for reading and writing.
async fn hung_up(watched: std::os::unix::net::UnixStream) {
    // A descriptor of its own has readiness of its own: clearing it here can't make the writer
    // wait for an edge that has passed.
    let Ok(watched) = UnixStream::from_std(watched) else {
        return;
    };
    while let Ok(ready) = watched.ready(Interest::WRITABLE).await {
        if ready.is_write_closed() {
            return;
        }
        // Saying that a write would block clears the readiness, so that the next edge is waited
        // for; nothing is written, and the error is the one made here.
        let blocked = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        watched.try_io(Interest::WRITABLE, blocked).ok();
    }
}

async fn write_frames(mut stream: OwnedWriteHalf, mut queue: mpsc::Receiver<String>) {
    while let Some(line) = queue.recv().await {
        if stream.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

struct Connection<S> {
    service: S,
    frames: mpsc::Sender<String>,
    calls: JoinSet<()>,
    in_flight: Arc<Semaphore>,
    subscriptions: Arc<Semaphore>,
}

impl<S: Service> Connection<S> {
    async fn read(&mut self, mut stream: OwnedReadHalf) -> Stopped {
        let mut splitter = LineSplitter::default();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = tokio::select! {
                read = stream.read(&mut buffer) => read,
                () = self.frames.closed() => return Stopped::Gone,
            };
            let lines = match read {
                Ok(0) | Err(_) => splitter.end().into_iter().collect(),
                Ok(length) => splitter.push(&buffer[..length]),
            };
            for line in &lines {
                if self.take(asked(line)).await.is_err() {
                    return Stopped::Gone;
                }
            }
            if matches!(read, Ok(0) | Err(_)) {
                return Stopped::End;
            }
        }
    }

    /// Begins what a line asks for. It waits for room in the queue only to refuse, so a caller
    /// that never reads is not read from either.
    async fn take(&mut self, asked: Asked) -> Result<(), mpsc::error::SendError<String>> {
        while self.calls.try_join_next().is_some() {}
        match asked {
            Asked::Nothing => Ok(()),
            Asked::Refuse(frame) => self.frames.send(frame.to_line()).await,
            Asked::Call { id, method, params } => self.begin(Some(id), method, params).await,
            Asked::Silent { method, params } => self.begin(None, method, params).await,
        }
    }

    async fn begin(
        &mut self,
        id: Option<Value>,
        method: String,
        params: Value,
    ) -> Result<(), mpsc::error::SendError<String>> {
        let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
            let error = RpcError::new(
                BUSY,
                format!("{CALLS_IN_FLIGHT_MAX} calls of this connection wait for their answers"),
            );
            let frame = Frame::error(id.unwrap_or_default(), error);
            return self.frames.send(frame.to_line()).await;
        };
        let service = self.service.clone();
        let frames = self.frames.clone();
        if method == SUBSCRIBE {
            let subscriptions = Arc::clone(&self.subscriptions);
            self.calls.spawn(async move {
                let begun = subscribe(&service, &params, subscriptions).await;
                drop(permit);
                follow(begun, id, frames).await;
            });
            return Ok(());
        }
        self.calls.spawn(async move {
            let outcome = service.call(&method, params).await;
            drop(permit);
            if let Some(id) = id {
                // A caller that is gone is noticed by whoever reads from it.
                frames
                    .send(Frame::Response { id, outcome }.to_line())
                    .await
                    .ok();
            }
        });
        Ok(())
    }
}

type Begun<E> = Result<(E, tokio::sync::OwnedSemaphorePermit), RpcError>;

async fn subscribe<S: Service>(
    service: &S,
    params: &Value,
    subscriptions: Arc<Semaphore>,
) -> Begun<S::Events> {
    let params: SubscribeParams = parse_params(params.clone()).map_err(invalid_params)?;
    let permit = subscriptions.try_acquire_owned().map_err(|_| {
        RpcError::new(
            BUSY,
            format!("this connection has {SUBSCRIPTIONS_MAX} subscriptions already"),
        )
    })?;
    Ok((service.subscribe(params.after_seq).await?, permit))
}

/// Answers a subscription, then hands on its events as fast as the caller reads them; what the
/// caller is too slow for becomes a gap at the source.
async fn follow<E: Events>(begun: Begun<E>, id: Option<Value>, frames: mpsc::Sender<String>) {
    let (mut events, _permit) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            if let Some(id) = id {
                frames.send(Frame::error(id, error).to_line()).await.ok();
            }
            return;
        }
    };
    if let Some(id) = id {
        let answer = Frame::result(id, json!({"success": true, "subscribed": true}));
        if frames.send(answer.to_line()).await.is_err() {
            return;
        }
    }
    while let Some(event) = events.next().await {
        let line = Frame::notification(EVENT, event).to_line();
        if frames.send(line).await.is_err() {
            return;
        }
    }
}

/// A refusal of params as JSON-RPC says it; the hint travels as data.
pub(crate) fn invalid_params(error: protocol::error::ToolError) -> RpcError {
    let data = (!error.hint.is_empty()).then(|| json!({"hint": error.hint}));
    RpcError {
        code: INVALID_PARAMS,
        message: error.message,
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::wire::METHOD_NOT_FOUND;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::sync::Notify;

    const BUDGET: Duration = Duration::from_secs(30);

    /// `echo` answers its params, `hold` waits until `release`, `boom` fails.
    #[derive(Debug, Clone, Default)]
    struct Fake {
        release: Arc<Notify>,
        holding: Arc<AtomicUsize>,
        events: usize,
    }

    struct Held(Arc<AtomicUsize>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Service for Fake {
        type Events = Numbers;

        async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
            match method {
                "echo" => Ok(params),
                "hold" => {
                    self.holding.fetch_add(1, Ordering::SeqCst);
                    let _held = Held(Arc::clone(&self.holding));
                    self.release.notified().await;
                    Ok(json!("released"))
                }
                _ => Err(RpcError::new(METHOD_NOT_FOUND, "no")),
            }
        }

        async fn subscribe(&self, after_seq: Option<u64>) -> Result<Numbers, RpcError> {
            Ok(Numbers {
                next: after_seq.unwrap_or(0) as usize,
                end: self.events,
            })
        }
    }

    struct Numbers {
        next: usize,
        end: usize,
    }

    impl Events for Numbers {
        async fn next(&mut self) -> Option<Event> {
            self.next += 1;
            (self.next <= self.end).then(|| json!({"seq": self.next}))
        }
    }

    struct Caller {
        reading: BufReader<OwnedReadHalf>,
        writing: Option<OwnedWriteHalf>,
        closing: watch::Sender<bool>,
        serving: tokio::task::JoinHandle<std::io::Result<()>>,
    }

    impl Caller {
        fn connect(service: &Fake) -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (closing, watched) = watch::channel(false);
            let serving = tokio::spawn(serve(theirs, service.clone(), watched));
            let (reading, writing) = ours.into_split();
            Caller {
                reading: BufReader::new(reading),
                writing: Some(writing),
                closing,
                serving,
            }
        }

        async fn say(&mut self, line: &str) {
            let line = format!("{line}\n");
            let writing = self.writing.as_mut().unwrap();
            writing.write_all(line.as_bytes()).await.unwrap();
        }

        async fn hear(&mut self) -> Option<Value> {
            let mut line = String::new();
            let read = self.reading.read_line(&mut line);
            let length = tokio::time::timeout(BUDGET, read).await.unwrap().unwrap();
            (length > 0).then(|| serde_json::from_str(&line).unwrap())
        }

        async fn ended(self) {
            let serving = tokio::time::timeout(BUDGET, self.serving);
            serving.await.unwrap().unwrap().unwrap();
        }
    }

    async fn until(condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(BUDGET, wait).await.unwrap();
    }

    #[tokio::test]
    async fn a_slow_call_holds_up_no_other_and_ids_pair_them() {
        let service = Fake::default();
        let mut caller = Caller::connect(&service);
        caller.say(r#"{"id":0,"method":"hold"}"#).await;
        caller
            .say(r#"{"id":"e","method":"echo","params":[1]}"#)
            .await;
        let echo = json!({"jsonrpc": "2.0", "id": "e", "result": [1]});
        assert_eq!(caller.hear().await, Some(echo));
        until(|| service.holding.load(Ordering::SeqCst) == 1).await;
        service.release.notify_waiters();
        let held = json!({"jsonrpc": "2.0", "id": 0, "result": "released"});
        assert_eq!(caller.hear().await, Some(held));
    }

    #[tokio::test]
    async fn junk_and_silent_calls_do_not_end_a_connection() {
        let mut caller = Caller::connect(&Fake::default());
        caller.say("not json").await;
        assert_eq!(caller.hear().await.unwrap()["error"]["code"], -32_700);
        caller.say(r#"{"method":"echo"}"#).await;
        caller.say("").await;
        caller.say(r#"{"id":4,"method":"what"}"#).await;
        assert_eq!(
            caller.hear().await.unwrap(),
            json!({"jsonrpc": "2.0", "id": 4, "error": {"code": METHOD_NOT_FOUND, "message": "no"}})
        );
    }

    #[tokio::test]
    async fn a_caller_that_only_shuts_down_its_side_still_gets_its_answers() {
        let service = Fake::default();
        let mut caller = Caller::connect(&service);
        caller.say(r#"{"id":1,"method":"hold"}"#).await;
        // The last call lacks its newline, as a shell's printf may leave it.
        let mut writing = caller.writing.take().unwrap();
        writing
            .write_all(br#"{"id":2,"method":"echo"}"#)
            .await
            .unwrap();
        drop(writing);
        assert_eq!(caller.hear().await.unwrap()["id"], 2);
        until(|| service.holding.load(Ordering::SeqCst) == 1).await;
        service.release.notify_waiters();
        assert_eq!(caller.hear().await.unwrap()["result"], "released");
        assert_eq!(caller.hear().await, None);
        caller.ended().await;
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_ends_its_own_blocking_calls() {
        let service = Fake::default();
        let mut caller = Caller::connect(&service);
        caller.say(r#"{"id":1,"method":"hold"}"#).await;
        until(|| service.holding.load(Ordering::SeqCst) == 1).await;
        let serving = caller.serving;
        drop((caller.reading, caller.writing));
        tokio::time::timeout(BUDGET, serving)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        until(|| service.holding.load(Ordering::SeqCst) == 0).await;
    }

    #[tokio::test]
    async fn one_call_too_many_is_told_so() {
        let service = Fake::default();
        let mut caller = Caller::connect(&service);
        for id in 0..=CALLS_IN_FLIGHT_MAX {
            caller
                .say(&json!({"id": id, "method": "hold"}).to_string())
                .await;
        }
        let refused = caller.hear().await.unwrap();
        assert_eq!(refused["id"], CALLS_IN_FLIGHT_MAX);
        assert_eq!(refused["error"]["code"], BUSY);
        until(|| service.holding.load(Ordering::SeqCst) == CALLS_IN_FLIGHT_MAX).await;
        service.release.notify_waiters();
        for _ in 0..CALLS_IN_FLIGHT_MAX {
            assert_eq!(caller.hear().await.unwrap()["result"], "released");
        }
    }

    #[tokio::test]
    async fn events_come_after_the_answer_and_subscriptions_are_few() {
        let service = Fake {
            events: 3,
            ..Fake::default()
        };
        let mut caller = Caller::connect(&service);
        caller
            .say(r#"{"id":9,"method":"subscribe","params":{"after_seq":1}}"#)
            .await;
        assert_eq!(caller.hear().await.unwrap()["id"], 9);
        for seq in 2..=3 {
            let event = json!({"jsonrpc": "2.0", "method": "event", "params": {"seq": seq}});
            assert_eq!(caller.hear().await, Some(event));
        }
        caller
            .say(r#"{"id":1,"method":"subscribe","params":{"after":1}}"#)
            .await;
        let refused = caller.hear().await.unwrap();
        assert_eq!(refused["error"]["code"], INVALID_PARAMS);
        assert!(
            refused["error"]["data"]["hint"]
                .as_str()
                .unwrap()
                .contains("after_seq")
        );
    }

    #[tokio::test]
    async fn a_caller_that_does_not_read_is_not_read_from_and_holds_little() {
        // Every event waits for the caller; the stream behind it is pulled only as it reads.
        let service = Fake {
            events: 1_000_000,
            ..Fake::default()
        };
        let mut caller = Caller::connect(&service);
        caller.say(r#"{"id":9,"method":"subscribe"}"#).await;
        assert_eq!(caller.hear().await.unwrap()["id"], 9);
        caller.closing.send_replace(true);
        drop((caller.reading, caller.writing));
        tokio::time::timeout(BUDGET, caller.serving)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn what_is_asked_before_the_end_is_answered() {
        let service = Fake::default();
        let mut caller = Caller::connect(&service);
        caller.say(r#"{"id":1,"method":"hold"}"#).await;
        until(|| service.holding.load(Ordering::SeqCst) == 1).await;
        caller.closing.send_replace(true);
        service.release.notify_waiters();
        assert_eq!(caller.hear().await.unwrap()["result"], "released");
        assert_eq!(caller.hear().await, None);
        caller.ended().await;
    }
}
