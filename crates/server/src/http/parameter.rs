//! Calls that take no parameters refuse them: one that is misspelt, or put into the address instead
//! of the body, must not be ignored. Those that take some refuse the others by themselves.
//!
//! Absent: the face for OpenAI's clients, some of which send parameters of their own.

use super::openai;
use super::problem::Problem;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::collections::HashSet;
use std::sync::Arc;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi as Document, RefOr};
use windlass::domain::json;

/// The calls that take parameters, as the document says.
type Taking = Arc<HashSet<(Method, String)>>;

/// Puts the check around the routes of the document.
pub fn around<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    document: &Document,
) -> Router<S> {
    let mut taking = HashSet::new();
    for (path, item) in &document.paths.paths {
        let calls = [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::PATCH, &item.patch),
            (Method::DELETE, &item.delete),
        ];
        let calls = calls.into_iter().filter(|(_, call)| call.as_ref().is_some_and(takes_any));
        taking.extend(calls.map(|(method, _)| (method, path.clone())));
    }
    routes.layer(middleware::from_fn_with_state(Taking::new(taking), check))
}

fn takes_any(call: &Operation) -> bool {
    let in_query = |parameter: &Parameter| parameter.parameter_in == ParameterIn::Query;
    let is_one = |each: &RefOr<Parameter>| matches!(each, RefOr::T(one) if in_query(one));
    call.parameters.iter().flatten().any(is_one)
}

async fn check(State(taking): State<Taking>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let query = request.uri().query().unwrap_or_default().as_bytes();
    let first = form_urlencoded::parse(query).next();
    match first {
        Some((name, _)) if !openai::serves(Some(path), "") => {
            let method = match request.method() {
                &Method::HEAD => Method::GET,
                other => other.clone(),
            };
            if taking.contains(&(method, path.to_owned())) {
                return next.run(request).await;
            }
            let name: String = name.chars().take(100).collect();
            let detail = "this call takes no parameters; /docs says what its body may hold";
            Problem::field(&json::segment(&name), "unknown_field", detail).into_response()
        }
        _ => next.run(request).await,
    }
}
