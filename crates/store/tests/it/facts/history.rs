//! History: every transition in full, oldest first, each with its own actor and reason.

use crate::world::*;
use serde_json::{Value, json};
use windlass_domain::command::Command;
use windlass_domain::state::{Event, State};
use windlass_store::statement::Dialect;
use windlass_store::task::{Ask, Assignment, Claim, Finishing, History};

conformance!(
    every_transition_is_kept_in_full,
    the_metadata_of_each_event_has_its_keys,
    history_comes_in_pages_oldest_first,
    the_history_of_one_task_shows_no_other,
    finishes_that_share_a_transaction_keep_their_own_actors_and_reasons,
    commands_that_share_a_transaction_keep_their_own_actors_and_reasons,
    beats_and_starts_that_share_a_transaction_keep_their_own_actors,
);

async fn every_transition_is_kept_in_full(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let submitted_at = world.now();
    world.pass_ms(10);
    let first = world.claim("w1", 1).await.pop().unwrap();
    world.pass_ms(10);
    world.beat(&first).await.unwrap();
    world.pass_ms(10);
    let mut item = finish_of(&first, fail("TIMEOUT"));
    (item.actor, item.reason) = ("w1/a".into(), Some("too slow".into()));
    world.tasks.finish(vec![item]).await.pop().unwrap().unwrap();
    let run_at = world.now().plus_ms(500);
    world.pass_ms(500);
    let claim = Claim { start: true, ..claim_of("w2", &["q"], 1) };
    let second = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    world.pass_ms(10);
    world.finish(&second, complete()).await.unwrap();

    let error = json!({"code": "TIMEOUT", "message": "it broke"});
    let failure = json!({
        "error": error, "attempt": 1, "session": "w1", "retry_count": 1, "run_at": run_at,
    });
    let row = |from_status, to_status, event, actor: &str, held: Option<&Assignment>, ms| History {
        task_id: id,
        seq: 0,
        from_status,
        to_status,
        event,
        actor: actor.into(),
        reason: None,
        lease_id: held.map(|h| h.lease_id.digest()),
        metadata: None,
        at: submitted_at.plus_ms(ms),
    };
    use State::{Claimed, Completed, Pending, Retry, Running};
    let (one, two) = (Some(&first), Some(&second));
    let mut expected = [
        row(None, Pending, Event::Submit, "tester", None, 0),
        row(Some(Pending), Claimed, Event::Claim, "w1", one, 10),
        row(Some(Claimed), Running, Event::Start, "w1", one, 20),
        row(Some(Running), Retry, Event::Fail, "w1/a", one, 30),
        row(Some(Retry), Running, Event::Claim, "w2", two, 530),
        row(Some(Running), Completed, Event::Complete, "w1", two, 540),
    ];
    expected[3].reason = Some("too slow".into());
    expected[3].metadata = Some(failure);
    let mut history = world.tasks.history(id, 0, 100).await.unwrap();
    history.iter_mut().for_each(|h| h.seq = 0);
    assert_eq!(history, expected);
}

async fn last_metadata(world: &World, task: windlass_domain::id::TaskId) -> Vec<String> {
    let last = world.tasks.history(task, 0, 100).await.unwrap().pop().unwrap();
    let Some(Value::Object(metadata)) = last.metadata else { return Vec::new() };
    metadata.keys().cloned().collect()
}

async fn the_metadata_of_each_event_has_its_keys(dialect: Dialect) {
    let world = World::new(dialect).await;
    let failed = ["attempt", "error", "session"];
    let retried = ["attempt", "error", "retry_count", "run_at", "session"];
    for (how, keys) in [
        (Finishing::Release, vec!["release_count", "session"]),
        (fail("TIMEOUT"), retried.to_vec()),
        (fail("INVALID_INPUT"), failed.to_vec()),
        (complete(), vec![]),
    ] {
        let held = world.running(job()).await;
        world.finish(&held, how).await.unwrap();
        assert_eq!(last_metadata(&world, held.task.id).await, keys);
        world.cancel(held.task.id).await.ok();
    }
    let lost = world.running(job()).await;
    world.pass_ms(60_000);
    world.tasks.expire_leases(10).await.unwrap();
    assert_eq!(last_metadata(&world, lost.task.id).await, retried);
    world.cancel(lost.task.id).await.unwrap();
    assert_eq!(last_metadata(&world, lost.task.id).await, [""; 0]);
    let late = world.submit(task(|r| r.deadline_ms = Some(1))).await;
    world.pass_ms(1);
    world.tasks.expire_deadlines(10).await.unwrap();
    assert_eq!(last_metadata(&world, late).await, failed);
}

async fn history_comes_in_pages_oldest_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    for _ in 0..4 {
        let held = world.claim("w1", 1).await.pop().unwrap();
        world.finish(&held, Finishing::Release).await.unwrap();
        // Another task's rows lie in between.
        let other = world.submit(job()).await;
        world.cancel(other).await.unwrap();
    }
    let whole = world.tasks.history(id, 0, 100).await.unwrap();
    assert_eq!(whole.len(), 9);
    assert!(whole.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    for size in [1, 2, 4, 9] {
        let (mut after, mut paged) = (0, Vec::new());
        loop {
            let page = world.tasks.history(id, after, size).await.unwrap();
            assert!(page.len() <= size as usize);
            let Some(last) = page.last() else { break };
            after = last.seq;
            paged.extend(page);
        }
        assert_eq!(paged, whole);
    }
}

async fn the_history_of_one_task_shows_no_other(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [one, _] = [world.running(job()).await, world.running(job()).await];
    let history = world.tasks.history(one.task.id, 0, 100).await.unwrap();
    assert!(history.iter().all(|h| h.task_id == one.task.id));
    let unknown = windlass_domain::id::TaskId(uuid::Uuid::new_v4());
    assert_eq!(world.tasks.history(unknown, 0, 100).await.unwrap(), []);
    assert_eq!(world.tasks.failures(unknown, 0, 100).await.unwrap(), []);
}

async fn held(world: &World, count: usize, start: bool) -> Vec<Assignment> {
    world.submit_all((0..count).map(|_| job()).collect()).await;
    world.tasks.claim(Claim { start, ..claim_of("w1", &["q"], count) }).await.unwrap()
}

async fn last(world: &World, task: windlass_domain::id::TaskId) -> History {
    world.tasks.history(task, 0, 100).await.unwrap().pop().unwrap()
}

async fn finishes_that_share_a_transaction_keep_their_own_actors_and_reasons(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = held(&world, 60, true).await;
    let ways = [complete(), fail("TIMEOUT"), Finishing::Release];
    let calls: Vec<_> = (held.iter().zip(ways.iter().cycle()).enumerate())
        .map(|(i, (held, how))| {
            let mut item = finish_of(held, how.clone());
            (item.actor, item.reason) = (format!("actor-{i}"), Some(format!("reason-{i}")));
            let tasks = world.tasks.clone();
            tokio::spawn(async move { tasks.finish(vec![item]).await.pop().unwrap() })
        })
        .collect();
    let ends = [State::Completed, State::Retry, State::Pending];
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), ends[i % 3]);
        let last = last(&world, held[i].task.id).await;
        assert_eq!((last.to_status, last.actor), (ends[i % 3], format!("actor-{i}")));
        assert_eq!(last.reason, Some(format!("reason-{i}")));
        assert_eq!(last.lease_id, Some(held[i].lease_id.digest()));
    }
}

async fn commands_that_share_a_transaction_keep_their_own_actors_and_reasons(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = held(&world, 40, true).await;
    let calls: Vec<_> = (held.iter().enumerate())
        .map(|(i, held)| {
            let lease_id = held.lease_id;
            let command = if i % 2 == 0 { Command::Cancel } else { Command::Wait { lease_id } };
            let mut ask = Ask::new(held.task.id, command, format!("actor-{i}"));
            ask.reason = Some(format!("reason-{i}"));
            let tasks = world.tasks.clone();
            tokio::spawn(async move { tasks.ask(ask).await })
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        let expected = if i % 2 == 0 { State::Cancelled } else { State::Waiting };
        assert_eq!(call.await.unwrap().unwrap(), expected);
        let last = last(&world, held[i].task.id).await;
        assert_eq!((last.to_status, last.actor), (expected, format!("actor-{i}")));
        assert_eq!(last.reason, Some(format!("reason-{i}")));
    }
}

async fn beats_and_starts_that_share_a_transaction_keep_their_own_actors(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = held(&world, 40, false).await;
    let beats = held[..20].iter().enumerate().map(|(i, held)| {
        let mut beat = beat_of(held);
        beat.actor = format!("actor-{i}");
        beat
    });
    assert!(world.tasks.heartbeat(beats.collect()).await.iter().all(Result::is_ok));
    let starts = held[20..].iter().enumerate().map(|(i, held)| windlass_store::task::Start {
        task: held.task.id,
        lease: held.lease_id,
        actor: format!("actor-{}", i + 20),
        change: windlass_domain::id::ChangeId(uuid::Uuid::now_v7()),
    });
    assert!(world.tasks.start(starts.collect()).await.iter().all(Result::is_ok));
    for (i, held) in held.iter().enumerate() {
        let last = last(&world, held.task.id).await;
        assert_eq!((last.event, last.actor), (Event::Start, format!("actor-{i}")));
        assert_eq!(last.lease_id, Some(held.lease_id.digest()));
    }
}
