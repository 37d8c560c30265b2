//! Taking on PostgreSQL: all statements of a batch of claims in one flight.

use super::{Asking, CLAIM, CLAIM_ONCE, Fresh, Took, claim_values, quota};
use crate::error::Result;
use crate::task::claim::{assigned, assignments};
use crate::task::lane::Lanes;
use crate::task::room::Room;
use crate::tx::{Call, Tx};
use crate::value::Value;
use uuid::Uuid;
use windlass_domain::fair::Part;

/// Lets no call run beside itself. It costs no round trip; limits are locked before it, as
/// everywhere. Who waits for a submit does without: what it has not heard of, its next heartbeat
/// is told.
pub(super) fn claim_once(tx: &mut dyn Tx, asking: &[Asking], plans: &[Vec<Part>]) -> Result<()> {
    let first = asking.iter().zip(plans).filter(|(asking, parts)| {
        // Who waits for this call's next round sees what its first one took.
        !asking.again && !parts.is_empty()
    });
    let mut calls: Vec<Uuid> = first.map(|(asking, _)| asking.claim.claim.0).collect();
    if calls.is_empty() {
        return Ok(());
    }
    calls.sort_unstable();
    tx.ahead(Call::one(&CLAIM_ONCE, vec![calls.into()]))
}

/// A statement a claim, then one each that reads what it holds now.
pub(super) fn take(
    tx: &mut dyn Tx,
    lanes: &Lanes,
    asking: &[Asking],
    plans: &[Vec<Part>],
    room: Option<Room>,
    before: Vec<Call<'_>>,
    took: &mut Took,
) -> Result<()> {
    let count = before.len();
    let mut calls = before;
    for (asking, parts) in asking.iter().zip(plans) {
        let fresh = Fresh::new(quota(parts) as usize + asking.has.len());
        let mut shared = claim_values(tx, &asking.claim);
        shared.push(Value::UuidList(fresh.leases));
        shared.push(Value::UuidList(fresh.changes));
        shared.push(asking.again.into());
        let item = |(part, peeks): (&Part, bool)| {
            let until = if asking.is_strict { part.until_key } else { i64::MAX };
            let (from, until) = (part.from_key.into(), until.into());
            vec![part.lane.into(), from, part.quota.into(), peeks.into(), until]
        };
        if !parts.is_empty() {
            let peeks = took.looking.neighbours(parts).into_iter().zip(parts);
            let peeks = peeks.map(|(has, part)| has || part.until_key < i64::MAX);
            calls.push(Call::each(&CLAIM, shared, parts.iter().zip(peeks).map(item).collect()));
        }
    }
    let rated = room.filter(|_| is_rated(lanes, plans));
    let mut rows = match rated {
        None => {
            calls.extend(asking.iter().map(|asking| assigned(&asking.claim)));
            tx.run_and_commit(calls)?
        }
        Some(mut room) => {
            let mut rows = Vec::with_capacity(calls.len() + asking.len());
            for call in calls {
                rows.push(tx.run(call)?);
            }
            for row in rows[count..].iter().flatten() {
                if row.bool(2)? {
                    room.took(&lanes.bounds(row.int(0)?), 1);
                }
            }
            let rates: Vec<Call<'_>> = room.rates(tx.fixed_now()).into_iter().collect();
            let skip = rates.len();
            let rest = asking.iter().map(|asking| assigned(&asking.claim));
            rows.extend(
                tx.run_and_commit(rates.into_iter().chain(rest).collect())?.split_off(skip),
            );
            rows
        }
    };
    let held = rows.split_off(rows.len() - asking.len());
    let mut claimed = rows.split_off(count).into_iter();
    took.before = rows;
    for ((asking, parts), held) in asking.iter().zip(plans).zip(held) {
        let rows = if parts.is_empty() { Vec::new() } else { claimed.next().unwrap_or_default() };
        let mut new = 0;
        for row in &rows {
            let (lane, key, is_taken) = (row.int(0)?, row.int(1)?, row.bool(2)?);
            new += usize::from(is_taken);
            let seen = took.lanes.entry(lane).or_default();
            seen.taken += i64::from(is_taken);
            // The next key is behind all that were taken.
            seen.last = seen.last.max(Some(key));
            match is_taken {
                // Another claim may have been told that it comes next.
                true => seen.next = seen.next.filter(|next| *next > key),
                false => seen.next = Some(key),
            }
        }
        took.add(asking, parts, assignments(&held)?, new);
    }
    Ok(())
}

fn is_rated(lanes: &Lanes, plans: &[Vec<Part>]) -> bool {
    plans.iter().flatten().any(|part| lanes.bounds(part.lane).iter().any(|b| b.rate.is_some()))
}
