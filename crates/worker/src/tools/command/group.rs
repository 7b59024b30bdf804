//! A command's process group, and the signals that may be sent to it.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A process group that this process started. While its leader has not been waited for, the
/// kernel gives its number to nobody else, so a signal can't reach a stranger.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Pid,
    /// Whether the leader has been waited for; then nothing is sent any more.
    released: bool,
}

impl Group {
    /// The group of a child that was started as its leader; none for a number that would mean
    /// this process's own group, every process, or the first one.
    pub(crate) fn of_leader(pid: u32) -> Option<Group> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1)?;
        Some(Group {
            leader: Pid::from_raw(pid),
            released: false,
        })
    }

    /// The leader's number.
    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Asks the group to end. A stopped process gets the signal when it goes on.
    pub(crate) fn ask_to_end(&self) {
        self.send(Signal::SIGTERM);
        self.send(Signal::SIGCONT);
    }

    /// Ends the group, whatever it does.
    pub(crate) fn kill(&self) {
        self.send(Signal::SIGKILL);
    }

    /// Gives the group up: its leader is about to be waited for, and its number with it.
    pub(crate) fn release(&mut self) {
        self.released = true;
    }

    /// Processes of the group that still live; zombies do not count.
    pub(crate) fn living_members(&self) -> Vec<Pid> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                std::fs::read(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| lives_in_group(&stat, self.leader.as_raw()))
            })
            .map(Pid::from_raw)
            .collect()
    }

    fn send(&self, signal: Signal) {
        if self.released {
            return;
        }
        match killpg(self.leader, signal) {
            // Nobody left is what is wanted; EPERM is a member that changed its user.
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            Err(error) => tracing::warn!(%error, %signal, "could not signal a command's group"),
        }
    }
}

impl Drop for Group {
    /// A call that is dropped ends its command.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a line of `/proc/PID/stat` describes a living process of a group. The name stands in
/// brackets and may hold anything, so fields are counted from the last closing one: proc(5).
fn lives_in_group(stat: &[u8], group: i32) -> bool {
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else {
        return false;
    };
    let mut fields = stat[name_end + 1..]
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty());
    let (state, _parent, member_of) = (fields.next(), fields.next(), fields.next());
    let dead = matches!(state, None | Some(b"Z" | b"X" | b"x"));
    !dead && member_of == Some(group.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_more_than_one_group_are_refused() {
        for pid in [0, 1, u32::MAX, 1 << 31] {
            assert!(Group::of_leader(pid).is_none(), "{pid}");
        }
        let mut group = Group::of_leader(4_000_000).unwrap();
        assert_eq!(group.leader(), Pid::from_raw(4_000_000));
        group.release();
    }

    #[test]
    fn members_are_read_out_of_a_stat_line() {
        assert!(lives_in_group(b"12 (sh) S 1 77 77 0 -1", 77));
        assert!(lives_in_group(b"12 (a) Z 1 5) R 1 77 77 0 -1", 77));
        assert!(!lives_in_group(b"12 (sh) Z 1 77 77 0 -1", 77));
        assert!(!lives_in_group(b"12 (sh) S 1 7 77 0 -1", 77));
        assert!(!lives_in_group(b"", 77));
        assert!(!lives_in_group(b"12 (sh)", 77));
    }
}
