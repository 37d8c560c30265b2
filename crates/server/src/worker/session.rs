//! The session of a worker: registered once, and again when the server has forgotten it.

use super::Shared;
use crate::client::{Call, Error, Patience};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The lease when the server says nothing: that of a job.
const DEFAULT_LEASE_MS: u64 = 60_000;
/// The session's life when the server says nothing.
const DEFAULT_TTL_MS: u64 = 15_000;

/// A session as the server gave it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// How many tasks it may hold: what was asked for, or less.
    pub slots: usize,
    /// How often it must be heard.
    pub beat: Duration,
}

/// The current session, if there is one.
#[derive(Default)]
pub struct Sessions {
    current: Mutex<Option<Session>>,
    /// Held while registering, so that two parts of the worker do not both register.
    registering: tokio::sync::Mutex<()>,
}

impl Sessions {
    /// The session, if one is registered.
    pub fn current(&self) -> Option<Session> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server does not know this session any more.
    pub fn forget(&self, id: &str) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|session| session.id == id) {
            tracing::warn!(session = id, "the server has forgotten the session; registering again");
            *current = None;
        }
    }

    /// The session; registers one if there is none, for as long as it takes.
    pub async fn get(&self, shared: &Arc<Shared>) -> Result<Session, Error> {
        let _registering = self.registering.lock().await;
        if let Some(session) = self.current() {
            return Ok(session);
        }
        let session = register(shared).await?;
        tracing::info!(session = session.id, queues = ?shared.options.queues, "registered");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        Ok(session)
    }
}

async fn register(shared: &Shared) -> Result<Session, Error> {
    let options = &shared.options;
    let mut body = json!({
        // Chosen here, so that a repeated registration makes one session.
        "id": uuid::Uuid::now_v7(),
        "name": options.name,
        "queues": options.queues,
        "slots": options.slots,
    });
    if !options.kinds.is_empty() {
        body["kinds"] = json!(options.kinds);
    }
    if let Some(lease_ms) = options.lease_ms {
        body["lease_ms"] = json!(lease_ms);
    }
    let call = Call::post("/v1/sessions", body.clone());
    let mut is_told = false;
    let answer = loop {
        // One round of patience at a time, so that an absent server is told of once.
        match shared.client.call(&call, Patience::SHORT).await {
            Ok(answer) => break answer.body,
            Err(error) if error.is_temporary() => {
                if !is_told {
                    tracing::warn!(%error, "no session yet; trying again until the server answers");
                    is_told = true;
                }
                let pause = Patience::ENDLESS.pause(4, error.retry_after());
                tokio::time::sleep(pause.unwrap_or(Duration::from_secs(1))).await;
            }
            Err(error) => return Err(error),
        }
    };
    let number = |name: &str| answer[name].as_u64();
    let lease_ms = number("lease_ms").or(options.lease_ms).unwrap_or(DEFAULT_LEASE_MS);
    let ttl_ms = number("ttl_ms").unwrap_or(DEFAULT_TTL_MS);
    let given = number("slots").and_then(|slots| usize::try_from(slots).ok());
    let id = answer["id"].as_str().or(body["id"].as_str()).unwrap_or_default().to_owned();
    Ok(Session {
        id,
        slots: given.unwrap_or(options.slots).clamp(1, options.slots),
        beat: Duration::from_millis((lease_ms.min(ttl_ms) / 3).max(100)),
    })
}

/// Whether a refusal means that the session is no more.
pub fn is_gone(error: &Error) -> bool {
    match error.status() {
        Some(404 | 410) => true,
        Some(409) => error.code().is_some_and(|code| code.starts_with("session_")),
        _ => false,
    }
}
