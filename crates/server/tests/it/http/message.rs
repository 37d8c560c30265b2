//! Messages, dead letters and the audit over HTTP and on the command line.

use super::server::{Place, Server, column, text};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::process::{Command, Stdio};
use std::time::Duration;
use windlass::remote::Remote;
use windlass::sdk::MessageOptions;

super::facts!(
    a_message_is_sent_taken_and_acknowledged,
    who_may_not_write_is_refused_and_audited,
    a_long_poll_is_answered_by_a_send,
    a_message_that_fails_becomes_a_dead_letter_and_is_delivered_again,
    rust_handlers_take_messages_of_a_server,
    every_bad_call_about_messages_is_refused_with_its_place,
    whoever_asks_for_what_nobody_reads_is_told,
    every_line_about_a_message_names_what_it_belongs_to_and_no_key_twice,
    the_audit_is_filtered_and_exported,
    the_command_line_does_all_of_it,
);

const INVALID: &str = "validation_failed";
const NOWHERE: &str = "11111111-2222-4333-8444-555555555555";

pub async fn company(server: &Server) {
    for (name, role, parent) in
        [("ceo", "ceo", None), ("vp", "vp", Some("ceo")), ("crew", "crew", Some("vp"))]
    {
        let body = json!({ "name": name, "role": role, "parent": parent });
        server.post("/v1/agents", body).await.expect(201);
    }
    let other = json!({ "name": "hermit", "role": "crew" });
    server.post("/v1/agents", other).await.expect(201);
}

fn message(from: &str, to: &str) -> Json {
    json!({ "from": from, "to": to, "type": "note", "payload": { "n": 1 } })
}

async fn take(server: &Server, agent: &str) -> (String, String) {
    let body = json!({ "handler": "me", "agents": [agent], "wait_ms": 5_000 });
    let taken = server.post("/v1/messages/claim", body).await.expect(200);
    let delivery = &taken["deliveries"][0];
    (text(&delivery["message"]["id"]), text(&delivery["lease_id"]))
}

async fn a_message_is_sent_taken_and_acknowledged(server: Server) {
    company(&server).await;
    let mut body = message("vp", "ceo");
    body["id"] = json!(NOWHERE);
    body["correlation_id"] = json!("deal-7");
    let sent = server.post("/v1/messages", body.clone()).await.expect(201);
    assert_eq!((&sent["status"], &sent["id"]), (&json!("pending"), &json!(NOWHERE)));
    let again = server.post("/v1/messages", body.clone()).await;
    assert_eq!(again.header("windlass-duplicate"), Some("true"));
    again.expect(200);
    body["payload"] = json!(2);
    server.post("/v1/messages", body).await.refused(422, "idempotency_key_reused");
    let measured = server.get("/metrics").await.text;
    assert!(measured.contains("windlass_messages{status=\"pending\"} 1"), "{measured}");
    assert!(measured.contains("windlass_message_oldest_pending_seconds"), "{measured}");
    assert!(measured.contains("windlass_dead_letters_open 0"), "{measured}");
    let (id, lease) = take(&server, "ceo").await;
    assert_eq!(id, NOWHERE);
    let path = |verb: &str| format!("/v1/messages/{id}/{verb}");
    let body = json!({ "lease_id": lease, "lease_ms": 120_000 });
    let held = server.post(&path("heartbeat"), body).await.expect(200);
    assert!(held["lease_expires_at"].is_string());
    for _ in 0..2 {
        let done = server.post(&path("ack"), json!({ "lease_id": lease })).await.expect(200);
        assert_eq!((&done["status"], &done["handled_by"]), (&json!("acknowledged"), &json!("me")));
    }
    let body = json!({ "lease_id": lease });
    server.post(&path("nack"), body).await.refused(409, "already_finished");
    server.post("/v1/messages", message("vp", "ceo")).await.expect(201);
    let (other, held) = take(&server, "ceo").await;
    let nack = format!("/v1/messages/{other}/nack");
    let said =
        |words: &str| json!({ "lease_id": held, "error": { "code": "X", "message": words } });
    for _ in 0..2 {
        server.post(&nack, said("no")).await.expect(200);
    }
    server.post(&nack, said("never")).await.refused(409, "already_finished");
    server.post(&path("ack"), json!({ "lease_id": NOWHERE })).await.refused(409, "lease_lost");
    let shown = server.get(&format!("/v1/messages/{id}")).await;
    assert!(!shown.text.contains(&lease), "{}", shown.text);
    let list = server.get("/v1/messages?correlation_id=deal-7&status=acknowledged").await;
    assert_eq!(column(&list.expect(200)["items"], "id"), [json!(id)]);
    let none = server.get("/v1/messages?to=vp").await.expect(200);
    assert_eq!(none["items"], json!([]));
    // The id that it belongs to is in the log of every call.
    let logged = server.log().iter().filter(|line| line.contains("deal-7")).count();
    assert!(logged >= 4, "{logged}");
}

async fn who_may_not_write_is_refused_and_audited(server: Server) {
    company(&server).await;
    let problem = server.post("/v1/messages", message("hermit", "vp")).await;
    let problem = problem.refused(403, "not_permitted");
    assert!(text(&problem["detail"]).contains("other_line"), "{problem}");
    server.post("/v1/messages", message("ceo", "nobody")).await.refused(404, "not_found");
    let audit = server.get("/v1/audit?event=message_refused").await.expect(200);
    let rules: Vec<_> = audit["items"].as_array().unwrap().iter().collect();
    assert_eq!(rules[0]["detail"]["rule"], json!("unknown_receiver"));
    assert_eq!(rules[1]["detail"]["rule"], json!("other_line"));
    assert_eq!(server.get("/v1/messages").await.expect(200)["items"], json!([]));
}

async fn a_long_poll_is_answered_by_a_send(server: Server) {
    company(&server).await;
    let body = json!({ "handler": "me", "pool": "vp_handler", "wait_ms": 20_000 });
    let (taken, sent) = tokio::join!(server.post("/v1/messages/claim", body), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.post("/v1/messages", message("ceo", "vp")).await.expect(201)
    });
    let taken = taken.expect(200);
    assert_eq!(taken["deliveries"][0]["message"]["id"], sent["id"]);
    let body = json!({ "handler": "other", "pool": "vp_handler" });
    let none = server.post("/v1/messages/claim", body).await.expect(200);
    assert_eq!(none["deliveries"], json!([]));
}

async fn a_message_that_fails_becomes_a_dead_letter_and_is_delivered_again(server: Server) {
    company(&server).await;
    server.post("/v1/messages", message("vp", "crew")).await.expect(201);
    let mut last = (String::new(), String::new());
    for n in 1..=5 {
        last = take(&server, "crew").await;
        let error = json!({ "code": "TIMEOUT", "message": format!("try {n}") });
        let body = json!({ "lease_id": last.1, "error": error, "retry_after_ms": 0 });
        server.post(&format!("/v1/messages/{}/nack", last.0), body).await.expect(200);
    }
    let id = last.0;
    let list = server.get("/v1/dead-letters?reason=delivery_limit").await.expect(200);
    assert_eq!(column(&list["items"], "message_id"), [json!(id)]);
    let path = |verb: &str| format!("/v1/dead-letters/{id}{verb}");
    let shown = server.get(&path("")).await.expect(200);
    assert_eq!(
        (&shown["deliveries"], &shown["original"]["payload"]),
        (&json!(5), &json!({"n": 1}))
    );
    assert!(text(&shown["detail"]).contains("TIMEOUT: try 5"), "{shown}");
    let body = json!({ "assignee": "ann" });
    server.post(&path("/assign"), body).await.expect(200);
    server.post(&path("/investigate"), json!({})).await.expect(200);
    server.post(&path("/note"), json!({ "note": "the crew was asleep" })).await.expect(200);
    let sent = server.post(&path("/redeliver"), json!({ "to": "vp" })).await.expect(200);
    assert_eq!((&sent["redelivery_of"], &sent["to"]), (&json!(id), &json!("vp")));
    let closed = server.post(&path("/abandon"), json!({})).await;
    closed.refused(409, "illegal_transition");
    let shown = server.get(&path("")).await.expect(200);
    assert_eq!(
        (&shown["status"], &shown["resolved_by_message"]),
        (&json!("resolved"), &sent["id"])
    );
    let events = column(&shown["notes"], "event");
    assert_eq!(events, ["assign", "investigate", "note", "resolve"].map(Json::from));
    assert_eq!(take(&server, "vp").await.0, text(&sent["id"]));
}

async fn rust_handlers_take_messages_of_a_server(server: Server) {
    company(&server).await;
    let remote = Remote::new(&server.url(""), None).unwrap();
    let (told, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let handlers = remote.handle_messages(MessageOptions::role("vp"), move |message| {
        let told = told.clone();
        async move {
            let _ = told.send((message.from.clone(), message.deliveries));
            match message.deliveries {
                1 => Err(windlass::sdk::Failure::new("TIMEOUT", "x").retry_after(Duration::ZERO)),
                _ => Ok(()),
            }
        }
    });
    let sent = server.post("/v1/messages", message("ceo", "vp")).await.expect(201);
    assert_eq!(telling.recv().await, Some(("ceo".into(), 1)));
    assert_eq!(telling.recv().await, Some(("ceo".into(), 2)));
    let path = format!("/v1/messages/{}", text(&sent["id"]));
    super::server::eventually("it is acknowledged", || async {
        server.get(&path).await.expect(200)["status"] == "acknowledged"
    })
    .await;
    handlers.stop().await;
}

async fn every_bad_call_about_messages_is_refused_with_its_place(server: Server) {
    company(&server).await;
    for (path, body, pointer) in [
        ("/v1/messages", json!({ "to": "ceo", "type": "" }), "/type"),
        ("/v1/messages", json!({ "to": "ceo", "type": "x", "ttl_ms": 0 }), "/ttl_ms"),
        ("/v1/messages", json!({ "to": "ceo", "type": "x", "priority": 40_000 }), "/priority"),
        ("/v1/messages/claim", json!({ "handler": "h" }), "/pool"),
        ("/v1/messages/claim", json!({ "handler": "h", "agents": [] }), "/agents"),
        ("/v1/messages/claim", json!({ "handler": "", "pool": "x" }), "/handler"),
        ("/v1/messages/claim", json!({ "handler": "h", "pool": "x", "max": 0 }), "/max"),
        ("/v1/messages/claim", json!({ "handler": "h", "pool": "x", "wait_ms": -1 }), "/wait_ms"),
        ("/v1/messages/claim", json!({ "handler": "h", "pool": "x", "lease_ms": 1 }), "/lease_ms"),
    ] {
        let problem = server.post(path, body.clone()).await.refused(422, INVALID);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    let lease = json!({ "lease_id": NOWHERE });
    for verb in ["ack", "nack", "heartbeat"] {
        let path = format!("/v1/messages/{NOWHERE}/{verb}");
        server.post(&path, lease.clone()).await.refused(404, "not_found");
    }
    server.get(&format!("/v1/messages/{NOWHERE}")).await.refused(404, "not_found");
    server.get(&format!("/v1/dead-letters/{NOWHERE}")).await.refused(404, "not_found");
    server.get("/v1/messages?status=lost").await.refused(422, INVALID);
    server.get("/v1/dead-letters?reason=bad").await.refused(422, INVALID);
    server.get("/v1/audit?since=yesterday").await.refused(422, INVALID);
}

/// Such a claim waited for ever.
async fn whoever_asks_for_what_nobody_reads_is_told(server: Server) {
    company(&server).await;
    server.post("/v1/agents/hermit/archive", json!({})).await.expect(200);
    for (body, pointer) in [
        (json!({ "agents": ["ghost"] }), "/agents"),
        (json!({ "agents": ["ceo", "hermit"] }), "/agents"),
        (json!({ "pool": "no_such_handler" }), "/pool"),
    ] {
        for wait_ms in [0, 60_000] {
            let mut claim = json!({ "handler": "me", "wait_ms": wait_ms });
            claim.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
            let told = server.post("/v1/messages/claim", claim).await.refused(422, INVALID);
            assert_eq!(told["errors"][0]["pointer"], pointer, "{body}");
        }
    }
    let scout = json!({ "name": "scout", "worker_type": "night_handler" });
    server.post("/v1/agents", scout).await.expect(201);
    for pool in ["night_handler", "ceo_handler", "crew_executor"] {
        let claim = json!({ "handler": "me", "pool": pool });
        server.post("/v1/messages/claim", claim).await.expect(200);
    }
}

/// The id of a message stood under the key of the line's own text, and what a duty did to a message
/// named no correlation.
async fn every_line_about_a_message_names_what_it_belongs_to_and_no_key_twice(server: Server) {
    company(&server).await;
    let send = async |correlation: &str, ttl_ms: Option<i64>| {
        let mut body = message("vp", "ceo");
        body["correlation_id"] = json!(correlation);
        body["ttl_ms"] = json!(ttl_ms);
        server.post("/v1/messages", body).await.expect(201);
    };
    send("expires", Some(1)).await;
    send("silent", None).await;
    let claim = json!({ "handler": "me", "agents": ["ceo"], "lease_ms": 1_000, "wait_ms": 5_000 });
    server.post("/v1/messages/claim", claim).await.expect(200);
    let about = |correlation: &str, words: &str| {
        let log = server.log();
        log.iter().any(|line| line.contains(correlation) && line.contains(words))
    };
    super::server::eventually("both duties are told of", || {
        let told = about("expires", "its time passed") && about("silent", "its lease ran out");
        async move { told }
    })
    .await;
    let log = server.log();
    let about: Vec<_> = log.iter().filter(|line| line.contains("message_id")).collect();
    assert!(about.len() >= 4, "{about:?}");
    for line in about {
        assert_eq!(line.matches("\"message\":").count(), 1, "{line}");
        assert!(line.contains("\"correlation_id\":\""), "{line}");
    }
}

async fn the_audit_is_filtered_and_exported(server: Server) {
    company(&server).await;
    let one = server.post("/v1/messages", message("ceo", "vp")).await.expect(201);
    server.post("/v1/messages", message("vp", "ceo")).await.expect(201);
    server.post("/v1/messages", message("hermit", "ceo")).await.refused(403, "not_permitted");
    let id = text(&one["id"]);
    let about = server.get(&format!("/v1/audit?subject={id}")).await.expect(200);
    assert_eq!(column(&about["items"], "event"), [json!("message_sent")]);
    let agents = server.get("/v1/audit?subject=hermit").await.expect(200);
    assert_eq!(column(&agents["items"], "event"), [json!("agent_created")]);
    let at = text(&about["items"][0]["at"]);
    let since = server.get(&format!("/v1/audit?since={at}&actor=http")).await.expect(200);
    assert!(since["items"].is_array());
    // On PostgreSQL an entry is exported when every older transaction is over.
    super::server::eventually("everything is exported", || async {
        server.get("/v1/audit/export").await.text.lines().count() >= 7
    })
    .await;
    let export = server.get("/v1/audit/export").await;
    assert_eq!(export.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Json> =
        export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seqs: Vec<i64> = lines.iter().map(|line| line["seq"].as_i64().unwrap()).collect();
    assert!(seqs.is_sorted() && lines.len() >= 7, "{seqs:?}");
    let path = format!("/v1/audit/export?event=message_sent&after_seq={}&limit=1", seqs[0]);
    let part = server.get(&path).await;
    assert_eq!(part.text.lines().count(), 1, "{}", part.text);
    assert!(part.text.contains(&id));
}

pub fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    command.args(arguments).env("WINDLASS_SERVER", server.url("")).stdin(Stdio::null());
    let output = command.output().expect("the binary runs");
    let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), words(&output.stdout), words(&output.stderr))
}

async fn the_command_line_does_all_of_it(server: Server) {
    company(&server).await;
    let told = |arguments: &[&str], expected: &[&str]| {
        let (code, out, error) = run(&server, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        for words in expected {
            assert!(out.contains(words), "{arguments:?} lacks {words}: {out}");
        }
        out
    };
    let send = ["message", "send", "ceo", "--type", "note", "--payload", "\"hi\"", "--text"];
    told(&send, &["pending", "ceo", "note"]);
    told(&["message", "list", "--to", "ceo"], &["note", "pending"]);
    let claim = ["--json", "message", "claim", "--agent", "ceo", "--wait", "5s"];
    let taken: Json = serde_json::from_str(&told(&claim, &[])).unwrap();
    let delivery = &taken["deliveries"][0];
    let (id, lease) = (text(&delivery["message"]["id"]), text(&delivery["lease_id"]));
    told(&["message", "show", &id], &["delivered", "cli"]);
    let nack = ["message", "nack", &id, "--lease", &lease, "--reason", "no", "--reject"];
    told(&nack, &["dead_lettered"]);
    told(&["dead-letter", "list"], &[&id, "rejected"]);
    told(&["dead-letter", "assign", &id, "ann", "--note", "look"], &["ann", "look"]);
    told(&["dead-letter", "redeliver", &id], &["sent to ceo again"]);
    told(&["dead-letter", "show", &id], &["resolved", "resolve"]);
    let taken: Json = serde_json::from_str(&told(&claim, &[])).unwrap();
    let delivery = &taken["deliveries"][0];
    let (id, lease) = (text(&delivery["message"]["id"]), text(&delivery["lease_id"]));
    told(&["message", "ack", &id, "--lease", &lease], &["acknowledged"]);
    told(&["audit", "list", "--subject", &id], &["message_sent"]);
    super::server::eventually("both acts are exported", || async {
        let lines = told(&["audit", "export", "--event", "dead_letter_act"], &[]);
        lines.lines().count() == 2
    })
    .await;
    let (code, _, error) =
        run(&server, &["message", "send", "ceo", "--from", "hermit", "--type", "x"]);
    assert!(code != Some(0) && error.contains("other_line"), "{error}");
}

/// A worker's key speaks for agents, never in its own name, and reads no audit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_key_speaks_for_an_agent() {
    let keys = "bot:worker:worker-key-0123456789,ann:operator:ann-key-0123456789abc";
    let server = Server::start(Place::sqlite(), &[("WINDLASS_KEYS", keys)]).await;
    let call = async |key: &str, method: Method, path: &str, body: Json| {
        let request = server.request(method, path).header("authorization", format!("Bearer {key}"));
        server.send(request.json(&body)).await
    };
    let (ann, bot) = ("ann-key-0123456789abc", "worker-key-0123456789");
    for (name, parent) in [("ceo", None), ("vp", Some("ceo"))] {
        let body = json!({ "name": name, "role": name, "parent": parent });
        call(ann, Method::POST, "/v1/agents", body).await.expect(201);
    }
    let mut body = json!({ "to": "ceo", "type": "x" });
    let problem = call(bot, Method::POST, "/v1/messages", body.clone()).await.refused(422, INVALID);
    assert_eq!(problem["errors"][0]["pointer"], "/from");
    call(ann, Method::POST, "/v1/messages", body.clone()).await.expect(201);
    body["from"] = json!("vp");
    let sent = call(bot, Method::POST, "/v1/messages", body).await.expect(201);
    assert_eq!((&sent["from"], &sent["sent_by"]), (&json!("vp"), &json!("bot")));
    call(bot, Method::GET, "/v1/audit/export", Json::Null).await.refused(403, "forbidden");
}
