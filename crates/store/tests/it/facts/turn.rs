//! Turns: between ventures, also when something holds one of them back, between kinds of work in
//! one queue, and of tasks whose time comes all at once; and who is urgent.

use super::flow::{complete_all, many, of, ventures};
use crate::world::*;
use std::time::Duration;
use windlass_domain::limit::{Limits, Mode, Pause, Rule, Scope};
use windlass_domain::profile::Kind;
use windlass_domain::request::SubmitRequest;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Tasks};

conformance!(
    a_long_backlog_waits_for_those_who_come_later,
    an_urgent_task_of_a_long_backlog_is_next,
    turns_survive_claims_of_many,
    tasks_that_another_node_submits_are_found,
    the_more_urgent_task_of_a_venture_goes_first_whatever_its_agent,
    a_newcomer_takes_turns_although_somebody_is_held_back,
    what_was_held_back_saves_no_turns_up,
    a_pin_that_nobody_has_moves_nobodys_turn,
    kinds_of_work_in_one_queue_take_turns,
    an_urgent_task_goes_before_others_of_its_venture_whatever_its_kind,
    what_becomes_due_at_once_is_served_in_turns,
    a_task_that_parks_makes_room_at_once,
    a_venture_of_many_lanes_gets_no_more_turns_than_others,
    of_hundreds_of_lanes_the_most_urgent_tasks_come_first,
    priorities_of_a_venture_hold_between_nodes,
    what_another_node_was_heard_to_submit_does_not_wait_for_the_backlog,
);

/// The ventures of the next tasks, one claim each; each is completed at once.
async fn served(world: &World, count: usize) -> Vec<String> {
    let mut ventures = Vec::new();
    for _ in 0..count {
        let Some(held) = world.claim("w1", 1).await.pop() else { break };
        ventures.push(held.task.venture.clone().unwrap_or_default());
        world.finish(&held, complete()).await.unwrap();
    }
    ventures
}

fn count(served: &[String], venture: &str) -> usize {
    served.iter().filter(|name| *name == venture).count()
}

fn hold_back(world: &World, venture: &str) {
    let pause = Pause {
        scope: Scope::Venture,
        name: Some(venture.into()),
        mode: Mode::Pause,
        reason: None,
    };
    world.tasks.bind(Some(Limits::new([]).with_pauses([pause])));
}

async fn a_newcomer_takes_turns_although_somebody_is_held_back(dialect: Dialect) {
    let world = World::new(dialect).await;
    // One at its limit, and the rest of it waits.
    let max_active = Some(1);
    let rule = Rule {
        scope: Scope::Venture,
        name: Some("held".into()),
        max_active,
        max_pending: None,
        rate: None,
    };
    world.tasks.bind(Some(Limits::new([rule])));
    world.submit_all(many("held", 3)).await;
    assert_eq!(world.claim("w2", 5).await.len(), 1);
    world.submit_all(many("old", 80)).await;
    assert_eq!(count(&served(&world, 40).await, "old"), 40);
    world.submit_all(many("new", 40)).await;
    let after = served(&world, 20).await;
    assert_eq!((count(&after, "old"), count(&after, "new")), (10, 10), "{after:?}");
}

async fn what_was_held_back_saves_no_turns_up(dialect: Dialect) {
    let world = World::new(dialect).await;
    hold_back(&world, "held");
    world.submit_all(many("held", 60)).await;
    world.submit_all(many("free", 80)).await;
    assert_eq!(count(&served(&world, 40).await, "free"), 40);
    world.tasks.bind(Some(Limits::new([])));
    let after = served(&world, 20).await;
    assert_eq!((count(&after, "held"), count(&after, "free")), (10, 10), "{after:?}");
}

async fn a_pin_that_nobody_has_moves_nobodys_turn(dialect: Dialect) {
    let world = World::new(dialect).await;
    let pinned = |r: &mut SubmitRequest| {
        (r.kind, r.pool) = (Some(Kind::Inference), Some("fast".into()));
        (r.model, r.venture) = (Some("nobody has it".into()), Some("pinned".into()));
    };
    world.submit(task(pinned)).await;
    world.submit_all(many("old", 60)).await;
    assert_eq!(count(&served(&world, 30).await, "old"), 30);
    world.submit_all(many("new", 30)).await;
    let after = served(&world, 20).await;
    assert_eq!((count(&after, "old"), count(&after, "new")), (10, 10), "{after:?}");
}

async fn kinds_of_work_in_one_queue_take_turns(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("jobs", 50)).await;
    let delegated = |r: &mut SubmitRequest| r.venture = Some("delegations".into());
    world.submit_all((0..10).map(|_| delegation(delegated)).collect()).await;
    let all = served(&world, 20).await;
    assert_eq!((count(&all, "jobs"), count(&all, "delegations")), (10, 10), "{all:?}");
}

async fn an_urgent_task_goes_before_others_of_its_venture_whatever_its_kind(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("v", 20)).await;
    served(&world, 2).await;
    let urgent = delegation(|r| (r.venture, r.priority) = (Some("v".into()), Some(9)));
    let id = world.submit(urgent).await;
    assert_eq!(world.claim("w1", 1).await[0].task.id, id);
}

async fn what_becomes_due_at_once_is_served_in_turns(dialect: Dialect) {
    let world = World::new(dialect).await;
    let due = |venture: String, delay: i64| {
        task(|r| (r.venture, r.delay_ms) = (Some(venture), Some(delay)))
    };
    world.submit_all((0..3_000).map(|_| due("big".into(), 1_000)).collect()).await;
    world.submit_all((0..10).map(|n| due(format!("v{n}"), 1_001)).collect()).await;
    world.pass_ms(2_000);
    let (mut big, mut others) = (0, 0);
    while others < 10 {
        for held in world.claim("w1", 20).await {
            match held.task.venture.as_deref() {
                Some("big") => big += 1,
                _ => others += 1,
            }
        }
    }
    assert!(big < 150, "{big} of the 3,000 went first: more than 5 %");
}

async fn what_another_node_was_heard_to_submit_does_not_wait_for_the_backlog(dialect: Dialect) {
    let world = World::new(dialect).await;
    // It looks everywhere only when it hears of something, or has nothing left.
    let here = Tasks::new(world.store.clone()).with_full_scan(Duration::from_secs(3_600));
    for outcome in here.submit(many("big", 500)).await {
        outcome.unwrap();
    }
    assert_eq!(here.claim(claim_of("w1", &["q"], 1)).await.unwrap().len(), 1);
    let urgent = task(|r| (r.venture, r.priority) = (Some("big".into()), Some(9)));
    let id = world.submit(urgent).await;
    here.heard();
    let mut before = 0;
    loop {
        let held = here.claim(claim_of("w1", &["q"], 1)).await.unwrap();
        assert_eq!(held.len(), 1);
        if held[0].task.id == id {
            break;
        }
        before += 1;
    }
    assert!(before < 400, "{before} of the backlog went before it");
}

async fn a_task_that_parks_makes_room_at_once(dialect: Dialect) {
    use windlass_domain::command::Command;
    let world = World::new(dialect).await;
    let max_active = Some(1);
    let rule = Rule { scope: Scope::Global, name: None, max_active, max_pending: None, rate: None };
    world.tasks.bind(Some(Limits::new([rule])));
    let held = world.running(job()).await;
    let next = world.submit(job()).await;
    assert_eq!(world.claim("w2", 1).await.len(), 0);
    world.ask(held.task.id, Command::Wait { lease_id: held.lease_id }).await.unwrap();
    assert_eq!(world.claim("w2", 1).await[0].task.id, next);
}

// Only so many lanes were counted, all of them of the first venture; the others were passed over as
// if they were full.
async fn a_venture_of_many_lanes_gets_no_more_turns_than_others(dialect: Dialect) {
    let world = World::new(dialect).await;
    let each = |scope| {
        let (max_active, max_pending) = (Some(1_000), None);
        Rule { scope, name: None, max_active, max_pending, rate: None }
    };
    world.tasks.bind(Some(Limits::new([each(Scope::Venture), each(Scope::Stage)])));
    let staged = |n: usize| {
        task(|r| (r.venture, r.stage) = (Some("a".into()), Some(format!("stage {}", n % 60))))
    };
    world.submit_all((0..240).map(staged).collect()).await;
    world.submit_all([many("b", 120), many("c", 120)].concat()).await;
    let mut served = Vec::new();
    for _ in 0..20 {
        let held = world.claim("w1", 10).await;
        assert_eq!(held.len(), 10);
        for assignment in held {
            served.push(assignment.task.venture.clone().unwrap_or_default());
            world.finish(&assignment, complete()).await.unwrap();
        }
    }
    let counts = ["a", "b", "c"].map(|venture| count(&served, venture));
    assert!(counts.iter().all(|count| (65..=68).contains(count)), "{counts:?}");
}

async fn of_hundreds_of_lanes_the_most_urgent_tasks_come_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let each = |scope, max_active| Rule {
        scope,
        name: None,
        max_active: Some(max_active),
        max_pending: None,
        rate: None,
    };
    let rules = [each(Scope::Venture, 1_000), each(Scope::Stage, 1)];
    world.tasks.bind(Some(Limits::new(rules)));
    let staged = |n: i32| {
        let of = |stage: i32, priority| {
            task(|r| {
                (r.venture, r.priority) = (Some("v".into()), Some(priority));
                r.stage = Some(format!("stage {stage}"));
            })
        };
        [of(n, n % 5), of(n, 0)]
    };
    world.submit_all((0..200).flat_map(staged).collect()).await;
    // One of each stage at a time, and of those the most urgent.
    for priority in [4, 3, 2, 1, 0] {
        let held = world.claim("w1", 40).await;
        let all: Vec<i32> = held.iter().map(|held| held.task.priority).collect();
        assert_eq!(all, [priority; 40]);
    }
    assert_eq!(world.claim("w1", 40).await.len(), 0, "each stage has one");
}

async fn a_long_backlog_waits_for_those_who_come_later(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("big", 300)).await;
    world.claim("w1", 20).await;
    world.pass_ms(1);
    for n in 0..9 {
        world.submit_all(many(&format!("small {n}"), 3)).await;
    }
    let mut held = Vec::new();
    for _ in 0..31 {
        held.extend(world.claim("w1", 1).await);
    }
    let counts = ventures(&held);
    assert_eq!(counts.values().sum::<usize>() - counts["big"], 27, "{counts:?}");
}

async fn an_urgent_task_of_a_long_backlog_is_next(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("big", 100)).await;
    for n in 0..20 {
        world.submit_all(many(&format!("small {n}"), 5)).await;
    }
    world.claim("w1", 30).await;
    let mut urgent = of("big");
    urgent.priority = 5;
    let id = world.submit(urgent).await;
    let held = world.claim("w1", 2).await;
    assert!(held.iter().any(|assignment| assignment.task.id == id));
}

async fn turns_survive_claims_of_many(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all([many("a", 60), many("b", 60), many("c", 5)].concat()).await;
    let held = world.claim("w1", 45).await;
    let counts = ventures(&held);
    assert_eq!(held.len(), 45);
    assert_eq!(counts["c"], 5);
    assert!(counts["a"].abs_diff(counts["b"]) <= 10, "{counts:?}");
}

async fn tasks_that_another_node_submits_are_found(dialect: Dialect) {
    let world = World::new(dialect).await;
    let other = Tasks::new(world.store.clone());
    assert_eq!(world.claim("w1", 1).await.len(), 0);
    for n in 0..3 {
        // A lane that this node has never heard of.
        let outcomes = other.submit(many(&format!("v{n}"), 2)).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(world.claim("w1", 5).await.len(), 2);
    }
}

/// Nodes take the heads of lanes from under each other: what comes behind a head that is gone must
/// not go before the more urgent of another lane. A SQLite file has one node.
async fn priorities_of_a_venture_hold_between_nodes(dialect: Dialect) {
    const STAGES: usize = 30;
    let world = World::with_real_clock(dialect).await;
    let mut nodes = vec![world.tasks.clone()];
    if dialect == Dialect::Postgres {
        nodes.push(Tasks::new(world.store.clone()));
    }
    let new = |stage: usize, priority: i32| {
        task(|r| {
            r.venture = Some("v".into());
            r.stage = Some(format!("s{stage}"));
            r.priority = Some(priority);
        })
    };
    let steps = [9, 5, 3, 1, 0, -5];
    let all = (0..STAGES * 4).map(|n| new(n % STAGES, steps[(n * 7 + n / STAGES) % steps.len()]));
    world.submit_all(all.collect()).await;
    // Each node knows all heads before the other begins to take them.
    let mut order = Vec::new();
    for turn in 0..STAGES * 4 {
        let node = &nodes[turn / 5 % nodes.len()];
        let held = node.claim(claim_of("w1", &["q"], 1)).await.unwrap();
        order.extend(held.iter().map(|held| held.task.priority));
    }
    assert_eq!(order.len(), STAGES * 4, "each claim has got one");
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
    // A task that comes later, more urgent than all others that are left.
    world.submit_all((0..STAGES).flat_map(|stage| [new(stage, 9), new(stage, 0)]).collect()).await;
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    assert_eq!(last.claim(claim_of("w2", &["q"], 1)).await.unwrap().len(), 1);
    assert_eq!(first.claim(claim_of("w1", &["q"], STAGES - 1)).await.unwrap().len(), STAGES - 1);
    let late = new(7, 5);
    let id = late.id;
    assert!(last.submit(vec![late]).await.iter().all(Result::is_ok));
    let next = last.claim(claim_of("w2", &["q"], 1)).await.unwrap();
    assert_eq!(next[0].task.id, id);
}

async fn the_more_urgent_task_of_a_venture_goes_first_whatever_its_agent(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = |agent: &str, priority: i32| {
        task(|r| {
            r.venture = Some("v".into());
            r.agent = Some(agent.into());
            r.priority = Some(priority);
            r.queue = Some("q".into());
        })
    };
    let tasks = [("a", 9), ("a", 0), ("a", 0), ("b", 5), ("b", 5), ("c", 7)];
    world.submit_all(tasks.map(|(agent, priority)| new(agent, priority)).to_vec()).await;
    let mut order = Vec::new();
    for _ in 0..6 {
        order.extend(world.claim("w1", 1).await.iter().map(|held| held.task.priority));
    }
    assert_eq!(order, [9, 7, 5, 5, 0, 0]);
    // Several at once are taken from its agents in turn.
    let tasks = (0..12).map(|n| new(["a", "b", "c"][n % 3], 0));
    world.submit_all(tasks.collect()).await;
    let held = world.claim("w1", 6).await;
    let of = |agent: &str| held.iter().filter(|h| h.task.agent.as_deref() == Some(agent)).count();
    assert_eq!((of("a"), of("b"), of("c")), (2, 2, 2));
    let rest = world.claim("w1", 10).await;
    complete_all(&world, &[held, rest].concat()).await;
    // But not the usual before the urgent, nor by several claims at once.
    let backlog = (0..30).map(|n| new(["a", "b", "c"][n % 3], 0));
    world.submit_all(backlog.chain((0..8).map(|_| new("b", 5))).collect()).await;
    let priorities = |held: &[Assignment]| {
        let mut all: Vec<i32> = held.iter().map(|held| held.task.priority).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(priorities(&world.claim("w1", 5).await), [5, 5, 5, 5, 5]);
    let (one, two) = tokio::join!(world.claim("w1", 2), world.claim("w2", 2));
    assert_eq!(priorities(&[one, two].concat()), [0, 5, 5, 5]);
}
