//! 3: lease ids never repeat, and no accepted write carries a lost lease.
//!
//! Asked of the history (each row carries the lease that held the task then) and of the clients'
//! answers (what they were told was accepted lies inside their lease's time).

use super::view::{Finished, Tenure, Thread, View};
use super::{Invariant, SLACK_MS, Violation};
use crate::log::{Call, Ending, Handed, Operation, Renewed};
use std::collections::BTreeMap;
use std::fmt::Display;
use uuid::Uuid;
use windlass_domain::state::Event;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    unique_in_history(view, found);
    unique_in_answers(view, found);
    for thread in view.threads.values() {
        for tenure in &thread.tenures {
            one_holder(thread, tenure, found);
        }
        for finished in &thread.finished {
            accepted_finish(thread, finished, found);
        }
        for (call, renewed) in &thread.renewed {
            accepted_beat(thread, call, renewed, found);
        }
    }
}

fn unique_in_history(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut seen: BTreeMap<Uuid, &Tenure<'_>> = BTreeMap::new();
    for thread in view.threads.values() {
        for tenure in &thread.tenures {
            let Some(lease) = tenure.lease else {
                let what = "a claim without a lease id";
                found.push(thread.violation(Invariant::Lease, what, &[tenure.begin]));
                continue;
            };
            if let Some(first) = seen.insert(lease, tenure) {
                let evidence: [&dyn Display; 2] = [first.begin, tenure.begin];
                let what = "two claims have the same lease id";
                found.push(thread.violation(Invariant::Lease, what, &evidence));
            }
        }
    }
}

/// A lease is told again only to the session that has it, for the same task and attempt.
fn unique_in_answers(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut seen: BTreeMap<Uuid, (&Call, &Handed)> = BTreeMap::new();
    for thread in view.threads.values() {
        for &(call, handed) in &thread.handed {
            let (first, before) = *seen.entry(handed.held.lease).or_insert((call, handed));
            if before != handed || session(first) != session(call) {
                let evidence: [&dyn Display; 2] = [first, call];
                let what = "one lease id was handed out for two attempts";
                found.push(thread.violation(Invariant::Lease, what, &evidence));
            }
        }
    }
}

fn session(call: &Call) -> Option<Uuid> {
    match &call.operation {
        Operation::Claim { session, .. } | Operation::Heartbeat { session, .. } => Some(*session),
        _ => None,
    }
}

/// Between a claim and its end every row carries the claim's lease.
fn one_holder(thread: &Thread<'_>, tenure: &Tenure<'_>, found: &mut Vec<Violation>) {
    let last = tenure.end.map_or(i64::MAX, |end| end.seq);
    let rows = thread.history.iter().filter(|row| row.seq > tenure.begin.seq && row.seq <= last);
    for row in rows.filter(|row| row.event != Event::Claim) {
        let must_carry = matches!(
            row.event,
            Event::Start | Event::Complete | Event::Fail | Event::Release | Event::LoseLease
        );
        if (must_carry || row.lease.is_some()) && row.lease != tenure.lease {
            let what = "a write was accepted under a lease that did not hold the task";
            let evidence: [&dyn Display; 2] = [tenure.begin, row];
            found.push(thread.violation(Invariant::Lease, what, &evidence));
        }
    }
}

fn accepted_finish(thread: &Thread<'_>, finished: &Finished<'_>, found: &mut Vec<Violation>) {
    let end = match thread.tenure(finished.held.lease) {
        Some(tenure) => tenure.end,
        None => {
            let what = "the end of an attempt was accepted under a lease that no claim made";
            found.push(thread.violation_by_history(Invariant::Lease, what, &[finished.call]));
            return;
        }
    };
    let is_own = |event: Event| match finished.ending {
        Ending::Complete => event == Event::Complete,
        Ending::Fail => event == Event::Fail,
        Ending::Release => matches!(event, Event::Release | Event::ReleaseTooOften),
    };
    if end.is_some_and(|end| !is_own(end.event) || end.lease != Some(finished.held.lease)) {
        let what = "the end of an attempt was accepted after its lease was lost";
        found.push(thread.violation_by_history(Invariant::Lease, what, &[finished.call]));
    }
}

fn accepted_beat(thread: &Thread<'_>, call: &Call, renewed: &Renewed, found: &mut Vec<Violation>) {
    let Some(tenure) = thread.tenure(renewed.held.lease) else {
        let what = "a heartbeat was accepted under a lease that no claim made";
        found.push(thread.violation_by_history(Invariant::Lease, what, &[call]));
        return;
    };
    let (earliest, latest) = match renewed.at_ms {
        Some(at_ms) => (at_ms, at_ms),
        None => (call.invoked_ms, call.returned_ms),
    };
    let is_late = tenure.end.is_some_and(|end| earliest > end.at_ms + SLACK_MS);
    if is_late || latest < tenure.begin.at_ms - SLACK_MS {
        let what = "a heartbeat was accepted outside the time of its lease";
        found.push(thread.violation_by_history(Invariant::Lease, what, &[call]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, lease, task};
    use super::*;
    use windlass_domain::state::State;

    fn taken_over() -> Story {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).beat(task(1), lease(1));
        story.lose(task(1), lease(1)).claim(task(1), lease(2));
        story
    }

    #[test]
    fn a_takeover_under_a_fresh_lease_is_fine() {
        let mut story = taken_over();
        story.beat(task(1), lease(2)).complete(task(1), lease(2));
        assert_eq!(story.found(), []);
    }

    #[test]
    fn a_repeated_claim_may_tell_the_same_lease_again() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1));
        let again = story.run.calls.last().unwrap().clone();
        story.run.calls.push(again);
        story.complete(task(1), lease(1));
        assert_eq!(story.found(), []);
    }

    #[test]
    fn a_lease_id_that_comes_back_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).lose(task(1), lease(1));
        story.claim(task(1), lease(1)).complete(task(1), lease(1));
        let found = story.found();
        assert!(found.contains(&Invariant::Lease), "{found:?}");
    }

    #[test]
    fn a_lease_id_of_two_tasks_is_found() {
        let mut story = Story::default();
        for id in [1, 2] {
            story.submit(task(id)).claim(task(id), lease(1)).complete(task(id), lease(1));
        }
        let found = story.found();
        assert!(found.iter().all(|i| *i == Invariant::Lease) && found.len() == 2, "{found:?}");
    }

    #[test]
    fn a_result_under_a_lost_lease_is_found() {
        let mut story = taken_over();
        story.say_completed(task(1), lease(1), lease(1)).complete(task(1), lease(2));
        let found = story.found();
        assert!(found.contains(&Invariant::Lease), "{found:?}");
    }

    #[test]
    fn a_row_that_carries_another_lease_is_found() {
        let mut story = taken_over();
        story.effect(task(1), lease(1));
        story.moved(task(1), Event::Complete, State::Completed, Some(lease(1)));
        assert_eq!(story.found(), [Invariant::Lease]);
    }

    #[test]
    fn a_heartbeat_after_the_takeover_is_found() {
        let mut story = taken_over();
        story.say_beaten(task(1), lease(1)).complete(task(1), lease(2));
        assert_eq!(story.found(), [Invariant::Lease, Invariant::Beats]);
    }
}
