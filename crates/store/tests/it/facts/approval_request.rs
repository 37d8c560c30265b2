//! Requests that somebody must approve: what they permit is done with the last voice, or not at
//! all.

use crate::world::*;
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::approval::{Choice, Kind, Status};
use windlass_domain::id::{ApprovalId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_store::approval::{Approval, Approvals, NewRequest};
use windlass_store::audit;
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::tx::Tx;

conformance!(
    an_approved_request_is_carried_out_in_the_same_transaction,
    a_denied_or_expired_request_is_not_carried_out,
    a_request_that_cannot_be_carried_out_stays_open,
    the_same_request_again_is_one_approval,
    a_request_needs_a_finished_task,
    of_racing_voices_one_carries_it_out,
);

fn replay(task: TaskId, n: i64) -> NewRequest {
    NewRequest {
        id: ApprovalId(Uuid::now_v7()),
        task,
        action: "replay".into(),
        arguments: json!({ "from": "beginning", "n": n }),
        request: json!({ "task_id": Uuid::now_v7(), "from": "beginning" }),
        approvers: Some(2),
        requested_by: "ops".into(),
        expires_ms: Some(60_000),
        announce: None,
    }
}

async fn open(world: &World, new: NewRequest) -> Outcome<Approval> {
    let body = move |tx: &mut dyn Tx| Approvals::open_request(tx, &new);
    Ok(world.store.write("open_request", body).await.unwrap()?)
}

/// Carrying out leaves a mark in the transaction of the vote.
fn marking(world: &World) -> Approvals {
    let approvals = world.approvals();
    approvals.on_approved(Arc::new(|tx: &mut dyn Tx, approval: &Approval| {
        let request = approval.request.clone().unwrap();
        audit::write(tx, "hook", "carried_out", &request).map(Ok)
    }));
    approvals
}

async fn finished(world: &World) -> TaskId {
    let held = world.running(job()).await;
    world.finish(&held, complete()).await.unwrap();
    held.task.id
}

fn carried_out(world: &World) -> String {
    world.by_hand("SELECT count(*) FROM audit WHERE event = 'carried_out'").unwrap()
}

async fn an_approved_request_is_carried_out_in_the_same_transaction(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = marking(&world);
    let task = finished(&world).await;
    let asked = open(&world, replay(task, 1)).await.unwrap();
    assert_eq!(
        (asked.kind, asked.status, asked.gate.as_str()),
        (Kind::Replay, Status::Open, "replay")
    );
    let own = approvals.decide(deciding(asked.id, "ops", Choice::Approve)).await;
    assert_eq!(refused(own), "self_approval");
    approvals.decide(deciding(asked.id, "ann", Choice::Approve)).await.unwrap();
    assert_eq!(carried_out(&world), "0");
    let last = deciding(asked.id, "bob", Choice::Approve);
    let decided = approvals.decide(last.clone()).await.unwrap();
    assert_eq!((decided.approval.status, decided.moved), (Status::Approved, None));
    assert_eq!(carried_out(&world), "1");
    // A COMMIT whose answer was lost.
    approvals.decide(last).await.unwrap();
    assert_eq!(carried_out(&world), "1");
    let late = approvals.decide(deciding(asked.id, "cleo", Choice::Approve)).await;
    assert_eq!(refused(late), "already_decided");
}

async fn a_denied_or_expired_request_is_not_carried_out(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = marking(&world);
    let task = finished(&world).await;
    let denied = open(&world, replay(task, 1)).await.unwrap();
    let decided = approvals.decide(deciding(denied.id, "ann", Choice::Deny)).await.unwrap();
    assert_eq!(decided.approval.status, Status::Denied);
    let expiring = open(&world, replay(task, 2)).await.unwrap();
    world.pass_ms(60_000);
    assert_eq!(world.tasks.expire_approvals(10).await.unwrap().scanned, 0);
    assert_eq!(approvals.expire_requests(10).await.unwrap(), 1);
    assert_eq!(approvals.expire_requests(10).await.unwrap(), 0);
    let (shown, _) = approvals.show(expiring.id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.decided_at), (Status::Expired, Some(world.now())));
    assert_eq!(carried_out(&world), "0");
    assert_eq!(world.story(task).await.pop().unwrap(), "complete:completed");
}

async fn a_request_that_cannot_be_carried_out_stays_open(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = world.approvals();
    approvals.on_approved(Arc::new(|_: &mut dyn Tx, _: &Approval| Ok(Err(Refusal::NotDue))));
    let asked = open(&world, NewRequest { approvers: None, ..replay(finished(&world).await, 1) });
    let asked = asked.await.unwrap();
    let voice = approvals.decide(deciding(asked.id, "ann", Choice::Approve)).await;
    assert_eq!(refused(voice), "not_due");
    let (shown, votes) = approvals.show(asked.id).await.unwrap().unwrap();
    assert_eq!((shown.status, votes), (Status::Open, vec![]));
}

async fn the_same_request_again_is_one_approval(dialect: Dialect) {
    let world = World::new(dialect).await;
    let task = finished(&world).await;
    let first = open(&world, replay(task, 1)).await.unwrap();
    let again = open(&world, replay(task, 1)).await.unwrap();
    assert_eq!(first, again);
    let other = open(&world, replay(task, 2)).await.unwrap();
    assert_ne!(first.id, other.id);
}

async fn a_request_needs_a_finished_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let bad = NewRequest { action: String::new(), ..replay(finished(&world).await, 1) };
    assert_eq!(refused(open(&world, bad).await), "validation_failed");
    let held = world.running(job()).await;
    let sql = format!(
        "INSERT INTO approval (id, task_id, gate, kind, request, created_at)
         VALUES ('{}', '{}', 'replay', 'replay', '{{}}', {})",
        Uuid::now_v7(),
        held.task.id,
        crate::refusal::instant(dialect, NOON),
    );
    let said = world.by_hand(&sql).unwrap_err();
    assert!(said.contains("windlass: "), "{said}");
}

async fn of_racing_voices_one_carries_it_out(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = marking(&world);
    let asked = open(&world, replay(finished(&world).await, 1)).await.unwrap();
    let voices = (0..6).map(|n| {
        let (approvals, voice) =
            (approvals.clone(), deciding(asked.id, &format!("op-{n}"), Choice::Approve));
        tokio::spawn(async move { approvals.decide(voice).await.is_ok() })
    });
    let mut counted = 0;
    for voice in voices.collect::<Vec<_>>() {
        counted += usize::from(voice.await.unwrap());
    }
    assert_eq!((counted, carried_out(&world).as_str()), (2, "1"));
}
