//! A program that can't be started is told with step, error and path, and leaves nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use confine::policy::JailPolicy;
use confine::report::{ExitRecord, JailLine, Outcome, Rung, Step};

use crate::support::{Running, User, everywhere, exactly, public_dir, start, users};

fn file(directory: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

/// Starts `program` and compares code, step, error name and path of its failure.
fn fails(
    (user, rung): (User, Rung),
    policy: &JailPolicy,
    program: &Path,
    expected: (i32, Step, &str, &Path),
) {
    let jail = start(user, policy, &[program.to_str().unwrap()]);
    let (code, step, errno_name, path) = expected;
    let mut jail = jail;
    let failed = jail.line(|line| match JailLine::parse(line) {
        Some(JailLine::Failed(failed)) => Some(failed),
        _ => None,
    });
    assert_eq!(
        (
            failed.step,
            failed.errno_name.as_deref(),
            failed.path.as_deref()
        ),
        (step, Some(errno_name), Some(path)),
        "{user:?} {rung} {}",
        failed.message
    );
    assert!(jail.live.is_empty_within(Duration::from_secs(10)));
    let end = jail.finish();
    assert_eq!(end.status.code(), Some(code), "{user:?} {rung}");
    assert_eq!(end.last, Some(JailLine::Failed(failed)));
}

#[test]
fn each_kind_of_bad_program_has_its_own_words() {
    let directory = public_dir();
    let at = directory.path();
    let missing = at.join("missing");
    let plain = file(at, "plain", b"#!/bin/sh\n", 0o644);
    let bad_elf = file(at, "bad_elf", b"\x7fELF garbage", 0o755);
    let no_shebang = file(at, "no_shebang", b"echo hello\n", 0o755);
    let no_interpreter = file(at, "no_interpreter", b"#!/no/such/interpreter\n", 0o755);
    for how in everywhere() {
        let policy = exactly(how.1);
        let run = |program: &Path, code, name| {
            fails(how, &policy, program, (code, Step::Exec, name, program));
        };
        run(&missing, 127, "ENOENT");
        run(at, 126, "EACCES");
        run(&plain, 126, "EACCES");
        run(&bad_elf, 126, "ENOEXEC");
        run(&no_shebang, 126, "ENOEXEC");
        run(&no_interpreter, 127, "ENOENT");
    }
}

#[test]
fn a_bad_working_directory_is_its_own_step() {
    for how in everywhere() {
        let cwd = Path::new("/no/such/directory");
        let policy = JailPolicy {
            cwd: Some(cwd.to_owned()),
            ..exactly(how.1)
        };
        fails(
            how,
            &policy,
            Path::new("/bin/true"),
            (125, Step::Chdir, "ENOENT", cwd),
        );
    }
}

#[test]
fn a_failure_is_recorded_in_the_exit_file_too() {
    for (user, rung) in everywhere() {
        let directory = public_dir();
        let path = directory.path().join("exit.json");
        let policy = JailPolicy {
            exit_file: Some(path.clone()),
            ..exactly(rung)
        };
        let end = start(user, &policy, &["/no/such/program"]).finish();
        let Some(JailLine::Failed(failed)) = end.last else {
            panic!("{:?}", end.last)
        };
        let record: ExitRecord =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(
            record,
            ExitRecord {
                format: 1,
                outcome: Outcome::Failed(failed)
            }
        );
    }
}

#[test]
fn a_missing_directory_of_the_exit_file_or_a_link_in_its_place_is_refused() {
    let directory = public_dir();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    for how in everywhere() {
        for (parent, errno) in [
            (PathBuf::from("/no/such"), "ENOENT"),
            (link.clone(), "ENOTDIR"),
        ] {
            let policy = JailPolicy {
                exit_file: Some(parent.join("exit.json")),
                ..exactly(how.1)
            };
            let expected = (125, Step::ExitFile, errno, parent.as_path());
            fails(how, &policy, Path::new("/bin/true"), expected);
        }
    }
}

#[test]
fn below_the_workspace_no_link_leads_to_the_exit_file() {
    for how in everywhere() {
        let workspace = public_dir();
        let elsewhere = public_dir();
        std::fs::create_dir(elsewhere.path().join("run")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), workspace.path().join("agent")).unwrap();
        let parent = workspace.path().join("agent/run");
        let policy = JailPolicy {
            workspace: Some(workspace.path().to_owned()),
            exit_file: Some(parent.join("exit.json")),
            ..exactly(how.1)
        };
        let expected = (125, Step::ExitFile, "ELOOP", parent.as_path());
        fails(how, &policy, Path::new("/bin/true"), expected);
        assert_eq!(elsewhere.path().join("run").read_dir().unwrap().count(), 0);
    }
}

#[test]
fn a_leader_that_is_gone_already_starts_nothing() {
    for (user, rung) in everywhere() {
        // A number above the kernel's limit names no process, now or later.
        let policy = JailPolicy {
            leader_pid: Some(1 << 30),
            ..exactly(rung)
        };
        let end = start(user, &policy, &["/bin/true"]).finish();
        assert_eq!(end.status.code(), Some(125));
        let Some(JailLine::Failed(failed)) = end.last else {
            panic!("{:?}", end.last)
        };
        assert_eq!(failed.step, Step::LeaderWatch);
    }
}

/// Starts `/bin/true` below `prlimit` and gives what the jail told last.
fn start_within(user: User, limit: &str, policy: &JailPolicy) -> (Option<i32>, Option<JailLine>) {
    let policy = JailPolicy {
        keep_fd: None,
        ..policy.clone()
    };
    let mut command = crate::support::command(user, "prlimit".as_ref());
    command.arg(limit).arg("--").arg(crate::support::jail());
    command.args(policy.to_args("/bin/true".as_ref(), &[]));
    let end = Running::spawn(command).finish();
    (end.status.code(), end.last)
}

#[test]
fn without_descriptors_the_start_fails_clean_or_works_and_never_hangs() {
    for (user, rung) in everywhere() {
        let mut failures = 0;
        for most in 4..32 {
            // The jail closes what it inherits, so its own are all that count.
            let limit = format!("--nofile={most}:{most}");
            match start_within(user, &limit, &exactly(rung)) {
                (Some(0), Some(JailLine::Ended(_))) => {}
                // With four there is no room for a line to be told on.
                (Some(125), None) => failures += 1,
                (Some(125), Some(JailLine::Failed(failed))) => {
                    failures += 1;
                    assert_eq!(
                        failed.errno_name.as_deref(),
                        Some("EMFILE"),
                        "{user:?} {rung} {most}: {}",
                        failed.message
                    );
                }
                // The library loader or Landlock itself may be what runs out.
                (Some(126 | 127), Some(_)) => failures += 1,
                other => panic!("{user:?} {rung} {most}: {other:?}"),
            }
        }
        assert!(
            (1..28).contains(&failures),
            "{user:?} {rung}: {failures} failures"
        );
    }
}

#[test]
fn without_processes_the_fork_fails_with_its_name() {
    for user in users() {
        if user == User::Myself && nix::unistd::geteuid().is_root() {
            // Nothing bounds root's processes.
            continue;
        }
        let (code, last) = start_within(user, "--nproc=1:1", &JailPolicy::default());
        let Some(JailLine::Failed(failed)) = last else {
            panic!("{last:?}")
        };
        assert_eq!(code, Some(125));
        assert_eq!(
            (failed.step, failed.errno_name.as_deref()),
            (Step::Fork, Some("EAGAIN"))
        );
    }
}
