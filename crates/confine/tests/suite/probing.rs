//! What the probe says is what a jail then does.

use std::process::Stdio;

use confine::files::{FilePolicy, WriteMode};
use confine::policy::JailPolicy;
use confine::probe::{Probe, ProbeError, probe, probe_up_to};
use confine::report::{KillReach, Rung};

use crate::support::{BUDGET, command, jail, spawn_alive, start, users};

#[test]
fn the_probe_tells_what_a_jail_then_reports() {
    for user in users() {
        let mut probing = command(user, jail());
        probing
            .arg("--probe")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let (child, live) = spawn_alive(probing);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(live.is_empty_within(BUDGET), "the canary is gone");
        let probed: Probe = serde_json::from_slice(&output.stdout).unwrap();
        let policy = JailPolicy {
            files: Some(FilePolicy::closed(WriteMode::Workspace)),
            ..JailPolicy::default()
        };
        let real = start(user, &policy, &["/bin/true"]).finish();
        assert_eq!(
            probed.confinement,
            real.started.unwrap().confinement,
            "{user:?}"
        );
        assert_eq!(probed.confinement.kill, KillReach::Complete);
        let above: Vec<Rung> = probed
            .obstacles
            .iter()
            .map(|obstacle| obstacle.rung)
            .collect();
        assert_eq!(above, [Rung::Cgroup2]);
    }
}

#[test]
fn a_probe_without_its_executable_says_which_one_is_missing() {
    let error = probe("/no/such/jail".as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not run `/no/such/jail` (hint: it must lie beside `leader` and be executable)"
    );
    assert!(matches!(error, ProbeError::Run { .. }));
}

#[test]
fn an_executable_that_is_no_jail_gives_no_answer() {
    let error = probe("/bin/echo".as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the probe gave no answer; it said: --probe --highest cgroup2\n"
    );
}

#[test]
fn a_probe_from_here_is_the_same() {
    let once = probe(jail()).unwrap();
    assert_eq!(probe(jail()).unwrap(), once);
}

#[test]
fn nothing_above_the_highest_rung_is_tried() {
    for rung in [Rung::Group, Rung::Subreaper, Rung::Pidns] {
        let probed = probe_up_to(jail(), rung, None).unwrap();
        assert_eq!(probed.confinement.rung, rung);
    }
}
