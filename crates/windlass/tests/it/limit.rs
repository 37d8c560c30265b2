//! Limits and pauses that are changed while nodes run.

use crate::world::{
    PATIENCE, World, claim, conformance, eventually, register, run, submit, without_polling,
};
use std::time::Duration;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::limit::{Mode, Pause, Rule, Scope};
use windlass::domain::refusal::Refusal;
use windlass::domain::request::SubmitRequest;
use windlass::domain::validate;
use windlass::engine::Error;
use windlass::store::error::Rejection;
use windlass::store::limit::LimitRules;
use windlass::store::statement::Dialect;
use windlass::store::task::Tasks;
use windlass::{Engine, Options};

conformance!(
    the_default_limits_hold_from_the_start,
    a_raised_limit_wakes_those_who_wait,
    a_resumed_queue_wakes_those_who_wait,
    the_next_period_of_a_rate_wakes_those_who_wait,
    what_is_paused_is_not_handed_to_those_who_wait,
    a_limit_that_makes_no_sense_is_refused,
    a_change_by_hand_is_enforced,
    rules_of_a_database_that_has_gone_back_are_enforced,
);

fn queue(max_active: i64) -> Rule {
    let (scope, name) = (Scope::Queue, Some("q".into()));
    Rule { scope, name, max_active: Some(max_active), max_pending: None, rate: None }
}

fn stop(mode: Mode) -> Pause {
    Pause { scope: Scope::Queue, name: Some("q".into()), mode, reason: None }
}

async fn ask(engine: &Engine, max: usize) -> usize {
    let session = register(engine, "q", 1_000, 60_000).await;
    engine.claim(session, claim(max, Duration::ZERO)).await.unwrap().len()
}

/// A worker that waits for work until there is some.
async fn waiting(engine: &Engine) -> tokio::task::JoinHandle<usize> {
    let session = register(engine, "q", 1, 60_000).await;
    let asking = engine.clone();
    let before = engine.idle_workers();
    let claiming = async move { asking.claim(session, claim(1, PATIENCE)).await.unwrap().len() };
    let handle = tokio::spawn(claiming);
    eventually("it waits", || async { engine.idle_workers() == before + 1 }).await;
    handle
}

async fn the_default_limits_hold_from_the_start(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..12 {
        submit(&world.engine, "q", |r| r.venture = Some("acme".into())).await;
    }
    assert_eq!(ask(&world.engine, 100).await, 10);
}

async fn a_raised_limit_wakes_those_who_wait(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    engine.put_limit(queue(0), "ann").await.unwrap();
    submit(engine, "q", |_| {}).await;
    assert_eq!(ask(engine, 1).await, 0);
    let got = waiting(engine).await;
    engine.put_limit(queue(1), "ann").await.unwrap();
    assert_eq!(got.await.unwrap(), 1);
    engine.delete_limit(Scope::Queue, Some("q".into()), "ann").await.unwrap();
    submit(engine, "q", |_| {}).await;
    assert_eq!(ask(engine, 1).await, 1);
}

/// Whoever waits is woken when the next period begins, not when somebody looks again.
async fn the_next_period_of_a_rate_wakes_those_who_wait(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    let rate = Some(windlass::domain::limit::Rate { count: 1, period_ms: 100 });
    let rule = windlass::domain::limit::Rule { rate, ..queue(5) };
    engine.put_limit(rule, "ann").await.unwrap();
    for _ in 0..3 {
        submit(engine, "q", |_| {}).await;
    }
    assert_eq!(ask(engine, 5).await, 1);
    for _ in 0..2 {
        assert_eq!(waiting(engine).await.await.unwrap(), 1);
    }
}

async fn a_resumed_queue_wakes_those_who_wait(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    engine.pause(stop(Mode::Pause), "ann").await.unwrap();
    submit(engine, "q", |_| {}).await;
    let got = waiting(engine).await;
    engine.resume(Scope::Queue, Some("q".into()), "ann").await.unwrap();
    assert_eq!(got.await.unwrap(), 1);
}

async fn what_is_paused_is_not_handed_to_those_who_wait(dialect: Dialect) {
    // A worker is there when the task comes: submits hand over in their own transaction.
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    let got = waiting(engine).await;
    engine.pause(stop(Mode::Pause), "ann").await.unwrap();
    eventually("it waits again", || async { engine.idle_workers() == 1 }).await;
    let id = submit(engine, "q", |_| {}).await;
    let shown = engine.tasks().show(id).await.unwrap().unwrap();
    assert_eq!((shown.status.as_str(), shown.attempt), ("pending", 0));
    assert!(!got.is_finished());
    engine.resume(Scope::Queue, Some("q".into()), "ann").await.unwrap();
    assert_eq!(got.await.unwrap(), 1);
}

async fn a_limit_that_makes_no_sense_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let engine = &world.engine;
    let before = engine.flow();
    let refused = engine.put_limit(queue(-1), "ann").await.unwrap_err();
    assert_eq!(refused.code(), "validation_failed");
    let pause = Pause { name: None, ..stop(Mode::Pause) };
    assert_eq!(engine.pause(pause, "ann").await.unwrap_err().code(), "validation_failed");
    let gone = engine.delete_limit(Scope::Queue, Some("q".into()), "ann").await.unwrap_err();
    assert!(matches!(gone, Error::Refused(Refusal::Unknown { what: "limit" })), "{gone}");
    let gone = engine.resume(Scope::Queue, Some("q".into()), "ann").await.unwrap_err();
    assert!(matches!(gone, Error::Refused(Refusal::Unknown { what: "pause" })), "{gone}");
    assert_eq!(engine.flow().rules, before.rules);
}

/// A person who changes the table is heard as well, and so is another node.
async fn a_change_by_hand_is_enforced(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    let rules = LimitRules::new(engine.store().clone());
    rules.put(queue(1), "somebody else").await.unwrap();
    eventually("it is enforced", || async { engine.flow().rules.len() == 7 }).await;
    submit(engine, "q", |_| {}).await;
    submit(engine, "q", |_| {}).await;
    assert_eq!(ask(engine, 2).await, 1);
}

/// It was restored, or its standby took over without the last change: what was read last counts.
async fn rules_of_a_database_that_has_gone_back_are_enforced(dialect: Dialect) {
    let World { engine, place } = World::with(dialect, without_polling()).await;
    let before = engine.flow();
    engine.put_limit(queue(1), "ann").await.unwrap();
    assert_ne!(engine.flow().rules, before.rules);
    let version = before.version;
    place.by_hand(&format!(
        "BEGIN; DELETE FROM limit_rule WHERE scope = 'queue' AND name = 'q';
         UPDATE limit_version SET version = {version}; COMMIT"
    ));
    eventually("it is forgotten", || async { engine.flow().rules == before.rules }).await;
    assert_eq!(engine.flow().version, version);
}

/// The thread of everything stands still, as a stopped process does, while somebody else sets a
/// limit.
fn stands_still(dialect: Dialect) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::with(dialect, without_polling()).await;
        submit(&world.engine, "q", |_| {}).await;
        let rules = LimitRules::new(world.engine.store().clone());
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let rule = Rule { max_pending: Some(0), ..queue(1) };
            runtime.unwrap().block_on(rules.put(rule, "somebody else")).unwrap();
        });
        other.join().unwrap();
        std::thread::sleep(Duration::from_millis(1_100));
        let request = SubmitRequest {
            queue: Some("q".into()),
            payload: serde_json::json!({}),
            ..SubmitRequest::default()
        };
        let task = validate::new_task(&request, TaskId(Uuid::now_v7()), "", "tester").unwrap();
        let outcome = world.engine.submit(vec![task]).await.pop().unwrap();
        assert!(matches!(outcome, Err(Rejection::Refused(Refusal::QueueFull(_)))), "{outcome:?}");
    });
}

#[test]
fn a_node_that_stood_still_takes_nothing_under_old_rules() {
    stands_still(Dialect::Sqlite);
    stands_still(Dialect::Postgres);
}

/// Somebody waits for work while the node stands still; meanwhile another node pauses the queue and
/// puts something into it. Everything that is due wakes at once then, whoever waits not last.
fn is_woken_after_standing_still(dialect: Dialect) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let polling = Options { poll: Duration::from_millis(200), ..without_polling() };
        let World { engine, place: _place } = World::with(dialect, polling).await;
        let waiting = waiting(&engine).await;
        let store = engine.store().clone();
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                LimitRules::new(store.clone()).pause(stop(Mode::Pause), "ann").await.unwrap();
                let request = SubmitRequest { queue: Some("q".into()), ..SubmitRequest::default() };
                let id = TaskId(Uuid::now_v7());
                let task = validate::new_task(&request, id, "", "tester").unwrap();
                Tasks::new(store).submit(vec![task]).await.pop().unwrap().unwrap();
            });
        });
        other.join().unwrap();
        std::thread::sleep(Duration::from_millis(1_100));
        tokio::time::sleep(Duration::from_millis(300)).await;
        let has_ended = waiting.is_finished();
        waiting.abort();
        assert!(!has_ended, "a paused queue gave something out: {:?}", waiting.await);
    });
}

#[test]
fn a_node_that_stood_still_gives_nothing_out_under_old_rules() {
    is_woken_after_standing_still(Dialect::Sqlite);
    is_woken_after_standing_still(Dialect::Postgres);
}

#[test]
fn a_change_on_one_node_is_enforced_on_another() {
    run(two_nodes, Dialect::Postgres);
}

async fn two_nodes(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    world.engine.pause(stop(Mode::Pause), "ann").await.unwrap();
    submit(&world.engine, "q", |_| {}).await;
    eventually("the other knows", || async { !other.flow().pauses.is_empty() }).await;
    assert_eq!(ask(&other, 1).await, 0);
    let got = waiting(&other).await;
    // Whoever waits there is woken when the pause ends here.
    world.engine.resume(Scope::Queue, Some("q".into()), "ann").await.unwrap();
    assert_eq!(got.await.unwrap(), 1);
    world.engine.pause(stop(Mode::Drain), "ann").await.unwrap();
    eventually("the other drains", || async { !other.flow().pauses.is_empty() }).await;
    let request =
        windlass::domain::request::SubmitRequest { queue: Some("q".into()), ..Default::default() };
    let id = windlass::domain::id::TaskId(uuid::Uuid::now_v7());
    let task = other.new_task(&request, id, "", "tester").unwrap();
    let refused = other.submit(vec![task]).await.pop().unwrap().unwrap_err();
    assert!(matches!(refused, Rejection::Refused(Refusal::Draining(_))), "{refused:?}");
}

#[test]
fn two_nodes_together_stay_within_a_limit() {
    run(together, Dialect::Postgres);
}

async fn together(dialect: Dialect) {
    let world = World::with(dialect, Options::default()).await;
    let other = world.another(Options::default()).await;
    world.engine.put_limit(queue(3), "ann").await.unwrap();
    eventually("the other knows", || async { other.flow().rules.len() == 7 }).await;
    for _ in 0..10 {
        submit(&world.engine, "q", |_| {}).await;
    }
    let (here, there) = tokio::join!(ask(&world.engine, 10), ask(&other, 10));
    assert_eq!(here + there, 3);
}
