//! How many more tasks the session of a claim may hold, where a rule for its type says so.
//!
//! Invariant: what a session holds is counted after the lock that all claims of such sessions take,
//! in the transaction that adds to it. So no number of claims at once exceeds it, on any nodes.

use super::claim::{Claim, held_leases};
use super::room::Room;
use crate::error::Result;
use crate::tx::Tx;
use std::collections::HashMap;
use windlass_domain::limit::{Limits, room};

/// Whether a rule says how many tasks the session of this claim holds.
pub(super) fn is_bound(limits: &Limits, claim: &Claim) -> bool {
    limits.most_held(claim.worker_type.as_deref()).is_some()
}

/// How many more tasks each of these claims may take. Claims of one session share what it has.
pub(super) fn free<'c>(
    tx: &mut dyn Tx,
    limits: &Limits,
    claims: impl Iterator<Item = &'c Claim>,
    locked: &mut Room,
) -> Result<Vec<usize>> {
    let mut left: HashMap<&str, i64> = HashMap::new();
    let mut free = Vec::new();
    for claim in claims {
        let Some(most) = limits.most_held(claim.worker_type.as_deref()) else {
            free.push(usize::MAX);
            continue;
        };
        if !left.contains_key(claim.session.as_str()) {
            locked.lock_claims(tx)?;
            let held = tx.run(held_leases(&claim.session))?;
            left.insert(&claim.session, room(most, held.len() as i64));
        }
        let left = left.entry(&claim.session).or_default();
        let given = (*left).min(claim.max as i64);
        *left -= given;
        free.push(given as usize);
    }
    Ok(free)
}
