//! Pools: what waits in them, and who takes it.

use super::Api;
use super::agent::Name;
use super::body::List;
use super::cursor::Paging;
use super::problem::Result;
use super::request::Params;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::page::Order;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::store::pool::{Pool, Provider};

/// A pool of providers.
#[derive(Serialize, ToSchema)]
pub struct PoolBody {
    name: String,
    /// How many inferences wait.
    depth: i64,
    /// Since when the oldest of them waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    oldest_waiting_at: Option<Timestamp>,
    /// How many are in providers' hands.
    running: i64,
    /// How many ended in the last minute.
    finished_last_minute: i64,
    /// How many tokens those took, as their providers told.
    tokens_last_minute: i64,
    /// What the live providers could hold at once.
    slots: i64,
    /// The live providers, oldest first.
    providers: Vec<ProviderBody>,
}

/// A live provider of a pool.
#[derive(Serialize, ToSchema)]
pub struct ProviderBody {
    session_id: Uuid,
    name: String,
    slots: i32,
    /// What it holds of this pool.
    held: i64,
    llms: Vec<String>,
    models: Vec<String>,
    tiers: Vec<String>,
    /// The node that has its stream.
    node: Option<Uuid>,
}

impl From<Pool> for PoolBody {
    fn from(pool: Pool) -> PoolBody {
        PoolBody {
            slots: pool.slots(),
            name: pool.name,
            depth: pool.depth,
            oldest_waiting_at: pool.oldest_waiting_at,
            running: pool.running,
            finished_last_minute: pool.finished_last_minute,
            tokens_last_minute: pool.tokens_last_minute,
            providers: pool.providers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Provider> for ProviderBody {
    fn from(provider: Provider) -> ProviderBody {
        ProviderBody {
            session_id: provider.session.0,
            name: provider.name,
            slots: provider.slots,
            held: provider.held,
            llms: provider.routes.llms,
            models: provider.routes.models,
            tiers: provider.routes.tiers,
            node: provider.node,
        }
    }
}

/// Which pools.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PoolParams {
    /// `asc` unless `desc`.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List pools, by name.
#[utoipa::path(get, path = "/v1/pools", tag = "pools",
    operation_id = "list_pools", params(PoolParams),
    responses((status = 200, description = "A page", body = List<PoolBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<PoolParams>,
) -> Result<Json<List<PoolBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(Order::Ascending, params.limit, cursor, order)?;
    let pools = api.engine.pools().list().await?;
    Ok(Json(paging.list(paging.part().of_all(pools, |pool| pool.name.clone()))))
}

/// Show a pool.
#[utoipa::path(get, path = "/v1/pools/{name}", tag = "pools",
    operation_id = "show_pool", params(("name" = String, Path)),
    responses((status = 200, description = "The pool", body = PoolBody)))]
pub async fn show(State(api): State<Api>, Name(name): Name) -> Result<Json<PoolBody>> {
    let found = api.engine.pools().show(&name).await?;
    Ok(Json(found.ok_or(Refusal::Unknown { what: "pool" })?.into()))
}
