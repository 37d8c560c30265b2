//! 14: exactly one history row for each transition, and the rows make a chain from the submit to
//! where the task stands.

use super::view::View;
use super::{Invariant, Violation};
use std::fmt::Display;
use windlass_domain::state::{Event, State};

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for thread in view.threads.values() {
        let mut tell = |what: String, evidence: &[&dyn Display]| {
            found.push(thread.violation_by_history(Invariant::Chain, what, evidence));
        };
        let (Some(task), Some(first)) = (thread.row, thread.history.first()) else {
            if thread.row.is_some() || !thread.history.is_empty() {
                tell("a task without history, or a history without its task".into(), &[]);
            }
            continue;
        };
        if first.from.is_some() {
            tell("the history does not begin with the submit".into(), &[first]);
        }
        for pair in thread.history.windows(2) {
            if pair[1].from != Some(pair[0].to) {
                tell("a transition does not begin where the one before ended".into(), &[pair[1]]);
            }
            if pair[1].seq == pair[0].seq {
                tell("two transitions have one place in the history".into(), &[pair[1]]);
            }
        }
        if thread.history.last().is_some_and(|last| last.to != task.status) {
            tell("the task does not stand where its history ends".into(), &[]);
        }
        let count = |is: fn(State, Event) -> bool| {
            thread.history.iter().filter(|row| is(row.to, row.event)).count() as i32
        };
        let claims = count(|_, event| event == Event::Claim);
        let retries = count(|to, _| to == State::Retry);
        let releases = count(|to, event| match event {
            Event::Release | Event::LoseLease => to == State::Pending,
            event => event == Event::ReleaseTooOften,
        });
        let counted = [claims, retries, releases];
        let columns = [task.attempt, task.retry_count, task.release_count];
        if counted != columns {
            let what = format!(
                "the history has {claims} claims, {retries} retries and {releases} releases"
            );
            tell(what, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invariant;
    use super::super::story::{Story, lease, task};
    use windlass_domain::state::State;

    fn whole() -> Story {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).lose(task(1), lease(1));
        story.claim(task(1), lease(2)).complete(task(1), lease(2));
        story
    }

    #[test]
    fn an_unbroken_chain_is_fine() {
        assert_eq!(whole().found(), []);
    }

    #[test]
    fn a_missing_row_is_found() {
        let mut story = whole();
        story.run.dump.history.remove(2);
        let found = story.found();
        assert!(found.contains(&Invariant::Chain), "{found:?}");
    }

    #[test]
    fn a_doubled_row_is_found() {
        let mut story = whole();
        let row = story.run.dump.history[2].clone();
        story.run.dump.history.insert(2, row);
        let found = story.found();
        assert!(found.contains(&Invariant::Chain), "{found:?}");
    }

    #[test]
    fn a_task_that_stands_elsewhere_than_its_history_is_found() {
        let mut story = whole();
        story.run.dump.tasks.get_mut(&task(1)).unwrap().status = State::Cancelled;
        let found = story.found();
        assert!(found.contains(&Invariant::Chain), "{found:?}");
    }

    #[test]
    fn a_task_without_history_is_found() {
        let mut story = whole();
        story.run.dump.history.clear();
        let found = story.found();
        assert!(found.contains(&Invariant::Chain), "{found:?}");
    }
}
