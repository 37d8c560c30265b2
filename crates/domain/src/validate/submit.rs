//! From a request to a task that can be written: every field checked, every default filled in.
//!
//! Invariant: a field that the task's kind has no use for is refused, not ignored; the caller
//! would otherwise believe in an effect that never comes.

use super::{Errors, MAX_DELAY_MS, MAX_JSON_BYTES, MAX_NAME_BYTES, MAX_RETRIES, MAX_TAGS, Result};
use crate::id::TaskId;
use crate::json;
use crate::order::{MAX_PRIORITY, MIN_PRIORITY};
use crate::profile::{Kind, Profile};
use crate::request::{Mode, SubmitRequest};
use crate::task::{NewTask, When};
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// The task that a request asks for. `id` is its id, made by the caller or for it; `principal` is
/// whom the credential names (empty without credentials) and `actor` who stands in the history.
pub fn new_task(
    request: &SubmitRequest,
    id: TaskId,
    principal: &str,
    actor: &str,
) -> Result<NewTask> {
    new_task_within(request, id, principal, actor, MAX_JSON_BYTES)
}

/// The same, where the payload of an inference has a bound of its own.
pub fn new_task_within(
    request: &SubmitRequest,
    id: TaskId,
    principal: &str,
    actor: &str,
    inference_bytes: usize,
) -> Result<NewTask> {
    let mut errors = Errors::default();
    let profile = profile(request, &mut errors);
    names(request, &mut errors);
    foreign_fields(request, profile.kind(), &mut errors);
    let most = match profile.kind() {
        Kind::Inference => inference_bytes,
        _ => MAX_JSON_BYTES,
    };
    let payload = errors.json("/payload", &request.payload, most);
    if let Some(tags) = &request.tags {
        check_tags(tags, &mut errors);
    }
    numbers(request, &mut errors);
    if request.parent_id == Some(id) {
        errors.add("/parent_id", "conflict", "must not be the task's own id");
    }
    let queue = queue(request, profile.kind());
    if queue.is_none() {
        let detail = "is missing: say where the task goes by queue, agent, callee or pool";
        errors.add("/queue", "required", detail);
    }
    let run_at = when(("run_at", request.run_at), ("delay_ms", request.delay_ms), &mut errors);
    let deadline = when(
        ("deadline_at", request.deadline_at),
        ("deadline_ms", request.deadline_ms),
        &mut errors,
    );
    errors.into_result()?;

    let rules = profile.rules();
    let request_digest = digest(request, &payload);
    Ok(NewTask {
        id,
        profile,
        name: request.name.clone(),
        queue: queue.unwrap_or_default().to_owned(),
        payload,
        priority: request.priority.unwrap_or(0),
        tags: request.tags.clone().unwrap_or_default(),
        agent: request.agent.clone(),
        venture: request.venture.clone(),
        portfolio: request.portfolio.clone(),
        stage: request.stage.clone(),
        owner: request.owner.clone(),
        caller: request.caller.clone(),
        callee: request.callee.clone(),
        pool: request.pool.clone(),
        llm: request.llm.clone(),
        model: request.model.clone(),
        tier: request.tier.clone(),
        parent_id: request.parent_id,
        replay_of: None,
        correlation_id: request.correlation_id.clone(),
        idempotency_scope: scope(request, profile.kind(), principal).to_owned(),
        idempotency_key: request.idempotency_key.clone(),
        request_digest,
        run_at: run_at.unwrap_or(When::After(0)),
        deadline: deadline.or(rules.deadline_ms.map(When::After)),
        max_retries: request.max_retries.unwrap_or(rules.max_retries),
        backoff: request.backoff.clone(),
        actor: actor.to_owned(),
    })
}

/// Hex SHA-256 of what was asked: the canonical request without `id`, `idempotency_key` and the
/// fields that were left out. Two submits with the same digest ask for the same thing.
pub fn request_digest(request: &SubmitRequest) -> String {
    digest(request, &json::canonical(&request.payload))
}

/// The same, for whoever has the payload's canonical text. Every submit pays for it, so the text is
/// written field by field, sorted as canonical keys are, and no tree is built.
fn digest(request: &SubmitRequest, payload: &str) -> String {
    // All of them by name: a new field must not be forgotten.
    let SubmitRequest {
        queue,
        payload: value,
        kind,
        mode,
        name,
        id: _,
        idempotency_key: _,
        agent,
        venture,
        portfolio,
        stage,
        owner,
        caller,
        callee,
        pool,
        llm,
        model,
        tier,
        priority,
        tags,
        run_at,
        delay_ms,
        deadline_at,
        deadline_ms,
        max_retries,
        backoff,
        parent_id,
        correlation_id,
    } = request;
    let mut fields = Fields(String::with_capacity(payload.len() + 256));
    fields.text("agent", agent);
    fields.value("backoff", backoff);
    fields.text("callee", callee);
    fields.text("caller", caller);
    fields.text("correlation_id", correlation_id);
    fields.value("deadline_at", deadline_at);
    fields.value("deadline_ms", deadline_ms);
    fields.value("delay_ms", delay_ms);
    fields.value("kind", kind);
    fields.text("llm", llm);
    fields.value("max_retries", max_retries);
    fields.value("mode", mode);
    fields.text("model", model);
    fields.text("name", name);
    fields.text("owner", owner);
    fields.value("parent_id", parent_id);
    if !value.is_null() {
        fields.key("payload").push_str(payload);
    }
    fields.text("pool", pool);
    fields.text("portfolio", portfolio);
    fields.value("priority", priority);
    fields.text("queue", queue);
    fields.value("run_at", run_at);
    fields.text("stage", stage);
    fields.value("tags", tags);
    fields.text("tier", tier);
    fields.text("venture", venture);
    fields.digest()
}

/// The canonical text of an object, as far as it is written.
struct Fields(String);

impl Fields {
    fn key(&mut self, key: &str) -> &mut String {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        json::write_string(key, &mut self.0);
        self.0.push(':');
        &mut self.0
    }

    fn text(&mut self, key: &str, text: &Option<String>) {
        if let Some(text) = text {
            json::write_string(text, self.key(key));
        }
    }

    fn value<T: serde::Serialize>(&mut self, key: &str, value: &Option<T>) {
        if let Some(value) = value {
            let value = serde_json::to_value(value).unwrap_or_default();
            self.key(key).push_str(&json::canonical(&value));
        }
    }

    fn digest(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        json::digest_of(&self.0)
    }
}

/// The kind is a job unless the request says otherwise, by name or by where the task goes.
fn profile(request: &SubmitRequest, errors: &mut Errors) -> Profile {
    let kind = match (request.kind, &request.pool, &request.callee) {
        (Some(kind), _, _) => kind,
        (None, Some(_), Some(_)) => {
            let detail = "give either pool (an inference) or callee (a delegation), not both";
            errors.add("/pool", "conflict", detail);
            Kind::Inference
        }
        (None, Some(_), None) => Kind::Inference,
        (None, None, Some(_)) => Kind::Delegation,
        (None, None, None) => Kind::Job,
    };
    match (kind, request.mode) {
        (Kind::Job, _) => Profile::Job,
        (Kind::Inference, _) => Profile::Inference,
        (Kind::Delegation, Some(Mode::Ledger)) => Profile::Ledger,
        (Kind::Delegation, _) => Profile::Delegation,
    }
}

fn names(request: &SubmitRequest, errors: &mut Errors) {
    for (pointer, name) in [
        ("/queue", &request.queue),
        ("/name", &request.name),
        ("/idempotency_key", &request.idempotency_key),
        ("/agent", &request.agent),
        ("/venture", &request.venture),
        ("/portfolio", &request.portfolio),
        ("/stage", &request.stage),
        ("/owner", &request.owner),
        ("/caller", &request.caller),
        ("/callee", &request.callee),
        ("/pool", &request.pool),
        ("/llm", &request.llm),
        ("/model", &request.model),
        ("/tier", &request.tier),
        ("/correlation_id", &request.correlation_id),
    ] {
        errors.optional_name(pointer, name.as_deref());
    }
}

/// Fields that only one kind knows: given to another they are refused, and the kind's own routing
/// fields are required.
fn foreign_fields(request: &SubmitRequest, kind: Kind, errors: &mut Errors) {
    for (owner, field, is_given) in [
        (Kind::Delegation, "/mode", request.mode.is_some()),
        (Kind::Delegation, "/caller", request.caller.is_some()),
        (Kind::Delegation, "/callee", request.callee.is_some()),
        (Kind::Inference, "/pool", request.pool.is_some()),
        (Kind::Inference, "/llm", request.llm.is_some()),
        (Kind::Inference, "/model", request.model.is_some()),
        (Kind::Inference, "/tier", request.tier.is_some()),
    ] {
        let is_required = matches!(field, "/caller" | "/callee" | "/pool");
        if owner != kind && is_given {
            let detail = format!("belongs to kind {owner}, and this task is of kind {kind}");
            errors.add(field, "not_allowed", detail);
        } else if owner == kind && is_required && !is_given {
            errors.add(field, "required", format!("is required for kind {kind}"));
        }
    }
}

fn check_tags(tags: &BTreeMap<String, String>, errors: &mut Errors) {
    if tags.len() > MAX_TAGS {
        errors.too_many("/tags", tags.len(), MAX_TAGS);
        return;
    }
    for (key, value) in tags {
        let pointer = format!("/tags{}", json::segment(key));
        errors.name(&pointer, key, MAX_NAME_BYTES);
        errors.label(&pointer, value, MAX_NAME_BYTES);
    }
}

fn numbers(request: &SubmitRequest, errors: &mut Errors) {
    if let Some(priority) = request.priority {
        let (min, max) = (MIN_PRIORITY.into(), MAX_PRIORITY.into());
        errors.range("/priority", priority.into(), min, max);
    }
    if let Some(max_retries) = request.max_retries {
        errors.range("/max_retries", max_retries.into(), 0, MAX_RETRIES.into());
    }
    if let Some(backoff) = &request.backoff {
        errors.backoff("/backoff", backoff);
    }
}

fn when(
    (at_field, at): (&str, Option<Timestamp>),
    (after_field, after_ms): (&str, Option<i64>),
    errors: &mut Errors,
) -> Option<When> {
    if let Some(ms) = after_ms {
        errors.range(&format!("/{after_field}"), ms, 0, MAX_DELAY_MS);
    }
    match (at, after_ms) {
        (Some(_), Some(_)) => {
            let detail = format!("give either {at_field} or {after_field}, not both");
            errors.add(&format!("/{after_field}"), "conflict", detail);
            None
        }
        (Some(at), None) => Some(When::At(at)),
        (None, Some(ms)) => Some(When::After(ms)),
        (None, None) => None,
    }
}

/// Where the task goes: the given queue, or the one that its agent, callee or pool works on.
fn queue(request: &SubmitRequest, kind: Kind) -> Option<&str> {
    let fallback = match kind {
        Kind::Job => &request.agent,
        Kind::Delegation => &request.callee,
        Kind::Inference => &request.pool,
    };
    let queue = request.queue.as_deref().or(fallback.as_deref());
    // A missing callee or pool is reported as such; a second finding would only confuse.
    match kind {
        Kind::Job => queue,
        Kind::Delegation | Kind::Inference => queue.or(Some("")),
    }
}

/// In which scope an idempotency key is unique. Never null, so that a unique index holds.
fn scope<'a>(request: &'a SubmitRequest, kind: Kind, principal: &'a str) -> &'a str {
    match (kind, &request.caller) {
        (Kind::Delegation, Some(caller)) => caller,
        _ => principal,
    }
}
