//! What the database holds in the end: every task and every transition.
//!
//! Invariant: read through the store's own readers, after the servers have stopped, so that what
//! the checker sees is what any later reader sees.

use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;
use windlass_domain::id::LeaseId;
use windlass_domain::profile::Profile;
use windlass_domain::state::{Event, State};
use windlass_store::error::Result;
use windlass_store::store::Store;
use windlass_store::task::{Filter, History, Order, Position, Task, Tasks};
use windlass_store::{postgres, sqlite};

/// A task, as far as the checks need it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task`.
pub struct TaskRow {
    pub id: Uuid,
    pub profile: Profile,
    pub status: State,
    pub payload: serde_json::Value,
    pub result: Option<serde_json::Value>,
    pub attempt: i32,
    pub retry_count: i32,
    pub max_retries: i32,
    pub release_count: i32,
}

impl std::fmt::Display for TaskRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TaskRow { id, status, attempt, retry_count, max_retries, release_count, .. } = self;
        write!(f, "task {id} is {status}: attempt {attempt}, retries {retry_count} of ")?;
        write!(f, "{max_retries}, releases {release_count}, result ")?;
        match &self.result {
            Some(result) => write!(f, "{result}"),
            None => f.write_str("none"),
        }
    }
}

/// A row of the history.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task_history`.
pub struct Moved {
    pub task: Uuid,
    pub seq: i64,
    pub from: Option<State>,
    pub event: Event,
    pub to: State,
    pub lease: Option<Uuid>,
    pub at_ms: i64,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Moved { task, seq, from, event, to, lease, at_ms } = self;
        let from = from.map_or("nothing", State::as_str);
        write!(f, "history {seq} task {task} at {at_ms}: {from} -{event}-> {to}")?;
        lease.map_or(Ok(()), |lease| write!(f, " lease {lease}"))
    }
}

/// The database at the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// Every task.
    pub tasks: BTreeMap<Uuid, TaskRow>,
    /// Every transition, in the order of `seq`.
    pub history: Vec<Moved>,
}

/// How many rows a page has.
const PAGE: usize = 1_000;

impl Dump {
    /// Reads the database that the URL names.
    pub async fn of_url(url: &str) -> Result<Dump> {
        let store = match url.strip_prefix("sqlite:") {
            Some(path) => Store::new(sqlite::open(path, sqlite::Options::default())?),
            None => Store::new(postgres::open(url, postgres::Options::default())?),
        };
        Dump::of_store(store).await
    }

    /// Reads an open database.
    pub async fn of_store(store: Store) -> Result<Dump> {
        let tasks = Tasks::new(store);
        let mut dump = Dump::default();
        let mut after = None;
        loop {
            let page = tasks.list(Filter::default(), Order::Ascending, after, PAGE).await?;
            dump.tasks.extend(page.items.into_iter().map(|task| (task.id.0, row(task))));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut position = Position::default();
        loop {
            let rows = tasks.tail(position, PAGE as i64).await?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            position = *last;
            dump.history.extend(rows.into_iter().map(|(_, row)| moved(row)));
        }
        dump.history.sort_by_key(|row| row.seq);
        Ok(dump)
    }

    /// The history shows digests of leases. Those that workers were given are put back, so that
    /// both witnesses call them the same; the others only have to be told apart.
    pub fn recognise(&mut self, leases: impl IntoIterator<Item = Uuid>) {
        let known = leases.into_iter().map(|lease| (LeaseId(lease).digest().0, lease));
        let known: HashMap<Uuid, Uuid> = known.collect();
        for lease in self.history.iter_mut().filter_map(|row| row.lease.as_mut()) {
            *lease = known.get(lease).copied().unwrap_or(*lease);
        }
    }
}

fn row(task: Task) -> TaskRow {
    TaskRow {
        id: task.id.0,
        profile: task.profile,
        status: task.status,
        payload: task.payload,
        result: task.result,
        attempt: task.attempt,
        retry_count: task.retry_count,
        max_retries: task.max_retries,
        release_count: task.release_count,
    }
}

fn moved(row: History) -> Moved {
    Moved {
        task: row.task_id.0,
        seq: row.seq,
        from: row.from_status,
        event: row.event,
        to: row.to_status,
        lease: row.lease_id.map(|lease| lease.0),
        at_ms: row.at.as_ms(),
    }
}
