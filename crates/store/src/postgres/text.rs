//! Values to PostgreSQL's text form, whatever type the server asks for.
//!
//! For statements that are parsed and run in one flight, as behind a transaction pooler: nobody has
//! asked the server for the parameters' types, so it reads the text by the type it infers.
//!
//! Invariant: a list is quoted here, element by element; no value becomes part of a statement.

use crate::error::{Error, Result};
use crate::statement::Dialect;
use crate::tx::Call;
use crate::value::Value;
use bytes::BytesMut;
use std::fmt::{self, Write};
use std::sync::LazyLock;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};
use windlass_domain::time::Timestamp;

/// The type that leaves it to the server which type it is.
pub(super) static UNSPECIFIED: LazyLock<Type> =
    LazyLock::new(|| Type::new("unspecified".into(), 0, Kind::Simple, "pg_catalog".into()));

/// A parameter in its final form; `None` is NULL.
pub(super) struct Text(Option<String>);

impl fmt::Debug for Text {
    /// Says nothing: payloads are private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Text {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        Ok(match &self.0 {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                IsNull::No
            }
            None => IsNull::Yes,
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }
}

/// All parameters of a call: the shared ones as they are, each position of the items as one array.
pub(super) fn text_of_call(call: &Call<'_>) -> Result<Vec<Text>> {
    let name = call.statement.name;
    let wanted = parameters(call.statement.text(Dialect::Postgres));
    let shared = call.shared.len();
    let items = call.items.as_deref().unwrap_or_default();
    let positions = match &call.items {
        None => 0,
        Some(items) => items.first().map_or(wanted.saturating_sub(shared), Vec::len),
    };
    if shared + positions != wanted || items.iter().any(|item| item.len() != positions) {
        return Err(Error::Internal {
            operation: name.into(),
            detail: format!(
                "the statement takes {wanted} parameters, not {shared} and {positions} an item"
            ),
        });
    }
    let at = |index: usize, why: &str| Error::Data(format!("{name}: ${}: {why}", index + 1));
    let mut texts = Vec::with_capacity(wanted);
    for (index, value) in call.shared.iter().enumerate() {
        texts.push(Text(text(value).map_err(|why| at(index, why))?));
    }
    for position in 0..positions {
        let list = list(items.iter().map(|item| &item[position]));
        texts.push(Text(Some(list.map_err(|why| at(shared + position, why))?)));
    }
    Ok(texts)
}

/// How many parameters a statement takes: its highest `$n`.
fn parameters(sql: &str) -> usize {
    let numbers = sql.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

fn text(value: &Value) -> Result<Option<String>, &'static str> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Text(text) | Value::Json(text) => {
            refuse_nul(text)?;
            text.clone()
        }
        Value::Uuid(id) => id.to_string(),
        Value::Time(time) => Julian(*time).to_string(),
        Value::TextList(texts) => {
            let mut out = Array::new(texts.len());
            for text in texts {
                out.quoted(text)?;
            }
            out.end()
        }
        Value::UuidList(ids) => {
            let mut out = Array::new(ids.len());
            ids.iter().for_each(|id| out.plain(id));
            out.end()
        }
    }))
}

fn list<'a>(values: impl ExactSizeIterator<Item = &'a Value>) -> Result<String, &'static str> {
    let mut out = Array::new(values.len());
    for value in values {
        match value {
            Value::Null => out.plain("NULL"),
            Value::Bool(b) => out.plain(b),
            Value::Int(i) => out.plain(i),
            Value::Text(text) | Value::Json(text) => out.quoted(text)?,
            Value::Uuid(id) => out.plain(id),
            Value::Time(time) => out.plain(Julian(*time)),
            Value::TextList(_) | Value::UuidList(_) => {
                return Err("a list cannot be part of an item");
            }
        }
    }
    Ok(out.end())
}

/// A time by its Julian day, which the server reads the same whatever its settings are.
struct Julian(Timestamp);

impl fmt::Display for Julian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EPOCH_1970: i64 = 2_440_588;
        let (seconds, ms) = (self.0.as_ms() / 1000, self.0.as_ms() % 1000);
        let (day, second) = (EPOCH_1970 + seconds / 86_400, seconds % 86_400);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "J{day}T{hour:02}:{minute:02}:{:02}.{ms:03}Z", second % 60)
    }
}

/// A one-dimensional array on its way.
struct Array(String);

impl Array {
    fn new(count: usize) -> Array {
        let mut out = String::with_capacity(2 + 40 * count);
        out.push('{');
        Array(out)
    }

    fn next(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }

    /// An element without quotes, commas, braces, backslashes and spaces.
    fn plain(&mut self, element: impl fmt::Display) {
        self.next();
        let _ = write!(self.0, "{element}");
    }

    fn quoted(&mut self, element: &str) -> Result<(), &'static str> {
        refuse_nul(element)?;
        self.next();
        self.0.push('"');
        for c in element.chars() {
            if matches!(c, '"' | '\\') {
                self.0.push('\\');
            }
            self.0.push(c);
        }
        self.0.push('"');
        Ok(())
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn refuse_nul(text: &str) -> Result<(), &'static str> {
    if text.contains('\0') { Err("the text contains a NUL character") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Statement;

    #[test]
    fn a_list_is_quoted_so_that_no_element_ends_it() {
        let texts = Value::TextList(vec![r#"a"},{\"#.into(), String::new(), "NULL".into()]);
        assert_eq!(text(&texts).unwrap().unwrap(), r#"{"a\"},{\\","","NULL"}"#);
        let items = [Value::Null, Value::Int(-1), Value::Json(r#"{"k":"v"}"#.into())];
        assert_eq!(list(items.iter()).unwrap(), r#"{NULL,-1,"{\"k\":\"v\"}"}"#);
        assert_eq!(text(&Value::UuidList(Vec::new())).unwrap().unwrap(), "{}");
    }

    #[test]
    fn the_first_and_the_last_time_can_be_told() {
        assert_eq!(Julian(Timestamp::EPOCH).to_string(), "J2440588T00:00:00.000Z");
        assert_eq!(Julian(Timestamp::MAX).to_string(), "J5373484T23:59:59.999Z");
    }

    #[test]
    fn wrong_counts_and_nul_are_refused_before_anything_is_sent() {
        static TWO: Statement = Statement::new("two", "", "SELECT $1::text, $2::text[], $1::int");
        let call = |shared, items| Call { items, ..Call::one(&TWO, shared) };
        assert_eq!(text_of_call(&call(vec!["a".into()], Some(vec![]))).unwrap().len(), 2);
        let short = text_of_call(&call(vec!["a".into()], None));
        assert!(matches!(short, Err(Error::Internal { .. })), "{short:?}");
        let nul = text_of_call(&call(vec!["a".into()], Some(vec![vec!["b\0".into()]])));
        assert!(matches!(nul, Err(Error::Data(_))), "{nul:?}");
    }
}
