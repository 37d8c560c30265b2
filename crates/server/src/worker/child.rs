//! One child process for one task, in a process group of its own.
//!
//! Invariant: when this is done, the group is gone: the child, its children and theirs. A process
//! that leaves the group on purpose (`setsid`) is beyond reach.
//! Absent: a shell. The command is run as it was given.

use super::assignment::Assignment;
use super::outcome::{self, MAX_OUTPUT_BYTES, MAX_STDERR_BYTES, Outcome, Output};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a group may take to end after a polite signal.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// How long what a child left behind may keep its output open.
const LINGER: Duration = Duration::from_secs(1);

/// Why a child must end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The task was cancelled, or the lease is lost.
    Drop,
    /// The worker ends.
    Release,
}

/// How children are run.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// How long one may take.
    pub timeout: Option<Duration>,
    /// What its standard output holds.
    pub output: Output,
}

enum End {
    Exited(std::io::Result<std::process::ExitStatus>),
    TimedOut,
    TooMuch,
    Stopped(Stop),
}

/// Runs the command for one task. `begun` learns the process group, so that it can be killed
/// when this process must end at once.
pub async fn run(
    recipe: &Recipe,
    assignment: &Assignment,
    environment: Vec<(OsString, OsString)>,
    mut stop: watch::Receiver<Option<Stop>>,
    begun: impl FnOnce(Pid),
) -> Outcome {
    let mut child = match spawn(recipe, environment) {
        Ok(child) => child,
        Err(error) => {
            let message = format!("the command could not be started: {error}");
            return Outcome::fail(outcome::SPAWN_FAILED, message, &[], json!({}));
        }
    };
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        begun(group);
    }
    let feed = feed(&mut child, assignment.input());
    let stdout = Capture::of(child.stdout.take(), Keep::Begin(MAX_OUTPUT_BYTES), None);
    let task_id = assignment.task_id.clone();
    let stderr = Capture::of(child.stderr.take(), Keep::End(MAX_STDERR_BYTES), Some(task_id));
    let too_long = async {
        match recipe.timeout {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        biased;
        status = child.wait() => End::Exited(status),
        () = stdout.overflowed.notified() => End::TooMuch,
        why = stopped(&mut stop) => End::Stopped(why),
        () = too_long => End::TimedOut,
    };
    if let (Some(group), false) = (group, matches!(end, End::Exited(_))) {
        end_group(&mut child, group).await;
    }
    settle(group, [&stdout, &stderr]).await;
    feed.abort();
    judge(end, recipe, &stdout, &stderr)
}

fn judge(end: End, recipe: &Recipe, stdout: &Capture, stderr: &Capture) -> Outcome {
    let (stdout, is_cut) = stdout.taken();
    let stderr = stderr.taken().0;
    let stderr = &stderr[stderr.len().saturating_sub(MAX_STDERR_BYTES)..];
    match end {
        End::Stopped(Stop::Drop) => Outcome::Dropped,
        End::Stopped(Stop::Release) => Outcome::Release,
        End::TimedOut => {
            let ms = recipe.timeout.unwrap_or_default().as_millis();
            let ms = i64::try_from(ms).unwrap_or(i64::MAX);
            let message = format!("the command took longer than {}", crate::print::span(ms));
            Outcome::fail("TIMEOUT", message, stderr, json!({ "timeout_ms": ms }))
        }
        End::TooMuch => too_large(stderr),
        End::Exited(Ok(status)) if status.success() && is_cut => too_large(stderr),
        End::Exited(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => outcome::of_exit(code, &stdout, stderr, recipe.output),
            (None, signal) => outcome::of_signal(signal.unwrap_or(0), stderr),
        },
        End::Exited(Err(error)) => {
            let message = format!("the command's end was not told: {error}");
            Outcome::fail(outcome::SPAWN_FAILED, message, stderr, json!({}))
        }
    }
}

fn too_large(stderr: &[u8]) -> Outcome {
    let message = format!(
        "the command printed more than {MAX_OUTPUT_BYTES} bytes on standard output; keep large \
         results elsewhere and print a reference"
    );
    Outcome::fail(outcome::OUTPUT_TOO_LARGE, message, stderr, json!({ "limit": MAX_OUTPUT_BYTES }))
}

fn spawn(recipe: &Recipe, environment: Vec<(OsString, OsString)>) -> std::io::Result<Child> {
    let (program, arguments) = recipe.command.split_first().ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, "there is no command")
    })?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Writes the task to the child's standard input. A child that does not read it is none of our
/// business.
fn feed(child: &mut Child, input: Vec<u8>) -> JoinHandle<()> {
    let stdin = child.stdin.take();
    tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&input).await;
            let _ = stdin.shutdown().await;
        }
    })
}

async fn stopped(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    let why = stop.wait_for(Option::is_some).await.map(|why| *why);
    match why {
        Ok(Some(why)) => why,
        // Nobody can stop it any more: then nobody will.
        _ => std::future::pending().await,
    }
}

/// Ends a group: politely, then by force.
async fn end_group(child: &mut Child, group: Pid) {
    let _ = kill_process_group(group, Signal::TERM);
    let gone = async {
        let _ = child.wait().await;
        while is_alive(group) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(KILL_AFTER, gone).await.is_err() {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait().await;
    }
}

/// Whether a group has a living member. The dead count for the kernel until somebody collects
/// them, which in a container may be never; so where there is a /proc, it is asked.
fn is_alive(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    let mut is_known = false;
    for process in processes.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // Behind the name, which may hold anything: state, parent, group.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (state, of) = (fields.next(), fields.nth(1));
        is_known = true;
        if of == Some(&*group) && !matches!(state, Some("Z" | "X")) {
            return true;
        }
    }
    !is_known
}

/// Waits until the output is read, and ends whatever the child has left behind in its group.
async fn settle(group: Option<Pid>, captures: [&Capture; 2]) {
    let closed = async {
        for capture in captures {
            capture.closed().await;
        }
    };
    let is_closed = timeout(LINGER, closed).await.is_ok();
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if !is_closed {
        // What is still open now belongs to a process that left the group.
        for capture in captures {
            let _ = timeout(Duration::from_millis(200), capture.closed()).await;
            capture.reader.abort();
        }
    }
}

/// Which part of an output is kept.
#[derive(Clone, Copy)]
enum Keep {
    Begin(usize),
    End(usize),
}

/// What a child prints, read as it comes, within a bound.
struct Capture {
    kept: Arc<Mutex<(Vec<u8>, bool)>>,
    overflowed: Arc<Notify>,
    done: watch::Receiver<bool>,
    reader: JoinHandle<()>,
}

impl Capture {
    fn of<R>(from: Option<R>, keep: Keep, task_id: Option<String>) -> Capture
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        let kept = Arc::new(Mutex::new((Vec::new(), false)));
        let overflowed = Arc::new(Notify::new());
        let (tell, done) = watch::channel(false);
        let (into, overflow) = (kept.clone(), overflowed.clone());
        let reader = tokio::spawn(async move {
            if let Some(mut from) = from {
                let mut chunk = vec![0; 16 * 1024];
                let mut lines = Lines { task_id, line: Vec::new() };
                while let Ok(length @ 1..) = from.read(&mut chunk).await {
                    lines.log(&chunk[..length]);
                    if store(&into, &chunk[..length], keep) {
                        overflow.notify_one();
                    }
                }
                lines.flush();
            }
            let _ = tell.send(true);
        });
        Capture { kept, overflowed, done, reader }
    }

    async fn closed(&self) {
        let _ = self.done.clone().wait_for(|done| *done).await;
    }

    fn taken(&self) -> (Vec<u8>, bool) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *kept)
    }
}

/// Keeps a chunk within the bound; true when an output that must be whole is too long.
fn store(into: &Mutex<(Vec<u8>, bool)>, chunk: &[u8], keep: Keep) -> bool {
    let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
    match keep {
        Keep::Begin(limit) => {
            let room = limit.saturating_sub(kept.0.len());
            kept.0.extend_from_slice(&chunk[..chunk.len().min(room)]);
            kept.1 |= chunk.len() > room;
            kept.1
        }
        Keep::End(limit) => {
            kept.0.extend_from_slice(chunk);
            // Cut only when twice the bound is there, so that a chunk costs no copy of the rest.
            if kept.0.len() > 2 * limit {
                let surplus = kept.0.len() - limit;
                kept.0.drain(..surplus);
                kept.1 = true;
            }
            false
        }
    }
}

/// The child's own log, line by line, into ours.
struct Lines {
    task_id: Option<String>,
    line: Vec<u8>,
}

impl Lines {
    const MAX: usize = 8 * 1024;

    fn log(&mut self, chunk: &[u8]) {
        if self.task_id.is_none() {
            return;
        }
        for &byte in chunk {
            if byte == b'\n' || self.line.len() >= Lines::MAX {
                self.flush();
            }
            if byte != b'\n' {
                self.line.push(byte);
            }
        }
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if let (Some(task_id), false) = (&self.task_id, line.is_empty()) {
            let line = String::from_utf8_lossy(&line);
            tracing::info!(task_id, "stderr: {}", crate::print::safe(line.trim_end()));
        }
    }
}
