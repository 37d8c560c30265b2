//! The audit: list it, newest first, and export it, oldest first, as JSON lines.

use super::Api;
use super::body::List;
use super::cursor::Paging;
use super::problem::Result;
use super::request::Params;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::audit::{Audit, Entry, Filter, ORDER};

/// How many entries an export reads at once.
const PART: i64 = 1_000;

/// One entry of the audit.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/audit.md describes each field once.
pub struct AuditBody {
    pub seq: i64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub actor: String,
    pub event: String,
    /// What it is about: an id, a name, or `scope:name` of a limit.
    pub subject: Option<String>,
    pub detail: Value,
}

impl From<Entry> for AuditBody {
    fn from(entry: Entry) -> AuditBody {
        let Entry { seq, at, actor, event, subject, detail } = entry;
        AuditBody { seq, at, actor, event, subject, detail }
    }
}

/// Which entries.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only what this one did.
    actor: Option<String>,
    /// Only this event, such as `approval_refused`.
    event: Option<String>,
    /// Only what is about this: the id of a message, task or approval, an agent's name, or
    /// `scope:name` of a limit.
    subject: Option<String>,
    /// At this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List the audit, newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit",
    operation_id = "list_audit", params(AuditParams),
    responses((status = 200, description = "A page", body = List<AuditBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<AuditParams>,
) -> Result<Json<List<AuditBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let filter = Filter {
        actor: params.actor,
        event: params.event,
        subject: params.subject,
        since: params.since,
        until: params.until,
    };
    Ok(Json(paging.list(api.engine.audit().page(filter, paging.part()).await?)))
}

/// Which entries are exported.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ExportParams {
    /// Only what this one did.
    actor: Option<String>,
    /// Only this event.
    event: Option<String>,
    /// Only what is about this.
    subject: Option<String>,
    /// At this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// Only what follows this entry: the `seq` where an earlier export ended.
    #[param(minimum = 0)]
    after_seq: Option<i64>,
    /// How many at most; all unless given.
    #[param(minimum = 1)]
    limit: Option<i64>,
}

/// Export the audit, oldest first: one entry a line.
#[utoipa::path(get, path = "/v1/audit/export", tag = "audit",
    operation_id = "export_audit", params(ExportParams),
    responses((status = 200, description = "Entries, one a line", body = String,
        content_type = "application/x-ndjson")))]
pub async fn export(
    State(api): State<Api>,
    Params(params): Params<ExportParams>,
) -> Result<Response> {
    let filter = Filter {
        actor: params.actor,
        event: params.event,
        subject: params.subject,
        since: params.since,
        until: params.until,
    };
    let mut errors = validate::Errors::default();
    errors.range("/after_seq", params.after_seq.unwrap_or(0), 0, i64::MAX);
    errors.range("/limit", params.limit.unwrap_or(1), 1, i64::MAX);
    errors.into_result()?;
    let audit = api.engine.audit().clone();
    // The first part is read before the answer begins, so that an error is answered as one.
    let (after, left) = (params.after_seq.unwrap_or(0), params.limit.unwrap_or(i64::MAX));
    let begin = Export { audit, filter, after, left };
    let first = begin.part().await?;
    let parts = futures_util::stream::unfold(Some((begin, Some(first))), |state| async move {
        let (mut export, read) = state?;
        let entries = match read {
            Some(entries) => Ok(entries),
            None => export.part().await,
        };
        match entries {
            Ok(entries) => {
                export.after = entries.last().map(|entry| entry.seq)?;
                export.left -= entries.len() as i64;
                let goes_on = entries.len() as i64 == PART && export.left > 0;
                let next = goes_on.then_some((export, None));
                Some((Ok(lines(entries)), next))
            }
            // The answer breaks off: whoever reads sees that it is not complete.
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(parts)).into_response())
}

struct Export {
    audit: Audit,
    filter: Filter,
    after: i64,
    left: i64,
}

impl Export {
    async fn part(&self) -> windlass::store::error::Result<Vec<Entry>> {
        self.audit.export(self.filter.clone(), self.after, PART.min(self.left)).await
    }
}

fn lines(entries: Vec<Entry>) -> String {
    let mut text = String::new();
    for entry in entries {
        text += &serde_json::to_string(&AuditBody::from(entry)).unwrap_or_default();
        text.push('\n');
    }
    text
}
