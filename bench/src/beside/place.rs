//! The database that `bench/run` made for this run: its schema, and finished tasks if it asks for
//! some.

use rusqlite::config::DbConfig;
use windlass::store::migration;
use windlass::store::store::Store;
use windlass_bench_adapter::{Result, variable};

/// How many finished tasks lie in the table from the start.
pub fn finished() -> u64 {
    variable("BENCH_FINISHED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Opens the database, with the settings of production.
pub async fn open() -> Result<Store> {
    let engine = variable("BENCH_ENGINE")?;
    let file = std::path::Path::new(&variable("BENCH_FOLDER")?).join("windlass.db");
    let url = match engine.as_str() {
        "sqlite" => format!("sqlite:{}", file.display()),
        _ => variable("BENCH_DATABASE")?,
    };
    let store = windlass::database::open(&url)?;
    migration::up(&store).await?;
    if finished() == 0 {
        return Ok(store);
    }
    store.close();
    match engine.as_str() {
        "sqlite" => fill_sqlite(&file)?,
        _ => fill_postgres(&url).await?,
    }
    Ok(windlass::database::open(&url)?)
}

fn fill_sqlite(file: &std::path::Path) -> Result<()> {
    let load = include_str!("../../sql/sqlite/load_finished.sql");
    let load = load.replace("{count}", &finished().to_string());
    let file = rusqlite::Connection::open(file)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    file.execute_batch(&format!("BEGIN; {load} COMMIT;"))?;
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

async fn fill_postgres(url: &str) -> Result<()> {
    let load = include_str!("../../sql/postgres/load_finished.sql");
    let load = load.replace("{count}", &finished().to_string());
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("SET session_replication_role = replica").await?;
    client.batch_execute(&load).await?;
    // What autovacuum would do by itself, at a moment of our choice.
    client.batch_execute("VACUUM ANALYZE").await?;
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}
