//! Prepared statements, kept for as long as their connection.
//!
//! Invariant: a statement is found by its address, without hashing its text, and the text is
//! compared, because an address may be used again. Parameters are bound by name: SQLite numbers
//! `$2` by where it first appears, not by what it is called.

use super::error::{internal, map};
use crate::error::{Error, Result};
use crate::statement::{Dialect, Statement};
use crate::value::{Row, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, PrepFlags};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use windlass_domain::time::Timestamp;

/// A program has a few hundred statements; more means that they are made at run time.
const MOST_STATEMENTS: usize = 1_024;

pub(super) struct Statements<'conn> {
    pub(super) connection: &'conn Connection,
    by_address: HashMap<usize, Prepared<'conn>>,
}

impl<'conn> Statements<'conn> {
    pub(super) fn new(connection: &'conn Connection) -> Self {
        Statements { connection, by_address: HashMap::new() }
    }

    pub(super) fn get(&mut self, statement: &Statement) -> Result<&mut Prepared<'conn>> {
        let address = std::ptr::from_ref(statement).addr();
        let text = statement.text(Dialect::Sqlite);
        if self.by_address.len() >= MOST_STATEMENTS {
            self.by_address.clear();
        }
        let connection = self.connection;
        match self.by_address.entry(address) {
            Entry::Occupied(found) => {
                let found = found.into_mut();
                if found.text != text {
                    *found = Prepared::new(connection, statement.name, text)?;
                }
                Ok(found)
            }
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(Prepared::new(connection, statement.name, text)?))
            }
        }
    }
}

/// A statement with the places of its parameters.
pub(super) struct Prepared<'conn> {
    name: &'static str,
    text: String,
    statement: rusqlite::Statement<'conn>,
    /// Where SQLite counts `$1`, `$2`, …; 0 where the text does not use one.
    places: Vec<usize>,
    /// Where it counts `:now`, or 0.
    now_place: usize,
    pub(super) writes: bool,
    /// It writes and returns no rows, so that only the count of changes tells what it did.
    pub(super) silent: bool,
}

impl<'conn> Prepared<'conn> {
    fn new(connection: &'conn Connection, name: &'static str, text: &str) -> Result<Self> {
        let statement = connection
            .prepare_with_flags(text, PrepFlags::SQLITE_PREPARE_PERSISTENT)
            .map_err(|e| map(&e, name))?;
        let (mut places, mut now_place) = (Vec::new(), 0);
        for place in 1..=statement.parameter_count() {
            let parameter = statement.parameter_name(place).unwrap_or("?");
            if parameter == ":now" {
                now_place = place;
                continue;
            }
            let number = parameter.strip_prefix('$').and_then(|n| n.parse().ok());
            let Some(number @ 1..=1_000) = number else {
                let told = format!("{parameter} is neither $1 … $1000 nor :now");
                return Err(internal(name, told));
            };
            if places.len() < number {
                places.resize(number, 0);
            }
            places[number - 1] = place;
        }
        Ok(Prepared {
            name,
            text: text.to_owned(),
            writes: !statement.readonly(),
            silent: !statement.readonly() && statement.column_count() == 0,
            statement,
            places,
            now_place,
        })
    }

    /// Binds `:now` and the values that all items share, `$1 …`.
    pub(super) fn bind_shared(
        &mut self,
        now: Timestamp,
        shared: &[Value],
        an_item: usize,
    ) -> Result<()> {
        let given = shared.len() + an_item;
        if self.places.len() > given {
            let wanted = self.places.len();
            return Err(internal(self.name, format!("${wanted} has no value, only {given} have")));
        }
        if self.now_place != 0 {
            let bound = self.statement.raw_bind_parameter(self.now_place, now.as_ms());
            bound.map_err(|e| map(&e, self.name))?;
        }
        self.bind(0, shared)
    }

    /// Binds values to the parameters after the first `before`.
    pub(super) fn bind(&mut self, before: usize, values: &[Value]) -> Result<()> {
        let places = self.places.get(before..).unwrap_or_default();
        for (&place, value) in places.iter().zip(values) {
            if place != 0 {
                let bound = bind_one(&mut self.statement, place, value);
                bound.map_err(|e| map(&e, self.name))?;
            }
        }
        Ok(())
    }

    /// Runs it with what is bound and appends its rows.
    pub(super) fn step(&mut self, rows: &mut Vec<Row>) -> Result<(), Failure> {
        let name = self.name;
        let mut cursor = self.statement.raw_query();
        while let Some(row) = cursor.next().map_err(|e| Failure::new(&e, name))? {
            let columns = row.as_ref().column_count();
            let mut cells = Vec::with_capacity(columns);
            for column in 0..columns {
                let cell = row.get_ref(column).map_err(|e| Failure::new(&e, name))?;
                cells.push(read(cell).map_err(|wrong| {
                    let told = format!("{name}: column {column} is {wrong}");
                    Failure::from(Error::Corrupt(told))
                })?);
            }
            rows.push(Row(cells));
        }
        Ok(())
    }

    /// Lets go of what was bound: payloads may be large, and the statement is kept.
    pub(super) fn release(&mut self) {
        self.statement.clear_bindings();
    }
}

/// An error of a statement, and whether the disk could not be synced.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) sync_failed: bool,
}

impl Failure {
    pub(super) fn new(error: &rusqlite::Error, operation: &str) -> Failure {
        Failure { error: map(error, operation), sync_failed: super::error::is_sync_failure(error) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, sync_failed: false }
    }
}

fn bind_one(
    statement: &mut rusqlite::Statement<'_>,
    place: usize,
    value: &Value,
) -> rusqlite::Result<()> {
    match value {
        Value::Null => statement.raw_bind_parameter(place, rusqlite::types::Null),
        Value::Bool(truth) => statement.raw_bind_parameter(place, i64::from(*truth)),
        Value::Int(number) => statement.raw_bind_parameter(place, *number),
        Value::Text(text) | Value::Json(text) => statement.raw_bind_parameter(place, text.as_str()),
        Value::Uuid(id) => {
            let mut buffer = uuid::Uuid::encode_buffer();
            let text: &str = id.hyphenated().encode_lower(&mut buffer);
            statement.raw_bind_parameter(place, text)
        }
        Value::Time(time) => statement.raw_bind_parameter(place, time.as_ms()),
        Value::TextList(list) => statement.raw_bind_parameter(place, json_array(list)),
        Value::UuidList(list) => statement.raw_bind_parameter(place, json_array(list)),
    }
}

fn json_array<T: ToString>(list: &[T]) -> String {
    let texts = list.iter().map(|item| item.to_string().into());
    serde_json::Value::Array(texts.collect()).to_string()
}

/// Our schema has integers and texts only; anything else was written by another program. A text
/// that is not UTF-8 is read with marks in place of what nobody can read: refused, it would take
/// along every other row of its page, and nobody could ever see which one it is.
fn read(cell: ValueRef<'_>) -> Result<Value, &'static str> {
    match cell {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        ValueRef::Text(bytes) => Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned())),
        ValueRef::Real(_) => Err("a floating-point number"),
        ValueRef::Blob(_) => Err("a blob"),
    }
}
