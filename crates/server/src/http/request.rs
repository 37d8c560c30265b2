//! What comes in: bodies, parameters and ids, each refused with a problem that says what to do.
//!
//! Invariant: a body is read by the one JSON contract of both databases, and within its bound.

use super::problem::{Problem, Result};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::str::FromStr;
use windlass::domain::json;
use windlass::domain::refusal::{FieldError, Refusal};
use windlass::domain::validate::MAX_BATCH_BYTES;

/// The largest body: a batch with the JSON around it.
pub const MAX_BODY_BYTES: usize = MAX_BATCH_BYTES + 1024 * 1024;

/// A JSON body. Without one, as an empty object.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let json = is_json(&request);
        let collected = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
        let bytes = collected.map_err(|error| unread(&*error))?.to_bytes();
        if bytes.is_empty() {
            return typed(serde_json::Value::Object(serde_json::Map::new())).map(Body);
        }
        if !json {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "send the body as JSON, with the header `content-type: application/json`",
            ));
        }
        typed(json::parse(&bytes)?).map(Body)
    }
}

fn is_json(request: &Request) -> bool {
    let header = request.headers().get(header::CONTENT_TYPE);
    let text = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

fn unread(error: &(dyn std::error::Error + 'static)) -> Problem {
    if error.is::<LengthLimitError>() {
        let detail = format!("the body has more than {MAX_BODY_BYTES} bytes; send less at once");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail);
    }
    let detail = "the body did not arrive completely; send it again";
    Problem::new(StatusCode::BAD_REQUEST, "invalid_json", detail)
}

/// A value as the type it must be; what does not fit is named by its pointer.
pub fn typed<T: DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer = pointer(error.path());
        let detail = error.into_inner().to_string();
        let code = match detail.split('`').next().unwrap_or_default() {
            "unknown field " => "unknown_field",
            "missing field " => "required",
            "unknown variant " => "unknown_value",
            _ => "wrong_type",
        };
        let named = ["unknown_field", "required"].contains(&code);
        let name = detail.split('`').nth(1).filter(|_| named);
        // serde points at the object; the field that is meant stands in its words.
        let pointer = match name {
            Some(name) if !pointer.ends_with(&format!("/{name}")) => {
                format!("{pointer}/{}", json::segment(name))
            }
            _ => pointer,
        };
        Refusal::Invalid(vec![FieldError { pointer, code, detail }]).into()
    })
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path.iter() {
        let segment = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => json::segment(key),
            Segment::Enum { variant } => json::segment(variant),
            Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&segment);
    }
    pointer
}

/// The parameters of the query; unknown ones are refused, because a filter that is misspelt would
/// show everything.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let wrong = |error: axum::extract::rejection::QueryRejection| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let detail = cause.unwrap_or_else(|| error.to_string());
            Problem::field("/query", "out_of_range", detail)
        };
        query.map(|axum::extract::Query(value)| Params(value)).map_err(wrong)
    }
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
