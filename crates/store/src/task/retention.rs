//! Retention: finished tasks of profiles that are not kept for ever are removed with everything
//! that belongs to them, history too. The audit keeps how many they were, and the log how far it
//! has holes.
//!
//! Invariant: the database deletes only inside a transaction that opened its gate, and this is the
//! only place that opens it. The gate is told for how long tasks are kept, and PostgreSQL compares
//! with that once more, by its own clock. A family of replays goes as a whole or stays as a whole,
//! so that no replay is planned with half of what its family ran.
//! Whoever makes a replay locks the task that it repeats. What is about to be removed is therefore
//! looked at, locked, and looked at again: on PostgreSQL a statement sees what was there when it
//! began, so a replay that was committed while the first look or the lock was under way is seen by
//! the second look alone; and one that begins later waits for the lock and finds nothing to repeat.

use super::{Tasks, row};
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::profile::PROFILES;
use windlass_domain::time::Timestamp;

statement!(OPEN, "retention/open");
statement!(CLOSE, "retention/close");
statement!(shared EXPIRED, "retention/expired");
statement!(ALONE, "retention/alone");
statement!(ROOTS, "retention/roots");
statement!(FAMILY, "retention/family");
statement!(LOCK, "retention/lock");
statement!(NOTE_REMOVED, "retention/note_removed");
statement!(REMOVE_TAGS, "retention/remove_tags");
statement!(REMOVE_HISTORY, "retention/remove_history");
statement!(REMOVE_PROGRESS, "retention/remove_progress");
statement!(REMOVE_VOTES, "retention/remove_votes");
statement!(REMOVE_TOKENS, "retention/remove_tokens");
statement!(REMOVE_APPROVALS, "retention/remove_approvals");
statement!(REMOVE_TROUBLE, "retention/remove_trouble");
statement!(REMOVE_TROUBLE_NOTES, "retention/remove_trouble_notes");
statement!(REMOVE_STEPS, "retention/remove_steps");
statement!(REMOVE_SIGNALS, "retention/remove_signals");
statement!(REMOVE_DELETED_RESPONSES, "retention/remove_deleted_responses");
statement!(REMOVE_STATE, "retention/remove_state");
statement!(REMOVE_SPEC, "retention/remove_spec");
statement!(shared AUDIT, "retention/audit");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[
    &OPEN,
    &CLOSE,
    &EXPIRED,
    &ALONE,
    &ROOTS,
    &FAMILY,
    &LOCK,
    &NOTE_REMOVED,
    &REMOVE_TAGS,
    &REMOVE_HISTORY,
    &REMOVE_PROGRESS,
    &REMOVE_VOTES,
    &REMOVE_TOKENS,
    &REMOVE_APPROVALS,
    &REMOVE_TROUBLE,
    &REMOVE_TROUBLE_NOTES,
    &REMOVE_STEPS,
    &REMOVE_SIGNALS,
    &REMOVE_DELETED_RESPONSES,
    &REMOVE_STATE,
    &REMOVE_SPEC,
    &AUDIT,
];

impl Tasks {
    /// Removes all finished tasks whose retention is over; returns how many. They are kept for
    /// `keep_ms`, or as long as their profile says. A transaction looks at `limit` of them, and
    /// removes no more unless the last family that goes is larger.
    pub async fn remove_expired(&self, keep_ms: Option<i64>, limit: usize) -> Result<usize> {
        let standard = PROFILES.iter().find_map(|rules| rules.retention_ms).unwrap_or(i64::MAX);
        let keep_ms = keep_ms.unwrap_or(standard);
        // A family that stays is met once for each page that has some of it, and walked once.
        let mut stay: Arc<HashSet<Uuid>> = Arc::default();
        let mut after = (Timestamp::from_ms(0), Uuid::nil());
        let mut removed = 0;
        loop {
            let known = Arc::clone(&stay);
            let body = move |tx: &mut dyn Tx| {
                let latest = tx.now()?.plus_ms(-keep_ms);
                remove_page(tx, Page { keep_ms, latest, after, limit }, &known)
            };
            let done = self.store.write("remove_expired", body).await?;
            removed += done.removed;
            Arc::make_mut(&mut stay).extend(done.stay);
            let Some(next) = done.next else { return Ok(removed) };
            after = next;
        }
    }
}

/// The end of a task, and which: a place in the order in which they are looked at.
type Place = (Timestamp, Uuid);

/// Where one transaction looks.
#[derive(Clone, Copy)]
struct Page {
    /// For how long tasks are kept after their end.
    keep_ms: i64,
    /// The latest end that is old enough.
    latest: Timestamp,
    after: Place,
    limit: usize,
}

/// What one transaction did.
struct Done {
    removed: usize,
    /// The roots of families that stay.
    stay: Vec<Uuid>,
    /// Where the next one goes on, if there may be more.
    next: Option<Place>,
}

/// The families that may go, by their roots.
type Families = BTreeMap<Uuid, Vec<Uuid>>;

fn remove_page(tx: &mut dyn Tx, page: Page, known: &HashSet<Uuid>) -> Result<Done> {
    let Page { keep_ms, latest, after, limit } = page;
    let asked = vec![latest.into(), after.0.into(), after.1.into(), Value::Int(limit as i64)];
    let rows = tx.run(Call::one(&EXPIRED, asked))?;
    let read = |row: &crate::value::Row| Ok((row.time(1)?, row.uuid(0)?));
    let places = rows.iter().map(read).collect::<Result<Vec<Place>>>()?;
    let mut next = places.last().copied().filter(|_| places.len() == limit);
    let ids: Vec<Uuid> = places.into_iter().map(|(_, id)| id).collect();

    let (alone, relatives) = alone(tx, ids)?;
    let mut roots = roots(tx, relatives)?;
    roots.retain(|root| !known.contains(root));
    let families = families(tx, latest, &roots)?;
    let mut stay: Vec<Uuid> =
        roots.into_iter().filter(|root| !families.contains_key(root)).collect();

    let (chosen, is_cut) = choose(families, limit.saturating_sub(alone.len()));
    if is_cut {
        // The others are found again on the same page, when these are gone.
        next = Some(after);
    }
    let (going, left) = lock(tx, latest, alone, chosen)?;
    stay.extend(left);
    let removed = going.len();
    if removed > 0 {
        remove(tx, going, keep_ms, latest)?;
    }
    Ok(Done { removed, stay, next })
}

/// The first families with so many tasks together, the last of them whole, and whether there are
/// more.
fn choose(families: Families, room: usize) -> (Families, bool) {
    let (mut chosen, mut count, all) = (Families::new(), 0, families.len());
    for (root, family) in families {
        if count >= room {
            break;
        }
        count += family.len();
        chosen.insert(root, family);
    }
    let is_cut = chosen.len() < all;
    (chosen, is_cut)
}

/// Locks what may go and looks again: what goes, and the roots of families that stay after all.
fn lock(
    tx: &mut dyn Tx,
    latest: Timestamp,
    alone_before: Vec<Uuid>,
    before: Families,
) -> Result<(Vec<Uuid>, Vec<Uuid>)> {
    let wanted: Vec<Uuid> = alone_before.iter().chain(before.values().flatten()).copied().collect();
    if wanted.is_empty() {
        return Ok((wanted, Vec::new()));
    }
    let rows = tx.run(Call::one(&LOCK, vec![wanted.into()]))?;
    let locked = rows.iter().map(|row| row.uuid(0)).collect::<Result<HashSet<Uuid>>>()?;
    let (mut going, _) =
        alone(tx, alone_before.into_iter().filter(|id| locked.contains(id)).collect())?;
    let roots: Vec<Uuid> = before.keys().copied().collect();
    let mut now = families(tx, latest, &roots)?;
    let mut left = Vec::new();
    for root in roots {
        // Who is new in a family is not locked; who is locked by somebody else is not, either.
        match now.remove(&root).filter(|family| family.iter().all(|id| locked.contains(id))) {
            Some(family) => going.extend(family),
            None => left.push(root),
        }
    }
    Ok((going, left))
}

/// Those of the tasks that belong to no family and may go, and those that belong to one.
fn alone(tx: &mut dyn Tx, ids: Vec<Uuid>) -> Result<(Vec<Uuid>, Vec<Uuid>)> {
    if ids.is_empty() {
        return Ok((ids, Vec::new()));
    }
    let rows = tx.run(Call::one(&ALONE, vec![ids.clone().into()]))?;
    let (mut going, mut all) = (Vec::new(), HashSet::new());
    for row in &rows {
        let id = row.uuid(0)?;
        all.insert(id);
        if row.bool(1)? {
            going.push(id);
        }
    }
    Ok((going, ids.into_iter().filter(|id| !all.contains(id)).collect()))
}

fn roots(tx: &mut dyn Tx, ids: Vec<Uuid>) -> Result<Vec<Uuid>> {
    if ids.is_empty() {
        return Ok(ids);
    }
    tx.run(Call::one(&ROOTS, vec![ids.into()]))?.iter().map(|row| row.uuid(0)).collect()
}

/// Those of the families that may go.
fn families(tx: &mut dyn Tx, latest: Timestamp, roots: &[Uuid]) -> Result<Families> {
    let mut families = Families::new();
    if roots.is_empty() {
        return Ok(families);
    }
    let items = roots.iter().map(|root| vec![(*root).into()]).collect();
    for row in &tx.run(Call::each(&FAMILY, vec![latest.into()], items))? {
        families.entry(row.uuid(0)?).or_default().push(row.uuid(1)?);
    }
    Ok(families)
}

/// Removes tasks that nobody else can touch.
fn remove(tx: &mut dyn Tx, ids: Vec<Uuid>, keep_ms: i64, latest: Timestamp) -> Result<()> {
    tx.run(Call::one(&OPEN, vec![Value::Int(keep_ms)]))?;
    for statement in [
        &NOTE_REMOVED,
        &REMOVE_TAGS,
        &REMOVE_HISTORY,
        &REMOVE_PROGRESS,
        &REMOVE_VOTES,
        &REMOVE_TOKENS,
        &REMOVE_APPROVALS,
        &REMOVE_TROUBLE_NOTES,
        &REMOVE_TROUBLE,
        &REMOVE_STEPS,
        &REMOVE_SIGNALS,
        &REMOVE_DELETED_RESPONSES,
        &REMOVE_STATE,
        &REMOVE_SPEC,
    ] {
        tx.run(Call::one(statement, vec![Value::UuidList(ids.clone())]))?;
    }
    tx.run(Call::one(&CLOSE, vec![]))?;
    let detail = serde_json::json!({ "tasks": ids.len(), "finished_until": latest });
    let now = tx.now()?;
    tx.run(Call::one(&AUDIT, vec![now.into(), row::typed(&detail)]))?;
    Ok(())
}
