//! What the JSON contract promises.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn problem(text: &str) -> Problem {
    parse(text.as_bytes()).unwrap_err().problem
}

/// What PostgreSQL 12 to 18 makes of a text: keys by length and then bytewise, spaces after `:`
/// and `,`, and numbers as `numeric` prints them, which keeps the digits of a plain decimal.
fn as_jsonb(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(as_jsonb).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| (key.len(), key.as_bytes().to_vec()));
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, item)| format!("{}: {}", canonical(&json!(key)), as_jsonb(item)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        scalar => canonical(scalar),
    }
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // From bits, so that every exponent is as likely as any other.
        any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        (-1_000_000i64..1_000_000).prop_map(|n| Value::from(n as f64 / 100.0)),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>().prop_filter("no NUL", |&c| c != '\0'), 0..12)
        .prop_map(|chars| chars.into_iter().collect())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any_number(),
        any_text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(any_text(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_comes_back_equal_from_both_databases(value in any_value()) {
        let text = canonical(&value);
        let from_sqlite: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&from_sqlite, &value);
        let from_postgres: Value = serde_json::from_str(&as_jsonb(&value)).unwrap();
        prop_assert_eq!(&from_postgres, &value);
        prop_assert_eq!(canonical(&from_postgres), text);
    }

    #[test]
    fn the_canonical_text_of_a_value_is_accepted(value in any_value()) {
        prop_assert_eq!(check(&value), Ok(()));
        prop_assert_eq!(parse(canonical(&value).as_bytes()), Ok(value));
    }

    #[test]
    fn equal_content_is_an_equal_canonical_text(a in any_value(), b in any_value()) {
        prop_assert_eq!(equal_content(&a, &b), canonical(&a) == canonical(&b));
        prop_assert!(equal_content(&a, &a.clone()));
    }

    #[test]
    fn every_float_is_written_so_that_it_reads_back_the_same(bits in any::<u64>()) {
        let float = f64::from_bits(bits);
        prop_assume!(float.is_finite());
        let text = canonical(&json!(float));
        prop_assert!(text.contains('.') && !text.contains(['e', 'E']), "{}", text);
        let back: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(back.as_f64(), Some(float));
        prop_assert!(back.is_f64());
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&text);
    }
}

#[test]
fn floats_are_plain_decimals_with_a_fraction() {
    for (float, text) in [
        (1.0, "1.0"),
        (1e16, "10000000000000000.0"),
        (1.5e-7, "0.00000015"),
        (-0.0, "0.0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-2.5, "-2.5"),
    ] {
        assert_eq!(canonical(&json!(float)), text);
    }
    let long = canonical(&json!(1e300));
    assert_eq!(long.len(), 303);
    assert!(long.ends_with("0.0"));
}

#[test]
fn integers_are_written_as_they_are() {
    for text in ["0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615"] {
        assert_eq!(canonical(&parse(text.as_bytes()).unwrap()), text);
    }
}

#[test]
fn keys_are_sorted_bytewise_and_nothing_is_spaced() {
    let value = parse(br#" { "b" : [ 1 , true , null ], "a" : "x\u0001\n", "B" : {} } "#).unwrap();
    assert_eq!(canonical(&value), r#"{"B":{},"a":"x\u0001\n","b":[1,true,null]}"#);
}

#[test]
fn the_digest_is_that_of_the_canonical_text() {
    // printf '{"a":1}' | sha256sum
    assert_eq!(
        digest(&json!({"a": 1})),
        "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    );
}

#[test]
fn a_text_that_a_database_would_not_keep_is_refused() {
    assert_eq!(problem(r#"{"a":1,"a":2}"#), Problem::DuplicateKey("a".into()));
    assert_eq!(problem(r#"{"a":1,"\u0061":2}"#), Problem::DuplicateKey("a".into()));
    assert_eq!(problem(r#"["\u0000"]"#), Problem::Nul);
    assert_eq!(problem(r#"{"\u0000":1}"#), Problem::Nul);
    for lone in [r#""\ud800""#, r#""\udc00""#, r#""\ud800x""#, r#""\ud800\u0041""#] {
        assert_eq!(problem(lone), Problem::LoneSurrogate, "{lone}");
    }
    assert_eq!(problem("1e400"), Problem::NumberTooLarge);
    assert_eq!(problem("[-1e400]"), Problem::NumberTooLarge);
    for integer in ["18446744073709551616", "-9223372036854775809"] {
        assert_eq!(problem(integer), Problem::IntegerTooLarge(integer.into()));
    }
    assert_eq!(parse(b"\"\xff\"").unwrap_err().problem, Problem::NotUtf8);
    for broken in ["", "{", "[1,]", "nul", "1 2", "{} x", "'a'", "\u{feff}1", "NaN", "\"\n\""] {
        assert!(matches!(problem(broken), Problem::Syntax(_)), "{broken}");
    }
}

#[test]
fn a_large_number_that_loses_nothing_is_accepted() {
    assert_eq!(parse(b"1.8446744073709551616e19").unwrap(), json!(18446744073709551616.0));
    assert_eq!(parse(br#""18446744073709551616""#).unwrap(), json!("18446744073709551616"));
    assert_eq!(
        parse(br#"{"a\"9":"\\","99999999999999999999x":1}"#).unwrap().as_object().unwrap().len(),
        2
    );
    assert_eq!(parse(b"-0").unwrap(), json!(0.0));
}

#[test]
fn nesting_is_accepted_up_to_the_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = parse(nested(MAX_DEPTH).as_bytes()).unwrap();
    assert_eq!(check(&deepest), Ok(()));
    assert_eq!(problem(&nested(MAX_DEPTH + 1)), Problem::TooDeep);
    assert_eq!(problem(&nested(100_000)), Problem::TooDeep);
    let deeper = json!({ "a": deepest });
    let refused = check(&deeper).unwrap_err();
    assert_eq!(refused.problem, Problem::TooDeep);
    assert_eq!(refused.pointer, format!("/a{}", "/0".repeat(MAX_DEPTH - 1)));
}

#[test]
fn a_value_with_nul_is_refused_where_it_stands() {
    let refused = check(&json!({"a/b": [1, "x\0"]})).unwrap_err();
    assert_eq!((refused.pointer.as_str(), refused.problem), ("/a~1b/1", Problem::Nul));
    assert_eq!(check(&json!({"\0": 1})).unwrap_err().problem, Problem::Nul);
}

#[test]
fn a_refusal_says_where() {
    let refused = parse(b"{\n  \"a\": 1,\n  \"n\": 99999999999999999999\n}").unwrap_err();
    assert_eq!((refused.line, refused.column), (3, 8));
    let refused = parse(b"[1,\n \"\xc3\"]").unwrap_err();
    assert_eq!((refused.line, refused.column), (2, 3));
    let refused = parse(b"{\n\"a\":1,\n\"a\":2}").unwrap_err();
    assert_eq!(refused.line, 3);
    let words = refused.to_string();
    assert!(words.contains("occurs twice") && words.contains("send it once"), "{words}");
}

#[test]
fn writing_stops_at_the_limit() {
    let value = json!([1e300, 1e300]);
    let text = canonical(&value);
    assert_eq!(canonical_within(&value, text.len()), Ok(text.clone()));
    assert_eq!(canonical_within(&value, text.len() - 1), Err(TooLong { limit: text.len() - 1 }));
    let many = Value::Array(vec![json!(1e300); 100_000]);
    assert_eq!(canonical_within(&many, 1_000), Err(TooLong { limit: 1_000 }));
}
