//! Fresh databases: the product's schema and, beside it, the floor's tables.
//!
//! Invariant: what was created is removed at the end. Both sides have the same settings of the
//! server, or the same settings of the file.

use crate::Result;
use crate::arguments::Engine;
use crate::floor;
use crate::side::Side;
use rusqlite::config::DbConfig;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;
use windlass_store::store::Store;
use windlass_store::task::Tasks;
use windlass_store::{migration, postgres, sqlite};

/// A database for one measurement.
pub enum Place {
    /// Two files, ours and the floor's.
    Sqlite { folder: TempDir },
    /// One database with both.
    Postgres { server: String, name: String },
}

/// Connects; the connection is driven in the background.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        // Whoever asks next is told of an error.
        let _ = connection.await;
    });
    Ok(client)
}

impl Place {
    pub async fn create(engine: &Engine) -> Result<Place> {
        let place = match engine {
            Engine::Sqlite { folder, .. } => {
                Place::Sqlite { folder: tempfile::tempdir_in(folder)? }
            }
            Engine::Postgres { url, .. } => {
                let name = format!("bench_{}", Uuid::new_v4().simple());
                connect(url).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
                Place::Postgres { server: url.clone(), name }
            }
        };
        let tasks = place.open()?;
        migration::up(tasks.store()).await?;
        tasks.store().close();
        match engine {
            Engine::Sqlite { alter, .. } => {
                place.our_file()?.execute_batch(alter)?;
                floor::sqlite::create(&place.floor_file())?;
            }
            Engine::Postgres { alter, .. } => {
                let client = connect(&place.url()).await?;
                client.batch_execute(alter).await?;
                client.batch_execute(include_str!("../sql/postgres/floor.sql")).await?;
            }
        }
        Ok(place)
    }

    /// As `windlass serve --database` takes it.
    pub fn database_url(&self) -> String {
        match self {
            Place::Sqlite { folder } => {
                format!("sqlite:{}", folder.path().join("windlass.db").display())
            }
            Place::Postgres { .. } => self.url(),
        }
    }

    /// Ours, with the settings of production.
    pub fn open(&self) -> Result<Tasks> {
        let store = match self {
            Place::Sqlite { folder } => {
                let file = folder.path().join("windlass.db");
                Store::new(sqlite::open(file, sqlite::Options::default())?)
            }
            Place::Postgres { .. } => {
                Store::new(postgres::open(&self.url(), postgres::Options::default())?)
            }
        };
        Ok(Tasks::new(store))
    }

    pub fn ours(&self) -> Result<Side> {
        Ok(Side::Ours(self.open()?))
    }

    /// The floor, with one connection a caller (SQLite has one writer, whoever calls).
    pub async fn floor(&self, callers: usize) -> Result<Side> {
        self.open_floor(callers, false).await
    }

    /// The floor with the rows and indexes of ours, and none of its rules. From now on this place
    /// has no plain floor any more.
    pub async fn kept(&self, callers: usize) -> Result<Side> {
        match self {
            Place::Sqlite { .. } => {
                let file = rusqlite::Connection::open(self.floor_file())?;
                file.execute_batch(include_str!("../sql/sqlite/kept.sql"))?;
            }
            Place::Postgres { .. } => {
                let kept = include_str!("../sql/postgres/kept.sql");
                connect(&self.url()).await?.batch_execute(kept).await?;
            }
        }
        self.open_floor(callers, true).await
    }

    async fn open_floor(&self, callers: usize, keeps: bool) -> Result<Side> {
        Ok(match self {
            Place::Sqlite { .. } => {
                Side::Sqlite(floor::sqlite::Floor::open(&self.floor_file(), keeps)?)
            }
            Place::Postgres { .. } => {
                Side::Postgres(floor::postgres::Floor::open(&self.url(), callers, keeps).await?)
            }
        })
    }

    pub fn url(&self) -> String {
        match self {
            Place::Sqlite { .. } => String::new(),
            Place::Postgres { server, name } => {
                let start = server.find("://").map_or(0, |at| at + 3);
                let end = server[start..].find('/').map_or(server.len(), |at| start + at);
                format!("{}/{name}", &server[..end])
            }
        }
    }

    /// Our file on SQLite, opened as a person would.
    fn our_file(&self) -> Result<rusqlite::Connection> {
        match self {
            Place::Sqlite { folder } => {
                Ok(rusqlite::Connection::open(folder.path().join("windlass.db"))?)
            }
            Place::Postgres { .. } => Err("PostgreSQL has no file".into()),
        }
    }

    pub fn floor_file(&self) -> PathBuf {
        match self {
            Place::Sqlite { folder } => folder.path().join("floor.db"),
            Place::Postgres { .. } => PathBuf::new(),
        }
    }

    /// What autovacuum would do by itself, at a moment of our choice.
    pub async fn vacuum(&self) -> Result<()> {
        if let Place::Postgres { .. } = self {
            connect(&self.url()).await?.batch_execute("VACUUM ANALYZE").await?;
        }
        Ok(())
    }

    /// Loads finished tasks. Ours must not be open.
    pub async fn load_finished(&self, count: usize) -> Result<()> {
        match self {
            Place::Sqlite { .. } => {
                let file = self.our_file()?;
                file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
                let load = include_str!("../sql/sqlite/load_finished.sql");
                let load = load.replace("{count}", &count.to_string());
                file.execute_batch(&format!("BEGIN; {load} COMMIT;"))?;
                file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
            Place::Postgres { .. } => {
                let load = include_str!("../sql/postgres/load_finished.sql");
                let load = load.replace("{count}", &count.to_string());
                let client = connect(&self.url()).await?;
                client.batch_execute("SET session_replication_role = replica").await?;
                client.batch_execute(&load).await?;
            }
        }
        self.vacuum().await
    }

    /// Bytes on disk: ours and the floor's. Neither must be open.
    pub async fn sizes(&self) -> Result<(u64, u64)> {
        match self {
            Place::Sqlite { folder } => {
                let size = |name: &str| -> Result<u64> {
                    let path = folder.path().join(name);
                    let file = rusqlite::Connection::open(&path)?;
                    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                    Ok(std::fs::metadata(path)?.len())
                };
                Ok((size("windlass.db")?, size("floor.db")?))
            }
            Place::Postgres { .. } => {
                let client = connect(&self.url()).await?;
                let row = client.query_one(include_str!("../sql/postgres/sizes.sql"), &[]).await?;
                Ok((row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64))
            }
        }
    }

    pub async fn remove(self) -> Result<()> {
        if let Place::Postgres { server, name } = &self {
            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            connect(server).await?.batch_execute(&drop).await?;
        }
        Ok(())
    }
}
