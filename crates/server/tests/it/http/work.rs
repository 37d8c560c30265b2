//! What the holder of a lease does: start, heartbeat, complete, fail, release; and what it can do
//! no more.

use super::server::{Server, eventually, text};
use serde_json::{Value as Json, json};

super::facts!(
    a_claimed_task_is_started_kept_alive_and_completed,
    a_checkpoint_and_a_progress_stay_until_others_come,
    a_released_task_is_in_line_again,
    a_failure_may_say_when_to_try_again,
    a_poisonous_failure_ends_the_task,
    finishing_twice_is_answered_like_the_first_time,
    finishing_again_with_other_content_is_already_finished,
    a_foreign_lease_changes_nothing,
    a_lease_that_was_taken_over_changes_nothing,
    a_late_result_is_kept_as_long_as_nobody_took_the_task,
    a_cancelled_task_takes_no_result,
    starting_again_is_no_error_but_starting_what_ended_is,
);

async fn act(server: &Server, id: &str, action: &str, body: Json) -> super::server::Reply {
    server.post(&format!("/v1/tasks/{id}/{action}"), body).await
}

/// A task in a worker's hands, `claimed` or `running`: task, lease, session.
async fn held(server: &Server, start: bool) -> (String, String, String) {
    let (id, session) = (server.submit("q").await, server.worker("q", 1).await);
    let body = json!({ "max": 1, "start": start });
    let answer = server.post(&format!("/v1/sessions/{session}/claim"), body).await.expect(200);
    assert_eq!(answer["assignments"][0]["task"]["id"], id.as_str());
    (id, text(&answer["assignments"][0]["lease_id"]), session)
}

async fn a_claimed_task_is_started_kept_alive_and_completed(server: Server) {
    let (id, lease, session) = held(&server, false).await;
    let task = server.task(&id).await;
    assert_eq!((&task["status"], &task["claimed_by"]), (&json!("claimed"), &json!(session)));
    assert_eq!(task["started_at"], json!(null));
    let body = json!({ "lease_id": lease });
    assert_eq!(act(&server, &id, "start", body.clone()).await.expect(200)["status"], "running");
    let beaten = act(&server, &id, "heartbeat", body).await.expect(200);
    assert!(beaten["last_heartbeat_at"].is_string());
    let body = json!({ "lease_id": lease, "result": {"sum": 3} });
    let task = act(&server, &id, "complete", body).await.expect(200);
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"sum": 3})));
    assert!(task["finished_at"].is_string());
    assert_eq!(task["claimed_by"], session.as_str(), "a finished task tells who held it");
    assert_eq!(server.history(&id).await, ["submit", "claim", "start", "complete"]);
}

async fn a_checkpoint_and_a_progress_stay_until_others_come(server: Server) {
    let (id, lease, _) = held(&server, true).await;
    let beat = |body: Json| {
        let mut body = body;
        body["lease_id"] = json!(lease);
        act(&server, &id, "heartbeat", body)
    };
    beat(json!({ "checkpoint": {"step": 1}, "progress": 0.5 })).await.expect(200);
    let task = beat(json!({ "progress": {"done": 9} })).await.expect(200);
    assert_eq!(task["checkpoint"], json!({"step": 1}));
    assert_eq!(task["progress"], json!({"done": 9}));
    let body = json!({ "lease_id": lease, "checkpoint": {"step": 2} });
    let task = act(&server, &id, "checkpoint", body).await.expect(200);
    assert_eq!(task["checkpoint"], json!({"step": 2}));
    let missing = act(&server, &id, "checkpoint", json!({ "lease_id": lease })).await;
    let problem = missing.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/checkpoint");
}

async fn a_released_task_is_in_line_again(server: Server) {
    let (id, lease, session) = held(&server, true).await;
    let task = act(&server, &id, "release", json!({ "lease_id": lease })).await.expect(200);
    assert_eq!((&task["status"], &task["release_count"]), (&json!("pending"), &json!(1)));
    assert_eq!(task["claimed_by"], json!(null));
    let (again, other) = server.claim(&session).await;
    assert_eq!(again, id);
    assert_ne!(other, lease, "a lease is never used again");
}

async fn a_failure_may_say_when_to_try_again(server: Server) {
    let (id, lease, _) = held(&server, true).await;
    let error = json!({ "code": "RATE_LIMITED", "message": "slow down" });
    let body = json!({ "lease_id": lease, "error": error, "retry_after_ms": 3_600_000 });
    let task = act(&server, &id, "fail", body).await.expect(200);
    assert_eq!((&task["status"], &task["retry_count"]), (&json!("retry"), &json!(1)));
    let time = |field: &str| text(&task[field]).parse::<windlass::domain::time::Timestamp>();
    let wait = time("run_at").unwrap().since_ms(time("updated_at").unwrap());
    assert_eq!(wait, 3_600_000);
}

async fn a_poisonous_failure_ends_the_task(server: Server) {
    for (code, status) in [("POISON_TASK", "poisoned"), ("INVALID_INPUT", "failed")] {
        let (id, lease, session) = held(&server, true).await;
        let body = json!({ "lease_id": lease, "error": {"code": code, "message": ""} });
        assert_eq!(act(&server, &id, "fail", body).await.expect(200)["status"], status);
        server.delete(&format!("/v1/sessions/{session}")).await.expect(204);
    }
}

async fn finishing_twice_is_answered_like_the_first_time(server: Server) {
    let fail = json!({ "error": {"code": "TIMEOUT", "message": "m"}, "retry_after_ms": 60_000 });
    for (action, extra) in
        [("complete", json!({ "result": [1] })), ("fail", fail), ("release", json!({}))]
    {
        let (id, lease, session) = held(&server, true).await;
        let mut body = extra;
        body["lease_id"] = json!(lease);
        let first = act(&server, &id, action, body.clone()).await.expect(200);
        let again = act(&server, &id, action, body).await.expect(200);
        assert_eq!(first, again, "{action}");
        assert_eq!(server.history(&id).await.len(), 3, "{action}");
        server.delete(&format!("/v1/sessions/{session}")).await.expect(204);
        let cancel = act(&server, &id, "cancel", json!({})).await;
        assert!([200, 409].contains(&cancel.status));
    }
}

async fn finishing_again_with_other_content_is_already_finished(server: Server) {
    let (id, lease, _) = held(&server, true).await;
    let done = json!({ "lease_id": lease, "result": 1 });
    act(&server, &id, "complete", done).await.expect(200);
    let other = json!({ "lease_id": lease, "result": 2 });
    act(&server, &id, "complete", other).await.refused(409, "already_finished");
    let fail = json!({ "lease_id": lease, "error": {"code": "X", "message": ""} });
    act(&server, &id, "fail", fail).await.refused(409, "already_finished");
    let release = json!({ "lease_id": lease });
    act(&server, &id, "release", release.clone()).await.refused(409, "already_finished");
    act(&server, &id, "heartbeat", release).await.refused(409, "lease_lost");
    assert_eq!(server.task(&id).await["result"], 1);
}

async fn a_foreign_lease_changes_nothing(server: Server) {
    let (id, _, _) = held(&server, true).await;
    let before = server.task(&id).await;
    let lease = "11111111-2222-4333-8444-555555555555";
    for (action, extra) in [
        ("start", json!({})),
        ("heartbeat", json!({ "checkpoint": 1 })),
        ("checkpoint", json!({ "checkpoint": 1 })),
        ("complete", json!({ "result": 1 })),
        ("fail", json!({ "error": {"code": "X", "message": ""} })),
        ("release", json!({})),
    ] {
        let mut body = extra;
        body["lease_id"] = json!(lease);
        act(&server, &id, action, body).await.refused(409, "lease_lost");
    }
    assert_eq!(server.task(&id).await, before);
}

/// A session whose leases last a second, and which claims a task.
async fn short(server: &Server) -> (String, String) {
    let id = server.submit("short").await;
    let body = json!({ "name": "w", "queues": ["short"], "lease_ms": 1_000 });
    let session = text(&server.post("/v1/sessions", body).await.expect(201)["id"]);
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    (id, lease)
}

async fn a_lease_that_was_taken_over_changes_nothing(server: Server) {
    let (id, lease) = short(&server).await;
    eventually("the sweep takes the task from the silent worker", || async {
        server.task(&id).await["status"] == "retry"
    })
    .await;
    let before = server.task(&id).await;
    assert_eq!(before["error"]["code"], "LEASE_EXPIRED");
    for (action, extra) in [
        ("heartbeat", json!({})),
        ("complete", json!({ "result": 1 })),
        ("fail", json!({ "error": {"code": "X", "message": ""} })),
        ("release", json!({})),
    ] {
        let mut body = extra;
        body["lease_id"] = json!(lease);
        let problem = act(&server, &id, action, body).await.refused(409, "lease_lost");
        assert!(text(&problem["detail"]).contains("stop working"), "{problem}");
    }
    assert_eq!(server.task(&id).await, before);
}

async fn a_late_result_is_kept_as_long_as_nobody_took_the_task(server: Server) {
    // The duty may be faster than this worker; then the fact above holds instead.
    for _ in 0..10 {
        let (id, lease) = short(&server).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_010)).await;
        let late = json!({ "lease_id": lease, "result": "late" });
        let reply = act(&server, &id, "complete", late).await;
        if reply.status == 200 {
            assert_eq!(reply.body["result"], "late");
            return;
        }
        reply.refused(409, "lease_lost");
        act(&server, &id, "cancel", json!({})).await.expect(200);
    }
    panic!("no late result was kept in ten tries");
}

async fn a_cancelled_task_takes_no_result(server: Server) {
    let (id, lease, _) = held(&server, true).await;
    act(&server, &id, "cancel", json!({})).await.expect(200);
    let done = json!({ "lease_id": lease, "result": 1 });
    act(&server, &id, "complete", done).await.refused(409, "lease_lost");
    let beat = json!({ "lease_id": lease });
    act(&server, &id, "heartbeat", beat).await.refused(409, "lease_lost");
    let task = server.task(&id).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("cancelled"), &json!(null)));
}

async fn starting_again_is_no_error_but_starting_what_ended_is(server: Server) {
    let (id, lease, _) = held(&server, false).await;
    let body = json!({ "lease_id": lease });
    for _ in 0..2 {
        let started = act(&server, &id, "start", body.clone()).await.expect(200);
        assert_eq!(started["status"], "running");
    }
    assert_eq!(server.history(&id).await, ["submit", "claim", "start"]);
    act(&server, &id, "complete", body.clone()).await.expect(200);
    act(&server, &id, "start", body).await.refused(409, "lease_lost");
}
