//! Facts about the PostgreSQL adapter behind pgbouncer, which gives each transaction any of three
//! server connections.

use crate::bouncer::{Bouncer, POOL};
use crate::cluster::{TestDatabase, eventually, psql};
use crate::world::*;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_store::error::{Error, Rejection};
use windlass_store::migration;
use windlass_store::postgres::{self, Options, PostgresDatabase};
use windlass_store::statement::{Dialect, Statement};
use windlass_store::store::Store;
use windlass_store::task::{Filter, Order, Position, Tasks};
use windlass_store::tx::Call;
use windlass_store::value::Value;

/// A database, a pgbouncer before it, and two programs behind that.
struct Pooled {
    nodes: Vec<Node>,
    bouncer: Bouncer,
    database: TestDatabase,
}

struct Node {
    tasks: Tasks,
    store: Store,
    postgres: Arc<PostgresDatabase>,
}

impl Pooled {
    fn new() -> Pooled {
        Pooled::with("")
    }

    fn with(settings: &str) -> Pooled {
        let database = TestDatabase::create();
        let bouncer = Bouncer::start(database.port(), settings);
        let mut pooled = Pooled { nodes: Vec::new(), bouncer, database };
        for _ in 0..2 {
            let node = pooled.node("");
            pooled.nodes.push(node);
        }
        pooled
    }

    async fn migrated() -> Pooled {
        let pooled = Pooled::new();
        let (one, other) = (&pooled.nodes[0].store, &pooled.nodes[1].store);
        let (one, other) = tokio::join!(migration::up(one), migration::up(other));
        let applied = [one.unwrap(), other.unwrap()].concat();
        assert_eq!(applied.len(), migration::MIGRATIONS.len(), "one migrates, the other waits");
        pooled
    }

    fn url(&self) -> String {
        self.database.url_through(self.bouncer.port())
    }

    fn node(&self, parameters: &str) -> Node {
        let url = format!("{}{parameters}", self.url());
        let options = Options { unavailable_after: Duration::from_secs(20), ..Options::default() };
        let postgres = postgres::open(&url, options).unwrap();
        let store = Store::new(postgres.clone());
        Node { tasks: Tasks::new(store.clone()), store, postgres }
    }

    /// What the server's connections of this database do, other than the asking one.
    fn connections(&self, condition: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND {condition}"
        );
        self.database.sql(&sql).parse().unwrap()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.store.close();
        }
    }
}

#[test]
fn a_pooler_is_found_and_a_plain_server_is_not_taken_for_one() {
    let pooled = Pooled::new();
    assert!(pooled.nodes.iter().all(|node| node.postgres.is_pooled()));
    let told = pooled.node("?pooler=transaction");
    assert!(told.postgres.is_pooled());
    told.store.close();
    let plain = postgres::open(&pooled.database.url(), Options::default()).unwrap();
    assert!(!plain.is_pooled());
    Store::new(plain).close();
    // One that takes its server connections in turn instead of the one it used last.
    let turns = Bouncer::start(pooled.database.port(), "server_round_robin = 1");
    let url = pooled.database.url_through(turns.port());
    let hold = |n: u32| format!("SELECT pg_sleep(0.{n})");
    std::thread::scope(|scope| {
        for n in 1..=3 {
            let url = &url;
            scope.spawn(move || psql(url, &hold(n)));
        }
    });
    let found = postgres::open(&url, Options::default()).unwrap();
    assert!(found.is_pooled());
    Store::new(found).close();
}

#[test]
fn a_task_lives_its_life_behind_a_pooler() {
    run(|_| a_life(), Dialect::Postgres);
}

async fn a_life() {
    let pooled = Pooled::migrated().await;
    let (one, other) = (&pooled.nodes[0].tasks, &pooled.nodes[1].tasks);
    let awkward = task(|r| {
        r.payload = serde_json::json!({ "n": "größer, \"than\" {\\} NULL" });
        r.tags = Some([("a,b".into(), "{\"}".into())].into());
    });
    let jobs = [awkward.clone(), job(), inference(), delegation(|_| {})];
    for outcome in one.submit(jobs.to_vec()).await {
        outcome.unwrap();
    }
    let again = other.submit(vec![awkward.clone()]).await.pop().unwrap().unwrap();
    assert_eq!(again.id, awkward.id);

    let held = other.claim(claim_of("w1", &["q"], 10)).await.unwrap();
    assert_eq!(held.len(), 4);
    let beats = held.iter().map(beat_of).collect();
    for beaten in one.heartbeat(beats).await {
        assert!(beaten.unwrap().lease_expires_at.is_some());
    }
    let ends = held.iter().map(|held| finish_of(held, complete())).collect();
    for ended in other.finish(ends).await {
        assert_eq!(ended.unwrap(), State::Completed);
    }
    let shown = one.show(awkward.id).await.unwrap().unwrap();
    assert_eq!(shown.status, State::Completed);
    assert_eq!(shown.payload, serde_json::from_str::<serde_json::Value>(&awkward.payload).unwrap());
    assert_eq!(shown.tags, awkward.tags);

    let filter = Filter { status: vec![State::Completed], ..Filter::default() };
    let page = other.list(filter, Order::Ascending, None, 3).await.unwrap();
    assert_eq!(page.items.len(), 3);
    assert!(page.next.is_some());
    let history = one.history(awkward.id, 0, 100).await.unwrap();
    let story: Vec<_> = history.iter().map(|h| h.event.as_str()).collect();
    assert_eq!(story, ["submit", "claim", "start", "complete"]);
    // It ends before the oldest transaction that runs anywhere in the cluster: other tests' too.
    let until = Instant::now() + Duration::from_secs(60);
    while other.tail(Position::default(), 100).await.unwrap().len() != 16 {
        assert!(Instant::now() < until, "the log is not complete");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = one.finish(vec![finish_of(&held[0], fail("X"))]).await.pop().unwrap();
    assert!(matches!(refused, Err(Rejection::Refused(_))), "{refused:?}");
}

#[test]
fn nodes_behind_a_pooler_do_not_hear_each_other() {
    let pooled = Pooled::new();
    for node in &pooled.nodes {
        node.store.hear(|_| panic!("nobody can be heard")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(pooled.nodes.iter().all(|node| !node.store.hears()));
}

static SETTINGS: Statement = Statement::new(
    "settings",
    "",
    "SELECT current_setting(name) FROM unnest(ARRAY['synchronous_commit', 'statement_timeout',
         'lock_timeout', 'transaction_isolation', 'transaction_read_only', 'enable_seqscan'])
         WITH ORDINALITY AS n(name, i) ORDER BY i",
);

#[test]
fn every_transaction_has_its_settings_and_leaves_none() {
    let pooled = Pooled::new();
    let database = &pooled.database;
    // What we would run with if we did not say what we want.
    let name = database.name();
    for weak in ["synchronous_commit = off", "statement_timeout = 12345", "timezone = 'Asia/Tokyo'"]
    {
        database.sql(&format!("ALTER DATABASE {name} SET {weak}"));
    }
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = |rows: Vec<windlass_store::value::Row>| {
        let texts = rows.iter().map(|row| row.text(0).unwrap().to_owned());
        texts.collect::<Vec<_>>().join(" ")
    };
    let node = &pooled.nodes[0];
    for _ in 0..10 {
        let alone = node.store.write("settings", |tx| {
            Ok(tx.run_and_commit(vec![Call::one(&SETTINGS, vec![])])?.remove(0))
        });
        let wanted = "on 30s 10s read committed off off";
        assert_eq!(text(runtime.block_on(alone).unwrap()), wanted);
        let within = node.store.write("settings", |tx| tx.run(Call::one(&SETTINGS, vec![])));
        assert_eq!(text(runtime.block_on(within).unwrap()), wanted);
        let read = node.store.read("settings", |tx| tx.run(Call::one(&SETTINGS, vec![])));
        let wanted = "on 30s 10s repeatable read on on";
        assert_eq!(text(runtime.block_on(read).unwrap()), wanted);
    }
    let left = "SELECT coalesce(string_agg(name, ' '), '') FROM pg_settings
         WHERE source = 'session' AND name NOT IN
         ('application_name', 'client_encoding', 'DateStyle', 'TimeZone')";
    let named = "SELECT count(*) FROM pg_prepared_statements";
    for _ in 0..POOL {
        assert_eq!(psql(&pooled.url(), left), "");
        assert_eq!(psql(&pooled.url(), named), "0");
    }
}

#[test]
fn many_callers_share_few_server_connections_and_each_task_is_done_once() {
    run(|_| many_callers(), Dialect::Postgres);
}

async fn many_callers() {
    const CALLERS: usize = 12;
    const EACH: usize = 25;
    let pooled = Pooled::migrated().await;
    let most = Arc::new(AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (one, other) = (caller % 2, (caller + 1) % 2);
        let (one, other) = (pooled.nodes[one].tasks.clone(), pooled.nodes[other].tasks.clone());
        callers.spawn(async move {
            let mut done = Vec::new();
            for _ in 0..EACH {
                one.submit(vec![job()]).await.pop().unwrap().unwrap();
                let held = other.claim(claim_of(&format!("w{caller}"), &["q"], 2)).await.unwrap();
                for held in &held {
                    one.heartbeat(vec![beat_of(held)]).await.pop().unwrap().unwrap();
                    let ended = other.finish(vec![finish_of(held, complete())]).await.pop();
                    assert_eq!(ended.unwrap().unwrap(), State::Completed);
                    done.push(held.task.id);
                }
            }
            done
        });
    }
    let mut done: Vec<TaskId> = Vec::new();
    while let Some(some) = callers.join_next().await {
        done.extend(some.unwrap());
        // A connection that ends may still be seen beside the one that takes its place.
        eventually("the pool's bound is kept", || pooled.connections("true") <= POOL);
        let count = pooled.connections("true");
        most.fetch_or(count == POOL, Ordering::Relaxed);
    }
    assert!(most.load(Ordering::Relaxed), "they shared all server connections");
    let once: HashSet<TaskId> = done.iter().copied().collect();
    assert_eq!(once.len(), done.len(), "a task was done twice");
    let left = pooled.nodes[0].tasks.claim(claim_of("w", &["q"], CALLERS * EACH)).await.unwrap();
    assert_eq!(done.len() + left.len(), CALLERS * EACH);
    let doubts = pooled.nodes.iter().map(|node| node.postgres.stats().ambiguous_commits);
    assert_eq!(doubts.sum::<u64>(), 0, "a healthy pooler leaves no doubt");
    // Each waits its turn between transactions, never in one.
    eventually("nobody is in a transaction", || pooled.connections("state <> 'idle'") == 0);
    for _ in 0..20 {
        assert_eq!(pooled.connections("state like 'idle in transaction%'"), 0);
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_pooler_is_killed_and_comes_back() {
    run(|_| killed(), Dialect::Postgres);
}

async fn killed() {
    let mut pooled = Pooled::migrated().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for node in &pooled.nodes {
        for _ in 0..4 {
            let (tasks, stop) = (node.tasks.clone(), Arc::clone(&stop));
            callers.spawn(async move {
                let mut kept = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let new = job();
                    match tasks.submit(vec![new.clone()]).await.pop().unwrap() {
                        Ok(_) => kept.push(new.id),
                        Err(Rejection::Failed(
                            Error::Unavailable(_) | Error::OutcomeUnknown(_),
                        )) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
                kept
            });
        }
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        pooled.bouncer.kill();
        tokio::time::sleep(Duration::from_millis(100)).await;
        pooled.bouncer.run();
    }
    let all_are_back = || pooled.nodes.iter().all(|node| node.postgres.stats().reconnects > 0);
    let until = Instant::now() + Duration::from_secs(20);
    while !all_are_back() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut kept = HashSet::new();
    while let Some(some) = callers.join_next().await {
        kept.extend(some.unwrap());
    }
    assert!(pooled.nodes.iter().all(|node| node.postgres.stats().reconnects > 0));
    let there = pooled.database.sql("SELECT string_agg(id::text, ' ') FROM task_spec");
    let there: HashSet<TaskId> =
        there.split(' ').map(|id| TaskId(Uuid::parse_str(id).unwrap())).collect();
    assert!(!kept.is_empty() && kept.is_subset(&there), "an acknowledged task is gone");
    let held = pooled.nodes[1].tasks.claim(claim_of("w1", &["q"], 1)).await.unwrap();
    assert_eq!(held.len(), 1);
}

#[test]
fn a_schema_that_another_program_made_anew_is_learned_anew() {
    run(|_| made_anew(), Dialect::Postgres);
}

async fn made_anew() {
    let pooled = Pooled::migrated().await;
    let (one, other) = (&pooled.nodes[0], &pooled.nodes[1]);
    let first = job();
    other.tasks.submit(vec![first.clone()]).await.pop().unwrap().unwrap();
    assert_eq!(other.tasks.show(first.id).await.unwrap().unwrap().status, State::Pending);
    migration::down(&one.store, 0).await.unwrap();
    migration::up(&one.store).await.unwrap();
    // The enums have other numbers now. Every connection of the other notices for itself.
    let second = job();
    let mut busy = 0;
    loop {
        match other.tasks.submit(vec![second.clone()]).await.pop().unwrap() {
            Ok(_) => break,
            Err(Rejection::Failed(Error::Busy(_))) if busy < 20 => busy += 1,
            Err(failed) => panic!("{failed:?}"),
        }
    }
    let mut shown = 0;
    for _ in 0..20 {
        match other.tasks.show(second.id).await {
            Ok(task) => {
                assert_eq!(task.unwrap().status, State::Pending);
                shown += 1;
            }
            Err(Error::Busy(_) | Error::Unavailable(_)) => {}
            Err(failed) => panic!("{failed:?}"),
        }
    }
    assert!(shown >= 15, "only {shown} of 20 reads were answered");
    let held = one.tasks.claim(claim_of("w1", &["q"], 5)).await.unwrap();
    assert_eq!(held.len(), 1);
}

static ECHO: Statement = Statement::new(
    "echo",
    "",
    "SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::jsonb[], $5::int2[],
         $6::int8[], $7::bool[], $8::xid8[])
         WITH ORDINALITY AS u(a, b, c, d, e, f, g, h, n) ORDER BY n",
);

#[test]
fn values_of_every_type_come_back_and_misfits_are_data() {
    let pooled = Pooled::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let full = |time| -> Vec<Value> {
        vec![
            Uuid::now_v7().into(),
            "größer than ' \" \\ , {} NULL".into(),
            windlass_domain::time::Timestamp::from_ms(time).into(),
            Value::Json(r#"{"a": [1, null, "\\\" "]}"#.into()),
            Value::Int(i16::MIN.into()),
            Value::Int(i64::MIN),
            true.into(),
            Value::Int(i64::MAX),
        ]
    };
    let items = vec![full(0), vec![Value::Null; 8], full(i64::MAX), full(NOON)];
    let sent = items.clone();
    let echo = pooled.nodes[0]
        .store
        .write("echo", move |tx| tx.run(Call::each(&ECHO, vec![], sent.clone())));
    let rows = runtime.block_on(echo).unwrap();
    let got: Vec<_> = rows.into_iter().map(|row| row.0[..8].to_vec()).collect();
    assert_eq!(got, items);
    for (position, misfit) in [
        (0, Value::Text("x".into())),
        (1, Value::Text("nul\0".into())),
        (3, Value::Json("{".into())),
        (4, Value::Int(40_000)),
        (6, Value::Int(7)),
    ] {
        let mut item = full(0);
        item[position] = misfit;
        let refused = pooled.nodes[0].store.write("misfit", move |tx| {
            tx.run_and_commit(vec![Call::each(&ECHO, vec![], vec![item.clone()])]).map(drop)
        });
        let refused = runtime.block_on(refused);
        assert!(matches!(refused, Err(Error::Data(_))), "{position}: {refused:?}");
    }
}
