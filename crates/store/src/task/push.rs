//! The end of a delegation, put into its caller's inbox in the transaction of the end.
//!
//! Invariant: it is told once, whatever ends the delegation: the id of the message is made of the
//! delegation's, and where somebody else has sent a message of that id, of another number as well.
//! What cannot be delivered is a dead letter of that transaction, and the end stands.
//! Absent: the hot statements. They leave delegations to the cold path, so that a job costs no
//! more; only what has ended here is read again.

use crate::error::Result;
use crate::message::{self, Outcome};
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use uuid::Uuid;
use windlass_domain::delegation::{RESULT_MESSAGE, told};
use windlass_domain::id::{MessageId, TaskId};
use windlass_domain::message::NewMessage;

statement!(ENDED, "task/ended_delegations");

/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&ENDED];

/// What keeps the ids of messages apart from those of their delegations.
const SALT: u128 = 0x0000_0000_0000_0000_0064_656c_6567_6174;

/// Where else the message lies if its id is taken, in turn.
const OTHERS: [u128; 3] = [1 << 64, 2 << 64, 3 << 64];

/// The message that tells of a delegation's end, unless somebody took the id before.
pub fn result_message(delegation: TaskId) -> MessageId {
    MessageId(Uuid::from_u128(delegation.0.as_u128() ^ SALT))
}

/// Tells the callers of these delegations, which have ended in this transaction.
pub(super) fn results(tx: &mut dyn Tx, ended: Vec<Uuid>) -> Result<()> {
    if ended.is_empty() || !tx.pushes() {
        return Ok(());
    }
    let rows = tx.run(Call::one(&ENDED, vec![Value::UuidList(ended)]))?;
    for row in &rows {
        let id = TaskId(row.uuid(0)?);
        let (caller, callee) = (row.maybe(1, Row::text)?, row.maybe(2, Row::text)?);
        let Some(caller) = caller else { continue };
        let (result, error) = (row.maybe(6, Row::json)?, row.maybe(7, Row::json)?);
        let name = row.maybe(3, Row::text)?;
        let payload = told(id, callee, name, row.named(5)?, result.as_ref(), error.as_ref());
        let from = callee.unwrap_or("windlass");
        let correlation = row.maybe(4, Row::text)?.map_or_else(|| id.to_string(), str::to_owned);
        let mut message =
            NewMessage::new(result_message(id), from, caller, RESULT_MESSAGE, payload);
        message.correlation_id = Some(correlation);
        // Somebody else may have sent a message of that id: the result has another one then.
        let mut others =
            OTHERS.map(|other| Uuid::from_u128(message.id.0.as_u128() ^ other)).into_iter();
        while let Outcome::Duplicate { same: false, .. } = message::deliver(tx, &message)? {
            message.id = MessageId(others.next().unwrap_or_else(Uuid::now_v7));
        }
        tx.pushed();
    }
    Ok(())
}
