//! A streamed answer: its chunks are passed on while they come, and put together for the end.

use super::assemble::Assembly;
use super::deltas::{Deltas, Posted};
use super::forward::{Asked, BROKEN, UNEXPECTED, complete, fail, refused, too_slow};
use super::translate::event::Events;
use super::{Upstream, cause, read};
use crate::client::stream::Parser;
use crate::worker::outcome::Outcome;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

/// What an attempt's chunks may have together; the server keeps no more of them.
const MAX_BYTES: usize = 16 << 20;

/// What came of reading.
enum Read {
    /// All of it, put together.
    Whole(Value),
    /// It broke off, and why.
    Broken(String),
    /// It ended otherwise.
    Other(Outcome),
}

/// Passes the stream on and gives its end. `begun`: until when the first chunk must be there.
pub(super) async fn pass_on(
    upstream: &Upstream,
    asked: &Asked<'_>,
    response: Response,
    begun: Instant,
) -> Outcome {
    let deltas = Deltas::default();
    let (task_id, lease_id) = (&asked.assignment.task_id, &asked.assignment.lease_id);
    let posting = deltas.post(&upstream.windlass, task_id, lease_id);
    let reading = async {
        let read = follow(upstream, asked, response, begun, &deltas).await;
        deltas.end(!matches!(read, Read::Whole(_)));
        read
    };
    tokio::pin!(posting, reading);
    let (read, (posted, count)) = tokio::select! {
        read = &mut reading => {
            let posted = posting.await;
            (read, posted)
        }
        posted = &mut posting => match posted {
            // Somebody else has the task: the rest is of no use.
            (Posted::Lost, _) => return Outcome::Dropped,
            posted => (reading.await, posted),
        },
    };
    match read {
        _ if posted == Posted::Lost => Outcome::Dropped,
        Read::Whole(body) => complete(body),
        Read::Other(outcome) => outcome,
        Read::Broken(why) if count == 0 => {
            upstream.health.doubt(&why);
            Outcome::Release
        }
        Read::Broken(why) => {
            let message = format!("the upstream broke off in the middle of its answer: {why}");
            fail(BROKEN, &message, json!({ "deltas": count }))
        }
    }
}

async fn follow(
    upstream: &Upstream,
    asked: &Asked<'_>,
    mut response: Response,
    begun: Instant,
    deltas: &Deltas,
) -> Read {
    let mut parser = Parser::default();
    let mut answer = Answer::new(asked);
    let (mut until, mut limit) = (begun, upstream.timeouts.first_byte);
    let mut bytes = 0;
    loop {
        let chunk = match timeout_at(until, response.chunk()).await {
            Err(_) => return Read::Other(too_slow("the next piece of its answer", limit)),
            Ok(Err(error)) => return Read::Broken(cause(&error)),
            Ok(Ok(None)) => {
                return answer.end(deltas).unwrap_or(Read::Broken("the stream ended early".into()));
            }
            Ok(Ok(Some(chunk))) => chunk,
        };
        limit = upstream.timeouts.idle;
        until = Instant::now() + limit;
        bytes += chunk.len();
        if bytes > MAX_BYTES || !parser.feed(&chunk) {
            let message = "the upstream's answer is larger than 16 MiB";
            return Read::Other(fail(UNEXPECTED, message, Value::Null));
        }
        while let Some(event) = parser.next_event() {
            if event.data.trim() == "[DONE]" {
                answer.is_done = true;
                return answer.end(deltas).unwrap_or(Read::Broken("it ended early".into()));
            }
            let Some(value) = read::json(event.data.as_bytes()) else {
                let message = "a piece of the upstream's answer is no JSON";
                return Read::Other(fail(UNEXPECTED, message, Value::Null));
            };
            if let Some(end) = answer.add(value, event.data.len(), deltas) {
                return end;
            }
        }
    }
}

/// What came so far, by the kind of the answer.
struct Answer {
    kind: Kind,
    /// The upstream said that this was all.
    is_done: bool,
}

enum Kind {
    Chat(Assembly),
    /// A chat completion that becomes a response.
    Translated(Assembly, Box<Events>),
    Response,
}

impl Answer {
    fn new(asked: &Asked<'_>) -> Answer {
        let kind = match (asked.is_translated, asked.path) {
            (true, _) => {
                let events = Events::new(asked.request, &asked.assignment.task_id);
                Kind::Translated(Assembly::default(), Box::new(events))
            }
            (false, "responses") => Kind::Response,
            _ => Kind::Chat(Assembly::default()),
        };
        Answer { kind, is_done: false }
    }

    /// Passes a piece on. Gives the end, if this was the last one.
    fn add(&mut self, value: Value, bytes: usize, deltas: &Deltas) -> Option<Read> {
        if value["type"] == "error" || (value["type"].is_null() && value["error"].is_object()) {
            return Some(Read::Other(told_in_stream(&value)));
        }
        match &mut self.kind {
            Kind::Chat(assembly) => {
                assembly.add(&value);
                deltas.add(value, bytes);
            }
            Kind::Translated(assembly, events) => {
                assembly.add(&value);
                events.add(&value).into_iter().for_each(|event| deltas.add(event, bytes));
            }
            Kind::Response => {
                let end = match value["type"].as_str() {
                    Some("response.completed" | "response.incomplete") => {
                        Some(Read::Whole(value["response"].clone()))
                    }
                    Some("response.failed") => {
                        let error = value["response"]["error"].clone();
                        Some(Read::Other(told_in_stream(&json!({ "error": error }))))
                    }
                    _ => None,
                };
                if !matches!(end, Some(Read::Other(_))) {
                    deltas.add(value, bytes);
                }
                return end;
            }
        }
        None
    }

    /// The upstream says no more; `None` if that is too early.
    fn end(self, deltas: &Deltas) -> Option<Read> {
        let is_done = self.is_done;
        match self.kind {
            Kind::Chat(assembly) if is_done || assembly.is_whole() => {
                Some(Read::Whole(assembly.body()))
            }
            Kind::Translated(assembly, events) if is_done || assembly.is_whole() => {
                let (last, whole) = events.end(&assembly.body());
                last.into_iter().for_each(|event| {
                    let bytes = event.to_string().len();
                    deltas.add(event, bytes);
                });
                Some(Read::Whole(whole))
            }
            _ => None,
        }
    }
}

/// The upstream told of an error after it had answered 200.
fn told_in_stream(value: &Value) -> Outcome {
    let error = if value["error"].is_object() { &value["error"] } else { value };
    let told = error["message"].as_str().unwrap_or("it did not say why");
    let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|code| (400..600).contains(code)).unwrap_or(502);
    refused(status, told, json!({ "error": error }))
}
