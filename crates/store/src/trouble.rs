//! Trouble: tasks that ended poisoned or stuck, and what people did about them.
//!
//! Invariant: a task enters in the transaction in which it ends, by a trigger, whoever ended it.
//! Here people act on it: load, decide (`windlass_domain::trouble`), save under the lock, so that
//! of two who close it one is refused. Every act appends a row that nobody overwrites.
//! Absent: the replay. It makes a new task, and a resolution may name it; `approval/replay.rs` does
//! both at once.

use crate::audit;
use crate::error::{Rejection, Result};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use crate::workflow::{Book, MAX_NOTES, Steps, exists, note};
pub use crate::workflow::{Deed, Note};
use serde_json::json;
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::TaskId;
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::{FieldError, Refusal};
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_domain::trouble::{Case, Event, Status};

pub(crate) const COLUMNS: &str = "tr.task_id, tr.task_status, tr.queue, tr.agent, tr.status, \
    tr.assignee, tr.failure_count, st.error, tr.entered_at, tr.updated_at, tr.closed_at, \
    tr.resolved_by_task";

statement!(LOAD, "trouble/load");
statement!(shared SHOW, "trouble/show");
statement!(shared SAVE, "trouble/save");
statement!(shared APPEND, "trouble/append");
statement!(shared NOTES, "trouble/notes");
statement!(shared APPENDED, "trouble/appended");
statement!(shared IS_TASK, "trouble/is_task");
statement!(ordered LIST, "trouble/list");
statement!(ordered LIST_OPEN, "trouble/list_open");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&LOAD, &SHOW, &SAVE, &APPEND, &NOTES, &APPENDED, &IS_TASK];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST, &LIST_OPEN];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

/// Where the notes are kept.
static BOOK: Book = Book { what: "trouble", append: &APPEND, appended: &APPENDED };

/// A task that needs a person.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `trouble`.
pub struct Trouble {
    pub task_id: TaskId,
    pub task_status: State,
    pub queue: String,
    pub agent: Option<String>,
    pub status: Status,
    pub assignee: Option<String>,
    pub failure_count: i32,
    pub error: Option<TaskError>,
    pub entered_at: Timestamp,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub resolved_by_task: Option<TaskId>,
}

/// What somebody does about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// Which task.
    pub task: TaskId,
    /// What.
    pub event: Event,
    /// Who.
    pub actor: String,
    /// Whose it is from now on; whoever takes it up, unless it is somebody's already.
    pub assignee: Option<String>,
    /// What there is to say.
    pub note: Option<String>,
    /// The task that did the work after all.
    pub resolved_by_task: Option<TaskId>,
    /// The ids of the rows that this appends; see [`Deed`].
    pub note_ids: [Uuid; 2],
}

impl Act {
    /// An act with fresh ids.
    pub fn new(task: TaskId, event: Event, actor: impl Into<String>) -> Act {
        let Deed { event, actor, assignee, note, note_ids } = Deed::new(event, actor);
        Act { task, event, actor, assignee, note, resolved_by_task: None, note_ids }
    }

    fn deed(&self) -> Deed {
        Deed {
            event: self.event,
            actor: self.actor.clone(),
            assignee: self.assignee.clone(),
            note: self.note.clone(),
            note_ids: self.note_ids,
        }
    }
}

/// Which trouble. Everything that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of a trouble.
pub struct Filter {
    pub status: Vec<Status>,
    pub assignee: Option<String>,
    pub queue: Option<String>,
    pub agent: Option<String>,
}

impl Default for Filter {
    /// Everything that is not closed.
    fn default() -> Self {
        let open = Status::ALL.iter().copied().filter(|status| !status.is_closed());
        Filter { status: open.collect(), assignee: None, queue: None, agent: None }
    }
}

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

/// The repository of trouble; cheap to clone.
#[derive(Clone)]
pub struct Troubles {
    store: Store,
}

impl Troubles {
    /// The trouble of one database.
    pub fn new(store: Store) -> Troubles {
        Troubles { store }
    }

    /// One task's trouble with what was done about it, oldest first.
    pub async fn show(&self, task: TaskId) -> Result<Option<(Trouble, Vec<Note>)>> {
        let body = move |tx: &mut dyn Tx| {
            let found = tx.run(Call::one(&SHOW, vec![task.0.into()]))?;
            let Some(row) = found.first() else { return Ok(None) };
            let notes = tx.run(Call::one(&NOTES, vec![task.0.into(), MAX_NOTES.into()]))?;
            Ok(Some((read(row)?, notes.iter().map(note).collect::<Result<_>>()?)))
        };
        self.store.read("trouble_show", body).await
    }

    /// A page of trouble, oldest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Trouble>, Option<Cursor>)> {
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of trouble, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<Trouble>, Option<Cursor>)> {
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
                filter.queue.clone().into(),
                filter.agent.clone().into(),
            ];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let found: Vec<Trouble> = self.store.read("trouble_list", body).await?;
        Ok(part.cut(found, |trouble| (trouble.entered_at, trouble.task_id.0)))
    }

    /// Somebody acts; the trouble as it stands then.
    pub async fn act(&self, act: Act) -> Result<Trouble, Rejection> {
        let body = move |tx: &mut dyn Tx| carry_out(tx, &act);
        Ok(self.store.write("trouble_act", body).await??)
    }
}

/// Whether somebody may do this now, or has done it by an earlier try of the same call.
pub(crate) fn check(tx: &mut dyn Tx, act: &Act) -> Result<Result<(), Refusal>> {
    let found = tx.run(Call::one(&LOAD, vec![act.task.0.into()]))?;
    let Some(trouble) = found.first().map(read).transpose()? else {
        return Ok(Err(Refusal::Unknown { what: "task in the poison queue" }));
    };
    Ok(BOOK.steps(tx, trouble.status, &act.deed())?.map(drop))
}

pub(crate) fn carry_out(tx: &mut dyn Tx, act: &Act) -> Result<Result<Trouble, Refusal>> {
    let found = tx.run(Call::one(&LOAD, vec![act.task.0.into()]))?;
    let Some(mut trouble) = found.first().map(read).transpose()? else {
        return Ok(Err(Refusal::Unknown { what: "task in the poison queue" }));
    };
    let deed = act.deed();
    let steps = match BOOK.steps(tx, trouble.status, &deed)? {
        Ok(Steps::Take(steps)) => steps,
        Ok(Steps::Taken) => return Ok(Ok(trouble)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(other) = act.resolved_by_task
        && (other == act.task || !exists(tx, &IS_TASK, other.0)?)
    {
        return Ok(Err(no_such_task()));
    }
    let mut case = Case {
        status: trouble.status,
        assignee: trouble.assignee.take(),
        updated_at: trouble.updated_at,
        closed_at: trouble.closed_at,
    };
    let (task, by) = (act.task, act.resolved_by_task);
    let mut save = |tx: &mut dyn Tx, from, case: &Case| save(tx, task, from, case, by);
    BOOK.take(tx, task.0, &mut case, &deed, steps, &mut save)?;
    let act_of = act.event.as_str();
    let told = json!({ "task": task, "act": act_of, "resolved_by": by, "assignee": case.assignee });
    audit::write(tx, &act.actor, "poison_act", &told)?;
    if act.event == Event::Resolve {
        trouble.resolved_by_task = by;
    }
    Ok(Ok(Trouble {
        status: case.status,
        assignee: case.assignee,
        updated_at: case.updated_at,
        closed_at: case.closed_at,
        ..trouble
    }))
}

fn no_such_task() -> Refusal {
    let detail = "must be the id of another task, the one that did the work".into();
    let pointer = "/resolved_by_task".into();
    Refusal::Invalid(vec![FieldError { pointer, code: "unknown_value", detail }])
}

fn save(
    tx: &mut dyn Tx,
    task: TaskId,
    from: Status,
    case: &Case,
    by: Option<TaskId>,
) -> Result<()> {
    let params = vec![
        task.0.into(),
        from.as_str().into(),
        case.status.as_str().into(),
        case.assignee.clone().into(),
        case.updated_at.into(),
        case.closed_at.into(),
        by.filter(|_| case.status == Status::Resolved).map(|task| task.0).into(),
    ];
    tx.run(Call::one(&SAVE, params)).map(drop)
}

fn read(row: &Row) -> Result<Trouble> {
    let text = |index| row.maybe(index, |r, i| r.text(i).map(str::to_owned));
    let damaged = |e: serde_json::Error| crate::error::Error::Corrupt(format!("an error: {e}"));
    let error = row.maybe(7, Row::json)?;
    Ok(Trouble {
        task_id: TaskId(row.uuid(0)?),
        task_status: row.named(1)?,
        queue: row.text(2)?.to_owned(),
        agent: text(3)?,
        status: row.named(4)?,
        assignee: text(5)?,
        failure_count: row.int32(6)?,
        error: error.map(serde_json::from_value).transpose().map_err(damaged)?,
        entered_at: row.time(8)?,
        updated_at: row.time(9)?,
        closed_at: row.maybe(10, Row::time)?,
        resolved_by_task: row.maybe(11, Row::uuid)?.map(TaskId),
    })
}
