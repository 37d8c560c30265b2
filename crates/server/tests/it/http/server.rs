//! A running `windlass serve` with a database of its own, and a client that speaks to it.

use super::cluster::TestDatabase;
use super::sse::Events;
use super::template;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// Where a server keeps its tasks.
#[derive(Clone)]
pub enum Place {
    Sqlite(Arc<TempDir>),
    Postgres(Arc<TestDatabase>),
    Elsewhere(String),
}

impl Place {
    /// With the schema, as [`Place::postgres`] is: the tests of `migrate` see to empty places.
    pub fn sqlite() -> Place {
        let folder = tempfile::tempdir().unwrap();
        template::sqlite(&folder.path().join("w.db"));
        Place::Sqlite(Arc::new(folder))
    }

    pub fn postgres() -> Place {
        Place::Postgres(Arc::new(template::postgres()))
    }

    pub fn url(&self) -> String {
        match self {
            Place::Sqlite(folder) => format!("sqlite:{}", folder.path().join("w.db").display()),
            Place::Postgres(database) => database.url(),
            Place::Elsewhere(url) => url.clone(),
        }
    }
}

/// The process; it ends with this value.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    pub place: Place,
    client: Client,
    log: Arc<Mutex<Vec<String>>>,
}

/// An answer, taken apart.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// Null if there is no body, or none of JSON.
    pub body: Json,
    pub text: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The answer's body, which must have come with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Json {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// A problem with this status and code.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Json {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.body["status"], status);
        for field in ["type", "title", "detail", "request_id"] {
            assert!(self.body[field].as_str().is_some_and(|t| !t.is_empty()), "{field}: {self:?}");
        }
        self.body
    }
}

impl Server {
    pub async fn on_sqlite() -> Server {
        Server::start(Place::sqlite(), &[]).await
    }

    pub async fn on_postgres() -> Server {
        Server::start(Place::postgres(), &[]).await
    }

    /// Starts a server on a free port, with these settings in its environment.
    pub async fn start(place: Place, settings: &[(&str, &str)]) -> Server {
        Server::start_on(place, "127.0.0.1:0", settings).await
    }

    /// Starts a server on an address.
    pub async fn start_on(place: Place, listen: &str, settings: &[(&str, &str)]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["serve", "--listen", listen, "--database", &place.url()]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command.envs(settings.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (found, address) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().expect("standard error is piped")).lines();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let entry: Json = serde_json::from_str(&line).unwrap_or_default();
                if entry["message"] == "windlass is listening" {
                    let text = entry["address"].as_str().unwrap_or_default();
                    let _ = found.send(text.parse());
                }
                kept.lock().unwrap().push(line);
            }
        });
        let waited = address.recv_timeout(Duration::from_secs(60));
        let waited = waited.unwrap_or_else(|_| panic!("no server: {:#?}", log.lock().unwrap()));
        let address = waited.expect("an address");
        let _ = rustls::crypto::ring::default_provider().install_default();
        Server { child, address, place, client: Client::new(), log }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request to be completed by hand.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        read(request.send().await.expect("an answer")).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Json) -> Reply {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Opens a stream of server-sent events.
    pub async fn events(&self, path: &str) -> Events {
        Events::of(self.request(Method::GET, path)).await
    }

    /// Submits a task and gives its id.
    pub async fn submit(&self, queue: &str) -> String {
        let task = self.post("/v1/tasks", json!({ "queue": queue, "payload": {} })).await;
        text(&task.expect(201)["id"])
    }

    /// Registers a worker and gives the session's id.
    pub async fn worker(&self, queue: &str, slots: i64) -> String {
        let body = json!({ "name": "w", "queues": [queue], "slots": slots });
        text(&self.post("/v1/sessions", body).await.expect(201)["id"])
    }

    /// Claims one task: its id and its lease.
    pub async fn claim(&self, session: &str) -> (String, String) {
        let path = format!("/v1/sessions/{session}/claim");
        let answer = self.post(&path, json!({ "max": 1, "wait_ms": 10_000 })).await.expect(200);
        let taken = &answer["assignments"][0];
        (text(&taken["task"]["id"]), text(&taken["lease_id"]))
    }

    /// The task as it stands.
    pub async fn task(&self, id: &str) -> Json {
        self.get(&format!("/v1/tasks/{id}")).await.expect(200)
    }

    /// The events in a task's history, oldest first.
    pub async fn history(&self, id: &str) -> Vec<String> {
        let page = self.get(&format!("/v1/tasks/{id}/history")).await.expect(200);
        page["items"].as_array().unwrap().iter().map(|entry| text(&entry["event"])).collect()
    }

    /// How many tasks and sessions there are: unchanged by whatever is refused.
    pub async fn written(&self) -> (usize, usize) {
        let count = |page: Json| page["items"].as_array().unwrap().len();
        let tasks = self.get("/v1/tasks?limit=1000").await.expect(200);
        let sessions = self.get("/v1/sessions?limit=1000&all=true").await.expect(200);
        (count(tasks), count(sessions))
    }

    /// The log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Asks the process to end.
    pub fn tell_to_end(&self) {
        let line = format!("kill -TERM {}", self.child.id());
        let told = Command::new("sh").arg("-c").arg(line).status();
        assert!(told.is_ok_and(|status| status.success()));
    }

    /// How the process has ended, if it has.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks the process to end, and waits until it has.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        self.tell_to_end();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for line in self.log.lock().unwrap().iter().rev().take(30).rev() {
                eprintln!("{line}");
            }
        }
    }
}

pub async fn read(response: reqwest::Response) -> Reply {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.expect("a complete answer");
    let body = serde_json::from_str(&text).unwrap_or_default();
    Reply { status, headers, body, text }
}

/// A string in an answer.
#[track_caller]
pub fn text(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string")).to_owned()
}

/// The values of one field of a list's items.
#[track_caller]
pub fn column(list: &Json, field: &str) -> Vec<Json> {
    list.as_array().expect("a list").iter().map(|item| item[field].clone()).collect()
}

/// Looks again until it holds; half a minute is for ever.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "this did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
