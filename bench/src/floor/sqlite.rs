//! The floor on SQLite: prepared statements, one transaction a batch, one writer behind a lock.

use super::all;
use crate::Result;
use crate::load::{ACTOR, QUEUE, RESULT};
use crate::side::Held;
use rusqlite::{Connection, params};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;
use windlass_domain::task::NewTask;

/// The file's one writer.
#[derive(Clone)]
pub struct Floor {
    writer: Arc<Mutex<Connection>>,
    /// Whether each change gets its row of history.
    keeps: bool,
}

/// What the store sets on its own file; the log is copied back as often.
pub(super) const SETTINGS: &str = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;
    PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384; PRAGMA mmap_size = 0;";

/// Makes the file and its tables.
pub fn create(path: &Path) -> Result<()> {
    let connection = Connection::open(path)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(include_str!("../../sql/sqlite/floor.sql"))?;
    Ok(())
}

impl Floor {
    pub fn open(path: &Path, keeps: bool) -> Result<Floor> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SETTINGS)?;
        Ok(Floor { writer: Arc::new(Mutex::new(connection)), keeps })
    }

    /// One transaction.
    fn write<T>(&self, body: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        tokio::task::block_in_place(|| {
            let connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let value = body(&connection)?;
            connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(value)
        })
    }

    /// A change's row of history: of a task, under an id of its own.
    fn keep(
        &self,
        connection: &Connection,
        [id, change]: [&str; 2],
        (from, to, event): (Option<&str>, &str, &str),
        lease: Option<&str>,
        now: i64,
    ) -> Result<()> {
        if self.keeps {
            let text = include_str!("../../sql/sqlite/history.sql");
            let mut history = connection.prepare_cached(text)?;
            history.execute(params![id, change, from, to, event, ACTOR, lease, now])?;
        }
        Ok(())
    }

    pub fn submit(&self, tasks: &[NewTask]) -> Result<()> {
        self.write(|connection| {
            let now = now_ms();
            let spec = include_str!("../../sql/sqlite/submit_spec.sql");
            let mut spec = connection.prepare_cached(spec)?;
            let state = include_str!("../../sql/sqlite/submit_state.sql");
            let mut state = connection.prepare_cached(state)?;
            for task in tasks {
                let mut buffer = Uuid::encode_buffer();
                let id: &str = text(&task.id.0, &mut buffer);
                spec.execute(params![id, QUEUE, task.payload, task.request_digest, now, ACTOR])?;
                state.execute(params![id, QUEUE, now, ACTOR])?;
                self.keep(connection, [id, id], (None, "pending", "submit"), None, now)?;
            }
            Ok(())
        })
    }

    /// One new task that begins in a worker's hands: what a lone submit must write at least, where
    /// history is kept.
    pub fn hand_over(&self, task: &NewTask) -> Result<()> {
        self.write(|connection| {
            let now = now_ms();
            let [lease, change, claim] = [Uuid::new_v4(), Uuid::now_v7(), Uuid::now_v7()];
            let ids = [task.id.0, lease, change, claim].map(|id| id.to_string());
            let [id, lease, change, claim] = ids.each_ref().map(String::as_str);
            let spec = include_str!("../../sql/sqlite/submit_spec.sql");
            connection.prepare_cached(spec)?.execute(params![
                id,
                QUEUE,
                task.payload,
                task.request_digest,
                now,
                ACTOR
            ])?;
            let state = include_str!("../../sql/sqlite/hand_over_state.sql");
            connection
                .prepare_cached(state)?
                .execute(params![id, QUEUE, now, ACTOR, change, lease, claim])?;
            self.keep(connection, [id, id], (None, "pending", "submit"), None, now)?;
            let step = (Some("pending"), "running", "claim");
            self.keep(connection, [id, change], step, Some(lease), now)
        })
    }

    pub fn claim(&self, max: usize) -> Result<Vec<Held>> {
        self.write(|connection| {
            let now = now_ms();
            let mut pick = connection.prepare_cached(include_str!("../../sql/sqlite/pick.sql"))?;
            let picked = pick.query_map(params![QUEUE, max as i64], |row| {
                // The payload is what a worker came for.
                std::hint::black_box(row.get::<_, String>(2)?);
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })?;
            let picked = picked.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut claim =
                connection.prepare_cached(include_str!("../../sql/sqlite/claim.sql"))?;
            let call = Uuid::now_v7().to_string();
            let mut held = Vec::with_capacity(picked.len());
            for (row, id) in picked {
                let (lease, change) = (Uuid::new_v4(), Uuid::now_v7());
                let (mut one, mut two) = (Uuid::encode_buffer(), Uuid::encode_buffer());
                let (lease_text, change_text) = (text(&lease, &mut one), text(&change, &mut two));
                claim.execute(params![row, lease_text, change_text, ACTOR, now, call])?;
                let step = (Some("pending"), "running", "claim");
                self.keep(connection, [&id, change_text], step, Some(lease_text), now)?;
                held.push(Held { id: Uuid::parse_str(&id)?, lease });
            }
            Ok(held)
        })
    }

    pub fn heartbeat(&self, held: &[Held]) -> Result<()> {
        self.write(|connection| {
            let beat = include_str!("../../sql/sqlite/heartbeat.sql");
            let mut beat = connection.prepare_cached(beat)?;
            let now = now_ms();
            let mut written = 0;
            for held in held {
                let (mut one, mut two) = (Uuid::encode_buffer(), Uuid::encode_buffer());
                let (id, lease) = (text(&held.id, &mut one), text(&held.lease, &mut two));
                written += beat.execute(params![id, lease, now])?;
            }
            all(written, held.len())
        })
    }

    pub fn complete(&self, held: &[Held]) -> Result<()> {
        self.write(|connection| {
            let complete = include_str!("../../sql/sqlite/complete.sql");
            let mut complete = connection.prepare_cached(complete)?;
            let now = now_ms();
            let mut written = 0;
            for held in held {
                let (mut one, mut two) = (Uuid::encode_buffer(), Uuid::encode_buffer());
                let mut three = Uuid::encode_buffer();
                let (id, lease) = (text(&held.id, &mut one), text(&held.lease, &mut two));
                let change = Uuid::now_v7();
                let change = text(&change, &mut three);
                written += complete.execute(params![id, lease, change, ACTOR, RESULT, now])?;
                let step = (Some("running"), "completed", "complete");
                self.keep(connection, [id, change], step, Some(lease), now)?;
            }
            all(written, held.len())
        })
    }
}

fn text<'a>(id: &Uuid, buffer: &'a mut [u8; 45]) -> &'a str {
    id.hyphenated().encode_lower(buffer)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}
