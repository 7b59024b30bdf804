//! From the arguments of `leader doctor` to its exit code.

use protocol::error::ToolError;

use crate::cli::DoctorArgs;
use crate::faces::console::Console;
use crate::faces::doctor::look::{AskModel, look};
use crate::faces::doctor::prove::command::prove;
use crate::faces::surroundings::Surroundings;
use crate::os::programs::Programs;
use crate::render::doctor::report_text;

/// Tells whether agents can run here, and how they are held; or proves it.
///
/// # Errors
/// When stdout can't be written, or a proof can't be carried out.
pub async fn doctor(
    args: &DoctorArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let programs = Programs::around(
        args.worker_bin.as_deref(),
        &surroundings.workspace,
        |name| surroundings.variables.lookup(name),
    );
    if args.prove {
        return prove(args, surroundings, &programs, console).await;
    }
    let ask = match args.no_model {
        true => AskModel::No,
        false => AskModel::Once,
    };
    let report = look(surroundings, &programs, ask).await;
    let text = match args.json {
        true => format!("{}\n", report.to_json()),
        false => report_text(&report, console.look().out),
    };
    console.show(&text, args.json)?;
    Ok(report.verdict().exit_code())
}
