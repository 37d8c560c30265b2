//! What the caller wants measured, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
Usage: store-bench [--quick | --smoke] [--engine sqlite|postgres] [--only NAME] [--folder PATH]
                   [--snapshot-seconds N] [--shape CALLERS,BATCH,TASKS] [--alter FILE]

  --quick              about a minute an engine; without it about ten
  --smoke              the smallest sizes: shows that everything runs, and no figures
  --engine NAME        only this database; both otherwise
  --only NAME          reference, hot, kept, group, claim, snapshot, disk, latency, http, crowd,
                       steps, wake, flow, inference or message; may be repeated
  --folder PATH        where SQLite's files go; must be on a real disk
  --snapshot-seconds N for how long the old snapshot is held
  --shape C,B,N        only this shape of load in the part `hot`
  --alter FILE         SQL to change our schema with before measuring: what does a trigger cost?

PostgreSQL's superuser URL is read from WINDLASS_TEST_POSTGRES: see scripts/bench-store.";

const PARTS: [&str; 15] = [
    "reference",
    "hot",
    "kept",
    "group",
    "claim",
    "snapshot",
    "disk",
    "latency",
    "http",
    "crowd",
    "steps",
    "wake",
    "flow",
    "inference",
    "message",
];

/// Which database.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Files in this folder.
    Sqlite { folder: PathBuf, alter: String },
    /// Databases on this server.
    Postgres { url: String, alter: String },
}

impl Engine {
    pub fn name(&self) -> &'static str {
        match self {
            Engine::Sqlite { .. } => "SQLite",
            Engine::Postgres { .. } => "PostgreSQL",
        }
    }
}

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Sizes {
    pub name: &'static str,
    /// How often ours and the floor take turns.
    pub rounds: usize,
    /// Callers, batch, tasks a round.
    pub shapes: Vec<(usize, usize, usize)>,
    /// Tasks a round beside the floor with history and indexes.
    pub kept_tasks: usize,
    /// Tasks a round with 32 callers that submit one at a time.
    pub group_tasks: usize,
    pub finished: usize,
    pub not_due: usize,
    /// Claims of one and claims of a hundred in each round.
    pub claims: (usize, usize),
    pub snapshot: Duration,
    pub snapshot_tasks: usize,
    pub disk_tasks: usize,
    /// Single commits and syncs.
    pub commits: usize,
    /// Submits to an idle worker.
    pub latencies: usize,
    /// Batches of each connection.
    pub http_batches: usize,
    /// Sessions and waits that are open at once.
    pub crowd: (usize, usize),
    /// For how long they are watched.
    pub crowd_watch: Duration,
    /// Tasks of ten steps.
    pub workflows: usize,
    /// Steps of one task.
    pub long_task: usize,
    /// How often each kind of wait is woken.
    pub wakes: usize,
    /// Lifecycles with and without limits in each round.
    pub flow_tasks: usize,
    /// Of the venture beside which others want their turn.
    pub flow_backlog: usize,
    /// Idle requests to each kind of provider.
    pub inferences: usize,
    /// Streams at once, and the deltas of each.
    pub streams: (usize, usize),
    /// Waits that are open when a provider dies.
    pub waiters: usize,
}

impl Sizes {
    fn full() -> Sizes {
        Sizes {
            name: "full",
            rounds: 5,
            shapes: vec![
                (1, 1, 1_000),
                (1, 10, 5_000),
                (1, 100, 20_000),
                (1, 1_000, 30_000),
                (32, 1, 6_400),
                (32, 10, 16_000),
                (32, 100, 32_000),
                (32, 1_000, 64_000),
            ],
            kept_tasks: 30_000,
            group_tasks: 12_800,
            finished: 1_000_000,
            not_due: 100_000,
            claims: (200, 50),
            snapshot: Duration::from_secs(120),
            snapshot_tasks: 20_000,
            disk_tasks: 50_000,
            commits: 2_000,
            latencies: 1_000,
            http_batches: 20,
            crowd: (1_000, 10_000),
            crowd_watch: Duration::from_secs(20),
            workflows: 1_000,
            long_task: 1_000,
            wakes: 40,
            flow_tasks: 60_000,
            flow_backlog: 10_000,
            inferences: 500,
            streams: (64, 200),
            waiters: 2_000,
        }
    }

    fn quick() -> Sizes {
        Sizes {
            name: "quick",
            rounds: 3,
            shapes: vec![
                (1, 1, 100),
                (1, 10, 600),
                (1, 100, 4_000),
                (1, 1_000, 6_000),
                (32, 1, 960),
                (32, 100, 6_400),
            ],
            kept_tasks: 10_000,
            group_tasks: 3_200,
            finished: 100_000,
            not_due: 10_000,
            claims: (50, 10),
            snapshot: Duration::from_secs(20),
            snapshot_tasks: 10_000,
            disk_tasks: 8_000,
            commits: 500,
            latencies: 200,
            http_batches: 5,
            crowd: (1_000, 10_000),
            crowd_watch: Duration::from_secs(10),
            workflows: 1_000,
            long_task: 1_000,
            wakes: 40,
            flow_tasks: 30_000,
            flow_backlog: 10_000,
            inferences: 100,
            streams: (64, 200),
            waiters: 2_000,
        }
    }

    fn smoke() -> Sizes {
        Sizes {
            name: "smoke",
            rounds: 1,
            shapes: vec![(1, 1, 3), (1, 10, 20), (4, 5, 40)],
            kept_tasks: 1_000,
            group_tasks: 64,
            finished: 500,
            not_due: 50,
            claims: (3, 1),
            snapshot: Duration::ZERO,
            snapshot_tasks: 200,
            disk_tasks: 200,
            commits: 5,
            latencies: 20,
            http_batches: 1,
            crowd: (10, 100),
            crowd_watch: Duration::from_secs(1),
            workflows: 20,
            long_task: 60,
            wakes: 2,
            flow_tasks: 200,
            flow_backlog: 200,
            inferences: 10,
            streams: (4, 10),
            waiters: 20,
        }
    }
}

/// What the command line says.
pub struct Arguments {
    pub engines: Vec<Engine>,
    pub sizes: Sizes,
    only: Vec<String>,
}

impl Arguments {
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut sizes = Sizes::full();
        let (mut wanted, mut only, mut folder, mut seconds) = (None, Vec::new(), None, None);
        let (mut shape, mut alter) = (None, String::new());
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => sizes = Sizes::quick(),
                "--smoke" => sizes = Sizes::smoke(),
                "--engine" => wanted = Some(value()?),
                "--only" => only.push(value()?),
                "--folder" => folder = Some(PathBuf::from(value()?)),
                "--snapshot-seconds" => {
                    let number = value()?.parse().map_err(|_| "how many seconds?")?;
                    seconds = Some(Duration::from_secs(number));
                }
                "--shape" => shape = Some(read_shape(&value()?)?),
                "--alter" => {
                    alter = std::fs::read_to_string(value()?).map_err(|e| e.to_string())?;
                }
                "--help" => return Err("measures the store".into()),
                _ => return Err(format!("{word} is not understood")),
            }
        }
        if let Some(unknown) = only.iter().find(|name| !PARTS.contains(&name.as_str())) {
            return Err(format!("there is no part {unknown}"));
        }
        if let Some(seconds) = seconds {
            sizes.snapshot = seconds;
        }
        if let Some(shape) = shape {
            sizes.shapes = vec![shape];
        }
        let engines = engines(wanted.as_deref(), folder, alter)?;
        Ok(Arguments { engines, sizes, only })
    }

    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }
}

fn read_shape(text: &str) -> Result<(usize, usize, usize), String> {
    let numbers: Vec<usize> = text.split(',').filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [callers, batch, tasks] if callers > 0 && (1..=1_000).contains(&batch) => {
            Ok((callers, batch, tasks))
        }
        _ => Err(format!("{text} is no shape: callers, batch (1,000 at most), tasks")),
    }
}

fn engines(
    wanted: Option<&str>,
    folder: Option<PathBuf>,
    alter: String,
) -> Result<Vec<Engine>, String> {
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    let sqlite = || Engine::Sqlite { folder, alter: alter.clone() };
    let postgres = || {
        let url = std::env::var("WINDLASS_TEST_POSTGRES");
        url.map(|url| Engine::Postgres { url, alter: alter.clone() }).map_err(|_| {
            "WINDLASS_TEST_POSTGRES is not set: use scripts/bench-store, or put \
             scripts/with-postgres in front of your command"
                .to_owned()
        })
    };
    match wanted {
        Some("sqlite") => Ok(vec![sqlite()]),
        Some("postgres") => Ok(vec![postgres()?]),
        Some(other) => Err(format!("there is no engine {other}")),
        None => Ok(vec![postgres()?, sqlite()]),
    }
}
