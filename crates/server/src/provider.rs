//! `windlass provider`: the tasks of a pool, forwarded to a server that speaks OpenAI's API.
//!
//! Invariant: nobody is given half an answer as a whole one. A stream that breaks after something
//! was passed on fails its task; before that, the task goes back and another provider takes it.
//! Absent: rules of the queue. Sessions, leases and beats are those of `worker`.

pub mod assemble;
mod deltas;
mod forward;
mod health;
mod read;
mod stream;
pub mod translate;

use crate::client::Client;
use crate::worker::assignment::Assignment;
use crate::worker::child::Stop;
use crate::worker::outcome::Outcome;
use crate::worker::{Begun, Executor, Running};
use health::Health;
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::watch;

/// How long the upstream may take for what.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To take a connection.
    pub connect: Duration,
    /// To begin its answer.
    pub first_byte: Duration,
    /// Between two pieces of its answer.
    pub idle: Duration,
    /// For all of it, waiting for a busy upstream included.
    pub total: Duration,
    /// The longest pause that a busy upstream may ask for.
    pub retry_after: Duration,
}

/// What a provider forwards to.
pub struct Upstream {
    http: reqwest::Client,
    /// Without a slash at its end.
    base: String,
    key: Option<HeaderValue>,
    model: String,
    timeouts: Timeouts,
    health: Health,
    /// It has no `/responses`, as far as we know.
    is_chat_only: AtomicBool,
    /// The server whose tasks are forwarded.
    windlass: Client,
}

impl Upstream {
    /// An upstream; nothing is asked yet.
    pub fn new(
        windlass: Client,
        base: &str,
        key: Option<&str>,
        model: &str,
        timeouts: Timeouts,
    ) -> Result<Arc<Upstream>, String> {
        let url = reqwest::Url::parse(base).map_err(|error| format!("`{base}`: {error}"))?;
        if !["http", "https"].contains(&url.scheme()) || url.cannot_be_a_base() {
            return Err(format!(
                "`{base}` is no URL of a server, such as http://localhost:8000/v1"
            ));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err("give the key by --upstream-key-env, and the URL without it".into());
        }
        let key = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let mut key = key.map_err(|_| "the upstream's key has characters that no key has")?;
        key.iter_mut().for_each(|key| key.set_sensitive(true));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(timeouts.connect)
            // A redirect would carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let address = host.parse::<std::net::IpAddr>();
        if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
            builder = builder.no_proxy();
        }
        Ok(Arc::new(Upstream {
            http: builder.build().map_err(|error| cause(&error))?,
            base: base.trim_end_matches('/').to_owned(),
            key,
            model: model.to_owned(),
            timeouts,
            health: Health::new(),
            is_chat_only: AtomicBool::new(false),
            windlass,
        }))
    }

    /// Looks after the upstream's health until the provider ends.
    pub async fn watch_health(&self, every: Duration) {
        health::watch(self, every).await;
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}/{path}", self.base));
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, key.clone()),
            None => request,
        }
    }
}

impl Executor for Upstream {
    fn run<'a>(
        &'a self,
        assignment: &'a Assignment,
        mut stop: watch::Receiver<Option<Stop>>,
        _: Begun<'a>,
    ) -> Running<'a, Outcome> {
        Box::pin(async move {
            let stopped = async move {
                let why = stop.wait_for(Option::is_some).await.ok().and_then(|why| *why);
                match why {
                    Some(why) => why,
                    // The sender is gone with the lease.
                    None => Stop::Drop,
                }
            };
            tokio::select! {
                outcome = self.forward(assignment) => outcome,
                why = stopped => match why {
                    Stop::Drop => Outcome::Dropped,
                    Stop::Release => Outcome::Release,
                },
            }
        })
    }

    fn ready(&self) -> Running<'_, ()> {
        Box::pin(self.health.is(true))
    }

    fn unready(&self) -> Running<'_, ()> {
        Box::pin(self.health.is(false))
    }
}

/// The last cause of an error: what the operating system or TLS said.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".into();
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    windlass::domain::show::text(&last.to_string())
}
