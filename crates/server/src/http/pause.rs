//! Pauses: stopping a queue, an agent, a venture or everything, and letting it go on.

use super::body::List;
use super::limit::{LimitParams, Target};
use super::problem::Result;
use super::request::{Body, Params};
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::domain::limit::{Mode, Pause, Scope};
use windlass::domain::time::Timestamp;
use windlass::store::limit::KeptPause;

/// What to stop.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // The document's view of the domain's `Pause`.
pub struct PauseRequest {
    /// What kind of thing.
    scope: String,
    /// Which one; everything (`global`) has no name.
    name: Option<String>,
    /// `pause` hands nothing out, `drain` takes nothing in; `pause` unless given.
    mode: Option<String>,
    /// Why, for those who wait.
    reason: Option<String>,
}

/// What is stopped.
#[derive(Serialize, ToSchema)]
pub struct PauseBody {
    #[schema(value_type = String)]
    scope: Scope,
    name: Option<String>,
    #[schema(value_type = String)]
    mode: Mode,
    reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    by: String,
}

impl From<KeptPause> for PauseBody {
    fn from(kept: KeptPause) -> PauseBody {
        let KeptPause { pause: Pause { scope, name, mode, reason }, since, by } = kept;
        PauseBody { scope, name, mode, reason, since, by }
    }
}

/// List what is stopped, by scope and name.
#[utoipa::path(get, path = "/v1/pauses", tag = "flow",
    operation_id = "list_pauses", params(LimitParams),
    responses((status = 200, description = "A page", body = List<PauseBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<LimitParams>,
) -> Result<Json<List<PauseBody>>> {
    let (flow, _) = api.engine.limits_in_use().await?;
    let (page, next_cursor) =
        params.page(flow.pauses, |kept| (kept.pause.scope, kept.pause.name.as_deref()))?;
    Ok(Json(List { items: page.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Stop a queue, an agent, a venture or everything. What is in workers' hands stays there. Every
/// node knows within a second.
#[utoipa::path(post, path = "/v1/pauses", tag = "flow",
    operation_id = "pause", request_body = PauseRequest,
    responses((status = 200, description = "What is stopped", body = PauseBody)))]
pub async fn pause(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(pause): Body<Pause>,
) -> Result<Json<PauseBody>> {
    Ok(Json(api.engine.pause(pause, &caller.actor).await?.into()))
}

/// Let everything go on.
#[utoipa::path(delete, path = "/v1/pauses/{scope}", tag = "flow",
    operation_id = "resume", params(("scope" = String, Path)),
    responses((status = 200, description = "What had been stopped", body = PauseBody)))]
pub async fn resume(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Json<PauseBody>> {
    let gone = api.engine.resume(target.scope, target.name, &caller.actor).await?;
    Ok(Json(gone.into()))
}

/// Let a queue, an agent or a venture go on.
#[utoipa::path(delete, path = "/v1/pauses/{scope}/{name}", tag = "flow",
    operation_id = "resume_named", params(("scope" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "What had been stopped", body = PauseBody)))]
pub async fn resume_named(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Json<PauseBody>> {
    let gone = api.engine.resume(target.scope, target.name, &caller.actor).await?;
    Ok(Json(gone.into()))
}
