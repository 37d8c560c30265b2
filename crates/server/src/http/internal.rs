//! What nodes ask each other, under a key of their own. No part of the public contract.
//!
//! Invariant: without a cluster key there is nothing here. The text of a task goes to whoever has
//! the key, as it goes to whoever may watch the task.

use super::event::{keep_alive, sse};
use super::problem::{Problem, Result};
use super::request::{Id, Params};
use super::{Api, credential};
use crate::config::Secret;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use windlass::client::stream::Stream as Events;
use windlass::client::{Call, Client, Patience};
use windlass::domain::id::TaskId;
use windlass::engine::{Peers, Piece, Pieces};

/// Its path; the key is asked for here and not by the middleware.
pub(super) const DELTAS: &str = "/internal/v1/tasks/{id}/deltas";

/// The routes.
pub fn routes() -> Router<Api> {
    Router::new().route(DELTAS, get(deltas))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltaParams {
    attempt: i32,
    from: u64,
}

#[derive(Serialize, Deserialize)]
struct DeltasEvent {
    from: u64,
    deltas: Vec<Value>,
}

async fn deltas(
    State(api): State<Api>,
    headers: HeaderMap,
    Id(task): Id<TaskId>,
    Params(params): Params<DeltaParams>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let Some(key) = api.cluster_key.as_deref() else {
        let detail = "there is nothing at this address; /docs lists what there is";
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found", detail));
    };
    if !credential::is_key(&headers, key) {
        let detail = "the cluster key is missing or wrong; set the same one on all nodes";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail));
    }
    let text = api.engine.text_of(task, params.attempt, params.from);
    // What is not here any more has ended.
    let ended = text.is_none().then_some(Piece::Ended);
    let pieces = stream::iter(text).flatten().chain(stream::iter(ended));
    let events = pieces.map(|piece| {
        Ok(match piece {
            Piece::Deltas { from, deltas } => sse("deltas", &DeltasEvent { from, deltas }),
            Piece::Ended => sse("ended", &()),
        })
    });
    Ok(Sse::new(events).keep_alive(keep_alive()))
}

/// The other nodes, over HTTP.
pub struct Nodes {
    key: Secret,
    /// By their URLs: connections are used again.
    clients: Mutex<HashMap<String, Client>>,
}

/// Nodes come and go under new addresses; beyond this they are all forgotten.
const MOST_CLIENTS: usize = 256;

impl Nodes {
    /// Those who have the same key.
    pub fn new(key: Secret) -> Nodes {
        Nodes { key, clients: Mutex::default() }
    }

    fn client(&self, url: &str) -> Result<Client, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(url) {
            return Ok(client.clone());
        }
        let client = Client::new(url, Some(self.key.reveal())).map_err(|e| e.to_string())?;
        if clients.len() >= MOST_CLIENTS {
            clients.clear();
        }
        clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }
}

impl Peers for Nodes {
    fn subscribe(&self, url: &str, task: TaskId, attempt: i32, from: u64) -> Pieces {
        let path = format!("/internal/v1/tasks/{task}/deltas");
        let call = Call::get(path).query("attempt", attempt).query("from", from);
        let events = match self.client(url) {
            Ok(client) => Events::new(&client, call, None, Patience::NONE),
            Err(why) => return Box::pin(stream::once(async { Err(why) })),
        };
        Box::pin(stream::unfold(Some(events), |events| async move {
            let mut events = events?;
            Some(match piece(&mut events).await {
                Ok(Piece::Ended) => (Ok(Piece::Ended), None),
                Ok(piece) => (Ok(piece), Some(events)),
                Err(why) => (Err(why), None),
            })
        }))
    }
}

async fn piece(events: &mut Events) -> Result<Piece, String> {
    loop {
        let event = events.next().await.map_err(|error| error.to_string())?;
        match event.name.as_str() {
            "deltas" => {
                let data = serde_json::from_str(&event.data).map_err(|error| error.to_string())?;
                let DeltasEvent { from, deltas } = data;
                return Ok(Piece::Deltas { from, deltas });
            }
            "ended" => return Ok(Piece::Ended),
            _ => {}
        }
    }
}
