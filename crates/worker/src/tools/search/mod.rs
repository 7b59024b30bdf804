//! How the workspace is searched: what is sought, where, and what is told of it.

mod content;
mod meter;
mod names;
mod query;
mod report;
mod walk;

pub(crate) use content::search_content;
pub(crate) use meter::Meter;
pub(crate) use names::search_names;
pub(crate) use query::{Filter, NameQuery, content_matcher};
pub(crate) use report::Report;
