//! What a tree has of its own in the file system, and that the machine has nothing of it.

use confine::policy::JailPolicy;
use confine::report::{FilesystemGuard, Rung};

use crate::support::{exactly, public_dir, start_script, users};

#[test]
fn a_workspace_under_tmp_is_there_and_the_rest_of_tmp_is_private() {
    for user in users() {
        let workspace = public_dir();
        let other = public_dir();
        let policy = JailPolicy {
            workspace: Some(workspace.path().to_owned()),
            ..exactly(Rung::Pidns)
        };
        let script = format!(
            "pwd; echo made > inside; [ -e {other} ] || echo hidden; \
             echo x > /tmp/mark-of-a-test && echo private",
            other = other.path().display()
        );
        let end = start_script(user, &policy, &script).finish();
        let real = workspace.path().canonicalize().unwrap();
        assert_eq!(
            end.output,
            format!("{}\nhidden\nprivate\n", real.display()),
            "{user:?}"
        );
        assert_eq!(
            std::fs::read_to_string(workspace.path().join("inside")).unwrap(),
            "made\n"
        );
        assert!(!std::path::Path::new("/tmp/mark-of-a-test").exists());
        let confinement = end.started.unwrap().confinement;
        assert_eq!(confinement.filesystem, FilesystemGuard::PrivateMounts);
        assert_eq!(confinement.gaps, Vec::<String>::new(), "{user:?}");
    }
}

#[test]
fn further_paths_under_tmp_stay_visible_when_named() {
    for user in users() {
        let directory = public_dir();
        let file = directory.path().join("a/file");
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(&file, "content\n").unwrap();
        std::fs::write(directory.path().join("a/beside"), "").unwrap();
        let policy = JailPolicy {
            visible: vec![file.clone()],
            ..exactly(Rung::Pidns)
        };
        let script = format!(
            "cat {}; ls {}/a",
            file.display(),
            directory.path().display()
        );
        let end = start_script(user, &policy, &script).finish();
        assert_eq!(end.output, "content\nfile\n", "{user:?}");
    }
}

#[test]
fn a_script_named_by_an_argument_and_a_linked_working_directory_keep_working() {
    for user in users() {
        let directory = public_dir();
        let script = directory.path().join("script");
        std::fs::write(&script, "pwd; mktemp -u; touch $TMPDIR/x && echo made").unwrap();
        std::fs::create_dir(directory.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", directory.path().join("link")).unwrap();
        let policy = JailPolicy {
            cwd: Some(directory.path().join("link")),
            ..exactly(Rung::Pidns)
        };
        let arguments = policy.to_args("/bin/sh".as_ref(), &[script.clone().into()]);
        let mut command = crate::support::command(user, crate::support::jail());
        let private = directory.path().join("gone/deep");
        command.args(arguments).env("TMPDIR", &private);
        let end = crate::support::Running::spawn(command).finish();
        let real = directory.path().join("real").canonicalize().unwrap();
        let lines: Vec<&str> = end.output.lines().collect();
        assert_eq!(lines[0], real.to_str().unwrap(), "{user:?}");
        assert!(lines[1].starts_with(private.to_str().unwrap()), "{lines:?}");
        assert_eq!(lines[2], "made");
        assert!(!private.exists());
    }
}

#[test]
fn a_program_behind_links_under_tmp_starts() {
    for user in users() {
        let directory = public_dir();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        crate::support::copy_executable("/bin/sh".as_ref(), &at("real/shell"));
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        std::os::unix::fs::symlink("shell", at("real/other")).unwrap();
        for program in [at("link/shell"), at("real/other"), at("link/other")] {
            let words = [program.to_str().unwrap(), "-c", "exit 9"];
            let end = crate::support::start(user, &exactly(Rung::Pidns), &words).finish();
            assert_eq!(
                end.status.code(),
                Some(9),
                "{user:?} {program:?} {:?}",
                end.last
            );
        }
    }
}

#[test]
fn a_workspace_that_is_tmp_itself_keeps_tmp_shared_and_says_so() {
    for user in users() {
        let policy = JailPolicy {
            workspace: Some("/tmp".into()),
            ..exactly(Rung::Pidns)
        };
        let mark = public_dir();
        let script = format!("[ -d {} ] && echo shared", mark.path().display());
        let end = start_script(user, &policy, &script).finish();
        assert_eq!(end.output, "shared\n");
        let confinement = end.started.unwrap().confinement;
        assert_eq!(
            confinement.gaps,
            ["no private /tmp: the workspace is /tmp itself"]
        );
        assert_eq!(confinement.filesystem, FilesystemGuard::None);
    }
}

#[test]
fn the_private_tmp_is_bounded() {
    for user in users() {
        let policy = JailPolicy {
            tmp_bytes: 1 << 20,
            ..exactly(Rung::Pidns)
        };
        let script = "for at in /tmp /dev/shm; do \
                      head -c 3000000 /dev/zero > $at/big 2>/dev/null; stat -c %s $at/big; done";
        let end = start_script(user, &policy, script).finish();
        assert_eq!(end.output, "1048576\n1048576\n", "{user:?}");
    }
}

#[test]
fn settings_of_the_machine_can_not_be_written_not_even_by_root() {
    for user in users() {
        // Each is given its own value again, so that nothing changes if it is not refused.
        let script = "for name in kernel/core_pattern kernel/pid_max vm/swappiness; do \
                      value=$(cat /proc/sys/$name); \
                      (echo \"$value\" > /proc/sys/$name) 2>/dev/null && echo wrote $name; done; \
                      [ -w /proc/sysrq-trigger ] && echo may trigger; echo done";
        let end = start_script(user, &exactly(Rung::Pidns), script).finish();
        assert_eq!(end.output, "done\n", "{user:?}");
    }
}

#[test]
fn terminals_and_shared_memory_are_the_trees_own_and_work() {
    let script = "
import os, multiprocessing, tempfile
print(sorted(os.listdir('/dev/pts')))
leader, follower = os.openpty()
print(os.ttyname(follower))
multiprocessing.Semaphore(1).acquire()
tempfile.TemporaryFile().write(b'x')
print(len(os.listdir('/dev/shm')))
";
    for user in users() {
        let policy = exactly(Rung::Pidns);
        let end = crate::support::start(user, &policy, &["python3", "-c", script]).finish();
        assert_eq!(end.output, "['ptmx']\n/dev/pts/0\n0\n", "{user:?}");
    }
}

#[test]
fn nothing_is_left_on_the_machine_after_many_trees() {
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (mounts(), descriptors());
    for user in users() {
        for _ in 0..50 {
            let workspace = public_dir();
            let policy = JailPolicy {
                workspace: Some(workspace.path().to_owned()),
                ..exactly(Rung::Pidns)
            };
            let end = start_script(user, &policy, "setsid sleep 1000 & exit 0").finish();
            assert_eq!(end.status.code(), Some(0));
        }
    }
    assert_eq!(mounts(), before.0);
    // Other tests of this binary run meanwhile, each with a few descriptors of its own.
    assert!(descriptors() < before.1 + 50);
}
