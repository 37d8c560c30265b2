//! Approvals over HTTP: asking, deciding by key and by token, lists, bad input.

use super::server::{Reply, Server, column, text};
use serde_json::{Value as Json, json};

super::facts!(
    a_task_waits_for_an_approval_and_goes_on,
    what_was_approved_is_answered_and_does_not_park,
    an_open_question_is_answered_again,
    a_denial_fails_the_task,
    a_token_decides_without_anything_else_and_once,
    a_wrong_token_is_refused_like_one_that_never_was,
    a_decision_about_something_else_is_refused,
    a_worker_never_sees_a_token,
    what_is_shown_cannot_deceive,
    lists_filter_and_go_on,
    refusals_are_in_the_audit,
    every_bad_request_is_refused_with_its_place,
);

/// A running task: its id and its lease.
pub async fn running(server: &Server) -> (String, String) {
    let queue = uuid::Uuid::new_v4().to_string();
    let (id, session) = (server.submit(&queue).await, server.worker(&queue, 1).await);
    let (claimed, lease) = server.claim(&session).await;
    assert_eq!(claimed, id);
    (id, lease)
}

pub async fn ask(server: &Server, task: &str, body: Json) -> Reply {
    server.post(&format!("/v1/tasks/{task}/approvals"), body).await
}

fn question(lease: &str) -> Json {
    json!({
        "lease_id": lease, "gate": "pay", "action": "transfer",
        "arguments": { "to": "eve", "amount": 12.50 },
    })
}

/// A task that waits: its id, its lease before, and the approval.
async fn parked(server: &Server) -> (String, String, Json) {
    let (task, lease) = running(server).await;
    let answer = ask(server, &task, question(&lease)).await.expect(200);
    assert_eq!(answer["status"], "open");
    (task, lease, answer["approval"].clone())
}

fn path(approval: &Json, rest: &str) -> String {
    format!("/v1/approvals/{}{rest}", text(&approval["id"]))
}

async fn token(server: &Server, approval: &Json, approver: &str) -> String {
    let body = json!({ "approver": approver });
    text(&server.post(&path(approval, "/tokens"), body).await.expect(201)["token"])
}

async fn decide(server: &Server, token: &str, decision: &str) -> Reply {
    let body = json!({ "token": token, "decision": decision, "comment": "seen" });
    server.post("/v1/approvals/decide", body).await
}

async fn a_task_waits_for_an_approval_and_goes_on(server: Server) {
    let (task, lease) = running(&server).await;
    let mut body = question(&lease);
    body["checkpoint"] = json!({ "step": 3 });
    body["approvers"] = json!(2);
    let approval = ask(&server, &task, body).await.expect(200)["approval"].clone();
    let waiting = server.task(&task).await;
    assert_eq!(waiting["status"], "waiting_for_approval");
    assert_eq!(
        (&waiting["claimed_by"], &waiting["checkpoint"]),
        (&json!(null), &json!({"step": 3}))
    );
    assert_eq!(approval["arguments"], json!({ "to": "eve", "amount": 12.50 }));
    // Without keys everybody is `api`, and one voice counts once: the second comes by a token.
    let said = json!({ "comment": "the amount is right", "digest": approval["digest"] });
    let first = server.post(&path(&approval, "/approve"), said).await.expect(200);
    assert_eq!((&first["status"], &first["approvals"]), (&json!("open"), &json!(1)));
    server.post(&path(&approval, "/approve"), json!({})).await.refused(409, "already_voted");
    let token = token(&server, &approval, "ann").await;
    let done = decide(&server, &token, "approve").await.expect(200);
    assert_eq!(done["status"], "approved");
    let votes = &done["votes"];
    assert_eq!(column(votes, "actor"), [json!("api"), json!("ann")]);
    assert_eq!(column(votes, "via"), [json!("key"), json!("token")]);
    assert_eq!(column(votes, "comment"), [json!("the amount is right"), json!("seen")]);
    assert_eq!(server.task(&task).await["status"], "pending");
    let history = server.get(&format!("/v1/tasks/{task}/history")).await.expect(200);
    let last = history["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["event"], &last["actor"]), (&json!("approve"), &json!("ann")));
    let told = json!({
        "approval": approval["id"], "approvers": ["api", "ann"], "comment": "seen",
    });
    assert_eq!(last["metadata"], told);
}

async fn what_was_approved_is_answered_and_does_not_park(server: Server) {
    let (task, _, approval) = parked(&server).await;
    server.post(&path(&approval, "/approve"), json!({})).await.expect(200);
    let queue = text(&server.task(&task).await["queue"]);
    let session = server.worker(&queue, 1).await;
    let (_, lease) = server.claim(&session).await;
    let again = ask(&server, &task, question(&lease)).await.expect(200);
    assert_eq!((&again["status"], &again["approval"]["id"]), (&json!("approved"), &approval["id"]));
    assert_eq!(server.task(&task).await["status"], "running");
    let mut other = question(&lease);
    other["arguments"]["amount"] = json!(1_000_000);
    let other = ask(&server, &task, other).await.expect(200);
    assert_eq!(other["status"], "open");
    assert_ne!(other["approval"]["digest"], approval["digest"]);
}

async fn an_open_question_is_answered_again(server: Server) {
    let (task, lease, approval) = parked(&server).await;
    let again = ask(&server, &task, question(&lease)).await.expect(200);
    assert_eq!((&again["status"], &again["approval"]["id"]), (&json!("open"), &approval["id"]));
    let stranger = question(&uuid::Uuid::new_v4().to_string());
    ask(&server, &task, stranger).await.refused(409, "lease_lost");
    server.post(&path(&approval, "/approve"), json!({})).await.expect(200);
    // It was answered: the next holder goes on, not this one.
    ask(&server, &task, question(&lease)).await.refused(409, "lease_lost");
}

async fn a_denial_fails_the_task(server: Server) {
    let (task, _, approval) = parked(&server).await;
    let said = json!({ "comment": "not to eve" });
    let denied = server.post(&path(&approval, "/deny"), said).await.expect(200);
    assert_eq!(denied["status"], "denied");
    let error = &server.task(&task).await["error"];
    assert_eq!(error["code"], "APPROVAL_DENIED");
    assert_eq!(error["message"], "approval denied: not to eve");
    server.post(&path(&approval, "/approve"), json!({})).await.refused(409, "already_decided");
    // A cancelled task withdraws its question.
    let (task, _, approval) = parked(&server).await;
    server.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.expect(200);
    server.post(&path(&approval, "/approve"), json!({})).await.refused(409, "approval_withdrawn");
    assert_eq!(server.get(&path(&approval, "")).await.expect(200)["status"], "withdrawn");
}

async fn a_token_decides_without_anything_else_and_once(server: Server) {
    let (task, lease) = running(&server).await;
    let mut body = question(&lease);
    body["approvers"] = json!(3);
    let approval = ask(&server, &task, body).await.expect(200)["approval"].clone();
    let first = token(&server, &approval, "ann").await;
    let newer = token(&server, &approval, "ann").await;
    assert_ne!(first, newer);
    decide(&server, &first, "approve").await.refused(404, "not_found");
    decide(&server, &newer, "approve").await.expect(200);
    decide(&server, &newer, "deny").await.refused(409, "already_decided");
    let body = json!({ "approver": "bob", "expires_ms": 1 });
    let brief = server.post(&path(&approval, "/tokens"), body).await.expect(201);
    super::server::eventually("the token expires", || async {
        let reply = decide(&server, &text(&brief["token"]), "approve").await;
        assert_ne!(reply.status, 404);
        reply.status == 410 || reply.status == 200 || reply.status == 409
    })
    .await;
    assert_eq!(server.task(&task).await["status"], "waiting_for_approval");
}

async fn a_wrong_token_is_refused_like_one_that_never_was(server: Server) {
    let (_, _, approval) = parked(&server).await;
    let good = token(&server, &approval, "ann").await;
    let mut forged = good.clone();
    forged.replace_range(90..100, "0123456789");
    let mut answers = Vec::new();
    for wrong in [forged.as_str(), &format!("wla_{}", "0".repeat(96)), "nonsense", ""] {
        let mut problem = decide(&server, wrong, "approve").await.refused(404, "not_found");
        problem["request_id"] = json!(null);
        answers.push(problem);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:#?}");
    decide(&server, &good, "approve").await.expect(200);
}

async fn a_decision_about_something_else_is_refused(server: Server) {
    let (task, _, approval) = parked(&server).await;
    let (_, _, other) = parked(&server).await;
    assert_eq!(approval["digest"], other["digest"], "the same action and arguments");
    let stale = json!({ "digest": "0".repeat(64) });
    let reply = server.post(&path(&approval, "/approve"), stale.clone()).await;
    reply.refused(409, "digest_mismatch");
    let token = token(&server, &approval, "ann").await;
    let body = json!({ "token": token, "decision": "approve", "digest": "0".repeat(64) });
    server.post("/v1/approvals/decide", body.clone()).await.refused(409, "digest_mismatch");
    assert_eq!(server.task(&task).await["status"], "waiting_for_approval");
    // The token was not used up by the mistake.
    let mut right = body;
    right["digest"] = approval["digest"].clone();
    assert_eq!(server.post("/v1/approvals/decide", right).await.expect(200)["status"], "approved");
}

async fn a_worker_never_sees_a_token(server: Server) {
    let (task, lease, approval) = parked(&server).await;
    let token = token(&server, &approval, "ann").await;
    let again = ask(&server, &task, question(&lease)).await.text;
    decide(&server, &token, "approve").await.expect(200);
    let queue = text(&server.task(&task).await["queue"]);
    let session = server.worker(&queue, 1).await;
    let claim = json!({ "max": 1, "wait_ms": 10_000 });
    let claimed = server.post(&format!("/v1/sessions/{session}/claim"), claim).await.text;
    let mut seen = vec![again, claimed, server.log().join("\n")];
    for path in [
        format!("/v1/tasks/{task}"),
        format!("/v1/tasks/{task}/history"),
        path(&approval, ""),
        "/v1/approvals".to_owned(),
        "/v1/audit".to_owned(),
    ] {
        seen.push(server.get(&path).await.text);
    }
    for text in seen {
        assert!(!text.contains(&token[36..]) && !text.contains("wla_"), "{text}");
    }
}

async fn what_is_shown_cannot_deceive(server: Server) {
    let (task, lease) = running(&server).await;
    let arguments =
        json!({ "file": "invoice\u{202e}fdp.exe", "note": "a\u{200b}\u{1b}[2J\u{e0041}" });
    let body = json!({
        "lease_id": lease, "gate": "run", "action": "open", "arguments": arguments,
    });
    let approval = ask(&server, &task, body).await.expect(200)["approval"].clone();
    assert_eq!(approval["arguments"], arguments);
    let shown = text(&approval["display"]["arguments"]);
    let expected = "{\"file\":\"invoice\\u202efdp.exe\",\
                    \"note\":\"a\\u200b\\u001b[2J\\udb40\\udc41\"}";
    assert_eq!(shown, expected);
    assert_eq!(serde_json::from_str::<Json>(&shown).unwrap(), arguments, "the same value");
}

async fn lists_filter_and_go_on(server: Server) {
    let mut ids = Vec::new();
    for n in 0..5 {
        let (task, _, approval) = parked(&server).await;
        if n < 2 {
            server.post(&path(&approval, "/deny"), json!({})).await.expect(200);
        }
        ids.insert(0, (approval["id"].clone(), task));
    }
    let list = async |query: &str| {
        let page = server.get(&format!("/v1/approvals?{query}")).await.expect(200);
        (column(&page["items"], "id"), page["next_cursor"].clone())
    };
    let all: Vec<Json> = ids.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(list("").await, (all.clone(), json!(null)));
    assert_eq!(list("status=open").await.0, all[..3]);
    assert_eq!(list("status=denied&gate=pay").await.0, all[3..]);
    assert_eq!(list("gate=other").await.0, [] as [Json; 0]);
    assert_eq!(list(&format!("task_id={}", ids[2].1)).await.0, all[2..3]);
    let (first, cursor) = list("limit=3").await;
    let (rest, end) = list(&format!("limit=3&cursor={}", text(&cursor))).await;
    assert_eq!(([first, rest].concat(), end), (all, json!(null)));
}

async fn refusals_are_in_the_audit(server: Server) {
    let (_, _, approval) = parked(&server).await;
    let token = token(&server, &approval, "ann").await;
    decide(&server, "wla_wrong", "approve").await.refused(404, "not_found");
    let stale = json!({ "token": token, "decision": "approve", "digest": "00" });
    server.post("/v1/approvals/decide", stale).await.refused(409, "digest_mismatch");
    decide(&server, &token, "deny").await.expect(200);
    decide(&server, &token, "approve").await.refused(409, "already_decided");
    let page = server.get("/v1/audit?event=approval_refused").await.expect(200);
    let entries = page["items"].as_array().unwrap();
    let seen: Vec<_> =
        entries.iter().map(|e| (text(&e["actor"]), text(&e["detail"]["code"]))).collect();
    let entry = |actor: &str, code: &str| (actor.to_owned(), code.to_owned());
    let expected = [
        entry("ann", "already_decided"),
        entry("ann", "digest_mismatch"),
        entry("unknown", "not_found"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[0]["detail"]["approval"], approval["id"]);
    let all = server.get("/v1/audit?limit=2").await.expect(200);
    let rest = text(&all["next_cursor"]);
    let rest = server.get(&format!("/v1/audit?cursor={rest}")).await.expect(200);
    let events = [column(&all["items"], "event"), column(&rest["items"], "event")].concat();
    assert!(events.contains(&json!("approval_token_issued")), "{events:?}");
}

async fn every_bad_request_is_refused_with_its_place(server: Server) {
    let (task, lease) = running(&server).await;
    for (change, pointer, code) in [
        (json!({ "gate": "" }), "/gate", "required"),
        (json!({ "gate": "a\u{202e}b" }), "/gate", "bad_character"),
        (json!({ "gate": 7 }), "/gate", "wrong_type"),
        (json!({ "action": "x".repeat(256) }), "/action", "too_long"),
        (json!({ "action": "two\nlines" }), "/action", "bad_character"),
        (json!({ "arguments": "x".repeat(65_536) }), "/arguments", "too_long"),
        (json!({ "expires_ms": 0 }), "/expires_ms", "out_of_range"),
        (json!({ "expires_ms": -1 }), "/expires_ms", "out_of_range"),
        (json!({ "expires_ms": i64::MAX }), "/expires_ms", "out_of_range"),
        (json!({ "expires_ms": "1h" }), "/expires_ms", "wrong_type"),
        (json!({ "approvers": 0 }), "/approvers", "out_of_range"),
        (json!({ "approvers": 101 }), "/approvers", "out_of_range"),
        (json!({ "approvers": ["ann"] }), "/approvers", "wrong_type"),
        (json!({ "occurrence": -1 }), "/occurrence", "out_of_range"),
        (json!({ "lease_id": "x" }), "/lease_id", "wrong_type"),
        (json!({ "token": "x" }), "/token", "unknown_field"),
        (json!({ "requested_by": "root" }), "/requested_by", "unknown_field"),
    ] {
        let mut body = question(&lease);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let problem = ask(&server, &task, body).await.refused(422, "validation_failed");
        let found = (&problem["errors"][0]["pointer"], &problem["errors"][0]["code"]);
        assert_eq!(found, (&json!(pointer), &json!(code)), "{change}");
    }
    assert_eq!(server.task(&task).await["status"], "running");
    let approval = ask(&server, &task, question(&lease)).await.expect(200)["approval"].clone();
    for (rest, body, pointer) in [
        ("/approve", json!({ "comment": "x".repeat(1_001) }), "/comment"),
        ("/approve", json!({ "actor": "root" }), "/actor"),
        ("/deny", json!({ "comment": 7 }), "/comment"),
        ("/tokens", json!({}), "/approver"),
        ("/tokens", json!({ "approver": "" }), "/approver"),
        ("/tokens", json!({ "approver": "ann", "expires_ms": 0 }), "/expires_ms"),
    ] {
        let problem = server.post(&path(&approval, rest), body).await;
        let problem = problem.refused(422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{rest}");
    }
    for (body, pointer) in [
        (json!({ "decision": "approve" }), "/token"),
        (json!({ "token": "x" }), "/decision"),
        (json!({ "token": "x", "decision": "perhaps" }), "/decision"),
    ] {
        let problem = server.post("/v1/approvals/decide", body).await;
        assert_eq!(problem.refused(422, "validation_failed")["errors"][0]["pointer"], pointer);
    }
    for (path, status, code) in [
        ("/v1/approvals/x", 400, "invalid_id"),
        ("/v1/approvals/00000000-0000-4000-8000-000000000000", 404, "not_found"),
        ("/v1/approvals?status=maybe", 422, "validation_failed"),
        ("/v1/approvals?limit=0", 422, "validation_failed"),
        ("/v1/approvals?cursor=x", 400, "invalid_cursor"),
        ("/v1/approvals?colour=red", 422, "validation_failed"),
        ("/v1/audit?cursor=x", 400, "invalid_cursor"),
    ] {
        server.get(path).await.refused(status, code);
    }
    let nowhere = "/v1/approvals/00000000-0000-4000-8000-000000000000/approve";
    server.post(nowhere, json!({})).await.refused(404, "not_found");
    assert_eq!(server.get(&path(&approval, "")).await.expect(200)["votes"], json!([]));
}
