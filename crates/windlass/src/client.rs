//! The HTTP client of the API: one place that knows headers, retries and problems.
//!
//! Invariant: only calls that may be repeated are repeated. The caller says so by asking with
//! [`Patience`]; every call of ours can be, because ids are made before the first try.
//! Absent: the shape of tasks. Answers are JSON as they came, so that a newer server's fields
//! reach the user.

pub mod problem;
pub mod stream;

use problem::Problem;
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use serde_json::Value;
use std::time::Duration;
use windlass_domain::show;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// How long a call may take unless it says otherwise.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer to use.
#[derive(Clone, Debug)]
pub enum Error {
    /// Nobody answered.
    Unreachable {
        /// The server that was asked.
        server: String,
        /// What happened.
        cause: String,
        /// Whether not even a connection was made, so that nothing was asked.
        is_connect: bool,
    },
    /// The server refused, and said why.
    Problem(Box<Problem>),
    /// Somebody answered who is no Windlass server.
    Unexpected {
        /// The server that was asked.
        server: String,
        /// What was wrong with the answer.
        cause: String,
    },
}

impl Error {
    /// Whether the same call may succeed a little later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Problem(problem) => problem.is_temporary(),
            Error::Unexpected { .. } => false,
        }
    }

    /// The refusal's code, if it is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// The refusal's HTTP status, if it is one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Problem(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Problem(problem) => problem.retry_after,
            _ => None,
        }
    }
}

impl std::error::Error for Error {}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unreachable { server, cause, .. } => {
                write!(f, "the server at {server} cannot be reached: {cause}")
            }
            Error::Problem(problem) => write!(f, "{} [{}]", problem.detail, problem.code),
            Error::Unexpected { server, cause } => {
                write!(f, "what answers at {server} is no Windlass server: {cause}")
            }
        }
    }
}

/// How long a call is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How many tries in all; 0 means without end.
    pub tries: u32,
    /// The longest pause between two tries.
    pub longest: Duration,
}

impl Patience {
    /// One try.
    pub const NONE: Patience = Patience { tries: 1, longest: Duration::ZERO };
    /// For a person who waits: a hiccup is bridged, an absent server is told at once.
    pub const SHORT: Patience = Patience { tries: 4, longest: Duration::from_secs(1) };
    /// For a command that waits for something anyway: a restart of the server is bridged.
    pub const LONG: Patience = Patience { tries: 40, longest: Duration::from_secs(3) };
    /// For a worker: the server comes back some day.
    pub const ENDLESS: Patience = Patience { tries: 0, longest: Duration::from_secs(5) };

    /// The pause after the try of this number, counted from 1; none when it was the last one.
    pub fn pause(&self, tried: u32, asked: Option<Duration>) -> Option<Duration> {
        if self.tries != 0 && tried >= self.tries {
            return None;
        }
        let full = Duration::from_millis(100 << (tried - 1).min(10)).min(self.longest);
        // Half of it by chance, so that many clients of a restarted server do not come at once.
        let chance = uuid::Uuid::new_v4().as_u64_pair().0 % 1_000;
        let jittered = full / 2 + full * u32::try_from(chance).unwrap_or(0) / 2_000;
        Some(asked.map_or(jittered, |asked| asked.min(self.longest).max(jittered)))
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Option<Value>,
    timeout: Duration,
}

impl Call {
    /// Reads.
    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path.into())
    }

    /// Writes.
    pub fn post(path: impl Into<String>, body: Value) -> Call {
        Call { body: Some(body), ..Call::new(Method::POST, path.into()) }
    }

    /// Writes anew.
    pub fn put(path: impl Into<String>, body: Value) -> Call {
        Call { body: Some(body), ..Call::new(Method::PUT, path.into()) }
    }

    /// Changes what is given.
    pub fn patch(path: impl Into<String>, body: Value) -> Call {
        Call { body: Some(body), ..Call::new(Method::PATCH, path.into()) }
    }

    /// Removes.
    pub fn delete(path: impl Into<String>) -> Call {
        Call::new(Method::DELETE, path.into())
    }

    fn new(method: Method, path: String) -> Call {
        Call { method, path, query: Vec::new(), body: None, timeout: CALL_TIMEOUT }
    }

    /// Adds a parameter.
    pub fn query(mut self, name: &str, value: impl ToString) -> Call {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// Lets the server wait this long before it answers.
    pub fn patient(mut self, wait: Duration) -> Call {
        self.timeout = CALL_TIMEOUT + wait;
        self
    }
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null when there is none.
    pub body: Value,
}

impl Answer {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A connection to one server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    server: String,
    key: Option<HeaderValue>,
}

impl Client {
    /// A client of a server, with the key it asks for. Nothing is asked yet.
    pub fn new(server: &str, key: Option<&str>) -> Result<Client, Error> {
        let key = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let mut key = key.map_err(|_| Error::Unexpected {
            server: server.to_owned(),
            cause: "the key has characters that no key has".into(),
        })?;
        key.iter_mut().for_each(|key| key.set_sensitive(true));
        // Somebody else in this process may have chosen the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect would carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        if is_loopback(server) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| Error::Unreachable {
            server: server.to_owned(),
            cause: cause(&error),
            is_connect: true,
        })?;
        Ok(Client { http, server: server.trim_end_matches('/').to_owned(), key })
    }

    /// The server's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Calls until there is an answer, a lasting refusal, or patience ends.
    pub async fn call(&self, call: &Call, patience: Patience) -> Result<Answer, Error> {
        let mut tried = 0;
        loop {
            let error = match self.try_call(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tried += 1;
            let pause = patience.pause(tried, error.retry_after());
            match pause {
                Some(pause) if error.is_temporary() => {
                    tracing::debug!(path = call.path, %error, "calling again");
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// Calls once.
    pub async fn try_call(&self, call: &Call) -> Result<Answer, Error> {
        let request = self.request(call, call.timeout);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        self.read(response).await
    }

    fn request(&self, call: &Call, timeout: Duration) -> reqwest::RequestBuilder {
        let url = format!("{}{}", self.server, call.path);
        let mut request = self.http.request(call.method.clone(), url).timeout(timeout);
        if !call.query.is_empty() {
            request = request.query(&call.query);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        request
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Answer, Error> {
        let status = response.status();
        let headers = response.headers().clone();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(self.unexpected("the answer is larger than 256 MiB".into()));
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_redirection() {
            let target = headers.get(LOCATION).and_then(|value| value.to_str().ok());
            let target = show::text(target.unwrap_or("elsewhere"));
            return Err(self.unexpected(format!("it redirects to {target}; name that server")));
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let body = if bytes.is_empty() {
            Some(Value::Null)
        } else if kind.is_some_and(is_text) && status.is_success() {
            Some(Value::String(String::from_utf8_lossy(&bytes).trim().to_owned()))
        } else {
            serde_json::from_slice::<Value>(&bytes).ok()
        };
        if status.is_success() {
            let told = || format!("it answered {status} with something that is no JSON");
            return match body {
                Some(body) => Ok(Answer { headers, body }),
                None => Err(self.unexpected(told())),
            };
        }
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        match Problem::read(status.as_u16(), body.as_ref(), retry_after) {
            Some(problem) => Err(Error::Problem(Box::new(problem))),
            // A proxy in between: the server behind it may come back.
            None if [502, 503, 504].contains(&status.as_u16()) => Err(Error::Unreachable {
                server: self.server.clone(),
                cause: format!("a proxy answered {status}"),
                is_connect: true,
            }),
            None => {
                let text = String::from_utf8_lossy(&bytes);
                let text: String = show::text(text.trim()).chars().take(200).collect();
                Err(self.unexpected(format!("it answered {status}: {text}")))
            }
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        let cause = cause(error);
        let is_connect = error.is_connect();
        Error::Unreachable { server: self.server.clone(), cause, is_connect }
    }

    fn unexpected(&self, cause: String) -> Error {
        Error::Unexpected { server: self.server.clone(), cause }
    }
}

/// The last cause of an error: what the operating system or TLS said.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() && !error.is_connect() {
        return "it did not answer in time".into();
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    show::text(&last.to_string())
}

/// Plain text, and JSON in lines, which is no JSON as a whole.
fn is_text(kind: &str) -> bool {
    ["text/plain", "application/x-ndjson"].iter().any(|known| kind.starts_with(known))
}

fn is_loopback(server: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(server) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_address = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    host == "localhost" || is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_are_bounded_and_end() {
        let patience = Patience { tries: 4, longest: Duration::from_millis(300) };
        for (tried, at_least, at_most) in [(1, 50, 100), (2, 100, 200), (3, 150, 300)] {
            let pause = patience.pause(tried, None).unwrap().as_millis();
            assert!((at_least..=at_most).contains(&pause), "{tried}: {pause}");
        }
        assert_eq!(patience.pause(4, None), None);
        assert!(Patience::ENDLESS.pause(4_000_000, None).unwrap() <= Patience::ENDLESS.longest);
    }

    #[test]
    fn a_pause_that_the_server_asks_for_is_kept_within_bounds() {
        let asked = Some(Duration::from_secs(600));
        assert_eq!(Patience::SHORT.pause(1, asked), Some(Patience::SHORT.longest));
    }

    #[test]
    fn a_local_server_is_asked_without_a_proxy() {
        for server in ["http://127.0.0.1:1", "http://localhost", "http://[::1]:7070"] {
            assert!(is_loopback(server), "{server}");
        }
        assert!(!is_loopback("https://windlass.example"));
    }
}
