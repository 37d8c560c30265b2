//! Reading messages: one, or a page of them, newest first.

use super::{Message, Messages, find, read};
use crate::error::Result;
use crate::statement;
use crate::statement::Statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::Status;
use windlass_domain::time::Timestamp;

statement!(shared LIST, "message/list");
statement!(shared LIST_TO, "message/list_to");
statement!(shared LIST_FROM, "message/list_from");
statement!(shared LIST_CORRELATION, "message/list_correlation");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] = &[&LIST, &LIST_TO, &LIST_FROM, &LIST_CORRELATION];

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

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

impl Messages {
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
        let body = move |tx: &mut dyn Tx| {
            let params = vec![
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
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let mut found: Vec<Message> = self.store.read("message_list", body).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more);
        let next = last.map(|message| (message.created_at, message.id.0));
        Ok((found, next))
    }
}
