//! Finding, creating, recognising and opening the file.
//!
//! Invariant: an existing file is never deleted, recreated or changed before it is known to be
//! ours. Everything here runs under the lock of [`super::lock`].

use super::error::{cannot_use, map};
use super::options::{Options, Synchronous};
use super::triggers;
use crate::error::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

/// `wndl`, in the file's header: tells our files from those of other programs.
pub(super) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"wndl");

/// Older libraries can damage the file when the write-ahead log is reset.
const OLDEST_LIBRARY: i32 = 3_051_003;

const MAGIC: &[u8] = b"SQLite format 3\0";

/// The one path of the file, without links, so that two names of it meet at one lock.
pub(super) fn locate(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    if let Ok(found) = path.canonicalize() {
        let kind = found.metadata().map_err(|e| cannot_use(path, &e))?;
        if kind.is_dir() {
            let told = format!("{shown} is a directory: name a file in it");
            return Err(Error::Configuration(told));
        }
        if !kind.is_file() {
            let told = format!("{shown} is not an ordinary file: name another one");
            return Err(Error::Configuration(told));
        }
        return Ok(found);
    }
    let Some(name) = path.file_name() else {
        let told = format!("{shown} does not name a file");
        return Err(Error::Configuration(told));
    };
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|error| {
        let parent = parent.display();
        Error::Configuration(format!(
            "the directory {parent} for the database cannot be used ({error}): create it first"
        ))
    })?;
    Ok(parent.join(name))
}

/// Opens the file for writing; creates it when it is missing.
pub(super) fn open_writer(path: &Path, options: &Options) -> Result<Connection> {
    check_library(rusqlite::version_number())?;
    create_if_missing(path)?;
    check_header(path)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    claim(path, &connection)?;
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    let wal = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
    let mode: String = wal.map_err(|e| map(&e, &path.display().to_string()))?;
    if mode != "wal" {
        return Err(Error::Configuration(format!(
            "{} is on a file system without shared memory (journal mode {mode}): use a local disk",
            path.display()
        )));
    }
    // The writer checkpoints by itself, after its answers are sent. Savepoints stay in memory.
    let settings = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384;"
    );
    let told = |e: rusqlite::Error| map(&e, &path.display().to_string());
    connection.execute_batch(&settings).map_err(told)?;
    triggers::leave_out(&connection).map_err(told)?;
    triggers::install(&connection).map_err(told)?;
    Ok(connection)
}

/// Opens a file that the writer has open already, for reading.
pub(super) fn open_reader(path: &Path, options: &Options) -> Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?;
    connection
        .execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")
        .map_err(|e| map(&e, &path.display().to_string()))?;
    Ok(connection)
}

fn open(path: &Path, mode: OpenFlags, options: &Options) -> Result<Connection> {
    let opened = || -> rusqlite::Result<Connection> {
        // No mutex: each connection belongs to one thread.
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(options.busy_timeout)?;
        for (setting, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
            // Else SQLite looks at the bound profile to see whether a partial index fits, and
            // prepares the claim anew for every call.
            (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
        ] {
            connection.set_db_config(setting, on)?;
        }
        // No memory map: a disk error would be a signal there, not an error code.
        connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;")?;
        Ok(connection)
    };
    opened().map_err(|e| map(&e, &path.display().to_string()))
}

fn check_library(version: i32) -> Result<()> {
    if version < OLDEST_LIBRARY {
        return Err(Error::Configuration(format!(
            "the SQLite library is {version}, older than {OLDEST_LIBRARY}, and can damage files: \
             build with a newer one"
        )));
    }
    Ok(())
}

fn create_if_missing(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // Prompts and results are nobody else's to read. The log's files inherit the mode.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(cannot_use(path, &error)),
    }
    // SQLite syncs the directory only for files that it has created itself.
    #[cfg(unix)]
    if let Some(parent) = path.parent() {
        let synced = File::open(parent).and_then(|directory| directory.sync_all());
        synced.map_err(|e| cannot_use(parent, &e))?;
    }
    Ok(())
}

/// Looks at the first bytes before SQLite may touch anything: it would replay a log that belongs
/// to another program. Must be done before the file is opened by SQLite in this process, because
/// closing a file drops all of the process's locks on it.
fn check_header(path: &Path) -> Result<()> {
    let mut header = Vec::new();
    let read = File::open(path).and_then(|file| file.take(100).read_to_end(&mut header));
    read.map_err(|e| cannot_use(path, &e))?;
    if header.is_empty() {
        return Ok(());
    }
    if !header.starts_with(MAGIC) {
        return Err(Error::Foreign(format!(
            "{} is not a SQLite database: name another file, or, if it once was one, restore it \
             from a backup",
            path.display()
        )));
    }
    let Some(Ok(id)) = header.get(68..72).map(<[u8; 4]>::try_from) else {
        let told = format!("{} ends within its header", path.display());
        return Err(Error::Corrupt(told));
    };
    match i32::from_be_bytes(id) {
        0 | APPLICATION_ID => Ok(()),
        _ => Err(foreign(path)),
    }
}

/// Makes an empty file ours, and refuses one that has another owner.
fn claim(path: &Path, connection: &Connection) -> Result<()> {
    let told = |e: rusqlite::Error| map(&e, &path.display().to_string());
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let id = number("PRAGMA application_id").map_err(told)?;
    // Reading the schema also tells a damaged file from a sound one, as far as a look can.
    let entries = number("SELECT count(*) FROM sqlite_schema").map_err(told)?;
    if id == i64::from(APPLICATION_ID) {
        return Ok(());
    }
    if id != 0 || entries != 0 {
        return Err(foreign(path));
    }
    // The first write to the file, before it gets a log: its header always says whose it is.
    let set = format!("PRAGMA application_id = {APPLICATION_ID}");
    connection.execute_batch(&set).map_err(told)
}

fn foreign(path: &Path) -> Error {
    Error::Foreign(format!("{} belongs to another program: name another file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_can_damage_files_is_refused() {
        assert!(check_library(3_051_002).is_err());
        assert!(check_library(OLDEST_LIBRARY).is_ok());
    }
}
