//! Which of the schema's triggers run for the writer.
//!
//! The schema has triggers that write (the history, a task's first state) and triggers that only
//! refuse what a statement of ours never does. For any other program that opens the file both run.
//! The writer leaves the refusing ones out, because SQLite interprets every trigger for every row:
//! they were a third of the time of a lifecycle. What a transition may be is not among them: the
//! CHECK constraints hold for everybody.
//!
//! Invariant: the writer's triggers are copies, made from the file's own schema; one of them looks
//! only at the statements that can meet its condition.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};

const WRITING: [&str; 6] = [
    "task_spec_begins",
    "task_state_insert_history",
    "task_state_update_history",
    "task_state_enters_trouble",
    "alert_is_told",
    "message_opens_its_inbox",
];

/// Of the writer's statements only one can end a task poisoned or stuck: the cold path's, which
/// sets every column. A trigger on a column that the hot statements leave alone is no part of them
/// at all; even a condition that is false cost a tenth of a completion.
const RARE: (&str, &str, &str) =
    ("task_state_enters_trouble", "AFTER UPDATE ON", "AFTER UPDATE OF retry_count ON");

/// Leaves all triggers of the schema out, until [`install`] has copied those that write.
pub(super) fn leave_out(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map(drop)
}

/// Takes the copies away, so that a migration can change what they speak of.
pub(super) fn remove(connection: &Connection) -> rusqlite::Result<()> {
    for name in WRITING {
        connection.execute_batch(&format!("DROP TRIGGER IF EXISTS temp.writer_{name}"))?;
    }
    Ok(())
}

/// Copies the triggers that write. A file without our schema has none yet.
pub(super) fn install(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name = ?1";
    remove(connection)?;
    for name in WRITING {
        // A migration down may have taken it away.
        let found = connection.query_row(sql, [name], |row| row.get::<_, String>(0)).optional()?;
        if let Some(text) = found {
            connection.execute_batch(&temporary(name, &text))?;
        }
    }
    Ok(())
}

/// TEMP triggers run where the schema's do not.
fn temporary(name: &str, text: &str) -> String {
    let created = format!("CREATE TRIGGER {name} ");
    let copied = text.replacen(&created, &format!("CREATE TEMP TRIGGER writer_{name} "), 1);
    let (rare, always, seldom) = RARE;
    if name == rare { copied.replacen(always, seldom, 1) } else { copied }
}
