//! What the OpenAPI document says of this face: its errors, and how free its bodies are.

use serde_json::{Value as Json, json};

/// Every error that any call may meet.
const EVERYWHERE: &[(u16, &str)] = &[
    (401, "`unauthenticated`"),
    (403, "`origin_not_allowed`"),
    (421, "`host_not_allowed`"),
    (500, "`internal`, or what the upstream said"),
    (503, "`busy`, `timeout`, `unavailable`, `storage_full`, `shutting_down`"),
];
/// Those of calls that name a model or a response in their address.
const NAMED: &[(u16, &str)] =
    &[(404, "`model_not_found`, `not_found`"), (400, "`validation_failed`")];
/// Those of a cancel.
const CANCEL: &[(u16, &str)] = &[(409, "`illegal_transition`"), (504, "`outcome_unknown`")];
/// Those of calls that become a task.
const TASK: &[(u16, &str)] = &[
    (400, "`validation_failed`, `invalid_json`, or what the upstream said"),
    (404, "`model_not_found`"),
    (408, "`request_timeout`"),
    (409, "`idempotency_key_reused`"),
    (413, "`payload_too_large`"),
    (415, "`unsupported_media_type`"),
    (429, "`queue_full`, or the upstream is busy for too long"),
    (499, "`cancelled`"),
    (502, "the upstream failed"),
    (503, "`draining`, `pending_timeout`, `busy`, `unavailable`, `shutting_down`"),
    (504, "`timeout`, `outcome_unknown`"),
];

/// An error as clients read it.
pub fn error_schema() -> Json {
    let fields = json!({
        "message": { "type": "string" },
        "type": { "type": "string" },
        "param": { "type": ["string", "null"] },
        "code": { "description": "A word; an upstream may say something else." },
    });
    let error = json!({
        "type": "object", "required": ["message", "type", "param", "code"], "properties": fields,
    });
    json!({
        "type": "object", "description": "An error in OpenAI's shape.",
        "required": ["error"], "properties": { "error": error },
    })
}

/// Completes an operation of this face.
pub fn describe(path: &str, operation: &mut Json) {
    let has_body = operation.get("requestBody").is_some();
    let named = if path.contains('{') { NAMED } else { &[] };
    let cancel = if path.ends_with("/cancel") { CANCEL } else { &[] };
    let task = if has_body { TASK } else { &[] };
    for (status, description) in [EVERYWHERE, named, cancel, task].concat() {
        let content = json!({ "schema": { "$ref": "#/components/schemas/OpenAiError" } });
        let mut response =
            json!({ "description": description, "content": { "application/json": content } });
        if [429, 503].contains(&status) {
            response["headers"]["Retry-After"] = json!({
                "description": "Seconds", "schema": { "type": "integer", "minimum": 0 },
            });
        }
        operation["responses"][status.to_string()] = response;
    }
    if has_body {
        let mut fields = json!({ "model": { "type": "string" } });
        if path != "/v1/embeddings" {
            fields["stream"] = json!({ "type": ["boolean", "null"] });
        }
        // Whatever a provider understands; these are what the server itself looks at.
        operation["requestBody"]["content"]["application/json"]["schema"] = json!({
            "type": "object", "required": ["model"], "properties": fields,
            "additionalProperties": true,
        });
    }
    if ["/v1/chat/completions", "/v1/responses", "/v1/responses/{id}"].contains(&path) {
        let answer = &mut operation["responses"]["200"]["content"];
        // No type: some readers of the document take it for that of the stream, others for that of
        // each event.
        let events = "Server-sent events, each with JSON, or `[DONE]`, as its data.";
        answer["text/event-stream"] = json!({ "schema": { "description": events } });
    }
    operation["security"] = json!([{ "key": [] }, {}]);
}
