//! Reads a JSON text and refuses what the two databases would not both keep as it is.
//!
//! Invariant: what is accepted here passes [`check`](super::check).
//! Absent: a grammar of our own; serde_json reads, this looks over its shoulder.

use super::{JsonError, MAX_DEPTH, Problem, shown};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;

/// Reads one JSON value; the error says where and what to do.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    let text =
        std::str::from_utf8(text).map_err(|e| error_at(text, e.valid_up_to(), Problem::NotUtf8))?;
    let found = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let seed = Strict { depth: 0, found: &found };
    let value = seed
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|e| JsonError {
            line: e.line(),
            column: e.column(),
            problem: found.take().unwrap_or_else(|| explain(&e)),
        })?;
    refuse_large_integers(text.as_bytes())?;
    Ok(value)
}

fn error_at(text: &[u8], at: usize, problem: Problem) -> JsonError {
    let before = &text[..at];
    let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    JsonError {
        line: before.iter().filter(|&&b| b == b'\n').count() + 1,
        column: at - line_start + 1,
        problem,
    }
}

/// serde_json names its own findings only in words.
fn explain(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    let words = text.split(" at line ").next().unwrap_or_default();
    match words {
        "number out of range" => Problem::NumberTooLarge,
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            Problem::LoneSurrogate
        }
        other => Problem::Syntax(other.to_owned()),
    }
}

/// serde_json turns an integer beyond 64 bits into a float without a word, so the text of a value
/// that it accepted is looked through once more.
fn refuse_large_integers(text: &[u8]) -> Result<(), JsonError> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += 1;
                while text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = &text[at..];
                let is_part = |b: &u8| b.is_ascii_digit() || b"+-.eE".contains(b);
                let length = rest.iter().take_while(|b| is_part(b)).count();
                let literal = String::from_utf8_lossy(&rest[..length]);
                let is_integer = !literal.contains(['.', 'e', 'E']);
                if is_integer && literal.parse::<i64>().is_err() && literal.parse::<u64>().is_err()
                {
                    let problem = Problem::IntegerTooLarge(shown(&literal));
                    return Err(error_at(text, at, problem));
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// Builds a `Value` and refuses on the way. serde's errors are only words, so the finding itself
/// is left in `found`.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    found: &'a RefCell<Option<Problem>>,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(self, problem: Problem) -> E {
        self.found.replace(Some(problem));
        E::custom("refused")
    }

    fn text<E: serde::de::Error>(self, text: String) -> Result<String, E> {
        if text.contains('\0') { Err(self.refuse(Problem::Nul)) } else { Ok(text) }
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(Problem::TooDeep));
        }
        Ok(Strict { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // Adding 0.0 turns -0.0 into 0.0 and changes no other number.
        match Number::from_f64(value + 0.0) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(self.refuse(Problem::NumberTooLarge)),
        }
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.text(value).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let key = self.text::<A::Error>(key)?;
            if map.contains_key(&key) {
                return Err(self.refuse(Problem::DuplicateKey(shown(&key))));
            }
            let value = entries.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
