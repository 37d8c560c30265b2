//! Steps in parts: what an assignment and a page carry is bounded in number and in bytes.

use super::step::{done, record};
use crate::world::*;
use serde_json::json;
use windlass_domain::page::{Order, Part};
use windlass_store::statement::Dialect;
use windlass_store::step::{PAGE_BYTES, Step, Steps};
use windlass_store::task::{Assignment, Claim, Finishing, STEPS_BYTES, STEPS_LIMIT};

conformance!(
    an_assignment_carries_steps_up_to_its_bytes,
    one_big_step_comes_along_and_no_more,
    the_assignments_of_an_answer_share_its_bytes,
    what_is_told_again_carries_what_was_done_meanwhile,
    pages_of_big_steps_are_bounded_and_lead_to_the_end,
    pages_of_big_steps_are_bounded_from_the_last_on_too,
    a_page_of_small_steps_is_bounded_by_their_number,
);

/// A result of about so many bytes.
fn big(bytes: i64) -> serde_json::Value {
    json!("x".repeat(bytes as usize))
}

async fn record_all(world: &World, held: &Assignment, results: usize, bytes: i64) {
    for n in 0..results {
        record(world, done(held, &format!("s{n}"), big(bytes))).await.unwrap();
    }
}

/// The next attempt of tasks that were given back.
async fn next_attempts(world: &World, held: &[Assignment]) -> Vec<Assignment> {
    for held in held {
        world.finish(held, Finishing::Release).await.unwrap();
    }
    let claimed = world.claim("w2", held.len()).await;
    world.tasks.fill_steps(claimed).await.unwrap()
}

fn bytes(steps: &[Step]) -> i64 {
    steps.iter().map(|step| step.result.as_ref().unwrap().to_string().len() as i64).sum()
}

async fn an_assignment_carries_steps_up_to_its_bytes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    record_all(&world, &held, 5, STEPS_BYTES / 4).await;
    let taken = next_attempts(&world, &[held]).await.pop().unwrap();
    assert!(!taken.steps_complete);
    assert_eq!(names(&taken.steps), ["s0", "s1", "s2"]);
    assert!(bytes(&taken.steps) <= STEPS_BYTES);
    let last = taken.steps.last().unwrap().seq;
    let steps = Steps::new(world.store.clone());
    let rest = steps.page(taken.task.id, last, 10).await.unwrap();
    assert_eq!((names(&rest.steps), rest.complete), (vec!["s3", "s4"], true));
}

async fn one_big_step_comes_along_and_no_more(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    record_all(&world, &held, 2, STEPS_BYTES - 2).await;
    let taken = next_attempts(&world, &[held]).await.pop().unwrap();
    assert_eq!((names(&taken.steps), taken.steps_complete), (vec!["s0"], false));
}

async fn the_assignments_of_an_answer_share_its_bytes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let tasks = (PAGE_BYTES / STEPS_BYTES) as usize + 2;
    let mut held = Vec::new();
    for _ in 0..tasks {
        let running = world.running(job()).await;
        record_all(&world, &running, 1, STEPS_BYTES - 2).await;
        held.push(running);
    }
    let taken = next_attempts(&world, &held).await;
    assert_eq!(taken.len(), tasks);
    let carried: i64 = taken.iter().map(|taken| bytes(&taken.steps)).sum();
    assert!(carried <= PAGE_BYTES, "{carried}");
    let (with, without): (Vec<_>, Vec<_>) = taken.iter().partition(|t| !t.steps.is_empty());
    assert_eq!((with.len(), without.len()), (tasks - 2, 2));
    assert!(with.iter().all(|taken| taken.steps_complete));
    assert!(without.iter().all(|taken| !taken.steps_complete));
}

/// A first attempt was said to have no steps, and whoever had forgotten them ran them again.
async fn what_is_told_again_carries_what_was_done_meanwhile(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let claim = Claim { start: true, ..claim_of("w1", &["q"], 1) };
    let held = world.tasks.claim(claim.clone()).await.unwrap();
    let first = world.tasks.fill_steps(held.clone()).await.unwrap();
    assert_eq!((names(&first[0].steps), first[0].steps_complete), (vec![], true));
    record_all(&world, &held[0], 2, 10).await;
    let (tasks, id) = (&world.tasks, held[0].task.id);
    for told in [
        tasks.claim(claim.clone()).await.unwrap(),
        tasks.claim_tasks(&claim, vec![id]).await.unwrap(),
        tasks.unknown_to("w1", Vec::new()).await.unwrap(),
        tasks.held_of("w1", vec![id]).await.unwrap(),
    ] {
        assert_eq!((told[0].lease_id, told[0].attempt), (held[0].lease_id, 1));
        let told = tasks.fill_steps(told).await.unwrap().pop().unwrap();
        assert_eq!((names(&told.steps), told.steps_complete), (vec!["s0", "s1"], true));
    }
}

async fn pages_of_big_steps_are_bounded_and_lead_to_the_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let all = (2 * PAGE_BYTES / STEPS_BYTES) as usize + 1;
    record_all(&world, &held, all, STEPS_BYTES - 2).await;
    let steps = Steps::new(world.store.clone());
    let (mut seen, mut pages, mut after) = (0, 0, 0);
    loop {
        let page = steps.page(held.task.id, after, 1_000).await.unwrap();
        assert!(bytes(&page.steps) <= PAGE_BYTES);
        (seen, pages) = (seen + page.steps.len(), pages + 1);
        match page.complete {
            true => break,
            false => after = page.steps.last().unwrap().seq,
        }
    }
    assert_eq!((seen, pages), (all, 3));
}

async fn pages_of_big_steps_are_bounded_from_the_last_on_too(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let all = (2 * PAGE_BYTES / STEPS_BYTES) as usize + 1;
    record_all(&world, &held, all, STEPS_BYTES - 2).await;
    let steps = Steps::new(world.store.clone());
    let (mut seen, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let part = Part::new(Order::Descending, after, 1_000);
        let page = steps.part(held.task.id, part).await.unwrap();
        assert!(bytes(&page.steps) <= PAGE_BYTES);
        after = page.steps.last().map(|step| step.seq);
        (seen, pages) = ([seen, page.steps].concat(), pages + 1);
        if page.complete {
            break;
        }
    }
    let wanted: Vec<String> = (0..all).rev().map(|n| format!("s{n}")).collect();
    assert_eq!((names(&seen), pages), (wanted.iter().map(String::as_str).collect(), 3));
}

async fn a_page_of_small_steps_is_bounded_by_their_number(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let all = STEPS_LIMIT as usize + 1;
    record_all(&world, &held, all, 1).await;
    let steps = Steps::new(world.store.clone());
    let page = steps.page(held.task.id, 0, STEPS_LIMIT).await.unwrap();
    assert_eq!((page.steps.len(), page.complete), (all - 1, false));
    let page = steps.page(held.task.id, page.steps.last().unwrap().seq, 1).await.unwrap();
    assert_eq!((page.steps.len(), page.complete), (1, true));
    let after = page.steps.last().unwrap().seq;
    let page = steps.page(held.task.id, after, 1).await.unwrap();
    assert_eq!((page.steps.len(), page.complete), (0, true));
}

fn names(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.name.as_str()).collect()
}
