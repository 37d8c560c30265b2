//! Everything else that can be wrong with a request: addresses, methods, parameters, leases,
//! sessions; one table, each row with its status, code and pointer.

use super::server::{Server, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    every_bad_address_method_and_parameter_is_refused_with_its_place,
    every_bad_body_of_a_worker_is_refused_with_its_place_and_changes_nothing,
    calls_out_of_order_are_refused_and_change_nothing,
    an_unknown_queue_is_no_error,
    head_and_options_are_answered,
);

const ID: &str = "11111111-2222-4333-8444-555555555555";
const INVALID: &str = "validation_failed";

/// Method, path, status, code, pointer of the first finding, its code.
const CALLS: &[(&str, &str, u16, &str, &str, &str)] = &[
    ("GET", "/", 404, "not_found", "", ""),
    ("GET", "/v1", 404, "not_found", "", ""),
    ("GET", "/v1/task", 404, "not_found", "", ""),
    ("GET", "/v1/tasks/", 404, "not_found", "", ""),
    ("GET", "/v1//tasks", 404, "not_found", "", ""),
    ("GET", "/v2/tasks", 404, "not_found", "", ""),
    ("GET", "/v1/tasks/../../etc/passwd", 404, "not_found", "", ""),
    ("GET", "/v1/tasks/%2e%2e%2fetc", 400, "invalid_id", "", ""),
    ("GET", "/v1/tasks/7", 400, "invalid_id", "", ""),
    ("GET", "/v1/tasks/%00", 400, "invalid_id", "", ""),
    ("GET", "/v1/tasks/%ff", 400, "invalid_id", "", ""),
    ("GET", "/v1/tasks/batch", 405, "method_not_allowed", "", ""),
    ("GET", "/v1/sessions/me", 400, "invalid_id", "", ""),
    ("GET", "/v1/sessions/'%20OR%201=1--/stream", 400, "invalid_id", "", ""),
    ("PUT", "/v1/tasks", 405, "method_not_allowed", "", ""),
    ("DELETE", "/v1/tasks", 405, "method_not_allowed", "", ""),
    ("PATCH", "/v1/sessions", 405, "method_not_allowed", "", ""),
    ("POST", "/v1/events", 405, "method_not_allowed", "", ""),
    ("POST", "/healthz", 405, "method_not_allowed", "", ""),
    ("BREW", "/v1/tasks", 405, "method_not_allowed", "", ""),
    ("GET", "/v1/tasks?limit=0", 422, INVALID, "/limit", "out_of_range"),
    ("GET", "/v1/tasks?limit=1001", 422, INVALID, "/limit", "out_of_range"),
    ("GET", "/v1/tasks?limit=-1", 422, INVALID, "/limit", "out_of_range"),
    ("GET", "/v1/tasks?limit=ten", 422, INVALID, "/limit", "wrong_type"),
    ("GET", "/v1/tasks?limit=99999999999999999999", 422, INVALID, "/limit", "wrong_type"),
    ("GET", "/v1/tasks?limit=", 422, INVALID, "/limit", "wrong_type"),
    ("GET", "/v1/tasks?limit=1&limit=2", 422, INVALID, "/limit", "conflict"),
    ("GET", "/v1/tasks?order=up", 422, INVALID, "/order", "unknown_value"),
    ("GET", "/v1/tasks?status=done", 422, INVALID, "/status", "unknown_value"),
    ("GET", "/v1/tasks?status=pending,", 422, INVALID, "/status", "unknown_value"),
    ("GET", "/v1/tasks?kind=chore", 422, INVALID, "/kind", "unknown_value"),
    ("GET", "/v1/tasks?tag=blue", 422, INVALID, "/tag", "wrong_type"),
    ("GET", "/v1/tasks?since=yesterday", 422, INVALID, "/since", "wrong_type"),
    ("GET", "/v1/tasks?parent_id=7", 422, INVALID, "/parent_id", "wrong_type"),
    ("GET", "/v1/tasks?in_flight=perhaps", 422, INVALID, "/in_flight", "wrong_type"),
    ("GET", "/v1/tasks?queue=%ff", 422, INVALID, "/queue", "bad_character"),
    ("GET", "/v1/tasks?limit=1&tag=team:%e2%82", 422, INVALID, "/tag", "bad_character"),
    ("GET", "/v1/tasks?colour=red", 422, INVALID, "/colour", "unknown_field"),
    ("GET", "/v1/version?colour=red", 422, INVALID, "/colour", "unknown_field"),
    ("POST", "/v1/sessions?slots=4", 422, INVALID, "/slots", "unknown_field"),
    ("POST", "/v1/tasks?priority=4", 422, INVALID, "/priority", "unknown_field"),
    ("PUT", "/v1/limits/venture/v?max_active=4", 422, INVALID, "/max_active", "unknown_field"),
    ("DELETE", "/v1/limits/venture/v?a%2Fb=4", 422, INVALID, "/a~1b", "unknown_field"),
    ("GET", "/v1/tasks?queue=%00", 422, INVALID, "/queue", "bad_character"),
    ("GET", "/v1/tasks?cursor=%00", 422, INVALID, "/cursor", "bad_character"),
    ("GET", "/v1/tasks?cursor=x", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/tasks?cursor=", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/tasks?cursor=zz.11111111222243338444555555555555", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/sessions?cursor=x", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/sessions?all=yes", 422, INVALID, "/all", "wrong_type"),
    ("GET", "/v1/sessions?queue=q", 422, INVALID, "/queue", "unknown_field"),
    ("GET", "/v1/tasks/{id}/history?cursor=-1", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/tasks/{id}/history?cursor=x", 400, "invalid_cursor", "", ""),
    ("GET", "/v1/tasks/{id}/failures?limit=0", 422, INVALID, "/limit", "out_of_range"),
    ("GET", "/v1/tasks/{id}/wait?timeout_ms=-1", 422, INVALID, "/timeout_ms", "out_of_range"),
    ("GET", "/v1/tasks/{id}/wait?timeout_ms=300001", 422, INVALID, "/timeout_ms", "out_of_range"),
    ("GET", "/v1/tasks/{id}/wait?timeout_ms=1s", 422, INVALID, "/timeout_ms", "wrong_type"),
    ("GET", "/v1/tasks/{id}/wait?timeout=1", 422, INVALID, "/timeout", "unknown_field"),
    ("POST", "/v1/tasks?dry_run=maybe", 422, INVALID, "/dry_run", "wrong_type"),
];

async fn every_bad_address_method_and_parameter_is_refused_with_its_place(server: Server) {
    let id = server.submit("q").await;
    let before = server.task(&id).await;
    for (method, path, status, code, pointer, finding) in CALLS {
        let (method, path) = (Method::from_bytes(method.as_bytes()), path.replace("{id}", &id));
        let reply = server.send(server.request(method.unwrap(), &path)).await;
        if *status == 405 {
            assert!(reply.header("allow").is_some_and(|list| !list.is_empty()), "{path}");
        }
        let problem = reply.refused(*status, code);
        if !pointer.is_empty() {
            let first = &problem["errors"][0];
            let found = (first["pointer"].as_str(), first["code"].as_str());
            assert_eq!(found, (Some(*pointer), Some(*finding)), "{path}: {problem}");
        }
    }
    assert_eq!(server.written().await, (1, 0));
    assert_eq!(server.task(&id).await, before);
}

/// Path, body, status, code, pointer of the first finding, its code.
fn worker_calls(held: &str, lease: &str) -> Vec<(&'static str, Json, u16, &'static str, String)> {
    let lease = lease.to_owned();
    let row = |path, body, pointer: &str| (path, body, 422, INVALID, pointer.to_owned());
    let big = "x".repeat(1024 * 1024);
    let error = |code: &str| json!({ "code": code, "message": "m" });
    let item = |extra: Json| {
        let mut item = json!({ "task_id": held, "lease_id": lease });
        item.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({ "items": [item] })
    };
    vec![
        row("/v1/sessions", json!({}), "/name"),
        row("/v1/sessions", json!({ "name": "", "queues": ["q"] }), "/name"),
        row("/v1/sessions", json!({ "name": "x".repeat(101), "queues": ["q"] }), "/name"),
        row("/v1/sessions", json!({ "name": "w" }), "/queues"),
        row("/v1/sessions", json!({ "name": "w", "queues": "q" }), "/queues"),
        row("/v1/sessions", json!({ "name": "w", "queues": [""] }), "/queues/0"),
        row("/v1/sessions", json!({ "name": "w", "queues": vec!["q"; 101] }), "/queues"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "slots": 0 }), "/slots"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "slots": 1_001 }), "/slots"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "lease_ms": 1 }), "/lease_ms"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "kinds": ["x"] }), "/kinds/0"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "id": "x" }), "/id"),
        row("/v1/sessions", json!({ "name": "w", "queues": ["q"], "x": 1 }), "/x"),
        row("/v1/sessions/{s}/claim", json!({ "max": 0 }), "/max"),
        row("/v1/sessions/{s}/claim", json!({ "max": 1_001 }), "/max"),
        row("/v1/sessions/{s}/claim", json!({ "max": "1" }), "/max"),
        row("/v1/sessions/{s}/claim", json!({ "wait_ms": -1 }), "/wait_ms"),
        row("/v1/sessions/{s}/claim", json!({ "wait_ms": 60_001 }), "/wait_ms"),
        row("/v1/sessions/{s}/claim", json!({ "claim_id": "x" }), "/claim_id"),
        row("/v1/sessions/{s}/claim", json!({ "queue": "q" }), "/queue"),
        row("/v1/sessions/{s}/heartbeat", json!({ "leases": {} }), "/leases"),
        row("/v1/sessions/{s}/heartbeat", json!({ "leases": [{}] }), "/leases/0/task_id"),
        row(
            "/v1/sessions/{s}/heartbeat",
            json!({ "leases": [{ "task_id": held, "lease_id": lease, "checkpoint": big }] }),
            "/leases/0/checkpoint",
        ),
        row("/v1/sessions/{s}/finish", json!({}), "/items"),
        row("/v1/sessions/{s}/finish", item(json!({ "outcome": "done" })), "/items/0/outcome"),
        row("/v1/sessions/{s}/finish", item(json!({})), "/items/0/outcome"),
        row("/v1/tasks/{t}/start", json!({}), "/lease_id"),
        row("/v1/tasks/{t}/start", json!({ "lease_id": "x" }), "/lease_id"),
        row("/v1/tasks/{t}/start", json!({ "lease_id": null }), "/lease_id"),
        row("/v1/tasks/{t}/heartbeat", json!({ "lease_id": lease, "progres": 1 }), "/progres"),
        row("/v1/tasks/{t}/heartbeat", json!({ "lease_id": lease, "progress": big }), "/progress"),
        row("/v1/tasks/{t}/checkpoint", json!({ "lease_id": lease }), "/checkpoint"),
        row("/v1/tasks/{t}/complete", json!({ "lease_id": lease, "result": big }), "/result"),
        row("/v1/tasks/{t}/complete", json!({ "result": 1 }), "/lease_id"),
        row("/v1/tasks/{t}/fail", json!({ "lease_id": lease }), "/error"),
        row("/v1/tasks/{t}/fail", json!({ "lease_id": lease, "error": "no" }), "/error"),
        row("/v1/tasks/{t}/fail", json!({ "lease_id": lease, "error": {} }), "/error/code"),
        row("/v1/tasks/{t}/fail", json!({ "lease_id": lease, "error": error("") }), "/error/code"),
        row(
            "/v1/tasks/{t}/fail",
            json!({ "lease_id": lease, "error": error("a b") }),
            "/error/code",
        ),
        row(
            "/v1/tasks/{t}/fail",
            json!({ "lease_id": lease, "error": error("X"), "retry_after_ms": -1 }),
            "/retry_after_ms",
        ),
        row("/v1/tasks/{t}/release", json!({ "lease": lease }), "/lease"),
        row("/v1/tasks/{t}/cancel", json!({ "reason": "x".repeat(1_001) }), "/reason"),
        row("/v1/tasks/{t}/cancel", json!({ "reason": 7 }), "/reason"),
        row("/v1/tasks/{t}/cancel", json!({ "why": "so" }), "/why"),
        row("/v1/tasks/{t}/cancel", json!([]), ""),
        row("/v1/sessions/{s}/claim", json!([1]), ""),
        row("/v1/tasks/{t}/fail", json!({ "lease_id": lease, "error": ["X", "m"] }), "/error"),
        row("/v1/sessions/{s}/heartbeat", json!({ "leases": [[held, lease]] }), "/leases/0"),
        row("/v1/tasks/batch", json!({}), "/tasks"),
        row("/v1/tasks/batch", json!({ "tasks": {} }), "/tasks"),
        row("/v1/tasks/batch", json!({ "tasks": [], "atomic": "no" }), "/atomic"),
        row("/v1/tasks/batch", json!({ "task": [] }), "/task"),
    ]
}

async fn every_bad_body_of_a_worker_is_refused_with_its_place_and_changes_nothing(server: Server) {
    server.submit("q").await;
    let session = server.worker("q", 1).await;
    let (task, lease) = server.claim(&session).await;
    let before = (server.task(&task).await, server.written().await);
    for (path, body, status, code, pointer) in worker_calls(&task, &lease) {
        let full = path.replace("{s}", &session).replace("{t}", &task);
        let problem = server.post(&full, body.clone()).await.refused(status, code);
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{path} {shown}: {problem}");
    }
    let mut after = server.task(&task).await;
    after["updated_at"] = before.0["updated_at"].clone();
    assert_eq!((after, server.written().await), before);
}

async fn calls_out_of_order_are_refused_and_change_nothing(server: Server) {
    let id = server.submit("q").await;
    // Nobody holds it yet.
    let lease = json!({ "lease_id": ID });
    for action in ["start", "heartbeat", "complete", "release"] {
        let reply = server.post(&format!("/v1/tasks/{id}/{action}"), lease.clone()).await;
        reply.refused(409, "lease_lost");
    }
    assert_eq!(server.history(&id).await, ["submit"]);
    // A lease of another task.
    let session = server.worker("q", 2).await;
    let (_, lease) = server.claim(&session).await;
    let other = server.submit("q").await;
    server.claim(&session).await;
    let body = json!({ "lease_id": lease, "result": 1 });
    let reply = server.post(&format!("/v1/tasks/{other}/complete"), body).await;
    reply.refused(409, "lease_lost");
    // The session's id is no lease, and the lease is no session.
    let body = json!({ "lease_id": session });
    server.post(&format!("/v1/tasks/{id}/complete"), body).await.refused(409, "lease_lost");
    let reply = server.post(&format!("/v1/sessions/{lease}/claim"), json!({})).await;
    reply.refused(404, "session_not_found");
    // One item twice in one call: it is finished once, and both are told so.
    let item = json!({ "task_id": id, "lease_id": lease, "outcome": "complete", "result": 1 });
    let items = json!({ "items": [item, item] });
    let reply = server.post(&format!("/v1/sessions/{session}/finish"), items).await;
    let results = reply.expect(200)["results"].clone();
    for n in 0..2 {
        assert_eq!(results[n]["status"], "completed", "{results}");
    }
    assert_eq!(server.history(&id).await, ["submit", "claim", "complete"]);
    // A beat after the end; a claim by a session that was never there.
    let path = format!("/v1/sessions/{session}/heartbeat");
    let beat = json!({ "leases": [{ "task_id": id, "lease_id": lease }] });
    let answer = server.post(&path, beat).await.expect(200);
    assert_eq!(answer["lost"], json!([{ "task_id": id, "lease_id": lease }]));
}

async fn an_unknown_queue_is_no_error(server: Server) {
    let id = server.submit("a queue that nobody works on").await;
    assert_eq!(server.task(&id).await["status"], "pending");
    let session = server.worker("another that nobody submits to", 1).await;
    let reply = server.post(&format!("/v1/sessions/{session}/claim"), json!({})).await;
    assert_eq!(reply.expect(200)["assignments"], json!([]));
    for queue in ["never", "%E2%82%AC", "%EF%BF%BD", "100%", "%zz"] {
        let list = server.get(&format!("/v1/tasks?queue={queue}")).await.expect(200);
        assert_eq!(list["items"], json!([]), "{queue}");
    }
}

async fn head_and_options_are_answered(server: Server) {
    let id = server.submit("q").await;
    for path in ["/v1/tasks", "/healthz", &format!("/v1/tasks/{id}"), "/openapi.json"] {
        let head = server.send(server.request(Method::HEAD, path)).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""), "{path}");
        let options = server.send(server.request(Method::OPTIONS, path)).await;
        assert_eq!(options.status, 204, "{path}");
        let allow = options.header("allow").unwrap_or_default().to_owned();
        assert!(allow.contains("GET"), "{path}: {allow}");
        assert!(options.header("access-control-allow-origin").is_none());
    }
    let head = server.send(server.request(Method::HEAD, "/v1/tasks/x")).await;
    assert_eq!(head.status, 400);
    // A body that a GET has no use for is read and ignored.
    let odd = server.request(Method::GET, &format!("/v1/tasks/{id}")).body("{\"x\": ");
    assert_eq!(text(&server.send(odd).await.expect(200)["id"]), id);
}
