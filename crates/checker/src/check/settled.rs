//! 16, as far as it belongs to the fault tests: when the faults are over, every acknowledged task
//! reaches an end. The harness waits before it dumps the database.

use super::view::View;
use super::{Invariant, Violation};

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for thread in view.threads.values() {
        let Some(call) = thread.submits.first() else {
            continue;
        };
        if !thread.row.is_some_and(|row| row.status.is_terminal()) {
            let what = "the submit was acknowledged, and the task never ended";
            found.push(thread.violation_by_history(Invariant::Settled, what, &[call]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invariant;
    use super::super::story::{Story, lease, task};

    #[test]
    fn a_task_that_never_ends_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1));
        assert_eq!(story.found(), [Invariant::Settled]);
        story.complete(task(1), lease(1));
        assert_eq!(story.found(), []);
    }
}
