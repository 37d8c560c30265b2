//! Alerts and the notices that tell them: list, acknowledge.

use super::body::List;
use super::cursor::Paging;
use super::problem::Result;
use super::request::{Id, Params};
use super::task::known;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::notice::Severity;
use windlass::domain::time::Timestamp;
use windlass::store::alert::{Alert, Filter, ORDER};
use windlass::store::notice::{Filter as NoticeFilter, Notice, ORDER as NOTICE_ORDER};

/// Something that somebody should know.
#[derive(Serialize, ToSchema)]
pub struct AlertBody {
    id: Uuid,
    /// What kind, such as `poison_task`.
    #[serde(rename = "type")]
    kind: String,
    #[schema(value_type = String)]
    severity: Severity,
    /// The task it is about, if it is about one.
    task_id: Option<Uuid>,
    message: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    acknowledged_at: Option<Timestamp>,
    acknowledged_by: Option<String>,
}

impl From<Alert> for AlertBody {
    fn from(alert: Alert) -> AlertBody {
        AlertBody {
            id: alert.id,
            kind: alert.kind,
            severity: alert.severity,
            task_id: alert.task_id.map(|task| task.0),
            message: alert.message,
            created_at: alert.created_at,
            acknowledged_at: alert.acknowledged_at,
            acknowledged_by: alert.acknowledged_by,
        }
    }
}

/// Which alerts.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AlertParams {
    /// critical, warning or info.
    severity: Option<String>,
    /// Such as `poison_task`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Only those that somebody has acknowledged, or only the others.
    acknowledged: Option<bool>,
    /// About this task.
    task: Option<Uuid>,
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

fn severity(name: Option<&str>) -> Result<Option<Severity>> {
    let names = || Severity::ALL.iter().map(|severity| severity.as_str());
    name.map(|name| known("/severity", name, names())).transpose()
}

/// List alerts, newest first.
#[utoipa::path(get, path = "/v1/alerts", tag = "trouble",
    operation_id = "list_alerts", params(AlertParams),
    responses((status = 200, description = "A page", body = List<AlertBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<AlertParams>,
) -> Result<Json<List<AlertBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let filter = Filter {
        kind: params.kind,
        severity: severity(params.severity.as_deref())?,
        task: params.task.map(TaskId),
        acknowledged: params.acknowledged,
    };
    Ok(Json(paging.list(api.engine.alerts().page(filter, paging.part()).await?)))
}

/// Acknowledge an alert. The first who does stays written; whoever comes second sees who it was.
#[utoipa::path(post, path = "/v1/alerts/{id}/acknowledge", tag = "trouble",
    operation_id = "acknowledge_alert", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The alert", body = AlertBody)))]
pub async fn acknowledge(
    State(api): State<Api>,
    Id(id): Id<Uuid>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<AlertBody>> {
    Ok(Json(api.engine.alerts().acknowledge(id, &caller.actor).await?.into()))
}

/// What is told to webhooks.
#[derive(Serialize, ToSchema)]
pub struct NoticeBody {
    /// The same for every try.
    id: Uuid,
    /// `alert`, `approval` …
    kind: String,
    #[schema(value_type = String)]
    severity: Severity,
    /// What it speaks of, such as an alert's id.
    subject_id: Option<Uuid>,
    #[schema(value_type = Object)]
    body: Value,
    /// `waiting`, `delivered` or `given_up`.
    state: &'static str,
    tries: i32,
    last_error: Option<String>,
    /// Which webhooks have it.
    delivered_to: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it is tried next, while it waits.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    delivered_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    given_up_at: Option<Timestamp>,
}

impl From<Notice> for NoticeBody {
    fn from(notice: Notice) -> NoticeBody {
        NoticeBody {
            state: match (notice.delivered_at, notice.given_up_at) {
                (Some(_), _) => "delivered",
                (None, Some(_)) => "given_up",
                (None, None) => "waiting",
            },
            id: notice.id,
            kind: notice.kind,
            severity: notice.severity,
            subject_id: notice.subject_id,
            body: notice.body,
            tries: notice.tries,
            last_error: notice.last_error,
            delivered_to: notice.delivered_to,
            created_at: notice.created_at,
            due_at: notice.due_at,
            delivered_at: notice.delivered_at,
            given_up_at: notice.given_up_at,
        }
    }
}

/// Which notices.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NoticeParams {
    /// `alert`, `approval` …
    kind: Option<String>,
    /// critical, warning or info.
    severity: Option<String>,
    /// waiting, delivered or given_up.
    state: Option<String>,
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

const STATES: [&str; 3] = ["waiting", "delivered", "given_up"];

/// List notices, newest first: what webhooks were told, or are still to be told.
#[utoipa::path(get, path = "/v1/notices", tag = "trouble",
    operation_id = "list_notices", params(NoticeParams),
    responses((status = 200, description = "A page", body = List<NoticeBody>)))]
pub async fn notices(
    State(api): State<Api>,
    Params(params): Params<NoticeParams>,
) -> Result<Json<List<NoticeBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(NOTICE_ORDER, params.limit, cursor, order)?;
    let state = params.state.as_deref().map(|name| {
        let state = STATES.into_iter().find(|state| *state == name);
        let detail = format!("must be one of {}", STATES.join(", "));
        state.ok_or_else(|| super::Problem::field("/state", "unknown_value", detail))
    });
    let filter = NoticeFilter {
        kind: params.kind,
        severity: severity(params.severity.as_deref())?,
        state: state.transpose()?,
        subject_id: None,
    };
    Ok(Json(paging.list(api.engine.notices().page(filter, paging.part()).await?)))
}
