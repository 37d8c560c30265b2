//! What the disk and the databases do at best: the figures that explain all others.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::place::connect;
use crate::table::{Table, rate, whole};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

const CLIENTS: usize = 32;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let mut table = Table::new(&["reference", "a second"]);
    let (name, commits) = match engine {
        Engine::Sqlite { folder, .. } => {
            let syncs = syncs(folder, sizes.commits)?;
            table.row(vec!["fdatasync of 8 kB".into(), whole(syncs)]);
            ("single-row INSERT, committed", sqlite_commits(folder, sizes.commits)?)
        }
        Engine::Postgres { url, .. } => {
            let one = postgres_commits(url, 1, sizes.commits).await?;
            table.row(vec!["single-row INSERT, committed, 1 client".into(), whole(one)]);
            let many = postgres_commits(url, CLIENTS, sizes.commits).await?;
            ("single-row INSERT, committed, 32 clients", many)
        }
    };
    table.row(vec![name.into(), whole(commits)]);
    table.print("Physical references");
    Ok(())
}

fn syncs(folder: &Path, count: usize) -> Result<f64> {
    let mut file = tempfile::tempfile_in(folder)?;
    let page = [7; 8_192];
    // Inside a file that has its size already, as a write-ahead log has.
    file.write_all(&vec![0; page.len() * count])?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let started = Instant::now();
    for _ in 0..count {
        file.write_all(&page)?;
        file.sync_data()?;
    }
    Ok(rate(count, started.elapsed()))
}

fn sqlite_commits(folder: &Path, count: usize) -> Result<f64> {
    let folder = tempfile::tempdir_in(folder)?;
    let file = rusqlite::Connection::open(folder.path().join("reference.db"))?;
    file.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    file.execute_batch("PRAGMA synchronous = FULL; CREATE TABLE reference (text TEXT)")?;
    let mut insert = file.prepare("INSERT INTO reference (text) VALUES (?1)")?;
    let text = "x".repeat(crate::load::PAYLOAD_BYTES);
    let started = Instant::now();
    for _ in 0..count {
        insert.execute([&text])?;
    }
    Ok(rate(count, started.elapsed()))
}

async fn postgres_commits(url: &str, clients: usize, count: usize) -> Result<f64> {
    let admin = connect(url).await?;
    let table = format!("reference_{}", Uuid::new_v4().simple());
    admin.batch_execute(&format!("CREATE TABLE {table} (text text)")).await?;
    let mut ready = Vec::new();
    for _ in 0..clients {
        let client = connect(url).await?;
        client.batch_execute("SET synchronous_commit = on").await?;
        let insert = format!("INSERT INTO {table} (text) VALUES ($1)");
        let insert = client.prepare(&insert).await?;
        ready.push((client, insert));
    }
    let started = Instant::now();
    let mut running: JoinSet<Result<()>> = JoinSet::new();
    for (client, insert) in ready {
        running.spawn(async move {
            let text = "x".repeat(crate::load::PAYLOAD_BYTES);
            for _ in 0..count {
                client.execute(&insert, &[&text]).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    let commits = rate(count * clients, started.elapsed());
    admin.batch_execute(&format!("DROP TABLE {table}")).await?;
    Ok(commits)
}

/// The times of single synced commits, each after a pause: as idle as what stands beside them.
pub async fn commit_times(engine: &Engine, count: usize, idle: Duration) -> Result<Vec<Duration>> {
    match engine {
        Engine::Sqlite { folder, .. } => sqlite_commit_times(folder, count, idle),
        Engine::Postgres { url, .. } => {
            postgres_commit_times(&connect(url).await?, count, idle).await
        }
    }
}

/// On a file of their own.
fn sqlite_commit_times(folder: &Path, count: usize, idle: Duration) -> Result<Vec<Duration>> {
    let folder = tempfile::tempdir_in(folder)?;
    let file = rusqlite::Connection::open(folder.path().join("reference.db"))?;
    file.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    file.execute_batch("PRAGMA synchronous = FULL; CREATE TABLE reference (text TEXT)")?;
    let mut insert = file.prepare("INSERT INTO reference (text) VALUES (?1)")?;
    let text = "x".repeat(crate::load::PAYLOAD_BYTES);
    insert.execute([&text])?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        std::thread::sleep(idle);
        let started = Instant::now();
        insert.execute([&text])?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// The same on PostgreSQL, over its connection.
async fn postgres_commit_times(
    client: &tokio_postgres::Client,
    count: usize,
    idle: Duration,
) -> Result<Vec<Duration>> {
    let table = format!("reference_{}", Uuid::new_v4().simple());
    let create = format!("SET synchronous_commit = on; CREATE TABLE {table} (text text)");
    client.batch_execute(&create).await?;
    let insert = client.prepare(&format!("INSERT INTO {table} (text) VALUES ($1)")).await?;
    let text = "x".repeat(crate::load::PAYLOAD_BYTES);
    client.execute(&insert, &[&text]).await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        tokio::time::sleep(idle).await;
        let started = Instant::now();
        client.execute(&insert, &[&text]).await?;
        times.push(started.elapsed());
    }
    client.batch_execute(&format!("DROP TABLE {table}")).await?;
    Ok(times)
}
