//! A small server that speaks OpenAI's API. What it does is said by the words of its caller.

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use serde_json::{Value as Json_, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The only model that it has.
pub const MODEL: &str = "tiny";
/// How far it counts when it is told to.
pub const COUNTED: usize = 200;
/// Its key.
pub const KEY: &str = "upstream-key";

#[derive(Default)]
struct Inner {
    asked: Mutex<Vec<(String, Json_)>>,
    /// The bodies of chats as they came.
    texts: Mutex<Vec<String>>,
    is_ill: AtomicBool,
    has_responses: AtomicBool,
    /// How often each word was heard that is obeyed once.
    heard: AtomicUsize,
    checks: AtomicUsize,
}

/// The upstream; it ends with the test.
#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    /// Where its API is, as its users are told.
    prefix: &'static str,
    inner: Arc<Inner>,
    /// Calls that say `hold` wait for one of these.
    pub released: Arc<Semaphore>,
}

impl Upstream {
    pub async fn start() -> Upstream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let released = Arc::new(Semaphore::new(0));
        let upstream = Upstream { address, prefix: "/v1", inner: Arc::default(), released };
        let routes = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/embeddings", post(embeddings))
            .route("/v1/responses", post(responses))
            .with_state(upstream.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        upstream
    }

    /// The same by another address.
    pub fn at(&self, address: SocketAddr) -> Upstream {
        Upstream { address, ..self.clone() }
    }

    /// The same by a URL at which its API is not.
    pub fn misplaced(&self) -> Upstream {
        Upstream { prefix: "", ..self.clone() }
    }

    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.prefix)
    }

    /// From now on it has `/responses`, too.
    pub fn speak_responses(&self) {
        self.inner.has_responses.store(true, Ordering::SeqCst);
    }

    /// Whether it answers health checks with an error.
    pub fn fall_ill(&self, is_ill: bool) {
        self.inner.is_ill.store(is_ill, Ordering::SeqCst);
    }

    /// How often its health was asked for.
    pub fn checks(&self) -> usize {
        self.inner.checks.load(Ordering::SeqCst)
    }

    /// The bodies that came for an address.
    pub fn asked(&self, path: &str) -> Vec<Json_> {
        let asked = self.inner.asked.lock().unwrap();
        asked.iter().filter(|(at, _)| at == path).map(|(_, body)| body.clone()).collect()
    }

    /// The bodies of chats as they came, byte by byte.
    pub fn texts(&self) -> Vec<String> {
        self.inner.texts.lock().unwrap().clone()
    }

    fn note(&self, path: &str, body: &Json_) {
        self.inner.asked.lock().unwrap().push((path.into(), body.clone()));
    }

    /// Words that are obeyed once were heard already.
    pub fn hear(&self) {
        self.inner.heard.fetch_add(1, Ordering::SeqCst);
    }

    /// True once.
    fn is_first(&self) -> bool {
        self.inner.heard.fetch_add(1, Ordering::SeqCst) == 0
    }
}

async fn models(State(upstream): State<Upstream>) -> Response {
    upstream.inner.checks.fetch_add(1, Ordering::SeqCst);
    if upstream.inner.is_ill.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "loading").into_response();
    }
    Json(json!({ "object": "list", "data": [{ "id": MODEL, "object": "model" }] })).into_response()
}

fn refused(status: u16, message: &str, code: &str) -> Response {
    let kind = "invalid_request_error";
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    let status = StatusCode::from_u16(status).unwrap();
    (status, Json(json!({ "error": error }))).into_response()
}

fn busy() -> Response {
    let mut response = refused(429, "slow down", "rate_limit_exceeded");
    response.headers_mut().insert(header::RETRY_AFTER, "0".parse().unwrap());
    response
}

/// What the caller says last.
fn words(body: &Json_) -> String {
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    last.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

async fn chat(State(upstream): State<Upstream>, headers: HeaderMap, text: String) -> Response {
    let body: Json_ = serde_json::from_str(&text).unwrap();
    upstream.note("chat", &body);
    upstream.inner.texts.lock().unwrap().push(text);
    if headers.get(header::AUTHORIZATION).is_some_and(|key| key != &format!("Bearer {KEY}")) {
        return refused(401, "wrong key", "invalid_api_key");
    }
    if body["model"] != MODEL {
        return refused(404, "no such model here", "model_not_found");
    }
    let words = words(&body);
    match words.as_str() {
        "too long" => return refused(400, "too many tokens", "context_length_exceeded"),
        "busy once" if upstream.is_first() => return busy(),
        "always busy" => return busy(),
        "denied" => return refused(403, "the key sk-secret may not", "invalid_api_key"),
        "large" => return Json(json!({ "text": "x".repeat(10 << 20) })).into_response(),
        "nul refused" => return refused(422, "what is \0?", "odd"),
        "deep refused" => return deep(),
        "huge" => return Json(json!({ "text": "x".repeat(17 << 20) })).into_response(),
        "half" | "half and silence" => return half(words == "half").await,
        "never" => std::future::pending::<()>().await,
        "hold" => upstream.released.acquire().await.unwrap().forget(),
        _ => {}
    }
    if body["stream"] != true {
        let usage = json!({ "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 });
        let mut answer = json!({
            "id": "chatcmpl-upstream", "object": "chat.completion", "created": 1_700_000_000,
            "model": MODEL, "usage": usage,
            "choices": [{ "index": 0, "message": message(&words), "finish_reason": end(&words) }],
        });
        answer["seed_was"] = body["seed"].clone();
        return Json(answer).into_response();
    }
    let with_usage = body["stream_options"]["include_usage"] == true;
    let mut events: Vec<std::io::Result<Bytes>> =
        chunks(&words, with_usage).iter().map(|chunk| Ok(event(chunk))).collect();
    let broken = || Err(std::io::Error::other("the power is gone"));
    let is_stalled = words == "stall" || words == "stall once" && upstream.is_first();
    match words.as_str() {
        "break" => {
            events.truncate(2);
            events.push(broken());
        }
        _ if is_stalled => events.truncate(2),
        "break at first" if upstream.is_first() => events = vec![broken()],
        _ => events.push(Ok(Bytes::from("data: [DONE]\n\n"))),
    }
    let is_broken = events.last().is_some_and(Result::is_err);
    // What is passed on must be read before the connection breaks, or it would be lost with it.
    let events = futures_util::stream::unfold(events.into_iter(), move |mut events| async move {
        let Some(event) = events.next() else {
            if is_stalled {
                std::future::pending::<()>().await;
            }
            return None;
        };
        if is_broken && event.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        Some((event, events))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(events)).into_response()
}

/// An error that no server of ours takes: it is nested too deep.
fn deep() -> Response {
    let inner = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let error = json!({ "message": "too deep", "inner": inner });
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response()
}

/// The first bytes of an answer; then it breaks, or falls silent.
async fn half(is_broken: bool) -> Response {
    let begin = Ok(Bytes::from("{\"id\":"));
    let rest = futures_util::stream::once(async move {
        if !is_broken {
            std::future::pending::<()>().await;
        }
        // The beginning must be on its way first, or the whole answer would be lost.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        Err(std::io::Error::other("the power is gone"))
    });
    let body = futures_util::stream::iter([begin]).chain(rest);
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

fn event(value: &Json_) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

fn call() -> Json_ {
    let function = json!({ "name": "weather", "arguments": "{\"city\":\"Rome\"}" });
    json!({ "id": "call_1", "type": "function", "function": function })
}

fn message(words: &str) -> Json_ {
    match words {
        "use a tool" => json!({ "role": "assistant", "content": null, "tool_calls": [call()] }),
        "nul" => json!({ "role": "assistant", "content": "a\0b" }),
        words => json!({ "role": "assistant", "content": format!("You said {words}.") }),
    }
}

fn end(words: &str) -> &'static str {
    if words == "use a tool" { "tool_calls" } else { "stop" }
}

fn chunks(words: &str, with_usage: bool) -> Vec<Json_> {
    let chunk = |delta: Json_, end: Option<&str>| {
        json!({
            "id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": MODEL, "choices": [{ "index": 0, "delta": delta, "finish_reason": end }],
        })
    };
    let mut chunks = vec![chunk(json!({ "role": "assistant", "content": "" }), None)];
    if words == "use a tool" {
        let mut begin = call();
        begin["index"] = json!(0);
        begin["function"]["arguments"] = json!("");
        chunks.push(chunk(json!({ "tool_calls": [begin] }), None));
        for part in ["{\"city\":", "\"Rome\"}"] {
            let more = json!({ "index": 0, "function": { "arguments": part } });
            chunks.push(chunk(json!({ "tool_calls": [more] }), None));
        }
    } else if words == "nul" {
        chunks.push(chunk(json!({ "content": "a\0b" }), None));
    } else if words == "count" {
        let numbers = (0..COUNTED).map(|n| chunk(json!({ "content": format!("{n} ") }), None));
        chunks.extend(numbers);
    } else {
        for part in ["You said ", words, "."] {
            chunks.push(chunk(json!({ "content": part }), None));
        }
    }
    chunks.push(chunk(json!({}), Some(end(words))));
    if with_usage {
        let mut usage = chunk(json!({}), None);
        usage["choices"] = json!([]);
        usage["usage"] = json!({ "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 });
        chunks.push(usage);
    }
    chunks
}

async fn embeddings(State(upstream): State<Upstream>, Json(body): Json<Json_>) -> Response {
    upstream.note("embeddings", &body);
    let data = json!([{ "object": "embedding", "index": 0, "embedding": [0.25, -0.5] }]);
    let usage = json!({ "prompt_tokens": 2, "total_tokens": 2 });
    Json(json!({ "object": "list", "data": data, "model": MODEL, "usage": usage })).into_response()
}

async fn responses(State(upstream): State<Upstream>, Json(body): Json<Json_>) -> Response {
    if !upstream.inner.has_responses.load(Ordering::SeqCst) {
        return (StatusCode::NOT_FOUND, "404 page not found").into_response();
    }
    upstream.note("responses", &body);
    let words = body["input"].as_str().unwrap_or_default();
    let text = json!({
        "type": "output_text", "text": format!("You said {words}."), "annotations": [],
    });
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [text],
    });
    let mut response = json!({
        "id": "resp_upstream", "object": "response", "created_at": 1_700_000_000,
        "status": "completed", "model": MODEL, "output": [message], "parallel_tool_calls": true,
        "tool_choice": "auto", "tools": [], "native": true,
    });
    if body["stream"] != true {
        return Json(response).into_response();
    }
    let whole = response.clone();
    response["status"] = json!("in_progress");
    let events = [
        json!({ "type": "response.created", "sequence_number": 0, "response": response }),
        json!({ "type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1",
            "output_index": 0, "content_index": 0, "delta": format!("You said {words}.") }),
        json!({ "type": "response.completed", "sequence_number": 2, "response": whole }),
    ];
    let text: String = events
        .iter()
        .map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap()))
        .collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response()
}
