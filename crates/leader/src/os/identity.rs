//! What tells a process from every other, and this machine from another.

use std::fs;
use std::io;

use crate::core::input::{ProcessIdentity, Survivors};

/// The field of `/proc/<pid>/stat` that holds the parent, counted after the name (proc(5): 4).
const PARENT_FIELD: usize = 1;
/// The field that holds the start time in ticks since boot (proc(5): 22).
const START_FIELD: usize = 19;

/// Reads who a live process is. The caller must hold it unreaped.
///
/// # Errors
/// When `/proc` does not tell.
pub fn of_process(pid: u32) -> io::Result<ProcessIdentity> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(ProcessIdentity {
        pid,
        start_ticks: stat_field(pid, START_FIELD)?,
        boot_id: boot_id.trim().to_owned(),
    })
}

/// The parent of a process.
///
/// # Errors
/// When there is no such process.
pub fn parent_of(pid: u32) -> io::Result<u32> {
    stat_field(pid, PARENT_FIELD).map(|parent| u32::try_from(parent).unwrap_or(0))
}

fn stat_field(pid: u32, field: usize) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    field_after_name(&stat, field)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("odd stat: {stat}")))
}

/// The name stands in parentheses and may itself hold spaces and parentheses, so the fields are
/// counted from the last one.
fn field_after_name(stat: &str, field: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(field)?.parse().ok()
}

/// Which of these processes are still there, and what they wait on as far as the kernel says.
pub fn survivors(pids: &[u32]) -> Survivors {
    let mut left = Survivors {
        pids: Vec::new(),
        why: String::new(),
    };
    for pid in pids {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().next());
        if matches!(state, Some("Z" | "X") | None) {
            continue;
        }
        left.pids.push(*pid);
        let wait = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let wait = match wait.trim() {
            "" | "0" => "nothing that the kernel names",
            name => name,
        };
        if !left.why.is_empty() {
            left.why.push_str(", ");
        }
        left.why.push_str(&format!(
            "{pid} in state {} waits on {wait}",
            state.unwrap_or("?")
        ));
    }
    left
}

/// The system as agents are told it: `Linux 6.12.3 x86_64`.
pub fn system_text() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let words = ["Linux", release.trim(), std::env::consts::ARCH];
    let known: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    known.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_an_odd_name() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 424242 9 9";
        assert_eq!(field_after_name(stat, PARENT_FIELD), Some(3));
        assert_eq!(field_after_name(stat, START_FIELD), Some(424_242));
        assert_eq!(field_after_name("7 no name", 0), None);
    }

    #[test]
    fn this_process_has_an_identity_and_a_parent() {
        let me = std::process::id();
        let identity = of_process(me).unwrap();
        assert_eq!(identity.pid, me);
        assert_eq!(identity.boot_id.len(), 36);
        assert!(identity.start_ticks > 0);
        assert_eq!(
            parent_of(me).unwrap(),
            nix::unistd::getppid().as_raw() as u32
        );
        assert_eq!(survivors(&[me, u32::MAX]).pids, [me]);
        assert!(system_text().starts_with("Linux "));
    }
}
