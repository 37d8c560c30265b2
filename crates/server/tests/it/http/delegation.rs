//! Delegations over HTTP and on the command line.

use super::facts;
use super::poison::run;
use super::server::{Server, column, eventually, text};
use reqwest::Method;
use serde_json::{Value as Json, json};
use uuid::Uuid;
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Handlers};
use windlass::store::session::Routes;
use windlass::worker::WorkerOptions;

facts!(
    a_ledger_is_kept_without_a_lease,
    what_changes_nothing_is_answered_as_such,
    a_repeated_delegation_is_a_no_op_and_says_so,
    what_is_not_the_callers_own_is_refused,
    a_difference_is_told_wherever_it_was_delegated,
    a_sweep_by_hand_is_audited,
    required_fields_are_told_at_once,
    an_executed_delegation_is_reported_under_its_lease,
    a_list_shows_previews_and_a_delegation_the_whole,
    an_end_reaches_the_callers_inbox_unless_it_is_switched_off,
    the_sweeper_obeys_its_variables,
    a_handler_elsewhere_delegates_and_waits,
    the_command_line_does_all_of_it_for_companies_and_delegations,
);

async fn delegate(server: &Server, extra: Json) -> Json {
    let mut body = json!({ "caller": "ada", "callee": "bob", "payload": "work" });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post("/v1/delegations", body).await.expect(201)
}

async fn ledger(server: &Server) -> String {
    text(&delegate(server, json!({ "mode": "ledger" })).await["id"])
}

async fn status(server: &Server, id: &str, body: Json) -> Json {
    server.post(&format!("/v1/delegations/{id}/status"), body).await.expect(200)
}

async fn a_ledger_is_kept_without_a_lease(server: Server) {
    let made = delegate(&server, json!({ "mode": "ledger", "name": "report" })).await;
    assert_eq!((&made["mode"], &made["status"]), (&json!("ledger"), &json!("pending")));
    assert_eq!((&made["duplicate"], &made["payload_differs"]), (&json!(false), &json!(false)));
    assert!(made["deadline_at"].is_string() && made["last_heartbeat_at"].is_null());
    let id = text(&made["id"]);
    for to in ["claimed", "running"] {
        let told = status(&server, &id, json!({ "status": to, "holder": "elsewhere" })).await;
        assert_eq!(told, json!({ "id": id, "changed": true, "status": to }));
    }
    let path = format!("/v1/delegations/{id}/heartbeat");
    let beat = server.send(server.request(Method::POST, &path)).await.expect(200);
    assert_eq!(beat, json!({ "id": id, "changed": true, "status": "running" }));
    status(&server, &id, json!({ "status": "completed", "result": { "n": 1 } })).await;
    let shown = server.get(&format!("/v1/delegations/{id}")).await.expect(200);
    assert_eq!((&shown["status"], &shown["result"]), (&json!("completed"), &json!({ "n": 1 })));
    assert_eq!(shown["claimed_by"], "elsewhere");
    assert!(shown["last_heartbeat_at"].is_string());
    let story = ["submit", "report", "report", "report"];
    assert_eq!(server.history(&id).await.len(), story.len());
}

async fn what_changes_nothing_is_answered_as_such(server: Server) {
    let id = ledger(&server).await;
    let unchanged = |id: &str, status: Json, reason: &str| {
        let changed = false;
        json!({ "id": id, "changed": changed, "status": status, "reason": reason })
    };
    let nothing = json!({ "status": "running", "result": null, "error": null, "holder": null,
        "lease_id": null });
    status(&server, &id, nothing).await;
    let told = status(&server, &id, json!({ "status": "running" })).await;
    assert_eq!(told, unchanged(&id, json!("running"), "same_status"));
    let told = status(&server, &id, json!({ "status": "claimed" })).await;
    assert_eq!(told, unchanged(&id, json!("running"), "not_forward"));
    let error = json!({ "code": "THEIRS", "message": "it broke", "detail": null });
    status(&server, &id, json!({ "status": "failed", "error": error })).await;
    let told = status(&server, &id, json!({ "status": "completed" })).await;
    assert_eq!(told, unchanged(&id, json!("failed"), "terminal"));
    let path = format!("/v1/delegations/{id}/heartbeat");
    let told = server.post(&path, json!({})).await.expect(200);
    assert_eq!(told, unchanged(&id, json!("failed"), "terminal"));
    let nobody = Uuid::new_v4().to_string();
    let told = status(&server, &nobody, json!({ "status": "completed" })).await;
    assert_eq!(told, unchanged(&nobody, Json::Null, "not_found"));
    let path = format!("/v1/delegations/{nobody}/heartbeat");
    let told = server.post(&path, json!({})).await.expect(200);
    assert_eq!(told, unchanged(&nobody, Json::Null, "not_found"));
    let job = server.submit("q").await;
    for id in [nobody, job] {
        let missing = server.get(&format!("/v1/delegations/{id}")).await.refused(404, "not_found");
        assert_eq!(missing["detail"], "there is no such delegation", "{id}");
    }
}

async fn a_repeated_delegation_is_a_no_op_and_says_so(server: Server) {
    let id = Uuid::new_v4().to_string();
    let body =
        |payload: &str| json!({ "caller": "ada", "callee": "bob", "id": id, "payload": payload });
    server.post("/v1/delegations", body("one")).await.expect(201);
    for (payload, differs) in [("one", false), ("two", true)] {
        let reply = server.post("/v1/delegations", body(payload)).await;
        assert_eq!(reply.header("windlass-duplicate"), Some("true"));
        let again = reply.expect(200);
        assert_eq!(
            (&again["duplicate"], &again["payload_differs"]),
            (&json!(true), &json!(differs))
        );
        assert_eq!(again["payload"], "one");
    }
    let by = |caller: &str| json!({ "caller": caller, "callee": "bob", "idempotency_key": "k" });
    let ada = server.post("/v1/delegations", by("ada")).await.expect(201);
    let eve = server.post("/v1/delegations", by("eve")).await.expect(201);
    assert_ne!(ada["id"], eve["id"]);
    let again = server.post("/v1/delegations", by("ada")).await.expect(200);
    assert_eq!(again["id"], ada["id"]);
}

async fn what_is_not_the_callers_own_is_refused(server: Server) {
    let id = ledger(&server).await;
    let job = server.submit("q").await;
    for (caller, id) in [("eve", &id), ("ada", &job)] {
        let body = json!({ "caller": caller, "callee": "bob", "id": id });
        let problem = server.post("/v1/delegations", body.clone()).await;
        problem.refused(422, "idempotency_key_reused");
        let told = server.post("/v1/tasks", body).await;
        told.refused(422, "idempotency_key_reused");
    }
}

async fn a_difference_is_told_wherever_it_was_delegated(server: Server) {
    let id = Uuid::new_v4().to_string();
    let body =
        |payload: i32| json!({ "caller": "ada", "callee": "bob", "id": id, "payload": payload });
    server.post("/v1/tasks", body(1)).await.expect(201);
    let same = server.post("/v1/tasks", body(1)).await;
    assert_eq!(same.header("windlass-payload-differs"), None);
    let other = server.post("/v1/tasks", body(2)).await;
    assert_eq!(other.header("windlass-payload-differs"), Some("true"));
    for atomic in [true, false] {
        let batch = json!({ "tasks": [body(1), body(2)], "atomic": atomic });
        let answer = server.post("/v1/tasks/batch", batch).await;
        let results = serde_json::from_str::<Json>(&answer.text).unwrap()["results"].clone();
        assert_eq!(column(&results, "duplicate"), [json!(true), json!(true)]);
        assert_eq!(column(&results, "payload_differs"), [json!(null), json!(true)], "{atomic}");
    }
}

async fn a_sweep_by_hand_is_audited(server: Server) {
    ledger(&server).await;
    server.send(server.request(Method::POST, "/v1/delegations/sweep")).await.expect(200);
    let told = server.get("/v1/audit?event=delegations_swept").await.expect(200);
    assert_eq!(told["items"][0]["detail"]["scanned"], 1, "{told}");
    assert!(told["items"][0]["actor"].is_string());
}

async fn required_fields_are_told_at_once(server: Server) {
    let refused = server.post("/v1/delegations", json!({})).await.refused(422, "validation_failed");
    assert_eq!(column(&refused["errors"], "pointer"), [json!("/caller"), json!("/callee")]);
    let id = ledger(&server).await;
    let path = format!("/v1/delegations/{id}/status");
    for (body, pointer) in [
        (json!({}), "/status"),
        (json!({ "status": "" }), "/status"),
        (json!({ "status": "retry" }), "/status"),
        (json!({ "status": "running", "result": 1 }), "/result"),
        (json!({ "status": "completed", "error": { "code": "X" } }), "/error"),
        (json!({ "status": "failed", "error": { "code": "" } }), "/error/code"),
        (json!({ "status": "running", "holder": "" }), "/holder"),
    ] {
        let refused = server.post(&path, body.clone()).await.refused(422, "validation_failed");
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{body}");
    }
    let job = json!({ "caller": "a", "callee": "b", "kind": "job" });
    server.post("/v1/delegations", job).await.refused(422, "validation_failed");
    server.get("/v1/delegations?kind=job").await.refused(422, "validation_failed");
}

async fn an_executed_delegation_is_reported_under_its_lease(server: Server) {
    let id = text(&delegate(&server, json!({})).await["id"]);
    let path = format!("/v1/delegations/{id}/status");
    let beating = format!("/v1/delegations/{id}/heartbeat");
    for (path, body) in [(&path, json!({ "status": "completed" })), (&beating, json!({}))] {
        let told = server.post(path, body).await.refused(422, "validation_failed");
        assert_eq!(told["errors"][0]["pointer"], "/lease_id");
    }
    let session = server.worker("bob", 1).await;
    let (claimed, lease) = server.claim(&session).await;
    assert_eq!(claimed, id);
    let beat = json!({ "lease_id": lease });
    server.post(&format!("/v1/delegations/{id}/heartbeat"), beat).await.expect(200);
    let other = json!({ "lease_id": Uuid::new_v4() });
    let reply = server.post(&format!("/v1/delegations/{id}/heartbeat"), other).await;
    reply.refused(409, "lease_lost");
    // Said twice, it changed something once.
    let running = json!({ "status": "running", "lease_id": lease });
    status(&server, &id, running.clone()).await;
    let told = status(&server, &id, running).await;
    assert_eq!((&told["changed"], &told["reason"]), (&json!(false), &json!("same_status")));
    let done = json!({ "status": "completed", "result": 7, "lease_id": lease });
    assert_eq!(status(&server, &id, done).await["changed"], true);
    assert_eq!(server.task(&id).await["result"], 7);
    // It has ended: whatever comes now changes nothing and says so, with a lease or without.
    let over = |reason: &str| {
        let (changed, status) = (false, "completed");
        json!({ "id": id, "changed": changed, "status": status, "reason": reason })
    };
    let again = json!({ "status": "completed", "result": 7, "lease_id": lease });
    assert_eq!(status(&server, &id, again).await, over("same_status"));
    let failed = json!({ "status": "failed", "lease_id": lease });
    assert_eq!(status(&server, &id, failed).await, over("terminal"));
    let running = json!({ "status": "running", "lease_id": lease });
    assert_eq!(status(&server, &id, running).await, over("terminal"));
    assert_eq!(status(&server, &id, json!({ "status": "completed" })).await, over("same_status"));
    for body in [json!({ "lease_id": lease }), json!({})] {
        assert_eq!(server.post(&beating, body).await.expect(200), over("terminal"));
    }
    let nobody = Uuid::new_v4().to_string();
    let body = json!({ "status": "completed", "lease_id": lease });
    assert_eq!(status(&server, &nobody, body).await["reason"], "not_found");
    let path = format!("/v1/delegations/{nobody}/heartbeat");
    let told = server.post(&path, json!({ "lease_id": lease })).await.expect(200);
    assert_eq!(told["reason"], "not_found");
}

async fn a_list_shows_previews_and_a_delegation_the_whole(server: Server) {
    let long = "日本🦀é".repeat(400);
    let id = text(&delegate(&server, json!({ "mode": "ledger", "payload": long })).await["id"]);
    status(&server, &id, json!({ "status": "completed", "result": long })).await;
    server.submit("q").await;
    let list = server.get("/v1/delegations?caller=ada").await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let item = &list["items"][0];
    for field in ["payload_preview", "result_preview"] {
        let shown = text(&item[field]);
        assert_eq!(shown.chars().count(), 1_000);
        assert!(long.starts_with(&shown));
    }
    assert!(item.get("payload").is_none() && item.get("result").is_none());
    let shown = server.get(&format!("/v1/delegations/{id}")).await.expect(200);
    assert_eq!((&shown["payload"], &shown["result"]), (&json!(long), &json!(long)));
    let list = server.get("/v1/delegations?in_flight=true").await.expect(200);
    assert_eq!(list["items"], json!([]));
}

async fn an_end_reaches_the_callers_inbox_unless_it_is_switched_off(server: Server) {
    let agent = json!({ "name": "ada" });
    server.post("/v1/agents", agent.clone()).await.expect(201);
    let id = ledger(&server).await;
    status(&server, &id, json!({ "status": "completed", "result": { "n": 1 } })).await;
    let inbox = server.get("/v1/messages?to=ada").await.expect(200);
    let message = &inbox["items"][0];
    assert_eq!((&message["type"], &message["from"]), (&json!("delegation_result"), &json!("bob")));
    assert_eq!(message["payload"]["delegation_id"], id);
    assert_eq!(message["payload"]["result"], json!({ "n": 1 }));
    // Nobody of that name: a dead letter, and the end stands.
    let body = json!({ "caller": "ghost", "callee": "bob", "mode": "ledger" });
    let id = text(&server.post("/v1/delegations", body).await.expect(201)["id"]);
    assert_eq!(status(&server, &id, json!({ "status": "failed" })).await["changed"], true);
    let letters = server.get("/v1/dead-letters").await.expect(200);
    assert_eq!(letters["items"][0]["reason"], "unknown_agent");
    let place = match &server.place {
        super::server::Place::Postgres(_) => super::server::Place::postgres(),
        _ => super::server::Place::sqlite(),
    };
    let quiet = Server::start(place, &[("WINDLASS_DELEGATION_RESULT_PUSH", "false")]).await;
    quiet.post("/v1/agents", agent).await.expect(201);
    let id = ledger(&quiet).await;
    status(&quiet, &id, json!({ "status": "completed" })).await;
    let inbox = quiet.get("/v1/messages?to=ada").await.expect(200);
    assert_eq!(inbox["items"], json!([]));
}

async fn the_sweeper_obeys_its_variables(server: Server) {
    let other = |postgres: bool| {
        if postgres { super::server::Place::postgres() } else { super::server::Place::sqlite() }
    };
    let is_postgres = matches!(&server.place, super::server::Place::Postgres(_));
    let settings = [("DELEGATION_SWEEPER_INTERVAL_S", "1"), ("DELEGATION_STUCK_THRESHOLD_S", "1")];
    let quick = Server::start(other(is_postgres), &settings).await;
    let id = ledger(&quick).await;
    status(&quick, &id, json!({ "status": "running" })).await;
    quick.post(&format!("/v1/delegations/{id}/heartbeat"), json!({})).await.expect(200);
    eventually("it is stuck", async || quick.task(&id).await["status"] == "stuck").await;
    // Nonsense is warned of, and the defaults count.
    let settings = [
        ("DELEGATION_SWEEPER_INTERVAL_S", "soon"),
        ("DELEGATION_STUCK_THRESHOLD_S", "-5"),
        ("WINDLASS_DELEGATION_SWEEPER", "false"),
    ];
    let slow = Server::start(other(is_postgres), &settings).await;
    let warned = slow.log().join("\n");
    for name in ["DELEGATION_SWEEPER_INTERVAL_S", "DELEGATION_STUCK_THRESHOLD_S"] {
        assert!(warned.contains(name), "{warned}");
    }
    let body = json!({ "caller": "a", "callee": "b", "mode": "ledger", "deadline_ms": 3_600_000 });
    slow.post("/v1/delegations", body).await.expect(201);
    let swept = slow.post("/v1/delegations/sweep", json!({})).await.expect(200);
    let wanted = json!({
        "scanned": 1, "failed_deadline": 0, "marked_stuck": 0, "lost_races": 0, "errors": 0,
    });
    assert_eq!(swept, wanted);
}

async fn a_handler_elsewhere_delegates_and_waits(server: Server) {
    let remote = Remote::new(&server.url(""), None).unwrap();
    let boss = |ctx: Ctx, n: i64| async move { ctx.delegate::<i64>("crew", &n).await };
    let crew = |_: Ctx, n: i64| async move { Ok(n + 1) };
    let queues = vec!["q".to_owned(), "crew".to_owned()];
    let routes = Routes { queues, ..Routes::default() };
    let options = WorkerOptions { name: "w".into(), routes, slots: 1, lease_ms: None };
    let handlers = Handlers::new().on("boss", boss).otherwise(crew);
    let _worker = remote.run(options, handlers).await.unwrap();
    let body = json!({ "queue": "q", "name": "boss", "payload": 41, "agent": "ada" });
    let id = text(&server.post("/v1/tasks", body).await.expect(201)["id"]);
    let ended = server.get(&format!("/v1/tasks/{id}/wait?timeout_ms=60000")).await.expect(200);
    assert_eq!(ended["result"], 42, "{ended}");
    let made = server.get(&format!("/v1/delegations?parent_id={id}")).await.expect(200);
    assert_eq!(made["items"][0]["caller"], "ada");
}

async fn the_command_line_does_all_of_it_for_companies_and_delegations(server: Server) {
    let told = |arguments: &[&str], expected: &[&str]| {
        let (code, out, error) = run(&server, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        for words in expected {
            assert!(out.contains(words), "{arguments:?} lacks {words}: {out}");
        }
        out
    };
    told(&["portfolio", "create", "alpha"], &["alpha"]);
    told(&["venture", "create", "acme", "--portfolio", "alpha"], &["acme", "alpha"]);
    told(&["agent", "create", "ada", "--role", "ceo"], &["ada", "ceo_handler"]);
    let create = ["agent", "create", "bob", "--role", "vp", "--parent", "ada", "--venture", "acme"];
    told(&[&create[..], &["--grant-agent", "eve"]].concat(), &["alpha", "eve"]);
    told(&["agent", "set", "dot", "--role", "crew", "--parent", "bob"], &["crew_executor"]);
    let tree = told(&["agent", "tree"], &[]);
    assert_eq!(tree.trim_end(), "ada (ceo)\n└─ bob (vp, acme)\n   └─ dot (crew)");
    let (code, _, error) = run(&server, &["agent", "set", "ada", "--parent", "dot"]);
    assert!(code == Some(1) && error.contains("above itself"), "{error}");
    told(&["agent", "list", "--venture", "acme"], &["bob"]);
    told(&["agent", "set", "bob", "--unset", "venture"], &["bob"]);
    told(&["agent", "archive", "dot"], &["archived_at"]);
    assert!(!told(&["agent", "list"], &[]).contains("dot"));
    told(&["agent", "restore", "dot"], &["dot"]);
    told(&["venture", "archive", "acme"], &["archived_at"]);
    told(&["venture", "list", "--archived"], &["acme"]);
    told(&["portfolio", "list"], &["alpha"]);
    let made = ["delegation", "create", "--caller", "ada", "--callee", "bob", "--ledger"];
    let made = told(&[&made[..], &["--text", "write it", "--json"]].concat(), &[]);
    let id = text(&serde_json::from_str::<Json>(&made).unwrap()["id"]);
    told(&["delegation", "list"], &[&id, "ada", "bob", "write it"]);
    told(&["delegation", "status", &id, "running"], &["true"]);
    told(&["delegation", "beat", &id], &["running"]);
    told(&["delegation", "sweep"], &["scanned", "1"]);
    let done = ["delegation", "status", &id, "completed", "--result", "{\"n\": 1}"];
    told(&done, &["completed"]);
    told(&["delegation", "status", &id, "failed", "--error", "X"], &["terminal"]);
    told(&["delegation", "show", &id], &["write it", "{\"n\":1}"]);
}
