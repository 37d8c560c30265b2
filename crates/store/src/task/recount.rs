//! Whether the counts that limits go by are those of the tasks. The database counts by itself, in
//! the transaction that changes a task; whoever writes counts by hand makes them drift, and then a
//! limit lets too much through, or too little, for ever.
//!
//! Invariant: a difference is seen in one snapshot and mended by adding it, so nobody who changes
//! tasks meanwhile waits, and nothing is lost of what they count.

use super::Tasks;
use super::count;
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

statement!(DRIFT, "limit/drift");
statement!(MEND, "limit/mend");
statement!(ALONE, "limit/alone");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&DRIFT, &MEND, &ALONE];

/// A look walks over all that is alive: no more than a hundredth of the time goes into it.
const REST: u32 = 100;

/// A count that was not true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// What was counted.
    pub what: String,
    /// Active and pending tasks as they were counted.
    pub counted: (i64, i64),
    /// How many there are.
    pub there_are: (i64, i64),
    key: String,
}

/// When somebody last looked, and how long that took.
#[derive(Default)]
pub(super) struct Rest(Mutex<Option<(Instant, Duration)>>);

impl Rest {
    fn is_over(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|(at, took)| at.elapsed() >= took * REST)
    }

    fn begins(&self, took: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), took));
    }
}

impl Tasks {
    /// Mends the counts if it is time to look again; a duty calls it now and then.
    pub async fn recount(&self) -> Result<Vec<Drift>> {
        if !self.recounted.is_over() {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let mended = self.mend_counts().await;
        self.recounted.begins(began.elapsed());
        mended
    }

    /// Makes the counts those of the tasks; tells which were not.
    pub async fn mend_counts(&self) -> Result<Vec<Drift>> {
        if self.store.read("drift", drift).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.store.write("mend_counts", mend).await
    }
}

fn mend(tx: &mut dyn Tx) -> Result<Vec<Drift>> {
    be_alone(tx)?;
    let found = drift(tx)?;
    for drift in &found {
        let active = drift.there_are.0 - drift.counted.0;
        let pending = drift.there_are.1 - drift.counted.1;
        let params = vec![drift.key.clone().into(), active.into(), pending.into()];
        tx.run(Call::one(&MEND, params))?;
    }
    Ok(found)
}

/// Nobody else folds or mends until the transaction ends. A statement of its own: what follows sees
/// what whoever was alone before has written.
pub(super) fn be_alone(tx: &mut dyn Tx) -> Result<()> {
    tx.run(Call::one(&ALONE, vec![])).map(drop)
}

fn drift(tx: &mut dyn Tx) -> Result<Vec<Drift>> {
    count::prefer_indexes(tx)?;
    let rows = tx.run(Call::one(&DRIFT, vec![]))?;
    let read = |row: &crate::value::Row| {
        Ok(Drift {
            key: row.text(0)?.to_owned(),
            what: row.text(1)?.to_owned(),
            counted: (row.int(2)?, row.int(3)?),
            there_are: (row.int(4)?, row.int(5)?),
        })
    };
    rows.iter().map(read).collect()
}
