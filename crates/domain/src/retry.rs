//! When a failed task runs again: backoff with full jitter, and which errors are worth a retry.
//!
//! Invariant: a delay is never negative and never above `max_ms`, whatever the policy says.
//! Absent: randomness. The caller brings the chance, so that a test can choose it.

use serde::{Deserialize, Serialize};

/// The codes that have a meaning of their own. A failure may carry any other code.
pub mod code {
    /// Something took too long; retried.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// A service asked for patience; retried.
    pub const RATE_LIMITED: &str = "RATE_LIMITED";
    /// A service is down; retried.
    pub const SERVICE_UNAVAILABLE: &str = "SERVICE_UNAVAILABLE";
    /// The worker fell silent and its lease ran out; retried.
    pub const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
    /// The task itself is wrong; not retried.
    pub const INVALID_INPUT: &str = "INVALID_INPUT";
    /// The agent may not do it; not retried.
    pub const PERMISSION_DENIED: &str = "PERMISSION_DENIED";
    /// The budget is used up; not retried.
    pub const BUDGET_EXCEEDED: &str = "BUDGET_EXCEEDED";
    /// The task harms whoever runs it; poisoned at once.
    pub const POISON_TASK: &str = "POISON_TASK";
    /// The deadline passed.
    pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";
    /// A delegation's worker fell silent.
    pub const STALE: &str = "STALE";
    /// A person said no.
    pub const APPROVAL_DENIED: &str = "APPROVAL_DENIED";
    /// Nobody answered in time.
    pub const APPROVAL_EXPIRED: &str = "APPROVAL_EXPIRED";
    /// No worker took the task in time.
    pub const PENDING_TIMEOUT: &str = "PENDING_TIMEOUT";
    /// The task was handed out and given back too often.
    pub const RELEASED_TOO_OFTEN: &str = "RELEASED_TOO_OFTEN";

    /// A person decided that one of its steps has failed.
    pub const STEP_REJECTED: &str = "STEP_REJECTED";

    /// Retried unless a policy says otherwise.
    pub const RETRYABLE: &[&str] = &[TIMEOUT, RATE_LIMITED, SERVICE_UNAVAILABLE, LEASE_EXPIRED];
    /// Not retried unless a policy says otherwise.
    pub const NON_RETRYABLE: &[&str] = &[INVALID_INPUT, PERMISSION_DENIED, BUDGET_EXCEEDED];
    /// Ends that the system makes. They never pass through [`classify`](super::classify) on their
    /// way; a worker that reports one of them means an end as well.
    pub const SYSTEM: &[&str] = &[
        DEADLINE_EXCEEDED,
        STALE,
        APPROVAL_DENIED,
        APPROVAL_EXPIRED,
        PENDING_TIMEOUT,
        RELEASED_TOO_OFTEN,
        STEP_REJECTED,
    ];
}

/// What a failure with some code means for its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Worth another try.
    Retry,
    /// Another try would fail the same way.
    Final,
    /// Another try would do harm; a person must look.
    Poison,
}

/// Decides by the code alone. The policy's lists win over the built-in ones, its `non_retryable`
/// over its `retryable`; `POISON_TASK` always poisons; an unknown code is retried, because a
/// needless retry costs less than lost work.
pub fn classify(code: &str, policy: Option<&Backoff>) -> Class {
    let listed = |list: fn(&Backoff) -> &Vec<String>| {
        policy.is_some_and(|p| list(p).iter().any(|c| c == code))
    };
    if code == code::POISON_TASK {
        Class::Poison
    } else if listed(|p| &p.non_retryable) {
        Class::Final
    } else if listed(|p| &p.retryable) || code::RETRYABLE.contains(&code) {
        Class::Retry
    } else if code::NON_RETRYABLE.contains(&code) || code::SYSTEM.contains(&code) {
        Class::Final
    } else {
        Class::Retry
    }
}

/// How long to wait before a retry, and which error codes are retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Delay before the first retry.
    pub base_ms: i64,
    /// No delay is longer.
    pub max_ms: i64,
    /// Each delay is this many times the one before.
    pub multiplier: f64,
    /// Spread the delay uniformly from 0, so that a crowd does not return at once.
    pub jitter: bool,
    /// Codes to retry, beside the built-in ones.
    pub retryable: Vec<String>,
    /// Codes not to retry, beside the built-in ones; wins over `retryable`.
    pub non_retryable: Vec<String>,
    /// Where the task ends when its retries are used up; as its kind has it unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
}

/// Where a task ends whose retries are used up, by failures or by lost leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// A person must look.
    Poisoned,
    /// It just failed.
    Failed,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            base_ms: 1_000,
            max_ms: 300_000,
            multiplier: 2.0,
            jitter: true,
            retryable: vec![],
            non_retryable: vec![],
            on_exhausted: None,
        }
    }
}

impl Backoff {
    /// The delay before the next retry of a task that was retried `retry_count` times before.
    /// `chance` is uniform in `[0, 1)`; it counts only with `jitter`.
    pub fn delay_ms(&self, retry_count: i32, chance: f64) -> i64 {
        let ceiling = self.ceiling_ms(retry_count);
        if self.jitter {
            // The cast saturates and makes 0 of NaN, so that no chance leads out of the range.
            ((ceiling as f64 * chance) as i64).clamp(0, ceiling)
        } else {
            ceiling
        }
    }

    /// The longest delay before that retry: `min(max_ms, base_ms * multiplier^retry_count)`.
    pub fn ceiling_ms(&self, retry_count: i32) -> i64 {
        let max = self.max_ms.max(0);
        let base = self.base_ms.clamp(0, max);
        if base == 0 {
            // Zero times an infinite power would be no number at all.
            return 0;
        }
        // `max` makes 1 of NaN and of a shrinking multiplier: delays never get shorter.
        let factor = self.multiplier.max(1.0).powi(retry_count.max(0));
        let delay = base as f64 * factor;
        if delay >= max as f64 { max } else { delay as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steady() -> Backoff {
        Backoff { jitter: false, ..Backoff::default() }
    }

    #[test]
    fn the_default_schedule_doubles_from_a_second_to_five_minutes() {
        let seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300];
        for (retry_count, second) in (0..).zip(seconds) {
            assert_eq!(steady().delay_ms(retry_count, 0.5), second * 1_000);
        }
    }

    #[test]
    fn a_huge_count_waits_the_longest_delay() {
        for retry_count in [10, 1_000, i32::MAX] {
            assert_eq!(steady().delay_ms(retry_count, 0.0), 300_000);
        }
        assert_eq!(steady().delay_ms(-1, 0.0), 1_000);
    }

    #[test]
    fn jitter_spreads_the_delay_from_zero() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay_ms(3, 0.0), 0);
        assert_eq!(backoff.delay_ms(3, 0.5), 4_000);
        assert_eq!(backoff.delay_ms(3, 0.999_999), 7_999);
    }

    #[test]
    fn a_base_of_zero_retries_at_once() {
        let backoff = Backoff { base_ms: 0, ..steady() };
        assert_eq!(backoff.delay_ms(i32::MAX, 0.0), 0);
    }

    proptest! {
        #[test]
        fn a_delay_grows_and_stays_within_its_bounds(
            base_ms in any::<i64>(),
            max_ms in any::<i64>(),
            multiplier in any::<f64>(),
            retry_count in any::<i32>(),
            chance in any::<f64>(),
            jitter in any::<bool>(),
        ) {
            let backoff = Backoff { base_ms, max_ms, multiplier, jitter, ..Backoff::default() };
            let delay = backoff.delay_ms(retry_count, chance);
            prop_assert!((0..=max_ms.max(0)).contains(&delay));
            let next = backoff.ceiling_ms(retry_count.saturating_add(1));
            prop_assert!(backoff.ceiling_ms(retry_count) <= next);
        }
    }

    #[test]
    fn codes_decide() {
        for code in ["TIMEOUT", "RATE_LIMITED", "SERVICE_UNAVAILABLE", "LEASE_EXPIRED", "NEW"] {
            assert_eq!(classify(code, None), Class::Retry, "{code}");
        }
        for code in ["INVALID_INPUT", "PERMISSION_DENIED", "BUDGET_EXCEEDED", "STALE"] {
            assert_eq!(classify(code, None), Class::Final, "{code}");
        }
        assert_eq!(classify("POISON_TASK", None), Class::Poison);
    }

    #[test]
    fn the_lists_of_a_policy_win_over_the_built_in_ones() {
        let policy = Backoff {
            retryable: vec!["INVALID_INPUT".into(), "BOTH".into(), "POISON_TASK".into()],
            non_retryable: vec!["TIMEOUT".into(), "BOTH".into(), "POISON_TASK".into()],
            ..Backoff::default()
        };
        assert_eq!(classify("INVALID_INPUT", Some(&policy)), Class::Retry);
        assert_eq!(classify("TIMEOUT", Some(&policy)), Class::Final);
        assert_eq!(classify("BOTH", Some(&policy)), Class::Final);
        assert_eq!(classify("POISON_TASK", Some(&policy)), Class::Poison);
        assert_eq!(classify("RATE_LIMITED", Some(&policy)), Class::Retry);
    }
}
