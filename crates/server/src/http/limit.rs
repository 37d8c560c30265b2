//! Limits: the rules, and what is held of them.

use super::body::List;
use super::cursor::Paging;
use super::problem::Result;
use super::request::{Body, Params};
use super::{Api, Caller, Problem};
use axum::extract::{Extension, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::routing::any;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::{IntoParams, ToSchema};
use windlass::domain::limit::{Counts, Limits, Maxima, Rate, Scope};
use windlass::domain::page::Order;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::store::limit::KeptRule;

/// How many of those that hold most are shown with a rule.
const MOST_HOLDERS: usize = 5;

/// What a rule or a pause is for, in the path.
pub struct Target {
    pub(super) scope: Scope,
    pub(super) name: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let mut path = path.map(|Path(path)| path).unwrap_or_default();
        let scope = parsed(&path.remove("scope").unwrap_or_default())?;
        let name = path.remove("name");
        Maxima::default().of(scope, name.clone(), None).validate()?;
        Ok(Target { scope, name })
    }
}

fn parsed(scope: &str) -> Result<Scope> {
    scope.parse().map_err(|_| {
        let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        let detail = format!("must be one of: {}", known.join(", "));
        Problem::field("/scope", "unknown_value", detail)
    })
}

/// What the document has no words for: an address that ends where the name should stand.
pub(super) fn nameless() -> Router<Api> {
    let of_limits = async |Path(scope): Path<String>| -> Result<()> {
        let scope = parsed(&scope)?;
        let each = format!("`/v1/limits/{scope}` is the limit of each {scope} without its own");
        let each = if scope == Scope::Global { "`/v1/limits/global` is meant" } else { &each };
        Err(Problem::field("/name", "required", format!("must not be empty; {each}")))
    };
    let of_pauses = async |Path(scope): Path<String>| -> Result<()> {
        let detail = format!("must not be empty: say which {}", parsed(&scope)?);
        Err(Problem::field("/name", "required", detail))
    };
    Router::new()
        .route("/v1/limits/{scope}/", any(of_limits))
        .route("/v1/pauses/{scope}/", any(of_pauses))
}

/// The most tasks handed out in a period.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rate)]
pub struct RateBody {
    /// How many.
    count: i64,
    /// In how long.
    period_ms: i64,
}

impl From<Rate> for RateBody {
    fn from(rate: Rate) -> RateBody {
        RateBody { count: rate.count, period_ms: rate.period_ms }
    }
}

/// What a rule says.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // The document's view of the domain's `Maxima`.
pub struct LimitRequest {
    /// The most claimed and running tasks: 10 unless given, null for no limit. Where only a rate is
    /// given: as the rule for each one of the scope has it, or no limit.
    max_active: Option<i64>,
    /// The most pending tasks, those in retry included: 50 unless given, null for no limit. Where
    /// only a rate is given, likewise.
    max_pending: Option<i64>,
    /// The most tasks handed out in a period: no limit unless given.
    rate: Option<RateBody>,
}

/// What changes of a rule.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // The document's view of the domain's `Maxima`.
pub struct LimitChange {
    /// The most claimed and running tasks: as it is unless given, null for no limit.
    max_active: Option<i64>,
    /// The most pending tasks, those in retry included: as it is unless given, null for no limit.
    max_pending: Option<i64>,
    /// The most tasks handed out in a period: as it is unless given, null for no limit.
    rate: Option<RateBody>,
}

/// What one of those holds that a rule is for.
#[derive(Serialize, ToSchema)]
pub struct HolderBody {
    /// Which venture, queue…
    name: String,
    /// Its claimed and running tasks.
    active: i64,
    /// Its pending tasks, those in retry included.
    pending: i64,
}

/// A rule, and what is held of it now.
#[derive(Serialize, ToSchema)]
pub struct LimitBody {
    /// What it counts over.
    #[schema(value_type = String)]
    scope: Scope,
    /// Which one it is for; null: each one of the scope that has no rule of its own.
    name: Option<String>,
    /// The most claimed and running tasks; null is no limit.
    max_active: Option<i64>,
    /// The most pending tasks, those in retry included; null is no limit.
    max_pending: Option<i64>,
    /// The most tasks handed out in a period; null is no limit.
    rate: Option<RateBody>,
    /// Claimed and running tasks. Where the rule is for each one: the most that one of them has.
    active: i64,
    /// Pending tasks. Where the rule is for each one: the most that one of them has.
    pending: i64,
    /// Where the rule is for each one: the five of them that hold most.
    held_by: Vec<HolderBody>,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    updated_by: String,
}

impl LimitBody {
    fn new(kept: KeptRule, limits: &Limits, counts: &Counts) -> LimitBody {
        let held = limits.held_by(&kept.rule, counts);
        let active = held.iter().map(|(_, count)| count.active).max().unwrap_or_default();
        let pending = held.iter().map(|(_, count)| count.pending).max().unwrap_or_default();
        let is_for_each = kept.rule.name.is_none() && kept.rule.scope != Scope::Global;
        let holders = held.into_iter().filter(|_| is_for_each).take(MOST_HOLDERS);
        let held_by = holders.map(|(key, count)| HolderBody {
            name: key.name.clone(),
            active: count.active,
            pending: count.pending,
        });
        LimitBody {
            held_by: held_by.collect(),
            scope: kept.rule.scope,
            name: kept.rule.name,
            max_active: kept.rule.max_active,
            max_pending: kept.rule.max_pending,
            rate: kept.rule.rate.map(Into::into),
            active,
            pending,
            updated_at: kept.updated_at,
            updated_by: kept.updated_by,
        }
    }
}

/// Which rules.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LimitParams {
    /// `asc` unless `desc`.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl LimitParams {
    /// The page of what stands in the order of scopes and names.
    pub(super) fn page<T>(
        &self,
        items: Vec<T>,
        place: impl Fn(&T) -> (Scope, Option<&str>),
    ) -> Result<(Vec<T>, Option<String>)> {
        let (cursor, order) = (self.cursor.as_deref(), self.order.as_deref());
        let paging = Paging::new(Order::Ascending, self.limit, cursor, order)?;
        let (page, next) = paging.part().of_all(items, |item| {
            let (scope, name) = place(item);
            (scope, name.unwrap_or_default().to_owned())
        });
        Ok((page, paging.cursor(next)))
    }
}

/// List the limits and what is held of them, by scope and name.
#[utoipa::path(get, path = "/v1/limits", tag = "flow",
    operation_id = "list_limits", params(LimitParams),
    responses((status = 200, description = "A page", body = List<LimitBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<LimitParams>,
) -> Result<Json<List<LimitBody>>> {
    let (flow, counts) = api.engine.limits_in_use().await?;
    let limits = flow.limits();
    let (page, next_cursor) =
        params.page(flow.rules, |kept| (kept.rule.scope, kept.rule.name.as_deref()))?;
    let items = page.into_iter().map(|kept| LimitBody::new(kept, &limits, &counts)).collect();
    Ok(Json(List { items, next_cursor }))
}

async fn one(api: &Api, target: Target) -> Result<Json<LimitBody>> {
    let (flow, counts) = api.engine.limits_in_use().await?;
    let limits = flow.limits();
    let is_meant =
        |kept: &KeptRule| kept.rule.scope == target.scope && kept.rule.name == target.name;
    let found = flow.rules.into_iter().find(is_meant);
    let found = found.ok_or(Refusal::Unknown { what: "limit" })?;
    Ok(Json(LimitBody::new(found, &limits, &counts)))
}

/// Show the limit of everything, or of each one of a scope.
#[utoipa::path(get, path = "/v1/limits/{scope}", tag = "flow",
    operation_id = "show_limit", params(("scope" = String, Path)),
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn show(State(api): State<Api>, target: Target) -> Result<Json<LimitBody>> {
    one(&api, target).await
}

/// Show the limit of one venture, queue….
#[utoipa::path(get, path = "/v1/limits/{scope}/{name}", tag = "flow",
    operation_id = "show_named_limit",
    params(("scope" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn show_named(State(api): State<Api>, target: Target) -> Result<Json<LimitBody>> {
    one(&api, target).await
}

async fn set(api: &Api, caller: &Caller, target: Target, said: Maxima) -> Result<Json<LimitBody>> {
    api.engine.replace_limit(target.scope, target.name.clone(), said, &caller.actor).await?;
    one(api, target).await
}

/// Set the limit of everything, or of each one of a scope: all of it, what is left out is as in a
/// new rule. Every node enforces it within a second.
#[utoipa::path(put, path = "/v1/limits/{scope}", tag = "flow",
    operation_id = "put_limit", params(("scope" = String, Path)),
    request_body = LimitRequest,
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn put(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Body(said): Body<Maxima>,
) -> Result<Json<LimitBody>> {
    set(&api, &caller, target, said).await
}

/// Set the limit of one venture, queue…: all of it, what is left out is as in a new rule.
#[utoipa::path(put, path = "/v1/limits/{scope}/{name}", tag = "flow",
    operation_id = "put_named_limit",
    params(("scope" = String, Path), ("name" = String, Path)),
    request_body = LimitRequest,
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn put_named(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Body(said): Body<Maxima>,
) -> Result<Json<LimitBody>> {
    set(&api, &caller, target, said).await
}

async fn change(
    api: &Api,
    caller: &Caller,
    target: Target,
    said: Maxima,
) -> Result<Json<LimitBody>> {
    api.engine.amend_limit(target.scope, target.name.clone(), said, &caller.actor).await?;
    one(api, target).await
}

/// Change the limit of everything, or of each one of a scope: what is left out stays as it is.
/// Where there is none it is made, like a new rule.
#[utoipa::path(patch, path = "/v1/limits/{scope}", tag = "flow",
    operation_id = "amend_limit", params(("scope" = String, Path)),
    request_body = LimitChange,
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn amend(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Body(said): Body<Maxima>,
) -> Result<Json<LimitBody>> {
    change(&api, &caller, target, said).await
}

/// Change the limit of one venture, queue…: what is left out stays as it is.
#[utoipa::path(patch, path = "/v1/limits/{scope}/{name}", tag = "flow",
    operation_id = "amend_named_limit",
    params(("scope" = String, Path), ("name" = String, Path)),
    request_body = LimitChange,
    responses((status = 200, description = "The limit", body = LimitBody)))]
pub async fn amend_named(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Body(said): Body<Maxima>,
) -> Result<Json<LimitBody>> {
    change(&api, &caller, target, said).await
}

async fn remove(api: &Api, caller: &Caller, target: Target) -> Result<Json<LimitBody>> {
    let gone = api.engine.delete_limit(target.scope, target.name, &caller.actor).await?;
    let (flow, counts) = api.engine.limits_in_use().await?;
    // As if it were still there: what is held now is told of those that it was for.
    let rules = flow.rules.into_iter().map(|kept| kept.rule);
    let limits = Limits::new(rules.chain([gone.rule.clone()]));
    Ok(Json(LimitBody::new(gone, &limits, &counts)))
}

/// Remove the limit of everything, or of each one of a scope; answers what it said, and what is
/// held now of those that it was for.
#[utoipa::path(delete, path = "/v1/limits/{scope}", tag = "flow",
    operation_id = "delete_limit", params(("scope" = String, Path)),
    responses((status = 200, description = "The limit that is gone", body = LimitBody)))]
pub async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Json<LimitBody>> {
    remove(&api, &caller, target).await
}

/// Remove the limit of one venture, queue…; that of each one of the scope holds for it again.
#[utoipa::path(delete, path = "/v1/limits/{scope}/{name}", tag = "flow",
    operation_id = "delete_named_limit",
    params(("scope" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The limit that is gone", body = LimitBody)))]
pub async fn delete_named(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Json<LimitBody>> {
    remove(&api, &caller, target).await
}
