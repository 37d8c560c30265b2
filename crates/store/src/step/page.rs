//! Steps in parts that are bounded in number and in bytes: a result may have a megabyte, and a task
//! thousands of results.

use super::{COLUMN_COUNT, PAGE, Step, Steps, for_people, step};
use crate::error::Result;
use crate::tx::{Call, Tx};
use crate::value::Value;
use windlass_domain::id::TaskId;
use windlass_domain::page::{Order, Part};

/// How much of results, inputs and errors one page carries.
pub const PAGE_BYTES: i64 = 8 * 1024 * 1024;

/// The next steps of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPage {
    /// In the order that was asked for; not empty as long as there is one more.
    pub steps: Vec<Step>,
    /// Whether there are none after these.
    pub complete: bool,
    /// How many bytes of results, inputs and errors they were read from, about.
    pub(crate) bytes: i64,
}

/// The first steps of a task, at most `limit` of them and `bytes` of what they hold.
pub(crate) fn first(tx: &mut dyn Tx, task: TaskId, limit: usize, bytes: i64) -> Result<StepPage> {
    page(tx, task, &Part::new(Order::Ascending, None, limit), bytes)
}

/// A part of a task's steps that holds at most `bytes`.
fn page(tx: &mut dyn Tx, task: TaskId, part: &Part<i64>, bytes: i64) -> Result<StepPage> {
    let limit = Value::Int(part.limit as i64);
    let params = vec![task.0.into(), part.begin().into(), limit, bytes.into()];
    let rows = tx.run(Call::one(PAGE.in_order(part.order), params))?;
    let Some(first) = rows.first() else {
        return Ok(StepPage { steps: Vec::new(), complete: true, bytes: 0 });
    };
    let (complete, bytes) = (first.bool(COLUMN_COUNT)?, first.int(COLUMN_COUNT + 1)?);
    Ok(StepPage { steps: rows.iter().map(step).collect::<Result<_>>()?, complete, bytes })
}

impl Steps {
    /// A task's steps after `after_seq` (0: from the first), as many as a page carries and at most
    /// `limit`.
    pub async fn page(&self, task: TaskId, after_seq: i64, limit: i64) -> Result<StepPage> {
        let limit = usize::try_from(limit).unwrap_or_default();
        self.part(task, Part::new(Order::Ascending, Some(after_seq), limit)).await
    }

    /// A task's steps in either order, as many as a page carries.
    pub async fn part(&self, task: TaskId, part: Part<i64>) -> Result<StepPage> {
        let body = move |tx: &mut dyn Tx| {
            let found = page(tx, task, &part, PAGE_BYTES)?;
            Ok(StepPage { steps: for_people(tx, found.steps)?, ..found })
        };
        self.store.read("step_page", body).await
    }
}
