//! Around every request: who calls, a time limit, an id, one log line, the metrics.

use super::problem::Problem;
use super::{Api, Caller};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::time::Instant;
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The task's correlation id, for the log line; a handler puts it on its response.
#[derive(Clone)]
pub struct Correlation(pub String);

/// Routes that wait on purpose.
const PATIENT: [&str; 4] =
    ["/v1/tasks/{id}/wait", "/v1/sessions/{id}/claim", "/v1/sessions/{id}/stream", "/v1/events"];

/// Routes that need no key: they tell nothing but whether the server lives.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/docs"];

/// Puts the layers around the routes.
pub fn around(routes: Router<Api>, api: &Api) -> Router<Api> {
    routes.layer(middleware::from_fn_with_state(api.clone(), observe))
}

async fn observe(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = path.as_deref().unwrap_or("unknown").to_owned();
    let caller = match OPEN.contains(&route.as_str()) {
        true => Ok(None),
        false => api.keys.caller(request.headers()).map(Some),
    };
    let mut response = match caller {
        Err(problem) => problem.into_response(),
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert::<Caller>(caller);
            }
            run(&api, &route, request, next).await
        }
    };
    let status = response.status();
    let elapsed = started.elapsed();
    api.metrics.request(method.as_str(), &route, status.as_u16(), elapsed);
    let correlation = response.extensions().get::<Correlation>().map(|c| c.0.clone());
    let ms = elapsed.as_secs_f64() * 1_000.0;
    tracing::info!(
        %method,
        route,
        status = status.as_u16(),
        ms = format!("{ms:.1}"),
        request_id = id,
        correlation_id = correlation,
        "request"
    );
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

async fn run(api: &Api, route: &str, request: Request, next: Next) -> Response {
    if PATIENT.contains(&route) {
        return next.run(request).await;
    }
    match tokio::time::timeout(api.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "the request took too long; whether it was carried out is not known: \
                          repeat it with the same ids";
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).into_response()
        }
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
