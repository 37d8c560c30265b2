//! One client: sends a call to a node, writes down what became of it, and goes to another node
//! when this one does not answer.
//!
//! Invariant: `Failed` is only what certainly changed nothing. A broken connection, a timeout and
//! every 5xx are `Unknown`.

use crate::log::{Answer, Log, Operation, Outcome};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a call may take beyond what it asks the server to wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client of all nodes.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    nodes: Vec<String>,
    at: usize,
    name: String,
    log: Arc<Log>,
}

/// A request, before it is sent.
#[derive(Clone)]
pub struct Request {
    method: reqwest::Method,
    path: String,
    body: Option<Value>,
    wait: Duration,
}

impl Request {
    /// A GET.
    pub fn get(path: String) -> Request {
        Request { method: reqwest::Method::GET, path, body: None, wait: Duration::ZERO }
    }

    /// A POST.
    pub fn post(path: String, body: Value) -> Request {
        let method = reqwest::Method::POST;
        Request { method, path, body: Some(body), wait: Duration::ZERO }
    }

    /// The server is asked to wait for so long.
    pub fn waiting(mut self, wait: Duration) -> Request {
        self.wait = wait;
        self
    }
}

/// What came back.
pub enum Reply {
    /// 2xx: whether it was a repetition, and the body.
    Done(bool, Value),
    /// 4xx.
    Refused(u16, String),
    /// Anything else, or nothing.
    Unknown(String),
}

impl Client {
    /// A client that begins at one of the nodes.
    pub fn new(name: &str, nodes: Vec<String>, at: usize, log: Arc<Log>) -> Client {
        Client { http: http(), nodes, at, name: name.to_owned(), log }
    }

    /// The node that is asked next.
    pub fn node(&self) -> &str {
        &self.nodes[self.at % self.nodes.len()]
    }

    /// Sends, without writing it down; only for what no check looks at.
    pub async fn send(&mut self, request: &Request) -> Reply {
        let url = format!("{}{}", self.node(), request.path);
        let mut sent = self.http.request(request.method.clone(), url);
        sent = sent.timeout(PATIENCE + request.wait);
        if let Some(body) = &request.body {
            sent = sent.json(body);
        }
        let reply = reply(sent).await;
        if matches!(reply, Reply::Unknown(_)) {
            self.at += 1;
        }
        reply
    }

    /// Sends and writes it down. `read` makes the answer of a body, or says how an item of it was
    /// refused (status and code).
    pub async fn call(
        &mut self,
        operation: Operation,
        request: &Request,
        read: impl FnOnce(bool, &Value) -> Result<Answer, (u16, String)>,
    ) -> Outcome {
        let call = self.log.invoked(&self.name, self.node(), operation);
        let outcome = match self.send(request).await {
            Reply::Done(duplicate, body) => match read(duplicate, &body) {
                Ok(answer) => Outcome::Ok(answer),
                Err((status, code)) => refusal(status, code),
            },
            Reply::Refused(status, code) => Outcome::Failed { status, code },
            Reply::Unknown(why) => Outcome::Unknown { why },
        };
        self.log.returned(&self.name, call, outcome.clone());
        outcome
    }
}

fn refusal(status: u16, code: String) -> Outcome {
    if status >= 500 { Outcome::Unknown { why: code } } else { Outcome::Failed { status, code } }
}

async fn reply(sent: reqwest::RequestBuilder) -> Reply {
    let response = match sent.send().await {
        Ok(response) => response,
        Err(error) => return Reply::Unknown(causes(&error)),
    };
    let status = response.status();
    let duplicate = response.headers().get("windlass-duplicate").is_some_and(|v| v == "true");
    let text = match response.text().await {
        Ok(text) => text,
        Err(error) => return Reply::Unknown(causes(&error)),
    };
    let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let code = body["code"].as_str().unwrap_or_default().to_owned();
    if status.is_success() {
        Reply::Done(duplicate, body)
    } else if status.is_client_error() {
        Reply::Refused(status.as_u16(), code)
    } else {
        Reply::Unknown(format!("{status} {code}"))
    }
}

/// An error with all that is behind it: the outermost says only that something failed.
fn causes(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

/// One pool of connections for a process.
fn http() -> reqwest::Client {
    static HTTP: OnceLock<()> = OnceLock::new();
    HTTP.get_or_init(|| {
        // The nodes speak plain HTTP; the library wants to know all the same. Somebody who was
        // here before has chosen as well as we would.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(2));
    builder.build().expect("a client without special wishes")
}

/// Lets more wait in all than any load here brings; what may be active stays as it is in a fresh
/// installation.
pub async fn raise_limits(node: &str) {
    let global = &windlass::domain::limit::DEFAULT_RULES[0];
    let limits = serde_json::json!({ "max_active": global.max_active, "max_pending": 1_000_000 });
    let asked = http().put(format!("{node}/v1/limits/global")).json(&limits).send().await;
    let answered = asked.and_then(reqwest::Response::error_for_status);
    answered.expect("a node that is ready sets a limit");
}

/// Whether a node says that it can serve.
pub async fn is_ready(node: &str) -> bool {
    let asked = http().get(format!("{node}/readyz")).timeout(Duration::from_secs(2)).send().await;
    asked.is_ok_and(|response| response.status().is_success())
}
