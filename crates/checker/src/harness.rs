//! The fault harness: real servers and workers as processes, broken under load, then judged.
//!
//! A scenario starts a [`Server`] or two, puts a load on them, breaks something, lets the run
//! [`settle`](crate::load::Load::settle), dumps the database and ends with [`judge`].
//!
//! Invariant: every process that is started here ends with the value that stands for it, also when
//! a test panics.
//! Absent: which faults there are. Each test brings its own.

mod process;
mod summary;

pub use process::{Server, WorkerProcess, binary, free_port};
pub use summary::Summary;

use crate::check::{Run, check};
use crate::dump::Dump;
use crate::{ledger, log};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the load lasts: `WINDLASS_FAULT_SECONDS`, or as long as CI has patience for.
pub fn load_time() -> Duration {
    let seconds = match std::env::var("WINDLASS_FAULT_SECONDS") {
        Ok(text) => text.parse().expect("WINDLASS_FAULT_SECONDS is a whole number"),
        Err(_) => 8,
    };
    Duration::from_secs(seconds)
}

/// How long after the load everything may take to end: leases, backoff and a slow machine.
pub const SETTLE: Duration = Duration::from_secs(60);

/// A folder for the logs of one run. It is kept when the run goes wrong, and named.
pub struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// A fresh one.
    pub fn create(scenario: &str) -> Folder {
        let made = tempfile::Builder::new().prefix(&format!("windlass-{scenario}-")).tempdir();
        Folder { path: made.expect("a temporary folder").keep(), keep: true }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run went as it should: nobody will look at it, unless `WINDLASS_FAULT_KEEP` says so.
    pub fn forget(mut self) {
        self.keep = std::env::var_os("WINDLASS_FAULT_KEEP").is_some();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("the logs of this run are kept in {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Everything that the clients and workers wrote into a folder, beside a dump.
pub fn gather(folder: &Path, dump: Dump) -> std::io::Result<Run> {
    let mut run = Run { dump, ..Run::default() };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("log") => run.calls.extend(log::read(&path)?),
            Some("ledger") => run.effects.extend(ledger::read(&path)?),
            _ => {}
        }
    }
    run.calls.sort_by_key(|call| call.invoked_ms);
    run.effects.sort_by_key(|effect| effect.at_ms);
    let handed = run.calls.iter().flat_map(|call| call.handed());
    run.dump.recognise(handed.map(|handed| handed.held.lease));
    Ok(run)
}

/// The database as text, for people.
fn write_dump(dump: &Dump, path: &Path) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for task in dump.tasks.values() {
        writeln!(file, "{task}, payload {}", task.payload)?;
    }
    dump.history.iter().try_for_each(|row| writeln!(file, "{row}"))?;
    file.flush()
}

/// What the processes of a run said when they panicked: nobody may.
fn panics(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "output") {
            let said = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            let lines = said.lines().filter(|line| line.contains("panicked at"));
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
    }
    Ok(found)
}

/// Prints the summary of a run, and panics with the evidence if it broke a promise.
pub fn judge(scenario: &str, seed: u64, folder: Folder, dump: Dump) -> (Summary, Run) {
    let run = gather(folder.path(), dump).expect("the run's own logs can be read");
    let written = write_dump(&run.dump, &folder.path().join("dump.output"));
    written.expect("the folder is writable");
    let summary = Summary::of(&run);
    println!("{scenario}, seed {seed}: {summary}");
    let panics = panics(folder.path()).expect("the run's own files can be read");
    assert!(panics.is_empty(), "{scenario}: a process panicked:\n{}", panics.join("\n"));
    let violations = check(&run);
    let shown: Vec<String> = violations.iter().take(10).map(ToString::to_string).collect();
    assert!(
        violations.is_empty(),
        "{scenario} with WINDLASS_FAULT_SEED={seed} broke {} promises:\n{}",
        violations.len(),
        shown.join("\n")
    );
    folder.forget();
    (summary, run)
}
