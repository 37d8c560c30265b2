//! Workers of a server elsewhere: the same handlers, their calls over HTTP.
//!
//! Invariant: ids are made before the first try, so every call may be repeated; a session that the
//! server has forgotten is registered again under its id.

mod call;
mod message;

use crate::client::{Call, Client, Error, Patience};
use crate::sdk::{
    Handlers, Incoming, MessageOptions, MessageWorker, Registered, Result as Handled,
};
use crate::worker::{self, Job, Worker, WorkerOptions};
use call::Server;
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::id::SessionId;

/// A server elsewhere; cheap to clone.
#[derive(Clone)]
pub struct Remote {
    client: Client,
}

impl Remote {
    /// The server at this URL, with the key it asks for. Nothing is asked yet.
    pub fn new(server: &str, key: Option<&str>) -> Result<Remote, Error> {
        Ok(Remote { client: Client::new(server, key)? })
    }

    /// The client of the HTTP API.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs handlers with steps for the tasks of the worker's queues, until stopped.
    pub async fn run(&self, options: WorkerOptions, handlers: Handlers) -> Result<Worker, Error> {
        let session = SessionId(Uuid::now_v7());
        let mut body = serde_json::to_value(&options.routes).unwrap_or_default();
        body["id"] = json!(session);
        body["name"] = json!(options.name);
        body["slots"] = json!(options.slots);
        if let Some(ms) = options.lease_ms {
            body["lease_ms"] = json!(ms);
        }
        let registration = Call::post("/v1/sessions", body);
        let answer = self.client.call(&registration, Patience::SHORT).await?;
        let slots = answer.body["slots"].as_u64().unwrap_or(1).max(1);
        let registered = Registered { session, slots: slots.try_into().unwrap_or(1) };
        let server = Server { client: self.client.clone(), registration };
        Ok(worker::begin(Arc::new(server), registered, options.lease_ms, Job::Steps(handlers)))
    }

    /// Runs a function for every message that comes to a role or an agent, until stopped.
    pub fn handle_messages<F>(
        &self,
        options: MessageOptions,
        handler: impl Fn(Incoming) -> F + Send + Sync + 'static,
    ) -> MessageWorker
    where
        F: Future<Output = Handled<()>> + Send + 'static,
    {
        let mail = message::Inbox { client: self.client.clone() };
        crate::sdk::serve(Arc::new(mail), options, crate::sdk::boxed(handler))
    }
}
