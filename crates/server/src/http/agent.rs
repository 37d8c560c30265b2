//! Agents: who they are, and what their tasks take over.

use super::body::{BackoffBody, List};
use super::cursor::Paging;
use super::problem::Result;
use super::request::{Body, Params};
use super::{Api, Caller, Problem};
use axum::Json;
use axum::extract::{Extension, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::domain::agent::{
    AgentPatch, AgentSpec, Authority, Executor, RetryPolicy, check_name,
};
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::agent::{Agent, AgentFilter, ORDER, Said, Written};

/// A name in the path.
pub struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.map(|Path(name)| name).unwrap_or_default();
        check_name(&name)?;
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

/// How an agent's work is carried out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Executor)]
#[allow(dead_code)] // The document's view of the domain's `Executor`.
pub struct ExecutorBody {
    /// `in_process`, `session`, `command` or `webhook`.
    r#type: String,
    /// Of a command: the program and its arguments.
    command: Option<Vec<String>>,
    /// Of a webhook: where.
    url: Option<String>,
    /// Of a command or a webhook: after how long it is given up.
    timeout_ms: Option<i64>,
}

/// Whom an agent may speak to beyond its own line of the hierarchy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Authority)]
#[allow(dead_code)] // The document's view of the domain's `Authority`.
pub struct AuthorityBody {
    /// These agents.
    agents: Option<Vec<String>>,
    /// All agents of these ventures.
    ventures: Option<Vec<String>>,
}

/// An agent.
#[derive(Serialize, ToSchema)]
pub struct AgentBody {
    name: String,
    role: Option<String>,
    parent: Option<String>,
    venture: Option<String>,
    /// Its venture's, if that has one.
    portfolio: Option<String>,
    queue: Option<String>,
    /// By its role unless it was set.
    worker_type: Option<String>,
    #[schema(value_type = Option<ExecutorBody>)]
    executor: Option<Executor>,
    #[schema(value_type = RetryPolicyBody)]
    retry_policy: RetryPolicy,
    #[schema(value_type = AuthorityBody)]
    authority: Authority,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    archived_at: Option<Timestamp>,
    /// The fields that were written by hand and that nobody can read; they count as not set. Left
    /// out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    unreadable: Vec<&'static str>,
}

impl From<Agent> for AgentBody {
    fn from(agent: Agent) -> AgentBody {
        let portfolio = agent.portfolio().map(str::to_owned);
        let worker_type = agent.spec.worker_type().map(str::to_owned);
        let Agent { name, spec, created_at, updated_at, archived_at, unreadable, .. } = agent;
        let AgentSpec { role, parent, venture, queue, executor, .. } = spec;
        AgentBody {
            name,
            role,
            parent,
            venture,
            portfolio,
            queue,
            worker_type,
            executor,
            retry_policy: spec.retry_policy,
            authority: spec.authority,
            created_at,
            updated_at,
            archived_at,
            unreadable,
        }
    }
}

/// What an agent is like.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // The document's view of the domain's `AgentPatch`.
pub struct AgentRequest {
    /// `ceo`, `vp`, `crew`, or whatever the company calls it.
    role: Option<String>,
    /// The agent above it.
    parent: Option<String>,
    venture: Option<String>,
    /// Left out for an agent whose venture has one.
    portfolio: Option<String>,
    /// Where its tasks go unless they say otherwise: the queue called like its role, or like
    /// itself, unless given.
    queue: Option<String>,
    /// Which kind of worker carries them out: by its role unless given.
    worker_type: Option<String>,
    executor: Option<ExecutorBody>,
    retry_policy: Option<RetryPolicyBody>,
    authority: Option<AuthorityBody>,
}

/// A new agent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    name: String,
    /// `ceo`, `vp`, `crew`, or whatever the company calls it.
    role: Option<String>,
    /// The agent above it.
    parent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    queue: Option<String>,
    worker_type: Option<String>,
    #[schema(value_type = Option<ExecutorBody>)]
    executor: Option<Executor>,
    #[schema(value_type = Option<RetryPolicyBody>)]
    retry_policy: Option<RetryPolicy>,
    #[schema(value_type = Option<AuthorityBody>)]
    authority: Option<Authority>,
}

/// Create an agent. The same again is answered with what is there; another one under the name is
/// refused.
#[utoipa::path(post, path = "/v1/agents", tag = "agents",
    operation_id = "create_agent", request_body = NewAgent,
    responses((status = 201, description = "The agent", body = AgentBody)))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewAgent>,
) -> Result<(StatusCode, Json<AgentBody>)> {
    let spec = AgentSpec {
        role: new.role,
        parent: new.parent,
        venture: new.venture,
        portfolio: new.portfolio,
        queue: new.queue,
        worker_type: new.worker_type,
        executor: new.executor,
        retry_policy: new.retry_policy.unwrap_or_default(),
        authority: new.authority.unwrap_or_default(),
    };
    let created = api.engine.create_agent(&new.name, spec, &caller.actor).await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Set what an agent is like: all of it, what is left out is unset.
#[utoipa::path(put, path = "/v1/agents/{name}", tag = "agents",
    operation_id = "put_agent", params(("name" = String, Path)),
    request_body = AgentRequest,
    responses((status = 200, description = "The agent", body = AgentBody,
        headers(("Windlass-Change" = String,
            description = "`created`, `changed` or `unchanged`")))))]
pub async fn put(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    Body(said): Body<AgentPatch>,
) -> Result<Response> {
    let said = Said::All(said.over(AgentSpec::default()));
    Ok(answer(api.engine.set_agent(&name, said, &caller.actor).await?))
}

/// Tells what a write came to.
const CHANGE: HeaderName = HeaderName::from_static("windlass-change");

/// An agent that is new is answered as such: whoever meant another name sees it.
fn answer((agent, written): (Agent, Written)) -> Response {
    let change = match written {
        Written::Created => "created",
        Written::Changed => "changed",
        Written::Unchanged => "unchanged",
    };
    ([(CHANGE, change)], Json(AgentBody::from(agent))).into_response()
}

/// Change what is named about an agent; `null` unsets. An agent that is not there is created.
#[utoipa::path(patch, path = "/v1/agents/{name}", tag = "agents",
    operation_id = "change_agent", params(("name" = String, Path)),
    request_body = AgentRequest,
    responses((status = 200, description = "The agent", body = AgentBody,
        headers(("Windlass-Change" = String,
            description = "`created`, `changed` or `unchanged`")))))]
pub async fn patch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    Body(said): Body<AgentPatch>,
) -> Result<Response> {
    Ok(answer(api.engine.set_agent(&name, Said::Some(said), &caller.actor).await?))
}

/// Archive an agent: it is listed no more and gets nobody new below it. What it did, and what it
/// is doing, stays as it is.
#[utoipa::path(post, path = "/v1/agents/{name}/archive", tag = "agents",
    operation_id = "archive_agent", params(("name" = String, Path)),
    responses((status = 200, description = "The agent", body = AgentBody)))]
pub async fn archive(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<AgentBody>> {
    Ok(Json(api.engine.archive_agent(&name, true, &caller.actor).await?.into()))
}

/// Bring an archived agent back.
#[utoipa::path(post, path = "/v1/agents/{name}/restore", tag = "agents",
    operation_id = "restore_agent", params(("name" = String, Path)),
    responses((status = 200, description = "The agent", body = AgentBody)))]
pub async fn restore(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<AgentBody>> {
    Ok(Json(api.engine.archive_agent(&name, false, &caller.actor).await?.into()))
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
    role: Option<String>,
    /// Those right below this agent.
    parent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    /// With those that are archived.
    archived: Option<bool>,
    /// `asc` unless `desc`.
    order: Option<String>,
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
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let AgentParams { role, parent, venture, portfolio, archived, .. } = params;
    for (pointer, text) in
        [("/role", &role), ("/parent", &parent), ("/venture", &venture), ("/portfolio", &portfolio)]
    {
        text.as_ref().map_or(Ok(()), |text| checked(pointer, text))?;
    }
    let archived = archived.unwrap_or(false);
    let filter = AgentFilter { role, parent, venture, portfolio, archived };
    Ok(Json(paging.list(api.engine.agents().page(filter, paging.part()).await?)))
}

/// A name to look for: what cannot be one is most likely a mistake.
pub(super) fn checked(pointer: &str, text: &str) -> Result<()> {
    let mut errors = validate::Errors::default();
    errors.name(pointer, text, validate::MAX_NAME_BYTES);
    Ok(errors.into_result()?)
}
