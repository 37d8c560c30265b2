//! Taking on SQLite: a statement for each task.

use super::{Asking, CLAIM, COUNT_CLAIMED, Fresh, HEAD, Seen, Took, claim_values};
use crate::error::Result;
use crate::task::claim::{Claim, assigned, assignments};
use crate::task::lane::Lanes;
use crate::task::room::Room;
use crate::tx::{Call, Tx};
use windlass_domain::fair::Part;

/// Of how many tasks the first portion of a lane is.
const FIRST_PORTION: usize = 16;

/// One writer and no round trips: task by task. No keys either: SQLite leaves no dead entries in
/// an index, so a lane is read from its beginning.
pub(super) fn take(
    tx: &mut dyn Tx,
    lanes: &Lanes,
    asking: &[Asking],
    plans: &[Vec<Part>],
    mut room: Option<Room>,
    before: Vec<Call<'_>>,
    took: &mut Took,
) -> Result<()> {
    for call in before {
        took.before.push(tx.run(call)?);
    }
    for (asking, parts) in asking.iter().zip(plans) {
        let claim = &asking.claim;
        let earlier = vec![claim.session.as_str().into(), claim.claim.0.into()];
        let earlier = tx.run(Call::one(&COUNT_CLAIMED, earlier))?;
        let earlier = earlier.first().map_or(Ok(0), |row| row.int(0))? as usize;
        // What it took before was its answer, unless this is the same call's next round.
        let due: &[Part] = if earlier > 0 && !asking.again { &[] } else { parts };
        let mut new = 0;
        for part in due {
            let taken = take_lane(tx, claim, part)?;
            new += taken;
            let head = tx.run(Call::one(&HEAD, vec![part.lane.into()]))?;
            let head = head.first().map(|row| row.int(0)).transpose()?;
            let seen = took.lanes.entry(part.lane).or_default();
            *seen = Seen { taken: seen.taken + taken as i64, last: head, next: None };
            if let Some(room) = &mut room {
                room.took(&lanes.bounds(part.lane), taken as i64);
            }
        }
        took.add(asking, parts, assignments(&tx.run(assigned(claim))?)?, new);
    }
    if let Some(call) = room.and_then(|mut room| room.rates(None)) {
        tx.run(call)?;
    }
    Ok(())
}

/// Takes tasks from one lane of SQLite. A lane is often shorter than what may be taken of it, so
/// the ids are made in portions that grow.
fn take_lane(tx: &mut dyn Tx, claim: &Claim, part: &Part) -> Result<usize> {
    let (mut taken, mut portion) = (0, FIRST_PORTION);
    loop {
        let asked = portion.min(part.quota as usize - taken);
        let fresh = Fresh::new(asked);
        let ids = fresh.leases.into_iter().zip(fresh.changes);
        let items = ids.map(|(lease, change)| vec![lease.into(), change.into()]).collect();
        let mut shared = claim_values(tx, claim);
        shared.push(part.lane.into());
        let mut call = Call::each(&CLAIM, shared, items);
        call.stop_when_empty = true;
        let found = tx.run(call)?.len();
        taken += found;
        if found < asked || taken as i64 >= part.quota {
            return Ok(taken);
        }
        portion *= 4;
    }
}
