//! A small server that keeps to the contract of the API, for facts about its clients.
//!
//! It exists because the facts need a server that misbehaves on demand: answers that are lost on
//! the way, sessions that are forgotten, refusals.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What the server knows, what it was asked, and how it misbehaves.
#[derive(Default)]
pub struct World {
    pub tasks: HashMap<String, Value>,
    pub history: Vec<Value>,
    pub pending: VecDeque<String>,
    /// Lease by task, as the server's books have it.
    pub held: HashMap<String, String>,
    claims: HashMap<String, Value>,
    pub requests: Vec<(Method, String, Value)>,
    pub headers: Vec<HeaderMap>,
    pub sessions: Vec<String>,
    pub finished: Vec<Value>,
    pub claimed: Vec<Value>,
    pub beats: Vec<Value>,
    pub cancelled: HashSet<String>,
    /// So many answers to claims are lost on the way.
    pub lose_claims: usize,
    /// So many calls are refused as busy.
    pub busy: usize,
    pub refuse_results: bool,
    pub key: Option<String>,
    pub problem: Option<(u16, Value)>,
    /// Connections of the event stream: each sends these and breaks.
    pub streams: VecDeque<String>,
    /// How often sessions have opened their streams.
    pub bound: usize,
    /// So many of these break as soon as they are open.
    pub break_bound: usize,
    pub refuse_bound: bool,
    /// What all of these are told, as it comes.
    pub told: Vec<String>,
}

pub struct Fake {
    pub url: String,
    pub world: Arc<Mutex<World>>,
    _runtime: tokio::runtime::Runtime,
}

impl Fake {
    pub fn start() -> Fake {
        Fake::start_at("127.0.0.1:0".parse().unwrap())
    }

    pub fn start_at(address: SocketAddr) -> Fake {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let world = Arc::new(Mutex::new(World::default()));
        let router = Router::new().fallback(answer).with_state(world.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Fake { url, world, _runtime: runtime }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Adds a task that can be claimed.
    pub fn submit(&self, more: Value) -> String {
        let mut world = self.world();
        let id = add(&mut world, &more);
        world.pending.push_back(id.clone());
        id
    }

    /// Adds a task in some state.
    pub fn put(&self, more: Value) -> String {
        add(&mut self.world(), &more)
    }

    /// Waits until something has happened; says what there is if it does not.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&World) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(&self.world()) {
                return found;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                let world = self.world();
                panic!("not seen: {what}; finished {:?}, beats {:?}", world.finished, world.beats);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of an attempt.
    #[track_caller]
    pub fn finished(&self, task_id: &str) -> Value {
        self.until("the end of the task", |world| {
            world.finished.iter().find(|item| item["task_id"] == task_id).cloned()
        })
    }
}

fn add(world: &mut World, more: &Value) -> String {
    let id = more["id"].as_str().map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
    let mut task = json!({
        "id": id, "kind": "job", "queue": "q", "name": null, "status": "pending", "payload": null,
        "result": null, "error": null, "checkpoint": null, "attempt": 0, "tags": {},
        "correlation_id": "corr-1", "created_at": "2026-01-31T12:00:00.000Z",
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        task[name] = value.clone();
    }
    world.tasks.insert(id.clone(), task);
    id
}

fn reply(status: u16, body: &Value) -> Response {
    let kind = if status >= 400 { "application/problem+json" } else { "application/json" };
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", kind)
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn problem(status: u16, code: &str, detail: &str) -> Response {
    let body = json!({ "type": "about:blank", "status": status, "code": code, "detail": detail });
    reply(status, &body)
}

/// An answer that breaks off: the work is done, and the client does not learn of it.
fn lost() -> Response {
    let broken = std::io::Error::other("cut");
    let stream = futures_util::stream::once(async { Err::<Bytes, _>(broken) });
    Response::new(Body::from_stream(stream))
}

async fn answer(
    State(world): State<Arc<Mutex<World>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    {
        let mut world = world.lock().unwrap();
        world.requests.push((method.clone(), uri.to_string(), body.clone()));
        world.headers.push(headers.clone());
        if world.busy > 0 {
            world.busy -= 1;
            return problem(503, "busy", "try again");
        }
        if let Some((status, body)) = &world.problem {
            return reply(*status, body);
        }
        let given = headers.get("authorization").and_then(|value| value.to_str().ok());
        let wanted = world.key.as_ref().map(|key| format!("Bearer {key}"));
        if wanted.is_some() && wanted.as_deref() != given {
            return problem(401, "unauthenticated", "the key is missing or wrong");
        }
    }
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["v1", "sessions"]) => register(&mut world.lock().unwrap(), &body),
        (_, ["v1", "sessions", id, ..])
            if !world.lock().unwrap().sessions.iter().any(|known| known == id) =>
        {
            problem(404, "not_found", "there is no such session")
        }
        ("POST", ["v1", "sessions", _, "claim"]) => claim(&world, &body).await,
        ("POST", ["v1", "sessions", _, "heartbeat"]) => beat(&mut world.lock().unwrap(), &body),
        ("POST", ["v1", "sessions", _, "finish"]) => finish(&mut world.lock().unwrap(), &body),
        ("GET", ["v1", "sessions", _, "stream"]) => session_stream(&world),
        ("DELETE", ["v1", "sessions", id]) => {
            let mut world = world.lock().unwrap();
            world.sessions.retain(|known| known != id);
            reply(200, &json!({ "id": id }))
        }
        ("POST", ["v1", "tasks"]) => submit(&mut world.lock().unwrap(), &body),
        ("GET", ["v1", "tasks"]) => {
            let world = world.lock().unwrap();
            let items: Vec<_> = world.tasks.values().cloned().collect();
            reply(200, &json!({ "items": items, "next_cursor": null }))
        }
        ("GET", ["v1", "tasks", id, rest @ ..]) => read(&world.lock().unwrap(), id, rest),
        ("POST", ["v1", "tasks", id, "cancel"]) => {
            let mut world = world.lock().unwrap();
            world.cancelled.insert((*id).to_owned());
            let task = world.tasks.get_mut(*id).unwrap();
            task["status"] = json!("cancelled");
            reply(200, task)
        }
        ("GET", ["v1", "events"]) => events(&mut world.lock().unwrap()),
        ("GET", ["healthz" | "readyz"]) => {
            Response::builder().header("content-type", "text/plain").body("ok\n".into()).unwrap()
        }
        ("GET", ["v1", "status"]) => {
            reply(200, &json!({ "version": "1", "tasks": { "failed": 3, "pending": 0 } }))
        }
        ("GET", ["v1", "nodes"]) => reply(200, &json!({ "items": [{}], "next_cursor": null })),
        _ => problem(404, "not_found", "there is no such route"),
    }
}

fn register(world: &mut World, body: &Value) -> Response {
    let id = body["id"].as_str().unwrap().to_owned();
    if !world.sessions.contains(&id) {
        world.sessions.push(id.clone());
    }
    let expires_at = "2026-01-31T12:00:15.000Z";
    // A short life makes a beat every 100 ms.
    reply(
        201,
        &json!({ "id": id, "expires_at": expires_at, "ttl_ms": 300, "slots": body["slots"] }),
    )
}

pub fn assign(world: &mut World, task_id: &str) -> Value {
    let lease_id = uuid::Uuid::now_v7().to_string();
    world.held.insert(task_id.to_owned(), lease_id.clone());
    let task = world.tasks.get_mut(task_id).unwrap();
    task["status"] = json!("running");
    task["attempt"] = json!(task["attempt"].as_i64().unwrap() + 1);
    json!({ "task": task, "lease_id": lease_id, "attempt": task["attempt"], "steps": [] })
}

async fn claim(world: &Mutex<World>, body: &Value) -> Response {
    let claim_id = body["claim_id"].as_str().unwrap().to_owned();
    world.lock().unwrap().claimed.push(body.clone());
    let until = Instant::now() + Duration::from_millis(body["wait_ms"].as_u64().unwrap_or(0));
    loop {
        {
            let mut world = world.lock().unwrap();
            if let Some(before) = world.claims.get(&claim_id) {
                return reply(200, before);
            }
            let max = usize::try_from(body["max"].as_u64().unwrap()).unwrap();
            if !world.pending.is_empty() || Instant::now() >= until {
                let count = world.pending.len().min(max);
                let ids: Vec<String> = world.pending.drain(..count).collect();
                let given: Vec<_> = ids.iter().map(|id| assign(&mut world, id)).collect();
                let answer = json!({ "assignments": given });
                world.claims.insert(claim_id, answer.clone());
                if world.lose_claims > 0 {
                    world.lose_claims -= 1;
                    return lost();
                }
                return reply(200, &answer);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn beat(world: &mut World, body: &Value) -> Response {
    world.beats.push(body["leases"].clone());
    let (mut renewed, mut cancelled, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut named = HashSet::new();
    for lease in body["leases"].as_array().unwrap() {
        let task_id = lease["task_id"].as_str().unwrap();
        named.insert(task_id.to_owned());
        let named_lease = json!({ "task_id": task_id, "lease_id": lease["lease_id"] });
        if world.cancelled.contains(task_id) {
            cancelled.push(named_lease);
            world.held.remove(task_id);
        } else if world.held.get(task_id).is_some_and(|held| lease["lease_id"] == *held) {
            renewed.push(named_lease);
        } else {
            lost.push(named_lease);
        }
    }
    let unnamed: Vec<_> = world
        .held
        .iter()
        .filter(|(id, _)| !named.contains(*id))
        .map(|(id, lease)| json!({ "task": world.tasks[id], "lease_id": lease, "attempt": 1 }))
        .collect();
    let answer =
        json!({ "renewed": renewed, "cancelled": cancelled, "lost": lost, "unnamed": unnamed });
    reply(200, &answer)
}

/// A stream that gives nothing out.
fn session_stream(shared: &Arc<Mutex<World>>) -> Response {
    let mut world = shared.lock().unwrap();
    if world.refuse_bound {
        return problem(404, "not_found", "there is no such route");
    }
    world.bound += 1;
    let is_broken = world.break_bound > 0;
    world.break_bound = world.break_bound.saturating_sub(1);
    let told = futures_util::stream::unfold(0, {
        let shared = Arc::clone(shared);
        move |at| {
            let shared = Arc::clone(&shared);
            async move {
                if is_broken {
                    return None;
                }
                loop {
                    if let Some(text) = shared.lock().unwrap().told.get(at) {
                        return Some((Ok::<_, std::io::Error>(Bytes::from(text.clone())), at + 1));
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(Body::from_stream(told)).unwrap()
}

fn finish(world: &mut World, body: &Value) -> Response {
    let mut results = Vec::new();
    for item in body["items"].as_array().unwrap() {
        let task_id = item["task_id"].as_str().unwrap().to_owned();
        if world.refuse_results && item["outcome"] == "complete" {
            let error = json!({ "code": "validation_failed", "detail": "/result is too long" });
            results.push(json!({ "task_id": task_id, "error": error }));
        } else if world.held.get(&task_id).is_some_and(|lease| item["lease_id"] == *lease) {
            world.held.remove(&task_id);
            world.finished.push(item.clone());
            results.push(json!({ "task_id": task_id, "status": "completed" }));
        } else {
            let error = json!({ "code": "lease_lost", "detail": "another has it" });
            results.push(json!({ "task_id": task_id, "error": error }));
        }
    }
    reply(200, &json!({ "results": results }))
}

fn submit(world: &mut World, body: &Value) -> Response {
    let known = body["id"].as_str().and_then(|id| world.tasks.get(id));
    if let Some(task) = known {
        let mut response = reply(200, task);
        response.headers_mut().insert("windlass-duplicate", "true".parse().unwrap());
        return response;
    }
    let id = add(world, body);
    reply(201, &world.tasks[&id])
}

fn read(world: &World, id: &str, rest: &[&str]) -> Response {
    let Some(task) = world.tasks.get(id) else {
        return problem(404, "not_found", "there is no such task");
    };
    match rest {
        ["history"] => reply(200, &json!({ "items": world.history, "next_cursor": null })),
        _ => reply(200, task),
    }
}

fn events(world: &mut World) -> Response {
    let text = world.streams.pop_front().unwrap_or_default();
    Response::builder().header("content-type", "text/event-stream").body(Body::from(text)).unwrap()
}
