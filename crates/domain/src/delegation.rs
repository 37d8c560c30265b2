//! Delegations: what is shown of them at a glance, what a report came to, and the sweeper's
//! settings.
//!
//! Invariant: a preview never cuts a character in two; the whole is kept with the task. A setting
//! that makes no sense falls back to the default with a warning: a typing mistake must not keep a
//! server from starting.

use crate::id::TaskId;
use crate::json;
use crate::profile::DELEGATION_STUCK_THRESHOLD_MS;
use crate::state::{State, named};
use crate::validate::MAX_DELAY_MS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many characters a preview has at most.
pub const PREVIEW_CHARS: usize = 1_000;
/// The largest result that a message carries, in bytes of canonical JSON: it must fit beside the
/// rest of the message.
pub const MAX_PUSHED_BYTES: usize = 512 * 1024;
/// The type of the message that carries a delegation's end to its caller.
pub const RESULT_MESSAGE: &str = "delegation_result";

/// How often the sweeper looks, unless it is told.
pub const SWEEPER_INTERVAL_S: i64 = 300;
/// How long a delegation may be silent, unless it is told.
pub const STUCK_THRESHOLD_S: i64 = DELEGATION_STUCK_THRESHOLD_MS / 1_000;
/// The variable for how often the sweeper looks.
pub const INTERVAL_VARIABLE: &str = "DELEGATION_SWEEPER_INTERVAL_S";
/// The variable for how long a delegation may be silent.
pub const THRESHOLD_VARIABLE: &str = "DELEGATION_STUCK_THRESHOLD_S";

/// The beginning of a text, cut between characters.
pub fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(PREVIEW_CHARS).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The beginning of a value: of a text its own characters, of anything else its JSON.
pub fn preview(value: &Value) -> String {
    match value {
        Value::String(text) => cut(text).to_owned(),
        other => cut(&json::canonical(other)).to_owned(),
    }
}

named! {
    /// Why a report or a beat changed nothing; none of them is an error.
    Unchanged {
        /// It stands there already.
        SameStatus = "same_status",
        /// It has ended.
        Terminal = "terminal",
        /// It is further already.
        NotForward = "not_forward",
        /// There is no such delegation.
        NotFound = "not_found",
    }
}

impl Unchanged {
    /// Why a report changes nothing that the machine forbids.
    pub fn of(now: State, to: Option<State>) -> Unchanged {
        match now {
            now if Some(now) == to => Unchanged::SameStatus,
            now if now.is_terminal() => Unchanged::Terminal,
            _ => Unchanged::NotForward,
        }
    }
}

/// The states that the caller of a ledger delegation may report.
pub const REPORTED: &[State] = &[
    State::Pending,
    State::Claimed,
    State::Running,
    State::Completed,
    State::Failed,
    State::Stuck,
];

/// A setting in seconds as a variable gives it: its milliseconds, and a warning if what was given
/// makes no sense.
pub fn seconds(variable: &str, given: Option<&str>, default_s: i64) -> (i64, Option<String>) {
    let Some(given) = given else { return (default_s * 1_000, None) };
    match given.trim().parse::<i64>() {
        Ok(s) if s > 0 && s <= MAX_DELAY_MS / 1_000 => (s * 1_000, None),
        _ => {
            let shown: String = given.chars().take(64).collect();
            let warning = format!(
                "{variable} is {shown:?}, and must be a number of seconds from 1 to {}; it is \
                 taken as {default_s}",
                MAX_DELAY_MS / 1_000
            );
            (default_s * 1_000, Some(warning))
        }
    }
}

/// How the sweeper works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweeperSettings {
    /// How often it looks.
    pub interval_ms: i64,
    /// How long a delegation may be silent after a beat.
    pub stuck_ms: i64,
}

impl Default for SweeperSettings {
    fn default() -> Self {
        SweeperSettings {
            interval_ms: SWEEPER_INTERVAL_S * 1_000,
            stuck_ms: STUCK_THRESHOLD_S * 1_000,
        }
    }
}

impl SweeperSettings {
    /// As the variables say, with a warning for each that makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> (SweeperSettings, Vec<String>) {
        let read = |name: &str, default_s| seconds(name, variable(name).as_deref(), default_s);
        let (interval_ms, first) = read(INTERVAL_VARIABLE, SWEEPER_INTERVAL_S);
        let (stuck_ms, second) = read(THRESHOLD_VARIABLE, STUCK_THRESHOLD_S);
        (SweeperSettings { interval_ms, stuck_ms }, first.into_iter().chain(second).collect())
    }
}

/// What the caller's inbox is told of a delegation's end.
pub fn told(
    id: TaskId,
    callee: Option<&str>,
    name: Option<&str>,
    status: State,
    result: Option<&Value>,
    error: Option<&Value>,
) -> Value {
    let whole = result.filter(|result| json::canonical(result).len() <= MAX_PUSHED_BYTES);
    json!({
        "delegation_id": id,
        "callee": callee,
        "name": name,
        "status": status,
        "result": whole,
        "result_omitted": result.is_some() && whole.is_none(),
        "result_preview": result.map(preview),
        // The detail may be large, and holds a stack: whoever wants it reads the task.
        "error": error.map(|error| json!({
            "code": error["code"],
            "message": error["message"].as_str().map(cut),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_has_a_thousand_characters_and_cuts_none() {
        for (text, kept) in [
            ("short".to_owned(), 5),
            ("é".repeat(999), 999),
            ("é".repeat(1_000), 1_000),
            ("日本".repeat(600), 1_000),
            ("🦀".repeat(1_001), 1_000),
        ] {
            let shown = preview(&json!(text));
            assert_eq!(shown.chars().count(), kept);
            assert!(text.starts_with(&shown));
        }
        assert_eq!(preview(&json!({ "b": 1, "a": "ü" })), r#"{"a":"ü","b":1}"#);
        assert_eq!(preview(&json!(vec!["x"; 1_000])).chars().count(), 1_000);
    }

    #[test]
    fn without_a_variable_the_default_counts() {
        assert_eq!(seconds("X", None, 300), (300_000, None));
    }

    #[test]
    fn positive_seconds_are_taken() {
        assert_eq!(seconds("X", Some("7"), 300), (7_000, None));
        assert_eq!(seconds("X", Some(" 42 "), 300), (42_000, None));
    }

    #[test]
    fn garbage_falls_back_to_the_default_with_a_warning() {
        for garbage in ["", "soon", "1.5", "5m", "0x10", "99999999999999999999"] {
            let (ms, warning) = seconds("X", Some(garbage), 300);
            assert_eq!(ms, 300_000, "{garbage}");
            assert!(warning.unwrap().contains("X is"), "{garbage}");
        }
    }

    #[test]
    fn a_negative_number_or_zero_falls_back_to_the_default_with_a_warning() {
        for wrong in ["-1", "0", "-600"] {
            let (ms, warning) = seconds("X", Some(wrong), 600);
            assert_eq!((ms, warning.is_some()), (600_000, true), "{wrong}");
        }
    }

    #[test]
    fn the_sweeper_takes_what_the_variables_say_and_defaults_for_the_rest() {
        let (settings, warnings) = SweeperSettings::read(|_| None);
        assert_eq!((settings, warnings.len()), (SweeperSettings::default(), 0));
        assert_eq!((settings.interval_ms, settings.stuck_ms), (300_000, 600_000));
        let given = |name: &str| match name {
            "DELEGATION_SWEEPER_INTERVAL_S" => Some("5".to_owned()),
            "DELEGATION_STUCK_THRESHOLD_S" => Some("nonsense".to_owned()),
            _ => None,
        };
        let (settings, warnings) = SweeperSettings::read(given);
        assert_eq!((settings.interval_ms, settings.stuck_ms), (5_000, 600_000));
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_report_that_changes_nothing_says_why() {
        use State::{Claimed, Completed, Failed, Running};
        for (now, to, why) in [
            (Running, Some(Running), Unchanged::SameStatus),
            (Completed, Some(Completed), Unchanged::SameStatus),
            (Completed, Some(Failed), Unchanged::Terminal),
            (Completed, None, Unchanged::Terminal),
            (Running, Some(Claimed), Unchanged::NotForward),
        ] {
            assert_eq!(Unchanged::of(now, to), why);
        }
    }

    #[test]
    fn a_large_result_is_left_out_of_the_message_and_said_so() {
        let id = TaskId(uuid::Uuid::nil());
        let small = told(id, Some("c"), None, State::Completed, Some(&json!({"n": 1})), None);
        assert_eq!((&small["result"]["n"], &small["result_omitted"]), (&json!(1), &json!(false)));
        let large = json!("x".repeat(MAX_PUSHED_BYTES + 1));
        let large = told(id, None, None, State::Completed, Some(&large), None);
        assert_eq!((&large["result"], &large["result_omitted"]), (&Value::Null, &json!(true)));
        assert_eq!(large["result_preview"].as_str().unwrap().len(), PREVIEW_CHARS);
        let error = json!({"code": "X", "message": "no", "detail": {"stack": "…"}});
        let failed = told(id, None, None, State::Failed, None, Some(&error));
        assert_eq!(failed["error"], json!({"code": "X", "message": "no"}));
    }
}
