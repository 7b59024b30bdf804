//! The jail ends exactly as its program ended.

use std::os::unix::process::ExitStatusExt;

use confine::report::{EndReason, Ended, ExitRecord, JailLine, Outcome, Rung};

use crate::support::{BUDGET, everywhere, exactly, public_dir, start, start_script, users};

#[test]
fn exit_codes_are_exact() {
    for (user, rung) in everywhere() {
        for code in [
            0, 1, 2, 3, 42, 101, 124, 125, 126, 127, 128, 129, 143, 254, 255,
        ] {
            let jail = start_script(user, &exactly(rung), &format!("exit {code}"));
            let end = jail.finish();
            assert_eq!(end.status.code(), Some(code), "{user:?} {rung}");
            let ended = Ended {
                exit_code: Some(code),
                signal: None,
                reason: EndReason::Program,
                left_behind: false,
            };
            assert_eq!(end.last, Some(JailLine::Ended(ended)));
            assert_eq!(end.started.unwrap().confinement.rung, rung);
        }
    }
}

#[test]
fn deaths_by_signal_are_exact_also_by_real_time_ones() {
    for (user, rung) in everywhere() {
        for signal in [1, 2, 3, 4, 6, 8, 9, 11, 13, 14, 15, 24, 31, 34, 64] {
            let script = format!("exec /bin/kill -{signal} $$");
            let end = start(user, &exactly(rung), &["/bin/sh", "-c", &script]).finish();
            assert_eq!(
                end.status.signal(),
                Some(signal),
                "{user:?} {rung} {signal}"
            );
            let ended = Ended {
                exit_code: None,
                signal: Some(signal),
                reason: EndReason::Program,
                left_behind: false,
            };
            assert_eq!(end.last, Some(JailLine::Ended(ended)));
        }
    }
}

#[test]
fn half_a_line_of_the_program_does_not_spoil_the_last_line() {
    for (user, rung) in everywhere() {
        let end = start_script(user, &exactly(rung), "printf '{\"half\":'").finish();
        assert_eq!(end.output, "{\"half\":\n");
        assert_eq!(
            end.last,
            Some(JailLine::Ended(Ended {
                exit_code: Some(0),
                signal: None,
                reason: EndReason::Program,
                left_behind: false,
            }))
        );
    }
}

#[test]
fn the_end_is_recorded_in_a_file_of_its_own() {
    for (user, rung) in everywhere() {
        let directory = public_dir();
        let mut policy = exactly(rung);
        policy.exit_file = Some(directory.path().join("exit.json"));
        let end = start_script(user, &policy, "exit 5").finish();
        assert_eq!(end.status.code(), Some(5));
        let names: Vec<_> = directory
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["exit.json"]);
        let text = std::fs::read_to_string(directory.path().join("exit.json")).unwrap();
        assert_eq!(
            serde_json::from_str::<ExitRecord>(&text).unwrap(),
            ExitRecord {
                format: 1,
                outcome: Outcome::Ended(Ended {
                    exit_code: Some(5),
                    signal: None,
                    reason: EndReason::Program,
                    left_behind: false,
                })
            }
        );
    }
}

#[test]
fn a_link_put_in_place_of_the_record_or_its_directory_is_not_followed() {
    for (user, rung) in everywhere() {
        let directory = public_dir();
        let path = directory.path().display().to_string();
        std::fs::create_dir(directory.path().join("run")).unwrap();
        std::fs::create_dir(directory.path().join("elsewhere")).unwrap();
        std::fs::write(directory.path().join("victim"), "untouched").unwrap();
        for name in ["run", "elsewhere"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(directory.path().join(name), mode).unwrap();
        }
        let mut policy = exactly(rung);
        policy.exit_file = Some(directory.path().join("run/exit.json"));
        let script = format!("cd /; read go; exit 6; : {path}");
        let mut jail = start_script(user, &policy, &script);
        jail.started();
        let at = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink(at("victim"), at("run/exit.json")).unwrap();
        std::fs::rename(at("run"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("run")).unwrap();
        std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
        let end = jail.finish();
        assert_eq!(end.status.code(), Some(6));
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "untouched");
        assert_eq!(at("elsewhere").read_dir().unwrap().count(), 0);
        assert!(at("moved/exit.json").symlink_metadata().unwrap().is_file());
    }
}

#[test]
fn a_channel_that_nobody_reads_does_not_keep_the_jail_from_ending() {
    for user in users() {
        let rung = Rung::Pidns;
        // More than any pipe holds, and then a hang that only a signal ends.
        let script = "head -c 4000000 /dev/zero & sleep 0.1; kill $!; exit 7";
        let mut jail = start_script(user, &exactly(rung), script);
        assert!(jail.live.is_empty_within(BUDGET), "{user:?} {rung}");
        assert_eq!(jail.child.wait().unwrap().code(), Some(7));
    }
}
