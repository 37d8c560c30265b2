//! 1: every acknowledged submit exists, with the payload that was sent. The same is asked of the
//! other acknowledged writes: a claim that was answered and a result that was accepted are in the
//! history.
//!
//! Absent: whether the result is the right one (2), and under which lease it came (3).

use super::view::{Thread, View};
use super::{Invariant, Violation};
use crate::log::Operation;
use windlass_domain::state::Event;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut tell = |thread: &Thread<'_>, what: &str, evidence: &dyn std::fmt::Display| {
        found.push(thread.violation_by_history(Invariant::Acknowledged, what, &[evidence]));
    };
    for thread in view.threads.values() {
        for &call in &thread.submits {
            let Some(row) = thread.row else {
                tell(thread, "the submit was acknowledged, and the task is gone", call);
                continue;
            };
            let is_kept = matches!(&call.operation,
                Operation::Submit { payload, .. } if *payload == row.payload);
            if !is_kept {
                tell(thread, "the task holds another payload than was acknowledged", call);
            }
            if !thread.history.iter().any(|row| row.event == Event::Submit) {
                tell(thread, "the submit was acknowledged and is not in the history", call);
            }
        }
        for (call, handed) in &thread.handed {
            if thread.tenure(handed.held.lease).is_none() {
                tell(thread, "the task was handed out, and no claim in the history says so", call);
            }
        }
        for finished in &thread.finished {
            let tenure = thread.tenure(finished.held.lease);
            if tenure.is_some_and(|tenure| tenure.end.is_none()) {
                let what = "the attempt's end was acknowledged and is not in the history";
                tell(thread, what, finished.call);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, lease, task};
    use super::*;

    #[test]
    fn an_acknowledged_task_that_exists_is_fine() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).complete(task(1), lease(1));
        assert_eq!(story.found(), []);
    }

    #[test]
    fn an_acknowledged_task_that_is_gone_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).end_all();
        story.run.dump.tasks.clear();
        story.run.dump.history.clear();
        assert_eq!(story.found(), [Invariant::Acknowledged, Invariant::Settled]);
        assert!(story.violations()[0].evidence[0].contains("submit"));
    }

    #[test]
    fn a_submit_without_an_answer_may_be_gone() {
        let mut story = Story::default();
        story.submit(task(1)).forget_answers();
        story.run.dump.tasks.clear();
        story.run.dump.history.clear();
        assert_eq!(story.found(), []);
    }

    #[test]
    fn another_payload_than_the_acknowledged_one_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).end_all();
        story.run.dump.tasks.get_mut(&task(1)).unwrap().payload = 7.into();
        assert_eq!(story.found(), [Invariant::Acknowledged]);
    }

    #[test]
    fn an_acknowledged_result_that_is_gone_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1)).complete(task(1), lease(1));
        story.undo(task(1));
        let found = story.found();
        assert!(found.contains(&Invariant::Acknowledged), "{found:?}");
    }

    #[test]
    fn an_acknowledged_claim_that_is_gone_is_found() {
        let mut story = Story::default();
        story.submit(task(1)).claim(task(1), lease(1));
        story.undo(task(1));
        story.end_all();
        assert_eq!(story.found(), [Invariant::Acknowledged]);
    }
}
