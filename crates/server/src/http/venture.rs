//! Ventures and portfolios: what agents and their tasks belong to.

use super::agent::Name;
use super::body::List;
use super::cursor::Paging;
use super::problem::Result;
use super::request::{Body, Params};
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass::domain::agent::Unit;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::store::venture::{Kept, ORDER};

/// A venture.
#[derive(Serialize, ToSchema)]
pub struct VentureBody {
    name: String,
    /// What it belongs to.
    portfolio: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    archived_at: Option<Timestamp>,
}

impl From<Kept> for VentureBody {
    fn from(kept: Kept) -> VentureBody {
        let Kept { name, portfolio, created_at, updated_at, archived_at } = kept;
        VentureBody { name, portfolio, created_at, updated_at, archived_at }
    }
}

/// A portfolio.
#[derive(Serialize, ToSchema)]
pub struct PortfolioBody {
    name: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    archived_at: Option<Timestamp>,
}

impl From<Kept> for PortfolioBody {
    fn from(kept: Kept) -> PortfolioBody {
        let Kept { name, created_at, updated_at, archived_at, .. } = kept;
        PortfolioBody { name, created_at, updated_at, archived_at }
    }
}

/// A new venture.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVenture {
    name: String,
    /// What it belongs to.
    portfolio: Option<String>,
}

/// A new portfolio.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPortfolio {
    name: String,
}

/// What a venture is like.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VentureRequest {
    /// What it belongs to; nothing unless given.
    portfolio: Option<String>,
}

/// Which of them.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct VentureParams {
    /// Those of this portfolio.
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

/// Which of them.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PortfolioParams {
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

/// Create a venture. The same again is answered with what is there.
#[utoipa::path(post, path = "/v1/ventures", tag = "agents",
    operation_id = "create_venture", request_body = NewVenture,
    responses((status = 201, description = "The venture", body = VentureBody)))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewVenture>,
) -> Result<(StatusCode, Json<VentureBody>)> {
    let (unit, actor) = (Unit::Venture, &caller.actor);
    let kept = api.engine.put_venture(unit, &new.name, new.portfolio, true, actor).await?;
    Ok((StatusCode::CREATED, Json(kept.into())))
}

/// Set what a venture belongs to; a venture that is not there is created. Its agents go along.
#[utoipa::path(put, path = "/v1/ventures/{name}", tag = "agents",
    operation_id = "put_venture", params(("name" = String, Path)),
    request_body = VentureRequest,
    responses((status = 200, description = "The venture", body = VentureBody)))]
pub async fn put(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    Body(said): Body<VentureRequest>,
) -> Result<Json<VentureBody>> {
    let (unit, actor) = (Unit::Venture, &caller.actor);
    Ok(Json(api.engine.put_venture(unit, &name, said.portfolio, false, actor).await?.into()))
}

/// Show a venture.
#[utoipa::path(get, path = "/v1/ventures/{name}", tag = "agents",
    operation_id = "show_venture", params(("name" = String, Path)),
    responses((status = 200, description = "The venture", body = VentureBody)))]
pub async fn show(State(api): State<Api>, Name(name): Name) -> Result<Json<VentureBody>> {
    Ok(Json(found(&api, Unit::Venture, &name).await?.into()))
}

async fn found(api: &Api, unit: Unit, name: &str) -> Result<Kept> {
    let found = api.engine.ventures().show(unit, name).await?;
    Ok(found.ok_or(Refusal::Unknown { what: unit.as_str() })?)
}

/// List ventures, by name.
#[utoipa::path(get, path = "/v1/ventures", tag = "agents",
    operation_id = "list_ventures", params(VentureParams),
    responses((status = 200, description = "A page", body = List<VentureBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<VentureParams>,
) -> Result<Json<List<VentureBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let VentureParams { portfolio, archived, .. } = params;
    if let Some(portfolio) = &portfolio {
        super::agent::checked("/portfolio", portfolio)?;
    }
    page(&api, Unit::Venture, portfolio, archived, &paging).await
}

async fn page<T: From<Kept>>(
    api: &Api,
    unit: Unit,
    portfolio: Option<String>,
    archived: Option<bool>,
    paging: &Paging<String>,
) -> Result<Json<List<T>>> {
    let archived = archived.unwrap_or(false);
    let ventures = api.engine.ventures();
    Ok(Json(paging.list(ventures.page(unit, portfolio, archived, paging.part()).await?)))
}

/// Archive a venture: it is listed no more and gets no new agents.
#[utoipa::path(post, path = "/v1/ventures/{name}/archive", tag = "agents",
    operation_id = "archive_venture", params(("name" = String, Path)),
    responses((status = 200, description = "The venture", body = VentureBody)))]
pub async fn archive(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<VentureBody>> {
    let ventures = api.engine.ventures();
    Ok(Json(ventures.archive(Unit::Venture, &name, true, &caller.actor).await?.into()))
}

/// Bring an archived venture back.
#[utoipa::path(post, path = "/v1/ventures/{name}/restore", tag = "agents",
    operation_id = "restore_venture", params(("name" = String, Path)),
    responses((status = 200, description = "The venture", body = VentureBody)))]
pub async fn restore(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<VentureBody>> {
    let ventures = api.engine.ventures();
    Ok(Json(ventures.archive(Unit::Venture, &name, false, &caller.actor).await?.into()))
}

/// Create a portfolio. The same again is answered with what is there.
#[utoipa::path(post, path = "/v1/portfolios", tag = "agents",
    operation_id = "create_portfolio", request_body = NewPortfolio,
    responses((status = 201, description = "The portfolio", body = PortfolioBody)))]
pub async fn create_portfolio(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewPortfolio>,
) -> Result<(StatusCode, Json<PortfolioBody>)> {
    let (unit, actor) = (Unit::Portfolio, &caller.actor);
    let kept = api.engine.put_venture(unit, &new.name, None, true, actor).await?;
    Ok((StatusCode::CREATED, Json(kept.into())))
}

/// Show a portfolio.
#[utoipa::path(get, path = "/v1/portfolios/{name}", tag = "agents",
    operation_id = "show_portfolio", params(("name" = String, Path)),
    responses((status = 200, description = "The portfolio", body = PortfolioBody)))]
pub async fn show_portfolio(
    State(api): State<Api>,
    Name(name): Name,
) -> Result<Json<PortfolioBody>> {
    Ok(Json(found(&api, Unit::Portfolio, &name).await?.into()))
}

/// List portfolios, by name.
#[utoipa::path(get, path = "/v1/portfolios", tag = "agents",
    operation_id = "list_portfolios", params(PortfolioParams),
    responses((status = 200, description = "A page", body = List<PortfolioBody>)))]
pub async fn list_portfolios(
    State(api): State<Api>,
    Params(params): Params<PortfolioParams>,
) -> Result<Json<List<PortfolioBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    page(&api, Unit::Portfolio, None, params.archived, &paging).await
}

/// Archive a portfolio: it is listed no more and gets nothing new.
#[utoipa::path(post, path = "/v1/portfolios/{name}/archive", tag = "agents",
    operation_id = "archive_portfolio", params(("name" = String, Path)),
    responses((status = 200, description = "The portfolio", body = PortfolioBody)))]
pub async fn archive_portfolio(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<PortfolioBody>> {
    let ventures = api.engine.ventures();
    Ok(Json(ventures.archive(Unit::Portfolio, &name, true, &caller.actor).await?.into()))
}

/// Bring an archived portfolio back.
#[utoipa::path(post, path = "/v1/portfolios/{name}/restore", tag = "agents",
    operation_id = "restore_portfolio", params(("name" = String, Path)),
    responses((status = 200, description = "The portfolio", body = PortfolioBody)))]
pub async fn restore_portfolio(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
) -> Result<Json<PortfolioBody>> {
    let ventures = api.engine.ventures();
    Ok(Json(ventures.archive(Unit::Portfolio, &name, false, &caller.actor).await?.into()))
}
