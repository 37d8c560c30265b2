//! Facts about pins: what a task must run on goes to nobody who did not name it.

use super::eager::Waiting;
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::pins::{Pins, Serves};
use windlass_domain::task::NewTask;
use windlass_store::migration;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim, Tasks};

fn ids(held: &[Assignment]) -> Vec<TaskId> {
    held.iter().map(|held| held.task.id).collect()
}

conformance!(
    what_is_pinned_goes_only_to_who_names_it,
    a_claim_by_id_honours_pins,
    what_nobody_here_has_hides_nothing_behind_it,
    a_new_task_is_handed_over_only_to_who_has_what_it_is_pinned_to,
    what_waits_during_an_upgrade_keeps_its_pins_and_its_count,
);

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn serves(llms: &[&str], models: &[&str], tiers: &[&str]) -> Serves {
    Serves { llms: list(llms), models: list(models), tiers: list(tiers) }
}

fn claim_with(serves: Serves, max: usize) -> Claim {
    Claim { serves, ..claim_of("w1", &["fast"], max) }
}

fn pinned(llm: &str, model: &str, tier: &str) -> NewTask {
    let pin = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    inference_with(|r| {
        r.queue = None;
        (r.llm, r.model, r.tier) = (pin(llm), pin(model), pin(tier));
    })
}

async fn what_is_pinned_goes_only_to_who_names_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let all = [("l", "", ""), ("", "m", ""), ("", "", "t"), ("l", "m", "t"), ("", "", "")];
    let tasks = all.map(|(llm, model, tier)| pinned(llm, model, tier));
    let pins: Vec<(_, Pins)> = tasks.iter().map(|task| (task.id, task.pins())).collect();
    for task in tasks {
        world.submit(task).await;
    }
    let mut taken = Vec::new();
    for who in [
        serves(&["other"], &["other"], &["other"]),
        serves(&[], &[], &[]),
        serves(&[], &["other", "m"], &[]),
        serves(&[], &["m"], &["t"]),
        serves(&["l"], &["x"], &["t"]),
        serves(&["l"], &["m"], &["t"]),
    ] {
        let held = world.tasks.claim(claim_with(who.clone(), 10)).await.unwrap();
        for id in ids(&held) {
            let (_, pins) = pins.iter().find(|(task, _)| *task == id).unwrap();
            assert!(who.has(pins), "{who:?} was given {pins:?}");
            taken.push(id);
        }
    }
    // In the order in which somebody came who had it.
    assert_eq!(taken, [4, 1, 2, 0, 3].map(|at: usize| pins[at].0));
}

async fn a_claim_by_id_honours_pins(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [with, without] =
        [world.submit(pinned("", "m", "")).await, world.submit(pinned("", "", "")).await];
    let none = claim_with(Serves::default(), 5);
    let held = world.tasks.claim_tasks(&none, vec![with, without]).await.unwrap();
    assert_eq!(ids(&held), [without]);
    let has = claim_with(serves(&[], &["m"], &[]), 5);
    assert_eq!(ids(&world.tasks.claim_tasks(&has, vec![with]).await.unwrap()), [with]);
}

async fn what_nobody_here_has_hides_nothing_behind_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    // One venture, and many models that nobody serves: each is a lane of its own.
    world.submit_all((0..300).map(|n| pinned("", &format!("m{n}"), "")).collect()).await;
    let last = world.submit(pinned("", "", "")).await;
    let one = claim_with(serves(&[], &["m299"], &[]), 5);
    let none = claim_with(Serves::default(), 5);
    assert_eq!(ids(&world.tasks.claim(none).await.unwrap()), [last]);
    let held = world.tasks.claim(one).await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].task.model.as_deref(), Some("m299"));
}

async fn a_new_task_is_handed_over_only_to_who_has_what_it_is_pinned_to(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = Waiting::of(&world);
    waiting.enter(claim_with(Serves::default(), 1));
    let wanted = world.submit(pinned("", "m", "")).await;
    assert!(waiting.got().is_empty(), "who waits does not have it");
    // What is pinned stands before it, but not in the way of others.
    let free = world.submit(pinned("", "", "")).await;
    assert_eq!(waiting.got().iter().flat_map(|held| ids(held)).collect::<Vec<_>>(), [free]);
    waiting.enter(claim_with(serves(&[], &["m"], &[]), 1));
    let next = world.submit(pinned("", "m", "")).await;
    // Handed over, or taken by the one who was told to look.
    let mut got: Vec<_> = waiting.got().iter().flat_map(|held| ids(held)).collect();
    let claim = claim_with(serves(&[], &["m"], &[]), 5);
    got.extend(ids(&world.tasks.claim(claim).await.unwrap()));
    assert_eq!(got, [wanted, next], "the older one goes first");
}

async fn what_waits_during_an_upgrade_keeps_its_pins_and_its_count(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let with = world.submit(pinned("", "m", "t")).await;
    let without = world.submit(pinned("", "", "")).await;
    let held = world.tasks.claim(claim_with(Serves::default(), 1)).await.unwrap();
    assert_eq!(ids(&held), [without]);
    let counts = || {
        let sql = "SELECT key, active, pending FROM limit_use
                   WHERE active <> 0 OR pending <> 0 ORDER BY key";
        world.by_hand(sql).unwrap()
    };
    let before = counts();
    migration::down(&world.store, 30).await.unwrap();
    assert_eq!(counts(), before, "on the way down");
    migration::up(&world.store).await.unwrap();
    assert_eq!(counts(), before, "and up again");
    // A program starts anew after an upgrade.
    let tasks = Tasks::new(world.store.clone());
    let none = claim_with(Serves::default(), 5);
    assert_eq!(tasks.claim(none).await.unwrap(), []);
    let has = claim_with(serves(&[], &["m"], &["t"]), 5);
    assert_eq!(ids(&tasks.claim(has).await.unwrap()), [with]);
}
