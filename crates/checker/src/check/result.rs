//! 2: at most one result for a task, identical on every later read, and made by the attempt that
//! the history says completed it.

use super::view::{Thread, View};
use super::{Invariant, Violation};
use crate::ledger::Phase;
use crate::log::Ending;
use windlass_domain::state::{Event, State};

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for thread in view.threads.values() {
        one_completion(thread, found);
        accepted_result(thread, found);
        reads(thread, found);
        effect(thread, found);
    }
}

fn one_completion(thread: &Thread<'_>, found: &mut Vec<Violation>) {
    let ends = thread.history.iter().filter(|row| row.to.is_terminal()).count();
    if ends > 1 {
        let what = format!("the task ended {ends} times");
        found.push(thread.violation_by_history(Invariant::OneResult, what, &[]));
    }
    let mut accepted = thread.finished.iter().filter(|f| f.ending == Ending::Complete);
    let Some(first) = accepted.next() else {
        return;
    };
    for other in accepted {
        if other.held.lease != first.held.lease || other.content != first.content {
            let what = "two results of one task were accepted";
            let evidence: [&dyn std::fmt::Display; 2] = [first.call, other.call];
            found.push(thread.violation_by_history(Invariant::OneResult, what, &evidence));
        }
    }
}

/// The stored result is the one that was accepted, and the answer said `completed`.
fn accepted_result(thread: &Thread<'_>, found: &mut Vec<Violation>) {
    let Some(row) = thread.row else {
        return;
    };
    for finished in thread.finished.iter().filter(|f| f.ending == Ending::Complete) {
        let is_kept =
            row.status == State::Completed && row.result.as_ref() == Some(finished.content);
        if !is_kept || finished.status != State::Completed {
            let what = "the accepted result is not the one that the task holds";
            let evidence: [&dyn std::fmt::Display; 1] = [finished.call];
            found.push(thread.violation_by_history(Invariant::OneResult, what, &evidence));
        }
    }
}

/// Whoever saw the task finished saw what everybody sees.
fn reads(thread: &Thread<'_>, found: &mut Vec<Violation>) {
    for (call, status, result) in thread.shown.iter().filter(|(_, status, _)| status.is_terminal())
    {
        let is_same =
            thread.row.is_some_and(|row| row.status == *status && row.result.as_ref() == *result);
        if !is_same {
            let what = "a read showed another end than the task has";
            found.push(thread.violation_by_history(Invariant::OneResult, what, &[call]));
        }
    }
}

/// The attempt that completed the task had its effect before.
fn effect(thread: &Thread<'_>, found: &mut Vec<Violation>) {
    for row in thread.history.iter().filter(|row| row.event == Event::Complete) {
        let has_effect = thread
            .effects
            .iter()
            .any(|e| e.phase == Phase::Ended && Some(e.held.lease) == row.lease);
        if !has_effect {
            let what = "the task was completed by an attempt whose effect is not in the ledger";
            let mut evidence: Vec<&dyn std::fmt::Display> = vec![row];
            evidence.extend(thread.effects.iter().map(|e| e as &dyn std::fmt::Display));
            found.push(thread.violation(Invariant::OneResult, what, &evidence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, lease, task};
    use super::*;

    fn completed() -> Story {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).complete(task(1), lease(1));
        story
    }

    #[test]
    fn the_same_result_twice_from_the_same_lease_is_one_result() {
        let mut story = completed();
        story.say_completed(task(1), lease(1), lease(1)).show(task(1));
        assert_eq!(story.found(), []);
    }

    #[test]
    fn a_second_result_of_the_same_lease_is_found() {
        let mut story = completed();
        story.say_completed(task(1), lease(1), lease(2));
        let found = story.found();
        assert!(found.contains(&Invariant::OneResult), "{found:?}");
    }

    #[test]
    fn a_result_of_a_second_lease_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).lose(task(1), lease(1));
        story.claim(task(1), lease(2)).complete(task(1), lease(2));
        assert_eq!(story.found(), []);
        story.say_completed(task(1), lease(1), lease(1));
        let found = story.found();
        assert!(found.contains(&Invariant::OneResult), "{found:?}");
    }

    #[test]
    fn a_task_that_ends_twice_is_found() {
        let mut story = completed();
        story.moved(task(1), Event::Complete, State::Completed, Some(lease(1)));
        let found = story.found();
        assert!(found.contains(&Invariant::OneResult), "{found:?}");
    }

    #[test]
    fn a_read_that_showed_another_result_is_found() {
        let mut story = completed();
        story.show(task(1));
        story.run.dump.tasks.get_mut(&task(1)).unwrap().result = Some("other".into());
        let found = story.found();
        assert!(found.iter().all(|i| *i == Invariant::OneResult) && found.len() == 2, "{found:?}");
    }

    #[test]
    fn a_completion_without_an_effect_is_found() {
        let mut story = completed();
        story.run.effects.clear();
        assert_eq!(story.found(), [Invariant::OneResult]);
    }
}
