//! The upstream's JSON, as the server can take it.
//!
//! Invariant: what was paid for is not thrown away for a character: NUL, which no database keeps
//! and the server refuses, becomes the replacement character. Nothing else is changed.

use serde_json::{Map, Value};

/// How JSON writes a NUL; it must not stand there as it is.
const NUL: &[u8] = b"\\u0000";

/// A JSON text of the upstream's.
pub fn json(text: &[u8]) -> Option<Value> {
    let value = serde_json::from_slice(text).ok()?;
    let has_nul = text.windows(NUL.len()).any(|part| part == NUL);
    Some(if has_nul { without_nul(value) } else { value })
}

/// Text without NUL.
pub fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn without_nul(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(&text)),
        Value::Array(items) => items.into_iter().map(without_nul).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (String, Value)| (plain(&name), without_nul(value));
            Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_nul_is_replaced_wherever_it_stands_and_nothing_else_is() {
        let text = br#"{"a\u0000":["x\u0000y",{"b":"\\u0000"}],"c":1.5,"d":"\u0001"}"#;
        let expected = json!({ "a\u{fffd}": ["x\u{fffd}y", { "b": "\\u0000" }], "c": 1.5,
            "d": "\u{1}" });
        assert_eq!(super::json(text), Some(expected));
        assert_eq!(super::json(b"{\"a\":"), None);
    }
}
