//! What the facts about SQLite share: a fresh file with one table, and jobs run from plain threads.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use windlass_store::error::Result;
use windlass_store::sqlite::{Options, SqliteDatabase, open};
use windlass_store::statement::Statement;
use windlass_store::store::{Database, Job, Lane};
use windlass_store::tx::{Call, Tx};
use windlass_store::value::{Row, Value};

pub const fn sql(text: &'static str) -> Statement {
    Statement::new(text, text, "")
}

pub static INSERT: Statement = sql("INSERT INTO item (key, note) VALUES ($1, $2)");
pub static KEYS: Statement = sql("SELECT key FROM item ORDER BY key");

pub const SCHEMA: &str = "CREATE TABLE item (
    key TEXT PRIMARY KEY,
    note TEXT CONSTRAINT item_note CHECK (note <> 'bad')
) STRICT, WITHOUT ROWID";

/// A database in a directory of its own.
pub struct Fixture {
    pub database: Arc<SqliteDatabase>,
    pub path: PathBuf,
    pub directory: TempDir,
}

/// An open, empty file.
pub fn empty(options: Options) -> Fixture {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    let database = open(&path, options).unwrap();
    Fixture { database, path, directory }
}

/// An open file with the table `item`.
pub fn with_table(options: Options) -> Fixture {
    let fixture = empty(options);
    fixture.write(|tx| tx.script(SCHEMA)).unwrap();
    fixture
}

impl Fixture {
    /// Queues a job; its answer comes through the channel.
    pub fn submit(
        &self,
        lane: Lane,
        body: impl FnMut(&mut dyn Tx) -> Result<()> + Send + 'static,
    ) -> Receiver<Result<()>> {
        self.submit_large(lane, 1, body)
    }

    /// The same, for one that says how many tasks it changes.
    pub fn submit_large(
        &self,
        lane: Lane,
        weight: usize,
        body: impl FnMut(&mut dyn Tx) -> Result<()> + Send + 'static,
    ) -> Receiver<Result<()>> {
        let (answers, answer) = channel();
        self.database.submit(Job {
            name: "test",
            weight,
            lane,
            body: Box::new(body),
            done: Box::new(move |result| drop(answers.send(result))),
        });
        answer
    }

    /// Runs a job and waits for it.
    pub fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        mut body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let slot = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&slot);
        let answer = self.submit(lane, move |tx| {
            *filled.lock().unwrap() = Some(body(tx)?);
            Ok(())
        });
        answer.recv().unwrap()?;
        let value = slot.lock().unwrap().take();
        Ok(value.unwrap())
    }

    pub fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(Lane::Write, body)
    }

    pub fn read<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(Lane::Read, body)
    }

    /// The keys in the table, as a reader sees them.
    pub fn keys(&self) -> Vec<String> {
        texts(&self.read(|tx| tx.run(Call::one(&KEYS, vec![]))).unwrap())
    }

    /// Occupies a lane until the returned sender is used or dropped.
    pub fn occupy(&self, lane: Lane) -> (Sender<()>, Receiver<Result<()>>) {
        let (release, gate) = channel();
        let (entered, inside) = channel();
        let answer = self.submit(lane, move |tx| {
            tx.run(Call::one(&KEYS, vec![]))?;
            // A body may be run again: nobody listens then, and the gate is open.
            if entered.send(()).is_ok() {
                let _ = gate.recv();
            }
            Ok(())
        });
        inside.recv().unwrap();
        (release, answer)
    }
}

/// Inserts a row.
pub fn insert(tx: &mut dyn Tx, key: &str) -> Result<()> {
    let values = vec![key.into(), Value::Null];
    tx.run(Call::one(&INSERT, values)).map(drop)
}

/// The first column of each row.
pub fn texts(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}
