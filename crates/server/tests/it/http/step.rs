//! Steps over HTTP: recorded once, begun before they run, and decided over when in doubt.

use super::server::{Reply, Server, column, text};
use serde_json::{Value as Json, json};

super::facts!(
    a_recorded_step_keeps_its_first_result,
    a_step_is_told_apart_by_name_inputs_and_repetition,
    a_step_and_its_checkpoint_are_one_commit,
    a_step_that_must_not_run_twice_is_begun_and_ended_once,
    a_failure_without_effect_may_run_again,
    a_late_end_of_an_earlier_run_ends_nothing,
    a_step_in_doubt_parks_its_task_until_a_person_decides,
    a_step_that_a_person_failed_never_runs,
    the_next_attempt_is_given_what_was_done,
    many_steps_come_in_pages_and_an_assignment_says_when_there_are_more,
    a_lease_that_is_gone_writes_no_step,
    no_answer_shows_a_lease,
);

/// A running task: its id, its lease, and the session that holds it.
pub async fn running(server: &Server) -> (String, String, String) {
    let queue = uuid::Uuid::new_v4().to_string();
    let id = server.submit(&queue).await;
    let session = server.worker(&queue, 1).await;
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    (id, lease, session)
}

pub async fn on(server: &Server, id: &str, action: &str, lease: &str, extra: Json) -> Reply {
    let mut body = extra;
    body["lease_id"] = json!(lease);
    server.post(&format!("/v1/tasks/{id}/{action}"), body).await
}

async fn end(server: &Server, step: &str, how: &str, lease: &str, extra: Json) -> Reply {
    let mut body = extra;
    body["lease_id"] = json!(lease);
    server.post(&format!("/v1/steps/{step}/{how}"), body).await
}

fn charge() -> Json {
    json!({ "name": "charge", "inputs": {"order": 7}, "idempotent": false })
}

/// Another attempt at the task, by the same worker: its lease.
async fn again(server: &Server, id: &str, lease: &str, session: &str) -> String {
    on(server, id, "release", lease, json!({})).await.expect(200);
    let (taken, lease) = server.claim(session).await;
    assert_eq!(taken, id);
    lease
}

/// A task whose step `charge` is in doubt: task, step, session.
pub async fn in_doubt(server: &Server) -> (String, String, String) {
    let (id, lease, session) = running(server).await;
    let begun = on(server, &id, "steps", &lease, charge()).await.expect(200);
    let lease = again(server, &id, &lease, &session).await;
    on(server, &id, "steps", &lease, charge()).await.refused(409, "in_doubt");
    (id, text(&begun["id"]), session)
}

async fn steps(server: &Server, id: &str) -> Json {
    server.get(&format!("/v1/tasks/{id}/steps")).await.expect(200)["items"].clone()
}

async fn a_recorded_step_keeps_its_first_result(server: Server) {
    let (id, lease, _) = running(&server).await;
    let body = json!({ "name": "fetch", "type": "http", "inputs": {"a": 1}, "result": {"n": 1} });
    let first = on(&server, &id, "steps/record", &lease, body.clone()).await.expect(200);
    assert_eq!((&first["status"], &first["type"]), (&json!("done"), &json!("http")));
    assert_eq!((&first["task_id"], &first["idempotent"]), (&json!(id), &json!(true)));
    assert_eq!(on(&server, &id, "steps/record", &lease, body).await.expect(200), first);
    let other = json!({ "name": "fetch", "inputs": {"a": 1}, "result": {"n": 2} });
    let stands = on(&server, &id, "steps/record", &lease, other).await.expect(200);
    assert_eq!(stands["result"], json!({"n": 1}));
    let empty = json!({ "name": "nothing", "result": null });
    let empty = on(&server, &id, "steps/record", &lease, empty).await.expect(200);
    assert_eq!((&empty["status"], &empty["result"]), (&json!("done"), &json!(null)));
    assert_eq!(column(&steps(&server, &id).await, "name"), ["fetch", "nothing"]);
}

async fn a_step_is_told_apart_by_name_inputs_and_repetition(server: Server) {
    let (id, lease, _) = running(&server).await;
    let mut ids = std::collections::BTreeSet::new();
    for extra in [
        json!({ "name": "poll" }),
        json!({ "name": "poll", "occurrence": 1 }),
        json!({ "name": "poll", "inputs": {"page": 2} }),
        json!({ "name": "push" }),
    ] {
        let mut body = extra;
        body["result"] = json!(ids.len());
        let step = on(&server, &id, "steps/record", &lease, body).await.expect(200);
        assert_eq!(step["result"], json!(ids.len()));
        ids.insert(text(&step["id"]));
    }
    assert_eq!(ids.len(), 4);
}

async fn a_step_and_its_checkpoint_are_one_commit(server: Server) {
    let (id, lease, _) = running(&server).await;
    let body = json!({ "name": "a", "result": 1, "checkpoint": {"next": 2} });
    on(&server, &id, "steps/record", &lease, body).await.expect(200);
    assert_eq!(server.task(&id).await["checkpoint"], json!({"next": 2}));
    let begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    let body = json!({ "result": 1, "checkpoint": {"next": 3} });
    end(&server, &text(&begun["id"]), "complete", &lease, body).await.expect(200);
    assert_eq!(server.task(&id).await["checkpoint"], json!({"next": 3}));
    let body = json!({ "name": "b", "result": 1 });
    on(&server, &id, "steps/record", &lease, body).await.expect(200);
    assert_eq!(server.task(&id).await["checkpoint"], json!({"next": 3}), "it stays");
}

async fn a_step_that_must_not_run_twice_is_begun_and_ended_once(server: Server) {
    let (id, lease, session) = running(&server).await;
    let begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert_eq!(begun["status"], "new");
    assert_eq!(on(&server, &id, "steps", &lease, charge()).await.expect(200), begun);
    let step = text(&begun["id"]);
    let early = json!({ "name": "charge", "inputs": {"order": 7}, "result": 1 });
    on(&server, &id, "steps/record", &lease, early).await.refused(409, "illegal_step");
    let paid = json!({ "result": {"paid": true} });
    let done = end(&server, &step, "complete", &lease, paid.clone()).await.expect(200);
    assert_eq!((&done["status"], &done["inputs"]), (&json!("done"), &json!({"order": 7})));
    assert_eq!(end(&server, &step, "complete", &lease, paid).await.expect(200), done);
    let other = json!({ "result": {"paid": false} });
    end(&server, &step, "complete", &lease, other).await.refused(409, "already_finished");
    let error = json!({ "error": {"code": "X", "message": ""} });
    end(&server, &step, "fail", &lease, error).await.refused(409, "already_finished");
    let lease = again(&server, &id, &lease, &session).await;
    let told = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert_eq!((&told["status"], &told["result"]), (&json!("done"), &json!({"paid": true})));
}

async fn a_late_end_of_an_earlier_run_ends_nothing(server: Server) {
    let (id, lease, _) = running(&server).await;
    let first = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    let step = text(&first["id"]);
    let failed = json!({ "run": first["run"], "effect": "none",
        "error": {"code": "DECLINED", "message": "no"} });
    end(&server, &step, "fail", &lease, failed.clone()).await.expect(200);
    let second = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert!(first["run"].as_i64() < second["run"].as_i64(), "{first} {second}");
    end(&server, &step, "fail", &lease, failed).await.refused(409, "already_finished");
    let paid = json!({ "run": second["run"], "result": {"paid": true} });
    let done = end(&server, &step, "complete", &lease, paid).await.expect(200);
    assert_eq!((&done["status"], &done["run"]), (&json!("done"), &second["run"]));
}

async fn a_failure_without_effect_may_run_again(server: Server) {
    let (id, lease, session) = running(&server).await;
    let begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    let step = text(&begun["id"]);
    let declined = json!({ "error": {"code": "DECLINED", "message": "no"}, "effect": "none" });
    let failed = end(&server, &step, "fail", &lease, declined.clone()).await.expect(200);
    assert_eq!((&failed["status"], &failed["effect"]), (&json!("failed"), &json!("none")));
    assert_eq!(failed["error"]["code"], "DECLINED");
    assert_eq!(end(&server, &step, "fail", &lease, declined).await.expect(200), failed);
    let again_begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert_eq!((&again_begun["id"], &again_begun["status"]), (&begun["id"], &begun["status"]));
    let unknown = json!({ "error": {"code": "TIMEOUT", "message": "no answer"} });
    let failed = end(&server, &step, "fail", &lease, unknown).await.expect(200);
    assert_eq!(failed["effect"], "unknown");
    let lease = again(&server, &id, &lease, &session).await;
    on(&server, &id, "steps", &lease, charge()).await.refused(409, "in_doubt");
}

async fn a_step_in_doubt_parks_its_task_until_a_person_decides(server: Server) {
    let (id, step, session) = in_doubt(&server).await;
    let task = server.task(&id).await;
    assert_eq!((&task["status"], &task["lease_expires_at"]), (&json!("waiting"), &json!(null)));
    let listed = server.get("/v1/steps?status=in_doubt").await.expect(200)["items"].clone();
    assert_eq!(column(&listed, "id"), [step.as_str()]);
    assert_eq!(listed[0]["inputs"], json!({"order": 7}), "a person sees what it was about");
    let path = format!("/v1/steps/{step}/resolve");
    let decision =
        json!({ "action": "record_result", "result": {"paid": 1}, "reason": "I looked" });
    let done = server.post(&path, decision.clone()).await.expect(200);
    assert_eq!((&done["status"], &done["result"]), (&json!("done"), &json!({"paid": 1})));
    assert_eq!(server.post(&path, decision).await.expect(200), done, "the same decision again");
    server.post(&path, json!({ "action": "allow_rerun" })).await.refused(409, "illegal_step");
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    let told = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert_eq!((&told["status"], &told["result"]), (&json!("done"), &json!({"paid": 1})));
    let history = server.get(&format!("/v1/tasks/{id}/history")).await.expect(200);
    let woken = history["items"].as_array().unwrap().iter().find(|e| e["event"] == "wake").unwrap();
    assert_eq!((&woken["reason"], &woken["actor"]), (&json!("I looked"), &json!("api")));
    assert_eq!(server.get("/v1/steps?status=in_doubt").await.expect(200)["items"], json!([]));
}

async fn a_step_that_a_person_failed_never_runs(server: Server) {
    let (id, step, session) = in_doubt(&server).await;
    let path = format!("/v1/steps/{step}/resolve");
    let failed = server.post(&path, json!({ "action": "fail" })).await.expect(200);
    assert_eq!(failed["status"], "rejected");
    let (_, lease) = server.claim(&session).await;
    on(&server, &id, "steps", &lease, charge()).await.refused(409, "step_failed");
    assert_eq!(server.task(&id).await["status"], "running", "the worker goes on, or fails it");
    // And one that may run again does.
    let (id, step, session) = in_doubt(&server).await;
    let path = format!("/v1/steps/{step}/resolve");
    let allowed = server.post(&path, json!({ "action": "allow_rerun" })).await.expect(200);
    assert_eq!(allowed["status"], "allowed");
    let (_, lease) = server.claim(&session).await;
    let begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    assert_eq!((&begun["status"], &begun["id"]), (&json!("new"), &json!(step)));
}

async fn the_next_attempt_is_given_what_was_done(server: Server) {
    let (id, lease, session) = running(&server).await;
    for name in ["a", "b"] {
        let body = json!({ "name": name, "result": name });
        on(&server, &id, "steps/record", &lease, body).await.expect(200);
    }
    on(&server, &id, "release", &lease, json!({})).await.expect(200);
    let path = format!("/v1/sessions/{session}/claim");
    let claimed = server.post(&path, json!({ "wait_ms": 10_000 })).await.expect(200);
    let taken = &claimed["assignments"][0];
    assert_eq!(taken["steps_complete"], true);
    assert_eq!(column(&taken["steps"], "result"), ["a", "b"]);
    // The same by a heartbeat, to a worker that lost the answer of its claim.
    let path = format!("/v1/sessions/{session}/heartbeat");
    let beaten = server.post(&path, json!({})).await.expect(200);
    assert_eq!(column(&beaten["unnamed"][0]["steps"], "name"), ["a", "b"]);
    // And by a stream.
    let mut events = server.events(&format!("/v1/sessions/{session}/stream")).await;
    let assigned = events.expect("assign").await;
    assert_eq!(column(&assigned.data["steps"], "name"), ["a", "b"]);
    assert_eq!(assigned.data["steps_complete"], true);
}

async fn many_steps_come_in_pages_and_an_assignment_says_when_there_are_more(server: Server) {
    let (id, lease, session) = running(&server).await;
    for n in 0..5 {
        let body = json!({ "name": "poll", "occurrence": n, "result": n });
        on(&server, &id, "steps/record", &lease, body).await.expect(200);
    }
    let path = format!("/v1/tasks/{id}/steps?limit=2");
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let from = cursor.map(|cursor: String| format!("&cursor={cursor}")).unwrap_or_default();
        let page = server.get(&format!("{path}{from}")).await.expect(200);
        seen.extend(column(&page["items"], "result"));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    let more = (5..201).map(|n| {
        let body = json!({ "name": "poll", "occurrence": n, "result": n });
        on(&server, &id, "steps/record", &lease, body)
    });
    for reply in futures_util::future::join_all(more).await {
        reply.expect(200);
    }
    on(&server, &id, "release", &lease, json!({})).await.expect(200);
    let path = format!("/v1/sessions/{session}/claim");
    let claimed = server.post(&path, json!({ "wait_ms": 10_000 })).await.expect(200);
    let taken = &claimed["assignments"][0];
    assert_eq!(taken["steps_complete"], false);
    let last = taken["steps"].as_array().unwrap().last().unwrap()["seq"].to_string();
    let rest = format!("/v1/tasks/{id}/steps?cursor={last}");
    let rest = server.get(&rest).await.expect(200)["items"].as_array().unwrap().len();
    assert_eq!(taken["steps"].as_array().unwrap().len() + rest, 201);
    let lease = text(&taken["lease_id"]);
    on(&server, &id, "complete", &lease, json!({})).await.expect(200);
    assert_eq!(steps(&server, &id).await.as_array().unwrap().len(), 50, "also when it has ended");
    let unknown = "/v1/tasks/11111111-2222-4333-8444-555555555555/steps";
    server.get(unknown).await.refused(404, "not_found");
}

async fn a_lease_that_is_gone_writes_no_step(server: Server) {
    let (id, lease, session) = running(&server).await;
    let begun = on(&server, &id, "steps", &lease, charge()).await.expect(200);
    let step = text(&begun["id"]);
    let newer = again(&server, &id, &lease, &session).await;
    let body = json!({ "name": "late", "result": 1 });
    on(&server, &id, "steps/record", &lease, body.clone()).await.refused(409, "lease_lost");
    on(&server, &id, "steps", &lease, charge()).await.refused(409, "lease_lost");
    let done = json!({ "result": 1 });
    end(&server, &step, "complete", &lease, done.clone()).await.refused(409, "lease_lost");
    // The newer holder did not begin it, so it cannot say how it ended.
    end(&server, &step, "complete", &newer, done.clone()).await.refused(409, "illegal_step");
    assert_eq!(column(&steps(&server, &id).await, "status"), ["begun"]);
    let nobody = "11111111-2222-4333-8444-555555555555";
    end(&server, nobody, "complete", &newer, done).await.refused(404, "not_found");
    on(&server, nobody, "steps/record", &newer, body).await.refused(404, "not_found");
    let resolve = json!({ "action": "allow_rerun" });
    let path = format!("/v1/steps/{nobody}/resolve");
    server.post(&path, resolve.clone()).await.refused(404, "not_found");
    let path = format!("/v1/steps/{step}/resolve");
    server.post(&path, resolve).await.refused(409, "illegal_step");
}

async fn no_answer_shows_a_lease(server: Server) {
    let (id, lease, _) = running(&server).await;
    let body = json!({ "name": "a", "result": 1 });
    let recorded = on(&server, &id, "steps/record", &lease, body).await;
    let begun = on(&server, &id, "steps", &lease, charge()).await;
    let ended = json!({ "result": 1 });
    let ended = end(&server, &text(&begun.body["id"]), "complete", &lease, ended).await;
    let listed = server.get(&format!("/v1/tasks/{id}/steps")).await;
    for reply in [recorded, begun, ended, listed] {
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert!(!reply.text.contains(&lease), "{}", reply.text);
        assert!(!reply.text.contains("lease"), "{}", reply.text);
    }
}
