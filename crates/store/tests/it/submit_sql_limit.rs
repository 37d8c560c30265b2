//! `windlass_submit` is held to limits and drains as the API is.

use crate::hand::run as script;
use crate::postgres_log::{application, until_waiting};
use crate::world::{World, ledger, on_postgres, refused, task};
use windlass_domain::limit::{Maxima, Mode, Pause, Scope};
use windlass_domain::request::SubmitRequest;
use windlass_store::limit::LimitRules;
use windlass_store::statement::Dialect;

on_postgres!(
    a_task_beyond_a_limit_is_refused_and_nothing_is_written,
    what_was_submitted_before_is_answered_whatever_the_limits_say,
    what_drains_takes_nothing_in,
    each_scope_is_held_to_the_rule_that_the_domain_finds,
    of_two_open_transactions_one_takes_the_last_place_and_none_waits,
    tasks_of_one_transaction_count_against_each_other,
    a_commit_that_waited_for_its_lock_goes_by_the_rules_of_now,
);

async fn limit(world: &World, scope: Scope, name: Option<&str>, max_pending: Option<i64>) {
    let maxima = Maxima { max_active: Some(None), max_pending: Some(max_pending), rate: None };
    let rule = maxima.of(scope, name.map(Into::into), None);
    LimitRules::new(world.store.clone()).put(rule, "ann").await.unwrap();
}

async fn a_task_beyond_a_limit_is_refused_and_nothing_is_written(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    limit(&world, Scope::Queue, Some("q"), Some(1)).await;
    world.by_hand("SELECT windlass_submit('q', '1')").unwrap();
    let sql = "\\set VERBOSITY verbose\nSELECT windlass_submit('q', '2');\n";
    let (_, told) = script(&world, sql);
    let words = "windlass: queue `q` has 1 pending task and at most 1 is allowed";
    assert!(told.contains(words) && told.contains("53400"), "{told}");
    assert!(told.contains("queue_full"), "{told}");
    world.by_hand("SELECT windlass_submit('other', '2')").unwrap();
    assert_eq!(world.by_hand("SELECT count(*) FROM task").unwrap(), "2");
    // What has been handed out makes room.
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    world.by_hand("SELECT windlass_submit('q', '2')").unwrap();
    assert_eq!(world.by_hand("SELECT count(*) FROM sql_submit").unwrap(), "0");
}

async fn what_was_submitted_before_is_answered_whatever_the_limits_say(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let submit = "SELECT windlass_submit('q', '1', '{\"idempotency_key\": \"k\"}')";
    let id = world.by_hand(submit).unwrap();
    limit(&world, Scope::Global, None, Some(0)).await;
    assert_eq!(world.by_hand(submit).unwrap(), id);
    assert!(world.by_hand("SELECT windlass_submit('q', '2')").is_err());
    // A ledger is a record of work that others do.
    let options = "{\"caller\": \"a\", \"callee\": \"b\", \"mode\": \"ledger\"}";
    world.by_hand(&format!("SELECT windlass_submit('q', '1', '{options}')")).unwrap();
    world.tasks.bind(Some(LimitRules::new(world.store.clone()).read().await.unwrap().limits()));
    world.submit(ledger()).await;
}

async fn what_drains_takes_nothing_in(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let rules = LimitRules::new(world.store.clone());
    let options = "{\"venture\": \"acme\", \"agent\": \"scout\"}";
    let submit = format!("SELECT windlass_submit('q', '1', '{options}')");
    for (scope, name) in [
        (Scope::Global, None),
        (Scope::Venture, Some("acme")),
        (Scope::Agent, Some("scout")),
        (Scope::Queue, Some("q")),
    ] {
        let name: Option<String> = name.map(Into::into);
        let reason = Some("a move".to_owned());
        let mut pause = Pause { scope, name: name.clone(), mode: Mode::Drain, reason };
        rules.pause(pause.clone(), "ann").await.unwrap();
        let told = world.by_hand(&submit).unwrap_err();
        assert!(told.contains("takes no new tasks until it is resumed: a move"), "{told}");
        assert!(told.contains(&pause.key().to_string()), "{told}");
        pause.mode = Mode::Pause;
        rules.pause(pause, "ann").await.unwrap();
        world.by_hand(&submit).unwrap();
        rules.resume(scope, name, "ann").await.unwrap();
    }
}

async fn each_scope_is_held_to_the_rule_that_the_domain_finds(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let rules = LimitRules::new(world.store.clone());
    for (scope, name, max_pending) in [
        (Scope::Global, None, Some(1_000)),
        (Scope::Portfolio, Some("full"), Some(0)),
        (Scope::Venture, None, Some(0)),
        (Scope::Venture, Some("free"), None),
        (Scope::Venture, Some("some"), Some(100)),
        (Scope::Stage, None, None),
        (Scope::Stage, Some("full"), Some(0)),
        (Scope::Agent, None, Some(0)),
        (Scope::Agent, Some("free: or not"), None),
        (Scope::Queue, Some("full"), Some(0)),
    ] {
        limit(&world, scope, name, max_pending).await;
    }
    world.tasks.bind(Some(rules.read().await.unwrap().limits()));
    let names = [None, Some("full"), Some("free"), Some("some"), Some("free: or not")];
    let (mut taken, mut kept_out) = (0, 0);
    for field in ["portfolio", "venture", "stage", "agent", "queue"] {
        for name in names.into_iter().flatten() {
            let new = task(|r: &mut SubmitRequest| {
                let name = Some(name.to_owned());
                match field {
                    "portfolio" => r.portfolio = name,
                    "venture" => r.venture = name,
                    "stage" => r.stage = name,
                    "agent" => r.agent = name,
                    _ => r.queue = name,
                }
            });
            let queue = new.queue.clone();
            let options = match field {
                "queue" => "{}".to_owned(),
                field => format!("{{\"{field}\": \"{name}\"}}"),
            };
            let sql = format!("SELECT windlass_submit('{queue}', '1', '{options}')");
            match world.tasks.admission(new).await {
                Ok(_) => {
                    world.by_hand(&sql).unwrap();
                    taken += 1;
                }
                Err(rejection) => {
                    // By the call itself, before the commit.
                    let (_, told) = script(&world, &format!("BEGIN;\n{sql};\nROLLBACK;\n"));
                    assert!(told.contains(&rejection.to_string()), "{told}, not {rejection}");
                    assert_eq!(refused::<()>(Err(rejection)), "queue_full");
                    kept_out += 1;
                }
            }
        }
    }
    assert!(taken > 5 && kept_out > 5, "{taken} {kept_out}");
}

async fn of_two_open_transactions_one_takes_the_last_place_and_none_waits(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    limit(&world, Scope::Queue, Some("q"), Some(1)).await;
    let (one, two) = (application(&world).await, application(&world).await);
    for client in [&one, &two] {
        client.batch_execute("BEGIN; SELECT windlass_submit('q', '1')").await.unwrap();
    }
    // Nobody waits for an open transaction: neither those above, nor a submit of the API.
    world.submit(task(|r| r.queue = Some("other".into()))).await;
    one.batch_execute("COMMIT").await.unwrap();
    let error = two.batch_execute("COMMIT").await.unwrap_err();
    let error = error.as_db_error().unwrap().clone();
    assert_eq!((error.code().code(), error.detail()), ("53400", Some("queue_full")));
    assert_eq!(world.by_hand("SELECT count(*) FROM task WHERE queue = 'q'").unwrap(), "1");
}

async fn tasks_of_one_transaction_count_against_each_other(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    limit(&world, Scope::Queue, Some("q"), Some(2)).await;
    let submit = "SELECT windlass_submit('q', '1');\n";
    let (_, told) = script(&world, &format!("BEGIN;\n{submit}{submit}COMMIT;\n"));
    assert_eq!(told, "");
    assert!(world.by_hand(submit).unwrap_err().contains("has 2 pending tasks"));
}

async fn a_commit_that_waited_for_its_lock_goes_by_the_rules_of_now(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    limit(&world, Scope::Queue, Some("q"), Some(10)).await;
    let (one, lock) = (application(&world).await, application(&world).await);
    one.batch_execute("BEGIN; SELECT windlass_submit('q', '1')").await.unwrap();
    lock.batch_execute("BEGIN; SELECT * FROM windlass_hold(1, '{}')").await.unwrap();
    let commit = tokio::spawn(async move { one.batch_execute("COMMIT").await });
    until_waiting(&world, "1").await;
    let scope = Scope::Queue;
    let pause = Pause { scope, name: Some("q".into()), mode: Mode::Drain, reason: None };
    LimitRules::new(world.store.clone()).pause(pause, "ann").await.unwrap();
    lock.batch_execute("COMMIT").await.unwrap();
    let error = commit.await.unwrap().unwrap_err();
    assert_eq!(error.as_db_error().unwrap().detail(), Some("draining"));
    assert_eq!(world.by_hand("SELECT count(*) FROM task").unwrap(), "0");
}
