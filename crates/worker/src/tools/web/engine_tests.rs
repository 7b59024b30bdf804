//! Questions to engines that are servers of this test.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use protocol::web::WebSpec;

const PLENTY: Duration = Duration::from_secs(20);

/// A server that answers one question; its request comes back.
fn serve(status: &str, body: &str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        let whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).to_ascii_lowercase();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                return false;
            };
            let length = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "));
            body.len() >= length.map_or(0, |l| l.parse().unwrap())
        };
        while !whole(&request) {
            let count = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..count]);
        }
        drop(stream.write_all(answer.as_bytes()));
        String::from_utf8(request).unwrap()
    });
    (url, serving)
}

/// Waits on another thread: the client's connections close on this one.
async fn join(serving: std::thread::JoinHandle<String>) -> String {
    let joined = tokio::task::spawn_blocking(move || serving.join().unwrap());
    joined.await.unwrap()
}

fn web(engine: Engine, base_url: &str, key: Option<&str>) -> Web {
    Web {
        spec: Some(WebSpec {
            search: Some(SearchSpec {
                engine,
                base_url: base_url.to_owned(),
                api_key_env: None,
            }),
            ..WebSpec::default()
        }),
        key: key.map(str::to_owned),
    }
}

const RESULTS: &str = r#"{"query":"q","results":[
    {"title":"One\n  title","url":"https://one.example/","content":"about one","score":0.9},
    {"title":null,"url":"https://two.example/","extra":[1]},
    {"title":"no address"},
    {"title":"three","url":"https://three.example/","content":""}]}"#;

fn hit(title: &str, url: &str, snippet: &str) -> Hit {
    Hit {
        title: title.to_owned(),
        url: url.to_owned(),
        snippet: snippet.to_owned(),
    }
}

#[tokio::test]
async fn each_engine_is_asked_in_its_own_way_and_results_are_cut_to_their_number() {
    let (url, serving) = serve("200 OK", RESULTS);
    let searxng = web(Engine::Searxng, &format!("{url}/under/"), None);
    let hits = search(&searxng, "鱼 & chips", 2, PLENTY).await.unwrap();
    let wanted = [
        hit("One title", "https://one.example/", "about one"),
        hit("", "https://two.example/", ""),
    ];
    assert_eq!(hits, wanted);
    let request = join(serving).await;
    let line = "GET /under/search?q=%E9%B1%BC+%26+chips&format=json HTTP/1.1\r\n";
    assert!(request.starts_with(line), "{request}");
    assert!(!request.to_ascii_lowercase().contains("authorization"));

    let (url, serving) = serve("200 OK", RESULTS);
    let tavily = web(Engine::Tavily, &url, Some("tok-1"));
    let hits = search(&tavily, "q", 5, PLENTY).await.unwrap();
    assert_eq!(hits.len(), 3);
    let request = join(serving).await;
    assert!(
        request.starts_with("POST /search HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("authorization: Bearer tok-1\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with(r#"{"query":"q","max_results":5}"#),
        "{request}"
    );
}

#[tokio::test]
async fn failures_name_the_engine_and_never_the_key() {
    for (engine, status, body, words) in [
        (Engine::Searxng, "403 Forbidden", "", "must hold `json`"),
        (Engine::Tavily, "401 Unauthorized", "tok-1", "api_key_env"),
        (Engine::Tavily, "429 Slow", "", "too many questions"),
        (Engine::Searxng, "500 Broken", "", "answers 500"),
        (Engine::Searxng, "200 OK", "<html>", "no JSON"),
        (Engine::Searxng, "200 OK", "{}", "no result"),
        (Engine::Searxng, "302 Found", "", "answers 302"),
    ] {
        let (url, serving) = serve(status, body);
        let error = search(&web(engine, &url, Some("tok-1")), "q", 5, PLENTY)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::WebFailed);
        let told = error.to_result().to_string();
        assert!(told.contains(words), "{told}");
        assert!(
            told.contains(engine.as_str()) && !told.contains("tok-1"),
            "{told}"
        );
        join(serving).await;
    }
    let error = search(&Web::default(), "q", 5, PLENTY).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::WebSearchUnavailable);
    assert!(error.hint.contains("[web]"), "{error:?}");
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let body = "x".repeat(limits::SEARCH_ENGINE_BYTES_MAX + 1);
    let (url, serving) = serve("200 OK", &body);
    let error = search(&web(Engine::Searxng, &url, None), "q", 5, PLENTY)
        .await
        .unwrap_err();
    assert!(error.message.contains("without end"), "{error}");
    join(serving).await;
}
