//! Two nodes on one PostgreSQL: whatever is asked of one is seen through the other.

use super::server::{Place, Server, eventually};
use serde_json::json;
use std::time::{Duration, Instant};

async fn two() -> (Server, Server) {
    let place = Place::postgres();
    let a = Server::start(place.clone(), &[]).await;
    (a, Server::start(place, &[]).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_on_one_node_ends_when_the_task_is_finished_through_another() {
    let (a, b) = two().await;
    let id = a.submit("q").await;
    let path = format!("/v1/tasks/{id}/wait?timeout_ms=20000");
    let work = async {
        eventually("somebody waits", || async {
            a.get("/v1/status").await.expect(200)["open_waits"] == 1
        })
        .await;
        let session = b.worker("q", 1).await;
        let (_, lease) = b.claim(&session).await;
        let body = json!({ "lease_id": lease, "result": "by b" });
        b.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
        Instant::now()
    };
    let waiting = async { (a.get(&path).await, Instant::now()) };
    let ((waited, woken), finished) = tokio::join!(waiting, work);
    assert_eq!(waited.header("windlass-wait"), Some("done"));
    assert_eq!(waited.expect(200)["result"], "by b");
    assert!(woken.saturating_duration_since(finished) < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_through_one_node_reaches_the_stream_on_another() {
    let (a, b) = two().await;
    let session = a.worker("q", 1).await;
    let mut stream = a.events(&format!("/v1/sessions/{session}/stream")).await;
    let id = b.submit("q").await;
    assert_eq!(stream.expect("assign").await.data["task"]["id"], id.as_str());
    b.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    assert_eq!(stream.expect("cancel").await.data["task_id"], id.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_on_one_node_wakes_for_a_task_submitted_through_another() {
    let (a, b) = two().await;
    let session = a.worker("q", 1).await;
    let submit = async {
        eventually("the worker waits", || async {
            a.get("/v1/status").await.expect(200)["idle_workers"] == 1
        })
        .await;
        b.submit("q").await
    };
    let ((taken, lease), id) = tokio::join!(a.claim(&session), submit);
    assert_eq!(taken, id);
    // What was claimed through one node is finished through the other.
    let body = json!({ "lease_id": lease, "result": 1 });
    let task = b.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    assert_eq!(task["status"], "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_opened_on_another_node_ends_the_one_before() {
    let (a, b) = two().await;
    let session = a.worker("q", 1).await;
    let mut older = a.events(&format!("/v1/sessions/{session}/stream")).await;
    let mut newer = b.events(&format!("/v1/sessions/{session}/stream")).await;
    assert_eq!(older.next().await, None, "the older stream ends");
    drop(older);
    let node = b.get("/v1/version").await.expect(200)["node"].clone();
    let id = a.submit("q").await;
    assert_eq!(newer.expect("assign").await.data["task"]["id"], id.as_str());
    let shown = b.get(&format!("/v1/sessions/{session}")).await.expect(200);
    assert_eq!(shown["node"], node, "the late close of the old stream changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_one_node_are_resumed_on_another() {
    let (a, b) = two().await;
    let mut events = a.events("/v1/events").await;
    b.submit("q").await;
    let last = events.expect("submit").await.id.unwrap();
    drop(events);
    let missed = a.submit("q").await;
    let mut events = b.events(&format!("/v1/events?after={last}")).await;
    assert_eq!(events.expect("submit").await.data["task_id"], missed.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_know_each_other_and_a_stopped_one_is_gone() {
    let (a, mut b) = two().await;
    let count =
        || async { a.get("/v1/nodes").await.expect(200)["items"].as_array().unwrap().len() };
    assert_eq!(count().await, 2);
    let stopped = tokio::task::spawn_blocking(move || b.stop()).await.unwrap();
    assert!(stopped.success());
    eventually("the stopped node is gone", || async { count().await == 1 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_listed_in_pages_oldest_first() {
    let (a, b) = two().await;
    let mut seen = Vec::new();
    let mut path = "/v1/nodes?limit=1".to_owned();
    loop {
        let page = b.get(&path).await.expect(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|node| node["id"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/nodes?limit=1&cursor={next}");
    }
    let mut nodes = Vec::new();
    for server in [&a, &b] {
        nodes.push(server.get("/v1/version").await.expect(200)["node"].clone());
    }
    assert_eq!(seen, nodes);
    b.get("/v1/nodes?cursor=x").await.refused(400, "invalid_cursor");
    b.get("/v1/nodes?limit=0").await.refused(422, "validation_failed");
}
