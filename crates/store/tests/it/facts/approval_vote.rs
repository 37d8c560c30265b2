//! Deciding: voices, who may not, races, withdrawal, and what the history tells.

use crate::world::*;
use serde_json::json;
use windlass_domain::approval::{Choice, Question, Status};
use windlass_domain::state::State;
use windlass_store::approval::{Approval, Right};
use windlass_store::audit::{Audit, Filter};
use windlass_store::statement::Dialect;

conformance!(
    as_many_approvals_as_required_wake_the_task,
    one_denial_fails_the_task_with_the_comment,
    one_voice_an_actor_and_a_second_one_is_refused_and_audited,
    who_asked_cannot_approve_but_may_deny,
    a_decision_about_something_else_is_refused_and_audited,
    the_same_voice_again_after_a_lost_commit_counts_once,
    a_withdrawn_question_takes_no_voice,
    a_decided_question_takes_no_voice,
    of_many_voices_at_once_enough_decide_exactly_once,
    an_approval_and_a_denial_at_once_give_one_outcome,
    votes_and_cancels_at_once_leave_no_open_question,
    an_unknown_approval_is_not_found,
);

async fn audited(world: &World) -> Vec<(String, String)> {
    let audit = Audit::new(world.store.clone());
    let entries = audit.list(Filter::of_event("approval_refused"), None, 100).await.unwrap();
    let code = |detail: &serde_json::Value| detail["code"].as_str().unwrap().to_owned();
    entries.iter().rev().map(|e| (e.actor.clone(), code(&e.detail))).collect()
}

/// In a queue of its own: an approved one must not be claimed for the next.
async fn parked(world: &World, required: i64) -> Approval {
    let held = world.running(task(|r| r.queue = Some(uuid::Uuid::now_v7().to_string()))).await;
    world.asked(&held, Question { required, ..question("gate", None) }).await
}

async fn as_many_approvals_as_required_wake_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let asked = world.asked(&held, Question { required: 3, ..question("gate", None) }).await;
    for (n, who) in ["ann", "bob"].into_iter().enumerate() {
        let decided = world.vote(asked.id, who, Choice::Approve).await.unwrap();
        assert_eq!((decided.moved, decided.approval.approvals), (None, n as i64 + 1));
        assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
    }
    let mut last = deciding(asked.id, "cleo", Choice::Approve);
    last.comment = Some("go".into());
    last.digest = Some(asked.digest.clone());
    let decided = world.approvals().decide(last).await.unwrap();
    assert_eq!(decided.moved, Some(State::Pending));
    assert_eq!(decided.queue.as_deref(), Some("q"));
    assert_eq!(decided.approval.status, Status::Approved);
    let last = world.tasks.history(asked.task_id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!((last.event.as_str(), last.actor.as_str()), ("approve", "cleo"));
    let told =
        json!({ "approval": asked.id, "approvers": ["ann", "bob", "cleo"], "comment": "go" });
    assert_eq!(last.metadata, Some(told));
    let (_, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
    let said: Vec<_> = votes.iter().map(|v| (v.actor.as_str(), v.via.as_str())).collect();
    assert_eq!(said, [("ann", "key"), ("bob", "key"), ("cleo", "key")]);
    assert_eq!(world.claim("w2", 1).await.len(), 1);
}

async fn one_denial_fails_the_task_with_the_comment(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 2).await;
    world.vote(asked.id, "ann", Choice::Approve).await.unwrap();
    let mut no = deciding(asked.id, "bob", Choice::Deny);
    no.comment = Some("not on a Friday".into());
    let decided = world.approvals().decide(no).await.unwrap();
    assert_eq!(decided.moved, Some(State::Failed));
    assert_eq!(decided.approval.status, Status::Denied);
    let error = world.show(asked.task_id).await.error.unwrap();
    assert_eq!(error.code, "APPROVAL_DENIED");
    assert_eq!(error.message, "approval denied: not on a Friday");
    let last = world.tasks.history(asked.task_id, 0, 10).await.unwrap().pop().unwrap();
    let metadata = last.metadata.unwrap();
    assert_eq!((last.actor.as_str(), &metadata["approvers"]), ("bob", &json!(["bob"])));
    assert_eq!(metadata["comment"], "not on a Friday");
}

async fn one_voice_an_actor_and_a_second_one_is_refused_and_audited(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 2).await;
    world.vote(asked.id, "ann", Choice::Approve).await.unwrap();
    for choice in [Choice::Approve, Choice::Deny] {
        assert_eq!(refused(world.vote(asked.id, "ann", choice).await), "already_voted");
    }
    assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
    let twice = ("ann".to_owned(), "already_voted".to_owned());
    assert_eq!(audited(&world).await, [twice.clone(), twice]);
}

async fn who_asked_cannot_approve_but_may_deny(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    assert_eq!(refused(world.vote(asked.id, "w1", Choice::Approve).await), "self_approval");
    assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
    assert_eq!(audited(&world).await, [("w1".to_owned(), "self_approval".to_owned())]);
    let decided = world.vote(asked.id, "w1", Choice::Deny).await.unwrap();
    assert_eq!(decided.moved, Some(State::Failed));
}

async fn a_decision_about_something_else_is_refused_and_audited(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let mut other = deciding(asked.id, "ann", Choice::Approve);
    other.digest = Some(question("gate", None).digest.replace('a', "b"));
    assert_eq!(refused(world.approvals().decide(other).await), "digest_mismatch");
    assert_eq!(audited(&world).await, [("ann".to_owned(), "digest_mismatch".to_owned())]);
    assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
}

async fn the_same_voice_again_after_a_lost_commit_counts_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    for required in [1, 2] {
        let asked = parked(&world, required).await;
        let voice = deciding(asked.id, "ann", Choice::Approve);
        let first = world.approvals().decide(voice.clone()).await.unwrap();
        let again = world.approvals().decide(voice).await.unwrap();
        assert_eq!(again.approval, first.approval);
        assert_eq!(again.approval.approvals, 1);
    }
    assert_eq!(audited(&world).await, []);
}

async fn a_withdrawn_question_takes_no_voice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    world.cancel(asked.task_id).await.unwrap();
    let late = world.vote(asked.id, "ann", Choice::Approve).await;
    assert_eq!(refused(late), "approval_withdrawn");
    let held = world.running(task(|r| r.deadline_ms = Some(1_000))).await;
    let overdue = world.asked(&held, question("gate", None)).await;
    world.pass_ms(1_000);
    world.tasks.expire_deadlines(10).await.unwrap();
    let late = world.vote(overdue.id, "ann", Choice::Deny).await;
    assert_eq!(refused(late), "approval_withdrawn");
}

async fn a_decided_question_takes_no_voice(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (first, second) in [(Choice::Approve, Choice::Deny), (Choice::Deny, Choice::Approve)] {
        let asked = parked(&world, 1).await;
        world.vote(asked.id, "ann", first).await.unwrap();
        assert_eq!(refused(world.vote(asked.id, "bob", second).await), "already_decided");
        let (shown, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
        assert_eq!((shown.status != Status::Open, votes.len()), (true, 1));
    }
}

async fn of_many_voices_at_once_enough_decide_exactly_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 3).await;
    let voices = (0..8).map(|n| {
        let (approvals, voice) =
            (world.approvals(), deciding(asked.id, &format!("op-{n}"), Choice::Approve));
        tokio::spawn(async move { approvals.decide(voice).await })
    });
    let mut codes = Vec::new();
    let mut moved = 0;
    for voice in voices.collect::<Vec<_>>() {
        match voice.await.unwrap() {
            Ok(decided) => moved += usize::from(decided.moved.is_some()),
            late => codes.push(refused(late)),
        }
    }
    assert_eq!((moved, codes), (1, vec!["already_decided"; 5]));
    let (shown, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!((shown.status, votes.len()), (Status::Approved, 3));
    let story = world.story(asked.task_id).await;
    assert_eq!(story[3..], ["approve:pending"]);
}

async fn an_approval_and_a_denial_at_once_give_one_outcome(dialect: Dialect) {
    let world = World::new(dialect).await;
    for round in 0..10 {
        let asked = parked(&world, 1).await;
        let voice = |who: &str, choice| {
            let (approvals, voice) = (world.approvals(), deciding(asked.id, who, choice));
            tokio::spawn(async move { approvals.decide(voice).await.is_ok() })
        };
        let (yes, no) = (voice("ann", Choice::Approve), voice("bob", Choice::Deny));
        let (yes, no) = (yes.await.unwrap(), no.await.unwrap());
        assert!(yes != no, "{round}: one of them was faster");
        let state = if yes { State::Pending } else { State::Failed };
        assert_eq!(world.status(asked.task_id).await, state);
        if yes {
            world.cancel(asked.task_id).await.unwrap();
        }
    }
}

async fn votes_and_cancels_at_once_leave_no_open_question(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..10 {
        let asked = parked(&world, 1).await;
        let (approvals, voice) = (world.approvals(), deciding(asked.id, "ann", Choice::Approve));
        let vote = tokio::spawn(async move { approvals.decide(voice).await });
        let (tasks, id) = (world.tasks.clone(), asked.task_id);
        let cancel = tokio::spawn(async move { tasks.cancel(id, "boss", None).await });
        let (vote, cancel) = (vote.await.unwrap(), cancel.await.unwrap());
        assert_eq!(cancel.unwrap(), State::Cancelled);
        let (shown, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
        match vote {
            Ok(_) => assert_eq!((shown.status, votes.len()), (Status::Approved, 1)),
            late => {
                assert_eq!(refused(late), "approval_withdrawn");
                assert_eq!((shown.status, votes.len()), (Status::Withdrawn, 0));
            }
        }
    }
}

async fn an_unknown_approval_is_not_found(dialect: Dialect) {
    let world = World::new(dialect).await;
    let nowhere = windlass_domain::id::ApprovalId(uuid::Uuid::now_v7());
    assert_eq!(refused(world.vote(nowhere, "ann", Choice::Approve).await), "not_found");
    assert_eq!(world.approvals().show(nowhere).await.unwrap(), None);
    let mut quiet = deciding(nowhere, "ann", Choice::Approve);
    (quiet.right, quiet.audit_unknown) = (Right::NoToken, false);
    assert_eq!(refused(world.approvals().decide(quiet).await), "not_found");
    assert_eq!(audited(&world).await.len(), 1, "what was told not to be written is not");
}
