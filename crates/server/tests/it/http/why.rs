//! Why a task does not run: over HTTP, and in words on the command line.

use super::server::{Server, column, eventually, text};
use super::step::{in_doubt, on};
use super::step_command::{ok, told};
use serde_json::{Value as Json, json};

super::facts!(
    one_reason_after_the_other_is_named,
    what_a_worker_does_with_a_task_is_named,
    busy_workers_are_named_with_what_they_hold,
    a_step_in_doubt_is_named_with_what_to_do,
    an_unknown_task_is_not_found,
);

async fn why(server: &Server, id: &str) -> Json {
    server.get(&format!("/v1/tasks/{id}/why")).await.expect(200)
}

/// The codes of all reasons, over HTTP; the table of the command line has the same, in order.
async fn codes(server: &Server, id: &str) -> Vec<String> {
    let shown = ok(server, &["task", "why", id]);
    let listed = why(server, id).await;
    let codes: Vec<String> = column(&listed["reasons"], "code").iter().map(text).collect();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("REASON") && lines[0].contains("DETAIL"), "{shown}");
    for (code, line) in codes.iter().zip(&lines[1..]) {
        assert!(line.starts_with(code.as_str()), "{code}: {shown}");
    }
    codes
}

async fn busy_workers_are_named_with_what_they_hold(server: Server) {
    let session = server.worker("mail", 1).await;
    let first = server.submit("mail").await;
    let next = server.submit("mail").await;
    server.claim(&session).await;
    assert_eq!(codes(&server, &next).await, ["workers_busy", "in_line"]);
    let busy = why(&server, &next).await["reasons"][0].clone();
    let figures = json!([busy["queue"], busy["workers"], busy["slots"], busy["held"]]);
    assert_eq!(figures, json!(["mail", 1, 1, 1]));
    assert_eq!(busy["holders"][0]["task_id"], json!(first));
    let shown = ok(&server, &["task", "why", &next]);
    assert!(shown.contains("slots of the workers of queue mail are held by"), "{shown}");
}

async fn set_limit(server: &Server, path: &str, rule: Json) {
    let request = server.request(reqwest::Method::PUT, path).json(&rule);
    let reply = server.send(request).await;
    assert!([200, 201].contains(&reply.status), "{reply:?}");
}

/// A task that is held back by one thing after the other, until it has run.
async fn one_reason_after_the_other_is_named(server: Server) {
    let submit = json!({ "queue": "mail", "venture": "acme", "delay_ms": 3_600_000 });
    let later = text(&server.post("/v1/tasks", submit).await.expect(201)["id"]);
    assert_eq!(codes(&server, &later).await, ["scheduled", "no_worker"]);

    // Another task of its venture takes the only slot.
    set_limit(&server, "/v1/limits/venture/acme", json!({ "max_active": 1 })).await;
    let submit = || json!({ "queue": "mail", "venture": "acme", "max_retries": 1 });
    let first = text(&server.post("/v1/tasks", submit()).await.expect(201)["id"]);
    let id = text(&server.post("/v1/tasks", submit()).await.expect(201)["id"]);
    assert_eq!(codes(&server, &id).await, ["no_worker", "in_line"]);
    let session = server.worker("mail", 2).await;
    assert_eq!(codes(&server, &id).await, ["ready"]);
    assert_eq!(why(&server, &id).await["reasons"][0]["ahead"], 1);
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, first);
    assert_eq!(codes(&server, &id).await, ["limit_reached", "in_line"]);
    let place = why(&server, &id).await["reasons"][1].clone();
    assert_eq!((&place["ahead"], &place["ahead_at_least"]), (&json!(0), &json!(false)));
    assert!(place["estimated_start_at"].is_string(), "{place}");
    let reached = why(&server, &id).await["reasons"][0].clone();
    assert_eq!((&reached["scope"], &reached["name"]), (&json!("venture"), &json!("acme")));
    assert_eq!((&reached["limit"], &reached["held"]), (&json!(1), &json!(1)));
    assert_eq!(reached["holders"][0]["task_id"], json!(first));
    assert_eq!(reached["holders"][0]["session"], json!(session));
    let shown = ok(&server, &["task", "why", &id]);
    assert!(shown.contains("slots of venture acme are held by"), "{shown}");

    // Somebody stops the queue, too; then the first task ends.
    let pause = ["pause", "queue", "mail", "--reason", "the mail server is down"];
    ok(&server, &pause);
    assert_eq!(codes(&server, &id).await, ["paused", "limit_reached"]);
    let shown = ok(&server, &["task", "why", &id]);
    assert!(shown.contains("queue `mail` is paused by") && shown.contains("is down"), "{shown}");
    on(&server, &first, "complete", &lease, json!({ "result": 1 })).await.expect(200);
    assert_eq!(codes(&server, &id).await, ["paused"]);
    ok(&server, &["resume", "queue", "mail"]);
    assert_eq!(codes(&server, &id).await, ["ready"]);

    // It runs, fails, backs off, and is cancelled.
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    assert_eq!(codes(&server, &id).await, ["held"]);
    let error = json!({ "code": "TIMEOUT", "message": "the mail server is silent" });
    let failed = json!({ "error": error, "retry_after_ms": 3_600_000 });
    on(&server, &id, "fail", &lease, failed).await.expect(200);
    assert_eq!(codes(&server, &id).await, ["backing_off"]);
    let shown = ok(&server, &["task", "why", &id]);
    assert!(shown.contains("TIMEOUT: the mail server is silent"), "{shown}");
    ok(&server, &["task", "cancel", &id]);
    assert_eq!(codes(&server, &id).await, ["finished"]);
    let printed: Json =
        serde_json::from_str(&ok(&server, &["task", "why", &id, "--json"])).unwrap();
    assert_eq!((&printed["task_id"], &printed["status"]), (&json!(id), &json!("cancelled")));
}

async fn what_a_worker_does_with_a_task_is_named(server: Server) {
    let (id, lease, session) = super::step::running(&server).await;
    let held = why(&server, &id).await["reasons"][0].clone();
    assert_eq!((&held["code"], &held["session"]), (&json!("held"), &json!(session)));
    assert_eq!((&held["worker"], &held["attempt"]), (&json!("w"), &json!(1)));
    on(&server, &id, "park", &lease, json!({ "until": {"signal": "go"} })).await.expect(200);
    assert_eq!(codes(&server, &id).await, ["waiting_for_signal"]);
    ok(&server, &["signal", "send", "go", "--task", &id]);
    let (_, lease) = server.claim(&session).await;
    let question = json!({ "lease_id": lease, "gate": "pay", "action": "transfer",
        "arguments": {}, "approvers": 2 });
    super::approval::ask(&server, &id, question).await.expect(200);
    let asked = why(&server, &id).await["reasons"][0].clone();
    assert_eq!(asked["code"], "waiting_for_approval");
    assert_eq!((&asked["required"], &asked["approvals"]), (&json!(2), &json!(0)));
    assert_eq!((&asked["voters"], &asked["token_holders"]), (&json!([]), &json!([])));
    let approval = format!("/v1/approvals/{}", text(&asked["approval_id"]));
    let tokens = format!("{approval}/tokens");
    let mut tokens_of = Vec::new();
    for approver in ["olga", "eve"] {
        let issued = server.post(&tokens, json!({ "approver": approver })).await.expect(201);
        tokens_of.push(text(&issued["token"]));
    }
    let vote = json!({ "token": tokens_of[0], "decision": "approve" });
    server.post("/v1/approvals/decide", vote).await.expect(200);
    let asked = why(&server, &id).await["reasons"][0].clone();
    assert_eq!(asked["approvals"], json!(1));
    assert_eq!(column(&asked["voters"], "actor"), [json!("olga")]);
    assert_eq!(column(&asked["voters"], "choice"), [json!("approve")]);
    assert_eq!(column(&asked["token_holders"], "approver"), [json!("eve")]);
    assert_eq!((&asked["more_voters"], &asked["more_token_holders"]), (&json!(0), &json!(0)));
    let shown = ok(&server, &["task", "why", &id]);
    let words = "1 of 2 voices so far (approve by `olga`); tokens are with `eve`";
    assert!(shown.contains(words), "{shown}");
    ok(&server, &["approval", "approve", asked["approval_id"].as_str().unwrap()]);
    assert_eq!(codes(&server, &id).await, ["ready"]);
    // Of its worker nothing is heard any more.
    server.delete(&format!("/v1/sessions/{session}")).await;
    eventually("nobody is there", || async { codes(&server, &id).await == ["no_worker"] }).await;
}

async fn a_step_in_doubt_is_named_with_what_to_do(server: Server) {
    let (id, step, _) = in_doubt(&server).await;
    let reason = why(&server, &id).await["reasons"][0].clone();
    assert_eq!((&reason["code"], &reason["step"]), (&json!("in_doubt"), &json!("charge")));
    assert_eq!(reason["step_id"], json!(step));
    let shown = ok(&server, &["task", "why", &id]);
    assert!(shown.contains("windlass step resolve"), "{shown}");
}

async fn an_unknown_task_is_not_found(server: Server) {
    let nowhere = "/v1/tasks/00000000-0000-7000-8000-000000000000/why";
    server.get(nowhere).await.refused(404, "not_found");
    server.get("/v1/tasks/what/why").await.refused(400, "invalid_id");
    let words = told(&server, &["task", "why", "00000000-0000-7000-8000-000000000000"], 1);
    assert!(words.contains("not_found") || words.contains("no such task"), "{words}");
}
