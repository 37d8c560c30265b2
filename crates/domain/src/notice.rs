//! Notices: what the service tells the outside by itself, and how long it tries.
//!
//! Invariant: a notice has one id for all its tries, so that a receiver can drop a repetition.
//! Absent: where it goes. The server knows its webhooks; the database keeps what was said.

use crate::retry::Backoff;
use serde::{Deserialize, Serialize};

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Now: told at once.
    Critical,
    /// Soon: told with the next batch.
    Warning,
    /// At leisure: told with the next batch.
    Info,
}

impl Severity {
    /// Every severity, the most urgent first.
    pub const ALL: &[Severity] = &[Severity::Critical, Severity::Warning, Severity::Info];

    /// Its name, in the API and in both databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Info => "info",
        }
    }

    /// Whether it is told at once, alone, and not with the next batch.
    pub const fn is_urgent(self) -> bool {
        matches!(self, Severity::Critical)
    }
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Severity {
    type Err = ();

    fn from_str(text: &str) -> Result<Severity, ()> {
        Severity::ALL.iter().copied().find(|severity| severity.as_str() == text).ok_or(())
    }
}

/// How often a notice is tried before the service gives it up.
pub const MAX_TRIES: i32 = 20;
/// A notice that nobody has tried to send for so long is given up: whoever sets up a webhook later
/// is not flooded with the past.
pub const MAX_WAIT_MS: i64 = 24 * 60 * 60 * 1_000;
/// How long the less urgent ones are collected, unless the server is told otherwise.
pub const BATCH_MS: i64 = 5 * 60 * 1_000;
/// How long a try may take before somebody else may try: longer than any request.
pub const CLAIM_MS: i64 = 60_000;
/// The largest body of a notice, in bytes of canonical JSON.
pub const MAX_BODY_BYTES: usize = 128 * 1024;

/// How long to wait after try number `tries`: 10 s, 20 s, 40 s … an hour at most. Without jitter:
/// one node sends for all.
pub fn wait_ms(tries: i32) -> i64 {
    let backoff = Backoff {
        base_ms: 10_000,
        max_ms: 60 * 60 * 1_000,
        multiplier: 2.0,
        jitter: false,
        ..Backoff::default()
    };
    backoff.delay_ms(tries.saturating_sub(1), 0.0)
}

/// What follows a try that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another try, so many milliseconds later.
    TryAgain(i64),
    /// No more tries.
    GiveUp,
}

/// What follows when try number `tries` failed.
pub fn after_failure(tries: i32) -> AfterFailure {
    if tries >= MAX_TRIES { AfterFailure::GiveUp } else { AfterFailure::TryAgain(wait_ms(tries)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_tried_twenty_times_over_half_a_day() {
        let mut waited = 0;
        let mut tries = 1;
        while let AfterFailure::TryAgain(ms) = after_failure(tries) {
            waited += ms;
            tries += 1;
        }
        assert_eq!((tries, waited / 60_000), (20, 685));
        let seconds: Vec<i64> = (1..=4).map(|tries| wait_ms(tries) / 1_000).collect();
        assert_eq!(seconds, [10, 20, 40, 80]);
        assert_eq!(wait_ms(19), 3_600_000);
    }

    #[test]
    fn a_severity_is_known_by_its_name() {
        for severity in Severity::ALL {
            assert_eq!(severity.as_str().parse(), Ok(*severity));
        }
        assert!("fatal".parse::<Severity>().is_err());
        assert!(Severity::Critical.is_urgent() && !Severity::Warning.is_urgent());
    }
}
