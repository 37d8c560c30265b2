//! The file: who may open it, what is refused, and how it is set up.

use crate::sqlite::{KEYS, empty, insert, sql, with_table};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use windlass_store::error::Error;
use windlass_store::sqlite::{Options, Synchronous, open};
use windlass_store::statement::Statement;
use windlass_store::store::Database;
use windlass_store::tx::Call;

fn refusal(path: &Path) -> Error {
    match open(path, Options::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

/// A closed file with a few hundred rows, its directory, and its length.
fn closed_file() -> (TempDir, PathBuf, u64) {
    let fixture = with_table(Options::default());
    let filled = fixture
        .write(|tx| (0..400).try_for_each(|n| insert(tx, &format!("{n:04}{}", "x".repeat(200)))));
    filled.unwrap();
    fixture.database.close();
    let length = fs::metadata(&fixture.path).unwrap().len();
    (fixture.directory, fixture.path, length)
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_second_server_is_refused_with_the_first_ones_pid() {
    let first = empty(Options::default());
    let error = refusal(&first.path);
    assert!(matches!(error, Error::InUse(_)), "{error:?}");
    let pid = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    first.database.close();
    assert!(open(&first.path, Options::default()).is_ok());
}

#[cfg(unix)]
#[test]
fn a_link_to_the_file_meets_the_same_lock() {
    let first = empty(Options::default());
    let link = first.directory.path().join("link.db");
    std::os::unix::fs::symlink(&first.path, &link).unwrap();
    assert!(matches!(refusal(&link), Error::InUse(_)));
}

#[test]
fn a_lock_left_by_a_dead_server_blocks_nobody() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    let lock = directory.path().join("test.db.lock");
    fs::write(&lock, "4194304 2020-01-01T00:00:00.000Z\n").unwrap();
    let database = open(&path, Options::default()).unwrap();
    let holder = fs::read_to_string(&lock).unwrap();
    assert!(holder.starts_with(&format!("{} ", std::process::id())), "{holder}");
    drop(database);
}

#[cfg(unix)]
#[test]
fn a_new_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let store = with_table(Options::default());
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let path = format!("{}{suffix}", store.path.display());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}

#[test]
fn a_directory_and_a_missing_parent_are_refused() {
    let directory = TempDir::new().unwrap();
    let error = refusal(directory.path());
    assert!(matches!(error, Error::Configuration(_)));
    assert!(error.to_string().contains("is a directory"), "{error}");
    let error = refusal(&directory.path().join("missing").join("test.db"));
    assert!(matches!(error, Error::Configuration(_)));
    assert!(error.to_string().contains("create it first"), "{error}");
    assert!(!directory.path().join("missing").exists());
}

#[test]
fn a_text_file_is_refused_and_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "buy milk\n".repeat(100);
    fs::write(&path, &text).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, Error::Foreign(_)), "{error:?}");
    assert!(error.to_string().contains("notes.txt is not a SQLite database"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let directory = TempDir::new().unwrap();
    let cases = [
        ("with_id.db", "PRAGMA application_id = 42"),
        ("with_table.db", "CREATE TABLE theirs (x)"),
        ("wal.db", "PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)"),
    ];
    for (name, made) in cases {
        let path = directory.path().join(name);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(made).unwrap();
        connection.close().unwrap();
        let before = fs::read(&path).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::Foreign(_)), "{error:?}");
        assert!(error.to_string().contains("belongs to another program"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before, "{name} was changed");
    }
}

#[test]
fn an_empty_file_becomes_ours() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    fs::write(&path, "").unwrap();
    open(&path, Options::default()).unwrap().close();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(&bytes[68..72], b"wndl");
    assert!(open(&path, Options::default()).is_ok());
}

#[test]
fn a_damaged_schema_is_refused_with_what_to_do() {
    let (_directory, path, _) = closed_file();
    overwrite(&path, 100, &[0xff; 60]);
    let error = refusal(&path);
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("test.db") && told.contains("restore it from a backup"), "{told}");
}

#[test]
fn a_file_cut_short_is_refused_or_never_read_wrongly() {
    let (_directory, path, length) = closed_file();
    for length in [50, 4096, length - 4096] {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        let error = match open(&path, Options::default()) {
            Err(error) => error,
            Ok(_) => panic!("a file of {length} bytes was opened"),
        };
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    }
}

#[test]
fn a_damaged_page_is_told_as_such() {
    let (directory, path, length) = closed_file();
    for page in 1..length / 4096 {
        let copy = directory.path().join(format!("{page}.db"));
        fs::copy(&path, &copy).unwrap();
        overwrite(&copy, page * 4096, &[0xff; 64]);
        let database = open(&copy, Options::default()).unwrap();
        let fixture =
            crate::sqlite::Fixture { database, path: copy, directory: TempDir::new().unwrap() };
        let rows = fixture.read(|tx| tx.run(Call::one(&KEYS, vec![])));
        assert!(matches!(rows, Err(Error::Corrupt(_))), "page {page}: {rows:?}");
        let write = fixture.write(|tx| tx.run(Call::one(&KEYS, vec![])));
        assert!(matches!(write, Err(Error::Corrupt(_))), "page {page}: {write:?}");
    }
}

#[test]
fn the_settings_are_those_that_were_asked_for() {
    static SYNCHRONOUS: Statement = sql("PRAGMA synchronous");
    static OTHERS: [(Statement, &str); 6] = [
        (sql("PRAGMA journal_mode"), "Text(\"wal\")"),
        (sql("PRAGMA foreign_keys"), "Int(1)"),
        (sql("PRAGMA trusted_schema"), "Int(0)"),
        (sql("PRAGMA wal_autocheckpoint"), "Int(0)"),
        (sql("PRAGMA recursive_triggers"), "Int(0)"),
        (sql("PRAGMA cell_size_check"), "Int(1)"),
    ];
    for (synchronous, wanted) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let store = empty(Options { synchronous, ..Options::default() });
        let found = store.write(|tx| tx.run(Call::one(&SYNCHRONOUS, vec![])));
        assert_eq!(found.unwrap()[0].int(0).unwrap(), wanted);
        for (pragma, wanted) in &OTHERS {
            let found = store.write(|tx| tx.run(Call::one(pragma, vec![]))).unwrap();
            assert_eq!(format!("{:?}", found[0].0[0]), *wanted, "{}", pragma.name);
        }
    }
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let store = with_table(Options::default());
    store.write(|tx| insert(tx, "a")).unwrap();
    store.database.close();
    let wal = format!("{}-wal", store.path.display());
    assert!(!Path::new(&wal).exists(), "a clean close leaves one file");
    let reopened = crate::sqlite::Fixture {
        database: open(&store.path, Options::default()).unwrap(),
        ..store
    };
    assert_eq!(reopened.keys(), ["a"]);
}
