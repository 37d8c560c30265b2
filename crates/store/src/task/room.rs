//! How much room the limits leave, counted under a lock from what the database holds.
//!
//! Invariant: whatever becomes active or is submitted under a limit was counted in the same
//! transaction, after the lock that all others who do so take as well. Finishing takes no lock and
//! only makes room, so a count is never too low.
//! Invariant: the lock is shared only by transactions that add little, while there is room for as
//! many of them as there can be; `windlass_share` says why that is enough.

use crate::error::{CROWDED, Error, Result};
use crate::statement;
use crate::statement::{Dialect, Statement};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet};
use windlass_domain::limit::{self, Bound, Count, Counts, Key};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

statement!(HOLD, "limit/hold");
statement!(TAKE_RATE, "limit/take_rate");
/// SQLite has one writer, and nobody to share with.
static SHARE: Statement = Statement::new(
    "limit/share",
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/limit/hold.sqlite.sql")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/limit/share.postgres.sql")),
);
/// Only PostgreSQL is asked.
static SHARE_OR_FAIL: Statement = Statement::new(
    "limit/share_or_fail",
    "",
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/limit/share_or_fail.postgres.sql")),
);
/// On SQLite counting takes no lock of its own anyway.
static HELD: Statement = Statement::new(
    "limit/held",
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/limit/hold.sqlite.sql")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/limit/held.postgres.sql")),
);

/// All of the above.
pub(super) static STATEMENTS: &[&Statement] = &[&HOLD, &TAKE_RATE, &SHARE, &SHARE_OR_FAIL, &HELD];

/// The most tasks that a transaction adds which shares the lock. All nodes must agree on it.
const MOST_SHARED: usize = 1_000;

/// So many transactions share the lock at most: the seats of `windlass_sit`.
pub const SEATS: i64 = 8;

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

impl Lock {
    fn submits(self) -> bool {
        self as u8 & Lock::Pending as u8 != 0
    }

    fn claims(self) -> bool {
        self as u8 & Lock::Active as u8 != 0
    }

    /// The limits that bear on it, on active and on pending tasks; those that do not are endless.
    fn limits(self, bound: &Bound) -> (i64, i64) {
        let active = bound.max_active.filter(|_| self.claims());
        let pending = bound.max_pending.filter(|_| self.submits());
        (active.unwrap_or(i64::MAX), pending.unwrap_or(i64::MAX))
    }
}

/// The transaction shares a lock that it turns out to need for itself. Two who share it cannot both
/// get it, so the transaction ends here; [`Room::alone`] is for its next try.
fn crowded() -> Error {
    Error::Busy(CROWDED.into())
}

/// Whether a transaction must be tried again with its locks for itself.
pub(super) fn is_crowded(error: &Error) -> bool {
    matches!(error, Error::Busy(detail) if detail == CROWDED)
}

/// Whether there is room for all who may share the lock.
fn is_ample(bound: &Bound, lock: Lock, count: Count, margin: i64) -> bool {
    let (active, pending) = lock.limits(bound);
    limit::room(active, count.active) >= margin && limit::room(pending, count.pending) >= margin
}

/// What a transaction may count on that takes its lock in the flight that commits.
#[derive(Clone, Copy, Default)]
pub(super) struct Hope {
    /// There was plenty of room lately.
    pub(super) is_roomy: bool,
    /// The rules that it goes by: once it has waited for the lock they must be the newest still.
    /// `None`: whatever they are.
    pub(super) version: Option<i64>,
}

/// What is held of some keys, for as long as the transaction lasts.
pub(super) struct Room {
    /// The transaction adds so little that it may share its locks.
    may_share: bool,
    /// Whether to count on plenty of room.
    hope: Hope,
    /// The statement that writes shares the lock by itself.
    folds: bool,
    /// What that statement is to be told.
    unsent: Option<Vec<Value>>,
    /// How far from its limit a key must be for whoever shares a lock.
    margin: i64,
    counts: Counts,
    /// Keys that turned out to have no room.
    full: BTreeSet<Key>,
    /// Which locks are held.
    locked: u8,
    /// Which of them are shared.
    shared: u8,
    /// When the periods end that run, or begin now.
    periods: BTreeMap<Key, Timestamp>,
    /// How many were handed out of each key with a rate.
    rated: BTreeMap<Key, (i64, i64)>,
}

impl Room {
    /// For a transaction that adds at most so many tasks.
    pub(super) fn adding(count: usize) -> Room {
        Room {
            may_share: count <= MOST_SHARED,
            hope: Hope::default(),
            folds: false,
            unsent: None,
            margin: 0,
            counts: Counts::new(),
            full: BTreeSet::new(),
            locked: 0,
            shared: 0,
            periods: BTreeMap::new(),
            rated: BTreeMap::new(),
        }
    }

    /// Counts on plenty of room, where there was plenty lately: the lock is taken and the counts
    /// are looked at in the round trip of the statement that follows. Where the hope is vain, that
    /// statement fails, and nothing is written; [`is_crowded`] tells.
    pub(super) fn hoping(self, hope: Hope) -> Room {
        Room { hope, ..self }
    }

    /// A hoped-for lock is shared by the very statement that writes, which must be told
    /// [`Room::share`]: on PostgreSQL a lone submit is one statement then, and its own transaction.
    /// With BEGIN, the lock and COMMIT around it the server would send, and we would wake for, four
    /// answers.
    pub(super) fn folding(self) -> Room {
        Room { folds: true, ..self }
    }

    /// The lock that the statement which writes is to share: the six parameters of
    /// `limit/share_or_fail`, all NULL where there is none, or it is had already.
    pub(super) fn share(&mut self) -> Vec<Value> {
        self.unsent.take().unwrap_or_else(|| vec![Value::Null; 6])
    }

    /// Shares the lock before another statement than one that is told of it.
    pub(super) fn send_ahead(&mut self, tx: &mut dyn Tx) -> Result<()> {
        match self.unsent.take() {
            Some(values) => tx.ahead(Call::one(&SHARE_OR_FAIL, values)),
            None => Ok(()),
        }
    }

    /// For a transaction that must not share its locks.
    pub(super) fn alone() -> Room {
        Room::adding(usize::MAX)
    }

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
        let mut wanted: BTreeMap<&Key, &Bound> = BTreeMap::new();
        for bound in bounds {
            if !self.counts.contains_key(&bound.key) {
                wanted.insert(&bound.key, bound);
            }
        }
        let is_locked = self.locked & lock as u8 == lock as u8;
        if wanted.is_empty() && is_locked {
            return Ok(());
        }
        if self.hope(tx, lock, &wanted)? {
            return Ok(());
        }
        let rows = self.count(tx, lock, is_locked, &wanted)?;
        self.locked |= lock as u8;
        for row in &rows {
            let (key, count, began) = read(row)?;
            let Some(bound) = wanted.get(&key) else { continue };
            // What is nearly full is for those who have the lock alone.
            if self.shares(lock) && !is_ample(bound, lock, count, self.margin) {
                return Err(crowded());
            }
            let taken = match bound.rate {
                None => 0,
                Some(rate) => {
                    let (now, end) = (tx.now()?, began.plus_ms(rate.period_ms));
                    // A period that is over, or that a clock has put into the future: the next one
                    // begins with what is taken now.
                    let is_over = end <= now || began > now;
                    let end = if is_over { now.plus_ms(rate.period_ms) } else { end };
                    self.periods.insert(key.clone(), end);
                    if is_over { 0 } else { count.taken }
                }
            };
            self.counts.insert(key, Count { taken, ..count });
        }
        Ok(())
    }

    /// Shares the lock unseen, if everything speaks for it. What is added fits for sure then, so
    /// nothing needs to be known of what is held.
    fn hope(
        &mut self,
        tx: &mut dyn Tx,
        lock: Lock,
        wanted: &BTreeMap<&Key, &Bound>,
    ) -> Result<bool> {
        let margin = SEATS * MOST_SHARED as i64;
        let is_wide = |bound: &&Bound| {
            let (active, pending) = lock.limits(bound);
            bound.rate.is_none() && active >= margin && pending >= margin
        };
        let is_possible = self.hope.is_roomy && self.may_share && self.locked == 0;
        if !is_possible || tx.dialect() == Dialect::Sqlite || !wanted.values().all(is_wide) {
            return Ok(false);
        }
        self.unsent = Some(hoping(lock, wanted, self.hope.version));
        if !self.folds {
            self.send_ahead(tx)?;
        }
        self.margin = margin;
        self.locked |= lock as u8;
        self.shared |= lock as u8;
        self.counts.extend(wanted.keys().map(|&key| (key.clone(), Count::default())));
        Ok(true)
    }

    /// Takes the lock, if it is not held, and counts.
    fn count(
        &mut self,
        tx: &mut dyn Tx,
        lock: Lock,
        is_locked: bool,
        wanted: &BTreeMap<&Key, &Bound>,
    ) -> Result<Vec<Row>> {
        self.send_ahead(tx)?;
        let number = Value::Int(lock as i64);
        let keys: Vec<String> = wanted.keys().map(|key| key.text()).collect();
        let is_rated = lock.claims() && wanted.values().any(|bound| bound.rate.is_some());
        if is_locked && self.shares(lock) {
            // Rates are counted one after the other.
            return if is_rated { Err(crowded()) } else { tx.run(held(keys)) };
        }
        if is_locked || is_rated || !self.may_share || tx.dialect() == Dialect::Sqlite {
            return tx.run(Call::one(&HOLD, vec![number, keys.into()]));
        }
        let rows = tx.run(sharing(lock, wanted))?;
        self.margin = rows.first().map_or(Ok(0), |row| row.int(5))?;
        if self.margin > 0 {
            self.shared |= lock as u8;
        }
        Ok(rows)
    }

    fn shares(&self, lock: Lock) -> bool {
        self.shared & lock as u8 != 0
    }

    /// Takes the lock of claims for itself, whatever binds.
    pub(super) fn lock_claims(&mut self, tx: &mut dyn Tx) -> Result<()> {
        let lock = Lock::Active as u8;
        self.may_share = false;
        if self.locked & lock == 0 || self.shares(Lock::Active) {
            self.counts.clear();
            self.locked |= lock;
            self.shared &= !lock;
            self.send_ahead(tx)?;
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
        limit::occupy(1, bounds, &mut self.counts);
        true
    }

    /// Whether all of so many may become active; they take their places then.
    pub(super) fn fit_all(&mut self, bounds: &[Bound], many: i64) -> bool {
        let is_counted =
            |bound: &Bound| !bound.binds_claims() || self.counts.contains_key(&bound.key);
        let fits =
            bounds.iter().all(is_counted) && limit::admit(many, bounds, &self.counts) == many;
        if fits {
            limit::occupy(many, bounds, &mut self.counts);
        }
        fits
    }

    /// Whether one more may become active; `None` if that is not counted yet.
    pub(super) fn fit(&mut self, bounds: &[Bound]) -> Option<bool> {
        if bounds.iter().any(|bound| self.is_full(&bound.key)) {
            return Some(false);
        }
        let is_counted =
            |bound: &Bound| !bound.binds_claims() || self.counts.contains_key(&bound.key);
        bounds.iter().all(is_counted).then(|| self.admit(bounds))
    }

    /// What is held now, for [`Room::go_back`].
    pub(super) fn mark(&self) -> Counts {
        self.counts.clone()
    }

    /// What took its place since then did not.
    pub(super) fn go_back(&mut self, mark: Counts) {
        self.counts = mark;
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

    /// Whether a key turned out to have no room.
    pub(super) fn is_full(&self, key: &Key) -> bool {
        self.full.contains(key)
    }

    /// Whether some key that had no room has a rate.
    pub(super) fn is_rate_full(&self) -> bool {
        self.full.iter().any(|key| self.periods.contains_key(key))
    }

    /// How long it takes until the first period ends of those whose rate is reached.
    pub(super) fn next_period_ms(&self, now: Timestamp) -> Option<i64> {
        let ends = self.periods.iter().filter(|(key, _)| self.full.contains(key));
        ends.map(|(_, end)| end.since_ms(now).max(1)).min()
    }

    /// The keys that had no room.
    pub(super) fn full(&self) -> impl Iterator<Item = &Key> {
        self.full.iter()
    }
}

/// The parameters of `limit/share_or_fail`.
fn hoping(lock: Lock, wanted: &BTreeMap<&Key, &Bound>, version: Option<i64>) -> Vec<Value> {
    let limits = wanted.values().map(|bound| lock.limits(bound));
    let (active, pending): (Vec<_>, Vec<_>) =
        limits.map(|(active, pending)| (active.to_string(), pending.to_string())).unzip();
    let keys: Vec<String> = wanted.keys().map(|key| key.text()).collect();
    let most = Value::Int(MOST_SHARED as i64);
    let (active, pending) = (active.into(), pending.into());
    vec![Value::Int(lock as i64), most, keys.into(), active, pending, version.into()]
}

/// Takes the lock together with others, if these limits leave room for all of them.
fn sharing(lock: Lock, wanted: &BTreeMap<&Key, &Bound>) -> Call<'static> {
    let item = |(key, bound): (&&Key, &&Bound)| {
        let (active, pending) = lock.limits(bound);
        vec![key.text().into(), active.into(), pending.into()]
    };
    let shared = vec![Value::Int(lock as i64), Value::Int(MOST_SHARED as i64)];
    Call::each(&SHARE, shared, wanted.iter().map(item).collect())
}

/// What is held of these keys, for somebody who only looks; read by [`read`].
pub(super) fn held<'a>(keys: Vec<String>) -> Call<'a> {
    Call::one(&HELD, vec![Value::Int(1), keys.into()])
}

pub(super) fn read(row: &Row) -> Result<(Key, Count, Timestamp)> {
    let text = row.text(0)?;
    let key = Key::from_text(text).ok_or_else(|| Error::Corrupt(format!("a limit of {text}")))?;
    let taken = row.maybe(4, Row::int)?.unwrap_or_default();
    let began = row.maybe(3, Row::time)?.unwrap_or(Timestamp::EPOCH);
    Ok((key, Count { active: row.int(1)?, pending: row.int(2)?, taken }, began))
}
