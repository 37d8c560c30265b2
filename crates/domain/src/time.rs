//! Points in time and spans of time, with millisecond precision.
//!
//! Absent: nothing here reads a clock. `now` is always an argument, and the database's clock
//! gives it (see `windlass-store`).

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The last instant that every database and every client can show: 9999-12-31T23:59:59.999Z.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// The instant `ms` milliseconds after the epoch, held inside what can be shown.
    pub fn from_ms(ms: i64) -> Timestamp {
        Timestamp(ms.clamp(0, Self::MAX.0))
    }

    /// Milliseconds since the epoch.
    pub fn as_ms(self) -> i64 {
        self.0
    }

    /// Later by `ms`; saturates, because a delay of a thousand years must not wrap into the past.
    pub fn plus_ms(self, ms: i64) -> Timestamp {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    pub fn since_ms(self, earlier: Timestamp) -> i64 {
        self.0 - earlier.0
    }
}

impl std::fmt::Display for Timestamp {
    /// RFC 3339, UTC, always with three digits of milliseconds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not by jiff's own timestamps: they end a day before the year 9999 does, so that they can
        // be shown in every time zone.
        let since = SignedDuration::from_millis(self.0);
        let instant = MIDNIGHT.checked_add(since).map_err(|_| std::fmt::Error)?;
        write!(f, "{instant:.3}Z")
    }
}

/// 1970-01-01T00:00:00, in UTC.
const MIDNIGHT: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The text is not an RFC 3339 time between the years 1970 and 9999.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time from 1970 to 9999, such as 2026-01-31T12:00:00.000Z")]
pub struct InvalidTimestamp(pub String);

impl std::str::FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTimestamp(text.chars().take(64).collect());
        let ms = match text.parse::<jiff::Timestamp>() {
            Ok(instant) => instant.as_millisecond(),
            Err(_) => last_day(text).ok_or_else(invalid)?,
        };
        if (0..=Self::MAX.0).contains(&ms) { Ok(Timestamp(ms)) } else { Err(invalid()) }
    }
}

/// A time that is too late for jiff's own timestamps, in milliseconds.
fn last_day(text: &str) -> Option<i64> {
    let pieces = Pieces::parse(text).ok()?;
    let local = pieces.date().to_datetime(pieces.time()?);
    let offset = SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into());
    let since = local.duration_since(MIDNIGHT).checked_sub(offset)?;
    i64::try_from(since.as_millis()).ok()
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        let noon = Timestamp::from_ms(1_769_860_800_000);
        assert_eq!(noon.to_string(), "2026-01-31T12:00:00.000Z");
        assert_eq!("2026-01-31T13:00:00+01:00".parse(), Ok(noon));
    }

    #[test]
    fn a_time_outside_the_shown_years_is_refused() {
        for text in [
            "10000-01-01T00:00:00Z",
            "+010000-01-01T00:00:00Z",
            "9999-12-31T23:59:59-00:01",
            "9999-12-31T23:59:59",
            "9999-12-31",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "yesterday",
            "",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    /// The last day could not be written, and its first second could be written but not shown.
    #[test]
    fn the_year_9999_is_told_to_its_end() {
        let last = Timestamp::MAX.to_string();
        assert_eq!(last, "9999-12-31T23:59:59.999Z");
        for (text, shown) in [
            ("9999-12-30T22:00:00.999Z", "9999-12-30T22:00:00.999Z"),
            ("9999-12-30T22:00:01Z", "9999-12-30T22:00:01.000Z"),
            ("9999-12-31T23:59:59.999999Z", last.as_str()),
            ("9999-12-31T23:59:59+14:00", "9999-12-31T09:59:59.000Z"),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(time.to_string(), shown);
            assert_eq!(shown.parse(), Ok(time));
        }
    }

    #[test]
    fn adding_a_huge_delay_saturates() {
        assert_eq!(Timestamp::EPOCH.plus_ms(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.plus_ms(i64::MIN), Timestamp::EPOCH);
    }
}
