//! A server that is told to end: whoever asks is told so, and running requests are answered.

use super::server::{Place, Reply, Server, eventually, read};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

super::facts!(
    a_node_that_ends_says_so_and_answers_until_its_requests_are_done,
    a_node_that_waits_for_load_balancers_is_there_and_not_ready,
);

/// An answer by a connection of its own, as a load balancer's probe makes one. `None`: nobody
/// listens, or the connection was made in the very moment of the signal.
async fn asked(server: &Server, method: Method, path: &str) -> Option<Reply> {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let mut request = client.request(method.clone(), server.url(path));
    if method == Method::POST {
        request = request.json(&json!({ "queue": "q" }));
    }
    Some(read(request.send().await.ok()?).await)
}

async fn until_not_ready(server: &Server) {
    eventually("the node is not ready", || async {
        let ready = asked(server, Method::GET, "/readyz").await;
        let is_over = ready.as_ref().is_some_and(|reply| reply.status != 200);
        if let Some(reply) = ready.filter(|_| is_over) {
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert_eq!(reply.header("connection"), Some("close"));
            let problem = reply.refused(503, "shutting_down");
            assert!(problem["detail"].as_str().unwrap().contains("shutting down"), "{problem}");
        }
        is_over
    })
    .await;
}

async fn until_ended(server: &mut Server) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Some(status) = server.ended() {
            return assert!(status.success(), "{status}");
        }
        assert!(tokio::time::Instant::now() < until, "the server did not end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

const BODY: &str = r#"{"queue": "q"}"#;

/// Begins a submit and keeps its body back: the server has called its handler, which waits for it.
async fn begun(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        server.address,
        BODY.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; 25];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// The listener was closed with the signal: a load balancer found nobody instead of a 503, and the
/// requests that it sent meanwhile were lost.
async fn a_node_that_ends_says_so_and_answers_until_its_requests_are_done(mut server: Server) {
    let id = server.submit("q").await;
    let mut running = begun(&server).await;
    server.tell_to_end();
    until_not_ready(&server).await;
    for (method, path, status) in [
        (Method::GET, "/healthz".to_owned(), 200),
        (Method::POST, "/v1/tasks".to_owned(), 201),
        (Method::GET, format!("/v1/tasks/{id}"), 200),
        // What would wait here waits elsewhere.
        (Method::GET, "/v1/events".to_owned(), 503),
        (Method::GET, format!("/v1/tasks/{id}/wait"), 503),
        (Method::GET, format!("/v1/tasks/{id}/stream"), 503),
        (Method::POST, "/v1/chat/completions".to_owned(), 503),
    ] {
        let reply = asked(&server, method, &path).await;
        assert_eq!(reply.map(|reply| reply.status), Some(status), "{path}");
    }
    assert!(server.ended().is_none(), "a request is running");
    running.write_all(BODY.as_bytes()).await.unwrap();
    let mut answer = String::new();
    running.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    until_ended(&mut server).await;
}

/// Nothing runs here, so nothing but the delay keeps it: an hour, which a second signal cuts short.
async fn a_node_that_waits_for_load_balancers_is_there_and_not_ready(server: Server) {
    let hour = "3600000";
    let settings = [("WINDLASS_SHUTDOWN_MS", hour), ("WINDLASS_SHUTDOWN_DELAY_MS", hour)];
    let place = match &server.place {
        Place::Postgres(_) => Place::postgres(),
        _ => Place::sqlite(),
    };
    let mut server = Server::start(place, &settings).await;
    server.tell_to_end();
    until_not_ready(&server).await;
    let reply = asked(&server, Method::POST, "/v1/tasks").await.unwrap();
    assert_eq!(reply.status, 201, "{reply:?}");
    server.tell_to_end();
    until_ended(&mut server).await;
}

#[test]
fn a_delay_beyond_the_whole_shutdown_is_refused() {
    let arguments = ["serve", "--shutdown-delay-ms", "11", "--shutdown-ms", "10"];
    let folder = tempfile::tempdir().unwrap();
    let refused =
        crate::service::binary().args(arguments).current_dir(folder.path()).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(78), "{told}");
    assert!(told.contains("`shutdown_delay_ms` is 11 and must not be more than"), "{told}");
}
