//! The demo: a server and workers as real processes, killed with SIGKILL while they work.
//!
//! Invariant: what is said at the end is counted from the tasks' histories, not from what the demo
//! meant to happen.

pub mod agent;

use crate::client::{Call, Client, Patience};
use crate::interrupt::Signals;
use crate::print;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const QUEUE: &str = "demo";
const WORKERS: usize = 4;
/// Short, so that nobody waits long for a takeover.
const LEASE: &str = "2s";
/// What a task does.
const WORK: &str = "cat > /dev/null; sleep 0.5; echo '{\"done\": true}'";
/// When which process is killed, in parts of a second since the start.
const KILLS: [(u64, Victim); 3] =
    [(1_500, Victim::Worker(0)), (3_500, Victim::Worker(1)), (5_500, Victim::Server)];
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy)]
enum Victim {
    Worker(usize),
    Server,
}

/// How the demo runs.
pub struct Options {
    /// How many tasks.
    pub tasks: usize,
    /// Nothing but the summary.
    pub quiet: bool,
}

/// What came of it.
pub struct Summary {
    tasks: usize,
    completed: usize,
    /// Attempts that ended because their worker was gone.
    taken_over: usize,
    /// Tasks with more than one completion.
    twice: usize,
    seconds: f64,
}

impl Summary {
    /// Whether nothing was lost and nothing was finished twice.
    pub fn holds(&self) -> bool {
        self.completed == self.tasks && self.twice == 0
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "tasks": self.tasks, "completed": self.completed, "taken_over": self.taken_over,
                "finished_twice": self.twice, "seconds": self.seconds })
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let lost = self.tasks - self.completed;
        vec![
            String::new(),
            format!("  submitted       {:>4}", self.tasks),
            format!("  completed       {:>4}", self.completed),
            format!("  taken over      {:>4}   their worker was killed half-way", self.taken_over),
            format!("  lost            {lost:>4}"),
            format!("  finished twice  {:>4}", self.twice),
            String::new(),
            format!("Two workers and the server were killed; {:.0} seconds in all.", self.seconds),
        ]
    }
}

struct Stage {
    binary: PathBuf,
    database: String,
    listen: String,
    quiet: bool,
    server: Child,
    workers: Vec<Option<Child>>,
    client: Client,
    started: Instant,
}

/// Why a demo ended before it was over.
pub enum Ended {
    /// It did not go as it should.
    Failed(String),
    /// Somebody ended it, or reads no more: nothing is left but to exit with this code.
    Early(u8),
}

impl From<String> for Ended {
    fn from(told: String) -> Ended {
        Ended::Failed(told)
    }
}

/// Runs the demo.
pub async fn run(options: Options) -> Result<Summary, Ended> {
    in_a_folder(async |folder| play(&options, folder).await).await
}

/// Plays in a temporary folder and leaves nothing behind, also when it is told to end half-way: the
/// play is dropped then, its processes are killed with it, and the folder goes.
async fn in_a_folder<T>(play: impl AsyncFnOnce(&Path) -> Result<T, Ended>) -> Result<T, Ended> {
    let mut signals = Signals::new();
    let folder = std::env::temp_dir().join(format!("windlass-demo-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let played = tokio::select! {
        played = play(&folder) => played,
        number = signals.next() => Err(Ended::Early(u8::try_from(128 + number).unwrap_or(1))),
    };
    let _ = std::fs::remove_dir_all(&folder);
    played
}

async fn play(options: &Options, folder: &Path) -> Result<Summary, Ended> {
    let binary = std::env::current_exe().map_err(|e| e.to_string())?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let listen = listener.local_addr().map_err(|e| e.to_string())?.to_string();
    drop(listener);
    let database = format!("sqlite:{}", folder.join("windlass.db").display());
    let client = Client::new(&format!("http://{listen}"), None).map_err(|e| e.to_string())?;
    let server = serve(&binary, &database, &listen)?;
    let mut stage = Stage {
        binary,
        database,
        listen,
        quiet: options.quiet,
        server,
        workers: Vec::new(),
        client,
        started: Instant::now(),
    };
    stage.ready().await?;
    stage.say(&format!("a server on {} with an embedded database", stage.listen))?;
    let ids = stage.submit(options.tasks).await?;
    stage.say(&format!("{} tasks are submitted; each takes half a second", ids.len()))?;
    stage.started = Instant::now();
    for number in 0..WORKERS {
        let worker = stage.hire(number)?;
        stage.workers.push(Some(worker));
    }
    stage
        .say(&format!("{WORKERS} workers begin, four tasks at once each; a lease lasts {LEASE}"))?;
    stage.watch(ids.len()).await?;
    let seconds = stage.started.elapsed().as_secs_f64();
    let summary = stage.count(&ids, seconds).await?;
    stage.clear().await;
    Ok(summary)
}

fn serve(binary: &Path, database: &str, listen: &str) -> Result<Child, Ended> {
    let mut command = Command::new(binary);
    command.args(["serve", "--database", database, "--listen", listen, "--log", "error"]);
    spawn(command)
}

fn spawn(mut command: Command) -> Result<Child, Ended> {
    // The user's own settings are for the user's own server.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn().map_err(|e| format!("no process could be started: {e}"))?)
}

impl Stage {
    fn hire(&self, number: usize) -> Result<Child, Ended> {
        let mut command = Command::new(&self.binary);
        let (server, name) = (format!("http://{}", self.listen), format!("worker-{}", number + 1));
        command.args(["worker", "--server", &server, "--queue", QUEUE, "--name", &name]);
        command.args(["--slots", "4", "--lease", LEASE, "--log", "error", "--"]);
        command.args(["sh", "-c", WORK]);
        spawn(command)
    }

    async fn ready(&self) -> Result<(), Ended> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.client.try_call(&Call::get("/v1/version")).await;
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > until => return Err(error.to_string().into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn call(&self, call: Call) -> Result<Value, Ended> {
        let answer =
            self.client.call(&call, Patience { tries: 20, longest: Duration::from_secs(1) }).await;
        Ok(answer.map_err(|error| error.to_string())?.body)
    }

    async fn submit(&self, count: usize) -> Result<Vec<String>, Ended> {
        let ids: Vec<String> = (0..count).map(|_| uuid::Uuid::now_v7().to_string()).collect();
        let task = |(n, id)| json!({ "id": id, "queue": QUEUE, "payload": { "number": n } });
        let tasks: Vec<Value> = ids.iter().enumerate().map(task).collect();
        self.call(Call::post("/v1/tasks/batch", json!({ "tasks": tasks }))).await?;
        Ok(ids)
    }

    /// Shows how it goes, and kills, until everything is done.
    async fn watch(&mut self, count: usize) -> Result<(), Ended> {
        let mut kills = KILLS.iter();
        let mut next = kills.next();
        loop {
            if let Some((after, victim)) = next
                && self.started.elapsed() >= Duration::from_millis(*after)
            {
                self.kill(*victim).await?;
                next = kills.next();
            }
            let status = self.call(Call::get("/v1/status")).await?;
            let tasks = &status["tasks"];
            let number = |state: &str| tasks[state].as_u64().unwrap_or(0) as usize;
            let done = number("completed");
            self.draw(count, done, number("running") + number("claimed"), number("retry"))?;
            if done == count && next.is_none() {
                return Ok(());
            }
            if self.started.elapsed() > PATIENCE {
                return Err(format!("only {done} of {count} tasks were done in time").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn kill(&mut self, victim: Victim) -> Result<(), Ended> {
        match victim {
            Victim::Worker(number) => {
                if let Some(mut worker) = self.workers.get_mut(number).and_then(Option::take) {
                    let _ = worker.kill().await;
                }
                self.say(&format!(
                    "worker-{} is killed; its tasks wait for their leases to run out",
                    number + 1
                ))?;
            }
            Victim::Server => {
                let _ = self.server.kill().await;
                self.say("the server is killed")?;
                tokio::time::sleep(Duration::from_millis(500)).await;
                self.server = serve(&self.binary, &self.database, &self.listen)?;
                self.ready().await?;
                self.say("the server is back, with everything that it had acknowledged")?;
            }
        }
        Ok(())
    }

    /// Counted from the histories.
    async fn count(&self, ids: &[String], seconds: f64) -> Result<Summary, Ended> {
        let mut summary =
            Summary { tasks: ids.len(), completed: 0, taken_over: 0, twice: 0, seconds };
        for id in ids {
            let history = self.call(Call::get(format!("/v1/tasks/{id}/history"))).await?;
            let events = history["items"].as_array().cloned().unwrap_or_default();
            let count = |name: &str| events.iter().filter(|e| e["event"] == name).count();
            summary.completed += usize::from(count("complete") > 0);
            summary.twice += usize::from(count("complete") > 1);
            summary.taken_over += count("lose_lease");
        }
        Ok(summary)
    }

    async fn clear(mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.kill().await;
        }
        let _ = self.server.kill().await;
    }

    fn say(&self, text: &str) -> Result<(), Ended> {
        if self.quiet {
            return Ok(());
        }
        let clear = if std::io::stdout().is_terminal() { "\r\x1b[K" } else { "" };
        let seconds = self.started.elapsed().as_secs_f64();
        print::try_part(&format!("{clear}{seconds:5.1} s  {text}\n")).map_err(Ended::Early)
    }

    /// One line that is drawn again and again; only on a terminal.
    fn draw(&self, count: usize, done: usize, run: usize, retry: usize) -> Result<(), Ended> {
        if self.quiet || !std::io::stdout().is_terminal() {
            return Ok(());
        }
        let filled = done * 30 / count.max(1);
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(30 - filled));
        let seconds = self.started.elapsed().as_secs_f64();
        let told = format!("{done}/{count} done, {run} running, {retry} to retry");
        let line = format!("\r\x1b[K{seconds:5.1} s  [{bar}] {told}");
        print::try_part(&line).map_err(Ended::Early)
    }
}
