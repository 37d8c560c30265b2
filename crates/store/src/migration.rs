//! Migrations: numbered files with up and down, in the binary, the same numbers on both engines.
//!
//! Invariant: each runs in one transaction together with its row in `schema_version`, so a crash
//! leaves it done or not begun. Many nodes may start at once: one migrates, the others wait.
//! A file that begins with `-- breaking` makes programs that do not know it refuse to serve.

use crate::error::{Error, Result};
use crate::statement;
use crate::statement::Dialect;
use crate::store::Store;
use crate::tx::{Call, Tx};
use std::sync::OnceLock;
use windlass_domain::json;
use windlass_domain::time::Timestamp;

/// One step of the schema.
pub struct Migration {
    /// Its number, from 1.
    pub version: i64,
    /// Its file's name without number.
    pub name: &'static str,
    sqlite: [&'static str; 2],
    postgres: [&'static str; 2],
}

macro_rules! migration {
    ($version:literal, $name:literal, $file:literal) => {
        Migration {
            version: $version,
            name: $name,
            sqlite: [
                include_str!(concat!("../migrations/sqlite/", $file, ".up.sql")),
                include_str!(concat!("../migrations/sqlite/", $file, ".down.sql")),
            ],
            postgres: [
                include_str!(concat!("../migrations/postgres/", $file, ".up.sql")),
                include_str!(concat!("../migrations/postgres/", $file, ".down.sql")),
            ],
        }
    };
}

/// Every migration, oldest first.
pub static MIGRATIONS: &[Migration] = &[
    migration!(1, "task", "0001_task"),
    migration!(2, "service", "0002_service"),
    migration!(3, "step", "0003_step"),
    migration!(4, "wait", "0004_wait"),
    migration!(5, "trouble", "0005_trouble"),
    migration!(6, "approval", "0006_approval"),
    migration!(7, "eager", "0007_eager"),
    migration!(8, "log_removed", "0008_log_removed"),
    migration!(9, "agent", "0009_agent"),
    migration!(10, "flow", "0010_flow"),
    migration!(11, "doubt", "0011_doubt"),
    migration!(12, "submit_policy", "0012_submit_policy"),
    migration!(15, "signal", "0015_signal"),
    migration!(20, "limit_version", "0020_limit_version"),
    migration!(21, "submit_limit", "0021_submit_limit"),
    migration!(22, "worker_type", "0022_worker_type"),
    migration!(23, "share_limits", "0023_share_limits"),
    migration!(24, "callee_limits", "0024_callee_limits"),
    migration!(30, "delta", "0030_delta"),
    migration!(31, "pins", "0031_pins"),
    migration!(32, "usage", "0032_usage"),
    migration!(33, "response", "0033_response"),
    migration!(34, "providing", "0034_providing"),
    migration!(35, "one_pass", "0035_one_pass"),
    migration!(40, "registry", "0040_registry"),
    migration!(41, "delegation", "0041_delegation"),
    migration!(45, "message", "0045_message"),
    migration!(46, "audit", "0046_audit"),
    migration!(50, "readable", "0050_readable"),
    migration!(51, "audit_order", "0051_audit_order"),
    migration!(52, "ending", "0052_ending"),
    migration!(53, "repeat", "0053_repeat"),
    migration!(54, "letter", "0054_letter"),
    migration!(55, "trace", "0055_trace"),
    migration!(56, "contract", "0056_contract"),
    migration!(57, "lean", "0057_lean"),
    migration!(58, "run", "0058_run"),
    migration!(60, "words", "0060_words"),
    migration!(61, "kept", "0061_kept"),
    migration!(62, "turn", "0062_turn"),
    migration!(63, "instant", "0063_instant"),
    migration!(64, "once", "0064_once"),
    migration!(65, "settled", "0065_settled"),
    migration!(66, "rules", "0066_rules"),
];

impl Migration {
    fn up(&self, dialect: Dialect) -> &'static str {
        self.text(dialect)[0]
    }

    fn down(&self, dialect: Dialect) -> &'static str {
        self.text(dialect)[1]
    }

    fn text(&self, dialect: Dialect) -> &[&'static str; 2] {
        match dialect {
            Dialect::Sqlite => &self.sqlite,
            Dialect::Postgres => &self.postgres,
        }
    }

    fn is_breaking(&self, dialect: Dialect) -> bool {
        self.up(dialect).starts_with("-- breaking")
    }

    fn checksum(&self, dialect: Dialect) -> String {
        json::digest(&serde_json::Value::String(self.up(dialect).to_owned()))
    }
}

/// The version and the checksum of every migration, computed once for a process: each step up
/// compares all that the database has.
fn checksums(dialect: Dialect) -> &'static [(i64, String)] {
    static SQLITE: OnceLock<Vec<(i64, String)>> = OnceLock::new();
    static POSTGRES: OnceLock<Vec<(i64, String)>> = OnceLock::new();
    let known = match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    };
    let compute = || MIGRATIONS.iter().map(|m| (m.version, m.checksum(dialect))).collect();
    known.get_or_init(compute)
}

/// A migration that the database has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns of `schema_version`.
pub struct Applied {
    pub version: i64,
    pub name: String,
    pub breaking: bool,
    pub checksum: String,
    pub applied_at: Timestamp,
}

/// What the database has and what this program has beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What the database has, oldest first.
    pub applied: Vec<Applied>,
    /// The versions that `up` would apply.
    pub missing: Vec<i64>,
}

statement!(CREATE, "schema/create");
statement!(LOCK, "schema/lock");
statement!(EXISTS, "schema/exists");
statement!(REBASE_LOG, "schema/rebase_log");
statement!(LOG_IS_AHEAD, "schema/log_is_ahead");
statement!(shared APPLIED, "schema/applied");
statement!(shared RECORD, "schema/record");
statement!(shared FORGET, "schema/forget");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&LOCK, &CREATE, &EXISTS, &APPLIED, &RECORD, &FORGET, &REBASE_LOG, &LOG_IS_AHEAD];

/// The newest version this program knows.
pub fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |m| m.version)
}

/// Brings the schema up to the newest version; returns the versions it applied. A database that
/// was restored from a dump gets its log in order.
pub async fn up(store: &Store) -> Result<Vec<i64>> {
    let mut done = Vec::new();
    // One look for all: a node that starts on a current schema need not ask for every version. It
    // writes nothing, so that a first migration that fails leaves nothing.
    let found = status(store).await?;
    check(&found.applied, store.dialect())?;
    refuse_newer(&found.applied)?;
    for migration in MIGRATIONS.iter().filter(|m| found.missing.contains(&m.version)) {
        let applied = store.write("migrate_up", move |tx| up_one(tx, migration)).await?;
        if applied {
            tracing::info!(version = migration.version, name = migration.name, "migrated up");
            done.push(migration.version);
        }
    }
    let rebased = store.write("rebase_log", |tx| {
        lock(tx)?;
        let rows = tx.run(Call::one(&REBASE_LOG, vec![]))?;
        rows.first().map_or(Ok(None), |row| row.maybe(0, |r, i| r.int(i)))
    });
    if let Some(base) = rebased.await? {
        tracing::warn!(base, "the database was restored from a dump; its log goes on from here");
    }
    Ok(done)
}

/// One node migrates, however long it takes; the others wait for it.
fn lock(tx: &mut dyn Tx) -> Result<()> {
    tx.script(LOCK.text(tx.dialect()))
}

/// What the database has, under the lock, if this program may change it.
fn begin(tx: &mut dyn Tx) -> Result<Vec<Applied>> {
    lock(tx)?;
    tx.run(Call::one(&CREATE, vec![]))?;
    let applied = read_applied(tx)?;
    check(&applied, tx.dialect())?;
    refuse_newer(&applied)?;
    Ok(applied)
}

fn up_one(tx: &mut dyn Tx, migration: &Migration) -> Result<bool> {
    let applied = begin(tx)?;
    if applied.iter().any(|a| a.version == migration.version) {
        return Ok(false);
    }
    let dialect = tx.dialect();
    tx.script(migration.up(dialect))?;
    let now = tx.now()?;
    tx.run(Call::one(
        &RECORD,
        vec![
            migration.version.into(),
            migration.name.into(),
            migration.is_breaking(dialect).into(),
            migration.checksum(dialect).into(),
            now.into(),
        ],
    ))?;
    Ok(true)
}

/// Takes the schema down to `target`, losing what the later versions held; returns the versions
/// it removed.
pub async fn down(store: &Store, target: i64) -> Result<Vec<i64>> {
    let mut done = Vec::new();
    for migration in MIGRATIONS.iter().rev().filter(|m| m.version > target) {
        let removed = store.write("migrate_down", move |tx| down_one(tx, migration)).await?;
        if removed {
            tracing::info!(version = migration.version, name = migration.name, "migrated down");
            done.push(migration.version);
        }
    }
    Ok(done)
}

fn down_one(tx: &mut dyn Tx, migration: &Migration) -> Result<bool> {
    let applied = begin(tx)?;
    if !applied.iter().any(|a| a.version == migration.version) {
        return Ok(false);
    }
    let text = migration.down(tx.dialect());
    tx.script(text)?;
    tx.run(Call::one(&FORGET, vec![migration.version.into()]))?;
    Ok(true)
}

/// What the database has.
pub async fn status(store: &Store) -> Result<Status> {
    let applied = store
        .read("migrate_status", |tx| {
            let exists = tx.run(Call::one(&EXISTS, vec![]))?;
            if exists.first().is_some_and(|row| row.bool(0).unwrap_or(false)) {
                read_applied(tx)
            } else {
                Ok(Vec::new())
            }
        })
        .await?;
    let has = |version| applied.iter().any(|a: &Applied| a.version == version);
    let missing = MIGRATIONS.iter().map(|m| m.version).filter(|&v| !has(v)).collect();
    Ok(Status { applied, missing })
}

/// What is missing where there is no database yet: everything.
pub fn missing_all() -> Status {
    let missing = MIGRATIONS.iter().map(|migration| migration.version).collect();
    Status { applied: Vec::new(), missing }
}

/// Refuses to serve on a schema that this program does not fit: too old, changed under our feet,
/// or with a breaking migration that this program does not know. Nodes repeat it while they run.
pub async fn require_current(store: &Store) -> Result<()> {
    let status = status(store).await?;
    check(&status.applied, store.dialect())?;
    if status.missing.is_empty() {
        return require_log(store).await;
    }
    let found = status.applied.last().map_or(0, |a| a.version);
    Err(Error::OlderSchema { found, needed: newest() })
}

/// A log from the future would be read by nobody.
async fn require_log(store: &Store) -> Result<()> {
    let body = |tx: &mut dyn Tx| {
        let rows = tx.run(Call::one(&LOG_IS_AHEAD, vec![]))?;
        rows.first().map_or(Ok(false), |row| row.bool(0))
    };
    if !store.read("log_is_ahead", body).await? {
        return Ok(());
    }
    Err(Error::Configuration(
        "the database was restored from a dump into a PostgreSQL cluster with lower transaction \
         numbers, so new transitions would not be read: run `windlass migrate up`"
            .into(),
    ))
}

fn check(applied: &[Applied], dialect: Dialect) -> Result<()> {
    for a in applied {
        match checksums(dialect).iter().find(|(version, _)| *version == a.version) {
            None if a.breaking => {
                return Err(Error::NewerSchema { found: a.version, known: newest() });
            }
            None => {}
            Some((_, checksum)) if *checksum != a.checksum => {
                return Err(Error::Foreign(format!(
                    "migration {} ({}) in the database is not the one in this program: the \
                     database was made by another build; use that build, or restore a backup",
                    a.version, a.name
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A schema with steps that this program does not know may be served, but not changed.
fn refuse_newer(applied: &[Applied]) -> Result<()> {
    match applied.last() {
        Some(last) if last.version > newest() => {
            Err(Error::NewerSchema { found: last.version, known: newest() })
        }
        _ => Ok(()),
    }
}

fn read_applied(tx: &mut dyn Tx) -> Result<Vec<Applied>> {
    let rows = tx.run(Call::one(&APPLIED, vec![]))?;
    rows.iter()
        .map(|row| {
            Ok(Applied {
                version: row.int(0)?,
                name: row.text(1)?.to_owned(),
                breaking: row.bool(2)?,
                checksum: row.text(3)?.to_owned(),
                applied_at: row.time(4)?,
            })
        })
        .collect()
}
