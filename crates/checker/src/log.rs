//! The clients' log: every call, when it was invoked, and what came back.
//!
//! Invariant: a call is written down before it is sent. A call without an answer in the log is
//! `unknown`: it may have happened, and nobody may assume that it did or did not.
//! Absent: times of the server. A client knows only when it asked and when it was told.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;
use windlass_domain::state::State;
use windlass_store::clock::Clock;

/// A task together with the lease under which somebody speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // The names say it.
pub struct Held {
    pub task: Uuid,
    pub lease: Uuid,
}

/// How a worker ends an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // Named like the outcomes of the API.
pub enum Ending {
    Complete,
    Fail,
    Release,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A new task, under an id that the client made.
    Submit {
        /// That id.
        task: Uuid,
        /// The payload as it was sent.
        payload: serde_json::Value,
    },
    /// A claim; the same `claim` again asks for the same tasks again.
    Claim {
        /// The worker's session.
        session: Uuid,
        /// The claim's id.
        claim: Uuid,
    },
    /// A heartbeat that names these leases.
    Heartbeat {
        /// The worker's session.
        session: Uuid,
        /// What it renews.
        leases: Vec<Held>,
    },
    /// The end of an attempt.
    Finish {
        /// The worker's session.
        session: Uuid,
        /// What is finished, under which lease.
        held: Held,
        /// How.
        ending: Ending,
        /// The result or the error.
        content: serde_json::Value,
    },
    /// A read of one task.
    Show {
        /// Which.
        task: Uuid,
    },
}

/// A task that was handed out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// Which task, under which lease.
    pub held: Held,
    /// Which attempt at it.
    pub attempt: i32,
}

/// A lease that was renewed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Renewed {
    /// Which.
    pub held: Held,
    /// The database's time of the renewal, if the answer allows to tell.
    pub at_ms: Option<i64>,
}

/// What a successful answer said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The task exists.
    Submitted {
        /// It existed before.
        duplicate: bool,
    },
    /// These tasks are the worker's now.
    Claimed(Vec<Handed>),
    /// The heartbeat's outcome.
    Beaten {
        /// Renewed leases.
        renewed: Vec<Renewed>,
        /// Leases that are lost, or whose task was cancelled.
        lost: Vec<Held>,
        /// Tasks that the session holds and did not name.
        unnamed: Vec<Handed>,
    },
    /// The attempt's end was accepted, and the task stands here now.
    Finished(State),
    /// The task as it is.
    Shown {
        /// Where it stands.
        status: State,
        /// Its result.
        result: Option<serde_json::Value>,
    },
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Ok(Answer),
    /// It was refused, and changed nothing.
    Failed {
        /// HTTP status.
        status: u16,
        /// The problem's code.
        code: String,
    },
    /// Nobody knows.
    Unknown {
        /// Why not.
        why: String,
    },
}

/// One call, from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Whose call.
    pub client: String,
    /// Which node was asked.
    pub node: String,
    /// Where in the logs it begins, such as `worker-1.log:17`.
    pub place: String,
    /// When it was sent.
    pub invoked_ms: i64,
    /// When the answer, or the news that none will come, arrived; for ever if the client died.
    pub returned_ms: i64,
    /// What was asked.
    pub operation: Operation,
    /// What came of it.
    pub outcome: Outcome,
}

impl Call {
    /// The answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Ok(answer) => Some(answer),
            _ => None,
        }
    }

    /// The tasks that this call handed out.
    pub fn handed(&self) -> &[Handed] {
        match self.answer() {
            Some(Answer::Claimed(handed)) => handed,
            Some(Answer::Beaten { unnamed, .. }) => unnamed,
            _ => &[],
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |json: serde_json::Result<String>| json.unwrap_or_default();
        let Call { place, client, node, invoked_ms, returned_ms, operation, outcome } = self;
        let operation = text(serde_json::to_string(operation));
        let outcome = text(serde_json::to_string(outcome));
        let end = if *returned_ms == i64::MAX { "…".into() } else { returned_ms.to_string() };
        write!(f, "{place} {client} at {node} {invoked_ms}..{end} {operation} -> {outcome}")
    }
}

/// A line of a log file.
#[derive(Serialize, Deserialize)]
struct Line {
    call: u64,
    client: String,
    at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invoked: Option<(String, Operation)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    returned: Option<Outcome>,
}

/// A log that is being written. Lines go straight to the operating system: a killed client leaves
/// everything that it had begun.
pub struct Log {
    file: Mutex<File>,
    next: AtomicU64,
    path: PathBuf,
}

impl Log {
    /// A new log in a new file.
    pub fn create(path: &Path) -> std::io::Result<Log> {
        let file = File::options().create_new(true).append(true).open(path)?;
        Ok(Log { file: Mutex::new(file), next: AtomicU64::new(0), path: path.to_owned() })
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a call begins; the number ends it.
    pub fn invoked(&self, client: &str, node: &str, operation: Operation) -> u64 {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(client, call, Some((node.to_owned(), operation)), None);
        call
    }

    /// Notes how a call ended.
    pub fn returned(&self, client: &str, call: u64, outcome: Outcome) {
        self.write(client, call, None, Some(outcome));
    }

    fn write(
        &self,
        client: &str,
        call: u64,
        invoked: Option<(String, Operation)>,
        returned: Option<Outcome>,
    ) {
        let client = client.to_owned();
        let mut file = self.file.lock().expect("no writer of the log panics");
        let line = Line { call, client, at_ms: now_ms(), invoked, returned };
        let mut text = serde_json::to_string(&line).expect("a line is plain data");
        text.push('\n');
        file.write_all(text.as_bytes()).expect("the log can be written");
    }
}

/// Milliseconds since the epoch, as clients see them.
pub fn now_ms() -> i64 {
    Clock::System.now().as_ms()
}

/// Every call in a log file. A last line that a dying client left half-written is no line.
pub fn read(path: &Path) -> std::io::Result<Vec<Call>> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut calls: BTreeMap<u64, Call> = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (i, line) in whole.lines().enumerate() {
        let line: Line = serde_json::from_str(line)?;
        if let Some((node, operation)) = line.invoked {
            let call = Call {
                client: line.client,
                node,
                place: format!("{name}:{}", i + 1),
                invoked_ms: line.at_ms,
                returned_ms: i64::MAX,
                operation,
                outcome: Outcome::Unknown { why: "the log ends before the answer".into() },
            };
            calls.insert(line.call, call);
        } else if let (Some(outcome), Some(call)) = (line.returned, calls.get_mut(&line.call)) {
            call.returned_ms = line.at_ms;
            call.outcome = outcome;
        }
    }
    Ok(calls.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_answer_is_unknown_and_half_a_line_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let log = Log::create(&path).unwrap();
        let task = Uuid::from_u128(1);
        let first = log.invoked("c", "n", Operation::Show { task });
        log.invoked("c", "n", Operation::Show { task });
        let refused = Outcome::Failed { status: 404, code: "not_found".into() };
        log.returned("c", first, refused.clone());
        log.file.lock().unwrap().write_all(b"{\"call\":9,").unwrap();
        let calls = read(&path).unwrap();
        assert_eq!(calls.len(), 2);
        assert_eq!((&calls[0].outcome, &*calls[0].place), (&refused, "a.log:1"));
        assert!(matches!(calls[1].outcome, Outcome::Unknown { .. }));
        assert_eq!((&*calls[1].place, calls[1].returned_ms), ("a.log:2", i64::MAX));
    }
}
