//! What comes in: bodies, parameters and ids, each refused with a problem that says what to do.
//!
//! Invariant: a body is read by the one JSON contract of both databases, within its bound and
//! within its time.

use super::problem::{Problem, Result};
use crate::ordered::Ordered;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use windlass::domain::json;
use windlass::domain::refusal::{FieldError, Refusal};
use windlass::domain::validate::MAX_BATCH_BYTES;

/// The largest body: a batch with the JSON around it.
pub const MAX_BODY_BYTES: usize = MAX_BATCH_BYTES + 1024 * 1024;
/// How much of a body that is too large is read and thrown away: a client that is still sending
/// when the connection closes would never see the answer.
const MOST_DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;
/// How long a body may take as a whole.
const BODY_LIMIT: Duration = Duration::from_secs(30);
/// How long a body may be silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// A JSON body. Without one, as an empty object.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let media = media(request.headers());
        let bytes = read(request).await?;
        if bytes.is_empty() {
            return typed(serde_json::Value::Object(serde_json::Map::new())).map(Body);
        }
        media?;
        typed(json::parse(&bytes)?).map(Body)
    }
}

/// A JSON object whose fields are somebody else's to judge, and the order in which they came.
pub struct Free(pub serde_json::Map<String, serde_json::Value>, pub Ordered);

impl<S: Send + Sync> FromRequest<S> for Free {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let media = media(request.headers());
        let bytes = read(request).await?;
        media?;
        match json::parse(&bytes)? {
            serde_json::Value::Object(fields) => {
                // It was read once already: this cannot fail.
                let ordered = serde_json::from_slice(&bytes).ok();
                let ordered = ordered.unwrap_or_else(|| Ordered::Fields(Vec::new()));
                Ok(Free(fields, ordered))
            }
            _ => Err(Problem::field("", "wrong_type", "the body must be an object")),
        }
    }
}

/// Whether the headers announce plain JSON.
fn media(headers: &HeaderMap) -> Result<()> {
    let unsupported = |detail: &str| {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Err(Problem::new(status, "unsupported_media_type", detail))
    };
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = text(header::CONTENT_TYPE).split(';');
    let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        let detail = "send the body as JSON, with the header `content-type: application/json`";
        return unsupported(detail);
    }
    // Bytes of another encoding would be read as UTF-8, and stored as what they do not say.
    let charset = parts.filter_map(|part| part.split_once('='));
    let mut charset = charset.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let is_utf8 = |(_, value): (&str, &str)| {
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        ["utf-8", "utf8", "us-ascii"].contains(&value.as_str())
    };
    if !charset.all(is_utf8) {
        let detail = "send the body as UTF-8, with the header `content-type: application/json` or \
                      `content-type: application/json; charset=utf-8`";
        return unsupported(detail);
    }
    if !["", "identity"].contains(&text(header::CONTENT_ENCODING)) {
        return unsupported("send the body as it is, without the header `content-encoding`");
    }
    Ok(())
}

async fn read(request: Request) -> Result<Bytes> {
    let mut body = request.into_body();
    let mut bytes = BytesMut::new();
    let mut read = 0;
    let end = Instant::now() + BODY_LIMIT;
    loop {
        let next = timeout_at(end.min(Instant::now() + SILENCE_LIMIT), body.frame()).await;
        match next {
            Ok(None) if read > MAX_BODY_BYTES => return Err(too_large()),
            Ok(None) => return Ok(bytes.freeze()),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                read += data.len();
                if read <= MAX_BODY_BYTES {
                    bytes.extend_from_slice(&data);
                } else if read > MOST_DISCARDED_BYTES {
                    return Err(too_large());
                } else {
                    bytes = BytesMut::new();
                }
            }
            Ok(Some(Err(_))) => {
                let detail = "the body did not arrive completely; send it again";
                return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_json", detail));
            }
            Err(_) if read > MAX_BODY_BYTES => return Err(too_large()),
            Err(_) => {
                let detail = "the body did not arrive in time; send it again, or less at once";
                let status = StatusCode::REQUEST_TIMEOUT;
                return Err(Problem::new(status, "request_timeout", detail));
            }
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body has more than {MAX_BODY_BYTES} bytes; send less at once");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", detail)
}

/// A value as the type it must be; what does not fit is named by its pointer.
pub fn typed<T: DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    objects(&value, "")?;
    serde_path_to_error::deserialize(value).map_err(misfit)
}

/// A field whose `null` is a value of its own, unlike a field that is left out.
pub fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<serde_json::Value>, D::Error> {
    serde::Deserialize::deserialize(deserializer).map(Some)
}

/// What has named fields must be an object. serde would take a list as well, by position: `[]` for
/// a call whose fields may all be left out.
fn objects(value: &serde_json::Value, at: &str) -> Result<()> {
    use serde_json::Value;
    let Value::Object(fields) = value else {
        return Err(Problem::field(at, "wrong_type", "must be an object with named fields"));
    };
    for name in ["backoff", "error", "until", "replay", "retry_policy", "rate"] {
        if let Some(inner @ (Value::Array(_) | Value::Object(_))) = fields.get(name) {
            objects(inner, &format!("{at}/{name}"))?;
        }
    }
    for name in ["leases", "items"] {
        let items = fields.get(name).and_then(Value::as_array);
        for (index, item) in items.into_iter().flatten().enumerate() {
            objects(item, &format!("{at}/{name}/{index}"))?;
        }
    }
    Ok(())
}

/// What does not fit, in the words of `serde`, as one finding.
fn misfit<E: std::fmt::Display>(error: serde_path_to_error::Error<E>) -> Problem {
    let mut pointer = pointer(error.path());
    let words = error.into_inner().to_string();
    let code = match words.split('`').next().unwrap_or_default() {
        "unknown field " => "unknown_field",
        "missing field " => "required",
        "unknown variant " => "unknown_value",
        "duplicate field " => "conflict",
        _ => "wrong_type",
    };
    let named = ["unknown_field", "required", "conflict"].contains(&code);
    if let Some(name) = words.split('`').nth(1).filter(|_| named) {
        // serde points at the object; the field that is meant stands in its words.
        let segment = json::segment(name);
        if !pointer.ends_with(&segment) {
            pointer.push_str(&segment);
        }
    }
    // A wrong value is echoed by serde; a hostile one must not fill the answer.
    let detail = words.chars().take(1_000).collect();
    Refusal::Invalid(vec![FieldError { pointer, code, detail }]).into()
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let segment = |segment: &Segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => json::segment(key),
        Segment::Enum { variant } => json::segment(variant),
        Segment::Unknown => String::new(),
    };
    path.iter().map(segment).collect()
}

/// The parameters of the query; unknown ones are refused, because a filter that is misspelt would
/// show everything.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let is_text = is_text(query);
        for (name, value) in form_urlencoded::parse(query) {
            // The parser puts this character in the place of bytes that are no UTF-8, and a filter
            // by it would find nothing.
            let replaced = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
            if !is_text && (replaced(&name) || replaced(&value)) {
                let detail = "the bytes are not UTF-8; encode the text as UTF-8";
                return Err(Problem::field(&json::segment(&name), "bad_character", detail));
            }
            // PostgreSQL knows no NUL, and nothing that is stored has one.
            if value.contains('\0') {
                let detail = "must not hold the NUL character";
                return Err(Problem::field(&json::segment(&name), "bad_character", detail));
            }
        }
        let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query));
        serde_path_to_error::deserialize(pairs).map(Params).map_err(misfit)
    }
}

/// Whether a query is UTF-8 once its escapes are read.
fn is_text(query: &[u8]) -> bool {
    let hex = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8);
    let mut bytes = Vec::with_capacity(query.len());
    let mut rest = query;
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(high).zip(hex(low)),
            _ => None,
        };
        bytes.push(escaped.map_or(*first, |(high, low)| high * 16 + low));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    std::str::from_utf8(&bytes).is_ok()
}

/// An id in the path.
pub struct Id<T>(pub T);

impl<S: Send + Sync, T: FromStr + Send> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let text = path.map(|Path(text)| text).unwrap_or_default();
        text.parse().map(Id).map_err(|_| {
            let shown: String = text.chars().take(64).collect();
            let detail = format!("`{}` is not a UUID; check the address", shown.escape_debug());
            Problem::new(StatusCode::BAD_REQUEST, "invalid_id", detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass::domain::request::SubmitRequest;

    #[test]
    fn a_misfit_is_named_by_its_pointer() {
        for (value, pointer, code) in [
            (json!(null), "", "wrong_type"),
            (json!([]), "", "wrong_type"),
            (json!({ "backoff": [1] }), "/backoff", "wrong_type"),
            (json!({ "items": [{}, []] }), "/items/1", "wrong_type"),
            (json!({ "colour": 1 }), "/colour", "unknown_field"),
            (json!({ "a/b~c": 1 }), "/a~1b~0c", "unknown_field"),
            (json!({ "queue": 1 }), "/queue", "wrong_type"),
            (json!({ "kind": "chore" }), "/kind", "unknown_value"),
            (json!({ "tags": {"x": 1} }), "/tags/x", "wrong_type"),
            (json!({ "backoff": {"bas_ms": 1} }), "/backoff/bas_ms", "unknown_field"),
            (json!({ "backoff": {"retryable": [1]} }), "/backoff/retryable/0", "wrong_type"),
        ] {
            let problem = typed::<SubmitRequest>(value.clone()).unwrap_err();
            let field = &problem.errors[0];
            assert_eq!((field.pointer.as_str(), field.code.as_str()), (pointer, code), "{value}");
        }
    }
}
