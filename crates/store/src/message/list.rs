//! Reading messages: one, or a page of them, newest first.

use super::{Message, Messages, find, read};
use crate::error::Result;
use crate::statement;
use crate::statement::Statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::Status;
use windlass_domain::time::Timestamp;

statement!(shared LIST, "message/list");
statement!(shared LIST_TO, "message/list_to");
statement!(shared LIST_FROM, "message/list_from");
statement!(shared LIST_CORRELATION, "message/list_correlation");
statement!(shared LIST_OWN, "message/list_own");
statement!(shared DEPTH, "message/depth");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] =
    &[&LIST, &LIST_TO, &LIST_FROM, &LIST_CORRELATION, &LIST_OWN, &DEPTH];

/// Which messages. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of a message.
pub struct Filter {
    pub to: Option<String>,
    pub from: Option<String>,
    pub status: Option<Status>,
    pub kind: Option<String>,
    pub correlation_id: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// What is on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// How many messages lie in inboxes.
    pub pending: i64,
    /// For how long the oldest of them has.
    pub oldest_pending_ms: i64,
    /// How many are in handlers' hands.
    pub delivered: i64,
    /// How many dead letters need a person.
    pub dead_letters: i64,
}

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

impl Messages {
    /// How full the inboxes are; it costs as much as lies in them.
    pub async fn depth(&self) -> Result<Depth> {
        let body = |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let mut depth = Depth::default();
            for row in tx.run(Call::one(&DEPTH, vec![]))? {
                let count = row.int(1)?;
                match row.text(0)? {
                    "pending" => {
                        depth.pending = count;
                        let since = row.maybe(2, Row::time)?.unwrap_or(now);
                        depth.oldest_pending_ms = (now.as_ms() - since.as_ms()).max(0);
                    }
                    "delivered" => depth.delivered = count,
                    _ => depth.dead_letters = count,
                }
            }
            Ok(depth)
        };
        self.store.read("message_depth", body).await
    }

    /// One message.
    pub async fn show(&self, id: MessageId) -> Result<Option<Message>> {
        self.store.read("message_show", move |tx| find(tx, id)).await
    }

    /// A page of messages, newest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Message>, Option<Cursor>)> {
        let (time, id) = after.unwrap_or((Timestamp::MAX, Uuid::max()));
        // By whatever leaves the fewest.
        let statement = match &filter {
            Filter { correlation_id: Some(_), .. } => &LIST_CORRELATION,
            Filter { to: Some(_), .. } => &LIST_TO,
            Filter { from: Some(_), .. } => &LIST_FROM,
            _ => &LIST,
        };
        // What was written by hand, and says nothing of what it belongs to, belongs to its own id.
        let own = filter.correlation_id.as_deref().and_then(|text| {
            Uuid::try_parse(text).ok().filter(|id| id.hyphenated().to_string() == text)
        });
        let body = move |tx: &mut dyn Tx| {
            let mut params = vec![
                time.into(),
                id.into(),
                Value::Int(limit as i64 + 1),
                filter.to.clone().into(),
                filter.from.clone().into(),
                filter.status.map(Status::as_str).into(),
                filter.kind.clone().into(),
                filter.correlation_id.clone().into(),
                filter.since.into(),
                filter.until.into(),
            ];
            let mut found = tx.run(Call::one(statement, params.clone()))?;
            if let Some(own) = own {
                params[7] = own.into();
                found.extend(tx.run(Call::one(&LIST_OWN, params))?);
            }
            found.iter().map(read).collect()
        };
        let mut found: Vec<Message> = self.store.read("message_list", body).await?;
        if own.is_some() {
            found.sort_by_key(|message| std::cmp::Reverse((message.created_at, message.id.0)));
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more);
        let next = last.map(|message| (message.created_at, message.id.0));
        Ok((found, next))
    }
}
