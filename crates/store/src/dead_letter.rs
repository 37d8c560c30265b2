//! Dead letters: messages that could not be delivered or handled.
//!
//! Invariant: one is entered in the transaction in which its message ends, with a copy of it, and
//! somebody is alerted. People act on it by the workflow of trouble; delivering it again makes a
//! new message and closes the dead letter in one transaction, so that nobody does it twice.

use crate::alert::{self, NewAlert};
use crate::error::{Rejection, Result};
use crate::message::{self, NewMessage};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value, unreadable};
use crate::workflow::{Book, MAX_NOTES, Steps, note};
pub use crate::workflow::{Deed, Note};
use crate::{audit, statement::Statement};
use serde_json::{Value as Json, json};
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::Reason;
use windlass_domain::notice::Severity;
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::{FieldError, Refusal};
use windlass_domain::time::Timestamp;
use windlass_domain::trouble::{Case, Event, Status};

/// A dead letter is read in this order.
pub(crate) const COLUMNS: &str = "dl.message_id, dl.original, dl.from_agent, dl.to_agent, \
    dl.type, dl.correlation_id, dl.reason, dl.detail, dl.deliveries, dl.status, dl.assignee, \
    dl.entered_at, dl.updated_at, dl.closed_at, dl.resolved_by_message";

statement!(shared ENTER, "dead_letter/enter");
statement!(shared SHOW, "dead_letter/show");
statement!(LOAD, "dead_letter/load");
statement!(shared SAVE, "dead_letter/save");
statement!(shared APPEND, "dead_letter/append");
statement!(shared APPENDED, "dead_letter/appended");
statement!(shared NOTES, "dead_letter/notes");
statement!(ordered LIST, "dead_letter/list");
statement!(ordered LIST_OPEN, "dead_letter/list_open");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&Statement] =
    &[&ENTER, &SHOW, &LOAD, &SAVE, &APPEND, &APPENDED, &NOTES];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST, &LIST_OPEN];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

/// Where the notes are kept.
static BOOK: Book = Book { what: "a dead letter", append: &APPEND, appended: &APPENDED };

/// The longest detail that is kept, in characters.
const MAX_DETAIL_CHARS: usize = 4_000;

/// A message that is given up.
pub(crate) struct Letter<'a> {
    pub message: MessageId,
    pub original: Json,
    pub from: &'a str,
    pub to: &'a str,
    pub kind: &'a str,
    pub correlation_id: Option<&'a str>,
    pub reason: Reason,
    pub detail: &'a str,
    pub deliveries: i32,
    /// Who gave it up.
    pub actor: &'a str,
}

/// Enters a dead letter; the audit tells of it and an alert is raised.
pub(crate) fn enter(tx: &mut dyn Tx, letter: &Letter<'_>) -> Result<()> {
    let now = tx.now()?;
    let detail: String =
        letter.detail.chars().filter(|c| *c != '\0').take(MAX_DETAIL_CHARS).collect();
    let params = vec![
        letter.message.0.into(),
        Value::Json(windlass_domain::json::canonical(&letter.original)),
        letter.from.into(),
        letter.to.into(),
        letter.kind.into(),
        letter.correlation_id.into(),
        letter.reason.as_str().into(),
        detail.as_str().into(),
        letter.deliveries.into(),
        now.into(),
    ];
    tx.run(Call::one(&ENTER, params))?;
    let told = json!({
        "message": letter.message, "from": letter.from, "to": letter.to, "type": letter.kind,
        "correlation_id": letter.correlation_id, "reason": letter.reason, "detail": detail,
    });
    audit::write(tx, letter.actor, "message_dead_lettered", &told)?;
    let message = format!(
        "message {} from {} to {} is a dead letter: {}: {detail}",
        letter.message, letter.from, letter.to, letter.reason
    );
    let alert = NewAlert {
        id: letter.message.0,
        kind: "dead_letter",
        severity: Severity::Warning,
        task: None,
        message,
    };
    alert::raise(tx, &alert)
}

/// A dead letter as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `dead_letter`.
pub struct DeadLetter {
    pub message: MessageId,
    pub original: Json,
    pub from: String,
    pub to: String,
    pub kind: String,
    pub correlation_id: Option<String>,
    pub reason: Reason,
    pub detail: String,
    pub deliveries: i32,
    pub status: Status,
    pub assignee: Option<String>,
    pub entered_at: Timestamp,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub resolved_by_message: Option<MessageId>,
}

/// Which dead letters. Everything that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of a dead letter.
pub struct Filter {
    pub status: Vec<Status>,
    pub assignee: Option<String>,
    pub to: Option<String>,
    pub from: Option<String>,
    pub reason: Option<Reason>,
}

impl Default for Filter {
    /// Everything that is not closed.
    fn default() -> Self {
        let open = Status::ALL.iter().copied().filter(|status| !status.is_closed());
        Filter { status: open.collect(), assignee: None, to: None, from: None, reason: None }
    }
}

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

/// A dead letter is delivered again.
#[derive(Clone, Debug, PartialEq)]
pub struct Redelivery {
    /// Which one.
    pub message: MessageId,
    /// The id of the new message, made before the first try.
    pub new: MessageId,
    /// To somebody else than before.
    pub to: Option<String>,
    /// Who does it, and in which words; its event is `resolve`.
    pub deed: Deed,
}

/// The repository of dead letters; cheap to clone.
#[derive(Clone)]
pub struct DeadLetters {
    store: Store,
}

impl DeadLetters {
    /// The dead letters of one database.
    pub fn new(store: Store) -> DeadLetters {
        DeadLetters { store }
    }

    /// One dead letter with what was done about it, oldest first.
    pub async fn show(&self, id: MessageId) -> Result<Option<(DeadLetter, Vec<Note>)>> {
        let body = move |tx: &mut dyn Tx| {
            let found = tx.run(Call::one(&SHOW, vec![id.0.into()]))?;
            let Some(row) = found.first() else { return Ok(None) };
            let notes = tx.run(Call::one(&NOTES, vec![id.0.into(), MAX_NOTES.into()]))?;
            Ok(Some((read(row)?, notes.iter().map(note).collect::<Result<_>>()?)))
        };
        self.store.read("dead_letter_show", body).await
    }

    /// A page of dead letters, oldest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<DeadLetter>, Option<Cursor>)> {
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of dead letters, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<DeadLetter>, Option<Cursor>)> {
        let ((time, id), most) = (part.begin(), part.most());
        let is_open = filter.status.iter().all(|status| !status.is_closed());
        let statement = if is_open { &LIST_OPEN } else { &LIST }.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let status = filter.status.iter().map(|status| status.as_str().to_owned()).collect();
            let params = vec![
                time.into(),
                id.into(),
                Value::Int(most),
                Value::TextList(status),
                filter.assignee.clone().into(),
                filter.to.clone().into(),
                filter.from.clone().into(),
                filter.reason.map(Reason::as_str).into(),
            ];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let found: Vec<DeadLetter> = self.store.read("dead_letter_list", body).await?;
        Ok(part.cut(found, |letter| (letter.entered_at, letter.message.0)))
    }

    /// Somebody acts; the dead letter as it stands then.
    pub async fn act(&self, id: MessageId, deed: Deed) -> Result<DeadLetter, Rejection> {
        let body = move |tx: &mut dyn Tx| carry_out(tx, id, &deed, None);
        Ok(self.store.write("dead_letter_act", body).await??)
    }

    /// Delivers a dead letter again, as a new message, and closes it: the new message.
    pub async fn redeliver(&self, redelivery: Redelivery) -> Result<message::Message, Rejection> {
        let body = move |tx: &mut dyn Tx| redeliver(tx, &redelivery);
        Ok(self.store.write("dead_letter_redeliver", body).await??)
    }
}

fn redeliver(tx: &mut dyn Tx, again: &Redelivery) -> Result<Result<message::Message, Refusal>> {
    let found = tx.run(Call::one(&LOAD, vec![again.message.0.into()]))?;
    let Some(letter) = found.first().map(read).transpose()? else {
        return Ok(Err(Refusal::Unknown { what: "dead letter" }));
    };
    let Some((payload, priority)) = content(tx, &letter)? else {
        return Ok(Err(Refusal::Unreadable { what: "the dead letter" }));
    };
    let new = NewMessage {
        priority,
        correlation_id: letter.correlation_id.clone().or(Some(again.message.to_string())),
        sent_by: again.deed.actor.clone(),
        redelivery_of: Some(again.message),
        ..NewMessage::new(
            again.new,
            &letter.from,
            again.to.as_deref().unwrap_or(&letter.to),
            &letter.kind,
            payload,
        )
    };
    if message::receiver(tx, &new.to)?.is_err() {
        return Ok(Err(nobody(&new.to)));
    }
    // Closed before anything is sent: whoever is second meets a closed one, and writes no message.
    if let Err(refusal) = carry_out(tx, again.message, &again.deed, Some(again.new))? {
        return Ok(Err(refusal));
    }
    message::deliver(tx, &new)?;
    message::find(tx, again.new)?.map(Ok).ok_or_else(|| message::lost("dead_letter_redeliver"))
}

/// What a dead letter says, and how urgent that is. The message itself is asked first: it has what
/// was truly sent, while a copy of what nobody can read holds other words in its place.
fn content(tx: &mut dyn Tx, letter: &DeadLetter) -> Result<Option<(Json, i32)>> {
    if let Some(message) = message::find(tx, letter.message)? {
        // A message that could not be kept as it was made has those words itself.
        let is_replaced = letter.reason == Reason::Invalid && message.payload == unreadable();
        let can_be_read = !message.is_unreadable && !is_replaced;
        return Ok(can_be_read.then_some((message.payload, message.priority)));
    }
    let priority = letter.original.get("priority").and_then(Json::as_i64).unwrap_or(0);
    let payload = letter.original.get("payload").filter(|payload| **payload != unreadable());
    Ok(payload.cloned().map(|payload| (payload, i32::try_from(priority).unwrap_or(0))))
}

fn nobody(to: &str) -> Refusal {
    let detail = format!("nobody reads the inbox of `{to}`; create the agent, or name another one");
    Refusal::Invalid(vec![FieldError { pointer: "/to".into(), code: "unknown_value", detail }])
}

fn carry_out(
    tx: &mut dyn Tx,
    id: MessageId,
    deed: &Deed,
    by: Option<MessageId>,
) -> Result<Result<DeadLetter, Refusal>> {
    let found = tx.run(Call::one(&LOAD, vec![id.0.into()]))?;
    let Some(mut letter) = found.first().map(read).transpose()? else {
        return Ok(Err(Refusal::Unknown { what: "dead letter" }));
    };
    let steps = match BOOK.steps(tx, letter.status, deed)? {
        Ok(Steps::Take(steps)) => steps,
        Ok(Steps::Taken) => return Ok(Ok(letter)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut case = Case {
        status: letter.status,
        assignee: letter.assignee.take(),
        updated_at: letter.updated_at,
        closed_at: letter.closed_at,
    };
    let mut save = |tx: &mut dyn Tx, from, case: &Case| save(tx, id, from, case, by);
    BOOK.take(tx, id.0, &mut case, deed, steps, &mut save)?;
    let act_of = deed.event.as_str();
    let told =
        json!({ "message": id, "act": act_of, "resolved_by": by, "assignee": case.assignee });
    audit::write(tx, &deed.actor, "dead_letter_act", &told)?;
    if deed.event == Event::Resolve {
        letter.resolved_by_message = by;
    }
    Ok(Ok(DeadLetter {
        status: case.status,
        assignee: case.assignee,
        updated_at: case.updated_at,
        closed_at: case.closed_at,
        ..letter
    }))
}

fn save(
    tx: &mut dyn Tx,
    id: MessageId,
    from: Status,
    case: &Case,
    by: Option<MessageId>,
) -> Result<()> {
    let params = vec![
        id.0.into(),
        from.as_str().into(),
        case.status.as_str().into(),
        case.assignee.clone().into(),
        case.updated_at.into(),
        case.closed_at.into(),
        by.filter(|_| case.status == Status::Resolved).map(|id| id.0).into(),
    ];
    tx.run(Call::one(&SAVE, params)).map(drop)
}

fn read(row: &Row) -> Result<DeadLetter> {
    let text = |index| row.maybe(index, |r, i| r.text(i).map(str::to_owned));
    Ok(DeadLetter {
        message: MessageId(row.uuid(0)?),
        original: row.json(1).unwrap_or_else(|_| unreadable()),
        from: row.text(2)?.to_owned(),
        to: row.text(3)?.to_owned(),
        kind: row.text(4)?.to_owned(),
        correlation_id: text(5)?,
        reason: row.named(6)?,
        detail: row.text(7)?.to_owned(),
        deliveries: row.int32(8)?,
        status: row.named(9)?,
        assignee: text(10)?,
        entered_at: row.time(11)?,
        updated_at: row.time(12)?,
        closed_at: row.maybe(13, Row::time)?,
        resolved_by_message: row.maybe(14, Row::uuid)?.map(MessageId),
    })
}
