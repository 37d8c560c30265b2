//! 9: attempts stay within their cap; beyond it a task is poisoned, never gone and never tried on.
//!
//! Counted three times: by the history, by what workers were handed, and by the effects that they
//! had. A crash loop that bypasses the count shows in at least one.

use super::view::View;
use super::{Invariant, Violation};
use crate::ledger::Phase;
use std::collections::BTreeSet;
use std::fmt::Display;
use windlass_domain::profile::MAX_RELEASES;
use windlass_domain::state::{Event, State};

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for thread in view.threads.values() {
        let Some(task) = thread.row else {
            continue;
        };
        let count = |is: fn(State, Event) -> bool| {
            thread.history.iter().filter(|row| is(row.to, row.event)).count() as i32
        };
        let retries = count(|to, _| to == State::Retry);
        let releases = count(|to, event| {
            to == State::Pending && matches!(event, Event::Release | Event::LoseLease)
        });
        let mut tell = |what: String, evidence: &[&dyn Display]| {
            found.push(thread.violation_by_history(Invariant::Cap, what, evidence));
        };
        if retries > task.max_retries {
            tell(format!("{retries} retries, at most {}", task.max_retries), &[]);
        }
        if releases >= MAX_RELEASES {
            tell(format!("given back {releases} times, at most {}", MAX_RELEASES - 1), &[]);
        }
        let cap = 1 + task.max_retries + MAX_RELEASES;
        let handed: BTreeSet<_> = thread.handed.iter().map(|(_, handed)| handed.attempt).collect();
        if handed.len() as i32 > cap {
            tell(format!("handed out {} times, at most {cap}", handed.len()), &[]);
        }
        let begun = thread.effects.iter().filter(|e| e.phase == Phase::Begun);
        for effect in begun.filter(|e| thread.tenure(e.held.lease).is_none()) {
            tell("an effect of an attempt that the history does not count".into(), &[effect]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invariant;
    use super::super::story::{Story, lease, task};
    use windlass_domain::state::State;

    fn lost(times: u128) -> Story {
        let mut story = Story::default();
        story.submit(task(1));
        for attempt in 1..=times {
            story.claim(task(1), lease(attempt)).effect(task(1), lease(attempt));
            story.lose(task(1), lease(attempt));
        }
        story
    }

    #[test]
    fn as_many_retries_as_allowed_are_fine() {
        let mut story = lost(3);
        story.claim(task(1), lease(9)).fail(task(1), lease(9), State::Poisoned);
        assert_eq!(story.found(), []);
    }

    #[test]
    fn one_retry_more_is_found() {
        let mut story = lost(4);
        story.claim(task(1), lease(9)).fail(task(1), lease(9), State::Poisoned);
        assert_eq!(story.found(), [Invariant::Cap]);
    }

    #[test]
    fn an_effect_that_no_attempt_accounts_for_is_found() {
        let mut story = lost(1);
        story.effect(task(1), lease(77)).end_all();
        assert_eq!(story.found(), [Invariant::Cap]);
    }

    #[test]
    fn a_task_that_is_given_back_for_ever_is_found() {
        let mut story = Story::default();
        story.submit(task(1));
        for attempt in 1..=20 {
            story.claim(task(1), lease(attempt)).release(task(1), lease(attempt));
        }
        story.end_all();
        assert_eq!(story.found(), [Invariant::Cap]);
    }
}
