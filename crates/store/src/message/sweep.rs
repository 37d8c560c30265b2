//! What becomes of messages by themselves: leases that ran out, times that passed, inboxes that
//! nobody reads.
//!
//! Invariant: a row that somebody is changing is left to him, and looked at again a second later.

use super::claim::{Kept, bury, expire, give_back};
use super::{Message, Messages, read};
use crate::agent;
use crate::error::Result;
use crate::statement;
use crate::statement::Statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use windlass_domain::message::{Failure, Reason};

statement!(LOST, "message/lost");
statement!(EXPIRED, "message/expired");
statement!(STRAY, "message/stray");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] = &[&LOST, &EXPIRED, &STRAY];

/// Who does it.
const ACTOR: &str = "windlass";

impl Messages {
    /// Takes messages from handlers whose lease ran out, at most `limit`; those that it changed.
    pub async fn expire_leases(&self, limit: usize) -> Result<Vec<Message>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let rows = tx.run(Call::one(&LOST, vec![now.into(), Value::Int(limit as i64)]))?;
            let mut swept = Vec::new();
            for row in rows {
                let error = Some("its handler fell silent".to_owned());
                let message = read(&row)?;
                swept.push(give_back(
                    tx,
                    message,
                    Failure::LeaseLost,
                    error,
                    Kept::default(),
                    ACTOR,
                )?);
            }
            Ok(swept)
        };
        self.store.write("message_leases", body).await
    }

    /// Ends messages whose time passed before anybody took them, at most `limit`: those.
    pub async fn expire(&self, limit: usize) -> Result<Vec<Message>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let rows = tx.run(Call::one(&EXPIRED, vec![now.into(), Value::Int(limit as i64)]))?;
            rows.iter().map(|row| expire(tx, read(row)?, Kept::default(), None)).collect()
        };
        self.store.write("message_expire", body).await
    }

    /// Gives up what lies in inboxes that nobody reads, at most `limit`: those. Messages get there
    /// by hand, and when an agent is archived.
    pub async fn bury_strays(&self, limit: usize) -> Result<Vec<Message>> {
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&STRAY, vec![Value::Int(limit as i64)]))?;
            let mut buried = Vec::new();
            for row in &rows {
                let message = read(row)?;
                let reason = match agent::find(tx, &message.to)? {
                    Some(_) => Reason::ArchivedAgent,
                    None => Reason::UnknownAgent,
                };
                let detail = format!("nobody reads the inbox of {}", message.to);
                buried.push(bury(tx, message, reason, &detail, Kept::default(), None, ACTOR)?);
            }
            Ok(buried)
        };
        self.store.write("message_strays", body).await
    }
}
