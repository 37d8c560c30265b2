//! 4: every logged transition is in the table of the domain.

use super::view::View;
use super::{Invariant, Violation};
use windlass_domain::transition::permits;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for thread in view.threads.values() {
        let Some(task) = thread.row else {
            continue;
        };
        for row in &thread.history {
            if !permits(task.profile, row.from, row.event, row.to) {
                let what = "the machine has no such transition";
                found.push(thread.violation(Invariant::Machine, what, &[row]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invariant;
    use super::super::story::{Story, lease, task};
    use windlass_domain::state::{Event, State};

    #[test]
    fn a_transition_of_the_table_is_fine() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).fail(task(1), lease(1), State::Failed);
        assert_eq!(story.found(), []);
    }

    #[test]
    fn a_transition_outside_the_table_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1));
        // Only a delegation gets stuck.
        story.moved(task(1), Event::LoseLease, State::Stuck, Some(lease(1)));
        assert_eq!(story.found(), [Invariant::Machine]);
        assert!(story.violations()[0].evidence[0].contains("lose_lease"));
    }
}
