//! 5: accepted heartbeats of two leases never overlap.
//!
//! Asked of the answers alone: once a later attempt has shown a sign of life (it was handed out, or
//! it beat), no earlier one may be told that it still holds the task.
//! Absent: the history. What it says of each lease's time is asked by 3.

use super::view::{Thread, View};
use super::{Invariant, SLACK_MS, Violation};
use crate::log::{Call, Renewed};
use std::collections::BTreeMap;
use std::fmt::Display;
use uuid::Uuid;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    view.threads.values().for_each(|thread| overlaps(thread, found));
}

fn overlaps(thread: &Thread<'_>, found: &mut Vec<Violation>) {
    let attempts: BTreeMap<Uuid, i32> =
        thread.handed.iter().map(|(_, handed)| (handed.held.lease, handed.attempt)).collect();
    // The earliest time by which a sign of life of each attempt had certainly happened.
    let mut signs: BTreeMap<i32, (i64, &Call)> = BTreeMap::new();
    let mut note = |attempt: i32, by_ms: i64, call| {
        let sign = signs.entry(attempt).or_insert((by_ms, call));
        if by_ms < sign.0 {
            *sign = (by_ms, call);
        }
    };
    for &(call, handed) in &thread.handed {
        note(handed.attempt, call.returned_ms, call);
    }
    for &(call, renewed) in &thread.renewed {
        if let Some(attempt) = attempts.get(&renewed.held.lease) {
            note(*attempt, time(call, renewed).1, call);
        }
    }
    for &(call, renewed) in &thread.renewed {
        let Some(attempt) = attempts.get(&renewed.held.lease) else {
            continue;
        };
        let not_before_ms = time(call, renewed).0;
        let later = signs
            .range(attempt + 1..)
            .find(|(_, (by_ms, _))| by_ms.saturating_add(SLACK_MS) < not_before_ms);
        if let Some((_, (_, sign))) = later {
            let what = format!("attempt {attempt} was renewed when a later one had begun");
            let evidence: [&dyn Display; 2] = [sign, call];
            found.push(thread.violation(Invariant::Beats, what, &evidence));
        }
    }
}

/// The earliest and the latest time at which the database can have renewed the lease.
fn time(call: &Call, renewed: &Renewed) -> (i64, i64) {
    match renewed.at_ms {
        Some(at_ms) => (at_ms, at_ms),
        None => (call.invoked_ms, call.returned_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invariant;
    use super::super::story::{Story, lease, task};

    fn two_attempts() -> Story {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).beat(task(1), lease(1));
        story.lose(task(1), lease(1)).claim(task(1), lease(2)).beat(task(1), lease(2));
        story
    }

    #[test]
    fn beats_of_one_lease_after_the_other_are_fine() {
        let mut story = two_attempts();
        story.beat(task(1), lease(2)).complete(task(1), lease(2));
        assert_eq!(story.found(), []);
    }

    #[test]
    fn a_beat_of_the_former_lease_between_two_of_the_present_one_is_found() {
        let mut story = two_attempts();
        story.say_beaten(task(1), lease(1)).beat(task(1), lease(2)).complete(task(1), lease(2));
        let found = story.found();
        assert!(found.contains(&Invariant::Beats), "{found:?}");
    }

    #[test]
    fn a_late_answer_to_an_early_beat_is_fine() {
        let mut story = two_attempts();
        let beats: Vec<usize> = (0..story.run.calls.len())
            .filter(|i| story.run.calls[*i].to_string().contains("renewed"))
            .collect();
        story.run.calls[beats[0]].returned_ms = i64::MAX;
        story.complete(task(1), lease(2));
        assert_eq!(story.found(), []);
    }
}
