//! Backpressure: an endpoint, a header on every answer to a submit, gauges, and words.

use super::server::{Server, eventually};
use super::step_command::ok;
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    a_server_tells_how_close_it_is_to_its_limits,
    every_answer_to_a_submit_carries_the_level,
    metrics_and_the_status_tell_it_too,
    a_pressed_server_says_so_also_when_it_refuses,
    the_status_tells_that_everything_is_paused,
);

async fn pressure(server: &Server) -> Json {
    server.get("/v1/backpressure").await.expect(200)
}

async fn a_server_tells_how_close_it_is_to_its_limits(server: Server) {
    let calm = pressure(&server).await;
    assert_eq!((&calm["level"], &calm["queue_depth"]), (&json!("normal"), &json!(0)));
    assert_eq!((&calm["estimated_wait_ms"], &calm["recommendations"]), (&json!(0), &json!([])));
    server.submit("q").await;
    eventually("a task waits", || async { pressure(&server).await["queue_depth"] == 1 }).await;
    let told = pressure(&server).await;
    assert_eq!(told["estimated_wait_ms"], json!(null), "nothing moves");
    assert_eq!(told["recommendations"], json!(["start a worker: tasks wait and none runs"]));
    let session = server.worker("q", 1).await;
    server.claim(&session).await;
    eventually("it is active", || async { pressure(&server).await["active"] == 1 }).await;
}

const REPLAY: &str = "/v1/tasks/00000000-0000-7000-8000-000000000001/replay";
const RESOLVE: &str = "/v1/poison/00000000-0000-7000-8000-000000000009/resolve";

async fn every_answer_to_a_submit_carries_the_level(server: Server) {
    let task = || json!({ "queue": "q", "id": "00000000-0000-7000-8000-000000000001" });
    let delegation = |callee: &str| {
        let id = "00000000-0000-7000-8000-000000000002";
        json!({ "id": id, "caller": "a", "callee": callee, "payload": {} })
    };
    for (path, body, status) in [
        ("/v1/tasks", task(), 201),
        ("/v1/tasks", task(), 200),
        ("/v1/tasks?dry_run=true", task(), 200),
        ("/v1/tasks", json!({ "queue": "" }), 422),
        ("/v1/tasks", json!("no object"), 422),
        ("/v1/tasks/batch", json!({ "tasks": [task()] }), 201),
        ("/v1/tasks/batch", json!({ "tasks": [task()], "atomic": false }), 200),
        ("/v1/tasks/batch", json!({ "tasks": [{ "queue": "" }] }), 422),
        ("/v1/delegations", delegation("b"), 201),
        ("/v1/delegations", delegation("b"), 200),
        ("/v1/delegations", json!({ "caller": "a" }), 422),
        ("/v1/delegations", json!("no object"), 422),
        (REPLAY, json!({ "from": "beginning" }), 409),
        (REPLAY, json!({ "from": "nowhere" }), 422),
        (RESOLVE, json!({ "replay": { "from": "beginning" } }), 404),
        (RESOLVE, json!("no object"), 422),
        ("/v1/chat/completions", json!({ "model": "m", "messages": [{}] }), 404),
        ("/v1/chat/completions", json!({}), 400),
        ("/v1/embeddings", json!({ "model": "m", "input": "x" }), 404),
        ("/v1/embeddings", json!({}), 400),
        ("/v1/responses", json!({ "model": "m", "input": "x" }), 404),
        ("/v1/responses", json!({}), 400),
    ] {
        let reply = server.post(path, body).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.header("windlass-backpressure"), Some("normal"), "{path} {status}");
    }
    let broken = server.request(Method::POST, "/v1/tasks").header("content-type", "text/plain");
    let reply = server.send(broken.body("{}")).await;
    assert_eq!((reply.status, reply.header("windlass-backpressure")), (415, Some("normal")));
    // What a pool answers carries it, too.
    let provider = json!({ "name": "p", "pools": ["m"], "kinds": ["inference"] });
    server.post("/v1/sessions", provider).await.expect(201);
    let body = json!({ "model": "m", "input": "x", "background": true });
    let reply = server.post("/v1/responses", body).await;
    assert_eq!((reply.status, reply.header("windlass-backpressure")), (200, Some("normal")));
    // So does what a replay resolves.
    let poisoned = super::poison::poisoned(&server, "bad").await;
    let path = format!("/v1/poison/{poisoned}/resolve");
    let reply = server.post(&path, json!({ "replay": { "from": "beginning" } })).await;
    assert_eq!((reply.status, reply.header("windlass-backpressure")), (200, Some("normal")));
    // Strangers are told nothing.
    for (name, value, status) in
        [("origin", "https://elsewhere.example", 403), ("host", "elsewhere.example", 421)]
    {
        let asked = server.request(Method::POST, "/v1/tasks").header(name, value);
        let reply = server.send(asked.json(&json!({ "queue": "q" }))).await;
        assert_eq!((reply.status, reply.header("windlass-backpressure")), (status, None));
    }
    let other = server.get("/v1/tasks").await;
    assert_eq!(other.header("windlass-backpressure"), None, "a list submits nothing");
}

async fn metrics_and_the_status_tell_it_too(server: Server) {
    server.submit("q").await;
    eventually("a task waits", || async { pressure(&server).await["queue_depth"] == 1 }).await;
    let metrics = server.get("/metrics").await.text;
    for line in [
        "windlass_backpressure_level 0",
        "windlass_backpressure_utilization_ratio 0.0",
        "windlass_backpressure_queue_depth 1",
        "windlass_backpressure_estimated_wait_seconds NaN",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let shown = ok(&server, &["status"]);
    let line = shown.lines().find(|line| line.starts_with("backpressure")).expect("a line");
    assert!(line.contains("normal: 0") && line.contains("nothing moves"), "{line}");
    assert!(shown.contains("start a worker"), "{shown}");
    let found: Json = serde_json::from_str(&ok(&server, &["status", "--json"])).unwrap();
    assert_eq!(found["backpressure"]["level"], "normal");
}

async fn a_pressed_server_says_so_also_when_it_refuses(server: Server) {
    let rule = server.request(Method::PUT, "/v1/limits/global").json(&json!({ "max_pending": 1 }));
    server.send(rule).await;
    server.submit("q").await;
    // A refusal knows it before anybody has measured.
    let refused = server.post("/v1/tasks", json!({ "queue": "q" })).await;
    assert_eq!(refused.header("windlass-backpressure"), Some("critical"));
    eventually("it is pressed", || async { pressure(&server).await["level"] == "critical" }).await;
    let refused = server.post("/v1/tasks", json!({ "queue": "q" })).await;
    assert_eq!(refused.header("windlass-backpressure"), Some("critical"));
    refused.refused(429, "queue_full");
    let delegated = json!({ "caller": "a", "callee": "b", "payload": {} });
    let refused = server.post("/v1/delegations", delegated).await;
    assert_eq!(refused.header("windlass-backpressure"), Some("critical"));
    refused.refused(429, "queue_full");
    let many = json!({ "tasks": [{ "queue": "q" }] });
    let refused = server.post("/v1/tasks/batch", many).await;
    assert_eq!(refused.header("windlass-backpressure"), Some("critical"));
    refused.refused(429, "queue_full");
}

async fn the_status_tells_that_everything_is_paused(server: Server) {
    ok(&server, &["pause", "--all", "--reason", "a move"]);
    eventually("it is told", || async { pressure(&server).await["recommendations"] != json!([]) })
        .await;
    let shown = ok(&server, &["status"]);
    let words = "everything is paused by `api` since";
    assert!(shown.contains("nothing moves") && shown.contains(words), "{shown}");
    assert!(shown.contains("(a move); `windlass resume --all`"), "{shown}");
    assert_eq!(pressure(&server).await["estimated_wait_ms"], json!(null));
}
