//! Claiming: who gets which task, in which order, for how long.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim, HELD_PART, UNNAMED_LIMIT};

conformance!(
    tasks_are_claimed_by_priority_then_time_then_id,
    a_claim_takes_only_from_its_queues,
    a_claim_takes_only_its_profiles,
    a_claim_takes_at_most_max,
    a_claim_over_several_queues_takes_no_more_than_max_in_all,
    many_claims_at_once_give_each_task_to_one_of_them,
    a_task_is_not_claimed_before_its_time_and_right_after,
    a_retry_is_claimed_at_its_time,
    a_task_whose_time_comes_takes_its_place_in_the_line,
    an_urgent_task_goes_first_although_others_were_claimed_before,
    more_tasks_become_due_than_one_claim_ripens,
    a_ledger_delegation_is_never_claimed,
    each_claim_is_a_new_attempt_with_a_fresh_lease,
    a_claimed_task_shows_its_holder,
    the_lease_is_as_long_as_the_profile_says,
    a_session_may_ask_for_its_own_lease,
    a_delegation_has_no_expiry_before_its_first_beat,
    a_claim_that_starts_writes_one_history_row,
    the_same_claim_again_returns_what_it_gave,
    the_same_claim_again_takes_no_more,
    the_same_claim_of_named_tasks_again_takes_no_more,
    the_same_claim_many_times_at_once_takes_once,
    a_claim_id_belongs_to_its_session,
    an_assignment_carries_payload_checkpoint_and_attempt,
    what_a_session_does_not_know_is_told_in_parts,
    what_nobody_renews_is_told_first,
);

fn ids(held: &[Assignment]) -> Vec<TaskId> {
    held.iter().map(|a| a.task.id).collect()
}

fn numbered(n: u128, priority: i32) -> windlass_domain::task::NewTask {
    task(|r| {
        r.id = Some(TaskId(Uuid::from_u128(n)));
        r.priority = Some(priority);
    })
}

fn number(held: &Assignment) -> u128 {
    held.task.id.0.as_u128()
}

async fn tasks_are_claimed_by_priority_then_time_then_id(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(vec![numbered(9, 0), numbered(5, 0), numbered(7, -1)]).await;
    world.pass_ms(1);
    world.submit_all(vec![numbered(1, 0), numbered(8, 32_767), numbered(2, -32_768)]).await;
    world.submit_all(vec![numbered(4, 1)]).await;
    world.pass_ms(1);
    let mut order = Vec::new();
    for max in [1, 1, 1, 2, 5] {
        order.extend(world.claim("w1", max).await.iter().map(number));
    }
    assert_eq!(order, [8, 4, 5, 9, 1, 7, 2]);
}

async fn a_claim_takes_only_from_its_queues(dialect: Dialect) {
    let world = World::new(dialect).await;
    let in_queue = |queue: &str| task(|r| r.queue = Some(queue.into()));
    let [a, b] = [world.submit(in_queue("a")).await, world.submit(in_queue("b")).await];
    let held = world.tasks.claim(claim_of("w1", &["b", "c"], 10)).await.unwrap();
    assert_eq!(ids(&held), [b]);
    assert_eq!(world.status(a).await, State::Pending);
    assert_eq!(world.tasks.claim(claim_of("w1", &[], 10)).await.unwrap(), []);
}

async fn a_claim_takes_only_its_profiles(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    world.submit(delegation(|_| {})).await;
    let wanted = world.submit(inference()).await;
    let only = |profiles| Claim { profiles, ..claim_of("w1", &["q"], 10) };
    let held = world.tasks.claim(only(vec![Profile::Inference])).await.unwrap();
    assert_eq!(ids(&held), [wanted]);
    assert_eq!(world.tasks.claim(only(vec![])).await.unwrap(), []);
    assert_eq!(world.claim("w1", 10).await.len(), 2);
}

async fn a_claim_takes_at_most_max(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..7).map(|_| job()).collect()).await;
    let mut counts = Vec::new();
    for max in [0, 3, 3, 3, 3] {
        counts.push(world.claim("w1", max).await.len());
    }
    assert_eq!(counts, [0, 3, 3, 1, 0]);
}

async fn a_claim_over_several_queues_takes_no_more_than_max_in_all(dialect: Dialect) {
    let world = World::new(dialect).await;
    for queue in ["a", "b", "c"] {
        let queue = |r: &mut windlass_domain::request::SubmitRequest| r.queue = Some(queue.into());
        world.submit_all((0..2).map(|_| task(queue)).collect()).await;
        world.submit_all((0..2).map(|_| delegation(queue)).collect()).await;
    }
    let mut seen = Vec::new();
    for expected in [5, 5, 2, 0] {
        let held = world.tasks.claim(claim_of("w1", &["a", "b", "c"], 5)).await.unwrap();
        assert_eq!(held.len(), expected);
        seen.extend(ids(&held));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 12);
}

async fn many_claims_at_once_give_each_task_to_one_of_them(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..60).map(|_| job()).collect()).await;
    let claims: Vec<_> = (0..20)
        .map(|i| {
            let tasks = world.tasks.clone();
            let claim = claim_of(&format!("w{i}"), &["q"], 4);
            tokio::spawn(async move { tasks.claim(claim).await.unwrap() })
        })
        .collect();
    let mut held = Vec::new();
    for claim in claims {
        held.extend(claim.await.unwrap());
    }
    held.extend(world.claim("rest", 100).await);
    let (mut tasks, mut leases) = (ids(&held), held.iter().map(|a| a.lease_id).collect::<Vec<_>>());
    tasks.sort_unstable();
    tasks.dedup();
    leases.sort_unstable();
    leases.dedup();
    assert_eq!((held.len(), tasks.len(), leases.len()), (60, 60, 60));
}

async fn a_task_is_not_claimed_before_its_time_and_right_after(dialect: Dialect) {
    let world = World::new(dialect).await;
    let delayed = world.submit(task(|r| r.delay_ms = Some(5_000))).await;
    let at = world.now().plus_ms(6_000);
    let dated = world.submit(task(|r| r.run_at = Some(at))).await;
    assert_eq!(world.show(delayed).await.run_at, world.now().plus_ms(5_000));
    for (ms, expected) in [(4_999, vec![]), (1, vec![delayed]), (999, vec![]), (1, vec![dated])] {
        world.pass_ms(ms);
        assert_eq!(ids(&world.claim("w1", 10).await), expected);
    }
    assert_eq!(world.story(dated).await, ["submit:pending", "claim:claimed"]);
}

async fn a_retry_is_claimed_at_its_time(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("TIMEOUT")).await.unwrap();
    assert_eq!(world.claim("w1", 1).await, []);
    world.pass_ms(499);
    assert_eq!(world.claim("w1", 1).await, []);
    world.pass_ms(1);
    let again = world.claim("w1", 1).await;
    assert_eq!(ids(&again), [held.task.id]);
    assert_eq!(again[0].task.retry_count, 1);
}

async fn a_task_whose_time_comes_takes_its_place_in_the_line(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut urgent = numbered(1, 5);
    urgent.run_at = windlass_domain::task::When::After(1_000);
    world.submit(urgent).await;
    world.submit_all((2..=6).map(|n| numbered(n, 0)).collect()).await;
    let mut order = Vec::new();
    for _ in 0..2 {
        order.extend(world.claim("w1", 1).await.iter().map(number));
    }
    world.pass_ms(1_000);
    for _ in 0..4 {
        order.extend(world.claim("w1", 1).await.iter().map(number));
    }
    assert_eq!(order, [2, 3, 1, 4, 5, 6]);
}

async fn an_urgent_task_goes_first_although_others_were_claimed_before(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((10..20).map(|n| numbered(n, 0)).collect()).await;
    world.claim("w1", 3).await;
    world.submit(numbered(1, 9)).await;
    let past = world.now().plus_ms(-60_000);
    let mut old = numbered(2, 0);
    old.run_at = windlass_domain::task::When::At(past);
    world.submit(old).await;
    let order: Vec<_> = world.claim("w1", 3).await.iter().map(number).collect();
    assert_eq!(order, [1, 2, 13]);
}

async fn more_tasks_become_due_than_one_claim_ripens(dialect: Dialect) {
    let world = World::new(dialect).await;
    let delayed = || task(|r| r.delay_ms = Some(1));
    for count in [1_000, 200] {
        world.submit_all((0..count).map(|_| delayed()).collect()).await;
    }
    world.pass_ms(1);
    let first = world.claim("w1", 1_000).await.len();
    assert_eq!((first, world.claim("w1", 1_000).await.len()), (1_000, 200));
}

async fn a_ledger_delegation_is_never_claimed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    let mut claim = claim_of("w1", &["q"], 10);
    claim.profiles = Profile::ALL.to_vec();
    assert_eq!(world.tasks.claim(claim.clone()).await.unwrap(), []);
    claim.profiles = vec![Profile::Ledger];
    assert_eq!(world.tasks.claim(claim).await.unwrap(), []);
    assert_eq!(world.story(id).await, ["submit:pending"]);
}

async fn each_claim_is_a_new_attempt_with_a_fresh_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let mut leases = Vec::new();
    for attempt in 1..=3 {
        let held = world.claim("w1", 1).await.pop().unwrap();
        assert_eq!((held.attempt, held.task.attempt), (attempt, attempt));
        leases.push(held.lease_id);
        world.finish(&held, windlass_store::task::Finishing::Release).await.unwrap();
    }
    leases.sort_unstable();
    leases.dedup();
    assert_eq!(leases.len(), 3);
}

async fn a_claimed_task_shows_its_holder(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    world.pass_ms(10);
    let held = world.claim("w7", 1).await.pop().unwrap();
    let shown = world.show(id).await;
    assert_eq!(shown, held.task);
    assert_eq!(shown.status, State::Claimed);
    assert_eq!(shown.claimed_by.as_deref(), Some("w7"));
    assert_eq!((shown.claimed_at, shown.updated_at), (Some(world.now()), world.now()));
    assert_eq!((shown.last_heartbeat_at, shown.started_at, shown.finished_at), (None, None, None));
}

async fn the_lease_is_as_long_as_the_profile_says(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (new, ms) in [(job(), 60_000), (inference(), 600_000)] {
        let held = world.running(new).await;
        let expiry = Some(world.now().plus_ms(ms));
        assert_eq!(held.lease_expires_at, expiry);
        assert_eq!(world.show(held.task.id).await.lease_expires_at, expiry);
        world.pass_ms(1_000);
        assert_eq!(world.beat(&held).await.unwrap(), Some(world.now().plus_ms(ms)));
    }
}

async fn a_session_may_ask_for_its_own_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let claim = Claim { lease_ms: Some(1_234), ..claim_of("w1", &["q"], 1) };
    let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    assert_eq!(held.lease_expires_at, Some(world.now().plus_ms(1_234)));
    world.pass_ms(1_000);
    let mut beat = beat_of(&held);
    beat.lease_ms = Some(2_345);
    let beaten = world.tasks.heartbeat(vec![beat]).await.pop().unwrap().unwrap();
    assert_eq!(beaten.lease_expires_at, Some(world.now().plus_ms(2_345)));
    assert_eq!(world.show(held.task.id).await.lease_expires_at, beaten.lease_expires_at);
}

async fn a_delegation_has_no_expiry_before_its_first_beat(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(delegation(|_| {})).await;
    let claim = Claim { lease_ms: Some(1_000), ..claim_of("w1", &["q"], 1) };
    let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    assert_eq!(held.lease_expires_at, None);
    world.start(&held).await.unwrap();
    assert_eq!(world.show(held.task.id).await.lease_expires_at, None);
    world.pass_ms(3_600_000);
    assert_eq!(world.beat(&held).await.unwrap(), Some(world.now().plus_ms(600_000)));
}

async fn a_claim_that_starts_writes_one_history_row(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    assert_eq!(held.task.status, State::Running);
    assert_eq!(held.task.started_at, Some(world.now()));
    assert_eq!(world.story(held.task.id).await, ["submit:pending", "claim:running"]);
}

async fn the_same_claim_again_returns_what_it_gave(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..5).map(|_| job()).collect()).await;
    let claim = claim_of("w1", &["q"], 3);
    let first = world.tasks.claim(claim.clone()).await.unwrap();
    world.pass_ms(100);
    let again = world.tasks.claim(claim).await.unwrap();
    assert_eq!(world.tasks.fill_steps(again).await.unwrap(), first);
    assert_eq!(world.claim("w1", 10).await.len(), 2);
}

async fn the_same_claim_again_takes_no_more(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..2).map(|_| job()).collect()).await;
    let claim = claim_of("w1", &["other", "q"], 3);
    let first = world.tasks.claim(claim.clone()).await.unwrap();
    assert_eq!(first.len(), 2);
    world.pass_ms(1);
    let other = || task(|r| r.queue = Some("other".into()));
    world.submit_all(vec![other(), other(), job(), job()]).await;
    // It was answered; what came since belongs to the next call.
    let again = world.tasks.claim(claim).await.unwrap();
    assert_eq!(world.tasks.fill_steps(again).await.unwrap(), first);
}

/// Each repeat took one more of those that were named.
async fn the_same_claim_of_named_tasks_again_takes_no_more(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut named = Vec::new();
    for _ in 0..3 {
        named.push(world.submit(job()).await);
    }
    let claim = claim_of("w1", &["q"], 1);
    for _ in 0..3 {
        let held = world.tasks.claim_tasks(&claim, named.clone()).await.unwrap();
        assert_eq!(ids(&held), named[..1]);
    }
    let next = claim_of("w1", &["q"], 1);
    assert_eq!(ids(&world.tasks.claim_tasks(&next, named.clone()).await.unwrap()), named[1..2]);
}

/// Repeats that share a transaction failed on PostgreSQL, and everybody else in it with them.
async fn the_same_claim_many_times_at_once_takes_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..60).map(|_| job()).collect()).await;
    let same = claim_of("same", &["q"], 3);
    let claims: Vec<_> = (0..40)
        .map(|i| {
            let tasks = world.tasks.clone();
            let claim = match i % 4 {
                0 => claim_of(&format!("w{i}"), &["q"], 2),
                _ => same.clone(),
            };
            tokio::spawn(async move { (i % 4 == 0, tasks.claim(claim).await) })
        })
        .collect();
    let (mut others, mut repeats) = (Vec::new(), Vec::new());
    for claim in claims {
        let (is_other, held) = claim.await.unwrap();
        let list = if is_other { &mut others } else { &mut repeats };
        list.push(held.unwrap());
    }
    assert_eq!((others.len(), repeats.len()), (10, 30));
    assert_eq!(repeats[0].len(), 3);
    assert!(repeats.iter().all(|held| *held == repeats[0]), "{repeats:?}");
    assert!(others.iter().all(|held| held.len() == 2), "{others:?}");
    let mut tasks: Vec<TaskId> = others.iter().chain(&repeats[..1]).flat_map(|h| ids(h)).collect();
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!(tasks.len(), 23);
    assert_eq!(world.claim("rest", 100).await.len(), 37);
}

async fn a_claim_id_belongs_to_its_session(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..2).map(|_| job()).collect()).await;
    let claim = claim_of("w1", &["q"], 1);
    let first = world.tasks.claim(claim.clone()).await.unwrap();
    let second = world.tasks.claim(Claim { session: "w2".into(), ..claim }).await.unwrap();
    assert_eq!(second.len(), 1);
    assert_ne!(ids(&first), ids(&second));
}

async fn an_assignment_carries_payload_checkpoint_and_attempt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = task(|r| r.payload = serde_json::json!({"deep": [1, {"ä": null}], "z": "x"}));
    let held = world.running(new).await;
    assert_eq!(held.task.payload, serde_json::json!({"deep": [1, {"ä": null}], "z": "x"}));
    assert_eq!((&held.task.checkpoint, held.attempt), (&None, 1));
    world.tell(&held, Some("{\"at\":3}"), None).await.unwrap();
    world.finish(&held, windlass_store::task::Finishing::Release).await.unwrap();
    let again = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!(again.task.checkpoint, Some(serde_json::json!({"at": 3})));
    assert_eq!(again.attempt, 2);
}

/// How many a session is told of each time, if it names all that it was told of before.
async fn told_each_time(world: &World, session: &str) -> Vec<usize> {
    let (mut known, mut counts) = (Vec::new(), Vec::new());
    loop {
        let told = world.tasks.unknown_to(session, known.clone()).await.unwrap();
        if told.is_empty() {
            break;
        }
        counts.push(told.len());
        known.extend(told.iter().map(|held| held.lease_id));
    }
    let mut held: Vec<_> = world.tasks.held_by(session).await.unwrap();
    held.retain(|(_, lease)| !known.contains(lease));
    assert_eq!(held, [], "nobody was told of these");
    let once: std::collections::HashSet<_> = known.iter().collect();
    assert_eq!(once.len(), known.len(), "told twice");
    counts
}

/// All were told at once, each with its payload.
async fn what_a_session_does_not_know_is_told_in_parts(dialect: Dialect) {
    let world = World::new(dialect).await;
    let many = 2 * UNNAMED_LIMIT + 7;
    world.submit_all((0..many).map(|_| job()).collect()).await;
    assert_eq!(world.claim("w1", many).await.len(), many);
    assert_eq!(told_each_time(&world, "w1").await, [UNNAMED_LIMIT, UNNAMED_LIMIT, 7]);
    // Ten of these are more than eight MiB.
    let large = || task(|r| r.payload = serde_json::json!("x".repeat(1_000_000)));
    for _ in 0..=2 * HELD_PART {
        world.submit(large()).await;
    }
    assert_eq!(world.claim("w2", 100).await.len(), 2 * HELD_PART + 1);
    assert_eq!(told_each_time(&world, "w2").await, [HELD_PART, HELD_PART, 1]);
}

/// Whoever holds more than a heartbeat can name beats in parts: what the other parts name must not
/// stand before what it does not know at all.
async fn what_nobody_renews_is_told_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let urgent = || task(|r| r.priority = Some(9));
    world.submit_all((0..2 * UNNAMED_LIMIT).map(|_| urgent()).collect()).await;
    let known = world.claim("w1", 2 * UNNAMED_LIMIT).await;
    let job = world.submit(job()).await;
    // A delegation has no expiry before its first beat.
    let delegation = world.submit(delegation(|r| r.queue = Some("q".into()))).await;
    assert_eq!(world.claim("w1", 9).await.len(), 2);
    world.pass_ms(1);
    for held in &known {
        world.beat(held).await.unwrap();
    }
    let named = known[..10].iter().map(|held| held.lease_id).collect();
    let told = world.tasks.unknown_to("w1", named).await.unwrap();
    assert_eq!(told.len(), UNNAMED_LIMIT);
    assert_eq!(ids(&told[..2]), [delegation, job]);
}
