//! Group commit: concurrent calls share transactions, and each hears only of its own items.

use crate::world::*;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::id::{LeaseId, TaskId};
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::group::Outcome;
use windlass_store::sqlite::{Options, SqliteDatabase, open};
use windlass_store::statement::Dialect;
use windlass_store::store::Store;
use windlass_store::task::{Claim, Finish, Submitted, Tasks};

conformance!(
    two_hundred_submits_at_once_share_transactions,
    each_submit_hears_of_its_own_task,
    each_finish_hears_of_its_own_task,
    one_bad_task_fails_alone_among_concurrent_submits,
);

/// A world whose transactions can be counted.
struct Counted {
    world: World,
    tasks: Tasks,
    sqlite: Option<Arc<SqliteDatabase>>,
}

impl Counted {
    async fn new(dialect: Dialect) -> Counted {
        let world = World::new(dialect).await;
        let Place::Sqlite(folder) = &world.place else {
            return Counted { tasks: world.tasks.clone(), world, sqlite: None };
        };
        world.store.close();
        let database = open(file(folder), Options::default()).unwrap();
        let tasks = Tasks::new(Store::new(database.clone()));
        Counted { world, tasks, sqlite: Some(database) }
    }

    /// How many transactions have written.
    fn transactions(&self) -> u64 {
        match &self.sqlite {
            Some(database) => database.stats().groups,
            None => {
                let count = "SELECT count(DISTINCT xid) FROM task_history";
                self.world.by_hand(count).unwrap().parse().unwrap()
            }
        }
    }
}

async fn submit_at_once(tasks: &Tasks, new: Vec<NewTask>) -> Vec<Outcome<Submitted>> {
    let calls: Vec<_> = new
        .into_iter()
        .map(|new| {
            let tasks = tasks.clone();
            tokio::spawn(async move { tasks.submit(vec![new]).await.pop().unwrap() })
        })
        .collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    outcomes
}

async fn two_hundred_submits_at_once_share_transactions(dialect: Dialect) {
    let counted = Counted::new(dialect).await;
    let before = counted.transactions();
    let new: Vec<_> = (0..200).map(|_| job()).collect();
    let ids: Vec<_> = new.iter().map(|t| t.id).collect();
    let outcomes = submit_at_once(&counted.tasks, new).await;
    let told: Vec<_> = outcomes.into_iter().map(|o| o.unwrap().id).collect();
    assert_eq!(told, ids);
    let transactions = counted.transactions() - before;
    assert!((1..100).contains(&transactions), "{transactions} transactions");
    let held = counted.tasks.claim(claim_of("w1", &["q"], 1_000)).await.unwrap();
    assert_eq!(held.len(), 200);
}

async fn each_submit_hears_of_its_own_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let keyed = |key: usize, payload: usize| {
        task(|r| {
            r.idempotency_key = Some(format!("key-{key}"));
            r.payload = payload.into();
        })
    };
    let first: Vec<_> = (0..30).map(|i| keyed(i, i)).collect();
    let ids: Vec<_> = first.iter().map(|t| t.id).collect();
    world.submit_all(first).await;
    // Of every three: the same again, the same key with another request, a new one.
    let again: Vec<_> = (0..30)
        .map(|i| match i % 3 {
            0 => keyed(i, i),
            1 => keyed(i, i + 1),
            _ => keyed(i + 100, i),
        })
        .collect();
    let new: Vec<_> = again.iter().map(|t| t.id).collect();
    for (i, outcome) in submit_at_once(&world.tasks, again).await.into_iter().enumerate() {
        match i % 3 {
            0 => {
                let told = outcome.unwrap();
                assert_eq!((told.id, told.duplicate), (ids[i], true));
            }
            1 => assert_eq!(refused(outcome), "idempotency_key_reused"),
            _ => {
                let told = outcome.unwrap();
                assert_eq!((told.id, told.duplicate), (new[i], false));
            }
        }
    }
}

async fn each_finish_hears_of_its_own_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..40).map(|_| job()).collect()).await;
    let claim = Claim { start: true, ..claim_of("w1", &["q"], 40) };
    let held = world.tasks.claim(claim).await.unwrap();
    let item = |i: usize| -> Finish {
        let mut item = finish_of(&held[i], complete());
        match i % 4 {
            1 => item.lease = LeaseId(Uuid::new_v4()),
            2 => item.task = TaskId(Uuid::new_v4()),
            3 => item.how = fail("INVALID_INPUT"),
            _ => {}
        }
        item
    };
    let calls: Vec<_> = (0..40)
        .map(|i| {
            let (tasks, item) = (world.tasks.clone(), item(i));
            tokio::spawn(async move { tasks.finish(vec![item]).await.pop().unwrap() })
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        let outcome = call.await.unwrap();
        match i % 4 {
            0 => assert_eq!(outcome.unwrap(), State::Completed),
            1 => assert_eq!(refused(outcome), "lease_lost"),
            2 => assert_eq!(refused(outcome), "not_found"),
            _ => assert_eq!(outcome.unwrap(), State::Failed),
        }
    }
}

async fn one_bad_task_fails_alone_among_concurrent_submits(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut new: Vec<_> = (0..50).map(|_| job()).collect();
    // What validation would never let through.
    new[17].queue = String::new();
    let outcomes = submit_at_once(&world.tasks, new).await;
    let failed: Vec<_> = (0..50).filter(|&i| outcomes[i].is_err()).collect();
    assert_eq!(failed, [17]);
}
