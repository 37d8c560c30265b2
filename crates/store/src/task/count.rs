//! Counts for a dashboard. They read the small indexes of what is alive, the tally of what ended,
//! and the end of the history since the tally was last folded; nothing scans finished tasks.

use super::Tasks;
use super::recount;
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use std::collections::BTreeMap;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;

statement!(shared COUNT_READY, "task/count_ready");
statement!(shared COUNT_DUE, "task/count_due");
statement!(shared COUNT_HELD, "task/count_held");
statement!(shared COUNT_PARKED, "task/count_parked");
statement!(PREFER_INDEXES, "task/prefer_indexes");
statement!(COUNT_ENDED, "task/count_ended");
statement!(FOLD_TALLY, "task/fold_tally");
statement!(MOVE_TALLY, "task/move_tally");
statement!(FOLD_COUNTS, "limit/fold");
statement!(REMOVE_LANES, "lane/remove");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[
    &COUNT_READY,
    &COUNT_DUE,
    &COUNT_HELD,
    &COUNT_PARKED,
    &PREFER_INDEXES,
    &COUNT_ENDED,
    &FOLD_TALLY,
    &MOVE_TALLY,
    &FOLD_COUNTS,
    &REMOVE_LANES,
];

/// For reads of small indexes over large tables: whoever has no statistics might read the table.
pub(super) fn prefer_indexes(tx: &mut dyn Tx) -> Result<()> {
    tx.run(Call::one(&PREFER_INDEXES, vec![])).map(drop)
}

/// So many events are added to the tally in one transaction: on SQLite everybody waits for it.
const FOLDED_AT_ONCE: i64 = 50_000;

/// So many lanes may hold nothing.
const IDLE_LANES: i64 = 1_000;

/// How many tasks there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By state; ended tasks are counted from the beginning, also those that retention removed.
    /// Ledger delegations that are pending are not in line and not counted.
    pub by_status: BTreeMap<State, i64>,
    /// What could be claimed now, by queue and profile.
    pub ready: Vec<(String, Profile, i64)>,
}

impl Tasks {
    /// How many tasks there are, by state and by lane.
    pub async fn counts(&self) -> Result<Counts> {
        self.store.read("counts", counts).await
    }

    /// Adds to the tally what ended since the last call; a duty calls it every few seconds, because
    /// whoever counts reads all events that are not in it yet.
    pub async fn fold_tally(&self) -> Result<()> {
        self.fold_tally_by(FOLDED_AT_ONCE).await
    }

    /// The same with another number of events in one transaction; tests choose it.
    #[doc(hidden)]
    pub async fn fold_tally_by(&self, at_once: i64) -> Result<()> {
        let fold = move |tx: &mut dyn Tx| {
            let mut said = tx.run(Call::one(&FOLD_TALLY, vec![at_once.into()]))?;
            said.extend(tx.run(Call::one(&MOVE_TALLY, vec![at_once.into()]))?);
            said.iter().try_fold(false, |more, row| Ok(more || row.bool(0)?))
        };
        while self.store.write("fold_tally", fold).await? {}
        Ok(())
    }

    /// Adds up what connections that are gone have counted for the limits, and removes lanes that
    /// only make counting slow; a duty calls it now and then.
    pub async fn fold_counts(&self) -> Result<()> {
        let fold = |tx: &mut dyn Tx| {
            recount::be_alone(tx)?;
            tx.run(Call::one(&FOLD_COUNTS, vec![]))?;
            let removed = tx.run(Call::one(&REMOVE_LANES, vec![IDLE_LANES.into()]))?;
            removed.iter().map(|row| row.int(0)).collect::<Result<Vec<i64>>>()
        };
        let removed = self.store.write("fold_counts", fold).await?;
        self.lanes.unlearn(&removed);
        Ok(())
    }
}

fn counts(tx: &mut dyn Tx) -> Result<Counts> {
    let mut counts = Counts::default();
    prefer_indexes(tx)?;
    let mut ready = BTreeMap::new();
    for row in tx.run(Call::one(&COUNT_READY, vec![]))? {
        let count = row.int(3)?;
        *counts.by_status.entry(row.named(0)?).or_default() += count;
        *ready.entry((row.text(1)?.to_owned(), row.named(2)?)).or_default() += count;
    }
    for statement in [&COUNT_DUE, &COUNT_HELD, &COUNT_PARKED, &COUNT_ENDED] {
        for row in tx.run(Call::one(statement, vec![]))? {
            *counts.by_status.entry(row.named(0)?).or_default() += row.int(1)?;
        }
    }
    counts.by_status.retain(|_, count| *count != 0);
    counts.ready = ready.into_iter().map(|((queue, profile), n)| (queue, profile, n)).collect();
    Ok(counts)
}
