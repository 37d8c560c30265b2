//! One task, forwarded: which call it is, how often it is tried, and what its end means.

use super::{Upstream, cause, read, stream, translate};
use crate::ordered::Ordered;
use crate::worker::assignment::Assignment;
use crate::worker::outcome::Outcome;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use windlass::domain::retry::code;
use windlass::domain::time::Timestamp;
use windlass::domain::usage::Usage;

/// How often a busy upstream is asked.
const TRIES: u32 = 5;
/// The first pause before a busy upstream is asked again, if it does not say.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest answer.
const MAX_BYTES: usize = 16 << 20;
/// The longest answer of an upstream that refuses; more would not fit into an error's detail.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// The upstream broke off in the middle of its answer.
pub const BROKEN: &str = "UPSTREAM_BROKEN";
/// The upstream's answer is not what its API promises.
pub const UNEXPECTED: &str = "UPSTREAM_UNEXPECTED";
/// The upstream refused.
pub const REFUSED: &str = "UPSTREAM_REFUSED";

/// What a task asks for.
pub(super) struct Asked<'a> {
    pub assignment: &'a Assignment,
    /// The request as the client sent it.
    pub request: &'a Value,
    /// The path of the call.
    pub path: &'static str,
    /// What is sent.
    pub body: Ordered,
    /// The answer is translated to a response.
    pub is_translated: bool,
}

/// Why a call gave no answer.
pub(super) enum Trouble {
    /// Final.
    End(Outcome),
    /// Worth another try after a pause; otherwise this is the end.
    Busy(Option<Duration>, Outcome),
    /// The upstream has no such address.
    NoSuchPath(Outcome),
}

/// Why a body was not read to its end.
enum Unread {
    TooLong,
    Silent,
    Broken(String),
}

impl Upstream {
    /// Forwards a task and gives what became of it.
    pub(super) async fn forward(&self, assignment: &Assignment) -> Outcome {
        let until = Instant::now() + self.timeouts.total;
        match timeout_at(until, self.forward_patiently(assignment)).await {
            Ok(outcome) => outcome,
            Err(_) => too_slow("all of its answer", self.timeouts.total),
        }
    }

    async fn forward_patiently(&self, assignment: &Assignment) -> Outcome {
        let payload = &assignment.task["payload"];
        let order = match &payload["body"] {
            Value::String(text) => {
                serde_json::from_str(text).unwrap_or(Ordered::Scalar(json!(text)))
            }
            body => Ordered::from(body),
        };
        let request = &order.value();
        let path = match payload["endpoint"].as_str() {
            Some("chat.completions") => "chat/completions",
            Some("embeddings") => "embeddings",
            Some("responses") => "responses",
            _ => {
                let message = "the payload must be {\"endpoint\": \"chat.completions\", \
                    \"embeddings\" or \"responses\", \"body\": {…}}";
                return fail(code::INVALID_INPUT, message, Value::Null);
            }
        };
        if !request.is_object() {
            return fail(
                code::INVALID_INPUT,
                "the payload's `body` must be an object, or the text of one",
                Value::Null,
            );
        }
        if path == "responses" && self.is_chat_only.load(Ordering::Relaxed) {
            return self.translated(assignment, request, &order).await;
        }
        let body = order.arrange(&self.body(request, path));
        let asked = Asked { assignment, request, path, body, is_translated: false };
        match self.ask(&asked).await {
            Ok(outcome) => outcome,
            Err(refused) if path != "responses" => refused,
            Err(_) => self.translated(assignment, request, &order).await,
        }
    }

    /// `/responses` by way of `/chat/completions`.
    async fn translated(
        &self,
        assignment: &Assignment,
        request: &Value,
        order: &Ordered,
    ) -> Outcome {
        let chat = match translate::request(request) {
            Ok(chat) => chat,
            Err(why) => {
                let error = json!({
                    "message": why, "type": "invalid_request_error", "param": null, "code": null,
                });
                return refused(400, &why, json!({ "error": error }));
            }
        };
        let path = "chat/completions";
        let body = order.arrange_moved(&self.body(&chat, path));
        let asked = Asked { assignment, request, path, body, is_translated: true };
        let outcome = self.ask(&asked).await.unwrap_or_else(|refused| refused);
        if matches!(outcome, Outcome::Complete { .. }) {
            self.is_chat_only.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// What is sent: the client's request, for our model.
    fn body(&self, request: &Value, path: &str) -> Value {
        let mut body = request.clone();
        body["model"] = json!(self.model);
        let Some(fields) = body.as_object_mut() else { return body };
        // Waiting in the background is ours; the upstream answers whoever holds the task.
        fields.remove("background");
        if path == "chat/completions" && fields.get("stream") == Some(&json!(true)) {
            // Tokens are counted for everybody; who did not ask for them is not told.
            let options = fields.entry("stream_options").or_insert(Value::Null);
            if options.is_null() {
                *options = json!({});
            }
            // What is neither left out nor an object is wrong, and the upstream's to refuse.
            if let Some(options) = options.as_object_mut() {
                options.insert("include_usage".into(), json!(true));
            }
        }
        body
    }

    /// Asks, again if the upstream is busy. `Err` when it has no such address.
    async fn ask(&self, asked: &Asked<'_>) -> Result<Outcome, Outcome> {
        let mut tried = 0;
        loop {
            tried += 1;
            let (asked_for, outcome) = match self.call(asked).await {
                Ok(outcome) | Err(Trouble::End(outcome)) => return Ok(outcome),
                Err(Trouble::NoSuchPath(outcome)) => return Err(outcome),
                Err(Trouble::Busy(asked_for, outcome)) => (asked_for, outcome),
            };
            if tried == TRIES {
                return Ok(outcome);
            }
            let pause = asked_for.unwrap_or(PAUSE * 2u32.pow(tried - 1));
            let pause = pause.min(self.timeouts.retry_after);
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(task_id = asked.assignment.task_id, pause_ms, "the upstream is busy");
            sleep(pause).await;
        }
    }

    async fn call(&self, asked: &Asked<'_>) -> Result<Outcome, Trouble> {
        let begun = Instant::now() + self.timeouts.first_byte;
        let request = self.request(Method::POST, asked.path).json(&asked.body);
        let response = match timeout_at(begun, request.send()).await {
            Err(_) => return Ok(too_slow("the beginning of its answer", self.timeouts.first_byte)),
            Ok(Err(error)) => return Ok(self.unanswered(&error)),
            Ok(Ok(response)) => response,
        };
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let asked_for = retry_after(response.headers());
            let bytes = self.read(response, MAX_REFUSAL_BYTES).await.ok();
            let outcome = match status {
                404 | 405 if self.health.is_elsewhere() => self.elsewhere(asked, status, &bytes),
                _ => refusal(status, &bytes),
            };
            return Err(match status {
                429 | 503 => Trouble::Busy(asked_for, outcome),
                404 | 405 => Trouble::NoSuchPath(outcome),
                _ => Trouble::End(outcome),
            });
        }
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(stream::pass_on(self, asked, response, begun).await);
        }
        let bytes = match self.read(response, MAX_BYTES).await {
            Ok(bytes) => bytes,
            Err(unread) => return Ok(self.not_read(unread)),
        };
        match read::json(&bytes) {
            Some(body) if body.is_object() && asked.is_translated => {
                let id = &asked.assignment.task_id;
                Ok(complete(translate::response(asked.request, &body, id)))
            }
            Some(body) if body.is_object() => Ok(complete(body)),
            _ => Ok(fail(UNEXPECTED, "the upstream's answer is no JSON object", Value::Null)),
        }
    }

    /// Neither the list of models nor this address is there: the upstream's URL is wrong, and not
    /// the request.
    fn elsewhere(&self, asked: &Asked<'_>, status: u16, bytes: &Option<Vec<u8>>) -> Outcome {
        let url = format!("{}/{}", self.base, asked.path);
        if asked.path != "responses" {
            tracing::error!(url, status, "the upstream has nothing there; check --upstream");
        }
        let message = format!(
            "there is nothing at {url} (the upstream answered {status}); check the provider's \
             --upstream, which mostly ends with /v1"
        );
        let told = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
        let told: String = read::plain(&told).chars().take(1_000).collect();
        fail(UNEXPECTED, &message, json!({ "status": status, "answer": told }))
    }

    /// Nothing came, so nobody was given anything: the task goes back.
    pub(super) fn unanswered(&self, error: &reqwest::Error) -> Outcome {
        let why = cause(error);
        self.health.doubt(&why);
        Outcome::Release
    }

    /// A body.
    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, Unread> {
        let mut bytes = Vec::new();
        loop {
            let chunk = match timeout(self.timeouts.idle, response.chunk()).await {
                Err(_) => return Err(Unread::Silent),
                Ok(Err(error)) => return Err(Unread::Broken(cause(&error))),
                Ok(Ok(None)) => return Ok(bytes),
                Ok(Ok(Some(chunk))) => chunk,
            };
            if bytes.len() + chunk.len() > most {
                return Err(Unread::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
    }

    /// An answer that began and cannot be had. The upstream has worked for it, and would again, so
    /// the task is not given back; and what is wrong with one answer says nothing about the others.
    fn not_read(&self, unread: Unread) -> Outcome {
        match unread {
            Unread::TooLong => {
                fail(UNEXPECTED, "the upstream's answer is larger than 16 MiB", Value::Null)
            }
            Unread::Silent => too_slow("the next piece of its answer", self.timeouts.idle),
            Unread::Broken(why) => {
                let message = format!("the upstream broke off in the middle of its answer: {why}");
                fail(BROKEN, &message, Value::Null)
            }
        }
    }
}

/// How long a busy upstream asks to wait: in seconds, or until a time. That is counted from the
/// time in the same answer, so the upstream's clock is compared with itself.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse::<f64>() {
        return (0.0..1e6).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
    }
    let ms = http_date(asked)?.since_ms(http_date(text(DATE)?)?);
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// A time as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    format!("{year}-{month:02}-{day}T{time}Z").parse().ok()
}

fn refusal(status: u16, bytes: &Option<Vec<u8>>) -> Outcome {
    let bytes = bytes.as_deref().unwrap_or_default();
    let body = read::json(bytes).unwrap_or_else(|| {
        let text = read::plain(String::from_utf8_lossy(bytes).trim());
        json!(text.chars().take(1_000).collect::<String>())
    });
    let told = body["error"]["message"].as_str().or(body["error"].as_str()).or(body.as_str());
    let told = told.filter(|told| !told.is_empty()).unwrap_or("it did not say why");
    let told: String = told.chars().take(1_000).collect();
    if [401, 403].contains(&status) {
        // Its words may name the key: they stand in the log and in the error's detail only.
        tracing::warn!(status, told, "the upstream refuses the key; see --upstream-key-env");
        return refused(status, "it refuses the provider's key", body.clone());
    }
    refused(status, &told, body.clone())
}

/// The upstream said no, with this status and body.
pub(super) fn refused(status: u16, told: &str, body: Value) -> Outcome {
    let code = match status {
        401 | 403 => code::PERMISSION_DENIED,
        408 | 504 => code::TIMEOUT,
        429 => code::RATE_LIMITED,
        400..500 => code::INVALID_INPUT,
        500..600 => code::SERVICE_UNAVAILABLE,
        _ => REFUSED,
    };
    let message = format!("the upstream answered {status}: {told}");
    fail(code, &message, json!({ "upstream": { "status": status, "body": body } }))
}

/// The upstream took too long for something.
pub(super) fn too_slow(what: &str, limit: Duration) -> Outcome {
    let limit = crate::print::span(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    fail(code::TIMEOUT, &format!("the upstream took longer than {limit} for {what}"), Value::Null)
}

/// A whole answer, and what it says that it took.
pub(super) fn complete(body: Value) -> Outcome {
    Outcome::Complete { usage: Usage::of(&body), result: body }
}

pub(super) fn fail(code: &str, message: &str, detail: Value) -> Outcome {
    let mut error = json!({ "code": code, "message": read::plain(message) });
    if !detail.is_null() {
        error["detail"] = detail;
    }
    Outcome::Fail { error, retry_after_ms: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_upstreams_status_and_body() {
        let body = json!({ "error": { "message": "no such model", "code": "model_not_found" } });
        let Outcome::Fail { error, .. } = refusal(404, &Some(body.to_string().into_bytes())) else {
            panic!("no failure")
        };
        assert_eq!(error["code"], code::INVALID_INPUT);
        assert_eq!(error["message"], "the upstream answered 404: no such model");
        assert_eq!(error["detail"]["upstream"], json!({ "status": 404, "body": body }));
    }

    #[test]
    fn a_busy_upstream_says_how_long_in_seconds_or_until_when() {
        let date = "Sat, 28 Feb 2026 23:59:58 GMT";
        for (asked, expected) in [
            ("3", Some(3_000)),
            (" 0.5 ", Some(500)),
            ("-1", None),
            ("1e300", None),
            ("Sun, 01 Mar 2026 00:00:02 GMT", Some(4_000)),
            ("Sat, 28 Feb 2026 23:59:00 GMT", Some(0)),
            ("Sun, 31 Feb 2026 00:00:00 GMT", None),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, asked.parse().unwrap());
            headers.insert(DATE, date.parse().unwrap());
            let expected = expected.map(Duration::from_millis);
            assert_eq!(retry_after(&headers), expected, "{asked}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn a_refusal_in_plain_text_is_kept_as_text() {
        for (bytes, message) in [
            (Some(b"busy\n".to_vec()), "the upstream answered 503: busy"),
            (None, "the upstream answered 503: it did not say why"),
        ] {
            let Outcome::Fail { error, .. } = refusal(503, &bytes) else { panic!("no failure") };
            assert_eq!(error["code"], code::SERVICE_UNAVAILABLE);
            assert_eq!(error["message"], message);
        }
    }
}
