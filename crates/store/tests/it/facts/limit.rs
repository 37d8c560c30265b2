//! Limits and pauses: how they are kept, told, and what they stop.

use crate::world::*;
use windlass_domain::limit::{
    Count, Key, Limits, Maxima, Mode, Pause, Rate, Rule, Scope, default_rules,
};
use windlass_domain::state::State;
use windlass_store::audit::{Audit, Filter};
use windlass_store::limit::{Flow, LimitRules};
use windlass_store::statement::Dialect;

conformance!(
    a_fresh_database_has_the_default_rules,
    a_rule_is_written_anew_and_removed,
    two_who_change_a_rule_at_once_undo_nothing,
    a_pause_is_written_anew_and_removed,
    every_change_is_audited_with_what_was_there_before,
    every_change_makes_the_version_higher_also_one_by_hand,
    what_is_held_is_told_by_key,
    what_is_paused_is_not_handed_out_until_it_is_resumed,
    a_pause_stops_its_own_and_nothing_else,
    what_drains_takes_nothing_in_and_hands_out_what_is_there,
    what_comes_back_to_a_drained_queue_is_not_refused,
);

fn rules(world: &World) -> LimitRules {
    LimitRules::new(world.store.clone())
}

fn rule(scope: Scope, name: Option<&str>, max_active: Option<i64>) -> Rule {
    let name = name.map(Into::into);
    Rule { scope, name, max_active, max_pending: None, rate: None }
}

fn pause(scope: Scope, name: Option<&str>, mode: Mode) -> Pause {
    Pause { scope, name: name.map(Into::into), mode, reason: None }
}

fn bind(world: &World, pauses: impl IntoIterator<Item = Pause>) {
    world.tasks.bind(Some(Limits::default().with_pauses(pauses)));
}

async fn a_fresh_database_has_the_default_rules(dialect: Dialect) {
    let world = World::new(dialect).await;
    let flow = rules(&world).read().await.unwrap();
    let kept: Vec<Rule> = flow.rules.iter().map(|kept| kept.rule.clone()).collect();
    let mut expected: Vec<Rule> = default_rules().collect();
    expected.sort_by_key(|rule| (rule.scope, rule.name.clone()));
    assert_eq!(kept, expected);
    assert!(flow.pauses.is_empty());
    assert_eq!(flow.limits(), Limits::default());
}

async fn two_who_change_a_rule_at_once_undo_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    for round in 0..10 {
        let name = Some(format!("lu{round}"));
        let amend = async |said| {
            rules(&world).amend(Scope::Venture, name.clone(), said, "ann").await.unwrap()
        };
        let active = Maxima { max_active: Some(Some(5)), ..Maxima::default() };
        let pending = Maxima { max_pending: Some(Some(7)), ..Maxima::default() };
        let rate = Some(Rate { count: 1, period_ms: 60_000 });
        let rated = Maxima { rate: Some(rate), ..Maxima::default() };
        tokio::join!(amend(active), amend(pending), amend(rated));
        let flow = rules(&world).read().await.unwrap();
        let kept = flow.rules.iter().find(|kept| kept.rule.name == name).unwrap();
        let Rule { max_active, max_pending, .. } = kept.rule;
        assert_eq!((max_active, max_pending, kept.rule.rate), (Some(5), Some(7), rate));
    }
    // What says nothing new changes nothing.
    let name = Some("lu0".to_owned());
    let kept = rules(&world).amend(Scope::Venture, name, Maxima::default(), "ben").await.unwrap();
    assert_eq!(kept.updated_by, "ann");
}

async fn a_rule_is_written_anew_and_removed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rules = rules(&world);
    let rate = Some(Rate { count: 5, period_ms: 60_000 });
    let first = Rule { rate, max_pending: Some(0), ..rule(Scope::Queue, Some("mail"), Some(3)) };
    let kept = rules.put(first.clone(), "ann").await.unwrap();
    assert_eq!((&kept.rule, kept.updated_at, &*kept.updated_by), (&first, world.now(), "ann"));
    world.pass_ms(5);
    // The same again changes nothing.
    assert_eq!(rules.put(first, "ben").await.unwrap(), kept);
    let other = rule(Scope::Queue, Some("mail"), None);
    let kept = rules.put(other.clone(), "ben").await.unwrap();
    assert_eq!((&kept.rule, kept.updated_at, &*kept.updated_by), (&other, world.now(), "ben"));
    rules.put(rule(Scope::Queue, None, Some(7)), "ben").await.unwrap();
    rules.put(rule(Scope::Agent, Some("zoë"), Some(7)), "ben").await.unwrap();
    let flow = rules.read().await.unwrap();
    let names: Vec<_> =
        flow.rules.iter().map(|kept| (kept.rule.scope, kept.rule.name.as_deref())).collect();
    let expected = [
        (Scope::Global, None),
        (Scope::Venture, None),
        (Scope::Stage, None),
        (Scope::Agent, Some("zoë")),
        (Scope::Queue, None),
        (Scope::Queue, Some("mail")),
        (Scope::WorkerType, Some("ceo_handler")),
        (Scope::WorkerType, Some("crew_executor")),
        (Scope::WorkerType, Some("vp_handler")),
    ];
    assert_eq!(names, expected);
    let gone = rules.delete(Scope::Queue, Some("mail".into()), "ann").await.unwrap();
    assert_eq!(gone, Some(kept));
    assert_eq!(rules.delete(Scope::Queue, Some("mail".into()), "ann").await.unwrap(), None);
    assert_eq!(rules.read().await.unwrap().rules.len(), 8);
}

async fn a_pause_is_written_anew_and_removed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rules = rules(&world);
    let first = pause(Scope::Queue, Some("mail"), Mode::Pause);
    let kept = rules.pause(first.clone(), "ann").await.unwrap();
    assert_eq!((&kept.pause, kept.since, &*kept.by), (&first, world.now(), "ann"));
    world.pass_ms(5);
    assert_eq!(rules.pause(first, "ben").await.unwrap(), kept);
    let reason = Some("moving".into());
    let drained = Pause { reason, ..pause(Scope::Queue, Some("mail"), Mode::Drain) };
    let kept = rules.pause(drained.clone(), "ben").await.unwrap();
    assert_eq!((&kept.pause, kept.since, &*kept.by), (&drained, world.now(), "ben"));
    rules.pause(pause(Scope::Global, None, Mode::Pause), "ben").await.unwrap();
    let flow = rules.read().await.unwrap();
    let scopes: Vec<_> = flow.pauses.iter().map(|kept| kept.pause.scope).collect();
    assert_eq!(scopes, [Scope::Global, Scope::Queue]);
    assert_eq!(rules.resume(Scope::Queue, Some("mail".into()), "ann").await.unwrap(), Some(kept));
    assert_eq!(rules.resume(Scope::Queue, Some("mail".into()), "ann").await.unwrap(), None);
    assert_eq!(rules.read().await.unwrap().pauses.len(), 1);
}

async fn every_change_is_audited_with_what_was_there_before(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rules = rules(&world);
    rules.put(rule(Scope::Global, None, Some(500)), "ann").await.unwrap();
    rules.put(rule(Scope::Global, None, Some(500)), "ann").await.unwrap();
    rules.delete(Scope::Global, None, "ben").await.unwrap();
    rules.delete(Scope::Global, None, "ben").await.unwrap();
    rules.pause(pause(Scope::Agent, Some("scout"), Mode::Drain), "ann").await.unwrap();
    rules.resume(Scope::Agent, Some("scout".into()), "ben").await.unwrap();
    rules.resume(Scope::Agent, Some("scout".into()), "ben").await.unwrap();
    let told = Audit::new(world.store.clone()).list(Filter::default(), None, 10).await.unwrap();
    let told: Vec<_> = told
        .iter()
        .rev()
        .map(|entry| {
            let detail = &entry.detail;
            let at = |side: &str, field: &str| detail[side][field].clone();
            let (before, after) = match detail["before"].get("mode").or(detail["after"].get("mode"))
            {
                Some(_) => (at("before", "mode"), at("after", "mode")),
                None => (at("before", "max_active"), at("after", "max_active")),
            };
            format!("{} {}: {before} -> {after}", entry.actor, entry.event)
        })
        .collect();
    let expected = [
        "ann limit_set: 200 -> 500",
        "ben limit_removed: 500 -> null",
        "ann paused: null -> \"drain\"",
        "ben resumed: \"drain\" -> null",
    ];
    assert_eq!(told, expected);
}

async fn every_change_makes_the_version_higher_also_one_by_hand(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rules = rules(&world);
    let mut last = rules.version().await.unwrap();
    let mut is_higher = |now: i64| std::mem::replace(&mut last, now) < now;
    rules.put(rule(Scope::Global, None, Some(500)), "ann").await.unwrap();
    assert!(is_higher(rules.version().await.unwrap()));
    rules.pause(pause(Scope::Global, None, Mode::Pause), "ann").await.unwrap();
    let Flow { version, .. } = rules.read().await.unwrap();
    assert!(is_higher(version));
    for sql in [
        "UPDATE limit_rule SET max_active = 7 WHERE scope = 'global'",
        "DELETE FROM limit_rule WHERE scope = 'stage'",
        "DELETE FROM pause",
    ] {
        world.by_hand(sql).unwrap();
        assert!(is_higher(rules.version().await.unwrap()), "{sql}");
    }
    assert_eq!(rules.version().await.unwrap(), rules.version().await.unwrap());
}

async fn what_is_held_is_told_by_key(dialect: Dialect) {
    let world = World::new(dialect).await;
    for venture in ["acme", "acme", "other"] {
        world.submit(task(|r| r.venture = Some(venture.into()))).await;
    }
    let held = world.claim("w1", 1).await.pop().unwrap();
    let (_, counts) = rules(&world).read_with_use().await.unwrap();
    let of = |scope, name: &str| {
        let count = counts.get(&Key { scope, name: name.into() }).copied().unwrap_or_default();
        (count.active, count.pending)
    };
    assert_eq!(of(Scope::Global, ""), (1, 2));
    assert_eq!(of(Scope::Queue, "q"), (1, 2));
    let (acme, other) = (of(Scope::Venture, "acme"), of(Scope::Venture, "other"));
    assert_eq!((acme.0 + other.0, acme.1 + other.1), (1, 2));
    // Who holds nothing is not told.
    world.finish(&held, complete()).await.unwrap();
    for held in world.claim("w1", 5).await {
        world.finish(&held, complete()).await.unwrap();
    }
    let (_, counts) = rules(&world).read_with_use().await.unwrap();
    assert!(counts.values().all(|count| *count == Count::default()), "{counts:?}");
}

async fn what_is_paused_is_not_handed_out_until_it_is_resumed(dialect: Dialect) {
    for (scope, name) in [
        (Scope::Global, None),
        (Scope::Venture, Some("acme")),
        (Scope::Agent, Some("scout")),
        (Scope::Queue, Some("q")),
    ] {
        let world = World::new(dialect).await;
        let new = || task(|r| (r.venture, r.agent) = (Some("acme".into()), Some("scout".into())));
        bind(&world, [pause(scope, name, Mode::Pause)]);
        let id = world.submit(new()).await;
        assert!(world.claim("w1", 5).await.is_empty(), "{scope}");
        // Nor if it is asked for by its id.
        let asked = world.tasks.claim_tasks(&claim_of("w1", &["q"], 1), vec![id]).await.unwrap();
        assert!(asked.is_empty(), "{scope}");
        assert_eq!(world.status(id).await, State::Pending);
        bind(&world, []);
        let held = world.claim("w1", 5).await;
        assert_eq!(held.len(), 1, "{scope}");
        // Whoever holds one while it is paused goes on.
        bind(&world, [pause(scope, name, Mode::Pause)]);
        world.start(&held[0]).await.unwrap();
        world.beat(&held[0]).await.unwrap();
        assert_eq!(world.finish(&held[0], complete()).await.unwrap(), State::Completed);
    }
}

async fn a_pause_stops_its_own_and_nothing_else(dialect: Dialect) {
    let world = World::new(dialect).await;
    let pauses = [
        pause(Scope::Venture, Some("acme"), Mode::Pause),
        pause(Scope::Queue, Some("other"), Mode::Pause),
    ];
    bind(&world, pauses);
    for venture in ["acme", "acme", "bolt"] {
        world.submit(task(|r| r.venture = Some(venture.into()))).await;
    }
    world.submit(task(|r| r.queue = Some("other".into()))).await;
    world.submit(job()).await;
    let claim = claim_of("w1", &["q", "other"], 10);
    let held = world.tasks.claim(claim).await.unwrap();
    let mut ventures: Vec<_> = held.iter().map(|held| held.task.venture.as_deref()).collect();
    ventures.sort_unstable();
    assert_eq!(ventures, [None, Some("bolt")]);
}

async fn what_drains_takes_nothing_in_and_hands_out_what_is_there(dialect: Dialect) {
    let world = World::new(dialect).await;
    let known = task(|r| r.idempotency_key = Some("k".into()));
    let id = world.submit(known.clone()).await;
    bind(&world, [pause(Scope::Queue, Some("q"), Mode::Drain)]);
    let outcomes = world.submit_all(vec![job(), known.clone()]).await;
    let mut outcomes = outcomes.into_iter();
    assert_eq!(refused(outcomes.next().unwrap()), "draining");
    // What it has taken in before, it still knows.
    let again = outcomes.next().unwrap().unwrap();
    assert_eq!((again.id, again.duplicate), (id, true));
    let (blamed, _) = world.tasks.submit_atomic(vec![known.clone(), job()]).await.unwrap_err();
    assert_eq!(blamed, 1);
    let again = world.tasks.submit_atomic(vec![known]).await.unwrap();
    assert_eq!((again[0].id, again[0].duplicate), (id, true));
    // Another queue takes more.
    world.submit(task(|r| r.queue = Some("other".into()))).await;
    assert_eq!(world.claim("w1", 5).await.len(), 1);
    bind(&world, []);
    world.submit(job()).await;
}

async fn what_comes_back_to_a_drained_queue_is_not_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.max_retries = Some(3))).await;
    bind(&world, [pause(Scope::Global, None, Mode::Drain)]);
    let back = world.finish(&held, fail("TIMEOUT")).await.unwrap();
    assert_eq!(back, State::Retry);
    world.pass_ms(600_000);
    assert_eq!(world.claim("w2", 1).await.len(), 1);
}
