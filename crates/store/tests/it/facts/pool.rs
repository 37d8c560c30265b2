//! Inference in pools, as the database keeps it: the schema's cases, first deltas, and pools.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::id::{ChangeId, LeaseId, SessionId, TaskId};
use windlass_domain::profile::Profile;
use windlass_domain::request::SubmitRequest;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::delta::{MEMORY_MS, Sources, WANTED_MS};
use windlass_store::error::Rejection;
use windlass_store::pool::Pools;
use windlass_store::session::{NewSession, Routes, Sessions};
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, BeginStream, Finishing, StreamBegun};

conformance!(
    a_new_inference_is_pending_and_nothing_else_is_set,
    request_and_response_come_back_as_they_were,
    a_drain_finds_what_waits_in_its_pools_oldest_first_and_nothing_else,
    what_a_provider_holds_is_found_by_its_session,
    only_what_waited_or_was_finished_too_long_is_swept,
    an_inference_needs_no_agent,
    where_an_inference_goes_is_stored_at_submit,
    other_times_than_the_profiles_can_be_said,
    the_first_delta_is_a_heartbeat_that_says_where_the_text_is,
    a_lost_lease_begins_no_text,
    a_task_that_goes_back_has_no_text,
    chunks_are_wanted_read_in_order_and_forgotten,
    a_chunk_that_reaches_beyond_an_index_is_found_and_the_longer_one_stays,
    the_session_that_holds_a_task_is_found_with_its_lease,
    a_pool_is_counted,
    what_sessions_provide_for_is_told_once_with_open_ones_first,
);

const HOUR_MS: i64 = 60 * 60 * 1_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// An inference that goes where its pool is.
fn of_pool(pool: &str, change: impl FnOnce(&mut SubmitRequest)) -> NewTask {
    inference_with(|r| {
        r.queue = None;
        r.pool = Some(pool.into());
        change(r);
    })
}

async fn a_new_inference_is_pending_and_nothing_else_is_set(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(of_pool("fast", |_| {})).await;
    let task = world.show(id).await;
    assert_eq!((task.profile, task.status), (Profile::Inference, State::Pending));
    assert_eq!(
        (task.attempt, task.retry_count, task.max_retries, task.release_count),
        (0, 0, 0, 0)
    );
    assert_eq!((task.claimed_by, task.claimed_at, task.stream_started_at), (None, None, None));
    assert_eq!((task.result, task.error, task.finished_at), (None, None, None));
    assert_eq!((task.llm, task.model, task.tier, task.owner), (None, None, None, None));
    assert_eq!(task.created_at.as_ms(), NOON);
}

async fn request_and_response_come_back_as_they_were(dialect: Dialect) {
    let world = World::new(dialect).await;
    let body = json!({ "messages": [{ "role": "user", "content": "grüße, \"世界\"\n" }],
        "temperature": 0.25, "tools": [], "stream": true, "nothing": null });
    let held = world.running(of_pool("fast", |r| r.payload = body.clone())).await;
    let answer = json!({ "choices": [{ "message": { "content": "ok" } }], "usage": { "a": 1e-7 } });
    let how = Finishing::Complete(Some(windlass_domain::json::canonical(&answer)));
    world.finish(&held, how).await.unwrap();
    let task = world.show(held.task.id).await;
    assert_eq!((task.payload, task.result), (body, Some(answer)));
}

async fn a_drain_finds_what_waits_in_its_pools_oldest_first_and_nothing_else(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = world.submit(of_pool("fast", |_| {})).await;
    world.submit(of_pool("elsewhere", |_| {})).await;
    let second = world.submit(of_pool("deep", |_| {})).await;
    let third = world.submit(of_pool("fast", |_| {})).await;
    world.running(of_pool("held", |_| {})).await;
    let claim = claim_of("p1", &["fast", "deep", "held"], 10);
    let taken = world.tasks.claim(claim).await.unwrap();
    let mut ids: Vec<TaskId> = taken.iter().map(|held| held.task.id).collect();
    let of_fast: Vec<TaskId> = ids.iter().copied().filter(|id| *id != second).collect();
    assert_eq!(of_fast, [first, third], "oldest first");
    ids.sort();
    assert_eq!(ids, [first, second, third]);
}

async fn what_a_provider_holds_is_found_by_its_session(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mine = world.submit(of_pool("fast", |_| {})).await;
    world.tasks.claim(claim_of("p1", &["fast"], 1)).await.unwrap();
    let other = world.submit(of_pool("fast", |_| {})).await;
    world.tasks.claim(claim_of("p2", &["fast"], 1)).await.unwrap();
    let held = world.tasks.unknown_to("p1", Vec::new()).await.unwrap();
    assert_eq!(held.iter().map(|held| held.task.id).collect::<Vec<_>>(), [mine]);
    let lost = world.tasks.lose_session("p1").await.unwrap();
    assert_eq!(lost.changed, [(mine, State::Pending)]);
    let back = world.show(mine).await;
    assert_eq!((back.claimed_by, back.claimed_at, back.release_count), (None, None, 1));
    assert_eq!(world.status(other).await, State::Claimed);
}

async fn only_what_waited_or_was_finished_too_long_is_swept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let done = world.running(of_pool("fast", |_| {})).await;
    world.finish(&done, complete()).await.unwrap();
    let running = world.running(of_pool("fast", |_| {})).await;
    let old = world.submit(of_pool("fast", |_| {})).await;
    let job = world.submit(job()).await;
    world.pass_ms(HOUR_MS);
    let young = world.submit(of_pool("fast", |_| {})).await;
    let swept = world.tasks.time_out_pending(None, 10).await.unwrap();
    assert_eq!(swept.changed, [(old, State::Failed)]);
    assert_eq!(world.show(old).await.error.unwrap().code, "PENDING_TIMEOUT");
    assert_eq!(world.status(running.task.id).await, State::Running);
    assert_eq!(world.status(job).await, State::Pending);
    world.pass_ms(7 * DAY_MS - HOUR_MS);
    assert_eq!(world.tasks.remove_expired(None, 10).await.unwrap(), 1);
    assert_eq!(world.tasks.show(done.task.id).await.unwrap(), None);
    assert_eq!(world.status(old).await, State::Failed, "it ended an hour later");
    assert_eq!(world.status(young).await, State::Pending);
}

async fn an_inference_needs_no_agent(dialect: Dialect) {
    let world = World::new(dialect).await;
    let direct = world.submit(of_pool("fast", |r| r.owner = Some("ann".into()))).await;
    let by_agent = world.submit(of_pool("fast", |r| r.agent = Some("scout".into()))).await;
    let direct = world.show(direct).await;
    assert_eq!((direct.agent, direct.owner.as_deref()), (None, Some("ann")));
    assert_eq!(world.show(by_agent).await.agent.as_deref(), Some("scout"));
}

async fn where_an_inference_goes_is_stored_at_submit(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world
        .submit(of_pool("fast", |r| {
            r.llm = Some("gpu-1".into());
            r.model = Some("small".into());
            r.tier = Some("batch".into());
        }))
        .await;
    let task = world.show(id).await;
    assert_eq!((task.queue.as_str(), task.pool.as_deref()), ("fast", Some("fast")));
    let pins = (task.llm.as_deref(), task.model.as_deref(), task.tier.as_deref());
    assert_eq!(pins, (Some("gpu-1"), Some("small"), Some("batch")));
}

async fn other_times_than_the_profiles_can_be_said(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(of_pool("fast", |_| {})).await;
    world.finish(&held, complete()).await.unwrap();
    let id = world.submit(of_pool("fast", |_| {})).await;
    let job = world.submit(job()).await;
    world.pass_ms(999);
    assert_eq!(world.tasks.time_out_pending(Some(1_000), 10).await.unwrap().changed, []);
    assert_eq!(world.tasks.remove_expired(Some(1_000), 10).await.unwrap(), 0);
    world.pass_ms(1);
    let swept = world.tasks.time_out_pending(Some(1_000), 10).await.unwrap();
    assert_eq!(swept.changed, [(id, State::Failed)]);
    let error = world.show(id).await.error.unwrap();
    assert!(error.message.contains("1000 ms"), "{error:?}");
    assert_eq!(world.tasks.remove_expired(Some(1_000), 10).await.unwrap(), 1);
    assert_eq!(world.status(job).await, State::Pending, "a job waits for ever");
}

async fn begin(world: &World, held: &Assignment, node: Uuid) -> Result<StreamBegun, Rejection> {
    let (task, lease, change) = (held.task.id, held.lease_id, ChangeId(Uuid::now_v7()));
    world.tasks.begin_stream(BeginStream { task, lease, lease_ms: None, node, change }).await
}

async fn the_first_delta_is_a_heartbeat_that_says_where_the_text_is(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(of_pool("fast", |_| {})).await;
    let held = world.tasks.claim(claim_of("p1", &["fast"], 1)).await.unwrap().pop().unwrap();
    world.pass_ms(1_000);
    let node = Uuid::now_v7();
    let begun = begin(&world, &held, node).await.unwrap();
    assert_eq!(begun, StreamBegun { attempt: 1, lease_ms: 600_000 });
    let task = world.show(id).await;
    let now = Some(world.now());
    assert_eq!((task.status, task.stream_started_at), (State::Running, now));
    assert_eq!((task.started_at, task.last_heartbeat_at), (now, now));
    assert_eq!(task.lease_expires_at, now.map(|now| now.plus_ms(600_000)));
    assert_eq!(world.story(id).await, ["submit:pending", "claim:claimed", "start:running"]);
    let found = Sources::new(world.store.clone()).find(vec![id]).await.unwrap();
    assert_eq!((found[0].attempt, found[0].node, found[0].total), (1, node, None));
    assert!(found[0].is_held);
}

async fn a_lost_lease_begins_no_text(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = world.running(of_pool("fast", |_| {})).await;
    let right = std::mem::replace(&mut held.lease_id, LeaseId(Uuid::now_v7()));
    let refused = |outcome: Result<StreamBegun, Rejection>| match outcome {
        Err(Rejection::Refused(refusal)) => refusal.code(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(begin(&world, &held, Uuid::now_v7()).await), "lease_lost");
    held.lease_id = right;
    world.pass_ms(600_000);
    assert_eq!(refused(begin(&world, &held, Uuid::now_v7()).await), "lease_lost");
    assert_eq!(Sources::new(world.store.clone()).find(vec![held.task.id]).await.unwrap(), []);
    assert_eq!(world.show(held.task.id).await.stream_started_at, None);
}

async fn a_task_that_goes_back_has_no_text(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(of_pool("fast", |_| {})).await;
    begin(&world, &held, Uuid::now_v7()).await.unwrap();
    world.finish(&held, Finishing::Release).await.unwrap();
    assert_eq!(world.show(held.task.id).await.stream_started_at, None);
    let again = world.tasks.claim(claim_of("p2", &["fast"], 1)).await.unwrap().pop().unwrap();
    let sources = Sources::new(world.store.clone());
    assert_eq!(sources.find(vec![held.task.id]).await.unwrap(), [], "of an old attempt");
    assert_eq!(begin(&world, &again, Uuid::now_v7()).await.unwrap().attempt, 2);
    world.finish(&again, complete()).await.unwrap();
    assert!(world.show(held.task.id).await.stream_started_at.is_some(), "it stays with the result");
}

async fn chunks_are_wanted_read_in_order_and_forgotten(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(of_pool("fast", |_| {})).await;
    let (id, node) = (held.task.id, Uuid::now_v7());
    let sources = Sources::new(world.store.clone());
    assert!(!sources.want(id, 1).await.unwrap(), "nobody has its text");
    begin(&world, &held, node).await.unwrap();
    assert_eq!(sources.wanted(node).await.unwrap(), []);
    assert!(sources.want(id, 1).await.unwrap());
    assert_eq!(sources.wanted(node).await.unwrap(), [(id, 1)]);
    assert_eq!(sources.wanted(Uuid::now_v7()).await.unwrap(), []);
    for (from, deltas) in [(2, "[{\"t\":\"c\\u0000\"}]"), (0, "[\"a\",\"b\"]"), (0, "[\"other\"]")]
    {
        sources.put_chunk(id, 1, from, deltas.into()).await.unwrap();
    }
    let read = sources.chunks(id, 1, 0).await.unwrap();
    assert_eq!(read, [(0, vec![json!("a"), json!("b")]), (2, vec![json!({ "t": "c\0" })])]);
    assert_eq!(sources.chunks(id, 1, 1).await.unwrap().len(), 1);
    sources.end(id, 1, node, 3).await.unwrap();
    assert_eq!(sources.find(vec![id]).await.unwrap()[0].total, Some(3));
    assert_eq!(sources.wanted(node).await.unwrap(), [], "all is there");
    world.pass_ms(WANTED_MS.max(MEMORY_MS));
    assert_eq!(sources.forget(10).await.unwrap(), 0, "the attempt goes on");
    world.finish(&held, complete()).await.unwrap();
    assert!(!sources.find(vec![id]).await.unwrap()[0].is_held, "it has ended");
    world.pass_ms(MEMORY_MS);
    assert_eq!(sources.forget(10).await.unwrap(), 1);
    assert_eq!(sources.chunks(id, 1, 0).await.unwrap(), []);
}

/// Two nodes had the text one after the other, and each cut it in its own way.
async fn a_chunk_that_reaches_beyond_an_index_is_found_and_the_longer_one_stays(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(of_pool("fast", |_| {})).await;
    let (id, sources) = (held.task.id, Sources::new(world.store.clone()));
    for (from, deltas) in [(0, "[0,1]"), (2, "[2,3,4]"), (0, "[0,1,2,3]"), (4, "[4,5]"), (0, "[0]")]
    {
        sources.put_chunk(id, 1, from, deltas.into()).await.unwrap();
    }
    let all = [
        (0, vec![json!(0), json!(1), json!(2), json!(3)]),
        (2, vec![json!(2), json!(3), json!(4)]),
        (4, vec![json!(4), json!(5)]),
    ];
    assert_eq!(sources.chunks(id, 1, 0).await.unwrap(), all);
    assert_eq!(sources.chunks_before(id, 1, 5).await.unwrap(), all, "the last reaches to 5");
    assert_eq!(sources.chunks_before(id, 1, 2).await.unwrap(), all[..1]);
    assert_eq!(sources.chunks_before(id, 1, 0).await.unwrap(), []);
    assert_eq!(sources.chunks_before(id, 2, 5).await.unwrap(), [], "of another attempt");
}

async fn the_session_that_holds_a_task_is_found_with_its_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let sessions = Sessions::new(world.store.clone());
    for lease_ms in [None, Some(5_000)] {
        let new = NewSession {
            id: SessionId(Uuid::now_v7()),
            name: "p".into(),
            worker_type: None,
            routes: Routes::default(),
            slots: 1,
            lease_ms,
        };
        let session = sessions.register(new).await.unwrap().id;
        let id = world.submit(of_pool("fast", |_| {})).await;
        assert_eq!(sessions.holder(id).await.unwrap(), None, "nobody holds it");
        world.tasks.claim(claim_of(&session.to_string(), &["fast"], 1)).await.unwrap();
        assert_eq!(sessions.holder(id).await.unwrap(), Some((session, lease_ms)));
    }
    // Whoever holds it need not be a session, nor have a name that looks like one.
    let id = world.submit(of_pool("fast", |_| {})).await;
    world.tasks.claim(claim_of("p1", &["fast"], 1)).await.unwrap();
    assert_eq!(sessions.holder(id).await.unwrap(), None);
    assert_eq!(sessions.holder(TaskId(Uuid::now_v7())).await.unwrap(), None);
}

async fn a_pool_is_counted(dialect: Dialect) {
    let world = World::new(dialect).await;
    let done = world.running(of_pool("fast", |_| {})).await;
    world.finish(&done, complete()).await.unwrap();
    world.pass_ms(30_000);
    world.running(of_pool("fast", |_| {})).await;
    world.submit(of_pool("fast", |_| {})).await;
    world.submit(of_pool("deep", |_| {})).await;
    world.submit(job()).await;
    let pools = Pools::new(world.store.clone());
    let listed = pools.list().await.unwrap();
    assert_eq!(listed.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["deep", "fast"]);
    let fast = &listed[1];
    assert_eq!((fast.depth, fast.running, fast.finished_last_minute), (1, 1, 1));
    assert_eq!(fast.oldest_waiting_at, Some(world.now()));
    world.pass_ms(30_000);
    assert_eq!(pools.show("fast").await.unwrap().unwrap().finished_last_minute, 0);
    assert_eq!(pools.show("none").await.unwrap(), None);
}

async fn what_sessions_provide_for_is_told_once_with_open_ones_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let sessions = Sessions::new(world.store.clone());
    let register = async |queues: &[&str], pools: &[&str], models: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (queues, pools, models) = (owned(queues), owned(pools), owned(models));
        let routes = Routes { queues, pools, models, ..Routes::default() };
        let id = SessionId(Uuid::now_v7());
        let new = NewSession {
            id,
            name: "p".into(),
            worker_type: None,
            routes,
            slots: 1,
            lease_ms: None,
        };
        world.pass_ms(1_000);
        sessions.register(new).await.unwrap()
    };
    register(&["q"], &[], &[]).await;
    let first = register(&[], &["fast"], &["small"]).await;
    let gone = register(&[], &["deep"], &["big"]).await;
    for _ in 0..3 {
        register(&[], &["fast"], &["small"]).await;
    }
    register(&["q"], &["fast"], &[]).await;
    sessions.close(gone.id, "closed").await.unwrap();
    sessions.close(first.id, "closed").await.unwrap();
    let told: Vec<_> = sessions
        .providing(10)
        .await
        .unwrap()
        .into_iter()
        .map(|p| (p.routes.pools[0].clone(), p.routes.models, p.is_open, p.first_at.as_ms() - NOON))
        .collect();
    let models = |names: &[&str]| -> Vec<String> { names.iter().map(|n| (*n).into()).collect() };
    let expected = [
        ("fast".to_owned(), models(&[]), true, 7_000),
        ("fast".to_owned(), models(&["small"]), true, 2_000),
        ("deep".to_owned(), models(&["big"]), false, 3_000),
    ];
    assert_eq!(told, expected);
    assert_eq!(sessions.providing(1).await.unwrap().len(), 1);
}
