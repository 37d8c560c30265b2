//! What the OpenAPI document says of every operation: its errors, its key, and the bounds of what
//! it takes.
//!
//! Invariant: bounds come from the constants that `validate` uses, so the document cannot promise
//! what the server refuses. A length is counted in bytes there and in characters in JSON schema:
//! what the schema forbids is always refused, and a name beyond ASCII may be too long sooner.

use super::credential::OPERATORS_ONLY;
use super::session::MAX_WAIT_MS;
use super::{openai, pressure};
use serde_json::{Map, Value as Json, json};
use windlass::domain::agent::{MAX_GRANTS, MAX_WORDS};
use windlass::domain::approval::{MAX_OCCURRENCE, MAX_REQUIRED};
use windlass::domain::delegation::REPORTED;
use windlass::domain::failure::{MAX_CODE_BYTES, MAX_MESSAGE_BYTES};
use windlass::domain::limit::{MAX_LIMIT, MAX_PERIOD_MS, PAUSABLE};
use windlass::domain::message;
use windlass::domain::order::{MAX_PRIORITY, MIN_PRIORITY};
use windlass::domain::step;
use windlass::domain::trouble::MAX_NOTE_BYTES;
use windlass::domain::validate::{
    MAX_BATCH_ITEMS, MAX_CODES, MAX_DELAY_MS, MAX_LEASE_MS, MAX_NAME_BYTES, MAX_REASON_CHARS,
    MAX_RETRIES, MAX_ROUTES, MAX_SLOTS, MAX_TAGS, MAX_WORKER_BYTES, MIN_LEASE_MS,
};

/// Text of one line: no controls, and nothing that turns the direction of writing.
const LINE: &str =
    "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069";

/// The document with what every operation has in common.
pub fn complete(mut document: Json) -> Json {
    document["components"]["securitySchemes"] = json!({
        "key": {
            "type": "http", "scheme": "bearer",
            "description": "Needed where the server was given keys.",
        },
    });
    let schemas = document["components"]["schemas"].clone();
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                match operation["tags"][0] == "openai" {
                    true => openai::describe(path, operation),
                    false => errors(path, method, operation),
                }
                optional_body(operation, &schemas);
                if pressure::is_submit(method, path) {
                    backpressure(operation);
                }
            }
        }
    }
    kept_out(&mut document);
    document["components"]["schemas"]["OpenAiError"] = openai::error_schema();
    bounds(&mut document);
    rename(&mut document);
    document
}

/// What keeps a task out stands in one field of our types and in one of two in the answer.
fn kept_out(document: &mut Json) {
    for schema in ["Problem", "ItemError"] {
        let properties = &mut document["components"]["schemas"][schema]["properties"];
        for (field, what) in [("limit", "ReachedLimit"), ("drained", "Drained")] {
            properties[field] = json!({ "$ref": format!("#/components/schemas/{what}") });
        }
    }
}

/// Names of schemas that differ from those of our types: clients are generated from them.
const NAMES: &[(&str, &str)] = &[
    ("AgentBody", "Agent"),
    ("AlertBody", "Alert"),
    ("ApprovalBody", "Approval"),
    ("AskRequest", "NewApproval"),
    ("AuditBody", "AuditEntry"),
    ("BackpressureBody", "Backpressure"),
    ("DisplayBody", "ApprovalDisplay"),
    ("List_ApprovalBody", "ApprovalList"),
    ("List_AuditBody", "AuditList"),
    ("VoteBody", "ApprovalVote"),
    ("AssignmentBody", "Assignment"),
    ("ClaimBody", "ClaimRequest"),
    ("ErrorBody", "Error"),
    ("FailureBody", "Failure"),
    ("HistoryBody", "Transition"),
    ("HolderBody", "LimitHolder"),
    ("LeaseBody", "Lease"),
    ("LimitBody", "Limit"),
    ("List_LimitBody", "LimitList"),
    ("List_PauseBody", "PauseList"),
    ("PauseBody", "Pause"),
    ("DeadLetterBody", "DeadLetter"),
    ("DeliveryBody", "Delivery"),
    ("List_DeadLetterBody", "DeadLetterList"),
    ("List_MessageBody", "MessageList"),
    ("MessageBody", "Message"),
    ("MessageClaimBody", "MessageClaimRequest"),
    ("NewMessageBody", "NewMessage"),
    ("List_AgentBody", "AgentList"),
    ("List_AlertBody", "AlertList"),
    ("List_FailureBody", "FailureList"),
    ("List_HistoryBody", "TransitionList"),
    ("List_NodeBody", "NodeList"),
    ("List_NoticeBody", "NoticeList"),
    ("List_PoisonBody", "PoisonList"),
    ("List_SessionBody", "SessionList"),
    ("List_TaskBody", "TaskList"),
    ("NodeBody", "Node"),
    ("List_StepBody", "StepList"),
    ("NoteBody", "Note"),
    ("NoticeBody", "Notice"),
    ("OutcomeName", "Outcome"),
    ("PlanBody", "ReplayPlan"),
    ("PlannedBody", "PlannedStep"),
    ("PoisonBody", "Poison"),
    ("PoolBody", "Pool"),
    ("List_PoolBody", "PoolList"),
    ("ProviderBody", "Provider"),
    ("SessionBody", "Session"),
    ("SignalBody", "Signal"),
    ("StatusBody", "ServerStatus"),
    ("StepBody", "Step"),
    ("WaitBody", "Wait"),
    ("WhyBody", "Why"),
    ("ReasonBody", "Reason"),
    ("WaitingForBody", "WaitingFor"),
    ("TaskBody", "Task"),
    ("Value", "Json"),
];

fn rename(document: &mut Json) {
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        for (from, to) in NAMES {
            let schema = schemas.remove(*from);
            debug_assert!(schema.is_some(), "{from}");
            schemas.extend(schema.map(|schema| ((*to).to_owned(), schema)));
        }
    }
    document["components"]["schemas"]["Json"] = json!({
        "description": "Any JSON that both databases keep; see docs/errors.md.",
    });
    refer(document);
}

/// Leads references to the new names. Any JSON may be null, so nothing else need say it.
fn refer(value: &mut Json) {
    const PLACE: &str = "#/components/schemas/";
    match value {
        Json::Object(fields) => {
            fields.values_mut().for_each(refer);
            let either = fields.get("oneOf").and_then(Json::as_array).cloned().unwrap_or_default();
            // With its description, if it has one.
            let any = either.iter().find(|one| one["$ref"] == format!("{PLACE}Json"));
            if let Some(any) = any.filter(|_| either.contains(&json!({ "type": "null" }))) {
                fields.remove("oneOf");
                fields.extend(object(any.clone()));
            }
            let Some(Json::String(reference)) = fields.get_mut("$ref") else { return };
            let known = NAMES.iter().find(|(from, _)| reference.strip_prefix(PLACE) == Some(from));
            known.into_iter().for_each(|(_, to)| *reference = format!("{PLACE}{to}"));
        }
        Json::Array(items) => items.iter_mut().for_each(refer),
        _ => {}
    }
}

/// A body whose fields may all be left out may be left out itself.
fn optional_body(operation: &mut Json, schemas: &Json) {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    let name = schema.as_str().and_then(|reference| reference.rsplit('/').next());
    let Some(schema) = name.and_then(|name| schemas.get(name)) else { return };
    if schema.get("required").is_none() {
        operation["requestBody"]["required"] = json!(false);
    }
}

/// Every answer to a submit says how hard the system is pressed, unless nobody knows who asks.
fn backpressure(operation: &mut Json) {
    let header = json!({
        "description": "How hard the system is pressed; `GET /v1/backpressure` tells more.",
        "schema": { "$ref": "#/components/schemas/BackpressureLevel" },
    });
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if !["401", "403", "421"].contains(&status.as_str()) {
            response["headers"]["Windlass-Backpressure"] = header.clone();
        }
    }
}

/// Adds the problems that an operation may answer with.
fn errors(path: &str, method: &str, operation: &mut Json) {
    let has_id = path.contains("{id}");
    let has_name = path.contains("{name}");
    let has_scope = path.contains("{scope}");
    let has_body = operation.get("requestBody").is_some();
    let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
    let has_query = parameters.iter().any(|parameter| parameter["in"] == "query");
    let is_open = super::middleware::OPEN.contains(&path);
    let is_session = path.starts_with("/v1/sessions/{id}/") && !path.ends_with("/finish");
    // Of two who act on the same thing one comes second.
    let is_workflow = method == "post"
        && ["/v1/poison/", "/v1/dead-letters/"].iter().any(|place| path.starts_with(place));
    let is_delivery = path.starts_with("/v1/messages/{id}/");
    let is_send = method == "post" && path == "/v1/messages";
    let is_leased = operation["tags"][0] == "work" || path.ends_with("/{id}/approvals");
    let is_refused_later = is_workflow && !path.ends_with("/note");
    let can_conflict =
        is_leased || is_delivery || path.ends_with("/cancel") || is_session || is_refused_later;
    let mut codes: Vec<(u16, Vec<&str>)> = Vec::new();
    let mut wrong = Vec::new();
    wrong.extend(has_id.then_some("invalid_id"));
    wrong.extend(has_body.then_some("invalid_json"));
    let resumes = has("cursor") || has("after") || path == "/v1/tasks/{id}/stream";
    wrong.extend(resumes.then_some("invalid_cursor"));
    codes.push((400, wrong));
    let mut forbidden = vec!["origin_not_allowed"];
    let is_operators = OPERATORS_ONLY.contains(&(method.to_uppercase().as_str(), path));
    forbidden.extend(is_operators.then_some("forbidden"));
    let is_decision = path.starts_with("/v1/approvals/") && method == "post";
    forbidden.extend(is_decision.then_some("self_approval"));
    forbidden.extend(is_send.then_some("not_permitted"));
    codes.push((403, forbidden));
    codes.push((421, vec!["host_not_allowed"]));
    codes.push((401, (!is_open).then_some("unauthenticated").into_iter().collect()));
    let missing = if path.contains("sessions") { "session_not_found" } else { "not_found" };
    let is_finish = path.ends_with("/finish");
    let has_missing = (has_id && !is_finish)
        || is_decision
        || is_send
        || path == "/v1/signals"
        || (has_name && (method == "get" || path.ends_with("/archive")))
        || (has_name && path.ends_with("/restore"))
        || (has_scope && !["put", "patch"].contains(&method));
    codes.push((404, has_missing.then_some(missing).into_iter().collect()));
    let conflicts: &[&str] = match (can_conflict, is_session) {
        (false, _) => &[],
        (true, _) if is_workflow => &["illegal_transition"],
        (true, true) => &["session_closed"],
        (true, _) if path.ends_with("/heartbeat") && is_delivery => &["lease_lost"],
        (true, _) if is_delivery => &["lease_lost", "already_finished"],
        (true, false) => &["lease_lost", "already_finished", "illegal_transition"],
    };
    let mut conflicts = conflicts.to_vec();
    let mut gone = Vec::new();
    gone.extend(has("after").then_some("cursor_expired"));
    if is_decision {
        conflicts = vec!["already_decided", "already_voted", "approval_withdrawn"];
        conflicts.push("digest_mismatch");
        gone.push("expired");
    }
    conflicts.extend(step_conflicts(path, method));
    codes.push((409, conflicts));
    codes.push((410, gone));
    for (status, code) in
        [(408, "request_timeout"), (413, "payload_too_large"), (415, "unsupported_media_type")]
    {
        codes.push((status, has_body.then_some(code).into_iter().collect()));
    }
    let mut invalid: Vec<&str> = (has_body || has_query || has_name || has_scope)
        .then_some("validation_failed")
        .into_iter()
        .collect();
    invalid.extend(
        path.starts_with("/v1/tasks")
            .then_some("idempotency_key_reused")
            .filter(|_| method == "post" && ["/v1/tasks", "/v1/tasks/batch"].contains(&path)),
    );
    let has_own_id = is_send || ["/v1/signals", "/v1/tasks/{id}/replay"].contains(&path);
    invalid.extend(has_own_id.then_some("idempotency_key_reused"));
    codes.push((422, invalid));
    let submits = ["/v1/tasks", "/v1/tasks/batch", "/v1/delegations"];
    let is_submit = method == "post" && submits.contains(&path);
    codes.push((429, is_submit.then_some("queue_full").into_iter().collect()));
    if path != "/healthz" {
        codes.push((500, vec!["internal"]));
        let mut later = vec!["busy", "timeout", "unavailable", "storage_full", "shutting_down"];
        later.extend(is_submit.then_some("draining"));
        codes.push((503, later));
    }
    if method != "get" {
        codes.push((504, vec!["outcome_unknown"]));
    }
    for (status, codes) in codes.into_iter().filter(|(_, codes)| !codes.is_empty()) {
        operation["responses"][status.to_string()] = problem(status, &codes);
    }
    if !is_open {
        operation["security"] = json!([{ "key": [] }, {}]);
    }
}

/// Why steps and signals are refused, beside what every leased call has.
fn step_conflicts(path: &str, method: &str) -> &'static [&'static str] {
    match (method, path) {
        ("post", "/v1/tasks/{id}/steps") => &["in_doubt", "step_failed", "illegal_step"],
        ("post", "/v1/tasks/{id}/steps/record") => &["illegal_step"],
        ("post", path) if path.starts_with("/v1/steps/{id}/") => &["illegal_step"],
        ("post", "/v1/signals") => &["task_finished"],
        ("post", "/v1/dead-letters/{id}/redeliver") => &["unreadable"],
        ("post", "/v1/delegations/{id}/status" | "/v1/delegations/{id}/heartbeat") => {
            &["lease_lost", "already_finished", "illegal_transition"]
        }
        ("post", "/v1/agents" | "/v1/ventures" | "/v1/portfolios") => &["already_exists"],
        ("post", "/v1/tasks/{id}/replay") => &["not_finished", "no_such_step", "not_idempotent"],
        _ => &[],
    }
}

fn problem(status: u16, codes: &[&str]) -> Json {
    let names: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    let mut response = json!({
        "description": names.join(", "),
        "content": {
            "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } },
        },
    });
    if [429, 503].contains(&status) {
        response["headers"]["Retry-After"] = json!({
            "description": "Seconds", "schema": { "type": "integer", "minimum": 0 },
        });
    }
    response
}

fn name(max: usize) -> Json {
    let pattern = format!("^[^\\s{LINE}]([^{LINE}]*[^\\s{LINE}])?$");
    json!({ "minLength": 1, "maxLength": max, "pattern": pattern })
}

fn range(min: i64, max: i64) -> Json {
    json!({ "minimum": min, "maximum": max })
}

/// Merges the bounds of fields into their schemas.
fn bounds(document: &mut Json) {
    let mut of = |schema: &str, field: &str, bound: Json| {
        let pointer = format!("/components/schemas/{schema}/properties/{field}");
        let found = document.pointer_mut(&pointer).and_then(Json::as_object_mut);
        debug_assert!(found.is_some(), "{pointer}");
        found.into_iter().for_each(|found| found.extend(object(bound.clone())));
    };
    for field in [
        "queue",
        "name",
        "idempotency_key",
        "agent",
        "venture",
        "portfolio",
        "stage",
        "owner",
        "caller",
        "callee",
        "pool",
        "llm",
        "model",
        "tier",
        "correlation_id",
    ] {
        of("NewTask", field, name(MAX_NAME_BYTES));
    }
    of("NewTask", "kind", json!({ "enum": ["job", "delegation", "inference", null] }));
    of("NewTask", "mode", json!({ "enum": ["executed", "ledger", null] }));
    of("NewTask", "priority", range(MIN_PRIORITY.into(), MAX_PRIORITY.into()));
    of("NewTask", "delay_ms", range(0, MAX_DELAY_MS));
    of("NewTask", "deadline_ms", range(0, MAX_DELAY_MS));
    of("NewTask", "max_retries", range(0, MAX_RETRIES.into()));
    let line = json!({
        "type": "string", "maxLength": MAX_NAME_BYTES, "pattern": format!("^[^{LINE}]*$"),
    });
    let tags = json!({
        "maxProperties": MAX_TAGS, "propertyNames": name(MAX_NAME_BYTES),
        "additionalProperties": line,
    });
    of("NewTask", "tags", tags);
    of("Backoff", "base_ms", range(0, MAX_DELAY_MS));
    of("Backoff", "max_ms", range(0, MAX_DELAY_MS));
    of("Backoff", "multiplier", range(1, 1_000));
    for field in ["retryable", "non_retryable"] {
        of("Backoff", field, json!({ "maxItems": MAX_CODES, "items": error_code() }));
    }
    for field in ["gate", "action"] {
        of("AskRequest", field, name(MAX_NAME_BYTES));
    }
    of("AskRequest", "expires_ms", range(1, MAX_DELAY_MS));
    of("AskRequest", "approvers", range(1, MAX_REQUIRED));
    of("AskRequest", "occurrence", range(0, MAX_OCCURRENCE));
    of("TokenRequest", "approver", name(MAX_NAME_BYTES));
    of("TokenRequest", "expires_ms", range(1, MAX_DELAY_MS));
    of("DecideRequest", "decision", json!({ "enum": ["approve", "deny"] }));
    let words = json!({ "maxLength": MAX_REASON_CHARS, "pattern": "^[^\\u0000]*$" });
    of("VoteRequest", "comment", words.clone());
    of("DecideRequest", "comment", words);
    trouble_bounds(&mut of);
    of("BatchRequest", "tasks", json!({ "maxItems": MAX_BATCH_ITEMS }));
    of("RegisterRequest", "name", name(MAX_WORKER_BYTES));
    of("RegisterRequest", "worker_type", name(MAX_WORKER_BYTES));
    for field in ["queues", "pools", "llms", "models", "tiers"] {
        let mut items = name(MAX_NAME_BYTES);
        items["type"] = json!("string");
        of("RegisterRequest", field, json!({ "maxItems": MAX_ROUTES, "items": items }));
    }
    let kinds = json!({ "type": "string", "enum": ["job", "delegation", "inference"] });
    of("RegisterRequest", "kinds", json!({ "items": kinds }));
    of("RegisterRequest", "slots", range(1, MAX_SLOTS.into()));
    of("RegisterRequest", "lease_ms", range(MIN_LEASE_MS, MAX_LEASE_MS));
    of("ClaimBody", "max", range(1, MAX_BATCH_ITEMS as i64));
    of("ClaimBody", "wait_ms", range(0, MAX_WAIT_MS));
    of("ClaimBody", "task_ids", json!({ "maxItems": MAX_BATCH_ITEMS }));
    of("FinishRequest", "items", json!({ "maxItems": MAX_BATCH_ITEMS }));
    of("SessionHeartbeat", "leases", json!({ "maxItems": MAX_BATCH_ITEMS }));
    of(
        "CancelRequest",
        "reason",
        json!({ "maxLength": MAX_REASON_CHARS, "pattern": "^[^\\u0000]*$" }),
    );
    of("FailRequest", "retry_after_ms", range(0, MAX_DELAY_MS));
    step_bounds(&mut of);
    flow_bounds(&mut of);
    message_bounds(&mut of);
    of("FinishItem", "retry_after_ms", range(0, MAX_DELAY_MS));
    of("TaskError", "code", error_code());
    of(
        "TaskError",
        "message",
        json!({ "maxLength": MAX_MESSAGE_BYTES, "pattern": "^[^\\u0000]*$" }),
    );
}

/// The same, of what people say about trouble and agents.
fn trouble_bounds(of: &mut impl FnMut(&str, &str, Json)) {
    let text = json!({ "minLength": 1, "maxLength": MAX_NOTE_BYTES, "pattern": "^[^\\u0000]*$" });
    for schema in
        ["AssignRequest", "InvestigateRequest", "NoteRequest", "ResolveRequest", "AbandonRequest"]
    {
        of(schema, "note", text.clone());
    }
    of("AssignRequest", "assignee", name(MAX_NAME_BYTES));
    of("InvestigateRequest", "assignee", name(MAX_NAME_BYTES));
    let ends = json!({ "enum": ["poisoned", "failed", null] });
    of("Backoff", "on_exhausted", ends.clone());
    of("RetryPolicy", "on_exhausted", ends);
    of("RetryPolicy", "max_retries", range(0, MAX_RETRIES.into()));
    registry_bounds(of);
}

fn registry_bounds(of: &mut impl FnMut(&str, &str, Json)) {
    for schema in ["NewAgent", "AgentRequest"] {
        for field in ["role", "parent", "venture", "portfolio", "queue"] {
            of(schema, field, name(MAX_NAME_BYTES));
        }
        of(schema, "worker_type", name(MAX_WORKER_BYTES));
    }
    for schema in ["NewAgent", "NewVenture", "NewPortfolio"] {
        of(schema, "name", name(MAX_NAME_BYTES));
    }
    let states: Vec<&str> = REPORTED.iter().map(|state| state.as_str()).collect();
    of("StatusRequest", "status", json!({ "enum": states }));
    of("StatusRequest", "holder", name(MAX_WORKER_BYTES));
    of("NewVenture", "portfolio", name(MAX_NAME_BYTES));
    of("VentureRequest", "portfolio", name(MAX_NAME_BYTES));
    let types = json!({ "enum": ["in_process", "session", "command", "webhook"] });
    of("Executor", "type", types);
    of("Executor", "timeout_ms", range(1, MAX_DELAY_MS));
    of("Executor", "command", json!({ "minItems": 1, "maxItems": MAX_WORDS }));
    let mut items = name(MAX_NAME_BYTES);
    items["type"] = json!("string");
    for field in ["agents", "ventures"] {
        of("Authority", field, json!({ "maxItems": MAX_GRANTS, "items": items }));
    }
}

/// The same, of what agents tell each other.
fn message_bounds(of: &mut dyn FnMut(&str, &str, Json)) {
    for field in ["from", "to", "correlation_id", "idempotency_key"] {
        of("NewMessageBody", field, name(MAX_NAME_BYTES));
    }
    of("NewMessageBody", "type", name(MAX_WORKER_BYTES));
    of("NewMessageBody", "priority", range(MIN_PRIORITY.into(), MAX_PRIORITY.into()));
    of("NewMessageBody", "ttl_ms", range(1, MAX_DELAY_MS));
    of("MessageClaimBody", "handler", name(MAX_NAME_BYTES));
    of("MessageClaimBody", "pool", name(MAX_NAME_BYTES));
    of("MessageClaimBody", "max", range(1, message::MAX_CLAIM));
    of("MessageClaimBody", "wait_ms", range(0, MAX_WAIT_MS));
    of("MessageClaimBody", "lease_ms", range(MIN_LEASE_MS, MAX_LEASE_MS));
    let mut items = name(MAX_NAME_BYTES);
    items["type"] = json!("string");
    let agents = json!({ "minItems": 1, "maxItems": MAX_ROUTES, "items": items });
    of("MessageClaimBody", "agents", agents);
    of("ExtendRequest", "lease_ms", range(MIN_LEASE_MS, MAX_LEASE_MS));
    of("NackRequest", "retry_after_ms", range(0, MAX_DELAY_MS));
    of("NackError", "code", error_code());
    let words = json!({ "maxLength": MAX_MESSAGE_BYTES, "pattern": "^[^\\u0000]*$" });
    of("NackError", "message", words);
    of("RedeliverRequest", "to", name(MAX_NAME_BYTES));
    let text = json!({ "minLength": 1, "maxLength": MAX_NOTE_BYTES, "pattern": "^[^\\u0000]*$" });
    of("RedeliverRequest", "note", text);
}

fn flow_bounds(of: &mut dyn FnMut(&str, &str, Json)) {
    of("LimitRequest", "max_active", range(0, MAX_LIMIT));
    of("LimitRequest", "max_pending", range(0, MAX_LIMIT));
    of("LimitChange", "max_active", range(0, MAX_LIMIT));
    of("LimitChange", "max_pending", range(0, MAX_LIMIT));
    of("Rate", "count", range(1, MAX_LIMIT));
    of("Rate", "period_ms", range(1, MAX_PERIOD_MS));
    let scopes: Vec<&str> = PAUSABLE.iter().map(|scope| scope.as_str()).collect();
    of("PauseRequest", "scope", json!({ "enum": scopes }));
    of("PauseRequest", "name", name(MAX_NAME_BYTES));
    of("PauseRequest", "mode", json!({ "enum": ["pause", "drain", null] }));
    let words = json!({ "maxLength": MAX_REASON_CHARS, "pattern": "^[^\\u0000]*$" });
    of("PauseRequest", "reason", words);
}

fn step_bounds(of: &mut dyn FnMut(&str, &str, Json)) {
    for schema in ["RecordStepRequest", "BeginStepRequest"] {
        of(schema, "name", name(MAX_NAME_BYTES));
        of(schema, "type", name(MAX_WORKER_BYTES));
        of(schema, "occurrence", range(0, step::MAX_OCCURRENCE.into()));
    }
    of("BeginStepRequest", "idempotent", json!({ "enum": [false] }));
    of("FailStepRequest", "effect", json!({ "enum": ["none", "unknown", null] }));
    of(
        "ResolveStepRequest",
        "reason",
        json!({ "maxLength": MAX_REASON_CHARS, "pattern": "^[^\\u0000]*$" }),
    );
    of("Until", "delay_ms", range(0, MAX_DELAY_MS));
    of("Until", "signal", name(MAX_NAME_BYTES));
    of("Until", "key", name(MAX_NAME_BYTES));
    of("ParkRequest", "timeout_ms", range(0, MAX_DELAY_MS));
    of("ParkRequest", "occurrence", range(0, step::MAX_OCCURRENCE.into()));
    of("SignalRequest", "name", name(MAX_NAME_BYTES));
    of("SignalRequest", "key", name(MAX_NAME_BYTES));
}

fn error_code() -> Json {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_CODE_BYTES,
        "pattern": "^[A-Za-z0-9_.-]+$",
    })
}

fn object(value: Json) -> Map<String, Json> {
    match value {
        Json::Object(map) => map,
        _ => Map::new(),
    }
}
