//! Statements inside a transaction.

use crate::sqlite::{INSERT, KEYS, empty, insert, sql, texts, with_table};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use uuid::Uuid;
use windlass_domain::time::Timestamp;
use windlass_store::clock::Clock;
use windlass_store::error::Error;
use windlass_store::sqlite::Options;
use windlass_store::statement::Statement;
use windlass_store::store::Lane;
use windlass_store::tx::Call;
use windlass_store::value::{Row, Value};

fn items(keys: &[&str]) -> Vec<Vec<Value>> {
    keys.iter().map(|&key| vec![key.into(), Value::Null]).collect()
}

#[test]
fn parameters_are_bound_by_name_not_by_place() {
    static SWAPPED: Statement = sql("SELECT $2, $1, $2, $4");
    let store = empty(Options::default());
    let rows = store.read(|tx| {
        let values = vec![1.into(), 2.into(), 3.into(), 4.into()];
        tx.run(Call::one(&SWAPPED, values))
    });
    let wanted = [2, 1, 2, 4].map(Value::Int).to_vec();
    assert_eq!(rows.unwrap(), [Row(wanted)]);
}

#[test]
fn a_parameter_without_a_value_is_a_defect() {
    static TWO: Statement = sql("SELECT $1, $2");
    static OTHER: Statement = sql("SELECT ?");
    let store = empty(Options::default());
    for statement in [&TWO, &OTHER] {
        let rows = store.read(|tx| tx.run(Call::one(statement, vec![1.into()])));
        assert!(matches!(rows, Err(Error::Internal { .. })), "{rows:?}");
    }
}

#[test]
fn values_are_stored_as_integers_and_texts() {
    static KINDS: Statement = sql(
        "SELECT typeof($1), $2, $3, $4, $5, $6, (SELECT group_concat(value) FROM json_each($7)),
         (SELECT value FROM json_each($8))",
    );
    let store = empty(Options::default());
    let id = Uuid::from_u128(7);
    let row = store.read(move |tx| {
        let values = vec![
            Value::Null,
            true.into(),
            id.into(),
            Timestamp::from_ms(5).into(),
            Value::Json("{}".into()),
            "a\0b".into(),
            vec!["x\"".to_owned(), "y".to_owned()].into(),
            vec![id].into(),
        ];
        tx.run(Call::one(&KINDS, values)).map(|mut rows| rows.remove(0))
    });
    let row = row.unwrap();
    assert_eq!(row.text(0).unwrap(), "null");
    assert!(row.bool(1).unwrap());
    assert_eq!(row.uuid(2).unwrap(), id);
    assert_eq!(row.0[2], Value::Text(id.to_string()));
    assert_eq!(row.time(3).unwrap(), Timestamp::from_ms(5));
    assert_eq!(row.text(4).unwrap(), "{}");
    assert_eq!(row.text(5).unwrap(), "a\0b");
    assert_eq!(row.text(6).unwrap(), "x\",y");
    assert_eq!(row.uuid(7).unwrap(), id);
}

#[test]
fn a_cell_that_is_neither_integer_nor_text_is_corrupt() {
    static REAL: Statement = sql("SELECT 1.5");
    static BLOB: Statement = sql("SELECT x'00'");
    let store = empty(Options::default());
    for statement in [&REAL, &BLOB] {
        let rows = store.read(|tx| tx.run(Call::one(statement, vec![])));
        assert!(matches!(rows, Err(Error::Corrupt(_))), "{rows:?}");
    }
}

#[test]
fn a_transaction_has_one_time() {
    static NOW: Statement = sql("SELECT :now");
    let ms = Arc::new(AtomicI64::new(1_000));
    let store = empty(Options { clock: Clock::Fixed(Arc::clone(&ms)), ..Options::default() });
    let ticking = Arc::clone(&ms);
    let times = store.write(move |tx| {
        let first = tx.now()?;
        ticking.store(2_000, Ordering::SeqCst);
        let bound = tx.run(Call::one(&NOW, vec![]))?[0].time(0)?;
        Ok([first, tx.now()?, bound, tx.fixed_now().unwrap()])
    });
    assert_eq!(times.unwrap(), [Timestamp::from_ms(1_000); 4]);
    let later = store.read(|tx| tx.now()).unwrap();
    assert_eq!(later, Timestamp::from_ms(2_000));
}

#[test]
fn a_call_over_items_returns_rows_in_order_and_stops_when_told() {
    static PICK: Statement = sql("SELECT $1 || $2 WHERE $2 <> 'none'");
    let store = empty(Options::default());
    let picked = |stop_when_empty| {
        store.read(move |tx| {
            let list = ["b", "none", "a"].map(|item| vec![item.into()]).to_vec();
            let mut call = Call::each(&PICK, vec!["-".into()], list);
            call.stop_when_empty = stop_when_empty;
            tx.run(call)
        })
    };
    assert_eq!(texts(&picked(false).unwrap()), ["-b", "-a"]);
    assert_eq!(texts(&picked(true).unwrap()), ["-b"]);
    let none = store.read(|tx| tx.run(Call::each(&PICK, vec!["-".into()], vec![])));
    assert!(none.unwrap().is_empty());
}

#[test]
fn a_job_whose_call_failed_at_an_item_is_undone_even_if_its_body_goes_on() {
    let store = with_table(Options::default());
    let result = store.write(|tx| {
        insert(tx, "before")?;
        let failed = tx.run(Call::each(&INSERT, vec![], items(&["a", "b", "a"])));
        assert!(matches!(failed, Err(Error::Constraint { .. })), "{failed:?}");
        insert(tx, "after")
    });
    assert!(matches!(result, Err(Error::Constraint { .. })), "{result:?}");
    assert!(store.keys().is_empty());
    let alone = store.write(|tx| {
        let _ = tx.run(Call::each(&INSERT, vec![], items(&["a"])))?;
        assert!(tx.run(Call::each(&INSERT, vec![], items(&["a"]))).is_err());
        Ok(())
    });
    assert!(alone.is_ok(), "one item is undone by itself");
    assert_eq!(store.keys(), ["a"]);
}

#[test]
fn a_refused_row_names_its_constraint() {
    let store = with_table(Options::default());
    let named = |values: [&str; 2]| {
        let values: Vec<Value> = values.map(Value::from).to_vec();
        let result = store.write(move |tx| tx.run(Call::one(&INSERT, values.clone())));
        match result {
            Err(Error::Constraint { constraint, .. }) => constraint,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(["a", "bad"]), "item_note");
    store.write(|tx| insert(tx, "a")).unwrap();
    assert_eq!(named(["a", "good"]), "item.key");
}

#[test]
fn a_statement_without_returning_tells_which_items_changed_a_row() {
    static NEW: Statement = sql("INSERT INTO item (key, note) SELECT $1, $2
         WHERE NOT EXISTS (SELECT 1 FROM item WHERE key = $1)");
    let store = with_table(Options::default());
    store.write(|tx| insert(tx, "b")).unwrap();
    let rows = store.write(|tx| tx.run(Call::each(&NEW, vec![], items(&["a", "b", "c"]))));
    assert_eq!(rows.unwrap(), [0, 2].map(|index| Row(vec![Value::Int(index)])));
}

#[test]
fn run_and_commit_must_come_last() {
    let store = with_table(Options::default());
    let rows = store.write(|tx| {
        let calls = vec![Call::each(&INSERT, vec![], items(&["a"])), Call::one(&KEYS, vec![])];
        let rows = tx.run_and_commit(calls)?;
        assert!(matches!(insert(tx, "b"), Err(Error::Internal { .. })));
        Ok(rows)
    });
    let rows = rows.unwrap();
    assert_eq!(rows[0], [Row(vec![Value::Int(0)])]);
    assert_eq!(texts(&rows[1]), ["a"]);
    assert_eq!(store.keys(), ["a"]);
}

#[test]
fn a_write_in_a_read_transaction_is_refused() {
    let store = with_table(Options::default());
    let refused = store.read(|tx| insert(tx, "a")).unwrap_err().to_string();
    assert!(refused.contains("writes, in a read transaction"), "{refused}");
    let refused = store.read(|tx| tx.script("DELETE FROM item")).unwrap_err();
    assert!(matches!(refused, Error::Internal { .. }));
}

#[test]
fn a_read_sees_no_group_that_is_not_committed() {
    let store = with_table(Options::default());
    let (release, gate) = channel::<()>();
    let (entered, inside) = channel();
    let answer = store.submit(Lane::Write, move |tx| {
        insert(tx, "a")?;
        entered.send(()).unwrap();
        let _ = gate.recv();
        Ok(())
    });
    inside.recv().unwrap();
    assert!(store.keys().is_empty());
    release.send(()).unwrap();
    answer.recv().unwrap().unwrap();
    assert_eq!(store.keys(), ["a"]);
}

#[test]
fn a_statement_survives_a_change_of_the_schema() {
    static ALL: Statement = sql("SELECT * FROM item");
    let store = with_table(Options::default());
    store.write(|tx| insert(tx, "a")).unwrap();
    let width = || store.read(|tx| tx.run(Call::one(&ALL, vec![]))).unwrap()[0].0.len();
    assert_eq!(width(), 2);
    let add = "ALTER TABLE item ADD COLUMN more INTEGER; PRAGMA user_version = 3;";
    store.write(move |tx| tx.script(add)).unwrap();
    assert_eq!(width(), 3);
    static VERSION: Statement = sql("PRAGMA user_version");
    let version = store.read(|tx| tx.run(Call::one(&VERSION, vec![])));
    assert_eq!(version.unwrap()[0].int(0).unwrap(), 3);
}
