//! Attacks on the keeper by the one process that it listens to: a worker that speaks to its socket
//! itself and asks for more than its tree has.

use confine::files::{FilePolicy, WriteMode};
use confine::policy::JailPolicy;
use confine::report::{NetworkReach, Rung};

use crate::support::{User, exactly, start, users};

/// What a message in Python needs: `ask(text, fds)` gives what came on the report socket.
const PRELUDE: &str = r#"
import array, json, os, socket, sys
keeper = socket.socket(fileno=3)
null = os.open('/dev/null', os.O_RDWR)
def ask(text, fds=None, read=True):
    mine, theirs = socket.socketpair()
    mine.settimeout(20)
    out_read, out_write = os.pipe()
    fds = [null, out_write, out_write, theirs.fileno()] if fds is None else fds(theirs, out_write)
    try:
        keeper.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))])
    except OSError as error:
        return 'not sent: ' + error.strerror
    theirs.close(); os.close(out_write)
    said = b''
    while read:
        piece = mine.recv(65536)
        if not piece: break
        said += piece
    out = b''
    while True:
        piece = os.read(out_read, 65536)
        if not piece: break
        out += piece
    os.close(out_read)
    return out.decode() + ' '.join(json.loads(l)['params'].get('message', json.loads(l)['method'])
                                   for l in said.decode().splitlines() if l.startswith('{'))
def spec(script, **more):
    base = dict(format=1, argv=['/bin/sh', '-c', script], cwd='/', env=[['PATH', '/usr/bin:/bin']],
                timeout_ms=None, open_files=None, file_size_bytes=None, cpu_seconds=None,
                process_cap=None, network=None, linger_ms=None)
    base.update(more)
    return json.dumps(base).encode()
"#;

fn attack(user: User, policy: &JailPolicy, script: &str) -> Vec<String> {
    let script = format!("{PRELUDE}{script}");
    let end = start(user, policy, &["python3", "-c", &script]).finish();
    assert_eq!(end.status.code(), Some(0), "{}", end.output);
    end.output.lines().map(str::to_owned).collect()
}

fn closed() -> JailPolicy {
    JailPolicy {
        files: Some(FilePolicy::closed(WriteMode::Scope)),
        command_network: NetworkReach::Loopback,
        ..exactly(Rung::Pidns)
    }
}

#[test]
fn what_would_widen_a_command_is_no_field_of_it_and_what_is_one_is_compared() {
    let script = r#"
for more in [
    dict(files=None),
    dict(files=dict(mode='workspace', writable=['/'])),
    dict(writable=['/']), dict(visible=['/']), dict(namespaces=False), dict(kind='worker'),
    dict(require='group', highest='group'), dict(capabilities='all'), dict(keep_fd=1),
    dict(network='full'), dict(process_cap=4000000), dict(open_files=10**6),
    dict(file_size_bytes=2**60), dict(timeout_ms=0), dict(linger_ms=10**6), dict(cwd='../x'),
    dict(argv=[]), dict(format=2),
]:
    said = ask(spec('echo started', **more))
    print('refused' if 'started' not in said and 'could not start the command' in said else said)
"#;
    for user in users() {
        assert_eq!(attack(user, &closed(), script), ["refused"; 18], "{user:?}");
    }
}

#[test]
fn a_command_has_no_capability_no_way_to_one_and_the_files_and_network_of_its_tree() {
    let script = r#"
print(ask(spec('grep -E "^(CapPrm|CapEff|NoNewPrivs|Seccomp):" /proc/self/status | tr -s "\n\t" " "')))
print(ask(spec('touch /x /etc/x /var/x; echo x > $HOME/x', env=[['HOME', '/'], ['PATH', '/bin:/usr/bin']])))
print(ask(spec('cat /sys/class/net/*/operstate 2>/dev/null | wc -l; ls /sys/class/net | head -0; \
                cat /proc/net/dev | grep -c :')))
"#;
    for user in users() {
        let said = attack(user, &closed(), script).join("\n");
        assert!(
            said.contains("CapPrm: 0000000000000000 CapEff: 0000000000000000 NoNewPrivs: 1"),
            "{said}"
        );
        assert!(said.contains("Seccomp: 2"), "{said}");
        assert_eq!(said.matches("Read-only file system").count(), 4, "{said}");
        // Of the network there is its own loopback alone.
        assert!(said.contains("\n1\njail/"), "{said}");
    }
}

/// A working directory is a place to stand in and no more: through a link, a descriptor or another
/// process's root it leads to nothing that may be written.
#[test]
fn a_working_directory_by_any_name_opens_nothing() {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(
        outside.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let script = format!(
        "
os.symlink('{0}', '/tmp/link')
held = os.open('{0}', os.O_PATH)
me = os.getpid()
for cwd in ['{0}', '/tmp/link', '/proc/1/root{0}', '/proc/1/cwd', f'/proc/{{me}}/fd/{{held}}',
            f'/proc/{{me}}/root{0}', '/proc/self/cwd', '/no/such/place']:
    said = ask(spec('echo x > made && echo wrote', cwd=cwd))
    print('wrote' if 'wrote' in said else 'held')
",
        outside.path().display()
    );
    for user in users() {
        assert_eq!(attack(user, &closed(), &script), ["held"; 8], "{user:?}");
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn messages_that_are_none_end_nothing_but_themselves() {
    let script = r#"
print(ask(b'x' * 200000))
print(ask(b'{'))
print(ask(b'null'))
print(ask(spec('echo x').replace(b'echo x', b'\xff\xfe')))
keeper.send(b'without descriptors')
keeper.sendmsg([spec('echo x')], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null]))])
keeper.sendmsg([spec('echo x')], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null] * 40))])
# The report socket in the place of everything, and something that is no socket in its place.
print(len(ask(spec('echo x'), lambda theirs, out: [theirs.fileno()] * 4)) > 0)
print(ask(spec('echo fine'), lambda theirs, out: [null, out, out, null], read=False))
print(ask(spec('echo alive')))
"#;
    for user in users() {
        let said = attack(user, &closed(), script);
        assert!(
            said[0].contains("can't be read") || said[0].contains("not sent"),
            "{said:?}"
        );
        for line in &said[1..4] {
            assert!(line.contains("can't be read"), "{said:?}");
        }
        let last = said.iter().position(|line| line == "alive").unwrap();
        assert!(
            said[last + 1].starts_with("jail/started jail/ended"),
            "{said:?}"
        );
    }
}

#[test]
fn a_command_can_not_speak_to_the_keeper_itself() {
    // Neither the worker's descriptor nor a copy of it reaches a command; 200 is the test's own.
    let script = r#"
print(ask(spec('ls -l /proc/self/fd | grep socket | grep -vc " 200 "; for n in 3 4 5; do [ -S /dev/fd/$n ] && echo has $n; done; \
                cat /proc/*/environ 2>/dev/null | grep -c MUSTER_KEEPER')))
"#;
    for user in users() {
        let said = attack(user, &closed(), script);
        assert_eq!(said[..2], ["0", "0"], "{user:?} {said:?}");
    }
}

/// The limit on processes holds although uid 0 of a namespace may write such settings.
#[test]
fn the_cap_on_processes_can_not_be_raised_from_inside() {
    for user in users() {
        let policy = JailPolicy {
            process_cap: 20,
            ..closed()
        };
        // Numbers are handed out up to the limit once before it binds.
        let script = "
import os, signal
os.system('(echo 4000 > /proc/sys/kernel/pid_max; mount -o remount,rw /proc/sys) 2>/dev/null')
os.system('unshare -Urpf sh -c \"echo 4000 > /proc/sys/kernel/pid_max\" 2>/dev/null')
def fork():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid
for _ in range(700):
    pid = fork()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
pids = []
try:
    while len(pids) < 300:
        pids.append(fork())
except BlockingIOError:
    pass
for pid in pids:
    os.kill(pid, 9)
print(len(pids))
";
        let end = start(user, &policy, &["python3", "-c", script]).finish();
        let running: u32 = end.output.trim().parse().unwrap();
        assert!(running <= 20, "{user:?}: {running}");
    }
}
