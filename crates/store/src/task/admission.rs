//! Whether a task would be taken, asked without submitting it.
//!
//! Invariant: nothing is written or locked, so the answer was true a moment ago and promises
//! nothing. It is given by the rules that submits ask.

use super::Tasks;
use super::common::Common;
use super::submit::{Submitted, look_up_in};
use crate::error::{Rejection, Result};
use crate::group::Outcome;
use crate::limit;
use crate::tx::Tx;
use windlass_domain::limit::accept;
use windlass_domain::task::NewTask;

impl Tasks {
    /// Whether a submit of this task would be taken now: as a new one (`None`), or as one that was
    /// taken before.
    pub async fn admission(&self, task: NewTask) -> Outcome<Option<Submitted>> {
        let limits = self.lanes.limits();
        let bounds = limits.map(|limits| Common::from(&task).bounds(&limits)).unwrap_or_default();
        let body = move |tx: &mut dyn Tx| -> Result<Outcome<Option<Submitted>>> {
            if let Some(known) = look_up_in(tx, &task)? {
                return Ok(known.map(Some));
            }
            let counts = limit::count(tx, bounds.iter().map(|bound| &bound.key))?;
            Ok(accept(1, &bounds, &counts).map(|()| None).map_err(Rejection::from))
        };
        self.store.read("admission", body).await?
    }
}
