//! The one JSON contract for both databases.
//!
//! Invariant: what [`parse`] accepts (or [`check`] approves) and [`canonical`] writes comes back
//! equal from SQLite, which keeps the text, and from PostgreSQL, whose jsonb reorders the keys and
//! writes the numbers anew. What one of the two could not keep is refused here.
//!
//! Absent: sizes. They differ from field to field, so `validate` has them.

mod read;

pub use read::parse;
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Arrays and objects may be nested this deep.
pub const MAX_DEPTH: usize = 64;

/// What is wrong with a JSON text or value, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is not JSON.
    #[error("{0}; send one complete JSON value")]
    Syntax(String),
    /// The bytes are not UTF-8.
    #[error("the bytes are not UTF-8; encode the text as UTF-8")]
    NotUtf8,
    /// Half of a surrogate pair stands alone.
    #[error(
        "an escape such as \\ud800 stands without its other half; send both halves or leave it out"
    )]
    LoneSurrogate,
    /// A key occurs twice in one object.
    #[error("the key `{0}` occurs twice in one object; send it once")]
    DuplicateKey(String),
    /// A string or a key holds the NUL character.
    #[error("a string holds the NUL character (\\u0000), which no database keeps; leave it out")]
    Nul,
    /// The nesting is too deep.
    #[error("arrays and objects are nested more than {MAX_DEPTH} deep; flatten the value")]
    TooDeep,
    /// An integer has more digits than can be kept.
    #[error(
        "the integer {0} does not fit 64 bits and would lose digits; send a smaller one, or a \
         string where any value may stand, as in a payload"
    )]
    IntegerTooLarge(String),
    /// A number is too large to be kept.
    #[error(
        "a number is too large for a 64-bit float; send a smaller one, or a string where any value \
         may stand, as in a payload"
    )]
    NumberTooLarge,
}

/// A text that is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct JsonError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in bytes.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

impl JsonError {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        "invalid_json"
    }
}

/// A value that is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {problem}")]
pub struct ValueError {
    /// A JSON pointer into the value; empty for the value itself.
    pub pointer: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// The canonical text would be longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value takes more than {limit} bytes as canonical JSON")]
pub struct TooLong {
    /// The most bytes allowed.
    pub limit: usize,
}

/// Approves a value that was built in memory and not read by [`parse`].
pub fn check(value: &Value) -> Result<(), ValueError> {
    check_at(value, 0, &mut Vec::new())
}

/// The one text of a value: keys sorted bytewise, no spaces, floats in plain decimals.
///
/// A float always has a fractional part and never an exponent. jsonb would print `1e16` as an
/// integer, and the value read back would be of another type.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    // A limit that no text in memory can pass, so the result is always there.
    let written = write(value, &mut out, usize::MAX);
    debug_assert!(written.is_ok());
    out
}

/// The canonical text, unless it is longer than `limit` bytes.
///
/// It stops at the limit instead of measuring afterwards: five bytes such as `1e300` become 303,
/// so a small hostile text would fill the memory.
pub fn canonical_within(value: &Value, limit: usize) -> Result<String, TooLong> {
    let mut out = String::new();
    write(value, &mut out, limit)?;
    Ok(out)
}

/// Hex SHA-256 of the canonical text: equal values have equal digests.
pub fn digest(value: &Value) -> String {
    digest_of(&canonical(value))
}

/// Hex SHA-256 of a text that is canonical already.
pub fn digest_of(canonical: &str) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    let hash = Sha256::digest(canonical.as_bytes());
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Whether two values have the same canonical text, without writing it.
pub fn equal_content(a: &Value, b: &Value) -> bool {
    // `Value` compares floats as numbers, so that -0.0 equals 0.0 as it does in the text, and it
    // keeps 1 apart from 1.0 as the text does.
    a == b
}

fn write(value: &Value, out: &mut String, limit: usize) -> Result<(), TooLong> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out, limit)?;
            }
            out.push(']');
        }
        Value::Object(map) => {
            // Sorted here, because another crate of the build may switch `preserve_order` on.
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(item, out, limit)?;
            }
            out.push('}');
        }
    }
    if out.len() > limit { Err(TooLong { limit }) } else { Ok(()) }
}

fn write_number(number: &Number, out: &mut String) {
    match number.as_f64().filter(|_| number.is_f64()) {
        None => {
            let _ = write!(out, "{number}");
        }
        // Both zeros are one: jsonb keeps no sign of a zero.
        Some(0.0) => out.push_str("0.0"),
        Some(float) => {
            let start = out.len();
            // `Display` gives the shortest digits that read back equal, never an exponent.
            let _ = write!(out, "{float}");
            if !out[start..].contains('.') {
                out.push_str(".0");
            }
        }
    }
}

/// Appends a string. What must be escaped is rare: whatever lies between goes in one piece.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut clean = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[clean..i]);
        clean = i + 1;
        match escaped {
            "" => drop(write!(out, "\\u{byte:04x}")),
            escaped => out.push_str(escaped),
        }
    }
    out.push_str(&text[clean..]);
    out.push('"');
}

/// A place on the way into a value; it becomes text only in a refusal.
#[derive(Clone, Copy)]
enum Step<'v> {
    Index(usize),
    Key(&'v str),
}

fn check_at<'v>(
    value: &'v Value,
    depth: usize,
    path: &mut Vec<Step<'v>>,
) -> Result<(), ValueError> {
    let refuse = |path: &[Step<'_>], problem| {
        let text = |step: &Step<'_>| match step {
            Step::Index(index) => format!("/{index}"),
            Step::Key(key) => segment(key),
        };
        Err(ValueError { pointer: path.iter().map(text).collect(), problem })
    };
    match value {
        Value::String(text) if text.contains('\0') => refuse(path, Problem::Nul),
        Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => refuse(path, Problem::TooDeep),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                path.push(Step::Index(i));
                check_at(item, depth + 1, path)?;
                path.pop();
            }
            Ok(())
        }
        Value::Object(map) => {
            for (key, item) in map {
                if key.contains('\0') {
                    return refuse(path, Problem::Nul);
                }
                path.push(Step::Key(key));
                check_at(item, depth + 1, path)?;
                path.pop();
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A key as one segment of a JSON pointer, cut so that a hostile key cannot fill an error.
pub fn segment(key: &str) -> String {
    format!("/{}", shown(key).replace('~', "~0").replace('/', "~1"))
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
