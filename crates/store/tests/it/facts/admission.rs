//! Admission: what submits let in when rules bind them, and what they refuse.

use super::flow::{bind, count, many, of, rule};
use crate::world::*;
use windlass_domain::limit::Scope;
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::error::Rejection;
use windlass_store::statement::Dialect;
use windlass_store::task::Finishing;

conformance!(
    what_is_there_already_takes_no_place_in_a_batch,
    a_full_queue_refuses_and_writes_nothing,
    what_is_known_is_never_refused,
    what_comes_back_is_never_refused,
    an_atomic_submit_fits_or_changes_nothing,
);

async fn what_is_there_already_takes_no_place_in_a_batch(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, None, Some(5))]);
    let keyed = |key: &str| task(|r| r.idempotency_key = Some(key.to_owned()));
    let old = || ["a", "b", "c", "c"].map(keyed);
    world.tasks.submit_atomic(old().to_vec()).await.unwrap();
    assert_eq!(count(&world, "'pending'"), 3);
    // Three that are known and two that are new fit; a third does not.
    let mixed: Vec<NewTask> = old().into_iter().chain(["d", "e", "e"].map(keyed)).collect();
    let told = world.tasks.submit_atomic(mixed.clone()).await.unwrap();
    let new = told.iter().filter(|told| !told.duplicate).count();
    assert_eq!((new, count(&world, "'pending'")), (2, 5));
    let outcomes = world.tasks.submit(vec![keyed("e"), keyed("f"), keyed("a")]).await;
    let taken: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, false, true]);
    let mut more = mixed;
    more.push(keyed("f"));
    let (index, _) = world.tasks.submit_atomic(more).await.unwrap_err();
    assert_eq!((index, count(&world, "'pending'")), (7, 5));
    // The same id twice is one task, too.
    bind(&world.tasks, [rule(Scope::Global, None, Some(6))]);
    let new = job();
    let told = world.tasks.submit_atomic(vec![new.clone(), new]).await.unwrap();
    assert_eq!((told[0].duplicate, told[1].duplicate), (false, true));
}

async fn a_full_queue_refuses_and_writes_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(3))]);
    let mut outcomes = world.submit_all(many("a", 5)).await;
    let refused = outcomes.split_off(3);
    assert!(outcomes.iter().all(|outcome| outcome.is_ok()), "{outcomes:?}");
    for outcome in refused {
        let Err(Rejection::Refused(Refusal::QueueFull(full))) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((full.key.to_string().as_str(), full.limit, full.held), ("venture `a`", 3, 3));
    }
    world.submit(of("b")).await;
    assert_eq!(count(&world, "'pending'"), 4);
    // What was handed out waits no more.
    world.claim("w1", 4).await;
    world.submit(of("a")).await;
}

async fn what_is_known_is_never_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, None, Some(1))]);
    let known = job();
    world.submit(known.clone()).await;
    let again = world.submit_all(vec![known.clone()]).await.pop().unwrap().unwrap();
    assert!(again.duplicate);
    let again = world.tasks.submit_atomic(vec![known]).await.unwrap();
    assert!(again[0].duplicate);
}

async fn what_comes_back_is_never_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, None, Some(1))]);
    let mut held = Vec::new();
    for _ in 0..3 {
        world.submit(job()).await;
        held.extend(world.claim("w1", 1).await);
    }
    for assignment in &held {
        assert_eq!(world.finish(assignment, Finishing::Release).await.unwrap(), State::Pending);
    }
    assert_eq!(refused(world.submit_all(vec![job()]).await.pop().unwrap()), "queue_full");
}

async fn an_atomic_submit_fits_or_changes_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(3))]);
    let tasks = [many("b", 2), many("a", 4)].concat();
    let (index, refusal) = world.tasks.submit_atomic(tasks).await.unwrap_err();
    assert_eq!(index, 5);
    let Rejection::Refused(refusal) = refusal else { panic!("{refusal:?}") };
    let Refusal::QueueFull(full) = refusal else { panic!("{refusal:?}") };
    assert_eq!((full.held, full.adding, full.may_fit_later()), (0, 4, false));
    assert_eq!(count(&world, "'pending'"), 0);
    assert_eq!(world.tasks.submit_atomic(many("a", 2)).await.unwrap().len(), 2);
    // What is held is what was there: the batch's own tasks are not, and repeats take no place.
    let mut tasks = many("a", 2);
    tasks.push(tasks[0].clone());
    let (index, refusal) = world.tasks.submit_atomic(tasks).await.unwrap_err();
    let Rejection::Refused(Refusal::QueueFull(full)) = refusal else { panic!("{refusal:?}") };
    assert_eq!((index, full.held, full.adding, full.may_fit_later()), (1, 2, 2, true));
    assert_eq!(world.tasks.submit_atomic(many("a", 1)).await.unwrap().len(), 1);
}
