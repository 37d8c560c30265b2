//! How a command fails: what, why, what to do, the code, and the exit code.

use crate::client::{self, problem::FieldError};
use crate::print;
use serde_json::{Value, json};
use std::time::Duration;
use windlass::domain::limit::period_in_words;
use windlass::store::error::Error as StoreError;

/// Why a command failed.
pub struct Failure {
    /// A stable code; documented in docs/errors.md.
    pub code: String,
    /// What was wrong.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Every wrong field of a request.
    pub errors: Vec<FieldError>,
    /// How long the server asks to wait before the same is tried again.
    pub retry_after_ms: Option<u32>,
    /// The exit code.
    pub exit: u8,
    /// The server's own words, if it was the server who refused.
    body: Option<Box<Value>>,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(code: &str, detail: impl Into<String>, exit: u8) -> Failure {
        let (code, detail) = (code.to_owned(), detail.into());
        let (hint, errors, retry_after_ms, body) = (None, Vec::new(), None, None);
        Failure { code, detail, hint, errors, retry_after_ms, exit, body }
    }

    /// The same with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// A setting is wrong.
    pub fn configuration(detail: impl Into<String>) -> Failure {
        Failure::new("configuration", detail, 78)
            .hint("`windlass config` shows every setting and where it came from")
    }

    /// An argument is wrong in a way that the parser does not see.
    pub fn usage(detail: impl Into<String>) -> Failure {
        Failure::new("usage", detail, 2)
    }

    /// A file, or a stream of this process, does not do what it should.
    pub fn io(detail: impl Into<String>) -> Failure {
        Failure::new("io", detail, 74)
    }

    /// Prints it on standard error.
    pub fn report(&self, json: bool) {
        if json {
            print::note(&print::json(&self.to_json()));
            return;
        }
        let detail = print::safe_lines(&self.detail);
        print::note(&format!("windlass: {detail} [{}]", print::safe(&self.code)));
        for error in &self.errors {
            let pointer = if error.pointer.is_empty() { "/" } else { &error.pointer };
            let (pointer, detail) = (print::safe(pointer), print::safe(&error.detail));
            print::note(&format!("  {pointer}: {detail} [{}]", print::safe(&error.code)));
        }
        if let Some(ms) = self.retry_after_ms {
            print::note(&format!("  retry after: {}", period_in_words(ms.into())));
        }
        if let Some(hint) = &self.hint {
            print::note(&format!("  hint: {}", print::safe(hint)));
        }
    }

    fn to_json(&self) -> Value {
        let mut value = match &self.body {
            Some(body) if body.is_object() => (**body).clone(),
            _ => json!({ "code": self.code, "detail": self.detail }),
        };
        if let Some(hint) = &self.hint {
            value["hint"] = json!(hint);
        }
        if let Some(ms) = self.retry_after_ms {
            value["retry_after_ms"] = json!(ms);
        }
        value["exit_code"] = json!(self.exit);
        value
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        let told = error.to_string();
        match error {
            client::Error::Unreachable { is_connect, .. } => {
                let hint = if is_connect {
                    "start a server with `windlass serve`, or name another one with --server or \
                     WINDLASS_SERVER"
                } else {
                    "the call may have been carried out; it is safe to repeat it"
                };
                Failure::new("unreachable", told, 69).hint(hint)
            }
            client::Error::Unexpected { .. } => Failure::new("unexpected_answer", told, 69)
                .hint("check --server, WINDLASS_SERVER and the proxies in between"),
            client::Error::Problem(problem) => {
                let exit = match problem.status {
                    401 | 403 => 77,
                    408 | 429 | 503 | 504 => 75,
                    507 => 74,
                    _ => 1,
                };
                let hint = hint(&problem.code, problem.status, &problem.detail);
                let mut failure = Failure::new(&problem.code, problem.detail, exit);
                failure.hint = hint.map(str::to_owned);
                failure.errors = problem.errors;
                let ms = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
                failure.retry_after_ms = problem.retry_after.map(ms);
                failure.body = Some(Box::new(problem.body));
                failure
            }
        }
    }
}

/// Where to look for what was not found: the server says what it was.
fn missing(detail: &str) -> Option<&'static str> {
    if detail.starts_with("the token ") {
        // No list shows tokens, and the server says whom to ask.
        return None;
    }
    Some(match detail.strip_prefix("there is no such ").unwrap_or_default() {
        "agent" | "agent to write to" => "check the name; `windlass agent list` shows all agents",
        "venture" => "check the name; `windlass venture list` shows all ventures",
        "portfolio" => "check the name; `windlass portfolio list` shows all portfolios",
        "message" => "check the id; `windlass message list` shows the newest messages",
        "dead letter" => "check the id; `windlass dead-letter list` shows the open ones",
        "delegation" => "check the id; `windlass delegation list` shows the newest ones",
        "approval" => "check the id; `windlass approval list` shows what waits for an answer",
        "alert" => "check the id; `windlass alert list` shows the newest alerts",
        "pool" => "check the name; `windlass pool list` shows all pools",
        "limit" => "`windlass limit list` shows all limits",
        "pause" => "`windlass pause` shows what is paused",
        "task in the poison queue" => "check the id; `windlass poison list` shows what is open",
        "step" => "check the id; `windlass step list TASK` shows the steps of a task",
        "signal" => "check the task and the name; nobody has sent such a signal",
        _ => "check the id; `windlass task list` shows the newest tasks",
    })
}

/// What to do about a refusal, where the server's words do not say it for a command line.
fn hint(refused: &str, status: u16, detail: &str) -> Option<&'static str> {
    Some(match (refused, status) {
        (_, 401) => "set WINDLASS_KEY, or `key` in windlass.toml, to a key of this server",
        // Another key helps nobody whom the rule of authority refuses; the server says what does.
        ("not_permitted", _) => return None,
        (_, 403) => "use a key that may do this",
        ("not_found", _) => return missing(detail),
        ("draining", _) => "`windlass pause` lists what is stopped, `windlass resume` ends it",
        ("queue_full", _) => "wait until tasks are done, start more workers, or raise the limit",
        ("idempotency_key_reused", _) => "use a new --idempotency-key for another request",
        ("invalid_cursor", _) => {
            "--cursor takes what the page before has printed, with the --order of that page; \
             --since an id that --json has printed, or `beginning`"
        }
        ("cursor_expired", _) => "begin without --since, and read what was missed by a list",
        _ => return None,
    })
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let exit = match error {
            StoreError::Unavailable(_) => 69,
            StoreError::Corrupt(_) | StoreError::StorageFull(_) => 74,
            StoreError::Busy(_) | StoreError::Timeout(_) | StoreError::InUse(_) => 75,
            StoreError::Configuration(_)
            | StoreError::Foreign(_)
            | StoreError::NewerSchema { .. }
            | StoreError::OlderSchema { .. } => 78,
            StoreError::Constraint { .. }
            | StoreError::Data(_)
            | StoreError::OutcomeUnknown(_)
            | StoreError::Internal { .. } => 1,
        };
        Failure::new(error.code(), error.to_string(), exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::domain::approval::Refused;
    use windlass::domain::refusal::Refusal;

    /// Whoever looked for an agent was sent to the list of tasks.
    #[test]
    fn the_hint_is_about_what_was_not_found() {
        let whats = [
            ("agent", "agent list"),
            ("agent to write to", "agent list"),
            ("venture", "venture list"),
            ("portfolio", "portfolio list"),
            ("message", "message list"),
            ("dead letter", "dead-letter list"),
            ("delegation", "delegation list"),
            ("alert", "alert list"),
            ("pool", "pool list"),
            ("limit", "limit list"),
            ("pause", "windlass pause"),
            ("task in the poison queue", "poison list"),
        ];
        for (what, wanted) in whats {
            let told = missing(&Refusal::Unknown { what }.to_string()).unwrap();
            assert!(told.contains(wanted), "{what}: {told}");
        }
        for (refusal, wanted) in [
            (Refusal::UnknownTask, "task list"),
            (Refusal::UnknownStep, "step list"),
            (Refusal::Approval(Refused::UnknownApproval), "approval list"),
        ] {
            let told = missing(&refusal.to_string()).unwrap();
            assert!(told.contains(wanted), "{refusal}: {told}");
        }
        assert!(missing("there is nothing at this address").unwrap().contains("task list"));
        assert_eq!(missing(&Refusal::Approval(Refused::UnknownToken).to_string()), None);
    }

    #[test]
    fn a_key_is_the_way_out_only_where_a_key_is_the_reason() {
        assert!(hint("forbidden", 403, "").unwrap().contains("key"));
        assert_eq!(hint("not_permitted", 403, "ada may not write to bob"), None);
    }
}
