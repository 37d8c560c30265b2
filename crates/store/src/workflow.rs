//! What people do about things that need them: load, decide, save under the lock, append a note.
//!
//! Tasks in trouble and dead letters have the same workflow (`windlass_domain::trouble`); each
//! brings its own tables.
//! Invariant: of two who close the same thing one is refused, and every act appends a row that
//! nobody overwrites.

use crate::error::Result;
use crate::statement::Statement;
use crate::tx::{Call, Tx};
use crate::value::Row;
use uuid::Uuid;
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;
use windlass_domain::trouble::{Case, Event, Status, decide};

/// How many notes are shown with one thing.
pub(crate) const MAX_NOTES: i64 = 1_000;

/// What somebody did or noted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns of `trouble_note` and `dead_letter_note`.
pub struct Note {
    pub id: Uuid,
    pub at: Timestamp,
    pub author: String,
    pub event: Event,
    pub note: Option<String>,
    /// Whose it was from then on, if that was said.
    pub assignee: Option<String>,
}

/// What somebody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// What.
    pub event: Event,
    /// Who.
    pub actor: String,
    /// Whose it is from now on; whoever takes it up, unless it is somebody's already.
    pub assignee: Option<String>,
    /// What there is to say.
    pub note: Option<String>,
    /// The ids of the rows that this appends, made before the first try; the first is that of
    /// what was asked for, the second that of a step on the way.
    pub note_ids: [Uuid; 2],
}

impl Deed {
    /// A deed with fresh ids.
    pub fn new(event: Event, actor: impl Into<String>) -> Deed {
        // In the order in which they are written: notes of one instant are read by id.
        let on_the_way = Uuid::now_v7();
        let note_ids = [Uuid::now_v7(), on_the_way];
        Deed { event, actor: actor.into(), assignee: None, note: None, note_ids }
    }
}

/// Where the notes of one sort of things are kept.
pub(crate) struct Book {
    pub what: &'static str,
    pub append: &'static Statement,
    pub appended: &'static Statement,
}

/// What a deed amounts to.
pub(crate) enum Steps {
    /// These steps, in this order.
    Take(Vec<(Event, Status)>),
    /// An earlier try of the same call took them.
    Taken,
}

impl Book {
    /// The steps of a deed, or why it is refused.
    pub(crate) fn steps(
        &self,
        tx: &mut dyn Tx,
        from: Status,
        deed: &Deed,
    ) -> Result<Result<Steps, Refusal>> {
        match decide(from, deed.event) {
            Ok(steps) => Ok(Ok(Steps::Take(steps))),
            Err(_) if exists(tx, self.appended, deed.note_ids[0])? => Ok(Ok(Steps::Taken)),
            Err(Refusal::IllegalStep { status, event, allowed, .. }) => {
                Ok(Err(Refusal::IllegalStep { what: self.what, status, event, allowed }))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Takes the steps: `save` writes the case each time it changed.
    pub(crate) fn take(
        &self,
        tx: &mut dyn Tx,
        subject: Uuid,
        case: &mut Case,
        deed: &Deed,
        steps: Vec<(Event, Status)>,
        save: &mut dyn FnMut(&mut dyn Tx, Status, &Case) -> Result<()>,
    ) -> Result<()> {
        let now = tx.now()?;
        // The last step has the first id, so that one look tells whether all were carried out.
        let last = steps.len() - 1;
        for (index, (event, to)) in steps.into_iter().enumerate() {
            let id = deed.note_ids[last - index];
            let from = case.status;
            case.step(event, to, &deed.actor, deed.assignee.as_deref(), now);
            // What is closed never changes, and a note changes nothing.
            if event != Event::Note {
                save(tx, from, case)?;
            }
            // What there is to say belongs to what was asked for, not to a step on the way.
            let said = deed.note.clone().filter(|_| event == deed.event);
            let params = vec![
                id.into(),
                subject.into(),
                now.into(),
                deed.actor.as_str().into(),
                event.as_str().into(),
                said.into(),
                case.assignee.clone().filter(|_| names_somebody(event)).into(),
            ];
            tx.run(Call::one(self.append, params))?;
        }
        Ok(())
    }
}

/// Whether an act says whose something is.
fn names_somebody(event: Event) -> bool {
    matches!(event, Event::Assign | Event::Investigate)
}

pub(crate) fn exists(tx: &mut dyn Tx, statement: &Statement, id: Uuid) -> Result<bool> {
    Ok(!tx.run(Call::one(statement, vec![id.into()]))?.is_empty())
}

pub(crate) fn note(row: &Row) -> Result<Note> {
    Ok(Note {
        id: row.uuid(0)?,
        at: row.time(1)?,
        author: row.text(2)?.to_owned(),
        event: row.named(3)?,
        note: row.maybe(4, |r, i| r.text(i).map(str::to_owned))?,
        assignee: row.maybe(5, |r, i| r.text(i).map(str::to_owned))?,
    })
}
