//! Bodies that no task is made of: one table, each row with its status, code and pointer.

use super::server::{Reply, Server};
use reqwest::Method;
use serde_json::json;

super::facts!(
    every_bad_body_is_refused_with_its_code_and_place_and_writes_nothing,
    a_body_is_bounded_whether_its_length_is_told_or_not,
    a_body_must_be_plain_json,
);

/// Body, status, code, pointer of the first finding (or none), its code.
type Row = (&'static str, u16, &'static str, &'static str, &'static str);

const INVALID: &str = "validation_failed";
const JSON: &str = "invalid_json";

/// What `POST /v1/tasks` refuses.
const SUBMITS: &[Row] = &[
    // Not JSON, or not JSON that both databases keep.
    ("{", 400, JSON, "", ""),
    ("{'queue': 'q'}", 400, JSON, "", ""),
    ("{\"queue\": \"q\"} {}", 400, JSON, "", ""),
    ("{\"queue\": \"q\",}", 400, JSON, "", ""),
    ("NaN", 400, JSON, "", ""),
    ("\u{feff}{\"queue\": \"q\"}", 400, JSON, "", ""),
    (r#"{"queue": "q", "queue": "r"}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": {"a": 1, "\u0061": 2}}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": "\u0000"}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": {"\u0000": 1}}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": "\ud800"}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": 1e999}"#, 400, JSON, "", ""),
    (r#"{"queue": "q", "payload": 123456789012345678901234567890}"#, 400, JSON, "", ""),
    // Not an object.
    ("null", 422, INVALID, "", "wrong_type"),
    ("[]", 422, INVALID, "", "wrong_type"),
    ("7", 422, INVALID, "", "wrong_type"),
    ("\"queue\"", 422, INVALID, "", "wrong_type"),
    // Fields that are unknown, missing or of another type.
    ("{}", 422, INVALID, "/queue", "required"),
    (r#"{"queue": "q", "colour": 1}"#, 422, INVALID, "/colour", "unknown_field"),
    (r#"{"queue": "q", "a/b~c": 1}"#, 422, INVALID, "/a~1b~0c", "unknown_field"),
    (r#"{"queue": "q", "status": "completed"}"#, 422, INVALID, "/status", "unknown_field"),
    (r#"{"queue": 7}"#, 422, INVALID, "/queue", "wrong_type"),
    (r#"{"queue": ["q"]}"#, 422, INVALID, "/queue", "wrong_type"),
    (r#"{"queue": "q", "priority": "high"}"#, 422, INVALID, "/priority", "wrong_type"),
    (r#"{"queue": "q", "priority": 1.5}"#, 422, INVALID, "/priority", "wrong_type"),
    (r#"{"queue": "q", "priority": 99999999999}"#, 422, INVALID, "/priority", "wrong_type"),
    (r#"{"queue": "q", "tags": []}"#, 422, INVALID, "/tags", "wrong_type"),
    (r#"{"queue": "q", "tags": {"a": 1}}"#, 422, INVALID, "/tags/a", "wrong_type"),
    (r#"{"queue": "q", "kind": "chore"}"#, 422, INVALID, "/kind", "unknown_value"),
    (r#"{"queue": "q", "id": "7"}"#, 422, INVALID, "/id", "wrong_type"),
    (r#"{"queue": "q", "id": 7}"#, 422, INVALID, "/id", "wrong_type"),
    (r#"{"queue": "q", "parent_id": "x"}"#, 422, INVALID, "/parent_id", "wrong_type"),
    (r#"{"queue": "q", "run_at": "tomorrow"}"#, 422, INVALID, "/run_at", "wrong_type"),
    (r#"{"queue": "q", "run_at": 1769860800}"#, 422, INVALID, "/run_at", "wrong_type"),
    (r#"{"queue": "q", "run_at": "10000-01-01T00:00:00Z"}"#, 422, INVALID, "/run_at", "wrong_type"),
    (r#"{"queue": "q", "run_at": "2026-01-31T12:00:00"}"#, 422, INVALID, "/run_at", "wrong_type"),
    (r#"{"queue": "q", "backoff": {"base": 1}}"#, 422, INVALID, "/backoff/base", "unknown_field"),
    // Out of bounds, or not together.
    (r#"{"queue": ""}"#, 422, INVALID, "/queue", "required"),
    (r#"{"queue": " q"}"#, 422, INVALID, "/queue", "bad_character"),
    (r#"{"queue": "a\nb"}"#, 422, INVALID, "/queue", "bad_character"),
    (r#"{"queue": "a\u202eb"}"#, 422, INVALID, "/queue", "bad_character"),
    (r#"{"queue": "q", "name": "\u2066x"}"#, 422, INVALID, "/name", "bad_character"),
    (r#"{"queue": "q", "tags": {"a": "\u001b[31m"}}"#, 422, INVALID, "/tags/a", "bad_character"),
    (r#"{"queue": "q", "priority": 40000}"#, 422, INVALID, "/priority", "out_of_range"),
    (r#"{"queue": "q", "max_retries": -1}"#, 422, INVALID, "/max_retries", "out_of_range"),
    (r#"{"queue": "q", "max_retries": 101}"#, 422, INVALID, "/max_retries", "out_of_range"),
    (r#"{"queue": "q", "delay_ms": -1}"#, 422, INVALID, "/delay_ms", "out_of_range"),
    (
        r#"{"queue": "q", "delay_ms": 9223372036854775807}"#,
        422,
        INVALID,
        "/delay_ms",
        "out_of_range",
    ),
    (r#"{"queue": "q", "deadline_ms": -5}"#, 422, INVALID, "/deadline_ms", "out_of_range"),
    (
        r#"{"queue": "q", "delay_ms": 1, "run_at": "2026-01-31T12:00:00Z"}"#,
        422,
        INVALID,
        "/delay_ms",
        "conflict",
    ),
    (
        r#"{"queue": "q", "backoff": {"base_ms": -1}}"#,
        422,
        INVALID,
        "/backoff/base_ms",
        "out_of_range",
    ),
    (
        r#"{"queue": "q", "backoff": {"multiplier": 0.5}}"#,
        422,
        INVALID,
        "/backoff/multiplier",
        "out_of_range",
    ),
    (r#"{"queue": "q", "model": "m"}"#, 422, INVALID, "/model", "not_allowed"),
    (r#"{"pool": "p", "callee": "c", "caller": "d"}"#, 422, INVALID, "/pool", "conflict"),
    (r#"{"kind": "delegation", "queue": "q"}"#, 422, INVALID, "/caller", "required"),
];

async fn post(server: &Server, path: &str, body: impl Into<reqwest::Body>) -> Reply {
    let request = server.request(Method::POST, path).header("content-type", "application/json");
    server.send(request.body(body)).await
}

#[track_caller]
fn check(reply: Reply, &(body, status, code, pointer, finding): &Row) {
    let shown = format!("{body:.200}: {}", reply.text);
    let problem = reply.refused(status, code);
    if !finding.is_empty() {
        let first = &problem["errors"][0];
        let found = (first["pointer"].as_str(), first["code"].as_str());
        assert_eq!(found, (Some(pointer), Some(finding)), "{shown}");
    }
}

async fn every_bad_body_is_refused_with_its_code_and_place_and_writes_nothing(server: Server) {
    for row in SUBMITS {
        check(post(&server, "/v1/tasks", row.0).await, row);
        // The same as a dry run, and as an item of a batch.
        check(post(&server, "/v1/tasks?dry_run=true", row.0).await, row);
        if row.1 == 422 && !row.3.is_empty() && row.0.starts_with('{') {
            let batch = format!("{{\"tasks\": [{}]}}", row.0);
            let problem = post(&server, "/v1/tasks/batch", batch).await.refused(422, INVALID);
            assert_eq!(problem["errors"][0]["pointer"], format!("/tasks/0{}", row.3), "{}", row.0);
        }
    }
    let deep = format!(r#"{{"queue": "q", "payload": {}{}}}"#, "[".repeat(70), "]".repeat(70));
    post(&server, "/v1/tasks", deep).await.refused(400, JSON);
    let deep = format!(r#"{{"queue": "q", "payload": {}}}"#, "[".repeat(100_000));
    post(&server, "/v1/tasks", deep).await.refused(400, JSON);
    post(&server, "/v1/tasks", &b"{\"queue\": \"\xff\"}"[..]).await.refused(400, JSON);
    post(&server, "/v1/tasks", &b"\x1f\x8b\x08"[..]).await.refused(400, JSON);
    let long = |field: &str, bytes: usize| json!({ "queue": "q", field: "x".repeat(bytes) });
    for field in ["queue", "name", "agent", "correlation_id", "idempotency_key"] {
        let problem = server.post("/v1/tasks", long(field, 256)).await.refused(422, INVALID);
        assert_eq!(problem["errors"][0]["pointer"], format!("/{field}"));
        assert_eq!(problem["errors"][0]["code"], "too_long");
    }
    let tags: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!("x"))).collect();
    let many = json!({ "queue": "q", "tags": tags });
    let problem = server.post("/v1/tasks", many).await.refused(422, INVALID);
    assert_eq!(problem["errors"][0]["pointer"], "/tags");
    let large = json!({ "queue": "q", "payload": "x".repeat(1024 * 1024) });
    let problem = server.post("/v1/tasks", large).await.refused(422, INVALID);
    assert_eq!(problem["errors"][0]["pointer"], "/payload");
    assert_eq!(problem["errors"][0]["code"], "too_long");
    // A small text that would be written as a large one.
    let wide = format!(r#"{{"queue": "q", "payload": [{}1e300]}}"#, "1e300,".repeat(5_000));
    post(&server, "/v1/tasks", wide).await.refused(422, INVALID);
    // Many mistakes are told at once.
    let many = json!({ "queue": "", "name": "\n", "priority": 99_999, "max_retries": 1_000 });
    let problem = server.post("/v1/tasks", many).await.refused(422, INVALID);
    assert_eq!(problem["errors"].as_array().unwrap().len(), 4);
    assert_eq!(server.written().await, (0, 0));
}

async fn a_body_is_bounded_whether_its_length_is_told_or_not(server: Server) {
    let large = "x".repeat(10 * 1024 * 1024);
    let reply = post(&server, "/v1/tasks", large.clone()).await;
    assert_eq!(reply.header("connection"), Some("close"));
    let problem = reply.refused(413, "payload_too_large");
    assert!(problem["detail"].as_str().unwrap().contains("bytes"));
    let chunks = large.as_bytes().chunks(64 * 1024).map(|c| Ok::<_, std::io::Error>(c.to_vec()));
    let chunks: Vec<_> = chunks.collect();
    let unknown = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = server.request(Method::POST, "/v1/tasks");
    let request = request.header("content-type", "application/json").body(unknown);
    server.send(request).await.refused(413, "payload_too_large");
    // Nobody has to read a body without an end.
    let forever = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 65_536]));
    let request = server.request(Method::POST, "/v1/tasks");
    let request = request.header("content-type", "application/json");
    if let Ok(answer) = request.body(reqwest::Body::wrap_stream(forever)).send().await {
        assert_eq!(answer.status(), 413);
    }
    assert_eq!(server.written().await, (0, 0));
}

async fn a_body_must_be_plain_json(server: Server) {
    let body = r#"{"queue": "q"}"#;
    for (kind, encoding, status) in [
        (Some("text/plain"), None, 415),
        (Some("application/x-www-form-urlencoded"), None, 415),
        (Some("multipart/form-data; boundary=x"), None, 415),
        (Some("json"), None, 415),
        (None, None, 415),
        (Some("application/json"), Some("gzip"), 415),
        (Some("application/json"), Some("identity"), 201),
        (Some("application/json; charset=latin1"), None, 415),
        (Some("application/json; q=1; Charset=\"ISO-8859-1\""), None, 415),
        (Some("application/json; charset=utf-8; charset=utf-16"), None, 415),
        (Some("Application/JSON; charset=utf-8"), None, 201),
        (Some("application/json;CHARSET=\"UTF-8\""), None, 201),
        (Some("application/vnd.api+json"), None, 201),
    ] {
        let mut request = server.request(Method::POST, "/v1/tasks").body(body);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        if let Some(encoding) = encoding {
            request = request.header("content-encoding", encoding);
        }
        let reply = server.send(request).await;
        assert_eq!(reply.status, status, "{kind:?} {encoding:?}");
        if status == 415 {
            let problem = reply.refused(415, "unsupported_media_type");
            let says_utf8 = problem["detail"].as_str().unwrap().contains("charset=utf-8");
            let is_other = kind.is_some_and(|kind| kind.to_lowercase().contains("charset"));
            assert_eq!(says_utf8, is_other, "{problem}");
        }
    }
    assert_eq!(server.written().await.0, 4);
}
