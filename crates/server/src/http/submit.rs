//! Submitting: one task, or many at once.

use super::body::TaskBody;
use super::correlation::Correlation;
use super::problem::{Field, KeptOut, Problem, Result};
use super::request::{Body, Params, typed};
use super::task::answer;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::limit::Key;
use windlass::domain::refusal::Refusal;
use windlass::domain::request::SubmitRequest;
use windlass::domain::task::NewTask;
use windlass::domain::validate;
use windlass::store::error::Rejection;
use windlass::store::task::Submitted;

/// Says that what was asked for had been there before.
pub(super) const DUPLICATE: HeaderName = HeaderName::from_static("windlass-duplicate");
const PAYLOAD_DIFFERS: HeaderName = HeaderName::from_static("windlass-payload-differs");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_POINTER: &str = "/idempotency_key";

/// A new task. `queue` may be left out when `agent`, `callee` or `pool` says where it goes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
#[allow(dead_code)] // The document's view of `SubmitRequest`, compared with it by a test.
pub struct NewTaskBody {
    queue: Option<String>,
    payload: Option<serde_json::Value>,
    kind: Option<String>,
    mode: Option<String>,
    name: Option<String>,
    id: Option<Uuid>,
    idempotency_key: Option<String>,
    agent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    stage: Option<String>,
    owner: Option<String>,
    caller: Option<String>,
    callee: Option<String>,
    pool: Option<String>,
    llm: Option<String>,
    model: Option<String>,
    tier: Option<String>,
    priority: Option<i32>,
    tags: Option<std::collections::BTreeMap<String, String>>,
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<String>,
    delay_ms: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<String>,
    deadline_ms: Option<i64>,
    max_retries: Option<i32>,
    backoff: Option<super::body::BackoffBody>,
    parent_id: Option<Uuid>,
    correlation_id: Option<String>,
}

/// How a submit is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SubmitParams {
    /// Only says whether the task would be taken.
    #[serde(default)]
    dry_run: bool,
}

/// The answer to a dry run.
#[derive(Serialize, ToSchema)]
pub struct Admission {
    /// Whether the task would be taken now, or was taken before.
    admitted: bool,
    /// The task that was taken before, with this id or key.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_of: Option<Uuid>,
    /// Why it would not be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// A task that had been taken before, or the answer to a dry run.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // The document's view of an answer with status 200.
pub enum SubmitAnswer {
    /// The task.
    Task(Box<TaskBody>),
    /// The answer to a dry run.
    Admission(Admission),
}

/// The key of a submit, as a header.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // The document's view of a header that `take_key` reads.
pub struct KeyHeader {
    /// The same as the field `idempotency_key`.
    #[param(
        rename = "Idempotency-Key",
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]([ -~]*[!-~])?$"
    )]
    idempotency_key: Option<String>,
}

/// The key of a batch, as a header.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // The document's view of a header that `spread_key` reads.
pub struct BatchKeyHeader {
    /// For all tasks of the batch that have no key of their own: the task at place 17, counted from
    /// 0, gets this key with `/17` behind it.
    #[param(
        rename = "Idempotency-Key",
        min_length = 1,
        max_length = 251,
        pattern = "^[!-~]([ -~]*[!-~])?$"
    )]
    idempotency_key: Option<String>,
}

/// Submit a task.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks",
    operation_id = "submit_task", params(SubmitParams, KeyHeader),
    request_body = NewTaskBody,
    responses(
        (status = 201, description = "The task was taken", body = TaskBody),
        (status = 200, description = "It had been taken before, or it was a dry run",
            body = SubmitAnswer, headers(
                ("Windlass-Duplicate" = String,
                    description = "`true` when the task had been taken before"),
                ("Windlass-Payload-Differs" = String,
                    description = "`true` when a repeated delegation says something else; what \
                        is there stays")))))]
pub async fn submit(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    Body(mut request): Body<SubmitRequest>,
) -> Result<Response> {
    take_key(&mut request, &headers)?;
    api.engine.know_agents([&request].into_iter()).await?;
    let task = new_task(&api, &request, &caller)?;
    if params.dry_run {
        return Ok(Json(admission(&api, task).await?).into_response());
    }
    let outcome = api.engine.submit(vec![task]).await.pop();
    let submitted = outcome.ok_or_else(|| Problem::from(no_outcome()))?;
    let submitted = submitted.map_err(|rejection| refused(&api, rejection))?;
    let task = api.task(submitted.id).await?;
    let status = if submitted.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = answer(status, task);
    if submitted.duplicate {
        response.headers_mut().insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    if submitted.payload_differs {
        response.headers_mut().insert(PAYLOAD_DIFFERS, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Where a limit is reached, the caller is told when to come back: as the pace of the system has
/// it, and not in a second where nothing moves.
pub(super) fn refused(api: &Api, rejection: Rejection) -> Problem {
    let problem = Problem::from(rejection);
    let Some(KeptOut::Limit(limit)) = problem.kept_out.as_deref() else { return problem };
    if problem.retry_after_s.is_none() {
        return problem;
    }
    let key = Key { scope: limit.scope, name: limit.name.clone().unwrap_or_default() };
    let seconds = api.engine.come_back_after_ms(&key) / 1_000;
    problem.retry_after(u8::try_from(seconds).unwrap_or(u8::MAX))
}

/// What a limit or a pause says is the answer; that the database cannot be asked is none.
async fn admission(api: &Api, task: NewTask) -> Result<Admission> {
    match api.engine.admission(task).await {
        Ok(known) => {
            let duplicate_of = known.map(|known| known.id.0);
            Ok(Admission { admitted: true, duplicate_of, error: None })
        }
        Err(rejection @ Rejection::Refused(_)) => {
            let error = Some(refused(api, rejection).into());
            Ok(Admission { admitted: false, duplicate_of: None, error })
        }
        Err(Rejection::Failed(error)) => Err(error.into()),
    }
}

pub(super) fn no_outcome() -> windlass::store::error::Error {
    let detail = "an item got no outcome".into();
    windlass::store::error::Error::Internal { operation: "submit".into(), detail }
}

/// The header `Idempotency-Key`.
fn key(headers: &HeaderMap) -> Result<Option<&str>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let detail = "the header must be plain ASCII";
    let key = value.to_str();
    key.map(Some).map_err(|_| Problem::field(KEY_POINTER, "bad_character", detail))
}

/// The header of a batch is for all of its tasks: each gets a key from it by its place, unless it
/// has one of its own.
fn spread_key(requests: &mut [Result<SubmitRequest>], headers: &HeaderMap) -> Result<()> {
    let Some(key) = key(headers)? else { return Ok(()) };
    if key.is_empty() {
        return Err(Problem::field(KEY_POINTER, "required", "must not be empty"));
    }
    for (index, request) in requests.iter_mut().enumerate() {
        if let Ok(request) = request {
            request.idempotency_key.get_or_insert_with(|| format!("{key}/{index}"));
        }
    }
    Ok(())
}

/// The header is the same as the field; both must agree.
pub(super) fn take_key(request: &mut SubmitRequest, headers: &HeaderMap) -> Result<()> {
    let Some(key) = key(headers)? else { return Ok(()) };
    match &request.idempotency_key {
        Some(given) if given != key => {
            let detail = "differs from the header Idempotency-Key; give one of them";
            Err(Problem::field(KEY_POINTER, "conflict", detail))
        }
        _ => {
            request.idempotency_key = Some(key.to_owned());
            Ok(())
        }
    }
}

pub(super) fn new_task(
    api: &Api,
    request: &SubmitRequest,
    caller: &Caller,
) -> Result<NewTask, Refusal> {
    let id = request.id.unwrap_or_else(|| TaskId(Uuid::now_v7()));
    api.engine.new_task(request, id, &caller.principal, &caller.actor)
}

/// Many tasks at once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1,000.
    #[schema(value_type = Vec<NewTaskBody>)]
    tasks: Vec<serde_json::Value>,
    /// All or none, unless false.
    atomic: Option<bool>,
}

/// What became of one task of a batch.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct BatchResult {
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    /// It existed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// A repeated delegation says something else; what is there stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_differs: Option<bool>,
    /// Why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// Why one item was refused.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemError {
    /// What programs decide by.
    pub code: &'static str,
    /// The HTTP status that it would have alone.
    pub status: u16,
    /// What was wrong and what to do.
    pub detail: String,
    /// Everything that is wrong with its fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Field>,
    /// After how long it is worth another try; what a call alone tells as `Retry-After`. Left out
    /// where trying again does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<i64>,
    /// What kept it out, as `limit` or `drained`.
    #[serde(flatten)]
    #[schema(ignore)]
    pub kept_out: Option<Box<KeptOut>>,
}

impl From<Problem> for ItemError {
    fn from(problem: Problem) -> ItemError {
        let Problem { code, status, detail, errors, kept_out, retry_after_s, .. } = problem;
        let retry_after_ms = retry_after_s.map(|seconds| i64::from(seconds) * 1_000);
        ItemError { code, status, detail: detail.into(), errors, retry_after_ms, kept_out }
    }
}

/// The outcomes of a batch, in order.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchAnswer {
    results: Vec<BatchResult>,
}

impl From<Submitted> for BatchResult {
    fn from(submitted: Submitted) -> BatchResult {
        BatchResult {
            id: Some(submitted.id.0),
            status: Some(submitted.status.as_str()),
            duplicate: Some(submitted.duplicate),
            payload_differs: submitted.payload_differs.then_some(true),
            error: None,
        }
    }
}

impl From<Problem> for BatchResult {
    fn from(problem: Problem) -> BatchResult {
        BatchResult { error: Some(problem.into()), ..BatchResult::default() }
    }
}

/// A batch is always submitted: a dry run is of one task.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Submit many tasks.
#[utoipa::path(post, path = "/v1/tasks/batch", tag = "tasks",
    operation_id = "submit_tasks", params(BatchKeyHeader), request_body = BatchRequest,
    responses(
        (status = 201, description = "All were taken", body = BatchAnswer),
        (status = 200, description = "Each has its own outcome", body = BatchAnswer)))]
pub async fn submit_batch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(NoParams {}): Params<NoParams>,
    headers: HeaderMap,
    Body(batch): Body<BatchRequest>,
) -> Result<Response> {
    validate::batch("/tasks", batch.tasks.len(), 0)?;
    let mut requests: Vec<Result<SubmitRequest>> = batch.tasks.into_iter().map(typed).collect();
    spread_key(&mut requests, &headers)?;
    api.engine.know_agents(requests.iter().flatten()).await?;
    let tasks = requests.into_iter().enumerate().map(|(index, request)| {
        let prefix = format!("/tasks/{index}");
        let task = request.and_then(|request| Ok(new_task(&api, &request, &caller)?));
        task.map_err(|problem| problem.within(&prefix))
    });
    let tasks = tasks.collect::<Vec<Result<NewTask>>>();
    let taken = tasks.iter().filter_map(|task| task.as_ref().ok());
    let taken = taken.map(|task| (task.id, task.correlation_id.as_deref()));
    let correlation = Correlation::of_tasks(taken);
    let response = match batch.atomic.unwrap_or(true) {
        true => submit_atomic(&api, tasks).await?,
        false => submit_each(&api, tasks).await,
    };
    Ok(Correlation::upon(correlation, response))
}

async fn submit_each(api: &Api, tasks: Vec<Result<NewTask>>) -> Response {
    let mut results: Vec<Option<BatchResult>> = Vec::new();
    let mut good = Vec::new();
    for task in tasks {
        match task {
            Ok(task) => {
                good.push(task);
                results.push(None);
            }
            Err(problem) => results.push(Some(problem.into())),
        }
    }
    let mut outcomes = api.engine.submit(good).await.into_iter();
    let mut outcome = || match outcomes.next() {
        Some(Ok(submitted)) => submitted.into(),
        Some(Err(rejection)) => refused(api, rejection).into(),
        None => Problem::from(no_outcome()).into(),
    };
    let results = results.into_iter().map(|known| known.unwrap_or_else(&mut outcome)).collect();
    (StatusCode::OK, Json(BatchAnswer { results })).into_response()
}

async fn submit_atomic(api: &Api, tasks: Vec<Result<NewTask>>) -> Result<Response> {
    let mut wrong = tasks.iter().filter_map(|task| task.as_ref().err());
    if let Some(first) = wrong.next() {
        // All that is wrong, at once.
        return Err(first.clone().and(wrong));
    }
    let tasks: Vec<NewTask> = tasks.into_iter().filter_map(Result::ok).collect();
    match api.engine.submit_atomic(tasks).await {
        Ok(submitted) => {
            let results = submitted.into_iter().map(Into::into).collect();
            Ok((StatusCode::CREATED, Json(BatchAnswer { results })).into_response())
        }
        Err((index, rejection)) => {
            let mut problem = refused(api, rejection);
            if problem.status < 500 || problem.kept_out.is_some() {
                let (code, detail) = (problem.code.to_owned(), problem.detail.to_string());
                let pointer = format!("/tasks/{index}");
                problem.errors = vec![Field { pointer, code, detail }];
            }
            Err(problem)
        }
    }
}
