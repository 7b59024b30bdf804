//! Resource limits of the program: never raised, and never address space, which runtimes reserve
//! far beyond what they use.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::limits;
use crate::policy::JailPolicy;
use crate::report::Step;
use crate::steps::StepError;

/// Sets the limits on this process, for itself and all that it will start.
pub(crate) fn apply(policy: &JailPolicy) -> Result<(), StepError> {
    lower(Resource::RLIMIT_CORE, 0, 0, "forbid core dumps")?;
    let files = policy.open_files;
    lower(Resource::RLIMIT_NOFILE, files, files, "limit open files")?;
    if let Some(bytes) = policy.file_size_bytes {
        lower(
            Resource::RLIMIT_FSIZE,
            bytes,
            bytes,
            "limit the size of files",
        )?;
    }
    if let Some(seconds) = policy.cpu_seconds {
        let hard = seconds.saturating_add(limits::CPU_HARD_EXTRA_SECONDS);
        lower(Resource::RLIMIT_CPU, seconds, hard, "limit CPU time")?;
    }
    Ok(())
}

/// Lowers a limit to what is asked, or leaves what is lower already.
fn lower(resource: Resource, soft: u64, hard: u64, what: &str) -> Result<(), StepError> {
    let failed = |errno| StepError::errno(Step::Limits, errno, what);
    let (soft_now, hard_now) = getrlimit(resource).map_err(failed)?;
    // The soft limit of open files is often far below the hard one; what the policy says is meant
    // as a whole, so there it may rise to the hard limit.
    let soft = match resource {
        Resource::RLIMIT_NOFILE => soft.min(hard_now),
        _ => soft.min(soft_now),
    };
    setrlimit(resource, soft, hard.min(hard_now)).map_err(failed)
}

/// Bounds the tasks of this user, where nothing bounds those of the tree; gives the gap when it
/// can't.
///
/// The kernel counts all tasks of the user together, so the cap is added to what runs already:
/// otherwise a busy desktop would leave the tree no process at all.
pub(crate) fn cap_tasks_of_user(cap: u32) -> Option<String> {
    let limit = tasks_of(nix::unistd::geteuid().as_raw()).saturating_add(u64::from(cap));
    lower(Resource::RLIMIT_NPROC, limit, limit, "limit processes")
        .err()
        .map(|error| format!("no cap on the number of processes: {error}"))
}

/// How many tasks a user has, as far as /proc shows them.
fn tasks_of(uid: u32) -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let tasks = processes.flatten().filter_map(|process| {
        let name = process.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_ours = is_process && process.metadata().ok()?.uid() == uid;
        let tasks = is_ours.then(|| std::fs::read_dir(process.path().join("task")).ok())??;
        u64::try_from(tasks.count()).ok()
    });
    tasks.sum()
}

/// Makes the program the first to go when memory runs out; gives the gap when it can't.
pub(crate) fn offer_to_oom_killer() -> Option<String> {
    const PATH: &str = "/proc/self/oom_score_adj";
    let now = std::fs::read_to_string(PATH)
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    match now {
        Some(score) if score >= limits::OOM_SCORE => None,
        _ => {
            let opened = OpenOptions::new().write(true).open(PATH);
            opened
                .and_then(|mut file| file.write_all(limits::OOM_SCORE.to_string().as_bytes()))
                .err()
                .map(|error| format!("the tree is not first to go when memory runs out: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_of_this_user_are_at_least_the_threads_of_this_process() {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(tasks_of(nix::unistd::geteuid().as_raw()) >= threads as u64);
        // No user has the number that means "none".
        assert_eq!(tasks_of(u32::MAX), 0);
    }
}
