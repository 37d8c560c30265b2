//! Replays that people agree to: made with the last voice, once, or not at all.

use crate::world::*;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::approval::{Choice, Status};
use windlass_domain::id::{ApprovalId, TaskId};
use windlass_domain::replay::ReplayFrom;
use windlass_domain::state::State;
use windlass_domain::trouble::{Event, Status as TroubleStatus};
use windlass_store::approval::{Approval, Approvals, ReplayRequest, Requested, carry_out_replay};
use windlass_store::statement::Dialect;
use windlass_store::task::{Consent, Replay};
use windlass_store::trouble::{Act, Troubles};

conformance!(
    an_approved_replay_is_made_with_the_last_voice_and_once,
    a_denied_replay_is_never_made,
    the_same_replay_is_asked_for_once_also_at_the_same_time,
    a_replay_resolves_trouble_in_its_own_transaction_or_is_not_made,
);

fn request(origin: TaskId, is_required: bool) -> ReplayRequest {
    let replay = Replay {
        origin,
        id: TaskId(Uuid::now_v7()),
        from: ReplayFrom::Beginning,
        allow_non_idempotent: false,
        actor: "olga".into(),
    };
    ReplayRequest {
        replay,
        consent: Consent::UpTo { threshold: 1, is_required },
        approval: ApprovalId(Uuid::now_v7()),
        requested_by: "olga".into(),
        announce: None,
        resolves: None,
    }
}

fn approvals(world: &World) -> Approvals {
    let approvals = world.approvals();
    approvals.on_approved(Arc::new(carry_out_replay));
    approvals
}

async fn finished(world: &World) -> TaskId {
    let held = world.running(job()).await;
    world.finish(&held, complete()).await.unwrap();
    held.task.id
}

async fn asked(approvals: &Approvals, request: ReplayRequest) -> Approval {
    match approvals.replay(request).await.unwrap() {
        Requested::Waits(approval) => *approval,
        Requested::Task(..) => panic!("nobody was asked"),
    }
}

async fn an_approved_replay_is_made_with_the_last_voice_and_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = finished(&world).await;
    let request = request(origin, true);
    let approval = asked(&approvals, request.clone()).await;
    assert_eq!((approval.status, approval.task_id), (Status::Open, origin));
    assert!(world.tasks.show(request.replay.id).await.unwrap().is_none());
    let own = approvals.decide(deciding(approval.id, "olga", Choice::Approve)).await;
    assert_eq!(refused(own), "self_approval");
    let voice = deciding(approval.id, "ann", Choice::Approve);
    let decided = approvals.decide(voice.clone()).await.unwrap();
    assert_eq!(decided.queue.as_deref(), Some("q"), "whose workers are woken");
    let new = world.show(request.replay.id).await;
    assert_eq!((new.replay_of, new.status), (Some(origin), State::Pending));
    // A COMMIT whose answer was lost, of the voice and of the request.
    approvals.decide(voice).await.unwrap();
    let again = approvals.replay(request.clone()).await.unwrap();
    assert_eq!(again, Requested::Task(request.replay.id, true));
    assert_eq!(world.tasks.count_replays(origin, 10).await.unwrap(), 1);
}

async fn a_denied_replay_is_never_made(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = finished(&world).await;
    let denied = request(origin, true);
    let approval = asked(&approvals, denied.clone()).await;
    approvals.decide(deciding(approval.id, "ann", Choice::Deny)).await.unwrap();
    assert!(world.tasks.show(denied.replay.id).await.unwrap().is_none());
    let late = approvals.decide(deciding(approval.id, "bob", Choice::Approve)).await;
    assert_eq!(refused(late), "already_decided");
    assert_eq!(world.tasks.count_replays(origin, 10).await.unwrap(), 0);
}

async fn the_same_replay_is_asked_for_once_also_at_the_same_time(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = finished(&world).await;
    let asks = (0..6).map(|_| {
        let (approvals, request) = (approvals.clone(), request(origin, false));
        tokio::spawn(async move { approvals.replay(request).await.unwrap() })
    });
    let (mut made, mut waits) = (0, std::collections::BTreeSet::new());
    for ask in asks.collect::<Vec<_>>() {
        match ask.await.unwrap() {
            Requested::Task(..) => made += 1,
            Requested::Waits(approval) => {
                waits.insert(approval.id);
            }
        }
    }
    assert_eq!((made, waits.len()), (1, 1), "one needs nobody, the others are one question");
}

async fn a_replay_resolves_trouble_in_its_own_transaction_or_is_not_made(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let troubles = Troubles::new(world.store.clone());
    let held = world.running(job()).await;
    world.finish(&held, fail("POISON_TASK")).await.unwrap();
    let origin = held.task.id;
    let resolve = || Some(Act::new(origin, Event::Resolve, "olga"));
    let first = ReplayRequest { resolves: resolve(), ..request(origin, false) };
    let done = approvals.replay(first.clone()).await.unwrap();
    assert_eq!(done, Requested::Task(first.replay.id, false));
    let (trouble, notes) = troubles.show(origin).await.unwrap().unwrap();
    assert_eq!(
        (trouble.status, trouble.resolved_by_task),
        (TroubleStatus::Resolved, Some(first.replay.id))
    );
    // A COMMIT whose answer was lost.
    let again = approvals.replay(first.clone()).await.unwrap();
    assert_eq!(again, Requested::Task(first.replay.id, true));
    assert_eq!(troubles.show(origin).await.unwrap().unwrap().1, notes);
    let late = ReplayRequest { resolves: resolve(), ..request(origin, false) };
    assert_eq!(refused(approvals.replay(late.clone()).await), "illegal_transition");
    assert!(world.tasks.show(late.replay.id).await.unwrap().is_none());
}
