//! Databases that have the schema already: migrated once for a test binary, then copied.
//!
//! Invariant: a copy is what a migration of an empty place leaves, but for when it was made: the
//! times in `schema_version` and of the default limits are those of the binary's first test.
//! Nothing else in an empty schema tells one database from another.
//!
//! Absent: places without a schema, for tests about migrations; they make their own.

use super::cluster::TestDatabase;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use windlass_store::migration;
use windlass_store::postgres;
use windlass_store::sqlite;
use windlass_store::store::Store;

/// Makes the file at `path`: with the schema, closed, and without a log beside it.
pub fn sqlite(path: &Path) {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    let file = FILE.get_or_init(migrated_file);
    // Like one that the store has created, it is nobody else's to read.
    let mut new = fs::OpenOptions::new();
    let made = new.write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut made| made.write_all(file)).expect("the folder is writable and empty");
}

/// A database of the shared cluster.
pub fn postgres() -> TestDatabase {
    static TEMPLATE: OnceLock<TestDatabase> = OnceLock::new();
    TestDatabase::create_from(TEMPLATE.get_or_init(migrated_database).name())
}

fn migrated_file() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.db");
    migrate(Store::new(sqlite::open(&path, Default::default()).unwrap()));
    let log = fs::metadata(folder.path().join("template.db-wal"));
    assert!(log.is_err(), "a closed file has no log left");
    fs::read(path).unwrap()
}

fn migrated_database() -> TestDatabase {
    let database = TestDatabase::create();
    migrate(Store::new(postgres::open(&database.url(), Default::default()).unwrap()));
    database
}

/// Migrates and closes.
fn migrate(store: Store) {
    // On a thread of its own: the caller is inside a runtime.
    let migrating = store.clone();
    let migrate = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(migration::up(&migrating)).unwrap();
    };
    std::thread::spawn(migrate).join().unwrap();
    store.close();
}
