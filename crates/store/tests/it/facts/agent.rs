//! Agents: what their tasks take over, and that the database keeps only what can be read.

use crate::world::*;
use windlass_domain::agent::{AgentSpec, Given, RetryPolicy};
use windlass_domain::retry::{Backoff, OnExhausted};
use windlass_domain::state::State;
use windlass_store::agent::{AgentFilter, Agents};
use windlass_store::statement::Dialect;
use windlass_store::task::Finishing;

conformance!(
    a_policy_is_written_anew_and_listed_by_name,
    where_a_task_ends_when_its_retries_are_used_up_is_kept_with_it,
    a_job_whose_last_lease_is_lost_ends_as_its_policy_says,
    a_policy_that_nobody_could_read_is_refused,
);

fn policy(max_retries: i32) -> AgentSpec {
    let backoff = Some(Backoff { base_ms: 5, ..Backoff::default() });
    let on_exhausted = Some(OnExhausted::Failed);
    let retry_policy = RetryPolicy { max_retries: Some(max_retries), backoff, on_exhausted };
    AgentSpec { retry_policy, ..AgentSpec::default() }
}

async fn a_policy_is_written_anew_and_listed_by_name(dialect: Dialect) {
    let world = World::new(dialect).await;
    let agents = Agents::new(world.store.clone());
    let first = agents.put("scout", policy(5), "tester").await.unwrap();
    assert_eq!((first.spec.clone(), first.created_at), (policy(5), world.now()));
    world.pass_ms(7);
    let again = agents.put("scout", AgentSpec::default(), "tester").await.unwrap();
    assert_eq!((again.created_at, again.updated_at), (first.created_at, world.now()));
    assert_eq!(again.spec, AgentSpec::default());
    for name in ["Zoë", "a b", "crew", "Élan"] {
        agents.put(name, policy(1), "tester").await.unwrap();
    }
    let all = AgentFilter::default;
    let (page, next) = agents.list(all(), "", 3).await.unwrap();
    let (rest, end) = agents.list(all(), &next.unwrap(), 3).await.unwrap();
    let names: Vec<_> = page.iter().chain(&rest).map(|agent| agent.name.as_str()).collect();
    assert_eq!((names, end), (vec!["Zoë", "a b", "crew", "scout", "Élan"], None));
    assert_eq!(agents.show("nobody").await.unwrap(), None);
    let asked = vec!["crew".into(), "nobody".into()];
    let given = Given { retry_policy: policy(1).retry_policy, ..Given::default() };
    assert_eq!(agents.given(asked).await.unwrap(), [("crew".into(), given)]);
}

async fn where_a_task_ends_when_its_retries_are_used_up_is_kept_with_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (end, expected) in [
        (None, State::Poisoned),
        (Some(OnExhausted::Failed), State::Failed),
        (Some(OnExhausted::Poisoned), State::Poisoned),
    ] {
        let new = task(|r| {
            r.max_retries = Some(0);
            r.backoff = Some(Backoff { on_exhausted: end, ..Backoff::default() });
        });
        let held = world.running(new).await;
        assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), expected);
    }
    // A delegation may be given to a person, too.
    let backoff = Backoff { on_exhausted: Some(OnExhausted::Poisoned), ..Backoff::default() };
    let held = world.running(delegation(|r| r.backoff = Some(backoff))).await;
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Poisoned);
}

async fn a_job_whose_last_lease_is_lost_ends_as_its_policy_says(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (end, expected, event) in [
        (None, State::Poisoned, "lose_lease:poisoned"),
        (Some(OnExhausted::Poisoned), State::Poisoned, "lose_lease:poisoned"),
        (Some(OnExhausted::Failed), State::Failed, "fail:failed"),
    ] {
        let backoff = Backoff { on_exhausted: end, ..Backoff::default() };
        let new = task(|r| (r.max_retries, r.backoff) = (Some(1), Some(backoff)));
        let first = world.running(new).await;
        world.pass_ms(60_000);
        world.tasks.expire_leases(10).await.unwrap();
        assert_eq!(world.status(first.task.id).await, State::Retry, "one is left");
        let mut claim = claim_of("w2", &["q"], 1);
        claim.start = true;
        let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
        world.pass_ms(60_000);
        world.tasks.expire_leases(10).await.unwrap();
        let shown = world.show(held.task.id).await;
        assert_eq!(shown.status, expected);
        assert_eq!(shown.error.unwrap().code, "LEASE_EXPIRED");
        assert_eq!(world.story(held.task.id).await.pop().unwrap(), event);
        let history = world.tasks.history(held.task.id, 0, 100).await.unwrap();
        assert_eq!(history.last().unwrap().actor, "duty:expire_leases");
        // Nobody finished it: whoever comes late lost the lease.
        for late in [complete(), fail("LEASE_EXPIRED"), Finishing::Release] {
            assert_eq!(refused(world.finish(&held, late).await), "lease_lost");
        }
    }
}

async fn a_policy_that_nobody_could_read_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let now = crate::refusal::instant(dialect, NOON);
    for policy in [
        "[]",
        "7",
        "{\"retries\": 3}",
        "{\"max_retries\": 101}",
        "{\"max_retries\": -1}",
        "{\"max_retries\": \"3\"}",
        "{\"on_exhausted\": \"lost\"}",
        "{\"backoff\": 3}",
    ] {
        let sql = format!(
            "INSERT INTO agent (name, retry_policy, created_at, updated_at)
             VALUES ('a', '{policy}', {now}, {now})"
        );
        assert!(world.by_hand(&sql).is_err(), "{policy}");
    }
    let sql = format!(
        "INSERT INTO agent (name, retry_policy, created_at, updated_at)
         VALUES ('a', '{{\"max_retries\": 100, \"on_exhausted\": \"failed\"}}', {now}, {now})"
    );
    world.by_hand(&sql).unwrap();
    let agent = Agents::new(world.store.clone()).show("a").await.unwrap().unwrap();
    assert_eq!(agent.spec.retry_policy.max_retries, Some(100));
}
