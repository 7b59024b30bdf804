//! Who is left of a process group, for the rung that has nothing better to hold a tree by.

use crate::walk::Left;

/// Whether a member of the group other than its leader still lives. What left the group, and where
/// `/proc` hides it also what has not, is not seen.
pub(crate) fn left(leader: u32) -> Left {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Left::Nothing;
    };
    let lives = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != leader)
        .filter_map(|pid| std::fs::read(format!("/proc/{pid}/stat")).ok())
        .any(|stat| lives_in(&String::from_utf8_lossy(&stat), leader));
    match lives {
        true => Left::Something,
        false => Left::Nothing,
    }
}

/// Whether this `/proc/PID/stat` is of a live member; the name in it may hold anything.
fn lives_in(stat: &str, group: u32) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = fields.split_whitespace();
    let (state, _parent, member_of) = (fields.next(), fields.next(), fields.next());
    let ended = matches!(state, None | Some("Z" | "X" | "x"));
    !ended && member_of.and_then(|number| number.parse().ok()) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_member_is_one_that_has_not_ended_whatever_its_name() {
        assert!(lives_in("12 (a) b) S 1 7 7 0", 7));
        assert!(lives_in("12 (sleep) T 1 7 7 0", 7));
        assert!(!lives_in("12 (sleep) Z 1 7 7 0", 7));
        assert!(!lives_in("12 (sleep) S 7 12 7 0", 7));
        assert!(!lives_in("12 (x", 7));
    }

    #[test]
    fn the_leader_does_not_count_and_a_child_does() {
        let group = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .process_group(0)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        for (script, expected) in [
            ("echo up; exec sleep 30", Left::Nothing),
            ("sleep 30 & echo up; wait", Left::Something),
        ] {
            let mut child = group(script);
            let mut line = [0; 3];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            assert_eq!(left(child.id()), expected, "{script}");
            crate::signal::kill_group(child.id()).unwrap();
            child.wait().unwrap();
        }
    }
}
