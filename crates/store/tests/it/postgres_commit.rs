//! COMMIT whose answer is in doubt, on a primary whose synchronous standby hangs.

use crate::cluster::{Cluster, ClusterOptions, eventually};
use crate::postgres::{INSERT, item};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uuid::Uuid;
use windlass_store::error::{Error, Result};
use windlass_store::postgres::{self, Options, PostgresDatabase};
use windlass_store::statement::Statement;
use windlass_store::store::Store;
use windlass_store::tx::{Call, Tx};

static FIND: Statement = Statement::new("item/find", "", "SELECT note FROM item WHERE id = $1");

struct Pair {
    // Dropped first: the store says goodbye to a server that still answers.
    store: Store,
    postgres: Arc<PostgresDatabase>,
    standby: Cluster,
    primary: Cluster,
}

impl Pair {
    fn start(options: Options) -> Pair {
        let primary = Cluster::start(ClusterOptions::default());
        primary.sql("CREATE TABLE item (id uuid PRIMARY KEY, note text)");
        let standby = primary.standby();
        let postgres = postgres::open(&primary.url(), options).unwrap();
        Pair { store: Store::new(postgres.clone()), postgres, standby, primary }
    }

    /// Starts a write on another thread and waits until its COMMIT waits for the standby.
    fn write_in_doubt(&self, body: Body) -> JoinHandle<Result<String>> {
        self.standby.pause();
        let store = self.store.clone();
        let write = std::thread::spawn(move || write(&store, Uuid::now_v7(), body));
        eventually("the commit waits for the standby", || !self.waiting().is_empty());
        write
    }

    fn write(&self, id: Uuid, body: Body) -> Result<String> {
        write(&self.store, id, body)
    }

    /// The backends whose COMMIT waits for the standby.
    fn waiting(&self) -> String {
        self.primary.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    }

    fn doubted(&self) {
        eventually("the commit is in doubt", || self.postgres.stats().ambiguous_commits > 0);
    }
}

type Body = fn(&mut dyn Tx, Uuid) -> Result<String>;

fn write(store: &Store, id: Uuid, body: Body) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.write("doubtful", move |tx| body(tx, id)))
}

/// Writes the row unless it is there, as repositories do, then says what it finds.
fn in_steps(tx: &mut dyn Tx, id: Uuid) -> Result<String> {
    let made = tx.run(Call::each(&INSERT, vec![], vec![item(id, "x")]))?;
    let found = tx.run(Call::one(&FIND, vec![id.into()]))?;
    let how = if made.is_empty() { "found" } else { "made" };
    Ok(format!("{how} {}", found[0].text(0)?))
}

/// The same as a hot statement.
fn at_once(tx: &mut dyn Tx, id: Uuid) -> Result<String> {
    let calls = vec![Call::each(&INSERT, vec![], vec![item(id, "x")])];
    let rows = tx.run_and_commit(calls)?;
    Ok(if rows[0].is_empty() { "found x".into() } else { "made x".into() })
}

const PATIENT: Duration = Duration::from_secs(60);

#[test]
fn a_commit_that_no_standby_confirms_has_an_unknown_outcome() {
    let pair = Pair::start(Options {
        write_connections: 1,
        answer_timeout: Duration::from_millis(300),
        unavailable_after: Duration::from_secs(1),
        ..Options::default()
    });
    for body in [in_steps as Body, at_once] {
        let write = pair.write_in_doubt(body);
        let answer = write.join().unwrap();
        assert!(matches!(answer, Err(Error::OutcomeUnknown(_))), "{answer:?}");
        // Later jobs are not let into the same trap, and no backends pile up in it.
        for _ in 0..2 {
            let next = pair.write(Uuid::now_v7(), body);
            assert!(matches!(next, Err(Error::Unavailable(_))), "{next:?}");
        }
        assert_eq!(pair.waiting().lines().count(), 1);
        pair.standby.resume();
        eventually("the lane works again", || pair.write(Uuid::nil(), body).is_ok());
    }
    assert_eq!(pair.primary.sql("SELECT count(*) FROM item"), "3");
    assert_eq!(pair.postgres.stats().reconnects, 0);
}

#[test]
fn a_duplicate_of_a_commit_in_doubt_is_not_acknowledged_either() {
    let pair = Pair::start(Options {
        answer_timeout: Duration::from_secs(2),
        lock_timeout: Duration::from_millis(500),
        unavailable_after: Duration::from_secs(1),
        ..Options::default()
    });
    pair.standby.pause();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let writes: Vec<_> =
            (0..3).map(|_| scope.spawn(|| pair.write(Uuid::nil(), at_once))).collect();
        writes.into_iter().map(|write| write.join().unwrap()).collect()
    });
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    pair.standby.resume();
    eventually("the lanes work again", || pair.write(Uuid::nil(), at_once).is_ok());
    assert_eq!(pair.primary.sql("SELECT count(*) FROM item"), "1");
}

#[test]
fn a_commit_in_doubt_is_looked_up_when_the_standby_comes_back() {
    let pair = Pair::start(Options {
        answer_timeout: Duration::from_millis(300),
        unavailable_after: PATIENT,
        ..Options::default()
    });
    assert!(pair.postgres.durability().synchronous_standby);
    let write = pair.write_in_doubt(in_steps);
    pair.doubted();
    pair.standby.resume();
    assert_eq!(write.join().unwrap().unwrap(), "found x");
    assert_eq!(pair.primary.sql("SELECT count(*) FROM item"), "1");
}

#[test]
fn a_cancelled_wait_for_the_standby_is_not_acknowledged() {
    let pair = Pair::start(Options { unavailable_after: PATIENT, ..Options::default() });
    for body in [in_steps as Body, at_once] {
        let before = pair.postgres.stats();
        let write = pair.write_in_doubt(body);
        pair.primary.sql(&format!("SELECT pg_cancel_backend({})", pair.waiting()));
        eventually("the warning is heard", || pair.postgres.stats().warnings > before.warnings);
        assert!(!write.is_finished(), "nobody has confirmed it yet");
        pair.standby.resume();
        assert_eq!(write.join().unwrap().unwrap(), "found x");
    }
    assert_eq!(pair.primary.sql("SELECT count(*) FROM item"), "2");
    assert_eq!(pair.postgres.stats().ambiguous_commits, 2);
}

#[test]
fn a_connection_lost_at_commit_is_looked_up() {
    let pair = Pair::start(Options { unavailable_after: PATIENT, ..Options::default() });
    for body in [in_steps as Body, at_once] {
        let write = pair.write_in_doubt(body);
        pair.primary.sql(&format!("SELECT pg_terminate_backend({})", pair.waiting()));
        pair.doubted();
        assert!(!write.is_finished(), "nobody has confirmed it yet");
        pair.standby.resume();
        assert_eq!(write.join().unwrap().unwrap(), "found x");
    }
    assert_eq!(pair.primary.sql("SELECT count(*) FROM item"), "2");
}

#[test]
fn a_warning_at_commit_is_settled_without_special_rights() {
    let cluster = Cluster::start(ClusterOptions::default());
    cluster.sql(
        "CREATE ROLE plain LOGIN;
         CREATE TABLE item (id uuid PRIMARY KEY, note text);
         GRANT ALL ON item TO plain;
         CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE WARNING 'careful'; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON item DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION warn()",
    );
    let url = cluster.url().replace("windlass@", "plain@");
    let postgres = postgres::open(&url, Options::default()).unwrap();
    let store = Store::new(postgres.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for body in [in_steps as Body, at_once] {
        let id = Uuid::now_v7();
        let answer = runtime.block_on(store.write("warned", move |tx| body(tx, id)));
        assert_eq!(answer.unwrap(), "found x");
    }
    let stats = postgres.stats();
    assert_eq!((stats.warnings, stats.ambiguous_commits, stats.reconnects), (2, 2, 0));
}
