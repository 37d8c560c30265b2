//! The poison queue and alerts over HTTP and on the command line.

use super::server::{Server, column, text};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::process::{Command, Stdio};

super::facts!(
    a_poisoned_task_is_assigned_investigated_noted_and_resolved,
    of_two_operators_one_is_told_that_it_is_closed,
    an_alert_is_listed_and_acknowledged,
    every_bad_call_about_trouble_is_refused_with_its_place,
    the_command_line_does_all_of_it,
);

const INVALID: &str = "validation_failed";
const NOWHERE: &str = "11111111-2222-4333-8444-555555555555";

/// Submits a task that ends poisoned after one failure.
pub async fn poisoned(server: &Server, queue: &str) -> String {
    let body = json!({ "queue": queue, "payload": {}, "agent": "scout", "max_retries": 0 });
    let id = text(&server.post("/v1/tasks", body).await.expect(201)["id"]);
    let session = server.worker(queue, 1).await;
    let (task, lease) = server.claim(&session).await;
    assert_eq!(task, id);
    let error = json!({ "code": "TIMEOUT", "message": "no answer", "detail": { "stack": "a b" } });
    let body = json!({ "lease_id": lease, "error": error });
    let task = server.post(&format!("/v1/tasks/{id}/fail"), body).await.expect(200);
    assert_eq!(task["status"], "poisoned");
    id
}

async fn act(server: &Server, id: &str, verb: &str, body: Json) -> Json {
    server.post(&format!("/v1/poison/{id}/{verb}"), body).await.expect(200)
}

async fn a_poisoned_task_is_assigned_investigated_noted_and_resolved(server: Server) {
    let id = poisoned(&server, "q").await;
    let list = server.get("/v1/poison").await.expect(200);
    let entry = &list["items"][0];
    assert_eq!((&entry["task_id"], &entry["task_status"]), (&json!(id), &json!("poisoned")));
    assert_eq!((&entry["status"], &entry["assignee"]), (&json!("pending"), &Json::Null));
    assert_eq!((&entry["queue"], &entry["agent"]), (&json!("q"), &json!("scout")));
    assert_eq!((&entry["failure_count"], &entry["error"]["code"]), (&json!(1), &json!("TIMEOUT")));
    let shown = act(&server, &id, "assign", json!({ "assignee": "ann" })).await;
    assert_eq!((&shown["assignee"], &shown["status"]), (&json!("ann"), &json!("pending")));
    assert_eq!(shown["failures"][0]["error"]["detail"]["stack"], "a b");
    let taken = act(&server, &id, "investigate", json!({ "note": "on it" })).await;
    assert_eq!((&taken["assignee"], &taken["status"]), (&json!("ann"), &json!("investigating")));
    act(&server, &id, "note", json!({ "note": "the key had expired" })).await;
    let other = server.submit("q").await;
    let body = json!({ "resolved_by_task": other, "note": "done again" });
    let resolved = act(&server, &id, "resolve", body).await;
    assert_eq!(
        (&resolved["status"], &resolved["resolved_by_task"]),
        (&json!("resolved"), &json!(other))
    );
    assert!(resolved["closed_at"].is_string());
    let events = column(&resolved["notes"], "event");
    assert_eq!(events, ["assign", "investigate", "note", "resolve"].map(Json::from));
    assert_eq!(resolved["notes"][3]["author"], "api");
    assert_eq!(server.get("/v1/poison").await.expect(200)["items"], json!([]));
    let closed = server.get("/v1/poison?status=resolved,abandoned&agent=scout").await.expect(200);
    assert_eq!(closed["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.get(&format!("/v1/poison/{id}")).await.expect(200), resolved);
    // A note is still taken.
    act(&server, &id, "note", json!({ "note": "it was DNS" })).await;
}

async fn of_two_operators_one_is_told_that_it_is_closed(server: Server) {
    let id = poisoned(&server, "q").await;
    let (resolve, abandon) =
        (format!("/v1/poison/{id}/resolve"), format!("/v1/poison/{id}/abandon"));
    let (one, two) =
        tokio::join!(server.post(&resolve, json!({})), server.post(&abandon, json!({})));
    let (won, lost) = if one.status == 200 { (one, two) } else { (two, one) };
    won.expect(200);
    let problem = lost.refused(409, "illegal_transition");
    assert!(text(&problem["detail"]).contains("it can: note"), "{problem}");
    for verb in ["assign", "investigate", "resolve", "abandon"] {
        let body = if verb == "assign" { json!({ "assignee": "bob" }) } else { json!({}) };
        let reply = server.post(&format!("/v1/poison/{id}/{verb}"), body).await;
        reply.refused(409, "illegal_transition");
    }
}

async fn an_alert_is_listed_and_acknowledged(server: Server) {
    let first = poisoned(&server, "q").await;
    let second = poisoned(&server, "q").await;
    let list = server.get("/v1/alerts?severity=critical&type=poison_task").await.expect(200);
    assert_eq!(column(&list["items"], "task_id"), [json!(second), json!(first)]);
    let alert = &list["items"][1];
    let message = format!("task {first} in queue q is poisoned: TIMEOUT: no answer");
    assert_eq!(alert["message"], message);
    assert_eq!((&alert["acknowledged_at"], &alert["acknowledged_by"]), (&Json::Null, &Json::Null));
    let path = format!("/v1/alerts/{}/acknowledge", text(&alert["id"]));
    let seen = server.post(&path, json!({})).await.expect(200);
    assert_eq!(seen["acknowledged_by"], "api");
    assert_eq!(server.post(&path, json!({})).await.expect(200), seen);
    let open = server.get("/v1/alerts?acknowledged=false").await.expect(200);
    assert_eq!(column(&open["items"], "task_id"), [json!(second)]);
    let about = server.get(&format!("/v1/alerts?task={first}")).await.expect(200);
    assert_eq!(about["items"], json!([seen]));
    // Its notice is stored, and nobody is told: there is no webhook.
    let notices = server.get("/v1/notices?state=waiting&kind=alert").await.expect(200);
    assert_eq!(column(&notices["items"], "tries"), [json!(0), json!(0)]);
    assert_eq!(notices["items"][1]["body"]["message"], message);
}

/// Method, path, body, status, code, pointer of the first finding.
fn bad_calls() -> Vec<(&'static str, &'static str, Json, u16, &'static str, &'static str)> {
    let note = |text: String| json!({ "note": text });
    vec![
        ("GET", "/v1/poison/7", Json::Null, 400, "invalid_id", ""),
        ("GET", "/v1/poison/{nowhere}", Json::Null, 404, "not_found", ""),
        ("GET", "/v1/poison/{healthy}", Json::Null, 404, "not_found", ""),
        ("GET", "/v1/poison?status=done", Json::Null, 422, INVALID, "/status"),
        ("GET", "/v1/poison?status=", Json::Null, 422, INVALID, "/status"),
        ("GET", "/v1/poison?limit=0", Json::Null, 422, INVALID, "/limit"),
        ("GET", "/v1/poison?cursor=x", Json::Null, 400, "invalid_cursor", ""),
        ("GET", "/v1/poison?severity=critical", Json::Null, 422, INVALID, "/severity"),
        ("GET", "/v1/poison?assignee=%00", Json::Null, 422, INVALID, "/assignee"),
        ("PUT", "/v1/poison", json!({}), 405, "method_not_allowed", ""),
        ("POST", "/v1/poison/{nowhere}/resolve", json!({}), 404, "not_found", ""),
        ("POST", "/v1/poison/{healthy}/note", note("x".into()), 404, "not_found", ""),
        ("POST", "/v1/poison/{id}/assign", json!({}), 422, INVALID, "/assignee"),
        ("POST", "/v1/poison/{id}/assign", json!({ "assignee": "" }), 422, INVALID, "/assignee"),
        ("POST", "/v1/poison/{id}/assign", json!({ "assignee": " a" }), 422, INVALID, "/assignee"),
        ("POST", "/v1/poison/{id}/assign", json!({ "assignee": 7 }), 422, INVALID, "/assignee"),
        ("POST", "/v1/poison/{id}/assign", json!({ "to": "ann" }), 422, INVALID, "/to"),
        ("POST", "/v1/poison/{id}/note", json!({}), 422, INVALID, "/note"),
        ("POST", "/v1/poison/{id}/note", note(String::new()), 422, INVALID, "/note"),
        ("POST", "/v1/poison/{id}/note", note("\n".into()), 422, INVALID, "/note"),
        ("POST", "/v1/poison/{id}/note", note("x".repeat(70_000)), 422, INVALID, "/note"),
        ("POST", "/v1/poison/{id}/note", json!([]), 422, INVALID, ""),
        (
            "POST",
            "/v1/poison/{id}/resolve",
            json!({ "resolved_by_task": NOWHERE }),
            422,
            INVALID,
            "/resolved_by_task",
        ),
        (
            "POST",
            "/v1/poison/{id}/resolve",
            json!({ "resolved_by_task": "x" }),
            422,
            INVALID,
            "/resolved_by_task",
        ),
        ("POST", "/v1/poison/{id}/abandon", json!({ "why": "so" }), 422, INVALID, "/why"),
        ("POST", "/v1/poison/{id}/reopen", json!({}), 404, "not_found", ""),
        ("GET", "/v1/alerts?severity=fatal", Json::Null, 422, INVALID, "/severity"),
        ("GET", "/v1/alerts?acknowledged=yes", Json::Null, 422, INVALID, "/acknowledged"),
        ("GET", "/v1/alerts?task=7", Json::Null, 422, INVALID, "/task"),
        ("GET", "/v1/alerts?kind=x", Json::Null, 422, INVALID, "/kind"),
        ("POST", "/v1/alerts/{nowhere}/acknowledge", json!({}), 404, "not_found", ""),
        ("POST", "/v1/alerts/7/acknowledge", json!({}), 400, "invalid_id", ""),
        ("GET", "/v1/notices?state=lost", Json::Null, 422, INVALID, "/state"),
        ("GET", "/v1/notices?severity=fatal", Json::Null, 422, INVALID, "/severity"),
        ("GET", "/v1/notices?limit=1001", Json::Null, 422, INVALID, "/limit"),
    ]
}

async fn every_bad_call_about_trouble_is_refused_with_its_place(server: Server) {
    let id = poisoned(&server, "q").await;
    let healthy = server.submit("q").await;
    let before = server.get(&format!("/v1/poison/{id}")).await.expect(200);
    for (method, path, body, status, code, pointer) in bad_calls() {
        let path = path.replace("{id}", &id).replace("{healthy}", &healthy);
        let path = path.replace("{nowhere}", NOWHERE);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = server.request(method, &path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let problem = server.send(request).await.refused(status, code);
        if code == INVALID {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{path}: {problem}");
        }
    }
    assert_eq!(server.get(&format!("/v1/poison/{id}")).await.expect(200), before);
}

pub(super) fn run(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
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
    let id = poisoned(&server, "q").await;
    let told = |arguments: &[&str], expected: &[&str]| {
        let (code, out, error) = run(&server, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        for words in expected {
            assert!(out.contains(words), "{arguments:?} lacks {words}: {out}");
        }
        out
    };
    let row = [id.as_str(), "poisoned", "pending", "TIMEOUT: no answer"];
    told(&["poison", "list"], &row);
    told(&["poison", "assign", &id, "ann", "--note", "please"], &["ann"]);
    told(&["poison", "investigate", &id], &["investigating"]);
    told(&["poison", "note", &id, "it was DNS"], &["api note  it was DNS"]);
    told(&["poison", "show", &id], &["failures", "TIMEOUT: no answer", "api assign  please"]);
    told(&["poison", "assign", &id, "bob"], &["api assign  please  (assignee ann)"]);
    told(&["poison", "assign", &id, "ann"], &["(assignee bob)"]);
    told(&["poison", "resolve", &id, "--note", "fixed"], &["resolved", "api resolve  fixed"]);
    let (code, _, error) = run(&server, &["poison", "abandon", &id]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("illegal_transition") || error.contains("cannot abandon"), "{error}");
    assert_eq!(run(&server, &["poison", "list"]).2.trim(), "nothing needs a person");
    told(&["poison", "list", "--status", "resolved"], &[&id, "ann"]);
    let json = told(&["alert", "list", "--open", "--json"], &[]);
    let list: Json = serde_json::from_str(&json).unwrap();
    let alert = text(&list["items"][0]["id"]);
    told(&["alert", "list", "--severity", "critical", "--task", &id], &["poison_task", &alert]);
    told(&["alert", "ack", &alert], &["acknowledged by api"]);
    assert_eq!(run(&server, &["alert", "list", "--open"]).2.trim(), "no alerts");
    told(&["notice", "list"], &["alert", "critical", "waiting"]);
    told(&["task", "show", &id, "--failures"], &["failures", "no answer"]);
    let set = ["agent", "set", "a scout", "--max-retries", "5", "--backoff", "{\"base_ms\": 7}"];
    told(&set, &["a scout", "max_retries   5", "\"base_ms\":7"]);
    told(&["agent", "show", "a scout"], &["max_retries   5"]);
    told(&["agent", "list"], &["a scout", "5"]);
    assert_eq!(run(&server, &["agent", "set", "x", "--backoff", "{"]).0, Some(2));
    let (code, _, error) = run(&server, &["poison", "show", "x"]);
    assert_eq!(code, Some(2), "{error}");
}
