//! Where the next page of a list begins, as an opaque text.

use super::problem::{Problem, Result};
use axum::http::StatusCode;
use uuid::Uuid;
use windlass::domain::time::Timestamp;

/// The cursor after an item.
pub fn after(created_at: Timestamp, id: Uuid) -> String {
    format!("{:x}.{}", created_at.as_ms(), id.simple())
}

/// What a cursor says.
pub fn read(text: &str) -> Result<(Timestamp, Uuid)> {
    let parts = text.split_once('.');
    let read = parts.and_then(|(time, id)| {
        let ms = i64::from_str_radix(time, 16).ok()?;
        Some((Timestamp::from_ms(ms), Uuid::parse_str(id).ok()?))
    });
    read.ok_or_else(invalid)
}

/// A cursor that is a number: the last item's place.
pub fn number(text: Option<&str>) -> Result<i64> {
    text.map_or(Ok(0), |text| text.parse().ok().filter(|n| *n >= 0).ok_or_else(invalid))
}

/// The cursor after an item that is known by its name: hexadecimal, as a name may hold anything.
pub fn after_name(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A cursor that is a name.
pub fn name(text: Option<&str>) -> Result<String> {
    let Some(text) = text else { return Ok(String::new()) };
    let byte = |at| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.filter(|name| !name.is_empty() && !name.contains('\0')).ok_or_else(invalid)
}

/// No cursor of this list.
pub fn invalid() -> Problem {
    let detail = "use the `next_cursor` of the page before, or none for the first page";
    Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_what_it_was_made_of() {
        let (at, id) = (Timestamp::from_ms(1_769_860_800_000), Uuid::now_v7());
        assert_eq!(read(&after(at, id)).unwrap(), (at, id));
        for wrong in ["", ".", "zz.1", "1", "19c\u{e9}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
