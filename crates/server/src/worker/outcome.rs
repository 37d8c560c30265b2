//! From how a child ended to what the server is told.
//!
//! Invariant: every end has an outcome; the table of exit codes is the one in docs/worker.md.

use serde_json::{Value, json};
use windlass::domain::json::parse;
use windlass::domain::usage::Usage;
use windlass::domain::validate::MAX_DELAY_MS;

/// The command's output is not what was promised.
pub const INVALID_OUTPUT: &str = "INVALID_OUTPUT";
/// The command printed more than a result may hold.
pub const OUTPUT_TOO_LARGE: &str = "OUTPUT_TOO_LARGE";
/// The command could not be started.
pub const SPAWN_FAILED: &str = "SPAWN_FAILED";

/// The largest result.
pub const MAX_OUTPUT_BYTES: usize = windlass::domain::validate::MAX_JSON_BYTES;
/// How much of the end of standard error is kept.
pub const MAX_STDERR_BYTES: usize = 64 * 1024;
/// The longest last line of standard error in a message.
const MAX_LINE: usize = 500;

/// What standard output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// One JSON value.
    Json,
    /// Text, which becomes a JSON string.
    Text,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With a result.
    Complete {
        /// Any JSON.
        result: Value,
        /// What it took.
        usage: Option<Usage>,
    },
    /// With an error.
    Fail {
        /// `{code, message, detail}`.
        error: Value,
        /// How long the command asks to wait before the next attempt.
        retry_after_ms: Option<u64>,
    },
    /// The task goes back to its queue.
    Release,
    /// The task is no longer ours; there is nothing to tell.
    Dropped,
}

impl Outcome {
    /// A result of which nobody said what it took.
    pub fn complete(result: Value) -> Outcome {
        Outcome::Complete { result, usage: None }
    }

    /// A failure with the end of standard error.
    pub fn fail(code: &str, message: String, stderr: &[u8], more: Value) -> Outcome {
        let stderr = clean(stderr);
        let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let message = match last {
            Some(line) => format!("{message}: {}", crate::print::cut(line, MAX_LINE)),
            None => message,
        };
        let mut detail = if more.is_object() { more } else { json!({}) };
        if !stderr.is_empty() {
            detail["stderr"] = json!(stderr);
        }
        let mut error = json!({ "code": code, "message": message });
        if detail.as_object().is_some_and(|fields| !fields.is_empty()) {
            error["detail"] = detail;
        }
        Outcome::Fail { error, retry_after_ms: None }
    }

    /// The item of a finishing call; none when there is nothing to tell.
    pub fn item(&self, task_id: &str, lease_id: &str) -> Option<Value> {
        let mut item = json!({ "task_id": task_id, "lease_id": lease_id });
        match self {
            Outcome::Complete { result, usage } => {
                item["outcome"] = json!("complete");
                item["result"] = result.clone();
                if let Some(usage) = usage {
                    item["usage"] = json!(usage);
                }
            }
            Outcome::Fail { error, retry_after_ms } => {
                item["outcome"] = json!("fail");
                item["error"] = error.clone();
                if let Some(ms) = retry_after_ms {
                    item["retry_after_ms"] = json!(ms);
                }
            }
            Outcome::Release => item["outcome"] = json!("release"),
            Outcome::Dropped => return None,
        }
        Some(item)
    }
}

/// The error code of an exit code.
pub fn code_of_exit(exit: i32) -> String {
    match exit {
        64..=66 => "INVALID_INPUT".into(),
        69 | 75 => "SERVICE_UNAVAILABLE".into(),
        77 => "PERMISSION_DENIED".into(),
        124 => "TIMEOUT".into(),
        other => format!("EXIT_{other}"),
    }
}

/// What a child that ended by itself with an exit code has to say.
pub fn of_exit(exit: i32, stdout: &[u8], stderr: &[u8], output: Output) -> Outcome {
    if exit == 0 {
        return of_output(stdout, stderr, output);
    }
    // A command may name its own error, so that it can say RATE_LIMITED or ask for a pause.
    if output == Output::Json
        && let Ok(answer) = parse(stdout)
        && let Some(code) = answer["error"]["code"].as_str()
        && is_code(code)
    {
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        let message = if message.is_empty() { format!("exit code {exit}") } else { message.into() };
        let mut error = json!({ "code": code, "message": message });
        let mut detail = json!({ "exit_code": exit });
        if !answer["error"]["detail"].is_null() {
            detail["detail"] = answer["error"]["detail"].clone();
        }
        let stderr = clean(stderr);
        if !stderr.is_empty() {
            detail["stderr"] = json!(stderr);
        }
        error["detail"] = detail;
        // A pause that is longer than any may be would be refused, and the failure with it.
        let longest = MAX_DELAY_MS.unsigned_abs();
        let retry_after_ms = answer["retry_after_ms"].as_u64().map(|ms| ms.min(longest));
        return Outcome::Fail { error, retry_after_ms };
    }
    let message = format!("the command ended with exit code {exit}");
    Outcome::fail(&code_of_exit(exit), message, stderr, json!({ "exit_code": exit }))
}

/// What a child that was ended by a signal has to say.
pub fn of_signal(signal: i32, stderr: &[u8]) -> Outcome {
    let message = format!("the command was ended by signal {signal}");
    Outcome::fail(&format!("SIGNAL_{signal}"), message, stderr, json!({ "signal": signal }))
}

fn of_output(stdout: &[u8], stderr: &[u8], output: Output) -> Outcome {
    let refuse = |what: String| {
        let begin = clean(&stdout[..stdout.len().min(1_024)]);
        Outcome::fail(
            INVALID_OUTPUT,
            what,
            &[],
            json!({ "stdout": begin, "stderr": clean(stderr) }),
        )
    };
    match output {
        Output::Text => match std::str::from_utf8(stdout) {
            Ok(text) if text.contains('\0') => refuse("the output holds a NUL character".into()),
            Ok(text) => Outcome::complete(json!(text.strip_suffix('\n').unwrap_or(text))),
            Err(error) => {
                refuse(format!("the output is not UTF-8 from byte {}", error.valid_up_to()))
            }
        },
        Output::Json if stdout.iter().all(u8::is_ascii_whitespace) => {
            Outcome::complete(Value::Null)
        }
        Output::Json => match parse(stdout) {
            Ok(value) => Outcome::complete(value),
            Err(error) => refuse(format!(
                "the output is no JSON: {error}. Print one JSON value and nothing else on standard \
                 output (logs belong on standard error), or start the worker with --output text"
            )),
        },
    }
}

/// Whether a text may be the code of an error.
fn is_code(code: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    !code.is_empty() && code.len() <= 100 && code.chars().all(is_plain)
}

/// Text that a database keeps and that is not much larger as JSON: no control characters.
fn clean(bytes: &[u8]) -> String {
    let is_bad = |c: char| c.is_control() && !['\n', '\t', '\r'].contains(&c);
    String::from_utf8_lossy(bytes).replace(is_bad, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(outcome: &Outcome) -> String {
        match outcome {
            Outcome::Fail { error, .. } => error["code"].as_str().unwrap().to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_exit_code_has_its_error_code() {
        for (exit, expected) in [
            (1, "EXIT_1"),
            (2, "EXIT_2"),
            (64, "INVALID_INPUT"),
            (65, "INVALID_INPUT"),
            (66, "INVALID_INPUT"),
            (69, "SERVICE_UNAVAILABLE"),
            (75, "SERVICE_UNAVAILABLE"),
            (77, "PERMISSION_DENIED"),
            (124, "TIMEOUT"),
            (255, "EXIT_255"),
        ] {
            assert_eq!(code(&of_exit(exit, b"", b"", Output::Json)), expected, "{exit}");
        }
        assert_eq!(code(&of_signal(9, b"")), "SIGNAL_9");
    }

    #[test]
    fn a_result_is_json_or_text_or_nothing() {
        let json = |out: &[u8]| of_exit(0, out, b"", Output::Json);
        assert_eq!(json(b"{\"a\": 1}\n"), Outcome::complete(json!({ "a": 1 })));
        assert_eq!(json(b" \n"), Outcome::complete(Value::Null));
        let text = of_exit(0, b"hi {\n", b"", Output::Text);
        assert_eq!(text, Outcome::complete(json!("hi {")));
        for (out, output) in [(&b"\xff"[..], Output::Text), (b"a\0", Output::Text)] {
            assert_eq!(code(&of_exit(0, out, b"", output)), INVALID_OUTPUT);
        }
    }

    #[test]
    fn output_that_is_no_json_is_refused_with_its_position() {
        let Outcome::Fail { error, .. } = of_exit(0, b"{}\n  oops", b"log", Output::Json) else {
            panic!("it was accepted")
        };
        assert_eq!(error["code"], INVALID_OUTPUT);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("line 2, column 3"), "{message}");
        assert_eq!(error["detail"]["stderr"], "log");
    }

    #[test]
    fn a_command_may_name_its_own_error() {
        let out = br#"{"error": {"code": "RATE_LIMITED", "message": "slow"}, "retry_after_ms": 5}"#;
        let Outcome::Fail { error, retry_after_ms } = of_exit(1, out, b"", Output::Json) else {
            panic!("it was completed")
        };
        assert_eq!((error["code"].as_str(), retry_after_ms), (Some("RATE_LIMITED"), Some(5)));
        let out = br#"{"error": {"code": "X"}, "retry_after_ms": 18446744073709551615}"#;
        let Outcome::Fail { retry_after_ms, .. } = of_exit(1, out, b"", Output::Json) else {
            panic!("it was completed")
        };
        assert_eq!(retry_after_ms, u64::try_from(MAX_DELAY_MS).ok());
        let odd = of_exit(1, br#"{"error": {"code": "no spaces"}}"#, b"", Output::Json);
        assert_eq!(code(&odd), "EXIT_1");
    }

    #[test]
    fn the_end_of_standard_error_is_kept_in_what_the_server_takes() {
        let noise = [b"\x00\x1b\"\\".repeat(16 * 1024), b"\nlast line\n\n".to_vec()].concat();
        let outcome = of_exit(1, b"", &noise, Output::Json);
        let Outcome::Fail { error, .. } = outcome else { panic!("it was completed") };
        assert!(error["message"].as_str().unwrap().ends_with(": last line"));
        assert!(error["detail"].to_string().len() < 256 * 1024);
        assert!(!error.to_string().contains("\\u0000"));
    }
}
