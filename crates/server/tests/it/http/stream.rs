//! Assignment streams: assign, cancel, lost; reconnecting; what a lost stream means.

use super::server::{Server, eventually, text};
use super::sse::Events;
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

super::facts!(
    a_stream_assigns_what_waits_and_what_comes_up_to_the_slots,
    a_stream_tells_of_a_cancel,
    a_stream_tells_of_a_lost_lease,
    a_reconnected_stream_gets_again_what_the_session_holds,
    a_newer_stream_ends_the_older_whose_late_close_changes_nothing,
    asking_for_the_head_of_a_stream_opens_none,
    losing_a_stream_keeps_jobs_and_gives_inference_back,
    a_stream_keeps_its_session_alive,
    a_stopping_server_ends_its_streams_and_lets_requests_finish,
);

async fn open(server: &Server, session: &str) -> Events {
    server.events(&format!("/v1/sessions/{session}/stream")).await
}

async fn a_stream_assigns_what_waits_and_what_comes_up_to_the_slots(server: Server) {
    let first = server.submit("q").await;
    let session = server.worker("q", 2).await;
    let mut stream = open(&server, &session).await;
    let event = stream.expect("assign").await;
    assert_eq!(event.data["task"]["id"], first.as_str());
    assert_eq!(event.data["task"]["status"], "claimed");
    assert_eq!(event.data["attempt"], 1);
    let second = server.submit("q").await;
    assert_eq!(stream.expect("assign").await.data["task"]["id"], second.as_str());
    let third = server.submit("q").await;
    assert!(stream.is_silent(Duration::from_millis(300)).await, "both slots are taken");
    let body = json!({ "lease_id": event.data["lease_id"], "result": 1 });
    server.post(&format!("/v1/tasks/{first}/complete"), body).await.expect(200);
    assert_eq!(stream.expect("assign").await.data["task"]["id"], third.as_str());
}

/// It was opened, ended the stream that the worker had, and was lost at once.
async fn asking_for_the_head_of_a_stream_opens_none(server: Server) {
    let session = server.worker("q", 2).await;
    let mut stream = open(&server, &session).await;
    let path = format!("/v1/sessions/{session}");
    let epoch = server.get(&path).await.expect(200)["stream_epoch"].clone();
    for query in ["", "?assign=false"] {
        let head = server.request(Method::HEAD, &format!("{path}/stream{query}"));
        let head = server.send(head).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
    }
    assert_eq!(server.get(&path).await.expect(200)["stream_epoch"], epoch);
    let id = server.submit("q").await;
    assert_eq!(stream.expect("assign").await.data["task"]["id"], id.as_str());
    let nobody = "/v1/sessions/11111111-2222-4333-8444-555555555555/stream";
    assert_eq!(server.send(server.request(Method::HEAD, nobody)).await.status, 404);
}

async fn a_stream_tells_of_a_cancel(server: Server) {
    let session = server.worker("q", 1).await;
    let mut stream = open(&server, &session).await;
    let id = server.submit("q").await;
    let lease = stream.expect("assign").await.data["lease_id"].clone();
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    let told = stream.expect("cancel").await.data;
    assert_eq!(told, json!({ "task_id": id, "lease_id": lease }));
    let next = server.submit("q").await;
    assert_eq!(stream.expect("assign").await.data["task"]["id"], next.as_str());
}

async fn a_stream_tells_of_a_lost_lease(server: Server) {
    let body = json!({ "name": "w", "queues": ["q"], "lease_ms": 1_000 });
    let session = text(&server.post("/v1/sessions", body).await.expect(201)["id"]);
    let mut stream = open(&server, &session).await;
    let id = server.submit("q").await;
    let lease = stream.expect("assign").await.data["lease_id"].clone();
    let told = stream.expect("lost").await.data;
    assert_eq!(told, json!({ "task_id": id, "lease_id": lease }));
}

async fn a_reconnected_stream_gets_again_what_the_session_holds(server: Server) {
    let session = server.worker("q", 1).await;
    let id = server.submit("q").await;
    let mut stream = open(&server, &session).await;
    let first = stream.expect("assign").await;
    drop(stream);
    let mut stream = open(&server, &session).await;
    let again = stream.expect("assign").await;
    assert_eq!(again.data["task"]["id"], id.as_str());
    assert_eq!(again.data["lease_id"], first.data["lease_id"], "it is the same assignment");
}

async fn a_newer_stream_ends_the_older_whose_late_close_changes_nothing(server: Server) {
    let session = server.worker("q", 1).await;
    let mut older = open(&server, &session).await;
    let mut newer = open(&server, &session).await;
    assert_eq!(older.next().await, None, "the older stream ends");
    drop(older);
    let id = server.submit("q").await;
    assert_eq!(newer.expect("assign").await.data["task"]["id"], id.as_str());
    let shown = server.get(&format!("/v1/sessions/{session}")).await.expect(200);
    assert!(shown["node"].is_string(), "the newer stream still binds the session: {shown}");
    drop(newer);
    eventually("the last stream's close unbinds", || async {
        server.get(&format!("/v1/sessions/{session}")).await.expect(200)["node"].is_null()
    })
    .await;
}

async fn losing_a_stream_keeps_jobs_and_gives_inference_back(server: Server) {
    let body = json!({
        "name": "w", "queues": ["q"], "pools": ["p"], "kinds": ["job", "inference"], "slots": 2,
    });
    let session = text(&server.post("/v1/sessions", body).await.expect(201)["id"]);
    let job = server.submit("q").await;
    let call = text(&server.post("/v1/tasks", json!({ "pool": "p" })).await.expect(201)["id"]);
    let mut stream = open(&server, &session).await;
    for _ in 0..2 {
        stream.expect("assign").await;
    }
    drop(stream);
    eventually("the inference is pending again", || async {
        server.task(&call).await["status"] == "pending"
    })
    .await;
    assert_eq!(server.task(&job).await["status"], "claimed", "the lease decides over a job");
}

async fn a_stream_keeps_its_session_alive(server: Server) {
    let session = server.worker("q", 1).await;
    let shown = || async { server.get(&format!("/v1/sessions/{session}")).await.expect(200) };
    let _stream = open(&server, &session).await;
    let at_first = text(&shown().await["expires_at"]);
    eventually("it lives longer", || async { text(&shown().await["expires_at"]) > at_first }).await;
    assert_eq!(shown().await["closed_at"], json!(null));
}

async fn a_stopping_server_ends_its_streams_and_lets_requests_finish(mut server: Server) {
    let session = server.worker("q", 1).await;
    let mut stream = open(&server, &session).await;
    let mut events = server.events("/v1/events").await;
    let id = server.submit("none").await;
    events.expect("submit").await;
    let wait = server.request(reqwest::Method::GET, &format!("/v1/tasks/{id}/wait"));
    let waiting =
        tokio::spawn(async move { super::server::read(wait.send().await.unwrap()).await });
    eventually("somebody waits", || async {
        server.get("/v1/status").await.expect(200)["open_waits"] == 1
    })
    .await;
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    assert_eq!(stream.next().await, None);
    assert_eq!(events.next().await, None);
    let waited = waiting.await.unwrap();
    assert_eq!(waited.header("windlass-wait"), Some("timeout"));
    assert!(stopping.await.unwrap().success());
}
