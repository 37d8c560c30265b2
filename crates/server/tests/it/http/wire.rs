//! What comes over the wire before it is a request: slow, endless, ambiguous or broken.

use super::server::Server;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes and reads until the server closes, or for so long.
async fn exchange(server: &Server, bytes: &[u8], limit: Duration) -> (String, bool) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The server may refuse before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(limit, async {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(n) => answer.extend_from_slice(&buffer[..n]),
            }
        }
    });
    let closed = closed.await.is_ok();
    (String::from_utf8_lossy(&answer).into_owned(), closed)
}

fn statuses(answer: &str) -> Vec<&str> {
    let lines = answer.lines().filter(|line| line.starts_with("HTTP/1.1 "));
    lines.map(|line| &line[9..12]).collect()
}

#[tokio::test]
async fn ambiguous_and_broken_heads_are_refused_and_never_a_second_request() {
    let server = Server::on_sqlite().await;
    let inner = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let smuggled = format!("0\r\n\r\n{inner}");
    let post = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let length = smuggled.len();
    for (bytes, allowed) in [
        // Two lengths that differ; a length that is none; both a length and chunks.
        (format!("{post}Content-Length: 4\r\nContent-Length: 40\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Content-Length: +4\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Content-Length: 4, 40\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Transfer-Encoding: xchunked\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Transfer-Encoding : chunked\r\n\r\n{smuggled}"), "400"),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{inner}"), "400"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c: d\r\n\r\n".into(), "400"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nA\0B: c\r\n\r\n".into(), "400"),
        ("GET /he althz HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), "400"),
        ("GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n".into(), "400"),
        ("\u{16}\u{3}\u{1}hello\r\n\r\n".into(), "400"),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000)), "4"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "a".repeat(100_000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(500)), "431"),
    ] {
        let (answer, closed) = exchange(&server, bytes.as_bytes(), Duration::from_secs(5)).await;
        let shown: String = bytes.chars().take(120).collect();
        let found = statuses(&answer);
        assert!(found.len() <= 1, "{shown:?} was answered twice: {answer}");
        assert!(found.iter().all(|status| status.starts_with(allowed)), "{shown:?}: {answer}");
        assert!(closed, "{shown:?} left the connection open: {answer}");
    }
    // A length beside chunks: the chunks count, and the connection is not used again.
    let both = format!("{post}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (answer, _) =
        exchange(&server, format!("{both}{smuggled}").as_bytes(), Duration::from_secs(2)).await;
    assert!(!answer.contains("ok\n"), "the inner request was carried out: {answer}");
    assert_eq!(server.written().await, (0, 0));
}

#[tokio::test]
async fn a_page_of_another_origin_can_neither_act_nor_read() {
    let server = Server::on_sqlite().await;
    let id = server.submit("q").await;
    let cancel = format!("/v1/tasks/{id}/cancel");
    let request = server.request(reqwest::Method::POST, &cancel);
    let reply = server.send(request.header("Origin", "http://evil.example")).await;
    reply.refused(403, "origin_not_allowed");
    for (method, path) in
        [(reqwest::Method::POST, cancel.as_str()), (reqwest::Method::GET, "/v1/tasks")]
    {
        let request = server.request(method, path).header("Host", "evil.example");
        server.send(request).await.refused(421, "host_not_allowed");
    }
    assert_eq!(server.task(&id).await["status"], "pending");
    let own = server.request(reqwest::Method::POST, &cancel).header("Origin", server.url(""));
    assert_eq!(server.send(own).await.expect(200)["status"], "cancelled");
}

#[tokio::test]
async fn a_header_cannot_be_broken_out_of() {
    let server = Server::on_sqlite().await;
    let evil = "evil%0d%0aSet-Cookie:%20a=b";
    let reply = server.get(&format!("/v1/tasks/{evil}")).await;
    assert!(reply.header("set-cookie").is_none());
    reply.refused(400, "invalid_id");
    let request = server.request(reqwest::Method::GET, "/healthz");
    let reply = server.send(request.header("X-Request-Id", "a".repeat(500))).await;
    assert_eq!(reply.header("x-request-id").map(str::len), Some(36));
}

#[tokio::test]
async fn a_head_that_never_ends_is_given_up_and_others_are_served_meanwhile() {
    let server = Server::on_sqlite().await;
    let started = Instant::now();
    let half = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: ";
    let slow = exchange(&server, half, Duration::from_secs(30));
    let busy = async {
        for _ in 0..10 {
            server.submit("q").await;
        }
        assert!(started.elapsed() < Duration::from_secs(10));
    };
    let ((answer, closed), ()) = tokio::join!(slow, busy);
    assert!(closed && !answer.contains("200"), "{answer}");
    assert!(started.elapsed() > Duration::from_secs(10));
}

#[tokio::test]
async fn a_body_that_never_comes_is_answered_408() {
    let server = Server::on_sqlite().await;
    let head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        Content-Length: 20\r\n\r\n{\"queue\"";
    let (answer, closed) = exchange(&server, head, Duration::from_secs(25)).await;
    assert_eq!(statuses(&answer), ["408"], "{answer}");
    assert!(answer.contains("request_timeout") && closed, "{answer}");
    assert_eq!(server.written().await, (0, 0));
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_harms_nobody() {
    let server = Server::on_sqlite().await;
    for bytes in [
        &b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
            Content-Length: 20\r\n\r\n{\"queue\""[..],
        &b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        drop(stream);
    }
    assert_eq!(server.written().await, (0, 0));
    server.submit("q").await;
}

#[tokio::test]
async fn http_2_is_spoken_without_tls() {
    let server = Server::on_sqlite().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let answer = client.post(server.url("/v1/tasks")).json(&json!({ "queue": "q" }));
    let answer = answer.send().await.unwrap();
    assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, 201));
}
