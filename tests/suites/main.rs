//! The suites, behind one executable so that they link once.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that meets the unexpected is to fail there"
)]

mod batch;
mod commands;
mod confined;
mod crash;
mod demo;
mod doctor;
mod documents;
mod endurance;
mod faults;
mod foreign;
mod inputs;
mod kept_commands;
mod killed;
mod ladder;
mod language;
mod limits;
mod looping;
mod mcp;
mod memory;
mod model_headers;
mod numbers;
mod odd_answers;
mod odd_files;
mod peers;
mod plain_work;
mod project;
mod races;
mod recovery;
mod refused;
mod results;
mod scope;
mod secrets;
mod small_disk;
mod storms;
mod structure;
mod stuck;
mod supervisor;
mod terminal;
mod trust;
mod wall_clock;
mod web;
mod worker_io;
