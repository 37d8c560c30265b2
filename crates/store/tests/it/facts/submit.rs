//! Submitting: one task for one request, however often it is sent.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::error::Rejection;
use windlass_store::statement::Dialect;

conformance!(
    a_task_that_ended_shows_how_often_it_is_repeated,
    a_submitted_task_is_shown_as_it_was_sent,
    many_who_look_at_once_see_what_each_would_be_shown,
    the_same_id_twice_is_one_task,
    the_same_key_twice_is_one_task,
    a_key_with_another_request_is_refused,
    a_key_belongs_to_its_scope,
    a_repeated_delegation_is_a_no_op_that_says_whether_it_differs,
    the_same_key_twice_in_one_batch_is_one_task,
    an_atomic_batch_is_written_whole_or_not_at_all,
    an_atomic_batch_may_repeat_a_task,
    one_poisoned_task_in_a_batch_of_a_thousand_fails_alone,
    the_history_names_each_submitter_in_a_merged_batch,
);

async fn a_submitted_task_is_shown_as_it_was_sent(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = task(|r| {
        r.payload = serde_json::json!({"z": 1.0, "a": [1e16, -0.5, "ä\u{1f600}", null, true]});
        r.name = Some("report".into());
        r.agent = Some("ada".into());
        r.priority = Some(-3);
        r.tags = Some([("team".to_owned(), "x".to_owned())].into());
        r.deadline_ms = Some(5_000);
        r.correlation_id = Some("c-1".into());
        r.idempotency_key = Some("k".into());
    });
    let id = world.submit(new.clone()).await;
    let shown = world.tasks.show(id).await.unwrap().unwrap();
    assert_eq!(shown.status, State::Pending);
    assert_eq!(windlass_domain::json::canonical(&shown.payload), new.payload);
    assert_eq!(shown.name.as_deref(), Some("report"));
    assert_eq!(shown.agent.as_deref(), Some("ada"));
    assert_eq!(shown.priority, -3);
    assert_eq!(shown.tags, new.tags);
    assert_eq!(shown.created_at, world.now());
    assert_eq!(shown.run_at, world.now());
    assert_eq!(shown.deadline_at, Some(world.now().plus_ms(5_000)));
    assert_eq!(shown.max_retries, 3);
    assert_eq!(shown.idempotency_key.as_deref(), Some("k"));
    assert_eq!(shown.finished_at, None);
    assert_eq!(world.tasks.show(TaskId(Uuid::nil())).await.unwrap(), None);
}

async fn many_who_look_at_once_see_what_each_would_be_shown(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (unknown, pending) = (TaskId(Uuid::nil()), world.submit(job()).await);
    let (held, waiting) = (world.running(job()).await, world.running(job()).await);
    let command = Command::Wait { lease_id: waiting.lease_id };
    world.ask(waiting.task.id, command).await.unwrap();
    let ids = [unknown, pending, held.task.id, held.task.id, waiting.task.id];
    let look = |n: usize| world.tasks.look(ids[n]);
    let (a, b, c, d, e) = tokio::join!(look(0), look(1), look(2), look(3), look(4));
    for (id, looked) in ids.into_iter().zip([a, b, c, d, e]) {
        assert_eq!(looked.unwrap(), world.tasks.show(id).await.unwrap());
    }
}

async fn the_same_id_twice_is_one_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = TaskId(Uuid::new_v4());
    let first = world.submit_all(vec![job_id(id)]).await.pop().unwrap().unwrap();
    let second = world.submit_all(vec![job_id(id)]).await.pop().unwrap().unwrap();
    assert!(!first.duplicate && second.duplicate);
    assert_eq!((first.id, second.id), (id, id));
    let other = task(|r| {
        r.id = Some(id);
        r.payload = serde_json::json!("other");
    });
    let third = world.submit_all(vec![other]).await.pop().unwrap();
    assert_eq!(refused(third), "idempotency_key_reused");
    assert_eq!(world.story(id).await, ["submit:pending"]);
}

fn keyed(key: &str, payload: i64) -> windlass_domain::task::NewTask {
    task(|r| {
        r.idempotency_key = Some(key.into());
        r.payload = payload.into();
    })
}

async fn the_same_key_twice_is_one_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = world.submit(keyed("k", 1)).await;
    let second = world.submit_all(vec![keyed("k", 1)]).await.pop().unwrap().unwrap();
    assert!(second.duplicate);
    assert_eq!(second.id, first);
}

async fn a_key_with_another_request_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(keyed("k", 1)).await;
    let second = world.submit_all(vec![keyed("k", 2)]).await.pop().unwrap();
    assert_eq!(refused(second), "idempotency_key_reused");
}

async fn a_key_belongs_to_its_scope(dialect: Dialect) {
    let world = World::new(dialect).await;
    let scoped = |scope: &str| {
        let mut new = keyed("k", 1);
        new.idempotency_scope = scope.into();
        new
    };
    let ids = [world.submit(scoped("a")).await, world.submit(scoped("b")).await];
    assert_ne!(ids[0], ids[1]);
}

async fn a_repeated_delegation_is_a_no_op_that_says_whether_it_differs(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = TaskId(Uuid::new_v4());
    let with = |payload: i64| {
        delegation(|r| {
            r.id = Some(id);
            r.payload = payload.into();
        })
    };
    world.submit(with(1)).await;
    let same = world.submit_all(vec![with(1)]).await.pop().unwrap().unwrap();
    assert!(same.duplicate && !same.payload_differs);
    let other = world.submit_all(vec![with(2)]).await.pop().unwrap().unwrap();
    assert!(other.duplicate && other.payload_differs);
    let shown = world.tasks.show(id).await.unwrap().unwrap();
    assert_eq!(shown.payload, serde_json::json!(1));
}

async fn the_same_key_twice_in_one_batch_is_one_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let outcomes = world.submit_all(vec![keyed("k", 1), keyed("k", 1), keyed("k", 2)]).await;
    let ids: Vec<_> = outcomes.iter().flatten().map(|s| s.id).collect();
    assert_eq!(ids.len(), 2, "{outcomes:?}");
    assert_eq!(ids[0], ids[1]);
    assert_eq!(outcomes.iter().flatten().filter(|s| !s.duplicate).count(), 1);
}

async fn an_atomic_batch_is_written_whole_or_not_at_all(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(keyed("k", 1)).await;
    let batch = vec![keyed("new", 1), job(), keyed("k", 2), job()];
    let ids: Vec<_> = batch.iter().map(|t| t.id).collect();
    let (index, why) = world.tasks.submit_atomic(batch).await.unwrap_err();
    assert_eq!(index, 2);
    assert!(matches!(why, Rejection::Refused(r) if r.code() == "idempotency_key_reused"));
    for id in ids {
        assert_eq!(world.tasks.show(id).await.unwrap(), None);
    }
    let mut poisoned = vec![job(), job(), job()];
    poisoned[1].queue = String::new();
    let first = poisoned[0].id;
    let (index, why) = world.tasks.submit_atomic(poisoned).await.unwrap_err();
    assert_eq!(index, 1, "{why}");
    assert_eq!(world.tasks.show(first).await.unwrap(), None);
}

async fn an_atomic_batch_may_repeat_a_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = world.submit(keyed("k", 1)).await;
    let written = world.tasks.submit_atomic(vec![job(), keyed("k", 1)]).await.unwrap();
    assert!(!written[0].duplicate && written[1].duplicate);
    assert_eq!(written[1].id, first);
}

async fn one_poisoned_task_in_a_batch_of_a_thousand_fails_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut batch: Vec<_> = (0..1_000).map(|_| job()).collect();
    // What validation would never let through: the database must refuse it by itself.
    batch[417].queue = "q".repeat(300);
    let outcomes = world.submit_all(batch).await;
    let failed: Vec<_> = (0..1_000).filter(|&i| outcomes[i].is_err()).collect();
    assert_eq!(failed, [417]);
    assert_eq!(world.claim("w1", 1_000).await.len(), 999);
}

async fn the_history_names_each_submitter_in_a_merged_batch(dialect: Dialect) {
    let world = World::new(dialect).await;
    let batch: Vec<_> = (0..5)
        .map(|i| {
            let mut new = job();
            new.actor = format!("caller-{i}");
            new
        })
        .collect();
    let ids: Vec<_> = batch.iter().map(|t| t.id).collect();
    world.submit_all(batch).await;
    for (i, id) in ids.into_iter().enumerate() {
        let history = world.tasks.history(id, 0, 10).await.unwrap();
        assert_eq!(history[0].actor, format!("caller-{i}"));
        assert_eq!((history[0].from_status, history[0].to_status), (None, State::Pending));
    }
}

async fn a_task_that_ended_shows_how_often_it_is_repeated(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = held.task.id;
    world.finish(&held, complete()).await.unwrap();
    for count in 1..=2 {
        world.submit(NewTask { replay_of: Some(first), ..job() }).await;
        assert_eq!(world.show(first).await.replay_count, count);
    }
    let view = format!("SELECT replay_count FROM task WHERE id = '{first}'");
    assert_eq!(world.by_hand(&view).unwrap(), "2");
}
