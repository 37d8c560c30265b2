//! Facts about the PostgreSQL adapter on a healthy server.

use crate::cluster::TestDatabase;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::time::Timestamp;
use windlass_store::error::Error;
use windlass_store::postgres::{self, Options, PostgresDatabase};
use windlass_store::statement::Statement;
use windlass_store::store::Store;
use windlass_store::tx::Call;
use windlass_store::value::Value;

/// An open store on an empty database with one table.
pub struct Fixture {
    pub store: Store,
    pub postgres: Arc<PostgresDatabase>,
    pub database: TestDatabase,
    pub runtime: tokio::runtime::Runtime,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(Options::default())
    }

    pub fn with(options: Options) -> Fixture {
        let database = TestDatabase::create();
        database.sql("CREATE TABLE item (id uuid PRIMARY KEY, note text CHECK (note <> 'bad'))");
        let postgres = postgres::open(&database.url(), options).unwrap();
        let store = Store::new(postgres.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Fixture { store, postgres, database, runtime }
    }

    pub fn count(&self) -> String {
        self.database.sql("SELECT count(*) FROM item")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.store.close();
    }
}

pub static INSERT: Statement = Statement::new(
    "item/insert",
    "",
    "INSERT INTO item (id, note) SELECT * FROM unnest($1::uuid[], $2::text[])
     ON CONFLICT (id) DO NOTHING RETURNING id",
);

pub fn item(id: Uuid, note: &str) -> Vec<Value> {
    vec![id.into(), note.into()]
}

#[test]
fn an_acknowledged_write_is_there() {
    let fixture = Fixture::new();
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let written = fixture.runtime.block_on(fixture.store.write("write", move |tx| {
        let rows = tx.run(Call::each(&INSERT, vec![], vec![item(a, "x"), item(b, "y")]))?;
        Ok(rows.len())
    }));
    assert_eq!(written.unwrap(), 2);
    let again = fixture.runtime.block_on(fixture.store.write("again", move |tx| {
        let calls = vec![Call::each(&INSERT, vec![], vec![item(a, "x")])];
        Ok(tx.run_and_commit(calls)?[0].len())
    }));
    assert_eq!(again.unwrap(), 0);
    assert_eq!(fixture.count(), "2");
}

#[test]
fn no_items_are_an_empty_array() {
    let fixture = Fixture::new();
    let written = fixture.runtime.block_on(fixture.store.write("none", |tx| {
        Ok(tx.run_and_commit(vec![Call::each(&INSERT, vec![], vec![])])?[0].len())
    }));
    assert_eq!(written.unwrap(), 0);
}

#[test]
fn a_refused_row_leaves_nothing_and_names_its_constraint() {
    let fixture = Fixture::new();
    let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
    let refused = fixture.runtime.block_on(fixture.store.write("refused", move |tx| {
        let good = Call::each(&INSERT, vec![], vec![item(a, "x")]);
        let bad = Call::each(&INSERT, vec![], vec![item(b, "bad")]);
        tx.run_and_commit(vec![good, bad]).map(drop)
    }));
    let Err(Error::Constraint { constraint, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(constraint, "item_note_check");
    assert_eq!(fixture.count(), "0");
}

#[test]
fn a_value_that_does_not_fit_is_refused_before_it_is_sent() {
    let fixture = Fixture::new();
    let refused = fixture.runtime.block_on(fixture.store.write("misfit", |tx| {
        let items = vec![vec!["not a uuid".into(), "x".into()]];
        tx.run_and_commit(vec![Call::each(&INSERT, vec![], items)]).map(drop)
    }));
    assert!(matches!(refused, Err(Error::Data(_))), "{refused:?}");
}

#[test]
fn a_transaction_has_one_time_and_it_is_the_servers() {
    let fixture = Fixture::new();
    let (first, second) = fixture
        .runtime
        .block_on(fixture.store.write("time", |tx| Ok((tx.now()?, tx.now()?))))
        .unwrap();
    assert_eq!(first, second);
    assert!(first > Timestamp::EPOCH);
}
