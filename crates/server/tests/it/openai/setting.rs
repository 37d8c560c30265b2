//! The processes of a test: a server, its provider, and what they talk to.

use super::upstream::{KEY, MODEL, Upstream};
use crate::http::server::{Place, Reply, Server, eventually};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// A running `windlass provider`; it ends with this value.
pub struct Provider {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// Starts one for a pool, with more arguments.
    pub fn start(server: &Server, upstream: &Upstream, pool: &str, more: &[&str]) -> Provider {
        Provider::run(server, upstream, pool, more, None)
    }

    /// Starts one for a pool of a server that wants a key.
    pub fn with_key(server: &Server, upstream: &Upstream, pool: &str, key: &str) -> Provider {
        Provider::run(server, upstream, pool, &[], Some(key))
    }

    fn run(
        server: &Server,
        upstream: &Upstream,
        pool: &str,
        more: &[&str],
        key: Option<&str>,
    ) -> Provider {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["provider", "--server", &server.url(""), "--pool", pool]);
        command.args(["--upstream", &upstream.url(), "--model", MODEL]);
        if !more.contains(&"--slots") {
            command.args(["--slots", "4"]);
        }
        command.args(["--health-interval", "200ms", "--log-format", "json"]);
        if !more.contains(&"--upstream-key-env") {
            command.args(["--upstream-key-env", "TEST_UPSTREAM_KEY"]);
        }
        command.args(more);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command.envs(key.map(|key| ("WINDLASS_KEY", key)));
        command.env("TEST_UPSTREAM_KEY", KEY).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("standard error is piped")).lines();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        Provider { child, log }
    }

    /// Whether its log has said this.
    pub fn has_said(&self, words: &str) -> bool {
        self.said(words) > 0
    }

    /// In how many lines.
    pub fn said(&self, words: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(words)).count()
    }

    /// Sends it Ctrl-C.
    pub fn interrupt(&self) {
        self.signal("INT");
    }

    /// It does nothing any more, and its connections stay open.
    pub fn hang(&self) {
        self.signal("STOP");
    }

    fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        let told = Command::new("sh").arg("-c").arg(line).status();
        assert!(told.is_ok_and(|status| status.success()));
    }

    /// Waits until it has ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            self.log.lock().unwrap().iter().for_each(|line| eprintln!("provider: {line}"));
        }
    }
}

/// A server with a pool `fast` and one provider, all well.
pub async fn fast(server: &Server) -> (Upstream, Provider) {
    fast_with(server, &[]).await
}

/// The same, with more arguments of the provider.
pub async fn fast_with(server: &Server, more: &[&str]) -> (Upstream, Provider) {
    let upstream = Upstream::start().await;
    let provider = Provider::start(server, &upstream, "fast", more);
    is_bound(server, "fast").await;
    (upstream, provider)
}

/// The same on SQLite, where the database does not matter.
pub async fn somewhere(more: &[&str]) -> (Server, Upstream, Provider) {
    let server = Server::start(Place::sqlite(), &[]).await;
    let (upstream, provider) = fast_with(&server, more).await;
    (server, upstream, provider)
}

/// Waits until a pool is known.
pub async fn is_bound(server: &Server, pool: &str) {
    eventually("the pool is bound", async || {
        server.get(&format!("/v1/models/{pool}")).await.status == 200
    })
    .await;
}

/// A chat of one message.
pub fn says(words: &str) -> Json {
    json!({ "model": "fast", "messages": [{ "role": "user", "content": words }] })
}

/// The same, streamed.
pub fn streams(words: &str) -> Json {
    let mut body = says(words);
    body["stream"] = json!(true);
    body
}

/// Asks for a chat completion.
pub async fn chat(server: &Server, body: Json) -> Reply {
    server.post("/v1/chat/completions", body).await
}

/// Binds a pool by a session of our own; gives its id.
pub async fn bind(server: &Server, pool: &str) -> String {
    let body = json!({ "name": "p", "pools": [pool], "kinds": ["inference"], "slots": 4 });
    crate::http::server::text(&server.post("/v1/sessions", body).await.expect(201)["id"])
}

/// A streamed request that has been sent.
pub async fn open(server: &Server, path: &str, body: Json) -> reqwest::Response {
    let sent = server.request(Method::POST, path).json(&body).send().await.expect("an answer");
    assert_eq!(sent.status(), 200);
    assert_eq!(sent.headers()["content-type"], "text/event-stream");
    sent
}

/// Checks the shape of an error; gives it.
#[track_caller]
pub fn told(reply: Reply, status: u16, code: &str) -> Json {
    assert_eq!(reply.status, status, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let error = reply.body["error"].as_object().expect("an error").clone();
    let names: Vec<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(names, ["code", "message", "param", "type"], "{error:?}");
    assert_eq!(error["code"], code, "{error:?}");
    Json::Object(error)
}
