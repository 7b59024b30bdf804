//! Searching names of files.

use super::meter::{Meter, Stopped};
use super::query::{Filter, NameQuery};
use super::report::Report;
use super::walk::walk;
use crate::tools::{ToolContext, names};

/// Finds files by name.
pub(crate) fn search_names(
    context: &ToolContext,
    query: &NameQuery,
    filter: Option<&Filter>,
    meter: &mut Meter,
    report: &mut Report,
) {
    report.unreadable += walk(context, meter, |relative, _kind, meter| {
        if !query.fits(relative) || filter.is_some_and(|filter| !filter.fits(relative)) {
            return;
        }
        report.file();
        if !report.take(|| names::show(relative)) {
            meter.stop(Stopped::Matches);
        }
    });
}
