//! The session of a worker: registered once, and again when the server has forgotten it.

use super::Shared;
use crate::client::{Call, Error, Patience};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windlass::domain::profile::beat_every_ms;
use windlass::domain::time::Timestamp;

/// The lease when the server says nothing: that of a job.
const DEFAULT_LEASE_MS: i64 = 60_000;
/// The session's life when the server says nothing.
const DEFAULT_TTL_MS: i64 = 15_000;

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
    has_registered: AtomicBool,
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
        let (queues, pools) = (&shared.options.queues, &shared.options.pools);
        tracing::info!(session = session.id, ?queues, ?pools, "registered");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        self.has_registered.store(true, Ordering::Relaxed);
        Ok(session)
    }

    /// Whether the server has ever taken this worker.
    pub fn has_registered(&self) -> bool {
        self.has_registered.load(Ordering::Relaxed)
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
    let lists = [
        ("kinds", &options.kinds),
        ("pools", &options.pools),
        ("models", &options.models),
        ("llms", &options.llms),
        ("tiers", &options.tiers),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        body[name] = json!(list);
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
            Err(error) if !is_lasting(&error, shared.sessions.has_registered()) => {
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
    let number = |name: &str| answer[name].as_i64();
    let asked = options.lease_ms.and_then(|ms| i64::try_from(ms).ok());
    let lease_ms = number("lease_ms").or(asked).unwrap_or(DEFAULT_LEASE_MS);
    let ttl_ms = number("ttl_ms").or_else(|| life_ms(&answer)).unwrap_or(DEFAULT_TTL_MS);
    let given = number("slots").and_then(|slots| usize::try_from(slots).ok());
    let id = answer["id"].as_str().or(body["id"].as_str()).unwrap_or_default().to_owned();
    Ok(Session {
        id,
        slots: given.unwrap_or(options.slots).clamp(1, options.slots),
        beat: beat_every(lease_ms, ttl_ms),
    })
}

/// Half of what runs out first, but no flood of calls however short a lease is.
fn beat_every(lease_ms: i64, ttl_ms: i64) -> Duration {
    let ms = u64::try_from(beat_every_ms(lease_ms, ttl_ms)).unwrap_or(0);
    Duration::from_millis(ms.max(100))
}

/// How long a new session lives without a sign of life: both times are the server's.
fn life_ms(answer: &Value) -> Option<i64> {
    let time = |name: &str| answer[name].as_str()?.parse::<Timestamp>().ok();
    let life = time("expires_at")?.since_ms(time("created_at")?);
    Some(life).filter(|&life| life > 0)
}

/// Whether waiting will not help. What the server says about the request stays true; what it says
/// about itself passes. An answer of somebody else is a wrong URL at first, and a proxy's trouble
/// once the server has been there.
pub fn is_lasting(error: &Error, was_there: bool) -> bool {
    match (error, error.status()) {
        (_, Some(408 | 429)) => false,
        (_, Some(status)) => status < 500,
        (Error::Unexpected { .. }, None) => !was_there,
        _ => false,
    }
}

/// Whether a refusal means that the session is no more.
pub fn is_gone(error: &Error) -> bool {
    match error.status() {
        Some(404 | 410) => true,
        Some(409) => error.code().is_some_and(|code| code.starts_with("session_")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::problem::Problem;

    #[test]
    fn a_worker_gives_up_only_where_waiting_does_not_help() {
        for (status, is_final) in
            [(401, true), (403, true), (422, true), (429, false), (500, false), (503, false)]
        {
            let problem = Problem::read(status, Some(&json!({ "code": "x" })), None).unwrap();
            let error = Error::Problem(Box::new(problem));
            assert_eq!(is_lasting(&error, true), is_final, "{status}");
        }
        let stranger = Error::Unexpected { server: "s".into(), cause: "c".into() };
        assert!(is_lasting(&stranger, false) && !is_lasting(&stranger, true));
    }

    #[test]
    fn beats_are_half_of_the_lease_or_of_the_session_apart() {
        let every = |(lease_ms, ttl_ms)| beat_every(lease_ms, ttl_ms).as_millis();
        let found = [(60_000, 15_000), (4_000, 15_000), (50, 15_000)].map(every);
        assert_eq!(found, [7_500, 2_000, 100]);
    }

    #[test]
    fn the_life_of_a_session_is_taken_from_the_servers_own_times() {
        let answer = json!({
            "created_at": "2026-01-31T12:00:00.000Z", "expires_at": "2026-01-31T12:00:15.000Z",
        });
        assert_eq!(life_ms(&answer), Some(15_000));
        assert_eq!(life_ms(&json!({ "expires_at": "2026-01-31T12:00:15.000Z" })), None);
    }
}
