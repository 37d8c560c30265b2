//! Handlers of messages that are on a server elsewhere.

use crate::client::{Call, Client, Patience};
use crate::engine::{MessageClaim, Returned};
use crate::sdk::{CallError, Held, Mail, Pending};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::pin::Pin;
use windlass_domain::id::{LeaseId, MessageId};
use windlass_store::message::Whose;

/// A server that is asked over HTTP.
pub(super) struct Inbox {
    pub client: Client,
}

#[derive(Deserialize)]
struct Delivery {
    message: crate::sdk::Incoming,
    lease_id: LeaseId,
}

/// The fields that are there.
fn given(fields: Json) -> Json {
    match fields {
        Json::Object(fields) => {
            Json::Object(fields.into_iter().filter(|(_, v)| !v.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}

impl Inbox {
    async fn post(&self, path: String, body: Json) -> Result<Json, CallError> {
        Ok(self.client.call(&Call::post(path, given(body)), Patience::SHORT).await?.body)
    }
}

impl Mail for Inbox {
    fn take(&self, claim: MessageClaim) -> Pending<'_, Vec<Held>> {
        let (pool, agents) = match claim.whose {
            Whose::Pool(pool) => (Some(pool), None),
            Whose::Agents(agents) => (None, Some(agents)),
        };
        let body = json!({
            "handler": claim.handler, "pool": pool, "agents": agents, "max": claim.max,
            "lease_ms": claim.lease_ms, "wait_ms": claim.wait.as_millis() as u64,
        });
        Box::pin(async move {
            let call = Call::post("/v1/messages/claim", given(body)).patient(claim.wait);
            // Once: what a lost answer took comes back when its lease has run out.
            let mut answer = self.client.try_call(&call).await?.body;
            let taken: Vec<Delivery> = serde_json::from_value(answer["deliveries"].take())
                .map_err(|error| CallError {
                    code: "unexpected_answer".into(),
                    detail: format!("the server's answer is not understood: {error}"),
                    is_temporary: false,
                })?;
            let held =
                |delivery: Delivery| Held { message: delivery.message, lease: delivery.lease_id };
            Ok(taken.into_iter().map(held).collect())
        })
    }

    fn acknowledge(&self, id: MessageId, lease: LeaseId) -> Pending<'_, ()> {
        let path = format!("/v1/messages/{id}/ack");
        Box::pin(async move { self.post(path, json!({ "lease_id": lease })).await.map(drop) })
    }

    fn give_back(&self, id: MessageId, lease: LeaseId, returned: Returned) -> Pending<'_, ()> {
        let path = format!("/v1/messages/{id}/nack");
        let error = returned
            .code
            .map(|code| json!({ "code": code, "message": returned.message.unwrap_or_default() }));
        let body = json!({
            "lease_id": lease, "error": error, "retry_after_ms": returned.retry_after_ms,
            "reject": returned.reject,
        });
        Box::pin(async move { self.post(path, body).await.map(drop) })
    }

    fn extend(&self, id: MessageId, lease: LeaseId, lease_ms: i64) -> Pending<'_, ()> {
        let path = format!("/v1/messages/{id}/heartbeat");
        let body = json!({ "lease_id": lease, "lease_ms": lease_ms });
        Box::pin(async move { self.post(path, body).await.map(drop) })
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn count(&self) -> Box<dyn Send + Sync> {
        Box::new(())
    }
}
