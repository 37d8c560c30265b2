//! Replays that people agree to: made with the last voice, once, or not at all.

use crate::world::*;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::approval::{Choice, REQUEST_MS, Status};
use windlass_domain::id::{ApprovalId, TaskId};
use windlass_domain::replay::ReplayFrom;
use windlass_domain::state::State;
use windlass_domain::step::{StepInput, check};
use windlass_domain::trouble::{Event, Status as TroubleStatus};
use windlass_store::approval::{Approval, Approvals, ReplayRequest, Requested, carry_out_replay};
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, BeginStep, Begun, Consent, Holder, Replay, Resolution};
use windlass_store::trouble::{Act, Troubles};

conformance!(
    an_approved_replay_is_made_with_the_last_voice_and_once,
    a_denied_replay_is_never_made,
    the_same_replay_is_asked_for_once_also_at_the_same_time,
    a_replay_resolves_trouble_in_its_own_transaction_or_is_not_made,
    an_approved_replay_resolves_the_trouble_it_was_asked_for,
    a_replay_whose_trouble_was_closed_meanwhile_is_withdrawn,
    a_replay_whose_id_was_taken_meanwhile_is_withdrawn,
    a_replay_can_be_asked_for_when_its_steps_in_doubt_are_decided_over,
    a_replay_that_nobody_decides_about_expires,
    an_approver_reads_which_steps_run_again_and_no_others_do,
    a_run_between_asking_and_agreeing_makes_the_question_void,
    who_asks_again_after_another_run_asks_another_question,
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

/// A poisoned task, and the question whether it may be replayed to resolve its trouble.
async fn poisoned(world: &World, approvals: &Approvals) -> (ReplayRequest, Approval) {
    let held = world.running(job()).await;
    world.finish(&held, fail("POISON_TASK")).await.unwrap();
    let origin = held.task.id;
    let act = Act::new(origin, Event::Resolve, "olga");
    let resolves = Some(Act { note: Some("again".into()), ..act });
    let request = ReplayRequest { resolves, ..request(origin, true) };
    let approval = asked(approvals, request.clone()).await;
    assert!(approval.arguments.contains("resolves_poison"), "an approver reads all of it");
    (request, approval)
}

async fn an_approved_replay_resolves_the_trouble_it_was_asked_for(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (approvals, troubles) = (approvals(&world), Troubles::new(world.store.clone()));
    let (request, approval) = poisoned(&world, &approvals).await;
    let origin = request.replay.origin;
    // The same replay without the trouble is another question.
    let plain = ReplayRequest { resolves: None, ..self::request(origin, true) };
    assert_ne!(asked(&approvals, plain).await.id, approval.id);
    let (before, _) = troubles.show(origin).await.unwrap().unwrap();
    assert_eq!(before.status, TroubleStatus::Pending);
    let voice = deciding(approval.id, "ann", Choice::Approve);
    approvals.decide(voice.clone()).await.unwrap();
    let (trouble, notes) = troubles.show(origin).await.unwrap().unwrap();
    assert_eq!(
        (trouble.status, trouble.resolved_by_task),
        (TroubleStatus::Resolved, Some(request.replay.id))
    );
    let last = notes.last().unwrap();
    assert_eq!((last.author.as_str(), last.note.as_deref()), ("olga", Some("again")));
    assert_eq!(world.show(request.replay.id).await.replay_of, Some(origin));
    // A COMMIT whose answer was lost.
    approvals.decide(voice).await.unwrap();
    assert_eq!(troubles.show(origin).await.unwrap().unwrap().1, notes);
}

async fn a_replay_whose_trouble_was_closed_meanwhile_is_withdrawn(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (approvals, troubles) = (approvals(&world), Troubles::new(world.store.clone()));
    let (request, approval) = poisoned(&world, &approvals).await;
    let origin = request.replay.origin;
    troubles.act(Act::new(origin, Event::Abandon, "ann")).await.unwrap();
    let voice = approvals.decide(deciding(approval.id, "ann", Choice::Approve)).await;
    assert_eq!(refused(voice), "illegal_transition");
    let (shown, votes) = approvals.show(approval.id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.decided_at), (Status::Withdrawn, Some(world.now())));
    assert_eq!(votes, vec![]);
    assert!(world.tasks.show(request.replay.id).await.unwrap().is_none());
    let (trouble, _) = troubles.show(origin).await.unwrap().unwrap();
    assert_eq!(trouble.status, TroubleStatus::Abandoned);
}

async fn a_replay_whose_id_was_taken_meanwhile_is_withdrawn(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = finished(&world).await;
    let wanted = request(origin, true);
    let approval = asked(&approvals, wanted.clone()).await;
    world.submit(job_id(wanted.replay.id)).await;
    // Whoever asks for it now is refused at once.
    let again = ReplayRequest { replay: wanted.replay.clone(), ..request(origin, true) };
    assert_eq!(refused(approvals.replay(again).await), "idempotency_key_reused");
    let voice = approvals.decide(deciding(approval.id, "ann", Choice::Approve)).await;
    assert_eq!(refused(voice), "idempotency_key_reused");
    let (shown, _) = approvals.show(approval.id).await.unwrap().unwrap();
    assert_eq!(shown.status, Status::Withdrawn);
    let late = approvals.decide(deciding(approval.id, "bob", Choice::Approve)).await;
    assert_eq!(refused(late), "approval_withdrawn");
    assert_eq!(world.tasks.count_replays(origin, 10).await.unwrap(), 0);
    // The same replay under another id is a question of its own.
    assert_ne!(asked(&approvals, request(origin, true)).await.id, approval.id);
}

async fn a_replay_can_be_asked_for_when_its_steps_in_doubt_are_decided_over(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let held = world.running(job()).await;
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let item = BeginStep { holder, step: check(&input).unwrap() };
    let Begun::New(step, _) = world.tasks.begin_step(item).await.unwrap() else { panic!() };
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let decide = |resolution| world.tasks.resolve_step(step, resolution, "olga".into(), None);
    let wanted = request(held.task.id, true);
    assert_eq!(refused(approvals.replay(wanted.clone()).await), "not_idempotent");
    decide(Resolution::AllowRerun).await.unwrap();
    let approval = asked(&approvals, wanted.clone()).await;
    approvals.decide(deciding(approval.id, "ann", Choice::Approve)).await.unwrap();
    assert_eq!(world.status(wanted.replay.id).await, State::Pending);
}

async fn a_replay_that_nobody_decides_about_expires(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let wanted = request(finished(&world).await, true);
    let approval = asked(&approvals, wanted.clone()).await;
    assert_eq!(approval.expires_at, Some(world.now().plus_ms(REQUEST_MS)));
    world.pass_ms(REQUEST_MS - 1);
    assert_eq!(approvals.expire_requests(10).await.unwrap(), 0);
    world.pass_ms(1);
    let late = approvals.decide(deciding(approval.id, "ann", Choice::Approve)).await;
    assert_eq!(refused(late), "expired");
    assert_eq!(approvals.expire_requests(10).await.unwrap(), 1);
    let (shown, _) = approvals.show(approval.id).await.unwrap().unwrap();
    assert_eq!(shown.status, Status::Expired);
    // Asked again, it is a new question.
    assert_ne!(asked(&approvals, request(wanted.replay.origin, true)).await.id, approval.id);
}

async fn begin(world: &World, held: &Assignment, name: &str) {
    let input = StepInput { name, kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let item = BeginStep { holder, step: check(&input).unwrap() };
    assert!(matches!(world.tasks.begin_step(item).await.unwrap(), Begun::New(_, _)));
}

/// A failed task that began what must not run twice.
async fn charged(world: &World) -> TaskId {
    let held = world.running(job()).await;
    begin(world, &held, "charge").await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    held.task.id
}

/// A request for a replay that may run again what must not run twice.
fn allowed(origin: TaskId, is_required: bool) -> ReplayRequest {
    let mut request = request(origin, is_required);
    request.replay.allow_non_idempotent = true;
    request
}

/// The first replay of a family, in somebody's hands.
async fn first_replay(world: &World, approvals: &Approvals, wanted: ReplayRequest) -> Assignment {
    let Requested::Task(first, _) = approvals.replay(wanted).await.unwrap() else {
        panic!("the first needs nobody")
    };
    let mut claim = claim_of("w1", &["q"], 1);
    claim.start = true;
    let held = world.tasks.claim(claim).await.unwrap().into_iter().find(|a| a.task.id == first);
    held.expect("nothing else is ready")
}

/// Whoever agreed to a second run caused a third one, because another replay was quicker.
async fn a_run_between_asking_and_agreeing_makes_the_question_void(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = charged(&world).await;
    let first = first_replay(&world, &approvals, allowed(origin, false)).await;
    let late = allowed(origin, true);
    let named = asked(&approvals, late.clone()).await;
    begin(&world, &first, "charge").await;
    let voice = approvals.decide(deciding(named.id, "ann", Choice::Approve)).await;
    let told = voice.as_ref().unwrap_err().to_string();
    let run_in = format!("charge (run in task {} since)", first.task.id);
    assert!(told.contains(&run_in) && told.ends_with("ask anew"), "{told}");
    assert_eq!(refused(voice), "not_idempotent");
    assert!(world.tasks.show(late.replay.id).await.unwrap().is_none());
    let (shown, votes) = approvals.show(named.id).await.unwrap().unwrap();
    assert_eq!((shown.status, votes), (Status::Withdrawn, vec![]));
    // Asked again, with that run known.
    let anew = allowed(origin, true);
    let named = asked(&approvals, anew.clone()).await;
    approvals.decide(deciding(named.id, "ann", Choice::Approve)).await.unwrap();
    assert_eq!(world.status(anew.replay.id).await, State::Pending);
}

/// The question that had become void was handed out once more.
async fn who_asks_again_after_another_run_asks_another_question(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = charged(&world).await;
    let first = first_replay(&world, &approvals, allowed(origin, false)).await;
    let named = asked(&approvals, allowed(origin, true)).await;
    assert_eq!(asked(&approvals, allowed(origin, true)).await.id, named.id, "nothing has changed");
    begin(&world, &first, "charge").await;
    let anew = allowed(origin, true);
    let other = asked(&approvals, anew.clone()).await;
    assert_ne!(other.id, named.id);
    approvals.decide(deciding(other.id, "ann", Choice::Approve)).await.unwrap();
    assert_eq!(world.status(anew.replay.id).await, State::Pending);
}

async fn an_approver_reads_which_steps_run_again_and_no_others_do(dialect: Dialect) {
    let world = World::new(dialect).await;
    let approvals = approvals(&world);
    let origin = charged(&world).await;
    let wanted = |is_required| allowed(origin, is_required);
    let named = asked(&approvals, wanted(true)).await;
    assert!(named.arguments.contains(r#""runs_again":{"charge":1}"#), "{}", named.arguments);
    // Another replay does more meanwhile: that is not what was agreed to.
    let first = first_replay(&world, &approvals, wanted(false)).await;
    begin(&world, &first, "mail").await;
    let voice = approvals.decide(deciding(named.id, "ann", Choice::Approve)).await;
    assert!(voice.as_ref().unwrap_err().to_string().contains("mail"));
    assert_eq!(refused(voice), "not_idempotent");
    let (shown, votes) = approvals.show(named.id).await.unwrap().unwrap();
    assert_eq!((shown.status, votes), (Status::Withdrawn, vec![]));
    let anew = wanted(true);
    let named = asked(&approvals, anew.clone()).await;
    assert!(named.arguments.contains(r#"{"charge":1,"mail":1}"#), "{}", named.arguments);
    approvals.decide(deciding(named.id, "ann", Choice::Approve)).await.unwrap();
    assert_eq!(world.status(anew.replay.id).await, State::Pending);
}
