//! The stream by which a worker shows that it is there.
//!
//! Invariant: a worker that binds a stream claims only while it is bound, so the end of its process
//! is the end of a connection, and what it held goes back at once. There is no other way to work: a
//! server that refuses the stream ends the worker, one that is away is asked again.

use super::Shared;
use super::child::Stop;
use super::session::{self, Session, Sessions};
use crate::client::stream::{Event, Stream};
use crate::client::{Call, Error, Patience};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The session whose stream is open.
#[derive(Default)]
pub struct Presence {
    bound: watch::Sender<Option<String>>,
}

impl Presence {
    /// Whether this session's stream is open.
    pub fn is_bound(&self, session: &Session) -> bool {
        self.bound.borrow().as_deref() == Some(&session.id)
    }

    /// Resolves when this session's stream is open, or that of another one which has taken its
    /// place.
    pub async fn bound(&self, session: &Session, sessions: &Sessions) {
        let is_other = || sessions.current().is_some_and(|current| current.id != session.id);
        let is_over = |bound: &Option<String>| match bound {
            Some(bound) => *bound == session.id || is_other(),
            None => false,
        };
        // The sender lives in `self`, so this ends only when one is open.
        let _ = self.bound.subscribe().wait_for(is_over).await;
    }

    /// Resolves when this session's stream is not open.
    pub async fn unbound(&self, session: &Session) {
        let gone = |bound: &Option<String>| bound.as_deref() != Some(&session.id);
        let _ = self.bound.subscribe().wait_for(gone).await;
    }
}

/// Keeps the stream open until the worker ends. Gives why the server will not have it.
pub async fn run(shared: Arc<Shared>) -> Error {
    let mut failed = 0;
    loop {
        let session = match shared.sessions.get(&shared).await {
            Ok(session) => session,
            Err(error) => return error,
        };
        let call = Call::get(format!("/v1/sessions/{}/stream", session.id));
        let call = call.query("assign", "false");
        let mut stream = Stream::new(&shared.client, call, None, Patience::NONE);
        let error = match stream.open().await {
            Ok(()) => {
                failed = 0;
                tracing::info!(session = session.id, "bound its stream");
                shared.presence.bound.send_replace(Some(session.id.clone()));
                let error = follow(&shared, &mut stream).await;
                shared.presence.bound.send_replace(None);
                error
            }
            Err(error) => error,
        };
        if session::is_gone(&error) {
            shared.sessions.forget(&session.id);
        } else if session::is_lasting(&error, true) {
            tracing::error!(%error, "the server refuses the stream");
            return error;
        }
        failed += 1;
        tracing::warn!(%error, failed, "the stream is not open; nothing is taken until it is");
        let pause = Patience::ENDLESS.pause(failed, error.retry_after());
        tokio::time::sleep(pause.unwrap_or(Duration::from_secs(1))).await;
    }
}

/// Does what the stream says, until it breaks.
async fn follow(shared: &Shared, stream: &mut Stream) -> Error {
    loop {
        match stream.next().await {
            Ok(event) => obey(shared, &event),
            Err(error) => return error,
        }
    }
}

fn obey(shared: &Shared, event: &Event) {
    let Ok(data) = serde_json::from_str::<Value>(&event.data) else { return };
    let lease_id = data["lease_id"].as_str().unwrap_or_default();
    let is_end = ["cancel", "lost"].contains(&event.name.as_str());
    if is_end && shared.hold.stop(lease_id, Stop::Drop) {
        let task_id = data["task_id"].as_str().unwrap_or_default();
        tracing::warn!(task_id, event = event.name, "the task is no longer ours; dropping it");
    }
}
