//! The OpenAPI document, made of the handlers' own attributes, and a page to browse it.
//!
//! What every operation has in common (its errors, keys) is added in `describe`, once.

use super::problem::{Drained, Problem, ReachedLimit, TITLES};
use super::{
    Api, action, agent, alert, approval, audit, dead_letter, delegation, delta, describe, event,
    health, limit, message, openai, pause, poison, pool, pressure, replay, session, step, submit,
    task, venture, wait, why,
};
use axum::Router;
use axum::http::header;
use axum::routing::get;
use std::sync::OnceLock;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "A durable runtime for AI agents. Times are RFC 3339 in UTC with \
            milliseconds, durations integers that end in `_ms`, ids UUIDs. Errors are \
            `application/problem+json` with a stable `code`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(Problem, ReachedLimit, Drained)),
    tags(
        (name = "tasks", description = "Submit work and see what became of it"),
        (name = "work", description = "What the holder of a lease does with its task"),
        (name = "approvals", description = "What people must decide before work goes on"),
        (name = "steps", description = "Steps that wait for a person"),
        (name = "signals", description = "What waiting tasks are told"),
        (name = "sessions", description = "Workers"),
        (name = "messages", description = "What agents tell each other, and dead letters"),
        (name = "audit", description = "What was done that no task's history tells"),
        (name = "trouble", description = "What needs a person, and who is told"),
        (name = "flow", description = "How much may run and wait at once, and what is stopped"),
        (name = "pools", description = "What waits for model providers, and who they are"),
        (name = "agents", description = "Who works, for what, and what their tasks take over"),
        (name = "delegations", description = "Work that one agent hands to another"),
        (name = "events", description = "Everything that happens"),
        (name = "openai", description = "Inference as OpenAI's clients ask for it; errors have \
            OpenAI's shape"),
        (name = "service", description = "The server itself")
    )
)]
struct Base;

/// Every route with its part of the document.
pub fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Base::openapi())
        .routes(routes!(submit::submit, task::list))
        .routes(routes!(submit::submit_batch))
        .routes(routes!(task::show))
        .routes(routes!(task::history))
        .routes(routes!(task::failures))
        .routes(routes!(why::why))
        .routes(routes!(task::wait))
        .routes(routes!(task::cancel))
        .routes(routes!(action::start))
        .routes(routes!(action::heartbeat))
        .routes(routes!(action::checkpoint))
        .routes(routes!(action::complete))
        .routes(routes!(action::fail))
        .routes(routes!(action::release))
        .routes(routes!(delta::post))
        .routes(routes!(delta::watch))
        .routes(routes!(approval::ask))
        .routes(routes!(approval::list))
        .routes(routes!(approval::show))
        .routes(routes!(approval::approve))
        .routes(routes!(approval::deny))
        .routes(routes!(approval::token))
        .routes(routes!(approval::decide))
        .routes(routes!(audit::list))
        .routes(routes!(audit::export))
        .routes(routes!(step::record))
        .routes(routes!(step::begin, step::of_task))
        .routes(routes!(step::complete))
        .routes(routes!(step::fail))
        .routes(routes!(step::resolve))
        .routes(routes!(step::list))
        .routes(routes!(wait::park))
        .routes(routes!(replay::replay))
        .routes(routes!(wait::signal))
        .routes(routes!(wait::show))
        .routes(routes!(session::register, session::list))
        .routes(routes!(session::show, session::close))
        .routes(routes!(session::stream))
        .routes(routes!(session::claim))
        .routes(routes!(session::heartbeat))
        .routes(routes!(session::finish))
        .routes(routes!(poison::list))
        .routes(routes!(poison::show))
        .routes(routes!(poison::assign))
        .routes(routes!(poison::investigate))
        .routes(routes!(poison::note))
        .routes(routes!(poison::resolve))
        .routes(routes!(poison::abandon))
        .routes(routes!(limit::list))
        .routes(routes!(limit::show, limit::put, limit::amend, limit::delete))
        .routes(routes!(
            limit::show_named,
            limit::put_named,
            limit::amend_named,
            limit::delete_named
        ))
        .routes(routes!(pause::list, pause::pause))
        .routes(routes!(pause::resume))
        .routes(routes!(pause::resume_named))
        .routes(routes!(agent::list, agent::create))
        .routes(routes!(agent::put, agent::patch, agent::show))
        .routes(routes!(agent::archive))
        .routes(routes!(agent::restore))
        .routes(routes!(delegation::list, delegation::create))
        .routes(routes!(delegation::sweep))
        .routes(routes!(delegation::show))
        .routes(routes!(delegation::status))
        .routes(routes!(delegation::heartbeat))
        .routes(routes!(venture::list, venture::create))
        .routes(routes!(venture::put, venture::show))
        .routes(routes!(venture::archive))
        .routes(routes!(venture::restore))
        .routes(routes!(venture::list_portfolios, venture::create_portfolio))
        .routes(routes!(venture::show_portfolio))
        .routes(routes!(venture::archive_portfolio))
        .routes(routes!(venture::restore_portfolio))
        .routes(routes!(pool::list))
        .routes(routes!(pool::show))
        .routes(routes!(alert::list))
        .routes(routes!(alert::acknowledge))
        .routes(routes!(alert::notices))
        .routes(routes!(event::events))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(health::version))
        .routes(routes!(health::nodes))
        .routes(routes!(health::status))
        .routes(routes!(pressure::show))
        .merge(messages())
        .merge(openai::routes())
}

/// What agents tell each other.
fn messages() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(message::send, message::list))
        .routes(routes!(message::claim))
        .routes(routes!(message::show))
        .routes(routes!(message::ack))
        .routes(routes!(message::nack))
        .routes(routes!(message::heartbeat))
        .routes(routes!(dead_letter::list))
        .routes(routes!(dead_letter::show))
        .routes(routes!(dead_letter::assign))
        .routes(routes!(dead_letter::investigate))
        .routes(routes!(dead_letter::note))
        .routes(routes!(dead_letter::resolve))
        .routes(routes!(dead_letter::abandon))
        .routes(routes!(dead_letter::redeliver))
}

/// The whole document as text. It is made when it is first asked for: making it takes several times
/// the memory that a server needs otherwise.
fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let document = serde_json::to_value(routes().into_openapi()).unwrap_or_default();
        describe::complete(document).to_string()
    })
}

/// The document and its page.
pub fn pages() -> Router<Api> {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let page = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; \
             connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    ];
    let codes = TITLES.iter().map(|(code, title)| {
        format!("<tr id=\"{code}\"><td><code>{code}</code></td><td>{title}</td></tr>\n")
    });
    let html = include_str!("docs.html").replace("<!-- codes -->", &codes.collect::<String>());
    Router::new()
        .route("/openapi.json", get(move || async move { (kind, document()) }))
        .route("/docs", get(move || async move { (page, html) }))
}
