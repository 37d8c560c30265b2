//! Every type that crosses the seam comes back from PostgreSQL as it went.

use crate::postgres::Fixture;
use uuid::Uuid;
use windlass_domain::time::Timestamp;
use windlass_store::error::Error;
use windlass_store::statement::Statement;
use windlass_store::tx::Call;
use windlass_store::value::{Row, Value};

static ECHO_ITEMS: Statement = Statement::new(
    "echo/items",
    "",
    "SELECT u.* FROM unnest($1::uuid[], $2::text[], $3::varchar[], $4::mood[], $5::timestamptz[],
         $6::jsonb[], $7::json[], $8::int2[], $9::int4[], $10::int8[], $11::bool[], $12::xid8[],
         $13::short[])
         WITH ORDINALITY AS u(a, b, c, d, e, f, g, h, i, j, k, l, m, n)
     ORDER BY n",
);

static ECHO_ONE: Statement = Statement::new(
    "echo/one",
    "",
    "SELECT $1::uuid, $2::text, $3::varchar, $4::mood, $5::timestamptz, $6::jsonb, $7::json,
         $8::int2, $9::int4, $10::int8, $11::bool, $12::xid8, $13::short",
);

fn full(time: Timestamp) -> Vec<Value> {
    vec![
        Uuid::now_v7().into(),
        "größer than ' \" \\ , {} NULL".into(),
        "".into(),
        "happy".into(),
        time.into(),
        Value::Json(r#"{"a": [1, null]}"#.into()),
        Value::Json(r#"{"b":   "kept as it is"}"#.into()),
        Value::Int(i16::MIN.into()),
        Value::Int(i32::MAX.into()),
        Value::Int(i64::MIN),
        true.into(),
        Value::Int(i64::MAX),
        "short".into(),
    ]
}

fn types(fixture: &Fixture) {
    fixture.database.sql("CREATE TYPE mood AS ENUM ('happy', 'sad')");
    fixture.database.sql("CREATE DOMAIN short AS text CHECK (length(value) < 10)");
}

#[test]
fn values_of_every_type_and_null_come_back_alone_and_in_arrays() {
    let fixture = Fixture::new();
    types(&fixture);
    let items = vec![
        full(Timestamp::EPOCH),
        vec![Value::Null; 13],
        full(Timestamp::from_ms(946_684_799_999)),
    ];
    let sent = items.clone();
    let (many, singles) = fixture
        .runtime
        .block_on(fixture.store.write("echo", move |tx| {
            let many = tx.run(Call::each(&ECHO_ITEMS, vec![], sent.clone()))?;
            let mut singles = Vec::new();
            for item in &sent {
                singles.extend(tx.run(Call::one(&ECHO_ONE, item.clone()))?);
            }
            Ok((many, singles))
        }))
        .unwrap();
    let without_ordinal: Vec<Row> = many.into_iter().map(|row| Row(row.0[..13].to_vec())).collect();
    let expected: Vec<Row> = items.into_iter().map(Row).collect();
    assert_eq!(without_ordinal, expected);
    assert_eq!(singles, expected);
}

static LISTS: Statement = Statement::new(
    "echo/lists",
    "",
    "SELECT $1::text[], $2::uuid[], $3::mood[], 'sad' = ANY ($3), count(*), sum(x::int8),
         pg_notify('nobody', '')
     FROM (VALUES (4000000000000000000), (5000000000000000000)) v(x)",
);

#[test]
fn lists_and_sums_come_back() {
    let fixture = Fixture::new();
    types(&fixture);
    let ids = vec![Uuid::now_v7(), Uuid::now_v7()];
    let texts = vec!["a,b".to_owned(), String::new()];
    let moods = vec!["happy".to_owned()];
    let sent = vec![texts.clone().into(), ids.clone().into(), moods.clone().into()];
    let rows = fixture
        .runtime
        .block_on(fixture.store.write("lists", move |tx| tx.run(Call::one(&LISTS, sent.clone()))))
        .unwrap();
    let expected = vec![
        Value::TextList(texts),
        Value::UuidList(ids),
        Value::TextList(moods),
        Value::Bool(false),
        Value::Int(2),
        Value::Int(9_000_000_000_000_000_000),
        Value::Null,
    ];
    assert_eq!(rows, vec![Row(expected)]);
}

#[test]
fn what_does_not_fit_is_data_that_cannot_be_stored() {
    let fixture = Fixture::new();
    types(&fixture);
    let misfits = [
        (0, Value::Text("x".into())),
        (1, Value::Text("nul\0".into())),
        (3, Value::Text("furious".into())),
        (4, Value::Int(0)),
        (5, Value::Json("{".into())),
        (7, Value::Int(40_000)),
        (8, Value::Int(1 << 31)),
        (9, Value::Bool(true)),
        (11, Value::Int(-1)),
        (12, Value::TextList(vec![])),
    ];
    for (position, value) in misfits {
        let shown = format!("{value:?}");
        let mut item = full(Timestamp::EPOCH);
        item[position] = value;
        let refused = fixture.runtime.block_on(fixture.store.write("misfit", move |tx| {
            tx.run(Call::each(&ECHO_ITEMS, vec![], vec![item.clone()])).map(drop)
        }));
        assert!(matches!(refused, Err(Error::Data(_))), "{shown}: {refused:?}");
    }
}
