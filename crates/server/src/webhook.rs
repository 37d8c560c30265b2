//! Webhooks: notices as signed JSON, to the addresses that the server's settings name.
//!
//! Invariant: a request goes to a public address that was checked right before (`guard`), or to a
//! host that the settings allow by name; never through a proxy or along a redirect. Its time and
//! the answer that is read are bounded.
//! Absent: retries. The engine's duty makes them, and keeps what became of each.

mod guard;
mod sign;

use crate::config::{Config, Secret};
use guard::Guard;
use reqwest::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use reqwest::{Client, Url};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use windlass::domain::show;
use windlass::engine::{Deliver, Delivery, Parcel};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const TOTAL_LIMIT: Duration = Duration::from_secs(15);
/// How much of an answer is looked at: enough to say what a receiver did not like.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// How much of it stands in the notice's error.
const MAX_SHOWN_CHARS: usize = 200;

struct Receiver {
    name: String,
    url: Url,
}

/// The webhooks of a server.
pub struct Webhooks {
    receivers: Vec<Receiver>,
    secrets: Vec<Secret>,
    guard: Guard,
    http: Client,
}

impl Webhooks {
    /// Those that the settings name, if they name any.
    pub fn new(config: &Config) -> Result<Option<Webhooks>, String> {
        if config.webhook_url.is_empty() {
            return Ok(None);
        }
        let Some(secret) = &config.webhook_secret else {
            return Err("webhook_url is set, and webhook_secret is not: without a signature \
                        receivers cannot know who calls. Set WINDLASS_WEBHOOK_SECRET"
                .into());
        };
        let secrets = [Some(secret), config.webhook_secret_before.as_ref()];
        let guard = Guard::new(&config.webhook_allow);
        let mut receivers = Vec::new();
        for text in &config.webhook_url {
            let url = Url::parse(text).map_err(|error| format!("a webhook is no URL: {error}"))?;
            // A name is checked when it is resolved; an address can be checked now.
            guard.check_literal(&url).map_err(|why| {
                format!("webhook_url: {}: {why}; allow the host by webhook_allow", name(&url))
            })?;
            receivers.push(Receiver { name: name(&url), url });
        }
        let http = client(&guard)?;
        let secrets = secrets.into_iter().flatten().cloned().collect();
        Ok(Some(Webhooks { receivers, secrets, guard, http }))
    }

    async fn post(&self, url: &Url, parcel: &Parcel) -> Result<(), String> {
        // Names are checked by the resolver; an address in the URL never meets it.
        self.guard.check_literal(url)?;
        // Whoever forwards it may show it to a person: the same JSON, but nothing in it hides or
        // turns what stands beside it.
        let body = show::json(&parcel.content.to_string());
        let seconds = parcel.at.as_ms() / 1_000;
        let signature = sign::signature(&self.secrets, seconds, body.as_bytes());
        let request = self
            .http
            .post(url.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .header("windlass-notice-id", parcel.id.to_string())
            .header("windlass-signature", signature)
            .body(body);
        let response = request.send().await.map_err(|error| cause(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        if status.is_redirection() {
            return Err(format!("it answered {status}; redirects are not followed"));
        }
        Err(format!("it answered {status}: {}", beginning(response).await))
    }
}

fn client(guard: &Guard) -> Result<Client, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        // A proxy would resolve the name by itself.
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .timeout(TOTAL_LIMIT)
        // Every delivery resolves and checks anew.
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(guard.clone()));
    builder.build().map_err(|error| format!("the client for webhooks: {}", cause(&error)))
}

/// What users may see of an address: its path and query may hold a secret. Two webhooks of one
/// host are told apart by a digest.
fn name(url: &Url) -> String {
    let digest = Sha256::digest(url.as_str().as_bytes());
    let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}#{short}", url.origin().ascii_serialization())
}

/// The beginning of what a receiver says, as one line.
async fn beginning(mut response: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::print::safe(&line).chars().take(MAX_SHOWN_CHARS).collect()
}

/// Why a request failed, down to the first cause; without the address, which may hold a secret.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".into();
    }
    let mut text = String::from("the request failed");
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

impl Deliver for Webhooks {
    fn receivers(&self) -> Vec<String> {
        self.receivers.iter().map(|receiver| receiver.name.clone()).collect()
    }

    fn deliver<'a>(&'a self, receiver: &'a str, parcel: &'a Parcel) -> Delivery<'a> {
        Box::pin(async move {
            let found = self.receivers.iter().find(|known| known.name == receiver);
            let found = found.ok_or("it is no longer configured")?;
            self.post(&found.url, parcel).await
        })
    }
}

#[cfg(test)]
mod tests;
