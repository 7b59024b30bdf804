//! What lies on disk: the run's own folder and log, claims, and each agent's folder and results.

pub mod agent_dir;
pub mod claims;
pub mod deliverables;
pub mod digests;
pub mod git_exclude;
pub mod log;
pub mod manifest;
pub mod place;
pub mod prompts;
pub mod recover;
pub mod results;
pub mod retention;
pub mod take_up;
pub mod trust;
pub mod worker_log;

#[cfg(test)]
pub(crate) mod test_job;
