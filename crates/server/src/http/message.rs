//! Messages: send, list, show; and what handlers do with them: claim, ack, nack, heartbeat.

use super::body::List;
use super::correlation::Correlation;
use super::credential::Role;
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params};
use super::submit::DUPLICATE;
use super::task::known;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::{LeaseId, MessageId};
use windlass::domain::message::{SendRequest, Status};
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::engine::{MessageClaim, Returned};
use windlass::store::message::{Delivery, Filter, Message, ORDER, Whose};

/// What one agent tells another.
#[derive(Serialize, ToSchema)]
pub struct MessageBody {
    id: Uuid,
    from: String,
    to: String,
    #[serde(rename = "type")]
    kind: String,
    /// `pending`, `delivered`, `acknowledged`, `dead_lettered` or `expired`.
    status: &'static str,
    priority: i32,
    payload: Value,
    /// What it belongs to; its own id unless it was said.
    correlation_id: String,
    idempotency_key: Option<String>,
    /// Who asked for it to be sent.
    sent_by: String,
    /// The dead letter that it delivers again.
    redelivery_of: Option<Uuid>,
    /// How often it was handed out.
    deliveries: i32,
    /// Who has it, or had it last.
    handled_by: Option<String>,
    /// How the last delivery failed.
    last_error: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it may be handed out.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
    /// When it is no longer worth delivering.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    delivered_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    lease_expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

impl From<Message> for MessageBody {
    fn from(message: Message) -> MessageBody {
        MessageBody {
            id: message.id.0,
            from: message.from,
            to: message.to,
            kind: message.kind,
            status: message.status.as_str(),
            priority: message.priority,
            payload: message.payload,
            correlation_id: message.correlation_id,
            idempotency_key: message.idempotency_key,
            sent_by: message.sent_by,
            redelivery_of: message.redelivery_of.map(|id| id.0),
            deliveries: message.deliveries,
            handled_by: message.handled_by,
            last_error: message.last_error,
            created_at: message.created_at,
            due_at: message.due_at,
            expires_at: message.expires_at,
            delivered_at: message.delivered_at,
            lease_expires_at: message.lease_expires_at,
            finished_at: message.finished_at,
        }
    }
}

/// A message to be sent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessageBody {
    /// The caller's own id; the same send again is one message.
    id: Option<Uuid>,
    /// The agent that speaks. A person speaks in the own name, with an operator's key.
    from: Option<String>,
    /// The agent that it is for.
    to: String,
    /// What kind of message, in the sender's own words.
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    payload: Value,
    /// Higher first; 0 unless given.
    priority: Option<i32>,
    correlation_id: Option<String>,
    /// The same key by the same sender is the same message.
    idempotency_key: Option<String>,
    /// How long it is worth delivering; for ever unless given.
    ttl_ms: Option<i64>,
}

fn correlated(response: Response, correlation_id: &str) -> Response {
    Correlation::upon(Correlation::of([Some(correlation_id)]), response)
}

/// Send a message to an agent. Who may write to whom is a rule; a refusal is audited.
#[utoipa::path(post, path = "/v1/messages", tag = "messages",
    operation_id = "send_message", request_body = NewMessageBody,
    responses((status = 201, description = "The message", body = MessageBody),
        (status = 200, description = "It was sent before", body = MessageBody,
            headers(("Windlass-Duplicate" = String, description = "`true`")))))]
pub async fn send(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<NewMessageBody>,
) -> Result<Response> {
    if request.from.is_none() && caller.role == Role::Worker {
        let detail = "a worker's key speaks for an agent; name it";
        return Err(Problem::field("/from", "required", detail));
    }
    let request = SendRequest {
        id: request.id.map(MessageId),
        from: request.from,
        to: request.to,
        kind: request.kind,
        payload: request.payload,
        priority: request.priority,
        correlation_id: request.correlation_id,
        idempotency_key: request.idempotency_key,
        ttl_ms: request.ttl_ms,
    };
    let sent = api.engine.send_message(request, &caller.actor).await?;
    let status = if sent.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let correlation_id = sent.message.correlation_id.clone();
    let mut response = (status, Json(MessageBody::from(sent.message))).into_response();
    if sent.duplicate {
        response.headers_mut().insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    Ok(correlated(response, &correlation_id))
}

/// Which messages.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct MessageParams {
    to: Option<String>,
    from: Option<String>,
    status: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    correlation_id: Option<String>,
    /// Sent at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Sent before this time.
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

/// List messages, newest first.
#[utoipa::path(get, path = "/v1/messages", tag = "messages",
    operation_id = "list_messages", params(MessageParams),
    responses((status = 200, description = "A page", body = List<MessageBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<MessageParams>,
) -> Result<Json<List<MessageBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let states = || Status::ALL.iter().map(|status| status.as_str());
    let status = params.status.map(|name| known("/status", &name, states())).transpose()?;
    let filter = Filter {
        to: params.to,
        from: params.from,
        status,
        kind: params.kind,
        correlation_id: params.correlation_id,
        since: params.since,
        until: params.until,
    };
    Ok(Json(paging.list(api.engine.messages().page(filter, paging.part()).await?)))
}

/// Show a message.
#[utoipa::path(get, path = "/v1/messages/{id}", tag = "messages",
    operation_id = "show_message", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The message", body = MessageBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<MessageId>) -> Result<Json<MessageBody>> {
    let found = api.engine.messages().show(id).await?;
    Ok(Json(found.ok_or(Refusal::Unknown { what: "message" })?.into()))
}

/// Which messages a handler takes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageClaimBody {
    /// Who asks: what the messages show as their handler.
    handler: String,
    /// Those of all agents of a pool: `ceo_handler`, `vp_handler`, `crew_executor`, or a worker
    /// type of the registry.
    pool: Option<String>,
    /// Those of these agents.
    agents: Option<Vec<String>>,
    /// How many at most; 1 unless given.
    #[serde(default = "one")]
    max: i64,
    /// How long to wait for the first one; not at all unless given.
    #[serde(default)]
    wait_ms: i64,
    /// How long the handler may hold them; a minute unless given.
    lease_ms: Option<i64>,
}

fn one() -> i64 {
    1
}

/// A message in a handler's hands.
#[derive(Serialize, ToSchema)]
pub struct DeliveryBody {
    message: MessageBody,
    /// The right to end the delivery: shown here and nowhere else.
    lease_id: Uuid,
    #[schema(value_type = String, format = DateTime)]
    lease_expires_at: Timestamp,
}

impl From<Delivery> for DeliveryBody {
    fn from(delivery: Delivery) -> DeliveryBody {
        DeliveryBody {
            message: delivery.message.into(),
            lease_id: delivery.lease.0,
            lease_expires_at: delivery.lease_expires_at,
        }
    }
}

/// What a handler got.
#[derive(Serialize, ToSchema)]
pub struct MessageClaimAnswer {
    deliveries: Vec<DeliveryBody>,
}

/// Take messages, the most urgent first; waits for some if there are none.
#[utoipa::path(post, path = "/v1/messages/claim", tag = "messages",
    operation_id = "claim_messages", request_body = MessageClaimBody,
    responses((status = 200, description = "What was taken; perhaps nothing",
        body = MessageClaimAnswer)))]
pub async fn claim(
    State(api): State<Api>,
    Body(request): Body<MessageClaimBody>,
) -> Result<Response> {
    let whose = match (request.pool, request.agents) {
        (Some(pool), None) => Whose::Pool(pool),
        (None, Some(agents)) => Whose::Agents(agents),
        _ => return Err(Problem::field("/pool", "conflict", "name either a pool or agents")),
    };
    let mut errors = validate::Errors::default();
    errors.range("/wait_ms", request.wait_ms, 0, super::session::MAX_WAIT_MS);
    errors.into_result()?;
    let claim = MessageClaim {
        whose,
        handler: request.handler,
        max: request.max,
        lease_ms: request.lease_ms,
        wait: Duration::from_millis(request.wait_ms as u64),
    };
    let taken = api.engine.claim_messages(claim).await?;
    let ids = taken.iter().map(|delivery| Some(delivery.message.correlation_id.as_str()));
    let correlation = Correlation::of(ids);
    let deliveries = taken.into_iter().map(Into::into).collect();
    Ok(Correlation::upon(correlation, Json(MessageClaimAnswer { deliveries }).into_response()))
}

/// The right to a message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
}

/// Say that a message is handled. The same word again is answered like the first.
#[utoipa::path(post, path = "/v1/messages/{id}/ack", tag = "messages",
    operation_id = "ack_message", params(("id" = Uuid, Path)), request_body = AckRequest,
    responses((status = 200, description = "The message", body = MessageBody)))]
pub async fn ack(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Body(request): Body<AckRequest>,
) -> Result<Response> {
    let message = api.engine.acknowledge_message(id, request.lease_id).await?;
    let correlation_id = message.correlation_id.clone();
    Ok(correlated(Json(MessageBody::from(message)).into_response(), &correlation_id))
}

/// Why a handler gives a message back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NackRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    error: Option<NackError>,
    /// When to try again, instead of after the backoff.
    retry_after_ms: Option<i64>,
    /// Nobody can ever handle it: it becomes a dead letter at once.
    #[serde(default)]
    reject: bool,
}

/// How a delivery failed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NackError {
    /// A code as tasks fail with; one that is not retried makes it a dead letter.
    code: String,
    message: String,
}

/// Give a message back: it is tried again after a while, at most five times in all.
#[utoipa::path(post, path = "/v1/messages/{id}/nack", tag = "messages",
    operation_id = "nack_message", params(("id" = Uuid, Path)), request_body = NackRequest,
    responses((status = 200, description = "The message", body = MessageBody)))]
pub async fn nack(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Body(request): Body<NackRequest>,
) -> Result<Response> {
    let mut errors = validate::Errors::default();
    if let Some(error) = &request.error {
        errors.error_code("/error/code", &error.code);
        errors.text("/error/message", &error.message, windlass::domain::failure::MAX_MESSAGE_BYTES);
    }
    if let Some(ms) = request.retry_after_ms {
        errors.range("/retry_after_ms", ms, 0, validate::MAX_DELAY_MS);
    }
    errors.into_result()?;
    let (code, message) = request.error.map(|error| (error.code, error.message)).unzip();
    let (retry_after_ms, reject) = (request.retry_after_ms, request.reject);
    let returned = Returned { code, message, retry_after_ms, reject };
    let message = api.engine.return_message(id, request.lease_id, returned).await?;
    let correlation_id = message.correlation_id.clone();
    Ok(correlated(Json(MessageBody::from(message)).into_response(), &correlation_id))
}

/// A handler needs more time.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// From now on; a minute unless given.
    lease_ms: Option<i64>,
}

/// Until when a handler holds a message.
#[derive(Serialize, ToSchema)]
pub struct ExtendAnswer {
    #[schema(value_type = String, format = DateTime)]
    lease_expires_at: Timestamp,
}

/// Hold a message for longer.
#[utoipa::path(post, path = "/v1/messages/{id}/heartbeat", tag = "messages",
    operation_id = "extend_message", params(("id" = Uuid, Path)), request_body = ExtendRequest,
    responses((status = 200, description = "Until when", body = ExtendAnswer)))]
pub async fn heartbeat(
    State(api): State<Api>,
    Id(id): Id<MessageId>,
    Body(request): Body<ExtendRequest>,
) -> Result<Json<ExtendAnswer>> {
    let extended = api.engine.extend_message(id, request.lease_id, request.lease_ms).await?;
    Ok(Json(ExtendAnswer { lease_expires_at: extended }))
}
