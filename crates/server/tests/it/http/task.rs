//! Tasks over HTTP: submit, show, history, failures, wait, cancel.

use super::server::{Server, column, eventually, text};
use reqwest::Method;
use serde_json::json;
use std::time::{Duration, Instant};

super::facts!(
    times_of_the_year_9999_are_kept_and_later_ones_refused,
    a_submitted_task_is_answered_201_with_every_field,
    a_repeated_submit_is_answered_200_and_says_so,
    the_same_key_with_another_body_is_refused_422,
    the_header_idempotency_key_is_the_field_and_must_agree_with_it,
    the_queue_is_that_of_the_agent_the_callee_or_the_pool,
    a_dry_run_says_whether_the_task_would_be_taken_and_writes_nothing,
    times_are_utc_with_milliseconds_and_delays_count_from_now,
    an_unknown_task_is_404_wherever_it_is_asked_for,
    the_history_tells_every_transition_oldest_first_in_pages,
    the_failures_tell_every_error_oldest_first,
    a_wait_ends_when_the_task_does_and_says_done,
    a_wait_that_runs_out_says_timeout_and_gives_the_task,
    a_cancelled_task_ends_and_what_has_ended_otherwise_cannot_be_cancelled,
    many_waits_for_one_task_all_end,
    what_a_caller_sends_comes_back_verbatim,
);

async fn a_submitted_task_is_answered_201_with_every_field(server: Server) {
    let submit = json!({
        "queue": "mail", "payload": {"to": "you", "n": 1.5}, "name": "greet", "agent": "a",
        "venture": "v", "portfolio": "p", "stage": "s", "owner": "o", "priority": 7,
        "tags": {"team": "blue"}, "max_retries": 2, "correlation_id": "c-1",
        "idempotency_key": "k-1", "backoff": {"base_ms": 10, "jitter": false},
    });
    let reply = server.post("/v1/tasks", submit.clone()).await;
    assert_eq!(reply.header("windlass-duplicate"), None);
    let task = reply.expect(201);
    for (field, value) in submit.as_object().unwrap().iter().filter(|(name, _)| *name != "backoff")
    {
        assert_eq!(&task[field], value, "{field}");
    }
    assert_eq!((&task["status"], &task["kind"]), (&json!("pending"), &json!("job")));
    for field in ["attempt", "retry_count", "release_count"] {
        assert_eq!(task[field], 0, "{field}");
    }
    let all = "id kind name queue status payload result error checkpoint progress priority tags \
        agent venture portfolio stage owner caller callee pool llm model tier parent_id replay_of \
        correlation_id idempotency_key attempt retry_count max_retries release_count run_at \
        deadline_at claimed_by claimed_at lease_expires_at last_heartbeat_at stream_started_at \
        created_at started_at updated_at finished_at";
    for field in all.split_whitespace() {
        assert!(task.get(field).is_some(), "{field} is missing");
    }
    assert!(task.get("lease_id").is_none());
    assert_eq!(server.task(&text(&task["id"])).await, task);
}

async fn a_repeated_submit_is_answered_200_and_says_so(server: Server) {
    let id = "11111111-2222-4333-8444-555555555555";
    for submit in [
        json!({ "queue": "q", "payload": 1, "id": id }),
        json!({ "queue": "q", "payload": {"b": 1, "a": 2}, "idempotency_key": "k" }),
    ] {
        let first = server.post("/v1/tasks", submit.clone()).await.expect(201);
        let again = server.post("/v1/tasks", submit).await;
        assert_eq!(again.header("windlass-duplicate"), Some("true"));
        assert_eq!(again.expect(200), first);
    }
    assert_eq!(server.written().await.0, 2);
}

async fn the_same_key_with_another_body_is_refused_422(server: Server) {
    let id = "11111111-2222-4333-8444-555555555555";
    for (field, value) in [("idempotency_key", "k"), ("id", id)] {
        let submit = |payload: i32| json!({ "queue": "q", "payload": payload, field: value });
        server.post("/v1/tasks", submit(1)).await.expect(201);
        let refused = server.post("/v1/tasks", submit(2)).await;
        refused.refused(422, "idempotency_key_reused");
    }
    assert_eq!(server.written().await.0, 2);
}

async fn the_header_idempotency_key_is_the_field_and_must_agree_with_it(server: Server) {
    let submit = |header: &str, body: serde_json::Value| {
        let request = server.request(Method::POST, "/v1/tasks").header("Idempotency-Key", header);
        server.send(request.json(&body))
    };
    let task = submit("k1", json!({ "queue": "q" })).await.expect(201);
    assert_eq!(task["idempotency_key"], "k1");
    let again = submit("k1", json!({ "queue": "q", "idempotency_key": "k1" })).await;
    assert_eq!(again.expect(200)["id"], task["id"]);
    let differs = submit("k1", json!({ "queue": "q", "idempotency_key": "k2" })).await;
    let problem = differs.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
    assert_eq!(problem["errors"][0]["code"], "conflict");
    let long = submit(&"k".repeat(256), json!({ "queue": "q" })).await;
    let problem = long.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
}

async fn the_queue_is_that_of_the_agent_the_callee_or_the_pool(server: Server) {
    for (submit, queue, kind) in [
        (json!({ "agent": "writer" }), "writer", "job"),
        (json!({ "caller": "a", "callee": "b" }), "b", "delegation"),
        (json!({ "pool": "fast", "model": "m" }), "fast", "inference"),
    ] {
        let task = server.post("/v1/tasks", submit).await.expect(201);
        assert_eq!((&task["queue"], &task["kind"]), (&json!(queue), &json!(kind)));
    }
    let refused = server.post("/v1/tasks", json!({ "payload": 1 })).await;
    let problem = refused.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/queue");
    assert_eq!(problem["errors"][0]["code"], "required");
}

async fn a_dry_run_says_whether_the_task_would_be_taken_and_writes_nothing(server: Server) {
    let good = server.post("/v1/tasks?dry_run=true", json!({ "queue": "q" })).await;
    assert_eq!(good.expect(200), json!({ "admitted": true }));
    let bad = server.post("/v1/tasks?dry_run=true", json!({ "queue": "" })).await;
    bad.refused(422, "validation_failed");
    assert_eq!(server.written().await.0, 0);
    server.post("/v1/tasks?dry_run=false", json!({ "queue": "q" })).await.expect(201);
}

async fn times_are_utc_with_milliseconds_and_delays_count_from_now(server: Server) {
    let submit = json!({
        "queue": "q", "run_at": "2096-01-31T13:00:00+01:00", "deadline_ms": 60_000,
    });
    let task = server.post("/v1/tasks", submit).await.expect(201);
    assert_eq!(task["run_at"], "2096-01-31T12:00:00.000Z");
    let time = |field: &str| text(&task[field]).parse::<windlass::domain::time::Timestamp>();
    let (deadline, created) = (time("deadline_at").unwrap(), time("created_at").unwrap());
    assert_eq!(deadline.since_ms(created), 60_000);
    for field in ["created_at", "updated_at", "deadline_at", "run_at"] {
        let text = text(&task[field]);
        assert!(text.len() == 24 && text.ends_with('Z'), "{field}: {text}");
    }
}

async fn an_unknown_task_is_404_wherever_it_is_asked_for(server: Server) {
    let id = "11111111-2222-4333-8444-555555555555";
    for path in ["", "/history", "/failures", "/wait?timeout_ms=0"] {
        server.get(&format!("/v1/tasks/{id}{path}")).await.refused(404, "not_found");
    }
    let lease = json!({ "lease_id": id });
    for action in ["start", "heartbeat", "complete", "release"] {
        let reply = server.post(&format!("/v1/tasks/{id}/{action}"), lease.clone()).await;
        reply.refused(404, "not_found");
    }
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.refused(404, "not_found");
}

async fn the_history_tells_every_transition_oldest_first_in_pages(server: Server) {
    let (id, session) = (server.submit("q").await, server.worker("q", 1).await);
    let (_, lease) = server.claim(&session).await;
    let done = json!({ "lease_id": lease, "result": {"ok": true} });
    server.post(&format!("/v1/tasks/{id}/complete"), done).await.expect(200);
    assert_eq!(server.history(&id).await, ["submit", "claim", "complete"]);
    let mut seen = Vec::new();
    let mut path = format!("/v1/tasks/{id}/history?limit=1");
    loop {
        let page = server.get(&path).await.expect(200);
        seen.extend(column(&page["items"], "to_status"));
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/tasks/{id}/history?limit=1&cursor={next}");
    }
    assert_eq!(seen, ["pending", "running", "completed"]);
    let page = server.get(&format!("/v1/tasks/{id}/history")).await;
    assert!(!page.text.contains(&lease), "a read shows no lease");
}

async fn the_failures_tell_every_error_oldest_first(server: Server) {
    let backoff = json!({ "base_ms": 0, "max_ms": 0 });
    let submit = json!({ "queue": "q", "backoff": backoff, "max_retries": 1 });
    let id = text(&server.post("/v1/tasks", submit).await.expect(201)["id"]);
    let session = server.worker("q", 1).await;
    for (code, status) in [("TIMEOUT", "retry"), ("RATE_LIMITED", "poisoned")] {
        let (_, lease) = server.claim(&session).await;
        let error = json!({ "code": code, "message": "no luck", "detail": {"n": 1} });
        let body = json!({ "lease_id": lease, "error": error });
        let task = server.post(&format!("/v1/tasks/{id}/fail"), body).await.expect(200);
        assert_eq!((&task["status"], &task["error"]), (&json!(status), &error));
    }
    let page = server.get(&format!("/v1/tasks/{id}/failures?limit=1")).await.expect(200);
    assert_eq!(page["items"][0]["error"]["code"], "TIMEOUT");
    assert_eq!(page["items"][0]["attempt"], 1);
    assert_eq!(page["items"][0]["session"], session.as_str());
    let next = text(&page["next_cursor"]);
    let page = server.get(&format!("/v1/tasks/{id}/failures?cursor={next}")).await.expect(200);
    assert_eq!(page["items"][0]["error"]["code"], "RATE_LIMITED");
    assert_eq!(page["next_cursor"], json!(null));
}

async fn a_wait_ends_when_the_task_does_and_says_done(server: Server) {
    let (id, session) = (server.submit("q").await, server.worker("q", 1).await);
    let (_, lease) = server.claim(&session).await;
    let path = format!("/v1/tasks/{id}/wait?timeout_ms=20000");
    let finish = async {
        eventually("somebody waits", || async {
            server.get("/v1/status").await.expect(200)["open_waits"] == 1
        })
        .await;
        let done = json!({ "lease_id": lease, "result": 42 });
        server.post(&format!("/v1/tasks/{id}/complete"), done).await.expect(200);
        Instant::now()
    };
    let (waited, finished) = tokio::join!(server.get(&path), finish);
    assert!(finished.elapsed() < Duration::from_secs(5));
    assert_eq!(waited.header("windlass-wait"), Some("done"));
    assert_eq!(waited.expect(200)["result"], 42);
    let at_once = server.get(&path).await;
    assert_eq!(at_once.header("windlass-wait"), Some("done"));
}

async fn a_wait_that_runs_out_says_timeout_and_gives_the_task(server: Server) {
    let id = server.submit("q").await;
    for ms in [0, 300] {
        let waited = server.get(&format!("/v1/tasks/{id}/wait?timeout_ms={ms}")).await;
        assert_eq!(waited.header("windlass-wait"), Some("timeout"));
        assert_eq!(waited.expect(200)["status"], "pending");
    }
}

async fn a_cancelled_task_ends_and_what_has_ended_otherwise_cannot_be_cancelled(server: Server) {
    let id = server.submit("q").await;
    let path = format!("/v1/tasks/{id}/cancel");
    let task = server.post(&path, json!({ "reason": "not needed" })).await.expect(200);
    assert_eq!(task["status"], "cancelled");
    let page = server.get(&format!("/v1/tasks/{id}/history")).await.expect(200);
    assert_eq!(page["items"][1]["reason"], "not needed");
    assert_eq!(page["items"][1]["actor"], "api");
    let again = server.post(&path, json!({})).await.expect(200);
    assert_eq!(again, task, "a second cancel changes nothing");
    // A cancel needs no body.
    let id = server.submit("q").await;
    let bare = server.request(Method::POST, &format!("/v1/tasks/{id}/cancel"));
    assert_eq!(server.send(bare).await.expect(200)["status"], "cancelled");
    let (id, session) = (server.submit("q").await, server.worker("q", 1).await);
    let (_, lease) = server.claim(&session).await;
    let done = json!({ "lease_id": lease });
    server.post(&format!("/v1/tasks/{id}/complete"), done).await.expect(200);
    let reply = server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await;
    reply.refused(409, "illegal_transition");
}

async fn many_waits_for_one_task_all_end(server: Server) {
    let id = server.submit("q").await;
    let path = format!("/v1/tasks/{id}/wait?timeout_ms=20000");
    let waits = futures_util::future::join_all((0..50).map(|_| server.get(&path)));
    let cancel = async {
        super::server::eventually("all wait", || async {
            server.get("/v1/status").await.expect(200)["open_waits"] == 50
        })
        .await;
        server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    };
    let (waited, ()) = tokio::join!(waits, cancel);
    for reply in waited {
        assert_eq!(reply.header("windlass-wait"), Some("done"));
        assert_eq!(reply.expect(200)["status"], "cancelled");
    }
}

async fn what_a_caller_sends_comes_back_verbatim(server: Server) {
    let hostile =
        "<script>alert(1)</script>'; DROP TABLE task; -- {{7*7}} ../../etc %00 \\ \u{1f6df}";
    let submit = json!({
        "queue": hostile, "name": hostile, "tags": {hostile: hostile}, "correlation_id": hostile,
        "payload": {"deep": [1, -1, 1.5, 1e100, true, null, "", hostile, {"": {}}]},
    });
    let task = server.post("/v1/tasks", submit.clone()).await.expect(201);
    let shown = server.task(&text(&task["id"])).await;
    for field in ["queue", "name", "tags", "correlation_id", "payload"] {
        assert_eq!(shown[field], submit[field], "{field}");
    }
    let found = server
        .request(Method::GET, "/v1/tasks")
        .query(&[("queue", hostile), ("tag", &format!("{hostile}:{hostile}"))]);
    // A tag's key ends at the first colon, and this one has none.
    assert_eq!(server.send(found).await.expect(200)["items"][0]["id"], task["id"]);
}

/// The last day was refused as if it were no time, and one second before it was written but could
/// not be shown: 500, also to whoever listed tasks.
async fn times_of_the_year_9999_are_kept_and_later_ones_refused(server: Server) {
    for (given, shown) in [
        ("3085-01-01T00:00:00Z", "3085-01-01T00:00:00.000Z"),
        ("9999-12-30T22:00:00.999Z", "9999-12-30T22:00:00.999Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T23:59:59+14:00", "9999-12-31T09:59:59.000Z"),
    ] {
        let body = json!({ "queue": "q", "run_at": given, "deadline_at": given });
        let id = text(&server.post("/v1/tasks", body).await.expect(201)["id"]);
        let task = server.task(&id).await;
        assert_eq!((&task["run_at"], &task["deadline_at"]), (&json!(shown), &json!(shown)));
    }
    for wrong in ["10000-01-01T00:00:00Z", "9999-12-31T23:59:59-00:01", "9999-12-31"] {
        for field in ["run_at", "deadline_at"] {
            let reply = server.post("/v1/tasks", json!({ "queue": "q", field: wrong })).await;
            let problem = reply.refused(422, "validation_failed");
            assert_eq!(problem["errors"][0]["pointer"], format!("/{field}"));
            let detail = text(&problem["errors"][0]["detail"]);
            assert!(detail.contains("from 1970 to 9999"), "{detail}");
        }
    }
    let listed = server.get("/v1/tasks").await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 4);
}
