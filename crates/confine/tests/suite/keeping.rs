//! The keeper: commands in namespaces of their own, ended whole and alone, and never looser than
//! the tree they are in.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use confine::policy::JailPolicy;
use confine::report::{EndReason, Ended, JailLine, KillReach, NetworkReach, Rung, Step};

use crate::support::{BUDGET, Finished, KEEP, User, exactly, public_dir, start, users};

/// A copy of the example client that every user can reach.
fn ask_keeper() -> &'static Path {
    static COPY: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_jail")).with_file_name("examples/ask_keeper");
        let directory = public_dir();
        let copy = directory.path().join("ask_keeper");
        crate::support::copy_executable(&built, &copy);
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        (directory, copy)
    });
    &COPY.1
}

pub(crate) fn ask(user: User, policy: &JailPolicy, wish: &str) -> Finished {
    start(user, policy, &[ask_keeper().to_str().unwrap(), wish]).finish()
}

/// The lines of the report, and the rest of the output.
pub(crate) fn reports(end: &Finished) -> (Vec<JailLine>, Vec<&str>) {
    let (reports, rest): (Vec<&str>, Vec<&str>) = end
        .output
        .lines()
        .partition(|line| line.starts_with("report "));
    let lines = reports
        .iter()
        .map(|line| JailLine::parse(&line["report ".len()..]).unwrap());
    (lines.collect(), rest)
}

fn wish(script: &str, more: &str) -> String {
    serde_json::json!({ "argv": ["/bin/bash", "-c", script] })
        .to_string()
        .replacen('{', &format!("{{{more}"), 1)
}

#[test]
fn a_command_has_numbers_and_a_view_of_its_own_and_its_end_is_told() {
    for user in users() {
        let script = "echo $$; set -- /proc/[0-9]*; echo $#; exit 3";
        let end = ask(user, &exactly(Rung::Pidns), &wish(script, ""));
        let (lines, rest) = reports(&end);
        // Itself and its init; then, in the tree: init, keeper, client.
        assert_eq!(rest, ["2", "2", "processes 3"], "{user:?}");
        let [JailLine::Started(started), JailLine::Ended(ended)] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(started.confinement.kill, KillReach::Complete);
        assert_eq!(started.confinement.gaps, Vec::<String>::new(), "{user:?}");
        let expected = Ended {
            exit_code: Some(3),
            signal: None,
            reason: EndReason::Program,
            left_behind: false,
        };
        assert_eq!(*ended, expected);
        assert_eq!(end.status.code(), Some(3));
    }
}

#[test]
fn what_a_command_left_behind_ends_with_it_and_the_worker_goes_on() {
    for user in users() {
        let script = format!(
            "setsid bash -c 'trap \"\" TERM HUP; printf x >&{KEEP}; sleep 1000' >/dev/null & \
             read -n 1 < <(sleep 0.2); echo done"
        );
        let end = ask(user, &exactly(Rung::Pidns), &wish(&script, ""));
        let (_, rest) = reports(&end);
        assert_eq!(rest, ["done", "processes 3"], "{user:?}");
    }
}

#[test]
fn what_a_program_left_running_has_time_to_end_by_itself_and_what_does_not_is_told() {
    for user in users() {
        let late = "(sleep 0.2; echo late) & echo first; exit 3";
        let deaf = "setsid sleep 1000 & exit 3";
        // Asked to end, the shell obeys; what it runs has as long as the grace, not the shorter time.
        let slow = "(trap 'sleep 0.4; echo saved; exit' TERM; echo up; while :; do sleep 0.01; done) \
                    & trap 'exit 3' TERM; wait";
        let cases = [
            (late, "\"linger_ms\":10000,", &["first", "late"][..], false),
            (late, "", &["first"], true),
            (deaf, "\"linger_ms\":100,", &[], true),
            (
                slow,
                "\"linger_ms\":1,\"timeout_ms\":500,",
                &["up", "saved"],
                false,
            ),
        ];
        for (script, more, output, left_behind) in cases {
            let end = ask(user, &exactly(Rung::Pidns), &wish(script, more));
            let (lines, rest) = reports(&end);
            let expected: Vec<&str> = output.iter().copied().chain(["processes 3"]).collect();
            assert_eq!(rest, expected, "{user:?} {script}");
            let Some(JailLine::Ended(ended)) = lines.last() else {
                panic!("{lines:?}")
            };
            assert_eq!(
                (ended.exit_code, ended.left_behind),
                (Some(3), left_behind),
                "{user:?} {script}"
            );
        }
    }
}

#[test]
fn a_command_that_ended_in_time_is_not_told_as_timed_out_while_others_linger() {
    for user in users() {
        let more = "\"linger_ms\":10000,\"timeout_ms\":800,";
        let end = ask(
            user,
            &exactly(Rung::Pidns),
            &wish("sleep 1000 & exit 3", more),
        );
        let (lines, _) = reports(&end);
        let ended = Ended {
            exit_code: Some(3),
            signal: None,
            reason: EndReason::Program,
            left_behind: true,
        };
        assert_eq!(lines.last(), Some(&JailLine::Ended(ended)), "{user:?}");
    }
}

#[test]
fn a_time_out_asks_first() {
    for user in users() {
        let script = "trap 'echo saved; exit 5' TERM; while :; do sleep 0.02; done";
        let end = ask(
            user,
            &exactly(Rung::Pidns),
            &wish(script, "\"timeout_ms\":300,"),
        );
        let (lines, rest) = reports(&end);
        assert_eq!(rest, ["saved", "processes 3"], "{user:?}");
        let reason = EndReason::TimedOut;
        let ended = Ended {
            exit_code: Some(5),
            signal: None,
            reason,
            left_behind: false,
        };
        assert_eq!(lines.last(), Some(&JailLine::Ended(ended)));
    }
}

#[test]
fn a_command_deaf_to_the_time_out_is_killed_with_all_that_escaped_from_it() {
    for user in users() {
        let script = "trap '' TERM; setsid bash -c 'trap \"\" TERM; sleep 1000' & \
                      while :; do sleep 1; done";
        let end = ask(
            user,
            &exactly(Rung::Pidns),
            &wish(script, "\"timeout_ms\":100,"),
        );
        let (lines, rest) = reports(&end);
        assert_eq!(rest, ["processes 3"], "{user:?}");
        let reason = EndReason::TimedOut;
        let ended = Ended {
            exit_code: None,
            signal: Some(9),
            reason,
            left_behind: false,
        };
        assert_eq!(lines.last(), Some(&JailLine::Ended(ended)));
    }
}

#[test]
fn a_hang_up_of_the_report_kills_the_command() {
    for user in users() {
        let script = "trap '' TERM HUP; setsid bash -c 'sleep 1000' & echo up; sleep 1000";
        let end = ask(
            user,
            &exactly(Rung::Pidns),
            &wish(script, "\"hang_up_at\":\"up\","),
        );
        // The client reads the output to its end before it says so.
        assert_eq!(
            (end.output.as_str(), end.status.code()),
            ("hung up\n", Some(0)),
            "{user:?}"
        );
    }
}

#[test]
fn a_command_can_have_less_than_its_tree_and_never_more() {
    for user in users() {
        let tree = JailPolicy {
            process_cap: 100,
            command_network: NetworkReach::Loopback,
            ..exactly(Rung::Pidns)
        };
        let less = "\"process_cap\":100,\"network\":\"loopback\",";
        let end = ask(user, &tree, &wish("exit 0", less));
        assert_eq!(end.status.code(), Some(0), "{}", end.output);
        for (more, why) in [
            (
                "\"process_cap\":101,\"network\":\"loopback\",",
                "process_cap 101 is more than the tree's 100",
            ),
            (
                "\"network\":\"full\",",
                "network `full` is more than a command here may have",
            ),
            (
                "\"timeout_ms\":86400001,\"network\":\"loopback\",",
                "timeout_ms must lie between 1 and 86400000",
            ),
            (
                "\"linger_ms\":10001,\"network\":\"loopback\",",
                "linger_ms must be at most 10000",
            ),
            (
                "\"cwd\":\"w\",\"network\":\"loopback\",",
                "cwd `w` is not absolute",
            ),
        ] {
            let end = ask(user, &tree, &wish("echo never", more));
            let (lines, rest) = reports(&end);
            assert_eq!(rest, ["processes 3"]);
            let [JailLine::Failed(failed)] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert_eq!(failed.step, Step::Policy);
            assert_eq!(
                failed.message,
                format!("could not start the command: {why}")
            );
        }
    }
}

#[test]
fn a_command_that_can_not_be_executed_says_so() {
    for user in users() {
        let end = ask(user, &exactly(Rung::Pidns), r#"{"argv":["/no/such"]}"#);
        let (lines, _) = reports(&end);
        let Some(JailLine::Failed(failed)) = lines.last() else {
            panic!("{lines:?}")
        };
        assert_eq!(
            (
                failed.step,
                failed.errno_name.as_deref(),
                failed.path.as_deref()
            ),
            (Step::Exec, Some("ENOENT"), Some("/no/such".as_ref()))
        );
    }
}

#[test]
fn commands_and_worker_have_no_capabilities_and_can_not_gain_any() {
    let show = "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status | tr -d '\\n\\t'";
    let none = "0000000000000000";
    let expected = format!("CapPrm:{none}CapEff:{none}CapBnd:{none}CapAmb:{none}NoNewPrivs:1");
    for user in users() {
        let end = ask(
            user,
            &exactly(Rung::Pidns),
            &wish(&format!("{show}; echo"), ""),
        );
        let (_, rest) = reports(&end);
        assert_eq!(rest[0], expected, "command of {user:?}");
        let worker = start(user, &exactly(Rung::Pidns), &["/bin/bash", "-c", show]).finish();
        assert_eq!(worker.output.trim_end(), expected, "worker of {user:?}");
    }
}

#[test]
fn a_private_loopback_serves_and_reaches_nothing_else() {
    let script = "
import errno, socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
print('loopback')
try:
    socket.create_connection(('192.0.2.1', 80), 5)
except OSError as error:
    print(errno.errorcode[error.errno])
";
    for user in users() {
        let wish = serde_json::json!({ "argv": ["python3", "-c", script], "network": "loopback" });
        let end = ask(user, &exactly(Rung::Pidns), &wish.to_string());
        let (lines, rest) = reports(&end);
        assert_eq!(rest[..2], ["loopback", "ENETUNREACH"], "{user:?} {lines:?}");
    }
}

/// Attacks the socket itself with messages that no client of ours would send.
#[test]
fn malformed_messages_are_refused_and_the_keeper_serves_on() {
    let script = r#"
import json, os, socket
keeper = socket.socket(fileno=3)
null = os.open('/dev/null', os.O_RDWR)

def ask(text, count):
    ours, theirs = socket.socketpair()
    socket.send_fds(keeper, [text], ([null] * (count - 1) + [theirs.fileno()])[:count])
    theirs.close()
    said = b''
    while part := ours.recv(65536):
        said += part
    return [json.loads(line) for line in said.splitlines()]

good = {'format': 1, 'argv': ['/bin/true'], 'cwd': '/', 'env': [], 'timeout_ms': None,
        'open_files': None, 'file_size_bytes': None, 'cpu_seconds': None, 'process_cap': None,
        'network': 'full'}
text = json.dumps(good).encode()
print('three', ask(text, 3))
print('five', ask(text, 5))
for bad in [b'x', b'{}', b'[' * 100000, json.dumps(good | {'privileged': True}).encode(),
            json.dumps(good | {'argv': []}).encode(), b' ' * (160 * 1024) + text]:
    said = ask(bad, 4)
    print(len(said), said[0]['method'], said[0]['params']['step'])
keeper.send(b'nobody listens')
said = ask(text, 4)
print([line['method'] for line in said], said[-1]['params']['exit_code'])
"#;
    for user in users() {
        let end = start(user, &exactly(Rung::Pidns), &["python3", "-c", script]).finish();
        let refused = "1 jail/failed policy\n".repeat(6);
        let expected = format!("three []\nfive []\n{refused}['jail/started', 'jail/ended'] 0\n");
        assert_eq!(end.output, expected, "{user:?}");
    }
}

#[test]
fn the_number_of_commands_is_bounded_and_all_end_with_the_worker() {
    let script = r#"
import json, os, socket
keeper = socket.socket(fileno=3)
null = os.open('/dev/null', os.O_RDWR)
spec = {'format': 1, 'argv': ['/bin/sleep', '1000'], 'cwd': '/', 'env': [], 'timeout_ms': None,
        'open_files': None, 'file_size_bytes': None, 'cpu_seconds': None, 'process_cap': None,
        'network': 'full'}
reports = []
for number in range(65):
    ours, theirs = socket.socketpair()
    socket.send_fds(keeper, [json.dumps(spec).encode()], [null, null, null, theirs.fileno()])
    theirs.close()
    line = json.loads(ours.makefile().readline())
    reports.append(ours)
    if number >= 63:
        print(line['method'], line['params'].get('message'))
"#;
    for user in users() {
        let mut jail = start(user, &exactly(Rung::Pidns), &["python3", "-c", script]);
        let refused = "jail/failed could not start the command: 64 commands run already";
        jail.wait_for("jail/started None");
        jail.wait_for(refused);
        assert!(jail.live.is_empty_within(BUDGET), "{user:?}");
        assert_eq!(jail.finish().status.code(), Some(0));
    }
}
