//! What validation promises.

use super::*;
use crate::id::TaskId;
use crate::profile::Profile;
use crate::request::SubmitRequest;
use crate::task::{NewTask, When};
use crate::time::Timestamp;
use serde_json::json;

/// Pointers and codes of a refusal, in order.
pub(crate) fn findings<T: std::fmt::Debug>(
    refused: Result<T>,
) -> Vec<(&'static str, &'static str)> {
    match refused {
        Err(Refusal::Invalid(errors)) => {
            errors.into_iter().map(|e| (&*e.pointer.leak(), e.code)).collect()
        }
        other => panic!("not refused as invalid: {other:?}"),
    }
}

fn id() -> TaskId {
    "0190b9c0-0000-7000-8000-000000000001".parse().unwrap()
}

fn request(fields: serde_json::Value) -> SubmitRequest {
    serde_json::from_value(fields).unwrap()
}

fn submit(fields: serde_json::Value) -> Result<NewTask> {
    new_task(&request(fields), id(), "key:ci", "key:ci")
}

#[test]
fn a_job_gets_its_defaults() {
    let task = submit(json!({"queue": "mail", "payload": {"b": 1, "a": 1e16}})).unwrap();
    assert_eq!(task.id, id());
    assert_eq!(task.profile, Profile::Job);
    assert_eq!(task.payload, r#"{"a":10000000000000000.0,"b":1}"#);
    assert_eq!((task.priority, task.max_retries), (0, 3));
    assert_eq!((task.run_at, task.deadline), (When::After(0), None));
    assert_eq!(task.idempotency_scope, "key:ci");
    assert_eq!(task.actor, "key:ci");
    assert!(task.tags.is_empty());
}

#[test]
fn a_task_goes_where_its_agent_callee_or_pool_works() {
    for (fields, profile, queue) in [
        (json!({"agent": "ada"}), Profile::Job, "ada"),
        (json!({"agent": "ada", "queue": "q"}), Profile::Job, "q"),
        (json!({"caller": "ada", "callee": "bob"}), Profile::Delegation, "bob"),
        (json!({"caller": "ada", "callee": "bob", "mode": "ledger"}), Profile::Ledger, "bob"),
        (json!({"caller": "ada", "callee": "bob", "queue": "q"}), Profile::Delegation, "q"),
        (json!({"pool": "fast", "owner": "ada"}), Profile::Inference, "fast"),
        (json!({"kind": "inference", "pool": "fast", "llm": "l"}), Profile::Inference, "fast"),
    ] {
        let task = submit(fields.clone()).unwrap();
        assert_eq!((task.profile, task.queue.as_str()), (profile, queue), "{fields}");
    }
}

#[test]
fn a_delegation_has_its_profiles_defaults_and_its_callers_scope() {
    let task = submit(json!({"caller": "ada", "callee": "bob"})).unwrap();
    assert_eq!(task.deadline, Some(When::After(6 * 60 * 60 * 1_000)));
    assert_eq!(task.max_retries, 0);
    assert_eq!(task.idempotency_scope, "ada");
}

#[test]
fn fields_of_another_kind_are_refused() {
    for (fields, expected) in [
        (json!({"queue": "q", "llm": "l"}), vec![("/llm", "not_allowed")]),
        (json!({"queue": "q", "caller": "a"}), vec![("/caller", "not_allowed")]),
        (json!({"queue": "q", "mode": "ledger"}), vec![("/mode", "not_allowed")]),
        (json!({"kind": "job", "pool": "p", "agent": "a"}), vec![("/pool", "not_allowed")]),
        (
            json!({"kind": "inference", "pool": "p", "callee": "b"}),
            vec![("/callee", "not_allowed")],
        ),
        (json!({"kind": "inference"}), vec![("/pool", "required")]),
        (json!({"kind": "delegation"}), vec![("/caller", "required"), ("/callee", "required")]),
        (json!({"callee": "b"}), vec![("/caller", "required")]),
        (
            json!({"pool": "p", "callee": "b"}),
            vec![("/pool", "conflict"), ("/callee", "not_allowed")],
        ),
        (json!({}), vec![("/queue", "required")]),
    ] {
        assert_eq!(findings(submit(fields.clone())), expected, "{fields}");
    }
}

#[test]
fn a_refusal_names_every_field_that_is_wrong() {
    let refused = submit(json!({
        "queue": "",
        "name": " padded",
        "agent": "a\u{202e}b",
        "payload": {"k": "x\u{0}"},
        "tags": {"a/b": "v\n", "": "v"},
        "priority": 32_768,
        "max_retries": 101,
        "backoff": {"base_ms": 2, "max_ms": 1, "multiplier": 0.5, "retryable": ["a b"]},
        "delay_ms": -1,
        "run_at": "2026-01-31T12:00:00Z",
        "deadline_ms": 315_360_000_001_i64,
        "parent_id": id().to_string(),
    }));
    assert_eq!(
        findings(refused),
        [
            ("/queue", "required"),
            ("/name", "bad_character"),
            ("/agent", "bad_character"),
            ("/payload/k", "bad_character"),
            ("/tags/", "required"),
            ("/tags/a~1b", "bad_character"),
            ("/priority", "out_of_range"),
            ("/max_retries", "out_of_range"),
            ("/backoff/max_ms", "conflict"),
            ("/backoff/multiplier", "out_of_range"),
            ("/backoff/retryable/0", "bad_character"),
            ("/parent_id", "conflict"),
            ("/delay_ms", "out_of_range"),
            ("/delay_ms", "conflict"),
            ("/deadline_ms", "out_of_range"),
        ]
    );
}

#[test]
fn one_code_is_not_retried_and_refused_at_once() {
    let refused = submit(json!({
        "queue": "q",
        "payload": {},
        "backoff": {"retryable": ["A", "B"], "non_retryable": ["C", "B"]},
    }));
    let Err(Refusal::Invalid(errors)) = &refused else { panic!("{refused:?}") };
    assert!(errors[0].detail.contains("`B` is in `retryable` as well"), "{errors:?}");
    assert_eq!(findings(refused), [("/backoff/non_retryable/1", "conflict")]);
}

#[test]
fn sizes_are_accepted_up_to_their_bounds() {
    let sized = |name: usize, payload: usize, tags: usize| {
        let tags: serde_json::Map<_, _> = (0..tags).map(|i| (format!("t{i}"), json!(""))).collect();
        submit(json!({"queue": "q".repeat(name), "payload": "p".repeat(payload - 2), "tags": tags}))
    };
    assert!(sized(255, MAX_JSON_BYTES, 64).is_ok());
    assert_eq!(
        findings(sized(256, MAX_JSON_BYTES + 1, 65)),
        [("/queue", "too_long"), ("/payload", "too_long"), ("/tags", "too_long")]
    );
    // Bytes count, not characters.
    assert_eq!(findings(queue_name(&"ü".repeat(128))), [("/queue", "too_long")]);
    let fields = json!({"queue": "q", "priority": -32_768, "max_retries": 0, "delay_ms": 0,
        "deadline_ms": MAX_DELAY_MS, "backoff": {"base_ms": 0, "max_ms": 0, "multiplier": 1000}});
    assert!(submit(fields).is_ok());
}

#[test]
fn a_given_instant_is_kept() {
    let fields = json!({"queue": "q", "run_at": "2026-01-31T12:00:00Z",
        "deadline_at": "2026-01-31T13:00:00Z"});
    let task = submit(fields).unwrap();
    let noon = Timestamp::from_ms(1_769_860_800_000);
    assert_eq!(task.run_at, When::At(noon));
    assert_eq!(task.deadline, Some(When::At(noon.plus_ms(3_600_000))));
}

#[test]
fn a_multiplier_that_is_no_number_is_refused() {
    let mut request = request(json!({"queue": "q"}));
    for multiplier in [f64::NAN, f64::INFINITY] {
        request.backoff = Some(Backoff { multiplier, ..Backoff::default() });
        let refused = new_task(&request, id(), "", "");
        assert_eq!(findings(refused), [("/backoff/multiplier", "out_of_range")]);
    }
}

#[test]
fn the_digest_tells_requests_apart_by_what_they_ask() {
    let digest = |fields| request_digest(&request(fields));
    let plain = digest(json!({"queue": "q", "payload": {"a": 1, "b": null}}));
    let keyed = digest(json!({"payload": {"b": null, "a": 1}, "queue": "q", "name": null,
        "id": id().to_string(), "idempotency_key": "k"}));
    assert_eq!(plain, keyed);
    assert_ne!(plain, digest(json!({"queue": "q", "payload": {"a": 1}})));
    assert_ne!(plain, digest(json!({"queue": "r", "payload": {"a": 1, "b": null}})));
}

#[test]
fn the_digest_is_that_of_the_canonical_request() {
    let all = json!({"queue": "q", "payload": {"a": [1, 2.5, "\u{1}\"ä\\\n"], "b": null},
        "kind": "job", "mode": "ledger", "name": "n\t", "agent": "a", "venture": "v",
        "portfolio": "p", "stage": "s", "owner": "o", "caller": "c", "callee": "d", "pool": "e",
        "llm": "l", "model": "m", "tier": "t", "priority": -3, "tags": {"z": "1", "y": "2"},
        "run_at": "2026-01-31T12:00:00Z", "delay_ms": 5, "deadline_at": "2026-01-31T13:00:00Z",
        "deadline_ms": 6, "max_retries": 7, "backoff": {"base_ms": 10},
        "parent_id": id().to_string(), "correlation_id": "x"});
    let generic = |request: &SubmitRequest| {
        let mut value = serde_json::to_value(request).unwrap();
        value.as_object_mut().unwrap().retain(|_, field| !field.is_null());
        json::digest(&value)
    };
    for fields in [all, json!({}), json!({"queue": "q"}), json!({"payload": [0]})] {
        let request: SubmitRequest = serde_json::from_value(fields).unwrap();
        assert_eq!(request_digest(&request), generic(&request), "{request:?}");
    }
}

#[test]
fn a_session_is_refused_with_every_mistake() {
    let good = Session { name: "w1", slots: Some(1), lease_ms: Some(60_000), ..Session::default() };
    assert_eq!(session(&good), Ok(()));
    let queues = ["ok".to_owned(), "".to_owned()];
    let bad = Session {
        name: &"w".repeat(101),
        worker_type: Some("a\tb"),
        queues: &queues,
        slots: Some(0),
        lease_ms: Some(999),
        ..Session::default()
    };
    assert_eq!(
        findings(session(&bad)),
        [
            ("/name", "too_long"),
            ("/worker_type", "bad_character"),
            ("/queues/1", "required"),
            ("/slots", "out_of_range"),
            ("/lease_ms", "out_of_range"),
        ]
    );
}

#[test]
fn the_small_validators_hold_their_bounds() {
    assert_eq!(worker_id(&"w".repeat(100)), Ok(()));
    assert_eq!(findings(worker_id(&"w".repeat(101))), [("/worker_id", "too_long")]);
    assert_eq!(reason(&"ü".repeat(1_000)), Ok(()));
    assert_eq!(reason("two\nlines"), Ok(()));
    assert_eq!(findings(reason(&"ü".repeat(1_001))), [("/reason", "too_long")]);
    assert_eq!(findings(reason("\0")), [("/reason", "bad_character")]);
    assert_eq!(result(&json!({"ok": true})).unwrap(), r#"{"ok":true}"#);
    let too_big = json!("x".repeat(MAX_JSON_BYTES));
    assert_eq!(findings(checkpoint(&too_big)), [("/checkpoint", "too_long")]);
    assert_eq!(findings(progress(&too_big)), [("/progress", "too_long")]);
    assert_eq!(list_limit(None), Ok(50));
    assert_eq!(list_limit(Some(1_000)), Ok(1_000));
    for limit in [0, 1_001, -1] {
        assert_eq!(findings(list_limit(Some(limit))), [("/limit", "out_of_range")]);
    }
    assert_eq!(batch("/tasks", 1_000, 8 * 1024 * 1024), Ok(()));
    assert_eq!(findings(batch("/tasks", 1_001, 0)), [("/tasks", "too_long")]);
    assert_eq!(findings(batch("/tasks", 1, 8 * 1024 * 1024 + 1)), [("/tasks", "too_long")]);
}

#[test]
fn an_items_refusal_is_told_where_it_stands_in_its_batch() {
    let refused = submit(json!({})).map_err(|r| within("/tasks/17", r));
    assert_eq!(findings(refused), [("/tasks/17/queue", "required")]);
    assert_eq!(within("/tasks/1", Refusal::NotDue), Refusal::NotDue);
}
