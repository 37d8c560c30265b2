//! Reading messages: one, or a page of them in either order.

use super::{Message, Messages, find, read};
use crate::error::Result;
use crate::statement;
use crate::statement::{Ordered, Statement};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::Status;
use windlass_domain::page::{Order, Part};
use windlass_domain::time::Timestamp;

statement!(ordered shared LIST, "message/list");
statement!(ordered shared LIST_TO, "message/list_to");
statement!(ordered shared LIST_FROM, "message/list_from");
statement!(ordered shared LIST_CORRELATION, "message/list_correlation");
statement!(ordered shared LIST_OWN, "message/list_own");
statement!(shared DEPTH, "message/depth");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&Statement] = &[&DEPTH];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&Ordered] = &[&LIST, &LIST_TO, &LIST_FROM, &LIST_CORRELATION, &LIST_OWN];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

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
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of messages, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<Message>, Option<Cursor>)> {
        let (order, (time, id), most) = (part.order, part.begin(), part.most());
        // By whatever leaves the fewest.
        let list = match &filter {
            Filter { correlation_id: Some(_), .. } => &LIST_CORRELATION,
            Filter { to: Some(_), .. } => &LIST_TO,
            Filter { from: Some(_), .. } => &LIST_FROM,
            _ => &LIST,
        };
        let place = |message: &Message| (message.created_at, message.id.0);
        // What was written by hand, and says nothing of what it belongs to, belongs to its own id.
        let own = filter.correlation_id.as_deref().and_then(|text| {
            Uuid::try_parse(text).ok().filter(|id| id.hyphenated().to_string() == text)
        });
        let body = move |tx: &mut dyn Tx| {
            let mut params = vec![
                time.into(),
                id.into(),
                Value::Int(most),
                filter.to.clone().into(),
                filter.from.clone().into(),
                filter.status.map(Status::as_str).into(),
                filter.kind.clone().into(),
                filter.correlation_id.clone().into(),
                filter.since.into(),
                filter.until.into(),
            ];
            let mut found = tx.run(Call::one(list.in_order(order), params.clone()))?;
            if let Some(own) = own {
                params[7] = own.into();
                found.extend(tx.run(Call::one(LIST_OWN.in_order(order), params))?);
            }
            found.iter().map(read).collect()
        };
        let mut found: Vec<Message> = self.store.read("message_list", body).await?;
        if own.is_some() {
            found.sort_by_key(place);
            if order == Order::Descending {
                found.reverse();
            }
        }
        Ok(part.cut(found, place))
    }
}
