//! From the arguments of `leader run --batch` to its exit code.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use protocol::config::{Admission, Settings};
use protocol::error::{ErrorCode, ToolError};
use protocol::exit as codes;
use protocol::ids::{AgentId, ConversationId};
use protocol::manifest::{ItemStatus, MANIFEST_FORMAT, Manifest};
use protocol::status::StopReason;
use protocol::tool::leader::person_agent_id;

use crate::cli::RunArgs;
use crate::driver::StopMode;
use crate::exit;
use crate::faces::batch::board::Board;
use crate::faces::batch::drive::{Course, Driven, Manner, schedule_of};
use crate::faces::batch::earlier::{Outset, look_back, refuse_unfinished};
use crate::faces::batch::input::{Batch, check_places, read_batch};
use crate::faces::batch::keeping::Keeping;
use crate::faces::batch::output::print_end;
use crate::faces::batch::records;
use crate::faces::console::Console;
use crate::faces::detach::{AcceptedAgent, announce};
use crate::faces::interrupt::Interrupts;
use crate::faces::look::overview::close_dead_runs;
use crate::faces::run::output::Output;
use crate::faces::session::{Session, SessionOrder};
use crate::faces::surroundings::{Surroundings, run_flags};
use crate::os::clock;
use crate::os::detached::Announcer;
use crate::store::manifest::ManifestFile;

/// Ids of changed items that one note names.
const CHANGED_SHOWN_MAX: usize = 10;

/// Runs a batch and prints what it came to.
///
/// # Errors
/// When its file, its manifest or the machine is not fit; nothing runs then.
pub async fn batch(
    path: &Path,
    args: &RunArgs,
    surroundings: &Surroundings,
    stdin: &mut dyn Read,
    announcer: Option<Announcer>,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let flags = run_flags(args);
    let settings = for_batch(surroundings.settings(flags, console)?);
    let batch = read_batch(path, args, stdin, surroundings, &settings)?;
    let workspace = &surroundings.workspace;
    let file = args
        .manifest
        .as_deref()
        .map(|path| ManifestFile::hold(workspace, path))
        .transpose()?;
    let outset = match (&file, args.resume) {
        (Some(file), true) => {
            close_dead_runs(workspace).await;
            look_back(&batch, file, workspace, args)?
        }
        (Some(file), false) => {
            refuse_unfinished(file)?;
            Outset::fresh(&batch)
        }
        (None, _) => Outset::fresh(&batch),
    };
    check_places(&batch, &outset.beginnings, workspace)?;
    say_changed(&batch, &outset, console);
    let output = Output::of(args.json, args.stream_json);
    let (schedule, skipped) = schedule_of(&batch, &outset);
    match &outset.manifest {
        Some(manifest) if schedule.is_over() && announcer.is_none() => {
            let mut manifest = Manifest {
                items: outset.records,
                ..manifest.clone()
            };
            for skipped in skipped {
                records::skip(&mut manifest.items, skipped, clock::timestamp());
            }
            finish_settled(manifest, file, output, console).await
        }
        Some(_) | None => {
            let run = Run {
                args,
                surroundings,
                settings,
                output,
                announcer,
            };
            run.through(&batch, outset, file, console).await
        }
    }
}

/// The rules of a batch: who finds no slot waits, for as long as it takes.
fn for_batch(mut settings: Settings) -> Settings {
    settings.limits.admission = Admission::Queue;
    settings.limits.queue_timeout_seconds = u32::MAX;
    settings
}

fn say_changed(batch: &Batch, outset: &Outset, console: &mut Console<'_>) {
    let changed: Vec<String> = batch
        .items
        .iter()
        .zip(&outset.beginnings)
        .filter(|(_, beginning)| beginning.changed)
        .map(|(item, _)| format!("`{}`", item.id))
        .collect();
    if changed.is_empty() {
        return;
    }
    let more = match changed.len().saturating_sub(CHANGED_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = changed[..changed.len().min(CHANGED_SHOWN_MAX)].join(", ");
    console.warn(&format!(
        "lines have changed since their items ran; those begin from the beginning: {named}{more}"
    ));
}

/// Everything was settled before: the record is brought to its end, and no agent is needed.
async fn finish_settled(
    mut manifest: Manifest,
    file: Option<ManifestFile>,
    output: Output,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let code = exit::of_batch(&manifest.items, None);
    conclude(&mut manifest, code);
    let shown = file.as_ref().map(|file| file.shown().to_owned());
    let written = Keeping::new(file).finish(&manifest).await;
    print_end(output, &manifest, shown.as_deref(), 0, console)?;
    written.map(|()| code)
}

fn conclude(manifest: &mut Manifest, code: u8) {
    let is_over = manifest.items.iter().all(|item| item.status.is_settled());
    manifest.ended_at = is_over.then(clock::timestamp);
    manifest.success = Some(
        manifest
            .items
            .iter()
            .all(|item| item.status == ItemStatus::Completed),
    );
    manifest.exit_code = Some(code);
}

/// One run of a batch.
struct Run<'a> {
    args: &'a RunArgs,
    surroundings: &'a Surroundings,
    settings: Settings,
    output: Output,
    announcer: Option<Announcer>,
}

impl Run<'_> {
    async fn through(
        self,
        batch: &Batch,
        outset: Outset,
        file: Option<ManifestFile>,
        console: &mut Console<'_>,
    ) -> Result<u8, ToolError> {
        // From here on a signal ends the agents in order instead of this process at once.
        let mut interrupts = Interrupts::listen().map_err(|error| {
            ToolError::new(ErrorCode::Io, format!("signals can't be caught: {error}"))
        })?;
        let max_concurrent = self.settings.limits.max_concurrent as usize;
        let session = Session::open(SessionOrder {
            surroundings: self.surroundings,
            settings: self.settings,
            worker_bin: self.args.worker_bin.clone(),
            reserved_numbers: reserved(batch, &outset),
        })
        .await?;
        if let Err(error) = session.socket() {
            console.warn(&format!(
                "no control socket, so that `leader ps` does not see this run: {error}"
            ));
        }
        let manifest = opened(&outset, session.handle().conversation());
        // It names the conversation before any agent is created in it, so that whoever goes on
        // with the batch knows which logs to read.
        let first = file.as_ref().map_or(Ok(()), |file| file.write(&manifest));
        let shown = file.as_ref().map(|file| file.shown().to_owned());
        let manner = Manner {
            max_concurrent,
            fail_fast: self.args.fail_fast,
            output: self.output,
        };
        let handle = session.handle().clone();
        let mut course = Course::new(&handle, batch, outset, manifest, manner);
        let announcer = self.announcer;
        let accepted = |manifest: &Manifest| match announcer {
            Some(announcer) => {
                let (agents, later) = accepted_agents(manifest);
                announce(announcer, &handle, agents, later)
            }
            None => Ok(()),
        };
        let mut keeping = Keeping::new(file);
        let mut board = Board::new(console, batch.items.len(), console.is_quiet());
        let driven = match first {
            Ok(()) => {
                course
                    .run(
                        &mut keeping,
                        &mut board,
                        session.curtain(),
                        &mut interrupts,
                        console,
                        accepted,
                    )
                    .await
            }
            Err(error) => Err(error),
        };
        let seconds = board.seconds();
        board.clear();
        if driven.is_err() {
            // Agents may be at work still; their ends are for the log alone then.
            let reason = StopReason::ConversationClosed;
            handle.stop_all(reason, StopMode::Graceful).await;
        }
        let interrupt = driven.as_ref().ok().and_then(|driven| driven.stopped_by);
        let mut manifest = course.manifest;
        let code = exit::of_batch(&manifest.items, interrupt);
        conclude(&mut manifest, code);
        // Before the conversation ends: who waits for that finds the manifest as it stays.
        let written = keeping.finish(&manifest).await;
        session
            .close(StopReason::ConversationClosed, &mut interrupts)
            .await;
        let Driven { last_events, .. } = driven?;
        for event in last_events.collect().await {
            self.output.event(&event, console)?;
        }
        print_end(self.output, &manifest, shown.as_deref(), seconds, console)?;
        match written {
            Ok(()) => Ok(code),
            Err(error) if code == codes::SUCCESS => Err(error),
            Err(error) => {
                console.fail(&error);
                Ok(code)
            }
        }
    }
}

/// The agents of the items that could begin at once, and how many items will follow.
fn accepted_agents(manifest: &Manifest) -> (Vec<AcceptedAgent>, usize) {
    let agents = manifest
        .items
        .iter()
        .filter(|item| item.status == ItemStatus::Accepted);
    let agents = agents.filter_map(|item| {
        Some(AcceptedAgent {
            item: Some(item.id.clone()),
            agent_id: item.agent_id?,
            task_id: item.task_id.clone()?,
        })
    });
    let later = manifest
        .items
        .iter()
        .filter(|item| item.status == ItemStatus::Pending);
    (agents.collect(), later.count())
}

/// Numbers that items name or have already: no other item gets one of them by itself.
fn reserved(batch: &Batch, outset: &Outset) -> BTreeSet<AgentId> {
    let named = batch
        .items
        .iter()
        .filter_map(|item| person_agent_id(item.create.agent_id?).ok());
    let kept = outset
        .again
        .iter()
        .flatten()
        .map(|order| order.job.agent_id);
    named.chain(kept).collect()
}

fn opened(outset: &Outset, conversation: &ConversationId) -> Manifest {
    let earlier = outset.manifest.as_ref();
    Manifest {
        format: MANIFEST_FORMAT,
        conversation: conversation.clone(),
        earlier_conversations: earlier
            .map(|manifest| manifest.conversations().cloned().collect())
            .unwrap_or_default(),
        started_at: earlier.map_or_else(clock::timestamp, |manifest| manifest.started_at.clone()),
        ended_at: None,
        success: None,
        exit_code: None,
        items: outset.records.clone(),
        other: earlier
            .map(|manifest| manifest.other.clone())
            .unwrap_or_default(),
    }
}
