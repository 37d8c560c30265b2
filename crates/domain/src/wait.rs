//! Waits: a task that parks holds no worker and no lease.
//!
//! A wait is a step: it is `waiting` while the task is parked and `done` with what came when the
//! task is woken, so that the handler that runs again from the start goes past it.
//!
//! Invariant: a wait ends once: by what it waits for, or by its time limit.

use crate::id::{ApprovalId, SignalId, StepId, TaskId};
use crate::state::{State, named};
use crate::step::{StepKey, WAIT_PREFIX};
use crate::time::Timestamp;
use crate::validate::{self, Errors};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long a signal of a key is kept that no task took. What was told to a task, or taken by one,
/// is kept as long as the results of its steps.
pub const SIGNAL_RETENTION_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

named! {
    /// What a task waits for.
    WaitKind {
        /// A time.
        Time = "time",
        /// A signal.
        Signal = "signal",
        /// The end of another task.
        Task = "task",
        /// A person's decision over a step in doubt.
        Person = "person",
    }
}

/// What a parked task waits for, as people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// A time.
    Time {
        /// Which.
        until: Timestamp,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// For whom, if not for this task alone.
        key: Option<String>,
        /// When the wait is given up.
        until: Option<Timestamp>,
    },
    /// The end of another task.
    Task {
        /// Which.
        task: TaskId,
        /// When the wait is given up.
        until: Option<Timestamp>,
    },
    /// The answer to a question at a gate.
    Approval {
        /// Which.
        approval: ApprovalId,
        /// When the question expires.
        until: Option<Timestamp>,
    },
    /// A person's decision over a step in doubt.
    Person {
        /// Which.
        step: StepId,
    },
}

/// What a task waits for, in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// A point in time.
    Time(Timestamp),
    /// So many milliseconds from the moment of parking.
    DelayMs(i64),
    /// A signal to this task, or to everybody who waits with this key.
    Signal {
        /// Its name.
        name: String,
        /// For whom, if not for this task alone.
        key: Option<String>,
    },
    /// Any end of another task.
    Task(TaskId),
}

impl Until {
    /// Which kind of wait.
    pub fn kind(&self) -> WaitKind {
        match self {
            Until::Time(_) | Until::DelayMs(_) => WaitKind::Time,
            Until::Signal { .. } => WaitKind::Signal,
            Until::Task(_) => WaitKind::Task,
        }
    }

    /// What identifies the wait among the steps of its task.
    pub fn key(&self, occurrence: i32) -> StepKey {
        StepKey::new(format!("{WAIT_PREFIX}{}", self.kind()), &self.inputs(), occurrence)
    }

    /// The inputs of the wait's step.
    pub fn inputs(&self) -> Value {
        match self {
            Until::Time(time) => json!({ "time": time }),
            Until::DelayMs(ms) => json!({ "delay_ms": ms }),
            Until::Signal { name, key } => json!({ "signal": name, "key": key }),
            Until::Task(task) => json!({ "task": task }),
        }
    }

    /// When a timer ends the wait: the time it waits for, or its limit.
    pub fn wake_at(&self, timeout_ms: Option<i64>, now: Timestamp) -> Option<Timestamp> {
        match self {
            Until::Time(time) => Some(*time),
            Until::DelayMs(ms) => Some(now.plus_ms(*ms)),
            Until::Signal { .. } | Until::Task(_) => timeout_ms.map(|ms| now.plus_ms(ms)),
        }
    }

    /// Refuses a wait that cannot be kept as it is.
    pub fn check(&self, timeout_ms: Option<i64>) -> validate::Result<()> {
        let mut errors = Errors::default();
        match self {
            Until::DelayMs(ms) => {
                errors.range("/until/delay_ms", *ms, 0, validate::MAX_DELAY_MS);
            }
            Until::Signal { name, key } => {
                errors.name("/until/signal", name, validate::MAX_NAME_BYTES);
                errors.optional_name("/until/key", key.as_deref());
            }
            Until::Time(_) | Until::Task(_) => {}
        }
        if let Some(ms) = timeout_ms {
            errors.range("/timeout_ms", ms, 0, validate::MAX_DELAY_MS);
            if self.kind() == WaitKind::Time {
                let detail = "a wait for a time ends by itself; leave the limit out";
                errors.add("/timeout_ms", "not_allowed", detail);
            }
        }
        errors.into_result()
    }
}

/// Refuses a signal that cannot be kept, or that is told to nobody or to two; gives the canonical
/// payload.
pub fn check_signal(
    name: &str,
    task: Option<TaskId>,
    key: Option<&str>,
    payload: &Value,
) -> validate::Result<String> {
    let mut errors = Errors::default();
    errors.name("/name", name, validate::MAX_NAME_BYTES);
    errors.optional_name("/key", key);
    match (task, key) {
        (Some(_), Some(_)) => {
            let detail = "excludes task_id: a signal is told to a task or to a key";
            errors.add("/key", "conflict", detail);
        }
        (None, None) => {
            let detail = "is missing: say to which task, or give a key";
            errors.add("/task_id", "required", detail);
        }
        _ => {}
    }
    let payload = errors.json("/payload", payload, validate::MAX_JSON_BYTES);
    errors.into_result()?;
    Ok(payload)
}

/// What the history says when a task parks.
pub fn parked(step: StepId, kind: WaitKind, wake_at: Option<Timestamp>) -> Value {
    json!({ "step": step, "until": kind, "wake_at": wake_at })
}

/// What the history says when a task wakes.
pub fn woken(step: StepId, result: &Value) -> Value {
    json!({ "step": step, "woken": result["woken"] })
}

/// The result of a wait for a time.
pub fn time_came() -> Value {
    json!({ "woken": "time" })
}

/// The result of a wait whose limit passed first.
pub fn timed_out() -> Value {
    json!({ "woken": "timeout" })
}

/// The result of a wait for a signal.
pub fn signal_came(id: SignalId, payload: &Value) -> Value {
    json!({ "woken": "signal", "signal_id": id, "payload": payload })
}

/// The result of a wait for another task.
pub fn task_ended(task: TaskId, status: State, result: &Value, error: &Value) -> Value {
    json!({ "woken": "task", "task_id": task, "status": status, "result": result, "error": error })
}

/// The result of a timer's wait: the time itself, or the limit of something else.
pub fn timer_rang(kind: WaitKind) -> Value {
    if kind == WaitKind::Time { time_came() } else { timed_out() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    #[test]
    fn a_timer_ends_a_wait_for_a_time_and_limits_the_others() {
        let now = Timestamp::from_ms(1_000);
        let signal = Until::Signal { name: "go".into(), key: None };
        assert_eq!(Until::DelayMs(5).wake_at(None, now), Some(Timestamp::from_ms(1_005)));
        assert_eq!(signal.wake_at(None, now), None);
        assert_eq!(signal.wake_at(Some(7), now), Some(Timestamp::from_ms(1_007)));
        assert_eq!(timer_rang(WaitKind::Time)["woken"], "time");
        assert_eq!(timer_rang(WaitKind::Signal)["woken"], "timeout");
    }

    #[test]
    fn a_signal_is_told_to_a_task_or_to_a_key() {
        let (task, payload) = (Some(TaskId(uuid::Uuid::nil())), json!({ "b": 1, "a": 2 }));
        let canonical = check_signal("go", task, None, &payload).unwrap();
        assert_eq!(canonical, r#"{"a":2,"b":1}"#);
        assert!(check_signal("go", None, Some("order-7"), &payload).is_ok());
        for (name, task, key, pointer) in [
            ("go", task, Some("k"), "/key"),
            ("go", None, None, "/task_id"),
            ("go", None, Some(""), "/key"),
            ("", task, None, "/name"),
        ] {
            let Err(Refusal::Invalid(errors)) = check_signal(name, task, key, &payload) else {
                panic!("{pointer} was accepted")
            };
            assert_eq!(errors[0].pointer, pointer);
        }
    }

    #[test]
    fn a_limit_on_a_wait_for_a_time_is_refused() {
        assert!(Until::DelayMs(5).check(Some(1)).is_err());
        assert!(Until::DelayMs(-1).check(None).is_err());
        let nameless = Until::Signal { name: String::new(), key: None };
        assert!(nameless.check(None).is_err());
    }
}
