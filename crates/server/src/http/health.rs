//! Whether the server lives, whether it can work, what it is, and how things stand.

use super::Api;
use super::body::List;
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::request::Params;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::engine::Phase;
use windlass::store::error::Error as StoreError;
use windlass::store::migration;
use windlass::store::node::{Node, ORDER};
use windlass::store::statement::Dialect;

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "service",
    operation_id = "live",
    responses((status = 200, description = "It lives", body = String)))]
pub async fn live() -> &'static str {
    "ok\n"
}

/// How long the database may take to say that it is there. Whoever asks sends requests elsewhere
/// otherwise, and has less patience than a transaction.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// The node can work: its database answers, and it takes work.
#[utoipa::path(get, path = "/readyz", tag = "service",
    operation_id = "ready",
    responses((status = 200, description = "It can work", body = String)))]
pub async fn ready(State(api): State<Api>) -> Result<&'static str> {
    if api.engine.phase() != Phase::Running {
        return Err(windlass::engine::Error::ShuttingDown.into());
    }
    let looking = migration::require_current(api.engine.store());
    match tokio::time::timeout(READY_WITHIN, looking).await {
        Ok(found) => found?,
        Err(_) => return Err(StoreError::Unavailable("it does not answer".into()).into()),
    }
    Ok("ready\n")
}

/// What this server is.
#[derive(Serialize, ToSchema)]
pub struct Version {
    name: &'static str,
    version: &'static str,
    node: Uuid,
    database: &'static str,
    schema: i64,
}

impl Api {
    fn version(&self) -> Version {
        Version {
            name: "windlass",
            version: env!("CARGO_PKG_VERSION"),
            node: self.engine.node(),
            database: match self.engine.store().dialect() {
                Dialect::Sqlite => "sqlite",
                Dialect::Postgres => "postgres",
            },
            schema: migration::newest(),
        }
    }
}

/// What this server is.
#[utoipa::path(get, path = "/v1/version", tag = "service",
    operation_id = "version",
    responses((status = 200, description = "The version", body = Version)))]
pub async fn version(State(api): State<Api>) -> Json<Version> {
    Json(api.version())
}

/// A node that is alive.
#[derive(Serialize, ToSchema)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct NodeBody {
    pub id: Uuid,
    pub url: Option<String>,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: windlass::domain::time::Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: windlass::domain::time::Timestamp,
}

impl From<Node> for NodeBody {
    fn from(node: Node) -> NodeBody {
        let Node { id, url, version, started_at, expires_at } = node;
        NodeBody { id, url, version, started_at, expires_at }
    }
}

/// Which page.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NodeParams {
    /// `oldest` first unless `newest`; `asc` and `desc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// The nodes that are alive, oldest first.
#[utoipa::path(get, path = "/v1/nodes", tag = "service",
    operation_id = "list_nodes", params(NodeParams),
    responses((status = 200, description = "A page", body = List<NodeBody>)))]
pub async fn nodes(
    State(api): State<Api>,
    Params(params): Params<NodeParams>,
) -> Result<Json<List<NodeBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    Ok(Json(paging.list(api.engine.nodes().page(paging.part()).await?)))
}

/// What waits in one line.
#[derive(Serialize, ToSchema)]
pub struct QueueStatus {
    queue: String,
    kind: &'static str,
    ready: i64,
}

/// How things stand.
#[derive(Serialize, ToSchema)]
pub struct StatusBody {
    #[serde(flatten)]
    version: Version,
    /// Tasks by state, since the beginning.
    tasks: BTreeMap<&'static str, i64>,
    /// What could be claimed now.
    queues: Vec<QueueStatus>,
    /// Those that wait for work on this node.
    idle_workers: usize,
    /// Waits for a task on this node.
    open_waits: usize,
    /// Whether wake-ups from other nodes arrive; otherwise this node only polls.
    hears_other_nodes: bool,
    durability: DurabilityBody,
}

/// What an acknowledged task survives, as this node found it at its start.
#[derive(Serialize, ToSchema)]
pub struct DurabilityBody {
    /// The loss of power: every commit is synced to disk before it is acknowledged.
    synced: bool,
    /// The loss of the database's machine: commits wait for a second server, too. Null where the
    /// database is embedded.
    standby: Option<bool>,
}

/// How things stand.
#[utoipa::path(get, path = "/v1/status", tag = "service",
    operation_id = "status",
    responses((status = 200, description = "How things stand", body = StatusBody)))]
pub async fn status(State(api): State<Api>) -> Result<Json<StatusBody>> {
    let counts = api.engine.tasks().counts().await?;
    let ready = counts.ready.into_iter();
    let durability = api.engine.store().durability();
    Ok(Json(StatusBody {
        version: api.version(),
        tasks: counts.by_status.iter().map(|(state, count)| (state.as_str(), *count)).collect(),
        queues: ready
            .map(|(queue, profile, ready)| QueueStatus {
                queue,
                kind: profile.kind().as_str(),
                ready,
            })
            .collect(),
        idle_workers: api.engine.idle_workers(),
        open_waits: api.engine.open_waits(),
        hears_other_nodes: api.engine.store().hears(),
        durability: DurabilityBody {
            synced: durability.is_synced,
            standby: durability.has_standby,
        },
    }))
}

/// The metrics, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service",
    operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", body = String,
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")))]
pub async fn metrics(State(api): State<Api>) -> Result<Response> {
    let counts = api.engine.tasks().counts().await.ok();
    let depth = api.engine.messages().depth().await.ok();
    let text = api.metrics.text(&api.engine, counts.as_ref(), depth.as_ref());
    let text = text.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the metrics are broken")
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
