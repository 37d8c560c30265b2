//! How many tasks may be handed out in a period.

use serde::{Deserialize, Serialize};

/// So many in each period. A period begins with the first task that is handed out in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// How many.
    pub count: i64,
    /// In how long.
    pub period_ms: i64,
}

impl std::fmt::Display for Rate {
    /// `100/min`, `5/s`, `100/90 s`: as short as it can be said exactly.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let period = period_in_words(self.period_ms);
        write!(f, "{}/{}", self.count, period.strip_prefix("1 ").unwrap_or(&period))
    }
}

/// A period in the largest unit that says it exactly: `1 min`, `90 s`.
pub fn period_in_words(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let (of, unit) = units.into_iter().find(|(of, _)| ms % of == 0).unwrap_or((1, "ms"));
    format!("{} {unit}", ms / of)
}

/// The longest period of a rate.
pub const MAX_PERIOD_MS: i64 = 86_400_000;
