//! Listing: every filter, both directions, and pages that lose and repeat nothing.

use crate::world::*;
use std::collections::BTreeSet;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_store::statement::Dialect;
use windlass_store::task::{Cursor, Filter, ORDER, Order, Task};

conformance!(
    each_filter_gives_exactly_the_tasks_it_names,
    a_filter_by_state_follows_the_task,
    several_states_are_any_of_them,
    filters_together_must_all_hold,
    a_time_range_is_half_open,
    the_newest_come_first_unless_asked_otherwise,
    a_page_has_at_most_its_limit,
    the_last_page_says_so,
    pages_over_equal_times_give_every_task_once_while_others_are_submitted,
    pages_of_every_driver_agree_with_one_big_page,
    a_listed_task_is_shown_whole,
);

fn filter(change: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter::default();
    change(&mut filter);
    filter
}

async fn list(world: &World, filter: Filter) -> Vec<TaskId> {
    let page = world.tasks.list(filter, Order::Ascending, None, 1_000).await.unwrap();
    assert_eq!(page.next, None);
    page.items.into_iter().map(|t| t.id).collect()
}

/// All pages of `size`, one after the other.
async fn pages(world: &World, filter: &Filter, order: Order, size: usize) -> Vec<TaskId> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.tasks.list(filter.clone(), order, after, size).await.unwrap();
        all.extend(page.items.iter().map(|t| t.id));
        after = page.next;
        if after.is_none() {
            return all;
        }
        assert_eq!(page.items.len(), size);
    }
}

/// Every field that can be filtered by, set to something of its own.
fn marked(name: &str) -> NewTask {
    let mut new = job();
    let some = |field: &str| Some(format!("{field}-{name}"));
    new.profile = Profile::Inference;
    new.queue = format!("queue-{name}");
    new.name = some("name");
    (new.agent, new.owner) = (some("agent"), some("owner"));
    (new.venture, new.portfolio, new.stage) = (some("venture"), some("portfolio"), some("stage"));
    (new.caller, new.callee, new.pool) = (some("caller"), some("callee"), some("pool"));
    new.correlation_id = some("correlation");
    new.parent_id = Some(TaskId(Uuid::new_v4()));
    new.replay_of = Some(TaskId(Uuid::new_v4()));
    new.tags = [("team".into(), name.into()), ("all".into(), "yes".into())].into();
    new
}

async fn each_filter_gives_exactly_the_tasks_it_names(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (a, b) = (marked("a"), marked("b"));
    world.submit_all(vec![job(), a.clone(), delegation(|_| {}), b, ledger()]).await;
    let filters = [
        filter(|f| f.kind = Some(Kind::Inference)),
        filter(|f| f.queue = Some(a.queue.clone())),
        filter(|f| f.agent = a.agent.clone()),
        filter(|f| f.venture = a.venture.clone()),
        filter(|f| f.portfolio = a.portfolio.clone()),
        filter(|f| f.stage = a.stage.clone()),
        filter(|f| f.owner = a.owner.clone()),
        filter(|f| f.caller = a.caller.clone()),
        filter(|f| f.callee = a.callee.clone()),
        filter(|f| f.pool = a.pool.clone()),
        filter(|f| f.parent_id = a.parent_id),
        filter(|f| f.replay_of = a.replay_of),
        filter(|f| f.correlation_id = a.correlation_id.clone()),
        filter(|f| f.name = a.name.clone()),
        filter(|f| f.tag = Some(("team".into(), "a".into()))),
    ];
    for (i, filter) in filters.into_iter().enumerate() {
        let expected = if i == 0 { 2 } else { 1 };
        let listed = list(&world, filter.clone()).await;
        assert!(listed.len() == expected && listed.contains(&a.id), "{filter:?}: {listed:?}");
    }
    assert_eq!(list(&world, filter(|f| f.kind = Some(Kind::Delegation))).await.len(), 2);
    assert_eq!(list(&world, filter(|f| f.kind = Some(Kind::Job))).await.len(), 1);
    assert_eq!(list(&world, filter(|f| f.tag = Some(("all".into(), "yes".into())))).await.len(), 2);
    assert_eq!(list(&world, filter(|f| f.tag = Some(("all".into(), "a".into())))).await, []);
    assert_eq!(list(&world, filter(|f| f.agent = Some("nobody".into()))).await, []);
    assert_eq!(list(&world, Filter::default()).await.len(), 5);
}

/// One task in each state that a worker can bring about, and a pending ledger delegation.
async fn one_in_each_state(world: &World) -> Vec<(TaskId, State)> {
    use windlass_domain::command::Command;
    let mut tasks = Vec::new();
    for (how, state) in [
        (complete(), State::Completed),
        (fail("INVALID_INPUT"), State::Failed),
        (fail("POISON_TASK"), State::Poisoned),
        (fail("TIMEOUT"), State::Retry),
    ] {
        let held = world.running(job()).await;
        world.finish(&held, how).await.unwrap();
        tasks.push((held.task.id, state));
    }
    let held = world.running(job()).await;
    world.ask(held.task.id, Command::Wait { lease_id: held.lease_id }).await.unwrap();
    tasks.push((held.task.id, State::Waiting));
    let held = world.running(job()).await;
    world.ask_approval(&held).await.unwrap();
    tasks.push((held.task.id, State::WaitingForApproval));
    let held = world.running(delegation(|_| {})).await;
    let (to, holder) = (State::Stuck, "boss".to_owned());
    let stuck = world.submit(ledger()).await;
    world.ask(stuck, Command::Report { to, result: None, error: None, holder }).await.unwrap();
    tasks.extend([(held.task.id, State::Running), (stuck, State::Stuck)]);
    let cancelled = world.submit(job()).await;
    world.cancel(cancelled).await.unwrap();
    let claimed = world.submit(job()).await;
    world.claim("w1", 1).await;
    tasks.extend([(cancelled, State::Cancelled), (claimed, State::Claimed)]);
    let delayed = world.submit(task(|r| r.delay_ms = Some(1_000))).await;
    for id in [world.submit(job()).await, delayed, world.submit(ledger()).await] {
        tasks.push((id, State::Pending));
    }
    tasks
}

async fn a_filter_by_state_follows_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let tasks = one_in_each_state(&world).await;
    for &state in State::ALL {
        let listed: BTreeSet<_> =
            list(&world, filter(|f| f.status = vec![state])).await.into_iter().collect();
        let expected: BTreeSet<_> =
            tasks.iter().filter(|(_, s)| *s == state).map(|(id, _)| *id).collect();
        assert!(!expected.is_empty());
        assert_eq!(listed, expected, "{state}");
    }
}

async fn several_states_are_any_of_them(dialect: Dialect) {
    let world = World::new(dialect).await;
    let tasks = one_in_each_state(&world).await;
    let (living, ended): (Vec<State>, Vec<State>) =
        State::ALL.iter().partition(|s| !s.is_terminal());
    let mixed = vec![State::Completed, State::Pending, State::Stuck];
    let rare = vec![State::Failed, State::Retry];
    for states in [living, ended, mixed, rare, State::ALL.to_vec()] {
        let expected = tasks.iter().filter(|(_, s)| states.contains(s)).count();
        let listed = list(&world, filter(|f| f.status = states.clone())).await;
        assert_eq!(listed.len(), expected, "{states:?}");
    }
}

async fn filters_together_must_all_hold(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = |agent: &str, venture: &str, tag: &str| {
        task(|r| {
            r.agent = Some(agent.into());
            r.venture = Some(venture.into());
            r.tags = Some([("t".to_owned(), tag.to_owned())].into());
        })
    };
    let wanted = world.submit(new("a", "v", "x")).await;
    world.submit_all(vec![new("a", "v", "y"), new("a", "w", "x"), new("b", "v", "x")]).await;
    let all = filter(|f| {
        (f.agent, f.venture) = (Some("a".into()), Some("v".into()));
        f.tag = Some(("t".into(), "x".into()));
        f.status = vec![State::Pending];
        f.kind = Some(Kind::Job);
        f.since = Some(world.now());
    });
    assert_eq!(list(&world, all.clone()).await, [wanted]);
    world.cancel(wanted).await.unwrap();
    assert_eq!(list(&world, all).await, []);
    let venture = filter(|f| {
        f.venture = Some("v".into());
        f.status = vec![State::Cancelled];
    });
    assert_eq!(list(&world, venture).await, [wanted]);
}

async fn a_time_range_is_half_open(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.submit(task(|r| r.agent = Some("a".into()))).await);
        world.pass_ms(10);
    }
    let at = |n: i64| Some(Timestamp::from_ms(NOON + n * 10));
    for agent in [None, Some("a".to_owned())] {
        let range =
            |since, until| Filter { agent: agent.clone(), since, until, ..Filter::default() };
        assert_eq!(list(&world, range(at(1), at(3))).await, ids[1..3]);
        assert_eq!(list(&world, range(at(2), None)).await, ids[2..]);
        assert_eq!(list(&world, range(None, at(2))).await, ids[..2]);
        assert_eq!(list(&world, range(at(2), at(2))).await, []);
    }
}

async fn the_newest_come_first_unless_asked_otherwise(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.submit(job()).await);
        world.pass_ms(1);
    }
    let everything = Filter::default();
    assert_eq!(pages(&world, &everything, Order::Ascending, 10).await, ids);
    ids.reverse();
    assert_eq!(pages(&world, &everything, ORDER, 10).await, ids);
    assert_eq!(pages(&world, &everything, Order::Descending, 2).await, ids);
}

async fn a_page_has_at_most_its_limit(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..5).map(|_| job()).collect()).await;
    let page = world.tasks.list(Filter::default(), Order::Descending, None, 3).await.unwrap();
    let last: &Task = &page.items[2];
    assert_eq!(page.items.len(), 3);
    assert_eq!(page.next, Some(Cursor { created_at: last.created_at, id: last.id }));
}

async fn the_last_page_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let none = world.tasks.list(Filter::default(), Order::Descending, None, 3).await.unwrap();
    assert_eq!((none.items, none.next), (vec![], None));
    world.submit_all((0..6).map(|_| job()).collect()).await;
    let first = world.tasks.list(Filter::default(), Order::Descending, None, 3).await.unwrap();
    let second = world.tasks.list(Filter::default(), Order::Descending, first.next, 3);
    let second = second.await.unwrap();
    assert_eq!((second.items.len(), second.next), (3, None));
}

async fn pages_over_equal_times_give_every_task_once_while_others_are_submitted(dialect: Dialect) {
    let world = World::new(dialect).await;
    for size in [1, 3, 7] {
        for order in [Order::Descending, Order::Ascending] {
            let queue = format!("{size}-{order:?}");
            let new = || task(|r| r.queue = Some(queue.clone()));
            let batch: Vec<_> = (0..20).map(|_| new()).collect();
            let expected: BTreeSet<_> = batch.iter().map(|t| t.id).collect();
            world.submit_all(batch).await;
            let filter = filter(|f| f.queue = Some(queue.clone()));
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = world.tasks.list(filter.clone(), order, after, size).await.unwrap();
                seen.extend(page.items.into_iter().map(|t| t.id));
                after = page.next;
                if after.is_none() || seen.len() > 100 {
                    break;
                }
                world.pass_ms(1);
                if seen.len() < 20 {
                    world.submit(new()).await;
                }
            }
            let distinct: BTreeSet<_> = seen.iter().copied().collect();
            assert_eq!(distinct.len(), seen.len(), "{queue} repeats");
            assert!(distinct.is_superset(&expected), "{queue} skips");
            if order == Order::Descending {
                assert_eq!(distinct, expected);
            }
        }
    }
}

async fn pages_of_every_driver_agree_with_one_big_page(dialect: Dialect) {
    let world = World::new(dialect).await;
    let shared = marked("a");
    let batch: Vec<_> =
        (0..9).map(|_| NewTask { id: TaskId(Uuid::new_v4()), ..shared.clone() }).collect();
    for chunk in batch.chunks(4) {
        world.submit_all(chunk.to_vec()).await;
        world.pass_ms(1);
    }
    let filters = [
        Filter::default(),
        filter(|f| f.agent = shared.agent.clone()),
        filter(|f| f.owner = shared.owner.clone()),
        filter(|f| f.venture = shared.venture.clone()),
        filter(|f| f.caller = shared.caller.clone()),
        filter(|f| f.callee = shared.callee.clone()),
        filter(|f| f.parent_id = shared.parent_id),
        filter(|f| f.replay_of = shared.replay_of),
        filter(|f| f.correlation_id = shared.correlation_id.clone()),
        filter(|f| f.tag = Some(("team".into(), "a".into()))),
        filter(|f| f.status = vec![State::Pending]),
        filter(|f| f.status = vec![State::Cancelled]),
    ];
    for (i, filter) in filters.iter().enumerate() {
        if i + 1 == filters.len() {
            for new in &batch {
                world.cancel(new.id).await.unwrap();
            }
        }
        let whole = pages(&world, filter, Order::Descending, 100).await;
        assert_eq!(whole.len(), 9, "{filter:?}");
        assert_eq!(pages(&world, filter, Order::Descending, 2).await, whole, "{filter:?}");
        let mut reversed = pages(&world, filter, Order::Ascending, 4).await;
        reversed.reverse();
        assert_eq!(reversed, whole, "{filter:?}");
    }
}

async fn a_listed_task_is_shown_whole(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.agent = Some("a".into()))).await;
    world.tell(&held, Some("[1]"), Some("0.5")).await.unwrap();
    let shown = world.show(held.task.id).await;
    for filter in [Filter::default(), filter(|f| f.agent = Some("a".into()))] {
        let page = world.tasks.list(filter, Order::Descending, None, 10).await.unwrap();
        assert_eq!(page.items, std::slice::from_ref(&shown));
    }
}
