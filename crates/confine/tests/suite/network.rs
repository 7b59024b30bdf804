//! Commands without network: every way out fails, while servers on their own loopback work and the
//! worker's own network stays.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use confine::files::{FilePolicy, WriteMode};
use confine::policy::JailPolicy;
use confine::report::{NetworkReach, Rung};

use crate::keeping::{ask, reports};
use crate::support::{User, exactly, start, users};

/// Each line is one way out; it prints the number of each that worked. `PORT` is a server on the
/// machine's loopback, which is not the command's.
const WAYS_OUT: &str = r#"
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def tcp(): socket.create_connection(('127.0.0.1', PORT), 2)
def tcp6(): socket.create_connection(('2001:db8::1', 80), 2)
def outside(): socket.create_connection(('192.0.2.1', 80), 2)
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
def packet(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
def names(): socket.getaddrinfo('name.example', 80)
def shell():
    if os.system("bash -c 'echo > /dev/tcp/127.0.0.1/PORT' 2>/dev/null") != 0: raise OSError
def ring():
    if libc.syscall(425, 8, ctypes.create_string_buffer(256)) < 0: raise OSError
def abstract(): socket.socket(socket.AF_UNIX).connect('\0ABSTRACT')
def path(): socket.socket(socket.AF_UNIX).connect('/run/muster-test.sock')
def agent(): socket.socket(socket.AF_UNIX).connect('SOCKET')
def join():
    if libc.setns(os.open('/proc/1/ns/net', os.O_RDONLY), 0) < 0: raise OSError
for number, way in enumerate([tcp, tcp6, outside, udp, raw, packet, names, shell, ring, abstract, path, agent, join]):
    try:
        way()
        print(number)
    except (OSError, socket.gaierror):
        pass
print('done')
"#;

fn policy() -> JailPolicy {
    JailPolicy {
        files: Some(FilePolicy::closed(WriteMode::Scope)),
        command_network: NetworkReach::Loopback,
        ..exactly(Rung::Pidns)
    }
}

/// Sockets of the machine that a command must not reach.
struct Machine {
    server: TcpListener,
    _abstract: std::os::unix::net::UnixListener,
    name: String,
    folder: tempfile::TempDir,
    _agent: std::os::unix::net::UnixListener,
}

impl Machine {
    fn new() -> Machine {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = format!("muster-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        // Where an agent for keys has its socket: below /tmp, which is covered.
        let folder = crate::support::public_dir();
        let socket = folder.path().join("agent.1");
        let agent = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
        Machine {
            server: TcpListener::bind("127.0.0.1:0").unwrap(),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            name,
            folder,
            _agent: agent,
        }
    }

    fn ways_out(&self) -> String {
        let port = self.server.local_addr().unwrap().port().to_string();
        let socket = self.folder.path().join("agent.1");
        WAYS_OUT
            .replace("PORT", &port)
            .replace("ABSTRACT", &self.name)
            .replace("SOCKET", socket.to_str().unwrap())
    }
}

fn by_command(user: User, policy: &JailPolicy, script: &str) -> Vec<String> {
    let wish = serde_json::json!({"argv": ["python3", "-c", script]});
    let end = ask(user, policy, &wish.to_string());
    let (_, rest) = reports(&end);
    let own = rest.iter().filter(|line| !line.starts_with("processes "));
    own.map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_command_without_network_finds_no_way_out() {
    let machine = Machine::new();
    for user in users() {
        let said = by_command(user, &policy(), &machine.ways_out());
        assert_eq!(said, ["done"], "{user:?}");
    }
}

#[test]
fn without_a_namespace_for_it_a_filter_refuses_every_socket_of_the_network() {
    let machine = Machine::new();
    for user in users() {
        for rung in [Rung::Subreaper, Rung::Group] {
            let policy = JailPolicy {
                network: NetworkReach::Loopback,
                ..exactly(rung)
            };
            let script = machine.ways_out();
            let end = start(user, &policy, &["python3", "-c", &script]).finish();
            // Nothing covers the file system here, so a socket in it is in reach: a gap of the rung.
            assert_eq!(end.output, "11\ndone\n", "{user:?} {rung}");
            let confinement = end.started.unwrap().confinement;
            assert_eq!(confinement.network, NetworkReach::Nothing);
            let gaps = confinement.gaps.join("\n");
            assert!(gaps.contains("no loopback of its own"), "{gaps}");
        }
    }
}

#[test]
fn a_server_on_the_own_loopback_answers_and_the_worker_keeps_its_network() {
    let script = "
import http.server, threading, urllib.request
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen('http://127.0.0.1:%d/' % server.server_port).status)
";
    for user in users() {
        assert_eq!(by_command(user, &policy(), script), ["200"], "{user:?}");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        });
        let worker =
            format!("exec 5<>/dev/tcp/127.0.0.1/{port}; printf w >&5; read -N1 x <&5; echo $x");
        let end = start(user, &policy(), &["/bin/bash", "-c", &worker]).finish();
        assert_eq!(end.output, "w\n", "{user:?}");
        answering.join().unwrap();
    }
}
