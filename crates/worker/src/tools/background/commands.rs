//! The commands of one agent that run in the background: which there are, how they stand, and what
//! of their ends the model has been told.
//!
//! Each is a task of the runtime that owns its command, so that dropping the task ends the
//! command as ever. This book of them is shared by the tools and the loop, behind a lock that is
//! never held across an await: each of them has only a moment's business with it, and a task that
//! owned it would have to be asked from places that can't wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::limits::BACKGROUND_COMMANDS_MAX;
use protocol::text::BackgroundResult;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep_until, timeout};

use super::entry::{End, Entry, OwnedTask, Seen, Stand};
use crate::io::clock::{self, Clock};
use crate::tools::command::{Control, Running, control};
use crate::tools::{ToolContext, limits};

/// The background commands of one agent.
#[derive(Debug)]
pub struct Background {
    book: Mutex<Book>,
    /// Told at each end.
    changed: Arc<Notify>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Book {
    started: u32,
    entries: Vec<Entry>,
    /// Whether the run is over; nothing is started any more.
    closed: bool,
}

impl Default for Background {
    fn default() -> Self {
        Background::new()
    }
}

impl Background {
    /// None yet.
    pub fn new() -> Self {
        Background {
            book: Mutex::default(),
            changed: Arc::new(Notify::new()),
            clock: Clock::start(),
        }
    }

    /// Takes a command that `begin` starts, and hands back its id.
    ///
    /// # Errors
    /// When there are as many as may be, the run is over, or `begin` fails.
    pub(crate) fn start(
        &self,
        context: &ToolContext,
        command: &str,
        timeout: Duration,
        begin: impl FnOnce() -> Result<Running, ToolError>,
    ) -> Result<String, ToolError> {
        let mut book = self.settled(context);
        if book.closed {
            return Err(ToolError::new(ErrorCode::Cancelled, "the run is over"));
        }
        let running = book.running().map(|entry| entry.id.as_str());
        let running: Vec<&str> = running.collect();
        if running.len() >= BACKGROUND_COMMANDS_MAX {
            return Err(ToolError::new(
                ErrorCode::TooMany,
                format!(
                    "{BACKGROUND_COMMANDS_MAX} commands run in the background already: {}",
                    running.join(", ")
                ),
            )
            .hint("wait for one to end, or end one with stop_background"));
        }
        let started = begin()?;
        book.started += 1;
        let id = format!("bg_{}", book.started);
        let (control, remote) = control();
        let (tell, ended) = oneshot::channel();
        let task = tokio::spawn(follow(started, control, tell, Arc::clone(&self.changed)));
        book.entries.push(Entry {
            id: id.clone(),
            command: shown(command),
            began_ms: self.clock.now_ms(),
            timeout,
            stand: Stand::Running {
                remote,
                ended,
                _task: OwnedTask(task),
            },
        });
        book.forget_old();
        Ok(id)
    }

    /// The ends that the model has not been told of, each once.
    pub fn take_ended(&self, context: &ToolContext) -> Vec<BackgroundResult> {
        let mut book = self.settled(context);
        book.entries
            .iter_mut()
            .filter_map(|entry| match &mut entry.stand {
                Stand::Ended {
                    state,
                    result,
                    told,
                } if !*told => {
                    *told = true;
                    Some(BackgroundResult {
                        command_id: entry.id.clone(),
                        command: entry.command.clone(),
                        state: *state,
                        result: result.clone(),
                    })
                }
                Stand::Ended { .. } | Stand::Running { .. } => None,
            })
            .collect()
    }

    /// How one command stands, or each of them. While all of those run, an end is waited for a
    /// while. What is shown of an end counts as told.
    ///
    /// # Errors
    /// When there is none of that id.
    pub(crate) async fn look(
        &self,
        context: &ToolContext,
        id: Option<&str>,
    ) -> Result<Vec<Seen>, ToolError> {
        let patience = Duration::from_secs(limits::BACKGROUND_CHECK_SECONDS);
        let waits_until = clock::after(patience);
        loop {
            // Before the look, so that no end is missed between the two.
            let changed = self.changed.notified();
            if !self.all_run(context, id)? {
                break;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(waits_until) => break,
            }
        }
        self.see(context, id).await
    }

    /// Ends one command and tells how it stands then.
    ///
    /// # Errors
    /// When there is none of that id.
    pub(crate) async fn stop(&self, context: &ToolContext, id: &str) -> Result<Seen, ToolError> {
        {
            let mut book = self.settled(context);
            let entry = book.find_mut(id)?;
            if let Stand::Running { remote, .. } = &mut entry.stand {
                remote.stop();
            }
        }
        // Its holder has bounds of its own for a command that does not end.
        loop {
            let changed = self.changed.notified();
            if !self.all_run(context, Some(id))? {
                break;
            }
            changed.await;
        }
        let seen = self.see(context, Some(id)).await?;
        seen.into_iter().next().ok_or_else(|| unknown(id, ""))
    }

    /// Ends all of them: each is told to stop, and what has not ended a moment later is dropped,
    /// which kills it. Nothing is started any more.
    pub async fn end_all(&self) {
        {
            let mut book = self.lock();
            book.closed = true;
            for entry in &mut book.entries {
                if let Stand::Running { remote, .. } = &mut entry.stand {
                    remote.stop();
                }
            }
        }
        let all_ended = async {
            loop {
                let changed = self.changed.notified();
                let running = self.lock().entries.iter_mut().any(Entry::has_no_end);
                if !running {
                    return;
                }
                changed.await;
            }
        };
        let patience = Duration::from_millis(limits::BACKGROUND_END_MS);
        if timeout(patience, all_ended).await.is_err() {
            tracing::warn!("a background command did not end in time and is killed");
        }
        self.lock().entries.clear();
    }

    /// Whether something is to be looked at, and all of it runs.
    fn all_run(&self, context: &ToolContext, id: Option<&str>) -> Result<bool, ToolError> {
        let mut book = self.settled(context);
        Ok(match id {
            Some(id) => book.find_mut(id)?.runs(),
            None => book.running().next().is_some() && book.entries.iter().all(Entry::runs_or_told),
        })
    }

    /// How it stands now, without waiting.
    async fn see(&self, context: &ToolContext, id: Option<&str>) -> Result<Vec<Seen>, ToolError> {
        let mut seen = Vec::new();
        let mut lookers = Vec::new();
        {
            let mut book = self.settled(context);
            let ids = match id {
                Some(id) => vec![book.find_mut(id)?.id.clone()],
                None => book.entries.iter().map(|entry| entry.id.clone()).collect(),
            };
            let now_ms = self.clock.now_ms();
            for entry in book.entries.iter_mut().filter(|e| ids.contains(&e.id)) {
                if let Stand::Running { remote, .. } = &entry.stand {
                    lookers.push((seen.len(), remote.looker()));
                }
                seen.push(entry.seen(now_ms));
            }
        }
        for (at, looker) in lookers {
            // None where it ended just now: its end is announced before the next turn.
            let Some(output) = looker.look().await else {
                continue;
            };
            let bytes = output.raw_bytes;
            let text = match output.text.is_empty() {
                true => "[no output so far]".to_owned(),
                false => output.text,
            };
            let told: &mut String = &mut seen[at].result;
            *told = format!("[{told}; {bytes} bytes of output so far]\n{text}");
        }
        Ok(seen)
    }

    /// The book, with every end written into it.
    fn settled(&self, context: &ToolContext) -> MutexGuard<'_, Book> {
        let mut book = self.lock();
        for entry in &mut book.entries {
            entry.settle(context);
        }
        book
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command on one line, in few characters.
fn shown(command: &str) -> String {
    let line = command.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars()
        .take(limits::BACKGROUND_LINE_CHARS_MAX)
        .collect()
}

/// Brings one command to its end.
async fn follow(
    running: Running,
    control: Control,
    tell: oneshot::Sender<End>,
    changed: Arc<Notify>,
) {
    let end = running.end(control).await;
    // When nobody hears it, the run is over.
    drop(tell.send(end));
    changed.notify_waiters();
}

impl Book {
    fn running(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.runs())
    }

    fn find_mut(&mut self, id: &str) -> Result<&mut Entry, ToolError> {
        let known: Vec<&str> = self.entries.iter().map(|entry| entry.id.as_str()).collect();
        let known = known.join(", ");
        self.entries
            .iter_mut()
            .find(|entry| entry.id == id)
            .ok_or_else(|| unknown(id, &known))
    }

    /// Drops the oldest ends when there are too many of them.
    fn forget_old(&mut self) {
        let told = |entry: &Entry| matches!(entry.stand, Stand::Ended { told: true, .. });
        let mut over = self
            .entries
            .iter()
            .filter(|entry| told(entry))
            .count()
            .saturating_sub(limits::BACKGROUND_ENDED_MAX);
        self.entries.retain(|entry| {
            let forgotten = over > 0 && told(entry);
            over -= usize::from(forgotten);
            !forgotten
        });
    }
}

fn unknown(id: &str, known: &str) -> ToolError {
    let error = ToolError::new(
        ErrorCode::NotFound,
        format!("there is no background command `{id}`"),
    );
    match known.is_empty() {
        true => error.hint("start one with run_command and run_in_background"),
        false => error.hint(format!("known: {known}")),
    }
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
