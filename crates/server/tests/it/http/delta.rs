//! Deltas: posted by whoever holds the task, seen by whoever watches it.

use super::server::{Server, text};
use super::sse::Events;
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    deltas_are_watched_as_events_until_the_end,
    a_watcher_resumes_after_its_last_event,
    a_watcher_of_a_lost_attempt_is_reset,
    bad_deltas_are_refused_with_what_to_do,
);

/// An inference in a provider's hands: its id, the session, the lease.
pub async fn held(server: &Server) -> (String, String, String) {
    let id = asked(server).await;
    let session = provider(server).await;
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    (id, session, lease)
}

pub async fn asked(server: &Server) -> String {
    let body = json!({ "kind": "inference", "pool": "fast", "payload": { "prompt": "hi" } });
    text(&server.post("/v1/tasks", body).await.expect(201)["id"])
}

pub async fn provider(server: &Server) -> String {
    let body = json!({ "name": "p", "pools": ["fast"], "slots": 4 });
    text(&server.post("/v1/sessions", body).await.expect(201)["id"])
}

pub async fn post(server: &Server, id: &str, lease: &str, from: u64, deltas: Json) -> Json {
    let body = json!({ "lease_id": lease, "offset": from, "deltas": deltas });
    server.post(&format!("/v1/tasks/{id}/deltas"), body).await.expect(202)["next"].clone()
}

pub async fn watch(server: &Server, id: &str) -> Events {
    server.events(&format!("/v1/tasks/{id}/stream")).await
}

async fn deltas_are_watched_as_events_until_the_end(server: Server) {
    let (id, _, lease) = held(&server).await;
    let mut events = watch(&server, &id).await;
    assert_eq!(post(&server, &id, &lease, 0, json!([{ "text": "a" }, "b"])).await, 2);
    let first = events.expect("delta").await;
    assert_eq!(first.id.as_deref(), Some("1.0"));
    assert_eq!(first.data, json!({ "attempt": 1, "offset": 0, "delta": { "text": "a" } }));
    assert_eq!(events.expect("delta").await.data["delta"], "b");
    let body = json!({ "lease_id": lease, "result": "ab" });
    server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    let task = events.expect("done").await.data;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!("ab")));
    assert!(task["stream_started_at"].is_string());
    assert_eq!(events.next().await, None);
    // Whoever comes late gets the end at once.
    assert_eq!(watch(&server, &id).await.expect("done").await.data, task);
}

async fn a_watcher_resumes_after_its_last_event(server: Server) {
    let (id, _, lease) = held(&server).await;
    post(&server, &id, &lease, 0, json!(["a", "b", "c"])).await;
    let path = format!("/v1/tasks/{id}/stream");
    let again = server.request(Method::GET, &path).header("Last-Event-ID", "1.1");
    let mut events = Events::of(again).await;
    assert_eq!(events.expect("delta").await.data["delta"], "c");
    for wrong in ["1", "x.1", "0.0", "1.-1", "2.0"] {
        let request = server.request(Method::GET, &path).header("Last-Event-ID", wrong);
        let problem = server.send(request).await.refused(400, "invalid_cursor");
        let says = text(&problem["detail"]).contains("has come to attempt 1");
        assert_eq!(says, wrong == "2.0", "{problem}");
    }
}

async fn a_watcher_of_a_lost_attempt_is_reset(server: Server) {
    let (id, session, lease) = held(&server).await;
    let mut events = watch(&server, &id).await;
    post(&server, &id, &lease, 0, json!(["a"])).await;
    events.expect("delta").await;
    server.send(server.request(Method::DELETE, &format!("/v1/sessions/{session}"))).await;
    let reset = events.expect("reset").await;
    assert_eq!(reset.data, json!({ "attempt": 1 }));
    assert_eq!(reset.id.as_deref().unwrap_or_default(), "", "a resuming reader begins anew");
    let other = provider(&server).await;
    let (_, lease) = server.claim(&other).await;
    post(&server, &id, &lease, 0, json!(["x"])).await;
    assert_eq!(events.expect("delta").await.id.as_deref(), Some("2.0"));
}

async fn bad_deltas_are_refused_with_what_to_do(server: Server) {
    let (id, _, lease) = held(&server).await;
    let path = format!("/v1/tasks/{id}/deltas");
    post(&server, &id, &lease, 0, json!(["a"])).await;
    let gap = json!({ "lease_id": lease, "offset": 3, "deltas": ["d"] });
    let told = server.post(&path, gap).await.refused(409, "delta_gap");
    assert!(text(&told["detail"]).contains("from 1 on"), "{told}");
    let stranger = json!({ "lease_id": uuid::Uuid::new_v4(), "offset": 1, "deltas": ["b"] });
    server.post(&path, stranger).await.refused(409, "lease_lost");
    let many = json!({ "lease_id": lease, "offset": 1, "deltas": vec![1; 1_001] });
    server.post(&path, many).await.refused(422, "validation_failed");
    let both = json!({ "lease_id": lease, "offset": 1, "delta": "b", "deltas": ["b"] });
    server.post(&path, both).await.refused(422, "validation_failed");
    let one = json!({ "lease_id": lease, "offset": 1, "delta": null });
    assert_eq!(server.post(&path, one).await.expect(202)["next"], 2);
    let none = json!({ "lease_id": lease, "offset": -1, "deltas": [] });
    server.post(&path, none).await.refused(422, "validation_failed");
    for nothing in [json!({ "lease_id": lease }), json!({ "lease_id": lease, "deltas": [] })] {
        let told = server.post(&path, nothing).await.refused(422, "validation_failed");
        assert_eq!(told["errors"][0]["pointer"], "/deltas", "{told}");
    }
    let unknown = format!("/v1/tasks/{}/stream", uuid::Uuid::new_v4());
    server.get(&unknown).await.refused(404, "not_found");
}
