//! Around every request: who calls, a time limit, an id, one log line, the metrics.
//!
//! Invariant: whatever happens inside, a panic included, the caller gets an answer with the
//! request's id, and the log gets one line with the same id.
//! Absent from the log: queries, headers and bodies. They may hold secrets.

use super::problem::Problem;
use super::{Api, Caller, approval, internal, openai, origin, pressure};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Instant;
use uuid::Uuid;
use windlass::engine::{Error, Phase};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Routes that wait on purpose.
const PATIENT: [&str; 6] = [
    "/v1/tasks/{id}/wait",
    "/v1/sessions/{id}/claim",
    "/v1/sessions/{id}/stream",
    "/v1/tasks/{id}/stream",
    "/v1/events",
    internal::DELTAS,
];

/// Routes that need no key: they tell nothing but whether the server lives.
/// Whoever decides by a token brings that instead of a key, and nodes bring their own.
pub(super) const OPEN: [&str; 6] =
    ["/healthz", "/readyz", "/openapi.json", "/docs", "/v1/approvals/decide", internal::DELTAS];

/// Puts the layers around the routes.
pub fn around(routes: Router<Api>, api: &Api) -> Router<Api> {
    routes.layer(middleware::from_fn_with_state(api.clone(), observe))
}

async fn observe(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let method = request.method().clone();
    let is_http1 = request.version() < Version::HTTP_2;
    let path: String = request.uri().path().chars().take(200).collect();
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.as_deref().unwrap_or("unknown").to_owned();
    let allowed = origin::check(request.headers(), request.uri(), api.keys.are_there());
    let caller = allowed.and_then(|()| match OPEN.contains(&route.as_str()) {
        true => Ok(None),
        false => api.keys.caller(request.headers()).map(Some),
    });
    let who = caller.as_ref().ok().and_then(|caller| Some(caller.as_ref()?.actor.clone()));
    let is_known = caller.is_ok();
    let mut response = match caller {
        Err(problem) => problem.into_response(),
        Ok(Some(caller)) if !caller.may(method.as_str(), &route) => {
            approval::forbidden(&api, &caller, &method, &route, &path).await.into_response()
        }
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert::<Caller>(caller);
            }
            run(&api, &route, request, next).await
        }
    };
    // Strangers are told nothing about the system.
    if is_known {
        pressure::tell(&api.engine, &method, &route, &mut response);
    }
    let code = match openai::serves(matched.as_deref(), &path) {
        true => openai::reshape(&mut response),
        false => Problem::name_request(&mut response, &id),
    };
    let status = response.status();
    let elapsed = started.elapsed();
    api.metrics.request(known_method(&method), &route, status.as_u16(), elapsed);
    let correlation = api.correlations.line(&path, &response);
    let ms = elapsed.as_secs_f64() * 1_000.0;
    tracing::info!(
        %method,
        route,
        path,
        status = status.as_u16(),
        code,
        ms = format!("{ms:.1}"),
        request_id = id,
        correlation_id = correlation,
        caller = who,
        "request"
    );
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The client's next request goes to a node that stays.
    if is_http1 && api.engine.phase() != Phase::Running {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn run(api: &Api, route: &str, request: Request, next: Next) -> Response {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_patient = PATIENT.contains(&route) || openai::PATIENT.contains(&route);
    // Nothing would come of it here: what waits ends when the node drains. Refused before it has
    // submitted anything, so that it can be asked of another node.
    if is_patient && api.engine.phase() != Phase::Running {
        return Problem::from(Error::ShuttingDown).into_response();
    }
    let answered = caught(next.run(request));
    if is_patient {
        return answered.await;
    }
    let answered = tokio::time::timeout(api.timeout, answered).await;
    answered.unwrap_or_else(|_| too_slow(is_read).into_response())
}

/// A panic in a handler is a defect of ours, and no reason to leave the caller without an answer.
async fn caught(answer: impl Future<Output = Response>) -> Response {
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    answered.unwrap_or_else(|_| Problem::internal(&"a handler panicked").into_response())
}

fn too_slow(is_read: bool) -> Problem {
    if is_read {
        let detail = "the answer took too long; try again, or ask for less at once";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail).retry_after(1);
    }
    let detail = "the request took too long; whether it was carried out is not known: repeat it \
                  with the same ids";
    Problem::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", detail)
}

/// A caller may send any word as a method; the metrics must not grow with them.
fn known_method(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "other",
    }
}

/// The caller's own id for the request if it is a plain one, else a new one.
fn request_id(request: &Request) -> String {
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |text: &&str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        (1..=100).contains(&text.len()) && text.chars().all(fits)
    };
    given.filter(plain).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_problem_with_the_requests_id() {
        let mut response = caught(async { panic!("on purpose") }).await;
        assert_eq!(response.status(), 500);
        assert_eq!(Problem::name_request(&mut response, "r-1"), Some("internal"));
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["request_id"], "r-1");
        assert!(!body.to_string().contains("on purpose"));
    }

    #[test]
    fn a_write_that_took_too_long_has_an_unknown_outcome_and_a_read_has_none() {
        assert_eq!((too_slow(false).status, too_slow(false).code), (504, "outcome_unknown"));
        assert_eq!((too_slow(true).status, too_slow(true).code), (503, "timeout"));
    }
}
