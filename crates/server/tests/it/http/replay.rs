//! Replay over HTTP and on the command line: planned, refused by name, allowed, or asked for.

use super::server::{Place, Reply, Server, column, eventually, text};
use super::step::{on, running};
use super::step_command::{ok, told, windlass};
use serde_json::{Value as Json, json};

super::facts!(
    a_replay_is_a_new_task_that_takes_done_steps_along,
    a_plan_says_what_becomes_of_each_step_and_changes_nothing,
    what_must_not_run_twice_is_refused_by_name_unless_allowed,
    a_permission_covers_one_further_run,
    a_step_that_an_ended_task_left_is_decided_and_its_replay_sees_it,
    the_second_replay_waits_for_a_person,
    a_denied_replay_makes_no_task,
    a_replay_sent_twice_is_one_task,
    only_a_finished_task_is_replayed,
    every_bad_replay_is_refused_with_its_place,
    a_person_replays_on_the_command_line,
    a_poisoned_task_is_resolved_by_its_replay_in_one_transaction,
);

/// A task that recorded `read`, charged, recorded `write` with a checkpoint, and failed.
async fn failed(server: &Server) -> String {
    let (id, lease, _) = running(server).await;
    let record = async |name: &str| {
        let body = json!({ "name": name, "result": name, "checkpoint": {"after": name} });
        on(server, &id, "steps/record", &lease, body).await.expect(200);
    };
    record("read").await;
    let charge = json!({ "name": "charge", "idempotent": false });
    let begun = on(server, &id, "steps", &lease, charge).await.expect(200);
    let path = format!("/v1/steps/{}/complete", text(&begun["id"]));
    server.post(&path, json!({ "lease_id": lease, "result": "paid" })).await.expect(200);
    record("write").await;
    let error = json!({ "error": {"code": "INVALID_INPUT", "message": "no"} });
    let task = on(server, &id, "fail", &lease, error).await.expect(200);
    assert_eq!(task["status"], "failed");
    id
}

async fn replay(server: &Server, id: &str, body: Json) -> Reply {
    server.post(&format!("/v1/tasks/{id}/replay"), body).await
}

async fn names(server: &Server, id: &str) -> Vec<Json> {
    let steps = server.get(&format!("/v1/tasks/{id}/steps")).await.expect(200);
    column(&steps["items"], "name")
}

async fn replays(server: &Server, id: &str) -> Vec<Json> {
    let listed = server.get(&format!("/v1/tasks?replay_of={id}")).await.expect(200);
    column(&listed["items"], "id")
}

async fn a_replay_is_a_new_task_that_takes_done_steps_along(server: Server) {
    let origin = failed(&server).await;
    let before = server.task(&origin).await;
    let new = replay(&server, &origin, json!({ "from": "step", "step": "write" })).await;
    let new = new.expect(201);
    assert_eq!((&new["status"], &new["replay_of"]), (&json!("pending"), &json!(origin)));
    assert_eq!((&new["queue"], &new["payload"]), (&before["queue"], &before["payload"]));
    let id = text(&new["id"]);
    assert_eq!(names(&server, &id).await, ["read", "charge"]);
    let mut expected = before;
    expected["replay_count"] = json!(1);
    assert_eq!(server.task(&origin).await, expected, "the origin stays as it is");
    // Its worker goes past what was taken along.
    let session = server.worker(&text(&new["queue"]), 1).await;
    let path = format!("/v1/sessions/{session}/claim");
    let claimed = server.post(&path, json!({ "wait_ms": 10_000 })).await.expect(200);
    let taken = &claimed["assignments"][0];
    assert_eq!(column(&taken["steps"], "result"), ["read", "paid"]);
    assert!(taken["steps"][0]["copied_from"].is_string());
    let lease = text(&taken["lease_id"]);
    let charge = json!({ "name": "charge", "idempotent": false });
    let begun = on(&server, &id, "steps", &lease, charge).await.expect(200);
    assert_eq!((&begun["status"], &begun["result"]), (&json!("done"), &json!("paid")));
    let whole = failed(&server).await;
    let new = replay(&server, &whole, json!({ "from": "last_checkpoint" })).await.expect(201);
    assert_eq!(new["checkpoint"], json!({ "after": "write" }));
    assert_eq!(names(&server, &text(&new["id"])).await.len(), 3);
}

async fn a_plan_says_what_becomes_of_each_step_and_changes_nothing(server: Server) {
    let origin = failed(&server).await;
    for (body, fates, permitted) in [
        (json!({ "from": "beginning" }), ["rerun", "refused", "rerun"], false),
        (
            json!({ "from": "beginning", "allow_non_idempotent": true }),
            ["rerun", "rerun", "rerun"],
            true,
        ),
        (json!({ "from": "last_checkpoint" }), ["reused", "reused", "reused"], true),
        (json!({ "from": "step", "step": "write" }), ["reused", "reused", "rerun"], true),
    ] {
        let mut body = body;
        body["dry_run"] = json!(true);
        let plan = replay(&server, &origin, body.clone()).await.expect(200);
        assert_eq!(column(&plan["steps"], "fate"), fates, "{body}");
        assert_eq!(plan["permitted"], permitted, "{body}");
        assert_eq!(plan["checkpoint"], body["from"] == "last_checkpoint");
        assert_eq!(plan["needs_approval"], false);
    }
    let plan = json!({ "from": "beginning", "dry_run": true, "require_approval": true });
    assert_eq!(replay(&server, &origin, plan).await.expect(200)["needs_approval"], true);
    assert_eq!(replays(&server, &origin).await, [] as [Json; 0]);
}

async fn what_must_not_run_twice_is_refused_by_name_unless_allowed(server: Server) {
    let origin = failed(&server).await;
    let body = json!({ "from": "step", "step": "charge" });
    let problem = replay(&server, &origin, body).await.refused(409, "not_idempotent");
    assert!(text(&problem["detail"]).contains("charge"), "{problem}");
    let body = json!({ "from": "step", "step": "nope" });
    let problem = replay(&server, &origin, body).await.refused(409, "no_such_step");
    assert!(text(&problem["detail"]).contains("read, charge, write"), "{problem}");
    assert_eq!(replays(&server, &origin).await, [] as [Json; 0]);
    let body = json!({ "from": "step", "step": "charge", "allow_non_idempotent": true });
    let new = replay(&server, &origin, body).await.expect(201);
    assert_eq!(names(&server, &text(&new["id"])).await, ["read"]);
}

async fn a_permission_covers_one_further_run(server: Server) {
    let (origin, lease, session) = running(&server).await;
    let charge = json!({ "name": "charge", "idempotent": false });
    let begun = on(&server, &origin, "steps", &lease, charge.clone()).await.expect(200);
    server.post(&format!("/v1/tasks/{origin}/cancel"), json!({})).await.expect(200);
    let path = format!("/v1/steps/{}/resolve", text(&begun["id"]));
    server.post(&path, json!({ "action": "allow_rerun" })).await.expect(200);
    let last = json!({ "from": "last_checkpoint" });
    let plan = json!({ "from": "last_checkpoint", "dry_run": true });
    let before = replay(&server, &origin, plan.clone()).await.expect(200);
    assert_eq!((&before["permitted"], &before["checkpoint"]), (&json!(true), &json!(false)));
    replay(&server, &origin, last.clone()).await.expect(201);
    let (first, lease) = server.claim(&session).await;
    on(&server, &first, "steps", &lease, charge).await.expect(200);
    server.post(&format!("/v1/tasks/{first}/cancel"), json!({})).await.expect(200);
    let after = replay(&server, &origin, plan).await.expect(200);
    let line = &after["steps"][0];
    assert_eq!((&line["fate"], &line["run_in"]), (&json!("refused"), &json!(first)));
    assert_eq!((&line["idempotent"], &after["permitted"]), (&json!(false), &json!(false)));
    let shown = ok(&server, &["task", "replay", &origin, "--dry-run"]);
    assert!(shown.contains("RUN IN") && shown.contains(&first), "{shown}");
    let problem = replay(&server, &origin, last).await.refused(409, "not_idempotent");
    let detail = text(&problem["detail"]);
    assert!(detail.contains("charge") && detail.contains(&first), "{detail}");
    let again = json!({ "from": "last_checkpoint", "allow_non_idempotent": true });
    let asked = replay(&server, &origin, again).await.expect(202)["approval"].clone();
    assert_eq!(asked["arguments"]["runs_again"], json!({ "charge": 1 }), "{asked}");
}

async fn a_step_that_an_ended_task_left_is_decided_and_its_replay_sees_it(server: Server) {
    let (id, lease, _) = running(&server).await;
    let charge = json!({ "name": "charge", "inputs": {"order": 7}, "idempotent": false });
    let begun = on(&server, &id, "steps", &lease, charge).await.expect(200);
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    let ended = server.task(&id).await;
    let listed = server.get("/v1/steps?status=in_doubt").await.expect(200)["items"].clone();
    assert_eq!(column(&listed, "id"), [begun["id"].clone()]);
    assert_eq!(column(&listed, "status"), ["in_doubt"]);
    let last = json!({ "from": "last_checkpoint" });
    replay(&server, &id, last.clone()).await.refused(409, "not_idempotent");
    let path = format!("/v1/steps/{}/resolve", text(&begun["id"]));
    let decision = json!({ "action": "record_result", "result": 5, "reason": "I looked" });
    assert_eq!(server.post(&path, decision).await.expect(200)["status"], "done");
    assert_eq!(server.task(&id).await, ended, "a finished task never changes");
    let audit = server.get("/v1/audit?event=step_resolved").await.expect(200);
    let detail = &audit["items"][0]["detail"];
    assert_eq!((&audit["items"][0]["actor"], &detail["task"]), (&json!("api"), &json!(id)));
    assert_eq!((&detail["step"], &detail["action"]), (&begun["id"], &json!("record_result")));
    assert_eq!(detail["reason"], "I looked");
    let listed = ok(&server, &["audit", "list", "--event", "step_resolved"]);
    assert!(listed.contains("I looked"), "{listed}");
    let listed = ok(&server, &["audit", "list", "--limit", "1", "--json"]);
    assert_eq!(serde_json::from_str::<Json>(&listed).unwrap()["items"], audit["items"]);
    let new = replay(&server, &id, last).await.expect(201);
    let steps = server.get(&format!("/v1/tasks/{}/steps", text(&new["id"]))).await.expect(200);
    assert_eq!(column(&steps["items"], "result"), [5]);
}

async fn the_second_replay_waits_for_a_person(server: Server) {
    let origin = failed(&server).await;
    let body = json!({ "from": "last_checkpoint" });
    replay(&server, &origin, body.clone()).await.expect(201);
    let asked = replay(&server, &origin, body.clone()).await.expect(202)["approval"].clone();
    assert_eq!((&asked["kind"], &asked["status"]), (&json!("replay"), &json!("open")));
    assert_eq!((&asked["task_id"], &asked["action"]), (&json!(origin), &json!("replay")));
    let again = replay(&server, &origin, body).await.expect(202);
    assert_eq!(again["approval"]["id"], asked["id"], "the same question is asked once");
    assert_eq!(replays(&server, &origin).await.len(), 1);
    // A worker that waits gets it as soon as it is approved.
    let task = server.task(&origin).await;
    let session = server.worker(&text(&task["queue"]), 2).await;
    assert_ne!(server.claim(&session).await.0, text(&asked["request"]["id"]));
    let approve = format!("/v1/approvals/{}/approve", text(&asked["id"]));
    let decided = server.post(&approve, json!({})).await.expect(200);
    assert_eq!(decided["status"], "approved");
    let (taken, _) = server.claim(&session).await;
    assert_eq!(json!(taken), asked["request"]["id"]);
    let new = server.task(&taken).await;
    assert_eq!((&new["replay_of"], &new["checkpoint"]["after"]), (&json!(origin), &json!("write")));
    server.post(&approve, json!({})).await.refused(409, "already_decided");
    assert_eq!(replays(&server, &origin).await.len(), 2);
    // Whoever asked can ask what became of it, by the id it chose.
    let id = uuid::Uuid::new_v4().to_string();
    let body = json!({ "from": "last_checkpoint", "id": id });
    let asked = replay(&server, &origin, body.clone()).await.expect(202);
    let approve = format!("/v1/approvals/{}/approve", text(&asked["approval"]["id"]));
    server.post(&approve, json!({})).await.expect(200);
    assert_eq!(replay(&server, &origin, body).await.expect(200)["id"], json!(id));
}

async fn a_denied_replay_makes_no_task(server: Server) {
    let origin = failed(&server).await;
    let body =
        json!({ "from": "beginning", "allow_non_idempotent": true, "require_approval": true });
    let asked = replay(&server, &origin, body.clone()).await.expect(202)["approval"].clone();
    let steps = server.get(&format!("/v1/tasks/{origin}/steps")).await.expect(200);
    let charged = steps["items"].as_array().unwrap().iter().find(|step| step["name"] == "charge");
    let last_run = &charged.unwrap()["run"];
    assert!(last_run.is_number(), "{steps}");
    let shown = json!({ "task": origin, "from": "beginning", "allow_non_idempotent": true,
        "runs_again": {"charge": 1}, "last_run": last_run });
    assert_eq!(asked["arguments"], shown, "the approver sees what would be done");
    let deny = format!("/v1/approvals/{}/deny", text(&asked["id"]));
    assert_eq!(server.post(&deny, json!({})).await.expect(200)["status"], "denied");
    assert_eq!(replays(&server, &origin).await, [] as [Json; 0]);
    let other = replay(&server, &origin, body).await.expect(202)["approval"].clone();
    assert_ne!(other["id"], asked["id"], "what was denied can be asked again");
}

async fn a_replay_sent_twice_is_one_task(server: Server) {
    let origin = failed(&server).await;
    let id = uuid::Uuid::new_v4().to_string();
    let body = json!({ "from": "last_checkpoint", "id": id });
    let first = replay(&server, &origin, body.clone()).await.expect(201);
    assert_eq!(first["id"], json!(id));
    let again = replay(&server, &origin, body).await;
    assert_eq!(again.header("windlass-duplicate"), Some("true"));
    assert_eq!(again.expect(200), first);
    let other = json!({ "from": "step", "step": "write", "id": id });
    replay(&server, &origin, other).await.refused(422, "idempotency_key_reused");
    assert_eq!(replays(&server, &origin).await, [json!(id)]);
}

async fn only_a_finished_task_is_replayed(server: Server) {
    let (id, _, _) = running(&server).await;
    for dry_run in [true, false] {
        let body = json!({ "from": "beginning", "dry_run": dry_run });
        replay(&server, &id, body.clone()).await.refused(409, "not_finished");
        let nobody = "11111111-2222-4333-8444-555555555555";
        replay(&server, nobody, body).await.refused(404, "not_found");
    }
}

async fn every_bad_replay_is_refused_with_its_place(server: Server) {
    let origin = failed(&server).await;
    for (body, pointer, code) in [
        (json!({}), "/from", "required"),
        (json!({ "from": "end" }), "/from", "unknown_value"),
        (json!({ "from": 7 }), "/from", "wrong_type"),
        (json!({ "from": "step" }), "/step", "required"),
        (json!({ "from": "beginning", "step": "read" }), "/step", "conflict"),
        (json!({ "from": "step", "step": 1 }), "/step", "wrong_type"),
        (json!({ "from": "beginning", "id": "7" }), "/id", "wrong_type"),
        (json!({ "from": "beginning", "dry_run": "yes" }), "/dry_run", "wrong_type"),
        (json!({ "from": "beginning", "force": true }), "/force", "unknown_field"),
    ] {
        let problem =
            replay(&server, &origin, body.clone()).await.refused(422, "validation_failed");
        let first = &problem["errors"][0];
        let found = (&first["pointer"], &first["code"]);
        assert_eq!(found, (&json!(pointer), &json!(code)), "{body}: {problem}");
    }
    assert_eq!(replays(&server, &origin).await, [] as [Json; 0]);
}

async fn a_person_replays_on_the_command_line(server: Server) {
    let origin = failed(&server).await;
    let plan = windlass(&server, &["task", "replay", &origin, "--from", "beginning", "--dry-run"]);
    assert!(plan.status.success(), "{plan:?}");
    let shown = String::from_utf8_lossy(&plan.stdout).into_owned();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("STEP") && lines[2].contains("refused"), "{shown}");
    assert!(String::from_utf8_lossy(&plan.stderr).contains("--allow-non-idempotent"), "{plan:?}");
    let said = told(&server, &["task", "replay", &origin, "--step", "charge"], 1);
    assert!(said.contains("not_idempotent") && said.contains("charge"), "{said}");
    let flags = ["task", "replay", &origin, "--step", "charge", "--allow-non-idempotent"];
    let new = ok(&server, &flags);
    assert_eq!(server.task(new.trim()).await["replay_of"], json!(origin));
    let second = windlass(&server, &["task", "replay", &origin]);
    assert!(second.status.success(), "{second:?}");
    let approval = String::from_utf8_lossy(&second.stdout).trim().to_owned();
    let hint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(hint.contains(&format!("windlass approval approve {approval}")), "{hint}");
    ok(&server, &["approval", "approve", &approval]);
    eventually("the approved replay is there", || async {
        replays(&server, &origin).await.len() == 2
    })
    .await;
}

async fn a_poisoned_task_is_resolved_by_its_replay_in_one_transaction(server: Server) {
    let poisoned = async || {
        let (id, lease, _) = running(&server).await;
        let body = json!({ "name": "read", "result": 1 });
        on(&server, &id, "steps/record", &lease, body).await.expect(200);
        let error = json!({ "error": {"code": "POISON_TASK", "message": "no"} });
        let ended = on(&server, &id, "fail", &lease, error).await.expect(200);
        assert_eq!(ended["status"], "poisoned");
        id
    };
    let id = poisoned().await;
    let path = format!("/v1/poison/{id}/resolve");
    for (body, pointer) in [
        (json!({ "replay": {} }), "/replay/from"),
        (json!({ "replay": [] }), "/replay"),
        (json!({ "replay": {"from": "step"} }), "/replay/step"),
        (json!({ "replay": {"from": "beginning", "dry_run": true} }), "/replay/dry_run"),
        (json!({ "replay": {"from": "beginning"}, "resolved_by_task": id }), "/resolved_by_task"),
    ] {
        let problem = server.post(&path, body).await.refused(422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let wrong = json!({ "replay": {"from": "step", "step": "nope"} });
    server.post(&path, wrong).await.refused(409, "no_such_step");
    let entry = server.get(&format!("/v1/poison/{id}")).await.expect(200);
    assert_eq!(entry["status"], "pending", "what is refused changes nothing");
    let body = json!({ "replay": {"from": "last_checkpoint"}, "note": "again" });
    let resolved = server.post(&path, body.clone()).await.expect(200);
    assert_eq!(resolved["status"], "resolved");
    let new = text(&resolved["resolved_by_task"]);
    assert_eq!(server.task(&new).await["replay_of"], json!(id));
    assert_eq!(names(&server, &new).await, ["read"]);
    server.post(&path, body).await.refused(409, "illegal_transition");
    assert_eq!(replays(&server, &id).await.len(), 1, "nor is anything made by what is refused");
    // If a person must agree first, the entry stays open until then.
    let body = json!({ "replay": {"from": "beginning", "require_approval": true} });
    let asking = async || {
        let id = poisoned().await;
        let path = format!("/v1/poison/{id}/resolve");
        let asked = server.post(&path, body.clone()).await.expect(202)["approval"].clone();
        assert_eq!(asked["task_id"], json!(id));
        let entry = server.get(&format!("/v1/poison/{id}")).await.expect(200);
        assert_eq!(entry["status"], "pending");
        (id, asked)
    };
    let (id, asked) = asking().await;
    assert!(asked["expires_at"].is_string(), "{asked}");
    let approve = format!("/v1/approvals/{}/approve", text(&asked["id"]));
    server.post(&approve, json!({})).await.expect(200);
    let entry = server.get(&format!("/v1/poison/{id}")).await.expect(200);
    assert_eq!(entry["status"], "resolved");
    assert_eq!(entry["resolved_by_task"], asked["request"]["id"]);
    let (id, asked) = asking().await;
    let shown = ok(&server, &["poison", "resolve", &id, "--replay", "--note", "again"]);
    assert!(shown.contains("resolved_by_task"), "{shown}");
    // It is resolved, so the question whether it may be has no answer any more.
    let asked = format!("/v1/approvals/{}", text(&asked["id"]));
    let approve = server.post(&format!("{asked}/approve"), json!({})).await;
    approve.refused(409, "illegal_transition");
    assert_eq!(server.get(&asked).await.expect(200)["status"], "withdrawn");
    let said = told(&server, &["poison", "resolve", &id, "--from", "beginning"], 2);
    assert!(said.contains("--replay"), "{said}");
}

async fn with_settings(place: Place) {
    let keys = "bot:worker:worker-key-0123456789,ann:ann-key-0123456789abc,\
        bob:bob-key-0123456789abc";
    let settings = [("WINDLASS_KEYS", keys), ("WINDLASS_REPLAY_APPROVAL_THRESHOLD", "0")];
    let server = Server::start(place, &settings).await;
    let post = async |key: &str, path: &str, body: Json| {
        let request = server.request(reqwest::Method::POST, path).json(&body);
        server.send(request.header("authorization", format!("Bearer {key}"))).await
    };
    let (bot, ann, bob) =
        ("worker-key-0123456789", "ann-key-0123456789abc", "bob-key-0123456789abc");
    let task = post(bot, "/v1/tasks", json!({ "queue": "q" })).await.expect(201);
    let path = format!("/v1/tasks/{}", text(&task["id"]));
    post(bot, &format!("{path}/cancel"), json!({})).await.expect(200);
    let body = json!({ "from": "beginning" });
    post(bot, &format!("{path}/replay"), body.clone()).await.refused(403, "forbidden");
    let step = "/v1/steps/11111111-2222-4333-8444-555555555555/resolve";
    post(bot, step, json!({ "action": "fail" })).await.refused(403, "forbidden");
    // With a threshold of 0 the first replay needs a person, and not the one who asks.
    let asked = post(ann, &format!("{path}/replay"), body).await.expect(202);
    assert_eq!(asked["approval"]["requested_by"], "ann");
    let approve = format!("/v1/approvals/{}/approve", text(&asked["approval"]["id"]));
    post(ann, &approve, json!({})).await.refused(403, "self_approval");
    post(bob, &approve, json!({})).await.expect(200);
    let new = format!("/v1/tasks/{}", text(&asked["approval"]["request"]["id"]));
    let request = server.request(reqwest::Method::GET, &new);
    let new = server.send(request.header("authorization", format!("Bearer {ann}"))).await;
    assert_eq!(new.expect(200)["replay_of"], task["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_replay_does_not_approve_it_on_sqlite() {
    with_settings(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_replay_does_not_approve_it_on_postgres() {
    with_settings(Place::postgres()).await;
}
