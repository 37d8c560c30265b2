//! Approvals on a running engine: who is woken, who is told, and what expires by itself.

use crate::world::{
    World, claim, complete, conformance, eventually, register, status, story, submit,
    without_polling,
};
use serde_json::json;
use std::time::Duration;
use windlass::domain::approval::{Choice, QuestionRequest};
use windlass::domain::id::{ApprovalId, ChangeId};
use windlass::domain::state::State;
use windlass::engine::{ApprovalRequest, By, DecisionRequest, Error};
use windlass::store::approval::Asked;
use windlass::store::statement::Dialect;
use windlass::store::task::{Assignment, Start};
use windlass::{Engine, Options};

conformance!(
    an_approved_task_goes_to_a_waiting_worker_at_once,
    a_decision_on_one_node_wakes_a_worker_on_another,
    a_denied_task_ends_its_wait,
    an_expired_question_ends_its_task,
    a_parked_task_frees_its_slot_and_waits_for_nobody,
    a_token_from_the_notice_decides,
    wrong_tokens_are_audited_and_cannot_fill_the_audit,
    a_token_that_was_issued_is_audited_whatever_was_guessed_before,
);

async fn ask(engine: &Engine, held: &Assignment, expires_ms: Option<i64>) -> Asked {
    let question = QuestionRequest {
        gate: "pay".into(),
        action: "transfer".into(),
        arguments: json!({ "amount": 12 }),
        expires_ms,
        ..QuestionRequest::default()
    };
    let (task, lease) = (held.task.id, held.lease_id);
    let (checkpoint, requester, actor) = (None, None, "w".to_owned());
    let request = ApprovalRequest { task, lease, question, checkpoint, requester, actor };
    engine.ask_approval(request).await.unwrap()
}

fn voice(approval: ApprovalId, choice: Choice) -> DecisionRequest {
    let by = By::Operator { approval, actor: "ann".into() };
    DecisionRequest { by, choice, comment: None, digest: None }
}

async fn an_approved_task_goes_to_a_waiting_worker_at_once(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    let asked = ask(&engine, &held, None).await;
    assert!(asked.parked);
    let waiting = engine.clone();
    let waits = tokio::spawn(async move {
        waiting.claim(worker, claim(1, Duration::from_secs(20))).await.unwrap()
    });
    let engine_ref = &engine;
    eventually("a worker waits", || async move { engine_ref.idle_workers() == 1 }).await;
    engine.decide_approval(voice(asked.approval.id, Choice::Approve)).await.unwrap();
    let again = waits.await.unwrap().pop().expect("the task, without a poll");
    assert_eq!(again.task.id, id);
    // It asks again, as a handler that runs from its beginning does.
    assert!(!ask(&engine, &again, None).await.parked);
    assert_eq!(complete(&engine, &again).await, State::Completed);
    let told = story(&engine, id).await;
    let rest = ["ask_approval waiting_for_approval", "approve pending", "claim running"];
    assert_eq!(told[2..5], rest);
}

async fn a_decision_on_one_node_wakes_a_worker_on_another(dialect: Dialect) {
    if dialect == Dialect::Sqlite {
        // An embedded database has one node.
        return;
    }
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    let worker = register(&other, "q", 1, 60_000).await;
    submit(&other, "q", |_| {}).await;
    let held = other.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    let asked = ask(&other, &held, None).await;
    let waiting = other.clone();
    let waits = tokio::spawn(async move {
        waiting.claim(worker, claim(1, Duration::from_secs(20))).await.unwrap()
    });
    let other_ref = &other;
    eventually("a worker waits", || async move { other_ref.idle_workers() == 1 }).await;
    world.engine.decide_approval(voice(asked.approval.id, Choice::Approve)).await.unwrap();
    assert_eq!(waits.await.unwrap().len(), 1);
}

async fn a_denied_task_ends_its_wait(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    let asked = ask(&engine, &held, None).await;
    let waiting = engine.clone();
    let wait =
        tokio::spawn(async move { waiting.wait_for(id, Duration::from_secs(20)).await.unwrap() });
    let engine_ref = &engine;
    eventually("somebody waits", || async move { engine_ref.open_waits() == 1 }).await;
    let mut no = voice(asked.approval.id, Choice::Deny);
    no.comment = Some("too much".into());
    engine.decide_approval(no).await.unwrap();
    let waited = wait.await.unwrap();
    assert!(waited.done);
    assert_eq!(waited.task.error.unwrap().message, "approval denied: too much");
}

async fn an_expired_question_ends_its_task(dialect: Dialect) {
    let options = Options { without_duties: vec!["approvals".into()], ..without_polling() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    ask(&engine, &held, Some(1)).await;
    let engine_ref = &engine;
    // The duty's sweep, called alone.
    eventually("it expires", || async move {
        engine_ref.expire_approvals().await.unwrap();
        status(engine_ref, id).await == State::Failed
    })
    .await;
    let error = engine.tasks().show(id).await.unwrap().unwrap().error.unwrap();
    assert_eq!(error.code, "APPROVAL_EXPIRED");
}

async fn a_parked_task_frees_its_slot_and_waits_for_nobody(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    let (first, second) = (submit(&engine, "q", |_| {}).await, submit(&engine, "q", |_| {}).await);
    let mut stream = engine.open_stream(worker).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..2 {
        let held = loop {
            match stream.next().await.expect("the stream lives") {
                windlass::engine::StreamEvent::Assign(held) => break held,
                _ => continue,
            }
        };
        taken.push(held.task.id);
        if taken.len() == 1 {
            let (task, lease) = (held.task.id, held.lease_id);
            let change = ChangeId(uuid::Uuid::now_v7());
            engine.begin(vec![Start { task, lease, actor: "w".into(), change }]).await;
            ask(&engine, &held, None).await;
        }
    }
    assert_eq!(taken, [first, second], "one slot, and the first task gave it back");
}

async fn a_token_from_the_notice_decides(dialect: Dialect) {
    let options = Options { approvers: vec!["ann".into()], ..without_polling() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    ask(&engine, &held, None).await;
    let severity = windlass::domain::notice::Severity::Critical;
    let notice = engine.notices().claim(severity, 0, 10).await.unwrap().pop().unwrap();
    let token = notice.sealed.unwrap()["tokens"][0]["token"].as_str().unwrap().to_owned();
    let by = By::Token(token);
    let yes = DecisionRequest { by, choice: Choice::Approve, comment: None, digest: None };
    engine.decide_approval(yes.clone()).await.unwrap();
    assert_eq!(status(&engine, id).await, State::Pending);
    let again = engine.decide_approval(yes).await.unwrap_err();
    assert_eq!(again.code(), "already_decided");
}

async fn wrong_tokens_are_audited_and_cannot_fill_the_audit(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    for n in 0..20 {
        let by = By::Token(format!("wla_{n}"));
        let wrong = DecisionRequest { by, choice: Choice::Approve, comment: None, digest: None };
        let told: Error = engine.decide_approval(wrong).await.unwrap_err();
        assert_eq!(told.code(), "not_found");
    }
    let entries = engine
        .audit()
        .list(windlass::store::audit::Filter::of_event("approval_refused"), None, 100)
        .await
        .unwrap();
    assert!((1..20).contains(&entries.len()), "{}", entries.len());
    assert_eq!(entries[0].actor, "unknown");
}

async fn a_token_that_was_issued_is_audited_whatever_was_guessed_before(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let worker = register(&engine, "q", 1, 60_000).await;
    submit(&engine, "q", |_| {}).await;
    let held = engine.claim(worker, claim(1, Duration::ZERO)).await.unwrap().pop().unwrap();
    let approval = ask(&engine, &held, None).await.approval.id;
    let old = engine.issue_token(approval, "ann", None, "olga").await.unwrap().token;
    engine.issue_token(approval, "ann", None, "olga").await.unwrap();
    let try_it = async |token: String| {
        let by = By::Token(token);
        let wrong = DecisionRequest { by, choice: Choice::Approve, comment: None, digest: None };
        let told: Error = engine.decide_approval(wrong).await.unwrap_err();
        (told.code(), told.to_string())
    };
    let guessed = try_it("wla_guessed".into()).await;
    assert_eq!(try_it(old.reveal()).await, guessed, "whoever brings it learns nothing");
    let list = async || {
        let filter = windlass::store::audit::Filter::of_event("approval_refused");
        engine.audit().list(filter, None, 100).await.unwrap()
    };
    let entries = list().await;
    assert_eq!(entries.len(), 2, "both, in one second");
    let entry = &entries[0];
    assert_eq!((entry.actor.as_str(), &entry.subject), ("ann", &Some(approval.to_string())));
    assert_eq!(entry.detail["reason"], "the token was replaced by a newer one");
    let since = std::time::Instant::now();
    for _ in 0..50 {
        try_it(old.reveal()).await;
    }
    let most = 2 + 10 * (since.elapsed().as_secs() as usize + 2);
    assert!(list().await.len() <= most, "nor can it fill the audit");
}
