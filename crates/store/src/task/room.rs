//! How much room the limits leave, counted under a lock from what the database holds.
//!
//! Invariant: whatever becomes active or is submitted under a limit was counted in the same
//! transaction, after the lock that all others who do so take as well. Finishing takes no lock and
//! only makes room, so a count is never too low.

use crate::error::{Error, Result};
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet};
use windlass_domain::limit::{self, Bound, Count, Counts, Key};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

statement!(HOLD, "limit/hold");
statement!(TAKE_RATE, "limit/take_rate");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&HOLD, &TAKE_RATE];

/// What is serialized.
#[derive(Clone, Copy)]
pub(super) enum Lock {
    /// Submits, against each other.
    Pending = 1,
    /// Claims, against each other.
    Active = 2,
    /// Both, submits first.
    Both = 3,
}

/// What is held of some keys, for as long as the transaction lasts.
#[derive(Default)]
pub(super) struct Room {
    counts: Counts,
    /// Keys that turned out to have no room.
    full: BTreeSet<Key>,
    /// Which locks are held.
    locked: u8,
    /// How many were handed out of each key with a rate.
    rated: BTreeMap<Key, (i64, i64)>,
}

impl Room {
    /// Takes the lock and counts what bears on it. Keys that were counted before are not counted
    /// again: nobody else adds to them while the lock is held. Where nothing binds, nobody is
    /// locked out.
    pub(super) fn hold<'b>(
        &mut self,
        tx: &mut dyn Tx,
        lock: Lock,
        bounds: impl IntoIterator<Item = &'b [Bound]>,
    ) -> Result<()> {
        let bears = |bound: &&Bound| match lock {
            Lock::Pending => bound.max_pending.is_some(),
            Lock::Active => bound.binds_claims(),
            Lock::Both => true,
        };
        let bounds: Vec<&Bound> = bounds.into_iter().flatten().filter(bears).collect();
        if bounds.is_empty() {
            return Ok(());
        }
        if self.locked & lock as u8 != lock as u8 {
            // What was counted before a lock may have changed until it was taken.
            self.counts.clear();
        }
        let mut wanted: BTreeMap<&Key, Option<i64>> = BTreeMap::new();
        for bound in bounds {
            if !self.counts.contains_key(&bound.key) {
                wanted.insert(&bound.key, bound.rate.map(|rate| rate.period_ms));
            }
        }
        if wanted.is_empty() && self.locked & lock as u8 == lock as u8 {
            return Ok(());
        }
        self.locked |= lock as u8;
        let keys: Vec<String> = wanted.keys().map(|key| key.text()).collect();
        let rows = tx.run(Call::one(&HOLD, vec![Value::Int(lock as i64), keys.into()]))?;
        for row in &rows {
            let (key, count, began) = read(row)?;
            let taken = match wanted.get(&key).copied().flatten() {
                Some(period_ms) if tx.now()? < began.plus_ms(period_ms) => count.taken,
                // No rate, or a period that is over.
                _ => 0,
            };
            self.counts.insert(key, Count { taken, ..count });
        }
        Ok(())
    }

    /// Takes the lock of claims, whatever binds.
    pub(super) fn lock_claims(&mut self, tx: &mut dyn Tx) -> Result<()> {
        let lock = Lock::Active as u8;
        if self.locked & lock == 0 {
            self.counts.clear();
            self.locked |= lock;
            let none: Vec<String> = Vec::new();
            tx.run(Call::one(&HOLD, vec![Value::Int(lock.into()), none.into()]))?;
        }
        Ok(())
    }

    /// Whether one more task of these bounds may become active; it takes its place.
    pub(super) fn admit(&mut self, bounds: &[Bound]) -> bool {
        let unknown = |bound: &Bound| bound.binds_claims() && !self.counts.contains_key(&bound.key);
        if bounds.iter().any(unknown) {
            return false;
        }
        if limit::admit(1, bounds, &self.counts) < 1 {
            let alone =
                |bound: &&Bound| limit::admit(1, std::slice::from_ref(*bound), &self.counts) < 1;
            self.full.extend(bounds.iter().filter(alone).map(|bound| bound.key.clone()));
            return false;
        }
        limit::occupy(bounds, &mut self.counts);
        true
    }

    /// Whether one more task of these bounds may be submitted; it takes its place.
    pub(super) fn accept(&mut self, bounds: &[Bound]) -> std::result::Result<(), Refusal> {
        limit::accept(1, bounds, &self.counts)?;
        for bound in bounds {
            self.counts.entry(bound.key.clone()).or_default().pending += 1;
        }
        Ok(())
    }

    /// So many tasks of these bounds were handed out.
    pub(super) fn took(&mut self, bounds: &[Bound], count: i64) {
        for bound in bounds {
            if let Some(rate) = bound.rate {
                self.rated.entry(bound.key.clone()).or_insert((rate.period_ms, 0)).1 += count;
            }
        }
    }

    /// Whether rates have to be written down.
    pub(super) fn rates<'a>(&mut self, now: Option<Timestamp>) -> Option<Call<'a>> {
        let rated = std::mem::take(&mut self.rated);
        let item = |(key, (period, count)): (Key, (i64, i64))| {
            vec![key.text().into(), period.into(), count.into()]
        };
        let items: Vec<_> = rated.into_iter().filter(|(_, (_, n))| *n > 0).map(item).collect();
        (!items.is_empty()).then(|| Call::each(&TAKE_RATE, vec![now.into()], items))
    }

    /// The keys that had no room.
    pub(super) fn full(&self) -> impl Iterator<Item = &Key> {
        self.full.iter()
    }
}

pub(super) fn read(row: &Row) -> Result<(Key, Count, Timestamp)> {
    let text = row.text(0)?;
    let key = Key::from_text(text).ok_or_else(|| Error::Corrupt(format!("a limit of {text}")))?;
    let taken = row.maybe(4, Row::int)?.unwrap_or_default();
    let began = row.maybe(3, Row::time)?.unwrap_or(Timestamp::EPOCH);
    Ok((key, Count { active: row.int(1)?, pending: row.int(2)?, taken }, began))
}
