//! Asking for an approval: identity, asking again, what is shown, expiry, lists.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::approval::{Choice, Question, QuestionRequest, Status};
use windlass_domain::id::LeaseId;
use windlass_domain::state::State;
use windlass_store::approval::Filter;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Beat};

conformance!(
    asking_parks_the_task_on_exactly_what_was_asked,
    what_was_approved_is_not_asked_again,
    another_digest_gate_or_occurrence_is_another_approval,
    a_replay_of_the_task_inherits_no_approval,
    the_same_call_again_finds_itself,
    the_lease_that_asked_is_answered_again_while_nobody_decided,
    a_lease_that_lost_its_task_is_never_told_approved,
    only_the_live_lease_of_a_running_task_asks,
    a_checkpoint_is_kept_with_the_question,
    moving_the_task_by_hand_gives_nobodys_voice,
    whoever_holds_the_task_is_the_requester_unless_one_is_named,
    an_unanswered_question_ends_its_task_when_it_expires,
    a_question_without_expiry_stands_for_ever,
    lists_are_newest_first_and_filtered,
);

fn about(arguments: serde_json::Value) -> Question {
    let request = QuestionRequest {
        gate: "pay".into(),
        action: "transfer".into(),
        arguments,
        ..QuestionRequest::default()
    };
    request.validate("").unwrap()
}

async fn approve(world: &World, approval: &windlass_store::approval::Approval) {
    let decided = world.vote(approval.id, "ann", Choice::Approve).await.unwrap();
    assert_eq!(decided.approval.status, Status::Approved);
}

async fn claimed_again(world: &World, held: &Assignment) -> Assignment {
    let again = world.claim("w2", 1).await.pop().expect("it is in line again");
    assert_eq!(again.task.id, held.task.id);
    world.start(&again).await.unwrap();
    again
}

async fn asking_parks_the_task_on_exactly_what_was_asked(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    // Big numbers, floats, keys out of order and characters that turn the direction of writing.
    let arguments =
        json!({ "to\u{202e}": "eve", "amount": 9_007_199_254_740_993_i64, "rate": 1e21 });
    let question = about(arguments.clone());
    let approval = world.asked(&held, question.clone()).await;
    assert_eq!(world.status(held.task.id).await, State::WaitingForApproval);
    assert_eq!(approval.arguments, windlass_domain::json::canonical(&arguments));
    assert_eq!((&approval.action, &approval.gate), (&question.action, &question.gate));
    assert_eq!(approval.digest, windlass_domain::approval::digest("transfer", &arguments));
    assert_eq!((approval.status, approval.required, approval.approvals), (Status::Open, 1, 0));
    let (shown, votes) = world.approvals().show(approval.id).await.unwrap().unwrap();
    assert_eq!((shown, votes), (approval, vec![]));
}

async fn what_was_approved_is_not_asked_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = world.asked(&held, about(json!({ "n": 1, "m": 2 }))).await;
    approve(&world, &first).await;
    let again = claimed_again(&world, &held).await;
    for _ in 0..2 {
        // However the arguments are written.
        let same = about(serde_json::from_str(r#"{"m": 2, "n": 1}"#).unwrap());
        let asked = world.approvals().ask(asking(&again, same)).await.unwrap();
        assert!(!asked.parked && !asked.is_new);
        assert_eq!((asked.approval.id, asked.approval.status), (first.id, Status::Approved));
    }
    assert_eq!(world.status(held.task.id).await, State::Running);
    assert_eq!(world.finish(&again, complete()).await.unwrap(), State::Completed);
    let count = "SELECT count(*) FROM approval";
    assert_eq!(world.by_hand(count).unwrap(), "1");
}

async fn another_digest_gate_or_occurrence_is_another_approval(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = world.running(job()).await;
    let first = about(json!(1));
    let others = [
        about(json!(2)),
        about(json!(1.0)),
        Question { gate: "pay twice".into(), ..first.clone() },
        Question { occurrence: 1, ..first.clone() },
    ];
    let mut seen = vec![world.asked(&held, first).await];
    for question in others {
        approve(&world, seen.last().unwrap()).await;
        held = claimed_again(&world, &held).await;
        let approval = world.asked(&held, question).await;
        assert!(seen.iter().all(|known| known.id != approval.id));
        seen.push(approval);
    }
}

async fn a_replay_of_the_task_inherits_no_approval(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = world.asked(&held, about(json!(1))).await;
    approve(&world, &first).await;
    let again = claimed_again(&world, &held).await;
    world.finish(&again, complete()).await.unwrap();
    let replay = windlass_domain::task::NewTask { replay_of: Some(held.task.id), ..job() };
    let replayed = world.running(replay).await;
    let asked = world.asked(&replayed, about(json!(1))).await;
    assert_ne!(asked.id, first.id);
}

/// A COMMIT whose answer was lost runs the call again, with the same ids.
async fn the_same_call_again_finds_itself(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let call = asking(&held, about(json!(1)));
    let first = world.approvals().ask(call.clone()).await.unwrap();
    let again = world.approvals().ask(call).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(world.by_hand("SELECT count(*) FROM approval").unwrap(), "1");
    let story = world.story(held.task.id).await;
    assert_eq!(story.iter().filter(|line| line.starts_with("ask_approval")).count(), 1);
}

async fn the_lease_that_asked_is_answered_again_while_nobody_decided(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = world.asked(&held, about(json!(1))).await;
    let again = world.approvals().ask(asking(&held, about(json!(1)))).await.unwrap();
    assert_eq!((again.approval.id, again.parked, again.is_new), (first.id, true, false));
    let mut other = asking(&held, about(json!(1)));
    other.checkpoint = Some("{\"at\":2}".into());
    // It was answered like the first, and its checkpoint was lost.
    assert_eq!(refused(world.approvals().ask(other).await), "already_finished");
    // Another question, or a stranger's lease, is not answered with this one.
    let other = world.approvals().ask(asking(&held, about(json!(2)))).await;
    assert_eq!(refused(other), "lease_lost");
    let mut stranger = asking(&held, about(json!(1)));
    stranger.lease = LeaseId(Uuid::now_v7());
    assert_eq!(refused(world.approvals().ask(stranger).await), "lease_lost");
}

/// It would do what was approved while the next holder does it too.
async fn a_lease_that_lost_its_task_is_never_told_approved(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let call = asking(&held, about(json!(1)));
    let first = world.approvals().ask(call.clone()).await.unwrap();
    approve(&world, &first.approval).await;
    let late = asking(&held, about(json!(1)));
    assert_eq!(refused(world.approvals().ask(late).await), "lease_lost");
    let again = claimed_again(&world, &held).await;
    world.pass_ms(60_000);
    let expired = world.approvals().ask(asking(&again, about(json!(1)))).await;
    assert_eq!(refused(expired), "lease_lost");
}

async fn only_the_live_lease_of_a_running_task_asks(dialect: Dialect) {
    let world = World::new(dialect).await;
    let nobody = world.running(job()).await;
    let mut unknown = asking(&nobody, about(json!(1)));
    unknown.task = windlass_domain::id::TaskId(Uuid::now_v7());
    assert_eq!(refused(world.approvals().ask(unknown).await), "not_found");
    world.submit(job()).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    let claimed = world.approvals().ask(asking(&held, about(json!(1)))).await;
    assert_eq!(refused(claimed), "illegal_transition");
    world.start(&held).await.unwrap();
    world.cancel(held.task.id).await.unwrap();
    let cancelled = world.approvals().ask(asking(&held, about(json!(1)))).await;
    assert_eq!(refused(cancelled), "lease_lost");
    assert_eq!(world.by_hand("SELECT count(*) FROM approval").unwrap(), "0");
}

async fn a_checkpoint_is_kept_with_the_question(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let mut call = asking(&held, about(json!(1)));
    call.checkpoint = Some("{\"step\":4}".into());
    let asked = world.approvals().ask(call).await.unwrap();
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({ "step": 4 })));
    // Whoever asks again after the answer may be beyond it: then it does not come back.
    approve(&world, &asked.approval).await;
    let again = claimed_again(&world, &held).await;
    let progress = Beat { checkpoint: Some("{\"step\":9}".into()), ..beat_of(&again) };
    assert!(world.tasks.heartbeat(vec![progress]).await.pop().unwrap().is_ok());
    let mut call = asking(&again, about(json!(1)));
    call.checkpoint = Some("{\"step\":4}".into());
    assert!(!world.approvals().ask(call).await.unwrap().parked);
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({ "step": 9 })));
}

async fn moving_the_task_by_hand_gives_nobodys_voice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let asked = world.asked(&held, Question { required: 3, ..about(json!(1)) }).await;
    let id = held.task.id;
    let moved =
        format!("UPDATE task_state SET status = 'pending', approval_id = NULL WHERE id = '{id}'");
    let said = world.by_hand(&moved).unwrap_err();
    assert!(said.contains("voices"), "{said}");
    let (approval, _) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!(approval.status, Status::Open);
    assert_eq!(world.status(id).await, State::WaitingForApproval);
    // Taking it away is an operator's right, and withdraws the question.
    let cancelled =
        format!("UPDATE task_state SET status = 'cancelled', approval_id = NULL WHERE id = '{id}'");
    world.by_hand(&cancelled).unwrap();
    let (approval, _) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!(approval.status, Status::Withdrawn);
}

async fn whoever_holds_the_task_is_the_requester_unless_one_is_named(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    assert_eq!(world.asked(&held, about(json!(1))).await.requested_by, "w1");
    let held = world.running(job()).await;
    let named = Question { requested_by: "ci".into(), ..about(json!(1)) };
    assert_eq!(world.asked(&held, named).await.requested_by, "ci");
}

async fn an_unanswered_question_ends_its_task_when_it_expires(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let asked = world.asked(&held, question("gate", Some(1_000))).await;
    assert_eq!(asked.expires_at, Some(world.now().plus_ms(1_000)));
    world.pass_ms(999);
    assert_eq!(world.tasks.expire_approvals(10).await.unwrap().scanned, 0);
    world.pass_ms(1);
    // Before the sweep has come, it is too late already.
    let late = world.vote(asked.id, "ann", Choice::Approve).await;
    assert_eq!(refused(late), "expired");
    let report = world.tasks.expire_approvals(10).await.unwrap();
    assert_eq!(report.changed, [(held.task.id, State::Failed)]);
    assert_eq!(world.show(held.task.id).await.error.unwrap().code, "APPROVAL_EXPIRED");
    let (shown, _) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.decided_at), (Status::Expired, Some(world.now())));
    let history = world.tasks.history(held.task.id, 0, 10).await.unwrap();
    assert_eq!(history.last().unwrap().actor, "duty:expire_approvals");
    assert_eq!(refused(world.vote(asked.id, "ann", Choice::Approve).await), "expired");
}

async fn a_question_without_expiry_stands_for_ever(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let asked = world.asked(&held, question("gate", None)).await;
    world.pass_ms(365 * 24 * 3_600_000);
    assert_eq!(world.tasks.expire_approvals(10).await.unwrap().scanned, 0);
    approve(&world, &asked).await;
    assert_eq!(world.status(held.task.id).await, State::Pending);
}

async fn lists_are_newest_first_and_filtered(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut all = Vec::new();
    for n in 0..7 {
        let held = world.running(job()).await;
        let gate = if n % 2 == 0 { "even" } else { "odd" };
        let approval = world.asked(&held, question(gate, None)).await;
        if n < 3 {
            world.vote(approval.id, "ann", Choice::Deny).await.unwrap();
        }
        all.insert(0, (approval.id, held.task.id, gate, n < 3));
        // Two of them in the same millisecond.
        world.pass_ms(i64::from(n != 3));
    }
    let approvals = world.approvals();
    let list = async |filter: Filter| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = approvals.list(filter.clone(), after, 2).await.unwrap();
            found.extend(page.into_iter().map(|approval| approval.id));
            match next {
                Some(next) => after = Some(next),
                None => return found,
            }
        }
    };
    let only = |keep: &dyn Fn(&(_, _, &str, bool)) -> bool| -> Vec<_> {
        all.iter().filter(|row| keep(row)).map(|(id, ..)| *id).collect()
    };
    assert_eq!(list(Filter::default()).await, only(&|_| true));
    let open = Filter { status: Some(Status::Open), ..Filter::default() };
    assert_eq!(list(open.clone()).await, only(&|row| !row.3));
    let odd = Filter { gate: Some("odd".into()), ..open };
    assert_eq!(list(odd.clone()).await, only(&|row| !row.3 && row.2 == "odd"));
    let denied = Filter { status: Some(Status::Denied), ..Filter::default() };
    assert_eq!(list(denied).await, only(&|row| row.3));
    let task = Filter { task_id: Some(all[0].1), ..Filter::default() };
    assert_eq!(list(task.clone()).await, [all[0].0]);
    let none = Filter { status: Some(Status::Expired), ..task };
    assert_eq!(list(none).await, []);
}
