//! What no step, wait or signal is made of: one table, each row with its place and code.

use super::server::Server;
use super::step::running;
use serde_json::{Value as Json, json};

super::facts!(every_bad_call_about_steps_is_refused_with_its_place_and_changes_nothing);

/// Path, body, pointer of the first finding, its code. `{task}` and `{lease}` are those of a
/// running task, `{step}` is one that was begun.
type Row = (&'static str, Json, &'static str, &'static str);

const RECORD: &str = "/v1/tasks/{task}/steps/record";
const BEGIN: &str = "/v1/tasks/{task}/steps";
const COMPLETE: &str = "/v1/steps/{step}/complete";
const FAIL: &str = "/v1/steps/{step}/fail";
const RESOLVE: &str = "/v1/steps/{step}/resolve";
const PARK: &str = "/v1/tasks/{task}/park";
const SIGNALS: &str = "/v1/signals";

fn steps() -> Vec<Row> {
    let long = "x".repeat(256);
    vec![
        (RECORD, json!({}), "/lease_id", "required"),
        (RECORD, json!({ "lease_id": "{lease}", "result": 1 }), "/name", "required"),
        (RECORD, json!({ "lease_id": "{lease}", "name": "a" }), "/result", "required"),
        (RECORD, leased(json!({ "name": "", "result": 1 })), "/name", "required"),
        (RECORD, leased(json!({ "name": " a", "result": 1 })), "/name", "bad_character"),
        (RECORD, leased(json!({ "name": "a\u{202e}", "result": 1 })), "/name", "bad_character"),
        (RECORD, leased(json!({ "name": long, "result": 1 })), "/name", "too_long"),
        (RECORD, leased(json!({ "name": "wait:time", "result": 1 })), "/name", "reserved"),
        (RECORD, leased(json!({ "name": 7, "result": 1 })), "/name", "wrong_type"),
        (RECORD, leased(json!({ "name": "a", "result": 1, "type": "" })), "/type", "required"),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "type": "x".repeat(101) })),
            "/type",
            "too_long",
        ),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "occurrence": -1 })),
            "/occurrence",
            "out_of_range",
        ),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "occurrence": 1_000_001 })),
            "/occurrence",
            "out_of_range",
        ),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "occurrence": "0" })),
            "/occurrence",
            "wrong_type",
        ),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "idempotent": true })),
            "/idempotent",
            "unknown_field",
        ),
        (RECORD, leased(json!({ "name": "a", "result": big() })), "/result", "too_long"),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "inputs": big() })),
            "/inputs",
            "too_long",
        ),
        (
            RECORD,
            leased(json!({ "name": "a", "result": 1, "checkpoint": big() })),
            "/checkpoint",
            "too_long",
        ),
        (BEGIN, leased(json!({ "name": "a" })), "/idempotent", "required"),
        (BEGIN, leased(json!({ "name": "a", "idempotent": true })), "/idempotent", "not_allowed"),
        (BEGIN, leased(json!({ "name": "a", "idempotent": null })), "/idempotent", "wrong_type"),
        (BEGIN, leased(json!({ "name": "wait:x", "idempotent": false })), "/name", "reserved"),
        (
            BEGIN,
            leased(json!({ "name": "a", "idempotent": false, "result": 1 })),
            "/result",
            "unknown_field",
        ),
        (COMPLETE, leased(json!({})), "/result", "required"),
        (COMPLETE, json!({ "result": 1 }), "/lease_id", "required"),
        (COMPLETE, leased(json!({ "result": big() })), "/result", "too_long"),
        (FAIL, leased(json!({})), "/error", "required"),
        (FAIL, leased(json!({ "error": {"message": "m"} })), "/error/code", "required"),
        (FAIL, leased(json!({ "error": {"code": "a b"} })), "/error/code", "bad_character"),
        (FAIL, leased(json!({ "error": [1] })), "/error", "wrong_type"),
        (
            FAIL,
            leased(json!({ "error": {"code": "X"}, "effect": "some" })),
            "/effect",
            "unknown_value",
        ),
        (RESOLVE, json!({}), "/action", "required"),
        (RESOLVE, json!({ "action": "retry" }), "/action", "unknown_value"),
        (RESOLVE, json!({ "action": "record_result" }), "/result", "required"),
        (RESOLVE, json!({ "action": "allow_rerun", "result": 1 }), "/result", "not_allowed"),
        (RESOLVE, json!({ "action": "fail", "result": null }), "/result", "not_allowed"),
        (RESOLVE, json!({ "action": "fail", "lease_id": "{lease}" }), "/lease_id", "unknown_field"),
        (RESOLVE, json!({ "action": "fail", "reason": "x".repeat(1_001) }), "/reason", "too_long"),
    ]
}

fn waits() -> Vec<Row> {
    let until = |until: Json| leased(json!({ "until": until }));
    let go = json!({ "signal": "go" });
    let go_for = |ms: i64| leased(json!({ "until": {"signal": "go"}, "timeout_ms": ms }));
    let task = "11111111-2222-4333-8444-555555555555";
    vec![
        (PARK, leased(json!({})), "/until", "required"),
        (PARK, until(json!([])), "/until", "wrong_type"),
        (PARK, until(json!("soon")), "/until", "wrong_type"),
        (PARK, until(json!({})), "/until", "required"),
        (PARK, until(json!({ "signal": "go", "delay_ms": 1 })), "/until", "conflict"),
        (PARK, until(json!({ "colour": "red" })), "/until/colour", "unknown_field"),
        (PARK, until(json!({ "time": "tomorrow" })), "/until/time", "wrong_type"),
        (PARK, until(json!({ "delay_ms": -1 })), "/until/delay_ms", "out_of_range"),
        (PARK, until(json!({ "delay_ms": 1.5 })), "/until/delay_ms", "wrong_type"),
        (PARK, until(json!({ "signal": "" })), "/until/signal", "required"),
        (PARK, until(json!({ "signal": "go", "key": "" })), "/until/key", "required"),
        (PARK, until(json!({ "delay_ms": 1, "key": "k" })), "/until/key", "not_allowed"),
        (PARK, until(json!({ "task": "7" })), "/until/task", "wrong_type"),
        (PARK, go_for(-1), "/timeout_ms", "out_of_range"),
        (
            PARK,
            leased(json!({ "until": {"delay_ms": 1}, "timeout_ms": 1 })),
            "/timeout_ms",
            "not_allowed",
        ),
        (PARK, leased(json!({ "until": go, "occurrence": -1 })), "/occurrence", "out_of_range"),
        (PARK, leased(json!({ "until": go, "checkpoint": big() })), "/checkpoint", "too_long"),
        (SIGNALS, json!({}), "/name", "required"),
        (SIGNALS, json!({ "name": "go" }), "/task_id", "required"),
        (SIGNALS, json!({ "name": "go", "task_id": task, "key": "k" }), "/key", "conflict"),
        (SIGNALS, json!({ "name": "go", "key": "" }), "/key", "required"),
        (SIGNALS, json!({ "name": "a\nb", "key": "k" }), "/name", "bad_character"),
        (SIGNALS, json!({ "name": "go", "task_id": 7 }), "/task_id", "wrong_type"),
        (SIGNALS, json!({ "name": "go", "key": "k", "id": "7" }), "/id", "wrong_type"),
        (SIGNALS, json!({ "name": "go", "key": "k", "payload": big() }), "/payload", "too_long"),
        (
            SIGNALS,
            json!({ "name": "go", "key": "k", "lease_id": task }),
            "/lease_id",
            "unknown_field",
        ),
    ]
}

fn leased(mut body: Json) -> Json {
    body["lease_id"] = json!("{lease}");
    body
}

/// More than a result, a checkpoint or a payload may have.
fn big() -> Json {
    json!("x".repeat(1024 * 1024))
}

async fn every_bad_call_about_steps_is_refused_with_its_place_and_changes_nothing(server: Server) {
    let (task, lease, _) = running(&server).await;
    let begin = json!({ "lease_id": lease, "name": "charge", "idempotent": false });
    let begun = server.post(&format!("/v1/tasks/{task}/steps"), begin).await.expect(200);
    let step = super::server::text(&begun["id"]);
    let listed = format!("/v1/tasks/{task}/steps");
    let before = (server.task(&task).await, server.get(&listed).await.expect(200));
    for (path, body, pointer, code) in steps().into_iter().chain(waits()) {
        let path = path.replace("{task}", &task).replace("{step}", &step);
        let mut body = body;
        if body["lease_id"] == "{lease}" {
            body["lease_id"] = json!(lease);
        }
        let shown: String = body.to_string().chars().take(120).collect();
        let reply = server.post(&path, body).await;
        assert_eq!(reply.status, 422, "{path} {shown}: {}", reply.text);
        let problem = reply.refused(422, "validation_failed");
        let first = &problem["errors"][0];
        assert_eq!((&first["pointer"], &first["code"]), (&json!(pointer), &json!(code)), "{shown}");
    }
    for (path, pointer, code) in [
        ("/v1/steps", "/status", "required"),
        ("/v1/steps?status=done", "/status", "unknown_value"),
        ("/v1/steps?status=lost", "/status", "unknown_value"),
        ("/v1/steps?status=in_doubt&limit=0", "/limit", "out_of_range"),
        ("/v1/steps?status=in_doubt&task=1", "/task", "unknown_field"),
    ] {
        let problem = server.get(path).await.refused(422, "validation_failed");
        let first = &problem["errors"][0];
        assert_eq!((&first["pointer"], &first["code"]), (&json!(pointer), &json!(code)), "{path}");
    }
    server.get("/v1/steps?status=in_doubt&cursor=x").await.refused(400, "invalid_cursor");
    for path in ["/v1/steps/x/complete", "/v1/steps/x/resolve", "/v1/tasks/x/park"] {
        server.post(path, json!({})).await.refused(400, "invalid_id");
    }
    let after = (server.task(&task).await, server.get(&listed).await.expect(200));
    assert_eq!(after, before);
}
