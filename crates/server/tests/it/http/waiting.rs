//! A task that waits says what for: over HTTP, and in words on the command line.

use super::approval::ask;
use super::server::{Server, text};
use super::step::{in_doubt, on, running};
use super::step_command::ok;
use serde_json::{Value as Json, json};

super::facts!(
    a_wait_for_a_time_says_which,
    a_wait_for_a_signal_says_its_name_key_and_limit,
    a_wait_for_a_task_says_which,
    a_question_says_its_approval_and_when_it_expires,
    a_step_in_doubt_says_which,
    a_task_that_does_not_wait_says_nothing,
);

/// What the task waits for, and how the command line says it.
async fn waiting(server: &Server, id: &str) -> (Json, String) {
    let shown = ok(server, &["task", "show", id]);
    let line = shown.lines().find(|line| line.starts_with("waiting_for"));
    let words = line.unwrap_or_default().trim_start_matches("waiting_for").trim().to_owned();
    (server.task(id).await["waiting_for"].clone(), words)
}

async fn a_wait_for_a_time_says_which(server: Server) {
    let (id, lease, _) = running(&server).await;
    let until = json!({ "until": {"time": "2999-01-31T12:00:00.000Z"} });
    let parked = on(&server, &id, "park", &lease, until).await.expect(200);
    let (told, words) = waiting(&server, &id).await;
    assert_eq!(told, json!({ "kind": "time", "until": "2999-01-31T12:00:00.000Z" }));
    assert_eq!(words, "the time 2999-01-31T12:00:00.000Z");
    assert_eq!(parked["waiting_for"], told, "also in the answer of the call that parked it");
    let waited = server.get(&format!("/v1/tasks/{id}/wait?timeout_ms=1")).await.expect(200);
    assert_eq!(waited["waiting_for"], told);
}

async fn a_wait_for_a_signal_says_its_name_key_and_limit(server: Server) {
    let (id, lease, _) = running(&server).await;
    on(&server, &id, "park", &lease, json!({ "until": {"signal": "go"} })).await.expect(200);
    let (told, words) = waiting(&server, &id).await;
    assert_eq!(told, json!({ "kind": "signal", "name": "go", "key": null, "until": null }));
    assert_eq!(words, "the signal `go`");
    let (id, lease, _) = running(&server).await;
    let limited = json!({ "until": {"signal": "go", "key": "order-7"}, "timeout_ms": 3_600_000 });
    on(&server, &id, "park", &lease, limited).await.expect(200);
    let (told, words) = waiting(&server, &id).await;
    assert_eq!((&told["name"], &told["key"]), (&json!("go"), &json!("order-7")));
    let until = text(&told["until"]);
    assert_eq!(words, format!("the signal `go` with key `order-7`, until {until}"));
}

async fn a_wait_for_a_task_says_which(server: Server) {
    let (id, lease, _) = running(&server).await;
    let other = server.submit("elsewhere").await;
    on(&server, &id, "park", &lease, json!({ "until": {"task": other} })).await.expect(200);
    let (told, words) = waiting(&server, &id).await;
    assert_eq!(told, json!({ "kind": "task", "task_id": other, "until": null }));
    assert_eq!(words, format!("the end of task {other}"));
}

async fn a_question_says_its_approval_and_when_it_expires(server: Server) {
    let (id, lease, _) = running(&server).await;
    let question = json!({ "lease_id": lease, "gate": "pay", "action": "transfer",
        "arguments": {}, "expires_ms": 3_600_000 });
    let asked = ask(&server, &id, question).await.expect(200);
    let (told, words) = waiting(&server, &id).await;
    let (approval, until) = (&asked["approval"]["id"], &asked["approval"]["expires_at"]);
    assert_eq!(told, json!({ "kind": "approval", "approval_id": approval, "until": until }));
    assert_eq!(words, format!("approval {}, until {}", text(approval), text(until)));
}

async fn a_step_in_doubt_says_which(server: Server) {
    let (id, step, _) = in_doubt(&server).await;
    let (told, words) = waiting(&server, &id).await;
    assert_eq!(told, json!({ "kind": "person", "step_id": step }));
    assert_eq!(words, format!("a person's decision over step {step} in doubt"));
}

async fn a_task_that_does_not_wait_says_nothing(server: Server) {
    let (id, lease, session) = running(&server).await;
    let nothing = (json!(null), String::new());
    assert_eq!(waiting(&server, &id).await, nothing);
    on(&server, &id, "park", &lease, json!({ "until": {"signal": "go"} })).await.expect(200);
    server.post("/v1/signals", json!({ "name": "go", "task_id": id })).await.expect(201);
    assert_eq!(waiting(&server, &id).await, nothing);
    let (_, lease) = server.claim(&session).await;
    on(&server, &id, "complete", &lease, json!({})).await.expect(200);
    assert_eq!(waiting(&server, &id).await, nothing);
}
