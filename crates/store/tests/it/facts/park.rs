//! Waiting without a worker: wait and wake, and approvals.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::{Answer, Choice};
use windlass_domain::command::Command;
use windlass_domain::id::{ApprovalId, LeaseId};
use windlass_domain::state::State;
use windlass_store::error::{Error, Rejection};
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finishing};

conformance!(
    a_waiting_task_has_no_holder_and_is_not_claimed,
    a_woken_task_goes_back_to_its_place_in_line,
    only_a_waiting_task_is_woken,
    only_the_live_lease_of_a_running_task_parks_it,
    a_task_asks_only_with_an_open_approval_of_its_own,
    a_bad_question_does_not_hurt_others_of_its_batch,
    a_task_that_asked_has_no_holder_and_is_not_claimed,
    an_approved_task_goes_on,
    a_denied_task_fails_with_the_comment,
    an_unanswered_task_fails,
    a_decision_needs_a_task_that_waits_for_it,
    cancelling_a_waiting_task_withdraws_its_approval,
    a_deadline_withdraws_the_approval,
    a_finish_after_parking_is_already_finished,
);

async fn wait(world: &World, held: &Assignment) {
    let command = Command::Wait { lease_id: held.lease_id };
    assert_eq!(world.ask(held.task.id, command).await.unwrap(), State::Waiting);
}

fn approval(world: &World, id: ApprovalId) -> String {
    world.by_hand(&format!("SELECT status FROM approval WHERE id = '{id}'")).unwrap()
}

async fn a_waiting_task_has_no_holder_and_is_not_claimed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.tell(&held, Some("5"), None).await.unwrap();
    wait(&world, &held).await;
    let shown = world.show(held.task.id).await;
    assert_eq!((&shown.claimed_by, shown.claimed_at), (&None, None));
    assert_eq!((shown.lease_expires_at, shown.last_heartbeat_at), (None, None));
    assert_eq!(shown.checkpoint, Some(serde_json::json!(5)));
    world.pass_ms(3_600_000);
    assert_eq!(world.claim("w2", 1).await, []);
    assert_eq!(world.tasks.expire_leases(10).await.unwrap().scanned, 0);
}

async fn a_woken_task_goes_back_to_its_place_in_line(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    wait(&world, &held).await;
    world.pass_ms(1_000);
    world.submit_all((0..3).map(|_| job()).collect()).await;
    world.claim("w2", 1).await;
    assert_eq!(world.ask(held.task.id, Command::Wake).await.unwrap(), State::Pending);
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.release_count, shown.retry_count), (0, 0));
    let again = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!((again.task.id, again.attempt), (held.task.id, 2));
    let story = world.story(held.task.id).await;
    assert_eq!(story[2..], ["wait:waiting", "wake:pending", "claim:claimed"]);
}

async fn only_a_waiting_task_is_woken(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    assert_eq!(refused(world.ask(held.task.id, Command::Wake).await), "illegal_transition");
    wait(&world, &held).await;
    world.ask(held.task.id, Command::Wake).await.unwrap();
    assert_eq!(refused(world.ask(held.task.id, Command::Wake).await), "illegal_transition");
}

async fn only_the_live_lease_of_a_running_task_parks_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    let park = |lease_id| world.ask(held.task.id, Command::Wait { lease_id });
    assert_eq!(refused(park(held.lease_id).await), "illegal_transition");
    world.start(&held).await.unwrap();
    assert_eq!(refused(park(LeaseId(Uuid::new_v4())).await), "lease_lost");
    world.pass_ms(60_000);
    assert_eq!(refused(park(held.lease_id).await), "lease_lost");
    assert_eq!(world.status(held.task.id).await, State::Running);
}

fn asking_for(held: &Assignment, approval_id: ApprovalId) -> Command {
    let question = Box::new(crate::world::question("gate", None));
    Command::AskApproval { lease_id: held.lease_id, approval_id, question }
}

async fn a_task_asks_only_with_an_open_approval_of_its_own(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [asking, other] = [world.running(job()).await, world.running(job()).await];
    let theirs = world.ask_approval(&other).await.unwrap();
    let outcome = world.ask(asking.task.id, asking_for(&asking, theirs)).await;
    let refused = matches!(outcome, Err(Rejection::Failed(Error::Constraint { .. })));
    assert!(refused, "{outcome:?}");
    assert_eq!(world.show(asking.task.id).await, asking.task);
    assert_eq!(world.finish(&asking, complete()).await.unwrap(), State::Completed);
}

async fn a_bad_question_does_not_hurt_others_of_its_batch(dialect: Dialect) {
    let world = World::new(dialect).await;
    let other = world.running(job()).await;
    let taken = world.ask_approval(&other).await.unwrap();
    let mut asks = Vec::new();
    for i in 0..10 {
        let held = world.running(job()).await;
        let command = match i {
            4 => asking_for(&held, taken),
            _ => Command::Wait { lease_id: held.lease_id },
        };
        let (tasks, id) = (world.tasks.clone(), held.task.id);
        asks.push(
            async move { tasks.ask(windlass_store::task::Ask::new(id, command, "tester")).await },
        );
    }
    let asks: Vec<_> = asks.into_iter().map(tokio::spawn).collect();
    for (i, ask) in asks.into_iter().enumerate() {
        let outcome = ask.await.unwrap();
        assert_eq!(outcome.is_ok(), i != 4, "{i}: {outcome:?}");
    }
}

async fn a_task_that_asked_has_no_holder_and_is_not_claimed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = world.ask_approval(&held).await.unwrap();
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.status, State::WaitingForApproval);
    assert_eq!((&shown.claimed_by, shown.lease_expires_at), (&None, None));
    world.pass_ms(3_600_000);
    assert_eq!(world.claim("w2", 1).await, []);
    assert_eq!(approval(&world, id), "open");
    let last = world.tasks.history(held.task.id, 0, 10).await.unwrap().pop().unwrap();
    let digest = crate::world::question("gate", None).digest;
    let told = serde_json::json!({ "approval": id, "gate": "gate", "digest": digest });
    assert_eq!(last.metadata, Some(told));
    assert_eq!(last.lease_id, Some(held.lease_id.digest()));
}

async fn an_approved_task_goes_on(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = world.ask_approval(&held).await.unwrap();
    world.vote(id, "ann", Choice::Approve).await.unwrap();
    assert_eq!(world.status(held.task.id).await, State::Pending);
    assert_eq!(approval(&world, id), "approved");
    let again = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!((again.task.id, again.attempt), (held.task.id, 2));
    let history = world.tasks.history(held.task.id, 0, 10).await.unwrap();
    assert_eq!(history[3].event.as_str(), "approve");
    assert_eq!(history[3].metadata.as_ref().unwrap()["approval"], serde_json::json!(id));
}

async fn a_denied_task_fails_with_the_comment(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = world.ask_approval(&held).await.unwrap();
    let command = Command::Deny(Answer {
        approvers: vec!["ann".into()],
        comment: Some("too expensive".into()),
    });
    assert_eq!(world.ask(held.task.id, command).await.unwrap(), State::Failed);
    let error = world.show(held.task.id).await.error.unwrap();
    assert_eq!(error.code, "APPROVAL_DENIED");
    assert_eq!(error.message, "approval denied: too expensive");
    let last = world.tasks.history(held.task.id, 0, 10).await.unwrap().pop().unwrap();
    let metadata = last.metadata.unwrap();
    assert_eq!(metadata["approval"], serde_json::json!(id));
    assert_eq!(metadata["comment"], "too expensive");
    assert_eq!(metadata["approvers"], serde_json::json!(["ann"]));
    assert_eq!(approval(&world, id), "denied");
}

async fn an_unanswered_task_fails(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = world.ask_approval(&held).await.unwrap();
    assert_eq!(world.ask(held.task.id, Command::ExpireApproval).await.unwrap(), State::Failed);
    let last = world.tasks.history(held.task.id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!(last.metadata.unwrap()["approval"], serde_json::json!(id));
    assert_eq!(world.show(held.task.id).await.error.unwrap().code, "APPROVAL_EXPIRED");
    assert_eq!(world.story(held.task.id).await.pop().unwrap(), "expire_approval:failed");
}

async fn a_decision_needs_a_task_that_waits_for_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    for command in [
        Command::Approve(Answer::default()),
        Command::Deny(Answer::default()),
        Command::ExpireApproval,
    ] {
        assert_eq!(refused(world.ask(held.task.id, command).await), "illegal_transition");
    }
    world.ask_approval(&held).await.unwrap();
    assert_eq!(refused(world.ask(held.task.id, Command::Wake).await), "illegal_transition");
}

async fn cancelling_a_waiting_task_withdraws_its_approval(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = world.ask_approval(&held).await.unwrap();
    assert_eq!(world.cancel(held.task.id).await.unwrap(), State::Cancelled);
    assert_eq!(approval(&world, id), "withdrawn");
    assert_eq!(
        refused(world.ask(held.task.id, Command::Approve(Answer::default())).await),
        "illegal_transition"
    );
}

async fn a_deadline_withdraws_the_approval(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.deadline_ms = Some(1_000))).await;
    let id = world.ask_approval(&held).await.unwrap();
    world.pass_ms(1_000);
    let report = world.tasks.expire_deadlines(10).await.unwrap();
    assert_eq!(report.changed, [(held.task.id, State::Failed)]);
    assert_eq!(approval(&world, id), "withdrawn");
}

async fn a_finish_after_parking_is_already_finished(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    wait(&world, &held).await;
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&held, how).await), "already_finished");
    }
    assert_eq!(world.status(held.task.id).await, State::Waiting);
}
