//! Reads a batch file whole and checks all of it before anything starts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use protocol::config::Settings;
use protocol::error::{ErrorCode, ToolError};
use protocol::limits::BATCH_BYTES_MAX;
use protocol::place::relative_path;

use crate::cli::RunArgs;
use crate::core::batch::file::refusal;
use crate::core::batch::{Begin, Beginning, Item, Line, Problem, digest, lines, link};
use crate::driver::plan;
use crate::driver::{CreateOrderRequest, Origin};
use crate::faces::console::code_of;
use crate::faces::surroundings::Surroundings;
use crate::faces::task::{from_file, summary_of};
use crate::store::place::{Content, PathUse, look_up};

/// A batch that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What its file is called in messages.
    pub name: String,
    /// Its items, in the order of the file.
    pub items: Vec<Item>,
    /// What each needs, by place in the list.
    pub needs: Vec<Vec<usize>>,
}

/// Reads and checks it.
///
/// # Errors
/// When it can't be read, or with all that is wrong with its lines.
pub fn read_batch(
    path: &Path,
    args: &RunArgs,
    stdin: &mut dyn Read,
    surroundings: &Surroundings,
    settings: &Settings,
) -> Result<Batch, ToolError> {
    let (name, bytes) = read_bytes(path, stdin)?;
    let (lines, mut problems) = lines(&bytes);
    let mut items = Vec::with_capacity(lines.len());
    for line in lines {
        match item_of(&line, args, surroundings, settings) {
            Ok(item) => items.push(item),
            Err(error) => problems.push(Problem::of(line.number, &error)),
        }
    }
    if let Some(most) = settings.limits.max_total_per_run
        && items.len() > most as usize
    {
        let what = format!(
            "there are {} items, and limits.max_total_per_run is {most}",
            items.len()
        );
        problems.push(Problem::new(1, what));
    }
    match link(&items) {
        Ok(needs) if problems.is_empty() => Ok(Batch { name, items, needs }),
        linked => {
            // Whether a need is there can only be told where every line could be read.
            if problems.is_empty() {
                problems.extend(linked.err().unwrap_or_default());
            }
            Err(refusal(&name, problems).unwrap_or_else(|| {
                ToolError::new(ErrorCode::Internal, "a batch was refused without a reason")
            }))
        }
    }
}

fn read_bytes(path: &Path, stdin: &mut dyn Read) -> Result<(String, Vec<u8>), ToolError> {
    if path == Path::new("-") {
        return Ok(("the batch on stdin".to_owned(), capped("stdin", stdin)?));
    }
    let name = format!("the batch file `{}`", path.display());
    let unreadable = |error: std::io::Error| {
        let code = match code_of(&error) {
            ErrorCode::PermissionDenied => ErrorCode::InvalidParameters,
            code => code,
        };
        ToolError::new(code, format!("{name} could not be read: {error}"))
            .hint("check the path; it is relative to where the leader was started")
    };
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(ToolError::new(
            ErrorCode::NotAFile,
            format!("{name} is a directory"),
        ));
    }
    let bytes = capped(&name, &mut file)?;
    Ok((name, bytes))
}

fn capped(name: &str, reader: &mut dyn Read) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    reader
        .take(BATCH_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("{name} could not be read: {error}"),
            )
        })?;
    if bytes.len() as u64 > BATCH_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!("{name} has more than {BATCH_BYTES_MAX} bytes, which is the most for a batch"),
        )
        .hint("split it into several batches, or name the tasks' files in `task_file`"));
    }
    Ok(bytes)
}

fn item_of(
    line: &Line,
    args: &RunArgs,
    surroundings: &Surroundings,
    settings: &Settings,
) -> Result<Item, ToolError> {
    let parsed = &line.parsed;
    let task = match (&parsed.task, &parsed.task_file) {
        (Some(task), _) => task.clone(),
        (None, Some(file)) => from_file(Path::new(file))?,
        (None, None) => String::new(),
    };
    let sha256 = match &parsed.task_file {
        Some(_) => digest::of_parts(&[line.text.as_bytes(), task.as_bytes()]),
        None => digest::of_parts(&[line.text.as_bytes()]),
    };
    let mut create = parsed.to_create(task, summary_of)?;
    // A flag holds for every line that does not say it itself.
    create.timeout_seconds = create
        .timeout_seconds
        .or(args.timeout_seconds.map(i64::from));
    create.max_turns = create.max_turns.or(args.max_turns.map(i64::from));
    for (parameter, path) in paths(&create.deliverables_dir, &create.write_paths) {
        relative_path(parameter, path)?;
    }
    let order = CreateOrderRequest {
        params: create,
        origin: Origin::Person,
        item: None,
    };
    plan::check(&order, settings, &surroundings.variables.to_environment())?;
    Ok(Item {
        line: line.number,
        id: parsed.id.clone(),
        sha256,
        needs: parsed.needs.clone().unwrap_or_default(),
        create: order.params,
    })
}

fn paths<'a>(
    deliverables_dir: &'a Option<String>,
    write_paths: &'a Option<Vec<String>>,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let dir = deliverables_dir
        .iter()
        .map(|dir| ("deliverables_dir", dir.as_str()));
    let paths = write_paths.iter().flatten();
    dir.chain(paths.map(|path| ("write_paths", path.as_str())))
}

/// Looks whether the directories that lines name can be used, as far as that can be told before
/// the items on which they depend have run.
///
/// # Errors
/// With every directory that is not empty, leads out of the workspace, or is none.
pub fn check_places(
    batch: &Batch,
    beginnings: &[Beginning],
    workspace: &Path,
) -> Result<(), ToolError> {
    let mut problems = Vec::new();
    for (item, beginning) in batch.items.iter().zip(beginnings) {
        if beginning.begin != (Begin::Anew { reuse: None }) {
            continue;
        }
        if let Some(dir) = &item.create.deliverables_dir
            && let Err(error) = check_dir(dir, item, workspace)
        {
            problems.push(Problem::of(item.line, &error));
        }
        for path in item.create.write_paths.iter().flatten() {
            let looked = relative_path("write_paths", path)
                .and_then(|path| look_up(PathUse::Write, workspace, &path));
            if let Err(error) = looked {
                problems.push(Problem::of(item.line, &error));
            }
        }
    }
    refusal(&batch.name, problems).map_or(Ok(()), Err)
}

fn check_dir(dir: &str, item: &Item, workspace: &Path) -> Result<(), ToolError> {
    let path = relative_path("deliverables_dir", dir)?;
    let place = look_up(PathUse::Deliverables, workspace, &path)?;
    if place.content == Content::Free || item.create.reuse_deliverables_dir == Some(true) {
        return Ok(());
    }
    Err(ToolError::new(
        ErrorCode::DeliverablesDirNotEmpty,
        format!("its deliverables_dir `{dir}` is not empty"),
    )
    .hint("name another, or say \"reuse_deliverables_dir\": true"))
}
