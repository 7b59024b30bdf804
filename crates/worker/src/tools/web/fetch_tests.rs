//! Pages of every unpleasant kind, from servers of this test.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

const PLENTY: Duration = Duration::from_secs(20);

/// A server that answers so many connections in turn with these bytes.
struct Server {
    port: u16,
    serving: std::thread::JoinHandle<Vec<String>>,
}

impl Server {
    fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                requests.push(head(&mut stream));
                // Whoever has enough of a long answer closes the connection.
                drop(stream.write_all(&answer));
            }
            requests
        };
        Server {
            port,
            serving: std::thread::spawn(serve),
        }
    }

    fn url(&self, host: &str, path: &str) -> Url {
        Url::parse(&format!("http://{host}:{}{path}", self.port)).unwrap()
    }

    /// Waits for its end on another thread: the client's connections close on this one.
    async fn requests(self) -> Vec<String> {
        let serving = tokio::task::spawn_blocking(move || self.serving.join().unwrap());
        serving.await.unwrap()
    }
}

/// A request up to its empty line.
fn head(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [head.as_bytes(), b"\r\nconnection: close\r\n\r\n", body].concat()
}

fn ok(body: &[u8]) -> Vec<u8> {
    answer("HTTP/1.1 200 OK\r\ncontent-type: text/html", body)
}

fn to(location: &str) -> Vec<u8> {
    answer(&format!("HTTP/1.1 302 Found\r\nlocation: {location}"), b"")
}

fn local() -> Vec<String> {
    vec!["127.0.0.1".to_owned()]
}

async fn get(url: &Url, allowed: &[String]) -> Result<Page, ToolError> {
    fetch(url.clone(), allowed, PLENTY).await
}

#[tokio::test]
async fn a_page_is_fetched_and_asked_for_as_itself() {
    let server = Server::start(vec![ok(b"<p>hello</p>")]);
    let url = server.url("127.0.0.1", "/a?b=c#part");
    let page = get(&url, &local()).await.unwrap();
    assert_eq!(
        page,
        Page {
            url,
            content_type: "text/html".to_owned(),
            body: b"<p>hello</p>".to_vec(),
            cut: false,
        }
    );
    let request = server.requests().await.remove(0);
    assert!(request.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{request}");
    assert!(
        !request.to_ascii_lowercase().contains("accept-encoding"),
        "{request}"
    );
}

#[tokio::test]
async fn a_local_address_is_refused_before_anything_is_sent() {
    // The server never answers, since nobody may ever connect.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "127.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
    ] {
        let url = Url::parse(&format!("http://{host}:{port}/")).unwrap();
        let error = get(&url, &[]).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::AddressRefused, "{host}: {error}");
        assert!(error.hint.contains("web.allow_hosts"), "{error:?}");
    }
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn each_redirect_is_checked_as_the_first_address_was() {
    for (location, code) in [
        ("http://localhost/secret", ErrorCode::AddressRefused),
        (
            "//169.254.169.254/latest/meta-data",
            ErrorCode::AddressRefused,
        ),
        ("http://[::1]/", ErrorCode::AddressRefused),
        ("file:///etc/passwd", ErrorCode::WebFailed),
        ("gopher://example.org/", ErrorCode::WebFailed),
        ("http://user:secret@127.0.0.1/", ErrorCode::WebFailed),
    ] {
        let server = Server::start(vec![to(location)]);
        let error = get(&server.url("127.0.0.1", "/"), &local())
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{location}: {error}");
        server.requests().await;
    }
}

#[tokio::test]
async fn so_many_redirects_are_followed_and_not_one_more() {
    let most = limits::WEB_REDIRECTS_MAX;
    let mut answers = vec![to("/next"); most];
    answers.push(ok(b"there"));
    let server = Server::start(answers);
    let page = get(&server.url("127.0.0.1", "/"), &local()).await.unwrap();
    assert_eq!(
        (page.url.path(), page.body.as_slice()),
        ("/next", &b"there"[..])
    );
    server.requests().await;
    let server = Server::start(vec![to("/next"); most + 1]);
    let error = get(&server.url("127.0.0.1", "/"), &local())
        .await
        .unwrap_err();
    assert!(error.message.contains("redirects more than"), "{error}");
    server.requests().await;
}

#[tokio::test]
async fn a_long_page_is_cut_and_a_broken_one_is_kept() {
    let most = limits::WEB_PAGE_BYTES_MAX;
    for (extra, cut) in [(0, false), (1, true), (4 * most, true)] {
        let server = Server::start(vec![ok(&vec![b'x'; most + extra])]);
        let page = get(&server.url("127.0.0.1", "/"), &local()).await.unwrap();
        assert_eq!((page.body.len(), page.cut), (most, cut), "{extra}");
        server.requests().await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100";
    let server = Server::start(vec![answer(head, b"the beginning")]);
    let page = get(&server.url("127.0.0.1", "/"), &local()).await.unwrap();
    assert_eq!(
        (page.body.as_slice(), page.cut),
        (&b"the beginning"[..], true)
    );
    server.requests().await;
}

#[tokio::test]
async fn failures_are_told_in_words() {
    let packed = answer("HTTP/1.1 200 OK\r\ncontent-encoding: gzip", b"\x1f\x8b");
    for (bytes, code, words) in [
        (
            answer("HTTP/1.1 404 Not Found", b""),
            ErrorCode::NotFound,
            "404 Not Found",
        ),
        (
            answer("HTTP/1.1 503 Busy", b""),
            ErrorCode::WebFailed,
            "503",
        ),
        (packed, ErrorCode::WebFailed, "packed with `gzip`"),
        (
            b"what is this".to_vec(),
            ErrorCode::WebFailed,
            "can't be reached",
        ),
        (Vec::new(), ErrorCode::WebFailed, "can't be reached"),
    ] {
        let server = Server::start(vec![bytes]);
        let error = get(&server.url("127.0.0.1", "/"), &local())
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(words), "{error}");
        server.requests().await;
    }
    let gone = Server::start(Vec::new());
    let url = gone.url("127.0.0.1", "/");
    gone.requests().await;
    let error = get(&url, &local()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::WebFailed, "{error}");
    let url = Url::parse("http://no-such-host.invalid/").unwrap();
    let error = get(&url, &[]).await.unwrap_err();
    assert!(error.message.contains("can't be looked up"), "{error}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
    let error = fetch(url, &local(), Duration::from_millis(300))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::TimedOut);
}

#[test]
fn an_address_must_be_one_for_the_web() {
    for (text, words) in [
        ("", "no address"),
        ("example.org/page", "no address"),
        ("file:///etc/passwd", "must begin with"),
        ("ftp://example.org/", "must begin with"),
        ("http://me:secret@example.org/", "no user name"),
        ("https://", "no address"),
    ] {
        let error = read_url(text).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidParameters);
        assert!(error.message.contains(words), "{text}: {error}");
        assert!(!error.message.contains("secret"), "{error}");
    }
    let long = format!(
        "https://example.org/{}",
        "x".repeat(limits::WEB_URL_BYTES_MAX)
    );
    assert!(read_url(&long).unwrap_err().message.contains("too long"));
    let odd = read_url(" HTTPS://Example.ORG:443/a b ").unwrap();
    assert_eq!(odd.as_str(), "https://example.org/a%20b");
}
