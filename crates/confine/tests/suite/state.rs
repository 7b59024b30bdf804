//! What a program inherits: three descriptors, clean signals, its limits, nothing else.

use std::io::Write;
use std::process::Command;

use confine::policy::JailPolicy;
use confine::report::{ProcessCap, Rung};

use crate::support::{
    BUDGET, KEEP, Running, everywhere, exactly, jail, start, start_script, users,
};

#[test]
fn only_the_standard_descriptors_cross_and_the_one_for_tests() {
    for (user, rung) in everywhere() {
        // Descriptors 7 and 9 of the caller are open without CLOEXEC.
        let policy = JailPolicy {
            keep_fd: Some(KEEP),
            ..exactly(rung)
        };
        let show =
            "n=0; while [ $n -lt 256 ]; do [ -e /proc/self/fd/$n ] && echo $n; n=$((n+1)); done";
        let arguments = policy.to_args("/bin/sh".as_ref(), &["-c".into(), show.into()]);
        let mut caller = crate::support::command(user, "/bin/sh".as_ref());
        caller
            .args(["-c", "exec 7</dev/null 9</dev/null; exec \"$@\"", "sh"])
            .arg(jail());
        caller.args(arguments);
        let end = Running::spawn(caller).finish();
        // 3 is the keeper's socket, where there is one.
        let expected = match rung {
            Rung::Pidns | Rung::Cgroup2 => format!("0\n1\n2\n3\n{KEEP}\n"),
            Rung::Subreaper | Rung::Group => format!("0\n1\n2\n{KEEP}\n"),
        };
        assert_eq!(end.output, expected, "{user:?} {rung}");
    }
}

#[test]
fn signals_that_the_caller_ignored_or_blocked_are_back_at_their_defaults() {
    for (user, rung) in everywhere() {
        let policy = exactly(rung);
        let arguments = policy.to_args("cat".as_ref(), &["/proc/self/status".into()]);
        let mut caller = crate::support::command(user, "/bin/sh".as_ref());
        caller
            .args(["-c", "trap '' TERM USR1 PIPE HUP CHLD; exec \"$@\"", "sh"])
            .arg(jail());
        caller.args(arguments);
        let end = Running::spawn(caller).finish();
        let none = "0000000000000000";
        let expected = format!("SigBlk:\t{none}\nSigIgn:\t{none}\nSigCgt:\t{none}\n");
        let masks = ["SigBlk", "SigIgn", "SigCgt"];
        let found: String = end
            .output
            .lines()
            .filter(|line| masks.iter().any(|mask| line.starts_with(mask)))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(found, expected, "{user:?} {rung}");
    }
}

#[test]
fn the_program_leads_a_session_of_its_own_and_the_jail_stays_in_its_group() {
    for (user, rung) in everywhere() {
        let mut jail = start_script(
            user,
            &exactly(rung),
            "cut -d' ' -f6 /proc/$$/stat; echo $$; read x",
        );
        let started = jail.started();
        jail.wait_for(&own_number(rung, started.init_pid));
        let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(
            i32::try_from(jail.child.id()).unwrap(),
        )));
        assert_eq!(
            group.unwrap().as_raw(),
            i32::try_from(jail.child.id()).unwrap()
        );
        jail.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let end = jail.finish();
        let numbers: Vec<&str> = end.output.lines().collect();
        assert_eq!(
            numbers[0], numbers[1],
            "session and process differ: {user:?} {rung}"
        );
    }
}

/// What a program's own number is on a rung.
fn own_number(rung: Rung, below: u32) -> String {
    match rung {
        Rung::Group | Rung::Subreaper => below.to_string(),
        // 1 is init, 2 the keeper.
        Rung::Pidns | Rung::Cgroup2 => "3".to_owned(),
    }
}

#[test]
fn limits_are_set_and_only_ever_lowered() {
    for (user, rung) in everywhere() {
        let policy = JailPolicy {
            open_files: 99,
            file_size_bytes: Some(512 * 1000),
            cpu_seconds: Some(77),
            ..exactly(rung)
        };
        let script = "ulimit -n; ulimit -Hn; ulimit -f; ulimit -St; ulimit -Ht; ulimit -c; ulimit -v; \
                      cat /proc/self/oom_score_adj";
        let end = start_script(user, &policy, script).finish();
        assert_eq!(
            end.output, "99\n99\n500\n77\n82\n0\nunlimited\n500\n",
            "{user:?} {rung}"
        );
    }
}

#[test]
fn a_command_gets_dev_null_as_input_and_an_output_that_the_jail_never_writes_to() {
    for (user, rung) in everywhere() {
        let policy = JailPolicy {
            kind: confine::policy::JailKind::Command,
            ..exactly(rung)
        };
        let mut jail = start_script(user, &policy, "cat; echo out; exit 4");
        jail.stdin
            .as_mut()
            .unwrap()
            .write_all(b"not for the program\n")
            .unwrap();
        let end = jail.finish();
        assert_eq!((end.status.code(), end.output.as_str()), (Some(4), "out\n"));
        assert_eq!((end.started, end.last), (None, None));
    }
}

#[test]
fn a_command_that_a_jail_starts_leaves_its_files_in_tmp_and_nothing_else() {
    // What leaves a group is not held.
    let holding = |&(_, rung): &(_, Rung)| rung > Rung::Group;
    for (user, rung) in everywhere().into_iter().filter(holding) {
        let policy = JailPolicy {
            kind: confine::policy::JailKind::Command,
            linger_ms: 300,
            ..exactly(rung)
        };
        let place = crate::support::public_dir();
        assert!(place.path().starts_with("/tmp"), "{place:?}");
        let note = place.path().join("note");
        let script = format!(
            "(sleep 0.05; echo late) & setsid sleep 1000 >/dev/null & echo x > {}",
            note.display()
        );
        let jail = start_script(user, &policy, &script);
        assert!(jail.live.is_empty_within(BUDGET), "{user:?} {rung}");
        assert_eq!(jail.finish().output, "late\n", "{user:?} {rung}");
        assert_eq!(std::fs::read_to_string(note).unwrap(), "x\n");
    }
}

#[test]
fn the_process_cap_holds_for_every_user_where_the_namespace_has_one() {
    for user in users() {
        let policy = JailPolicy {
            process_cap: 20,
            ..exactly(Rung::Pidns)
        };
        // 400 short processes first, so that numbers have wrapped and only the cap's worth is left.
        let script = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done; \
                      n=0; while [ $n -lt 60 ]; do sleep 30 & n=$((n+1)); done 2>/dev/null; echo never";
        let mut jail = start(user, &policy, &["/bin/sh", "-c", script]);
        let started = jail.started();
        if started.confinement.procs != ProcessCap::Tree {
            assert!(
                started
                    .confinement
                    .gaps
                    .iter()
                    .any(|gap| gap.contains("number of processes"))
            );
            continue;
        }
        let end = jail.finish();
        assert_eq!(
            (end.output.as_str(), end.status.code()),
            ("", Some(2)),
            "{user:?}"
        );
    }
}

#[test]
fn a_program_can_not_look_into_init_and_keeper() {
    for user in users() {
        // What a process may not look into gives neither its environment nor its root.
        let script = "for pid in 1 2; do for what in environ root/ fd/0 mem; do \
                      cat /proc/$pid/$what >/dev/null 2>&1 && echo saw $pid $what; \
                      ls /proc/$pid/$what >/dev/null 2>&1 && [ $what = root/ ] && echo in $pid; \
                      done; done; cat /proc/self/environ >/dev/null && echo done";
        let end = start_script(user, &exactly(Rung::Pidns), script).finish();
        assert_eq!(end.output, "done\n", "{user:?}");
    }
}

#[test]
fn require_above_what_is_tried_is_refused_by_the_policy() {
    let mut command = Command::new(jail());
    command.args([
        "--policy",
        r#"{"require":"pidns","highest":"group"}"#,
        "--",
        "true",
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "jail: `require` is pidns and `highest` only group: raise `highest` or lower `require`\n"
    );
}
