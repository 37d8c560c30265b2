//! The values that cross the seam between repositories and databases.
//!
//! SQLite has no uuid, time or JSON type: there a [`Value::Uuid`] is TEXT, a [`Value::Time`] is
//! INTEGER milliseconds, a [`Value::Json`] is TEXT, a [`Value::Bool`] is 0 or 1. The getters of
//! [`Row`] accept both shapes, so that repositories are written once.

use crate::error::{Error, Result};
use uuid::Uuid;
use windlass_domain::time::Timestamp;

/// One parameter or one cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// Any integer type.
    Int(i64),
    /// Text, or an enum on PostgreSQL.
    Text(String),
    /// A uuid.
    Uuid(Uuid),
    /// A point in time.
    Time(Timestamp),
    /// JSON in the canonical text of `windlass_domain::json`.
    Json(String),
    /// A list of texts, for `= ANY ($1)`; SQLite gets it as a JSON array.
    TextList(Vec<String>),
    /// A list of uuids, likewise.
    UuidList(Vec<Uuid>),
}

macro_rules! from {
    ($($type:ty => $variant:ident,)*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$variant(value.into())
            }
        }
    )*};
}
from! {
    bool => Bool, i32 => Int, i64 => Int, String => Text, &str => Text, Uuid => Uuid,
    Timestamp => Time, Vec<String> => TextList, Vec<Uuid> => UuidList,
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// One row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(pub Vec<Value>);

/// What stands for JSON that nobody can read: it was written by hand, past the database's checks,
/// and must not keep anybody from the rows beside it.
pub(crate) fn unreadable() -> serde_json::Value {
    serde_json::json!({ "omitted": "it is no JSON that can be read" })
}

impl Row {
    fn wrong(&self, index: usize, wanted: &str) -> Error {
        Error::Corrupt(format!("column {index} holds {:?}, not {wanted}", self.0.get(index)))
    }

    /// Whether the cell is NULL.
    pub fn is_null(&self, index: usize) -> bool {
        matches!(self.0.get(index), None | Some(Value::Null))
    }

    /// A truth value.
    pub fn bool(&self, index: usize) -> Result<bool> {
        match self.0.get(index) {
            Some(Value::Bool(b)) => Ok(*b),
            Some(Value::Int(i)) => Ok(*i != 0),
            _ => Err(self.wrong(index, "a truth value")),
        }
    }

    /// An integer.
    pub fn int(&self, index: usize) -> Result<i64> {
        match self.0.get(index) {
            Some(Value::Int(i)) => Ok(*i),
            _ => Err(self.wrong(index, "an integer")),
        }
    }

    /// An integer that fits 32 bits.
    pub fn int32(&self, index: usize) -> Result<i32> {
        self.int(index)?.try_into().map_err(|_| self.wrong(index, "a 32-bit integer"))
    }

    /// Text, JSON text, or an enum's name.
    pub fn text(&self, index: usize) -> Result<&str> {
        match self.0.get(index) {
            Some(Value::Text(t) | Value::Json(t)) => Ok(t),
            _ => Err(self.wrong(index, "text")),
        }
    }

    /// A name that `T` understands, such as a state.
    pub fn named<T: std::str::FromStr>(&self, index: usize) -> Result<T> {
        self.text(index)?.parse().map_err(|_| self.wrong(index, "a known name"))
    }

    /// A uuid.
    pub fn uuid(&self, index: usize) -> Result<Uuid> {
        match self.0.get(index) {
            Some(Value::Uuid(u)) => Ok(*u),
            Some(Value::Text(t)) => t.parse().map_err(|_| self.wrong(index, "a uuid")),
            _ => Err(self.wrong(index, "a uuid")),
        }
    }

    /// A point in time.
    pub fn time(&self, index: usize) -> Result<Timestamp> {
        match self.0.get(index) {
            Some(Value::Time(t)) => Ok(*t),
            Some(Value::Int(ms)) => Ok(Timestamp::from_ms(*ms)),
            _ => Err(self.wrong(index, "a time")),
        }
    }

    /// A JSON value.
    pub fn json(&self, index: usize) -> Result<serde_json::Value> {
        serde_json::from_str(self.text(index)?).map_err(|_| self.wrong(index, "JSON"))
    }

    /// `Some` of what `get` reads, or `None` for NULL.
    pub fn maybe<'a, T>(
        &'a self,
        index: usize,
        get: impl FnOnce(&'a Row, usize) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.is_null(index) { Ok(None) } else { get(self, index).map(Some) }
    }
}
