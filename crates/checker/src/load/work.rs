//! What a task asks of its worker, so that every way of going wrong happens in every run.

use crate::seed::Seed;
use serde_json::{Value, json};

/// The behaviour that a payload asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A short effect, then the result.
    Plain,
    /// An effect longer than the lease: heartbeats carry it.
    Slow,
    /// The first attempt fails.
    Flaky,
    /// The first attempt falls silent beyond its lease, then beats and finishes all the same.
    Late,
    /// The first attempt is never heard of again.
    Vanish,
    /// No attempt ever succeeds: they vanish and fail in turn. Allowed one retry.
    Pill,
}

impl Work {
    const ALL: [(Work, &str, u64); 6] = [
        (Work::Plain, "plain", 900),
        (Work::Slow, "slow", 20),
        (Work::Flaky, "flaky", 40),
        (Work::Late, "late", 15),
        (Work::Vanish, "vanish", 15),
        (Work::Pill, "pill", 10),
    ];

    /// What the `n`th task of a client asks for: each twice, so that none is missing from a short
    /// run on a slow machine, then by chance; most are plain.
    pub fn pick(n: usize, seed: &mut Seed) -> Work {
        if n < 2 * Work::ALL.len() {
            return Work::ALL[n % Work::ALL.len()].0;
        }
        let mut at = seed.below(Work::ALL.iter().map(|(_, _, weight)| weight).sum());
        for (work, _, weight) in Work::ALL {
            if at < weight {
                return work;
            }
            at -= weight;
        }
        Work::Plain
    }

    /// A payload that asks for it.
    pub fn payload(self, seed: &mut Seed) -> Value {
        let name = Work::ALL.iter().find(|(work, _, _)| *work == self).map(|(_, name, _)| name);
        json!({ "work": name, "mark": seed.id() })
    }

    /// What a payload asks for.
    pub fn of_payload(payload: &Value) -> Work {
        let named = Work::ALL.iter().find(|(_, name, _)| payload["work"] == *name);
        named.map_or(Work::Plain, |(work, _, _)| *work)
    }

    /// How many retries such a task is given.
    pub fn max_retries(self) -> i32 {
        if self == Work::Pill { 1 } else { 10 }
    }
}
