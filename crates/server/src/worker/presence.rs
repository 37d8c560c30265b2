//! The stream by which a worker is told at once what it has lost, and by which some show that they
//! are there.
//!
//! Invariant: a worker that shows itself claims only while its stream is bound, so the end of its
//! process is the end of a connection, and what it held goes back at once. There is no other way to
//! work for it: a server that refuses the stream ends the worker, one that is away is asked again.
//! Any other worker only listens ([`listen`]): its heartbeats tell it the same a little later, so
//! it works on without a stream.

use super::Shared;
use super::child::Stop;
use super::session::{self, Session, Sessions};
use crate::client::stream::{Event, Stream};
use crate::client::{Call, Error, Patience};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a worker that only listens waits until there is a session to listen for.
const NO_SESSION: Duration = Duration::from_millis(50);

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
        let mut stream = stream_of(&shared, &session);
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

/// Does what the stream says for as long as the worker lives, and opens it again whenever it is not
/// open. What is wrong with the session is for the claims and heartbeats to find out.
pub async fn listen(shared: Arc<Shared>) {
    let mut failed = 0;
    loop {
        let Some(session) = shared.sessions.current() else {
            tokio::time::sleep(NO_SESSION).await;
            continue;
        };
        let mut stream = stream_of(&shared, &session);
        let begun = Instant::now();
        let error = match stream.open().await {
            Ok(()) => follow(&shared, &mut stream).await,
            Err(error) => error,
        };
        // One that breaks as soon as it is open is as bad as none.
        if begun.elapsed() > Patience::ENDLESS.longest {
            failed = 0;
        }
        failed += 1;
        if failed == 1 {
            tracing::info!(%error, "the stream ended; it is opened again, and heartbeats tell \
                what was cancelled meanwhile");
        } else {
            tracing::debug!(%error, failed, "the stream is not open");
        }
        let pause = Patience::ENDLESS.pause(failed, error.retry_after());
        tokio::time::sleep(pause.unwrap_or(Duration::from_secs(1))).await;
    }
}

/// The stream of a session that claims by itself. Nothing is asked yet.
fn stream_of(shared: &Shared, session: &Session) -> Stream {
    let call = Call::get(format!("/v1/sessions/{}/stream", session.id));
    Stream::new(&shared.client, call.query("assign", "false"), None, Patience::NONE)
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
    if is_end && shared.hold.stop_or_refuse(lease_id, Stop::Drop) {
        let task_id = data["task_id"].as_str().unwrap_or_default();
        tracing::warn!(task_id, event = event.name, "the task is no longer ours; dropping it");
    }
}
