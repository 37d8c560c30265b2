//! The first delta of an attempt: a heartbeat that says since when text is coming, and on which
//! node it is.
//!
//! Invariant: one write an attempt and node, whatever the number of deltas.

use super::Tasks;
use super::cold::{self, Ask};
use super::hold::sorted;
use super::hot::Hot;
use crate::error::{Error, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::Row;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ChangeId, LeaseId, TaskId};

statement!(BEGIN_STREAM, "task/begin_stream");
statement!(BEGIN_SOURCE, "delta/begin");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&BEGIN_STREAM, &BEGIN_SOURCE];

/// A holder's first delta.
#[derive(Clone, Debug)]
pub struct BeginStream {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// The session's own lease length; the profile's if `None`.
    pub lease_ms: Option<i64>,
    /// Who has the deltas.
    pub node: Uuid,
    /// The id of the history row, should this start the task; made before the first try.
    pub change: ChangeId,
}

/// Whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBegun {
    /// The attempt.
    pub attempt: i32,
    /// How long the lease holds from this sign of life on.
    pub lease_ms: i64,
}

impl Tasks {
    /// Notes that the text of attempts begins. Guarded by the lease like a heartbeat.
    pub async fn begin_stream(&self, item: BeginStream) -> Outcome<StreamBegun> {
        let begun = self.streams.join(vec![item]).await.pop();
        begun.unwrap_or_else(|| Err(cold::no_answer().into()))
    }
}

pub(super) fn stream_group(store: Store, bounds: Bounds) -> Group<BeginStream, StreamBegun> {
    Group::new(
        "begin_stream",
        bounds,
        |_| 128,
        move |items| {
            let store = store.clone();
            async move { STREAMS.run(&store, Arc::new(items)).await }
        },
    )
}

const STREAMS: Hot<BeginStream, StreamBegun> = Hot {
    name: "begin_stream",
    lane: Lane::Write,
    id: |item| item.task.0,
    run: begin,
    missed: |store, items| {
        Box::pin(async move {
            let asks = items.into_iter().map(|i| Ask {
                task: i.task,
                command: Command::Heartbeat { lease_id: i.lease, lease_ms: i.lease_ms },
                actor: "stream".into(),
                reason: None,
                change: i.change,
            });
            let asked = cold::ask(&store, None, Lane::Write, "stream_again", asks.collect());
            // The rule says why not. Should it say yes after all, the caller tries again.
            let busy = || Error::Busy("the task was being changed; post again".into());
            let answer = |o: Outcome<_>| o.and_then(|_| Err(busy().into()));
            asked.await.into_iter().map(answer).collect()
        })
    },
};

fn begin(tx: &mut dyn Tx, items: &[&BeginStream]) -> Result<HashMap<Uuid, StreamBegun>> {
    let items = sorted(items, |i| i.task);
    let streams = (items.iter())
        .map(|i| vec![i.task.0.into(), i.lease.0.into(), i.change.0.into(), i.lease_ms.into()]);
    let sources =
        items.iter().map(|i| vec![i.task.0.into(), i.change.0.into(), i.node.into()]).collect();
    let now = tx.fixed_now();
    let calls = vec![
        Call::each(&BEGIN_STREAM, vec![now.into()], streams.collect()),
        Call::each(&BEGIN_SOURCE, vec![now.into()], sources),
    ];
    let rows = tx.run_and_commit(calls)?;
    let begun = |row: &Row| {
        let lease_ms = row.time(2)?.since_ms(row.time(3)?);
        Ok((row.uuid(0)?, StreamBegun { attempt: row.int32(1)?, lease_ms }))
    };
    rows[0].iter().map(begun).collect()
}
