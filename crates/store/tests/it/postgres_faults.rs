//! What goes wrong inside a transaction: errors, conflicts, panics, limits.

use crate::cluster::eventually;
use crate::postgres::{Fixture, INSERT, item};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;
use uuid::Uuid;
use windlass_store::error::Error;
use windlass_store::postgres::Options;
use windlass_store::statement::Statement;
use windlass_store::tx::{Call, Tx};
use windlass_store::value::Row;

static PLAIN_INSERT: Statement =
    Statement::new("item/plain", "", "INSERT INTO item (id, note) VALUES ($1, $2)");
static TOUCH: Statement =
    Statement::new("item/touch", "", "UPDATE item SET note = note || '+' WHERE id = $1");
static COUNT: Statement = Statement::new("item/count", "", "SELECT count(*) FROM item");
static SLEEP: Statement = Statement::new("sleep", "", "SELECT pg_sleep(60)");
static PID: Statement = Statement::new("pid", "", "SELECT pg_backend_pid()");

fn insert(tx: &mut dyn Tx, id: Uuid, note: &str) -> Result<Vec<Row>, Error> {
    tx.run(Call::one(&PLAIN_INSERT, item(id, note)))
}

fn one_connection() -> Options {
    Options { write_connections: 1, ..Options::default() }
}

#[test]
fn a_swallowed_statement_error_is_not_acknowledged() {
    let fixture = Fixture::new();
    let answer = fixture.runtime.block_on(fixture.store.write("swallow", |tx| {
        insert(tx, Uuid::now_v7(), "good")?;
        let _ = insert(tx, Uuid::now_v7(), "bad");
        let _ = insert(tx, Uuid::now_v7(), "good");
        Ok(())
    }));
    assert!(matches!(answer, Err(Error::Constraint { .. })), "{answer:?}");
    let answer = fixture.runtime.block_on(fixture.store.write("swallow", |tx| {
        insert(tx, Uuid::now_v7(), "good")?;
        let _ = tx.run_and_commit(vec![Call::one(&PLAIN_INSERT, item(Uuid::now_v7(), "bad"))]);
        Ok(())
    }));
    assert!(matches!(answer, Err(Error::Constraint { .. })), "{answer:?}");
    assert_eq!(fixture.count(), "0");
}

#[test]
fn an_error_of_the_body_undoes_its_work() {
    let fixture = Fixture::with(one_connection());
    let answer: Result<(), _> = fixture.runtime.block_on(fixture.store.write("undo", |tx| {
        insert(tx, Uuid::now_v7(), "good")?;
        Err(Error::Foreign("no".into()))
    }));
    assert!(matches!(answer, Err(Error::Foreign(_))), "{answer:?}");
    assert_eq!(fixture.count(), "0");
}

#[test]
fn a_deadlock_is_retried_and_both_commit() {
    let fixture = Fixture::new();
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let both = move |tx: &mut dyn Tx| {
        tx.run_and_commit(vec![Call::each(&INSERT, vec![], vec![item(a, "a"), item(b, "b")])])
            .map(drop)
    };
    fixture.runtime.block_on(fixture.store.write("make", both)).unwrap();
    let barrier = Arc::new(Barrier::new(2));
    let touch = |first: Uuid, second: Uuid| {
        let barrier = Arc::clone(&barrier);
        let mut tries = 0;
        fixture.store.write("touch", move |tx| {
            tries += 1;
            tx.run(Call::one(&TOUCH, vec![first.into()]))?;
            if tries == 1 {
                barrier.wait();
            }
            tx.run(Call::one(&TOUCH, vec![second.into()]))
        })
    };
    let (one, other) = fixture.runtime.block_on(async { tokio::join!(touch(a, b), touch(b, a)) });
    one.unwrap();
    other.unwrap();
    assert_eq!(
        fixture.database.sql("SELECT string_agg(note, ' ' ORDER BY note) FROM item"),
        "a++ b++"
    );
    assert!(fixture.postgres.stats().deadlock_retries >= 1);
}

/// Such as a process that was stopped, or a machine that is out of memory: it still has its locks.
#[test]
fn nobody_gives_up_on_the_lock_of_one_who_stands_still_in_a_transaction() {
    let fixture = Fixture::new();
    let id = Uuid::now_v7();
    fixture.database.sql(&format!("INSERT INTO item VALUES ('{id}', 'a')"));
    let touch = move |tx: &mut dyn Tx| tx.run(Call::one(&TOUCH, vec![id.into()])).map(drop);
    let (has, had) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let stands_still = fixture.store.write("still", move |tx| {
        touch(tx)?;
        has.send(()).unwrap();
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        touch(tx)
    });
    let waits = async {
        tokio::task::spawn_blocking(move || had.recv()).await.unwrap().unwrap();
        let touched = fixture.store.write("touch", touch).await;
        done.send(()).unwrap();
        touched
    };
    let (still, waited) = fixture.runtime.block_on(async { tokio::join!(stands_still, waits) });
    waited.unwrap();
    still.unwrap_err();
    assert_eq!(fixture.database.sql("SELECT note FROM item"), "a+");
}

#[test]
fn a_serialization_failure_is_retried() {
    let fixture = Fixture::new();
    let id = Uuid::now_v7();
    fixture.database.sql(&format!("INSERT INTO item VALUES ('{id}', 'a')"));
    let url = fixture.database.url();
    let mut tries = 0;
    let touched = fixture.store.write("touch", move |tx| {
        tries += 1;
        tx.script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        tx.run(Call::one(&COUNT, vec![]))?;
        if tries == 1 {
            crate::cluster::psql(&url, "UPDATE item SET note = note || '-'");
        }
        tx.run_and_commit(vec![Call::one(&TOUCH, vec![id.into()])])?;
        Ok(tries)
    });
    assert_eq!(fixture.runtime.block_on(touched).unwrap(), 2);
    assert_eq!(fixture.database.sql("SELECT note FROM item"), "a-+");
    assert_eq!(fixture.postgres.stats().serialization_retries, 1);
}

#[test]
fn a_unique_violation_is_not_retried() {
    let fixture = Fixture::new();
    let id = Uuid::now_v7();
    let tries = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&tries);
    let answer = fixture.runtime.block_on(fixture.store.write("twice", move |tx| {
        seen.fetch_add(1, Ordering::SeqCst);
        insert(tx, id, "one")?;
        insert(tx, id, "two")
    }));
    let Err(Error::Constraint { constraint, detail }) = answer else { panic!("{answer:?}") };
    assert_eq!(constraint, "item_pkey");
    assert!(detail.contains("already exists"), "{detail}");
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

#[test]
fn a_trigger_that_raises_is_a_constraint_with_its_words() {
    let fixture = Fixture::new();
    fixture.database.sql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'history is append-only'; END $$;
         CREATE TRIGGER no BEFORE INSERT ON item EXECUTE FUNCTION no()",
    );
    let answer = fixture
        .runtime
        .block_on(fixture.store.write("trigger", |tx| insert(tx, Uuid::now_v7(), "x")));
    let Err(Error::Constraint { detail, .. }) = answer else { panic!("{answer:?}") };
    assert!(detail.contains("history is append-only"), "{detail}");
}

#[test]
fn a_panic_in_a_body_undoes_it_and_the_lane_lives_on() {
    let fixture = Fixture::with(one_connection());
    let answer: Result<(), _> = fixture.runtime.block_on(fixture.store.write("explode", |tx| {
        insert(tx, Uuid::now_v7(), "x")?;
        panic!("boom");
    }));
    let Err(Error::Internal { operation, detail }) = answer else { panic!("{answer:?}") };
    assert_eq!((operation.as_str(), detail.as_str()), ("explode", "panic: boom"));
    let next = fixture.runtime.block_on(fixture.store.write("next", |tx| {
        let rows = tx.run(Call::one(&COUNT, vec![]))?;
        rows[0].int(0)
    }));
    assert_eq!(next.unwrap(), 0);
    let stats = fixture.postgres.stats();
    assert_eq!((stats.panics, stats.reconnects), (1, 0));
}

#[test]
fn a_statement_that_takes_too_long_is_cut_off_and_undone() {
    let statement_timeout = Duration::from_millis(200);
    let fixture = Fixture::with(Options { statement_timeout, ..Options::default() });
    let answer = fixture.runtime.block_on(fixture.store.write("slow", |tx| {
        insert(tx, Uuid::now_v7(), "x")?;
        tx.run(Call::one(&SLEEP, vec![]))
    }));
    assert!(matches!(answer, Err(Error::Timeout(_))), "{answer:?}");
    assert_eq!(fixture.count(), "0");
}

#[test]
fn a_silent_server_is_given_up_and_its_work_undone() {
    let answer_timeout = Duration::from_millis(300);
    let fixture = Fixture::with(Options { answer_timeout, ..one_connection() });
    let answer = fixture.runtime.block_on(fixture.store.write("silent", |tx| {
        insert(tx, Uuid::now_v7(), "x")?;
        tx.run(Call::one(&SLEEP, vec![]))
    }));
    assert!(matches!(answer, Err(Error::Timeout(_))), "{answer:?}");
    eventually("the abandoned statement ends", || {
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'
                        AND datname = current_database()";
        fixture.database.sql(sleeping) == "0"
    });
    assert_eq!(fixture.count(), "0");
}

#[test]
fn a_connection_lost_before_commit_is_unavailable_and_not_repeated() {
    let fixture = Fixture::new();
    let url = fixture.database.url();
    let mut tries = 0;
    let answer = fixture.runtime.block_on(fixture.store.write("lost", move |tx| {
        tries += 1;
        assert_eq!(tries, 1, "the body is not run again");
        insert(tx, Uuid::now_v7(), "x")?;
        let pid = tx.run(Call::one(&PID, vec![]))?[0].int(0)?;
        crate::cluster::psql(&url, &format!("SELECT pg_terminate_backend({pid}, 10000)"));
        insert(tx, Uuid::now_v7(), "y")
    }));
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert_eq!(fixture.count(), "0");
    let next =
        fixture.runtime.block_on(fixture.store.write("next", |tx| insert(tx, Uuid::now_v7(), "z")));
    next.unwrap();
}

#[test]
fn a_read_sees_one_snapshot_and_cannot_write() {
    let fixture = Fixture::new();
    let url = fixture.database.url();
    let counts = fixture.runtime.block_on(fixture.store.read("count", move |tx| {
        let before = tx.run(Call::one(&COUNT, vec![]))?[0].int(0)?;
        crate::cluster::psql(&url, "INSERT INTO item VALUES (gen_random_uuid(), 'x')");
        Ok((before, tx.run(Call::one(&COUNT, vec![]))?[0].int(0)?))
    }));
    assert_eq!(counts.unwrap(), (0, 0));
    let write =
        fixture.runtime.block_on(fixture.store.read("write", |tx| insert(tx, Uuid::now_v7(), "x")));
    assert!(write.is_err());
    assert_eq!(fixture.count(), "1");
}

#[test]
fn a_full_queue_is_busy_at_once() {
    let fixture = Fixture::with(Options { queue_limit: 1, ..one_connection() });
    let (release, held) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = fixture.store.clone();
    let holder = std::thread::spawn(move || {
        runtime.block_on(store.write("hold", move |_| {
            started.send(()).unwrap();
            held.recv().map_err(|_| Error::Foreign("released".into()))
        }))
    });
    running.recv().unwrap();
    fixture.runtime.block_on(async {
        let queued = fixture.store.write("queued", |_| Ok(()));
        let refused = fixture.store.write("refused", |_| Ok(()));
        tokio::pin!(queued);
        tokio::select! { biased;
            _ = &mut queued => panic!("it cannot run yet"),
            refused = refused => assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}"),
        }
        release.send(()).unwrap();
        queued.await.unwrap();
    });
    holder.join().unwrap().unwrap();
}

#[test]
fn statements_follow_the_schema_when_it_changes_under_them() {
    let fixture = Fixture::new();
    static ALL: Statement = Statement::new("item/all", "", "SELECT * FROM item");
    let width = |name| {
        let read = fixture.store.read(name, |tx| Ok(tx.run(Call::one(&ALL, vec![]))?[0].0.len()));
        fixture.runtime.block_on(read)
    };
    fixture.database.sql("INSERT INTO item VALUES (gen_random_uuid(), 'x')");
    for _ in 0..4 {
        assert_eq!(width("before").unwrap(), 2);
    }
    let migrated = fixture.store.write("migrate", |tx| {
        tx.script("ALTER TABLE item ADD COLUMN more text; CREATE TABLE other (id int)")
    });
    fixture.runtime.block_on(migrated).unwrap();
    for _ in 0..4 {
        assert_eq!(width("after").unwrap(), 3);
    }
    // Another program's migration is noticed by its effect: one call is told to try again.
    fixture.database.sql("ALTER TABLE item ADD COLUMN again text");
    eventually("both connections have noticed", || width("noticing").is_ok_and(|w| w == 4));
}

#[test]
fn closing_finishes_what_is_queued_and_refuses_what_comes_later() {
    let fixture = Fixture::with(one_connection());
    let jobs: Vec<_> = (0..20)
        .map(|_| {
            let (told, answer) = mpsc::channel();
            windlass_store::store::Database::submit(
                &*fixture.postgres,
                windlass_store::store::Job {
                    name: "queued",
                    lane: windlass_store::store::Lane::Write,
                    body: Box::new(|tx| insert(tx, Uuid::now_v7(), "x").map(drop)),
                    done: Box::new(move |result| told.send(result).unwrap()),
                },
            );
            answer
        })
        .collect();
    fixture.store.close();
    for answer in jobs {
        answer.try_recv().expect("answered before close returned").unwrap();
    }
    assert_eq!(fixture.count(), "20");
    let late = fixture.runtime.block_on(fixture.store.write("late", |_| Ok(())));
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
}
