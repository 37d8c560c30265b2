//! Arguments in people's units: spans such as `10s`, times, tags, and payloads.

use super::Failure;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use windlass::domain::json;
use windlass::domain::time::Timestamp;
use windlass::store::clock::Clock;

/// The largest payload that is read: what the server takes, and room for white space.
const MAX_PAYLOAD_BYTES: u64 = 4 * 1024 * 1024;

/// A span such as `500ms`, `10s`, `5m`, `2h` or `1d`, also put together: `1h30m`.
pub fn span(text: &str) -> Result<Duration, String> {
    let told =
        || format!("`{text}` is no span of time; write for instance 500ms, 10s, 5m or 1h30m");
    let mut rest = text;
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err(told());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(told)?;
        let number: u64 = rest[..digits].parse().map_err(|_| told())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(told()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit).and_then(|ms| total.checked_add(ms)).ok_or_else(told)?;
    }
    Ok(Duration::from_millis(total))
}

/// What a flag was given as JSON.
pub fn json(flag: &str, given: Option<&str>) -> Result<Option<Value>, Failure> {
    let read = given.map(serde_json::from_str).transpose();
    read.map_err(|error| Failure::usage(format!("{flag} is no JSON: {error}")))
}

/// Whole milliseconds of a span, as the API takes them.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A time: RFC 3339, or a span that ended now, such as `1h` for an hour ago.
pub fn past(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = span(text).map_err(|_| {
        format!("`{text}` is no time; write 2026-01-31T12:00:00Z, or 1h for an hour ago")
    })?;
    let ago = i64::try_from(ms(ago)).unwrap_or(i64::MAX);
    Ok(Clock::System.now().plus_ms(-ago))
}

/// A tag `key:value`.
pub fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no tag; write key:value, for instance team:billing")),
    }
}

/// A payload: JSON, `@FILE`, or `-` for standard input. As text, it is taken as a string.
pub fn payload(given: Option<&str>, as_text: bool) -> Result<Value, Failure> {
    let Some(given) = given else { return Ok(Value::Null) };
    let (bytes, place) = content(given, "the payload")?;
    if as_text {
        let text = String::from_utf8(bytes);
        return text
            .map(Value::String)
            .map_err(|_| Failure::usage(format!("{place} is not UTF-8")));
    }
    json::parse(&bytes).map_err(|error| {
        Failure::usage(format!("{place} is no JSON: {error}")).hint(
            "quote it for the shell, as in '{\"to\": \"anna\"}'; add --text to send plain text",
        )
    })
}

/// A result: JSON, `@FILE`, or `-` for standard input.
pub fn result(given: &str) -> Result<Value, Failure> {
    let (bytes, place) = content(given, "the result")?;
    json::parse(&bytes).map_err(|error| {
        Failure::usage(format!("{place} is no JSON: {error}"))
            .hint("quote it for the shell, as in '{\"paid\": true}'; plain text is '\"text\"'")
    })
}

/// What was given, and what it is called.
fn content<'a>(given: &'a str, name: &'a str) -> Result<(Vec<u8>, &'a str), Failure> {
    match (given, given.strip_prefix('@')) {
        ("-", _) => Ok((read(std::io::stdin().lock(), "standard input")?, "standard input")),
        (_, Some(path)) => {
            let file = std::fs::File::open(path)
                .map_err(|error| Failure::io(format!("{path} cannot be read: {error}")))?;
            Ok((read(file, path)?, path))
        }
        (text, None) => Ok((text.as_bytes().to_vec(), name)),
    }
}

fn read(from: impl Read, place: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(MAX_PAYLOAD_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::io(format!("{place} cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_PAYLOAD_BYTES {
        return Err(Failure::usage(format!(
            "{place} is larger than a payload may be (1 MiB); keep large data elsewhere and send a \
             reference"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        for (text, expected) in
            [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h30m", 5_400_000), ("0s", 0)]
        {
            assert_eq!(span(text).map(ms), Ok(expected), "{text}");
        }
        for text in ["", "10", "s", "10 s", "1.5h", "-1s", "10x", "99999999999999999999s"] {
            assert!(span(text).unwrap_err().contains("10s"), "{text}");
        }
        assert!(span("9999999999999999d").is_err());
    }

    #[test]
    fn tags_have_a_key_and_a_value() {
        assert_eq!(tag("url:http://x"), Ok(("url".into(), "http://x".into())));
        assert_eq!(tag("flag:"), Ok(("flag".into(), String::new())));
        assert!(tag("team").is_err() && tag(":x").is_err());
    }

    #[test]
    fn a_payload_is_json_a_file_or_text() {
        let is = |given, as_text| payload(given, as_text).map_err(|failure| failure.detail);
        assert_eq!(is(None, false), Ok(Value::Null));
        assert_eq!(is(Some("{\"a\": 1}"), false), Ok(serde_json::json!({ "a": 1 })));
        assert_eq!(is(Some("hello"), true), Ok(serde_json::json!("hello")));
        assert!(is(Some("{a: 1}"), false).unwrap_err().contains("line 1, column 2"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[1, 2]\n").unwrap();
        let name = format!("@{}", file.path().display());
        assert_eq!(is(Some(&name), false), Ok(serde_json::json!([1, 2])));
        assert!(is(Some("@missing.json"), false).unwrap_err().contains("missing.json"));
    }
}
