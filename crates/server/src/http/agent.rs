//! Agents: how their tasks are retried.

use super::body::{BackoffBody, List};
use super::problem::Result;
use super::request::{Body, Params};
use super::{Api, Problem, cursor};
use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::domain::agent::RetryPolicy;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::agent::Agent;

/// A name in the path.
pub struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.map(|Path(name)| name).unwrap_or_default();
        RetryPolicy::default().check(&name)?;
        Ok(Name(name))
    }
}

/// How the tasks of an agent are retried, unless they say otherwise.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetryPolicy)]
#[allow(dead_code)] // The document's view of the domain's `RetryPolicy`.
pub struct RetryPolicyBody {
    /// How often; as the task's kind has it unless given.
    max_retries: Option<i32>,
    backoff: Option<BackoffBody>,
    /// Where a task ends whose retries are used up: `poisoned` or `failed`.
    on_exhausted: Option<String>,
}

/// An agent.
#[derive(Serialize, ToSchema)]
pub struct AgentBody {
    name: String,
    #[schema(value_type = RetryPolicyBody)]
    retry_policy: RetryPolicy,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<Agent> for AgentBody {
    fn from(agent: Agent) -> AgentBody {
        let Agent { name, retry_policy, created_at, updated_at } = agent;
        AgentBody { name, retry_policy, created_at, updated_at }
    }
}

/// What an agent is like.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentRequest {
    #[schema(value_type = Option<RetryPolicyBody>)]
    retry_policy: Option<RetryPolicy>,
}

/// Set what an agent is like: all of it, what is left out is unset.
#[utoipa::path(put, path = "/v1/agents/{name}", tag = "agents",
    operation_id = "put_agent", params(("name" = String, Path)),
    request_body = AgentRequest,
    responses((status = 200, description = "The agent", body = AgentBody)))]
pub async fn put(
    State(api): State<Api>,
    Name(name): Name,
    Body(request): Body<AgentRequest>,
) -> Result<Json<AgentBody>> {
    let policy = request.retry_policy.unwrap_or_default();
    Ok(Json(api.engine.put_agent(&name, policy).await?.into()))
}

/// Show an agent.
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents",
    operation_id = "show_agent", params(("name" = String, Path)),
    responses((status = 200, description = "The agent", body = AgentBody)))]
pub async fn show(State(api): State<Api>, Name(name): Name) -> Result<Json<AgentBody>> {
    let found = api.engine.agents().show(&name).await?;
    Ok(Json(found.ok_or(Refusal::Unknown { what: "agent" })?.into()))
}

/// Which agents.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AgentParams {
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List agents, by name.
#[utoipa::path(get, path = "/v1/agents", tag = "agents",
    operation_id = "list_agents", params(AgentParams),
    responses((status = 200, description = "A page", body = List<AgentBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<AgentParams>,
) -> Result<Json<List<AgentBody>>> {
    let limit = validate::list_limit(params.limit)?;
    let after = cursor::name(params.cursor.as_deref())?;
    let (items, next) = api.engine.agents().list(&after, limit as usize).await?;
    let next_cursor = next.map(|name| cursor::after_name(&name));
    Ok(Json(List { items: items.into_iter().map(Into::into).collect(), next_cursor }))
}
