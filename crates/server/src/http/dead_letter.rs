//! Dead letters: messages that could not be delivered or handled, and what people do about them.

use super::body::List;
use super::cursor::Paging;
use super::message::MessageBody;
use super::poison::{AbandonRequest, AssignRequest, InvestigateRequest, NoteBody, NoteRequest};
use super::problem::Result;
use super::request::{Body, Id, Params};
use super::task::known;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::MessageId;
use windlass::domain::message::Reason;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::trouble::{self, Event, Status};
use windlass::store::dead_letter::{DeadLetter, Deed, Filter, ORDER, Redelivery};

/// A message that needs a person.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterBody {
    message_id: Uuid,
    from: String,
    to: String,
    #[serde(rename = "type")]
    kind: String,
    correlation_id: Option<String>,
    /// `unknown_agent`, `archived_agent`, `delivery_limit`, `rejected` or `invalid`.
    reason: &'static str,
    /// The reason in words.
    detail: String,
    /// How often it was handed out.
    deliveries: i32,
    /// The message as it was.
    original: Value,
    /// `pending`, `investigating`, `resolved` or `abandoned`.
    status: &'static str,
    assignee: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    entered_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    closed_at: Option<Timestamp>,
    /// The message that delivered it after all.
    resolved_by_message: Option<Uuid>,
}

impl From<DeadLetter> for DeadLetterBody {
    fn from(letter: DeadLetter) -> DeadLetterBody {
        DeadLetterBody {
            message_id: letter.message.0,
            from: letter.from,
            to: letter.to,
            kind: letter.kind,
            correlation_id: letter.correlation_id,
            reason: letter.reason.as_str(),
            detail: letter.detail,
            deliveries: letter.deliveries,
            original: letter.original,
            status: letter.status.as_str(),
            assignee: letter.assignee,
            entered_at: letter.entered_at,
            updated_at: letter.updated_at,
            closed_at: letter.closed_at,
            resolved_by_message: letter.resolved_by_message.map(|id| id.0),
        }
    }
}

/// A dead letter with what was done about it.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterEntry {
    #[serde(flatten)]
    entry: DeadLetterBody,
    /// Oldest first.
    notes: Vec<NoteBody>,
}

/// Which dead letters.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterParams {
    /// One or several with commas between; pending and investigating unless given.
    status: Option<String>,
    assignee: Option<String>,
    to: Option<String>,
    from: Option<String>,
    /// Such as `delivery_limit`.
    reason: Option<String>,
    /// `oldest` first unless `newest`; `asc` and `desc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List dead letters, oldest first.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "messages",
    operation_id = "list_dead_letters", params(DeadLetterParams),
    responses((status = 200, description = "A page", body = List<DeadLetterBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<DeadLetterParams>,
) -> Result<Json<List<DeadLetterBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let reasons = || Reason::ALL.iter().map(|reason| reason.as_str());
    let reason = params.reason.map(|name| known("/reason", &name, reasons())).transpose()?;
    let mut filter = Filter {
        assignee: params.assignee,
        to: params.to,
        from: params.from,
        reason,
        ..Filter::default()
    };
    if let Some(names) = &params.status {
        let states = || Status::ALL.iter().map(|status| status.as_str());
        let statuses = names.split(',').map(|name| known("/status", name.trim(), states()));
        filter.status = statuses.collect::<Result<_>>()?;
    }
    Ok(Json(paging.list(api.engine.dead_letters().page(filter, paging.part()).await?)))
}

/// Show a dead letter: the message as it was, and what was done about it.
#[utoipa::path(get, path = "/v1/dead-letters/{id}", tag = "messages",
    operation_id = "show_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")),
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn show(State(api): State<Api>, Id(id): Id<MessageId>) -> Result<Json<DeadLetterEntry>> {
    api.dead_letter(id).await.map(Json)
}

impl Api {
    async fn dead_letter(&self, id: MessageId) -> Result<DeadLetterEntry> {
        let found = self.engine.dead_letters().show(id).await?;
        let (entry, notes) = found.ok_or(Refusal::Unknown { what: "dead letter" })?;
        let notes = notes.into_iter().map(Into::into).collect();
        Ok(DeadLetterEntry { entry: entry.into(), notes })
    }

    async fn act_on_letter(&self, id: MessageId, deed: Deed) -> Result<Json<DeadLetterEntry>> {
        trouble::check(deed.assignee.as_deref(), deed.note.as_deref())?;
        self.engine.dead_letters().act(id, deed).await?;
        self.dead_letter(id).await.map(Json)
    }
}

/// Say whose a dead letter is.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/assign", tag = "messages",
    operation_id = "assign_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")), request_body = AssignRequest,
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn assign(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AssignRequest>,
) -> Result<Json<DeadLetterEntry>> {
    let deed = Deed::new(Event::Assign, caller.actor);
    let assignee = Some(request.assignee);
    api.act_on_letter(id, Deed { assignee, note: request.note, ..deed }).await
}

/// Take a dead letter up.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/investigate", tag = "messages",
    operation_id = "investigate_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")),
    request_body = InvestigateRequest,
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn investigate(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<InvestigateRequest>,
) -> Result<Json<DeadLetterEntry>> {
    let deed = Deed::new(Event::Investigate, caller.actor);
    api.act_on_letter(id, Deed { assignee: request.assignee, note: request.note, ..deed }).await
}

/// Append a note to a dead letter; also to one that is closed.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/note", tag = "messages",
    operation_id = "note_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")), request_body = NoteRequest,
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn note(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<NoteRequest>,
) -> Result<Json<DeadLetterEntry>> {
    let deed = Deed::new(Event::Note, caller.actor);
    api.act_on_letter(id, Deed { note: Some(request.note), ..deed }).await
}

/// Close a dead letter: done. What nobody took up is taken up on the way.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/resolve", tag = "messages",
    operation_id = "resolve_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")), request_body = AbandonRequest,
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn resolve(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AbandonRequest>,
) -> Result<Json<DeadLetterEntry>> {
    let deed = Deed::new(Event::Resolve, caller.actor);
    api.act_on_letter(id, Deed { note: request.note, ..deed }).await
}

/// Close a dead letter: nothing will be done. What nobody took up is taken up on the way.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/abandon", tag = "messages",
    operation_id = "abandon_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")), request_body = AbandonRequest,
    responses((status = 200, description = "The dead letter", body = DeadLetterEntry)))]
pub async fn abandon(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AbandonRequest>,
) -> Result<Json<DeadLetterEntry>> {
    let deed = Deed::new(Event::Abandon, caller.actor);
    api.act_on_letter(id, Deed { note: request.note, ..deed }).await
}

/// To whom a dead letter is delivered again.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RedeliverRequest {
    /// Another agent than before.
    to: Option<String>,
    /// What there is to say.
    note: Option<String>,
}

/// Deliver a dead letter again, as a new message, and close it.
#[utoipa::path(post, path = "/v1/dead-letters/{id}/redeliver", tag = "messages",
    operation_id = "redeliver_dead_letter",
    params(("id" = Uuid, Path, description = "The message's id")), request_body = RedeliverRequest,
    responses((status = 200, description = "The new message", body = MessageBody)))]
pub async fn redeliver(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<RedeliverRequest>,
) -> Result<Json<MessageBody>> {
    let deed = Deed { note: request.note, ..Deed::new(Event::Resolve, caller.actor) };
    trouble::check(None, deed.note.as_deref())?;
    let new = MessageId(Uuid::now_v7());
    let redelivery = Redelivery { message: id, new, to: request.to, deed };
    Ok(Json(api.engine.redeliver(redelivery).await?.into()))
}
