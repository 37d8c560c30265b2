//! What a request may say: bounds of every size, and characters that may not stand in names.
//!
//! Invariant: a refusal names every field that is wrong, with a JSON pointer, so that a caller
//! corrects a request once. What passes here is accepted by both databases.
//! Absent: whether the thing exists, is allowed or fits; the store, the server and `limit` know.

mod submit;
#[cfg(test)]
pub(crate) mod tests;

use crate::failure::MAX_CODE_BYTES;
use crate::json;
use crate::profile::Kind;
use crate::refusal::{FieldError, Refusal};
use crate::retry::Backoff;
use serde_json::Value;
pub use submit::{new_task, new_task_within, request_digest};

/// Shorthand for results of this module.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The longest name or key, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The longest id or type of a worker, in bytes.
pub const MAX_WORKER_BYTES: usize = 100;
/// The largest payload, result or checkpoint, in bytes of canonical JSON.
pub const MAX_JSON_BYTES: usize = 1024 * 1024;
/// What the payload and the result of an inference may be allowed by a setting: from, to.
pub const INFERENCE_BYTES: (usize, usize) = (1024, MAX_BATCH_BYTES);
/// The largest progress, in bytes of canonical JSON: it is written with every heartbeat.
pub const MAX_PROGRESS_BYTES: usize = 64 * 1024;
/// The most items of a batch.
pub const MAX_BATCH_ITEMS: usize = 1_000;
/// The largest batch, in bytes.
pub const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// The most tags of a task.
pub const MAX_TAGS: usize = 64;
/// The longest reason or comment, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;
/// The longest delay, deadline or backoff: ten years.
pub const MAX_DELAY_MS: i64 = 10 * 365 * 24 * 60 * 60 * 1_000;
/// The most retries of a task.
pub const MAX_RETRIES: i32 = 100;
/// The most codes in one list of a backoff.
pub const MAX_CODES: usize = 100;
/// The most routes (queues, pools, models…) of one kind that a session may name.
pub const MAX_ROUTES: usize = 100;
/// The most slots that a session may ask for, before its type clamps them.
pub const MAX_SLOTS: i32 = 1_000;
/// The shortest lease that a session may ask for: shorter ones expire between two heartbeats.
pub const MIN_LEASE_MS: i64 = 1_000;
/// The longest lease that a session may ask for: a day.
pub const MAX_LEASE_MS: i64 = 24 * 60 * 60 * 1_000;
/// How many items a list shows unless the caller says otherwise.
pub const DEFAULT_LIST_LIMIT: i64 = 50;
/// How many items a list shows at most.
pub const MAX_LIST_LIMIT: i64 = 1_000;

/// Why a name that has no address is refused.
pub const NO_ADDRESS: &str = "must not be `.` or `..`: no address can hold it; use another name";

/// Whether a name can stand in an address: what goes up or stays in a path never arrives.
pub fn has_address(name: &str) -> bool {
    ![".", ".."].contains(&name)
}

/// Everything that is wrong with one request.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// Notes one finding.
    pub fn add(&mut self, pointer: &str, code: &'static str, detail: impl Into<String>) {
        self.0.push(FieldError { pointer: pointer.to_owned(), code, detail: detail.into() });
    }

    /// A refusal with all findings, if there are any.
    pub fn into_result(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::Invalid(self.0)) }
    }

    /// Whether nothing was found so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A name or a key: not empty, not too long, no characters that deceive a reader.
    pub fn name(&mut self, pointer: &str, text: &str, max_bytes: usize) {
        if text.is_empty() {
            self.add(pointer, "required", "must not be empty");
        } else if text.trim() != text {
            let detail = "must not begin or end with white space; trim it";
            self.add(pointer, "bad_character", detail);
        } else {
            self.label(pointer, text, max_bytes);
        }
    }

    /// A name that stands in an address.
    pub fn address(&mut self, pointer: &str, text: &str, max_bytes: usize) {
        match has_address(text) {
            true => self.name(pointer, text, max_bytes),
            false => self.add(pointer, "not_allowed", NO_ADDRESS),
        }
    }

    /// A name that may be left out, but not be empty.
    pub fn optional_name(&mut self, pointer: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.name(pointer, text, MAX_NAME_BYTES);
        }
    }

    /// One line of text that may be empty, such as a tag's value.
    pub fn label(&mut self, pointer: &str, text: &str, max_bytes: usize) {
        if text.len() > max_bytes {
            self.too_long(pointer, text.len(), max_bytes);
        } else if let Some(c) = text.chars().find(|&c| is_deceptive(c)) {
            let detail = format!("must not hold the character U+{:04X}", c as u32);
            self.add(pointer, "bad_character", detail);
        }
    }

    /// Free text of any number of lines. Only NUL is refused: PostgreSQL cannot keep it.
    pub fn text(&mut self, pointer: &str, text: &str, max_bytes: usize) {
        if text.len() > max_bytes {
            self.too_long(pointer, text.len(), max_bytes);
        } else if text.contains('\0') {
            self.add(pointer, "bad_character", "must not hold the NUL character");
        }
    }

    /// The code of an error.
    pub fn error_code(&mut self, pointer: &str, code: &str) {
        if code.is_empty() {
            self.add(pointer, "required", "must not be empty");
        } else if code.len() > MAX_CODE_BYTES {
            self.too_long(pointer, code.len(), MAX_CODE_BYTES);
        } else if !code.chars().all(is_plain_code) {
            let detail = "may hold only letters, digits, `_`, `.` and `-`";
            self.add(pointer, "bad_character", detail);
        }
    }

    /// A number within its bounds, both included.
    pub fn range(&mut self, pointer: &str, value: i64, min: i64, max: i64) {
        if !(min..=max).contains(&value) {
            let detail = format!("is {value}, must be from {min} to {max}");
            self.add(pointer, "out_of_range", detail);
        }
    }

    /// A JSON value; its canonical text, or an empty one if it was refused.
    pub fn json(&mut self, pointer: &str, value: &Value, max_bytes: usize) -> String {
        if let Err(refused) = json::check(value) {
            let code = match refused.problem {
                json::Problem::TooDeep => "too_deep",
                _ => "bad_character",
            };
            let at = format!("{pointer}{}", refused.pointer);
            self.add(&at, code, refused.problem.to_string());
            return String::new();
        }
        json::canonical_within(value, max_bytes).unwrap_or_else(|_| {
            let detail = format!(
                "takes more than {max_bytes} bytes as canonical JSON; keep large data elsewhere \
                 and send a reference"
            );
            self.add(pointer, "too_long", detail);
            String::new()
        })
    }

    /// A backoff policy.
    pub fn backoff(&mut self, pointer: &str, backoff: &Backoff) {
        let at = |field| format!("{pointer}/{field}");
        self.range(&at("base_ms"), backoff.base_ms, 0, MAX_DELAY_MS);
        self.range(&at("max_ms"), backoff.max_ms, 0, MAX_DELAY_MS);
        if backoff.max_ms < backoff.base_ms {
            self.add(&at("max_ms"), "conflict", "must not be less than base_ms");
        }
        // NaN is in no range, so this refuses it as well.
        if !(1.0..=1_000.0).contains(&backoff.multiplier) {
            let detail = format!("is {}, must be from 1 to 1000", backoff.multiplier);
            self.add(&at("multiplier"), "out_of_range", detail);
        }
        for (field, codes) in
            [("retryable", &backoff.retryable), ("non_retryable", &backoff.non_retryable)]
        {
            if codes.len() > MAX_CODES {
                self.too_many(&at(field), codes.len(), MAX_CODES);
                continue;
            }
            for (i, code) in codes.iter().enumerate() {
                self.error_code(&format!("{}/{i}", at(field)), code);
            }
        }
        for (i, code) in backoff.non_retryable.iter().enumerate().take(MAX_CODES) {
            if backoff.retryable.contains(code) {
                let detail = format!("`{code}` is in `retryable` as well; leave it in one list");
                self.add(&format!("{}/{i}", at("non_retryable")), "conflict", detail);
            }
        }
    }

    /// A list of names.
    pub fn names(&mut self, pointer: &str, names: &[String]) {
        if names.len() > MAX_ROUTES {
            self.too_many(pointer, names.len(), MAX_ROUTES);
            return;
        }
        for (i, name) in names.iter().enumerate() {
            self.name(&format!("{pointer}/{i}"), name, MAX_NAME_BYTES);
        }
    }

    fn too_long(&mut self, pointer: &str, found: usize, max: usize) {
        let detail = format!("is {found} bytes long, at most {max} are allowed");
        self.add(pointer, "too_long", detail);
    }

    fn too_many(&mut self, pointer: &str, found: usize, max: usize) {
        let detail = format!("has {found} entries, at most {max} are allowed");
        self.add(pointer, "too_long", detail);
    }
}

/// Whether the code of an error may hold a character.
pub(crate) fn is_plain_code(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

/// Characters that make a name look like another one, or break the line it stands in: controls,
/// line and paragraph separators, and those that turn the direction of writing.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn single(check: impl FnOnce(&mut Errors)) -> Result<()> {
    let mut errors = Errors::default();
    check(&mut errors);
    errors.into_result()
}

fn single_json(pointer: &str, value: &Value, max_bytes: usize) -> Result<String> {
    let mut errors = Errors::default();
    let text = errors.json(pointer, value, max_bytes);
    errors.into_result().map(|()| text)
}

/// The name of a queue.
pub fn queue_name(name: &str) -> Result<()> {
    single(|errors| errors.name("/queue", name, MAX_NAME_BYTES))
}

/// The id of a worker.
pub fn worker_id(id: &str) -> Result<()> {
    single(|errors| errors.name("/worker_id", id, MAX_WORKER_BYTES))
}

/// What a worker says of itself when it opens a session.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Named like the fields of the request.
pub struct Session<'a> {
    pub name: &'a str,
    pub worker_type: Option<&'a str>,
    pub queues: &'a [String],
    pub pools: &'a [String],
    pub llms: &'a [String],
    pub models: &'a [String],
    pub tiers: &'a [String],
    pub slots: Option<i32>,
    pub lease_ms: Option<i64>,
}

/// A session as a worker asks for it.
pub fn session(session: &Session<'_>) -> Result<()> {
    let mut errors = Errors::default();
    errors.name("/name", session.name, MAX_WORKER_BYTES);
    if let Some(worker_type) = session.worker_type {
        errors.name("/worker_type", worker_type, MAX_WORKER_BYTES);
    }
    errors.names("/queues", session.queues);
    errors.names("/pools", session.pools);
    errors.names("/llms", session.llms);
    errors.names("/models", session.models);
    errors.names("/tiers", session.tiers);
    if let Some(slots) = session.slots {
        errors.range("/slots", slots.into(), 1, MAX_SLOTS.into());
    }
    if let Some(lease_ms) = session.lease_ms {
        errors.range("/lease_ms", lease_ms, MIN_LEASE_MS, MAX_LEASE_MS);
    }
    errors.into_result()
}

/// The result of a task, as canonical text.
pub fn result(value: &Value) -> Result<String> {
    single_json("/result", value, MAX_JSON_BYTES)
}

/// The result of a task of which the kind is not known yet: within whichever bound is larger.
/// [`result_fits`] says the rest.
pub fn result_within(value: &Value, inference_bytes: usize) -> Result<String> {
    let most = MAX_JSON_BYTES.max(inference_bytes);
    single_json("/result", value, most).map_err(|refusal| match refusal {
        Refusal::Invalid(mut errors) => {
            for error in errors.iter_mut().filter(|error| error.code == "too_long") {
                error.detail.push_str(
                    ". For an inference the server's setting `inference_max_body` allows more",
                );
            }
            Refusal::Invalid(errors)
        }
        other => other,
    })
}

/// Whether a result has so few bytes that it fits every kind of task.
pub fn result_fits_all(bytes: usize, inference_bytes: usize) -> bool {
    bytes <= MAX_JSON_BYTES.min(inference_bytes)
}

/// Whether the result of a task of this kind has no more bytes than it may.
pub fn result_fits(bytes: usize, kind: Kind, inference_bytes: usize) -> Result<()> {
    let most = if kind == Kind::Inference { inference_bytes } else { MAX_JSON_BYTES };
    single(|errors| {
        if bytes > most {
            let setting = match kind {
                Kind::Inference => "; the server's setting `inference_max_body` allows more",
                _ => "; keep large data elsewhere and send a reference",
            };
            let detail = format!("is {bytes} bytes long, at most {most} are allowed{setting}");
            errors.add("/result", "too_long", detail);
        }
    })
}

/// A checkpoint, as canonical text.
pub fn checkpoint(value: &Value) -> Result<String> {
    single_json("/checkpoint", value, MAX_JSON_BYTES)
}

/// How far a task has come, as canonical text.
pub fn progress(value: &Value) -> Result<String> {
    single_json("/progress", value, MAX_PROGRESS_BYTES)
}

/// Why somebody asks for something, in words. It may have several lines.
pub fn reason(text: &str) -> Result<()> {
    let length = text.chars().count();
    single(|errors| {
        if length > MAX_REASON_CHARS {
            let detail = format!("has {length} characters, at most {MAX_REASON_CHARS} are allowed");
            errors.add("/reason", "too_long", detail);
        } else {
            // Four bytes are the most that a character takes.
            errors.text("/reason", text, 4 * MAX_REASON_CHARS);
        }
    })
}

/// How many items a list shows.
pub fn list_limit(limit: Option<i64>) -> Result<i64> {
    let limit = limit.unwrap_or(DEFAULT_LIST_LIMIT);
    single(|errors| errors.range("/limit", limit, 1, MAX_LIST_LIMIT)).map(|()| limit)
}

/// The size of a batch. An empty one is valid and does nothing.
pub fn batch(pointer: &str, items: usize, bytes: usize) -> Result<()> {
    single(|errors| {
        if items > MAX_BATCH_ITEMS {
            errors.too_many(pointer, items, MAX_BATCH_ITEMS);
        }
        if bytes > MAX_BATCH_BYTES {
            errors.too_long(pointer, bytes, MAX_BATCH_BYTES);
        }
    })
}

/// The refusal of one item, as the refusal of the batch it stands in: `prefix` is its pointer.
pub fn within(prefix: &str, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Invalid(mut errors) => {
            for error in &mut errors {
                error.pointer.insert_str(0, prefix);
            }
            Refusal::Invalid(errors)
        }
        other => other,
    }
}
