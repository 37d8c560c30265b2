//! The environment of a child: what the task says, and what the operator lets through.
//!
//! Invariant: nothing else reaches the child. The worker's own key, the server's keys and the
//! database's URL pass only when they are named one by one: an agent that is talked into printing
//! its environment must not give them away. The lease passes, because the command does the task: it
//! is a right to this one task, for this one attempt.

use super::assignment::Assignment;
use std::ffi::OsString;

/// What a program needs to run at all.
const ALWAYS: &[&str] = &[
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
];

/// What no pattern lets through.
const SECRET: &[&str] =
    &["WINDLASS_KEY", "WINDLASS_KEYS", "WINDLASS_CLUSTER_KEY", "WINDLASS_DATABASE"];

/// The longest checkpoint that goes into a variable: Linux takes 128 KiB for one.
const MAX_CHECKPOINT_BYTES: usize = 64 * 1024;

/// Which variables of the worker pass: names, `PREFIX*`, or `*`.
pub fn passes(name: &str, patterns: &[String]) -> bool {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix) && !SECRET.contains(&name),
        None => name == pattern,
    };
    ALWAYS.iter().any(|pattern| fits(pattern)) || patterns.iter().any(|pattern| fits(pattern))
}

/// The child's whole environment.
pub fn of(
    assignment: &Assignment,
    server: &str,
    patterns: &[String],
    ours: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> =
        ours.filter(|(name, _)| passes(&name.to_string_lossy(), patterns)).collect();
    let mut set = |name: &str, value: String| {
        all.retain(|(known, _)| known != name);
        // A NUL cannot stand in a variable; the server refuses it in names.
        if !value.is_empty() && !value.contains('\0') {
            all.push((name.into(), value.into()));
        }
    };
    let text = |name: &str| assignment.task[name].as_str().unwrap_or_default().to_owned();
    set("WINDLASS_TASK_ID", assignment.task_id.clone());
    set("WINDLASS_TASK_NAME", text("name"));
    set("WINDLASS_QUEUE", text("queue"));
    set("WINDLASS_KIND", text("kind"));
    set("WINDLASS_ATTEMPT", assignment.attempt.to_string());
    set("WINDLASS_CORRELATION_ID", text("correlation_id"));
    set("WINDLASS_SERVER", server.to_owned());
    set("WINDLASS_LEASE_ID", assignment.lease_id.clone());
    let checkpoint = &assignment.task["checkpoint"];
    let checkpoint = if checkpoint.is_null() { String::new() } else { checkpoint.to_string() };
    let fits = checkpoint.len() <= MAX_CHECKPOINT_BYTES;
    set("WINDLASS_CHECKPOINT", if fits { checkpoint } else { String::new() });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assignment() -> Assignment {
        Assignment::read(&json!({
            "task": { "id": "t", "queue": "q", "kind": "job", "checkpoint": { "step": 2 } },
            "lease_id": "secret-lease", "attempt": 3,
        }))
        .unwrap()
    }

    fn names(patterns: &[&str], ours: &[&str]) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        let ours = ours.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let all = of(&assignment(), "http://s", &patterns, ours);
        let is_given = |name: &String| !name.starts_with("WINDLASS_TASK");
        let names = all.iter().map(|(name, _)| name.to_string_lossy().into_owned());
        names.filter(is_given).collect()
    }

    #[test]
    fn only_what_is_named_passes() {
        let ours = ["PATH", "LC_ALL", "AWS_SECRET", "OPENAI_API_KEY", "WINDLASS_KEY"];
        let given = names(&[], &ours);
        assert!(given.contains(&"PATH".into()) && given.contains(&"LC_ALL".into()));
        assert!(!given.contains(&"AWS_SECRET".into()) && !given.contains(&"WINDLASS_KEY".into()));
        assert!(names(&["OPENAI_*"], &ours).contains(&"OPENAI_API_KEY".into()));
    }

    #[test]
    fn no_pattern_lets_our_own_secrets_through_but_their_name_does() {
        let ours = ["WINDLASS_KEY", "WINDLASS_DATABASE", "AWS_SECRET"];
        let given = names(&["*"], &ours);
        assert!(given.contains(&"AWS_SECRET".into()));
        assert!(!given.contains(&"WINDLASS_KEY".into()));
        assert!(names(&["WINDLASS_KEY"], &ours).contains(&"WINDLASS_KEY".into()));
    }

    #[test]
    fn the_task_is_told_and_the_lease_by_its_own_name_only() {
        let all = of(&assignment(), "http://s", &["*".into()], std::iter::empty());
        let all: Vec<String> =
            all.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect();
        assert!(all.contains(&"WINDLASS_ATTEMPT=3".into()), "{all:?}");
        assert!(all.contains(&"WINDLASS_CHECKPOINT={\"step\":2}".into()), "{all:?}");
        assert!(all.contains(&"WINDLASS_LEASE_ID=secret-lease".into()), "{all:?}");
        assert_eq!(all.join(" ").matches("secret-lease").count(), 1);
    }
}
