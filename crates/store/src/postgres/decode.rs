//! PostgreSQL's binary form to values, by the column's type.
//!
//! Enums and names become text, every integer an `Int`, also the whole numbers that `sum` gives
//! as numeric.
//!
//! Absent: fractions, bytes, dates and intervals; a statement that returns one is a defect and is
//! told so.

use super::encode::EPOCH_2000_MS;
use crate::error::{Error, Result};
use crate::value::{Row, Value};
use tokio_postgres::types::{FromSql, Kind, Type};
use uuid::Uuid;
use windlass_domain::time::Timestamp;

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// One cell on its way.
struct Cell(Value);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        decode(ty, raw).map(Cell)
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Cell(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The rows of an answer.
pub(super) fn decode_rows(name: &str, rows: &[tokio_postgres::Row]) -> Result<Vec<Row>> {
    rows.iter().map(|row| decode_row(name, row)).collect()
}

fn decode_row(name: &str, row: &tokio_postgres::Row) -> Result<Row> {
    let cell = |index| {
        row.try_get::<_, Cell>(index).map(|cell| cell.0).map_err(|error| Error::Internal {
            operation: name.to_owned(),
            detail: with_cause(&error),
        })
    };
    Ok(Row((0..row.len()).map(cell).collect::<Result<_>>()?))
}

fn with_cause(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn decode(ty: &Type, raw: &[u8]) -> Result<Value, BoxError> {
    match ty.kind() {
        Kind::Domain(base) => return decode(base, raw),
        Kind::Enum(_) => return text(raw).map(Value::Text),
        Kind::Array(_) => return list(ty, raw),
        _ => {}
    }
    Ok(match *ty {
        Type::BOOL => Value::Bool(bool::from_sql(ty, raw)?),
        Type::INT2 => Value::Int(i16::from_sql(ty, raw)?.into()),
        Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
        Type::INT8 | Type::XID8 => Value::Int(i64::from_sql(ty, raw)?),
        Type::OID => Value::Int(u32::from_sql(ty, raw)?.into()),
        Type::NUMERIC => Value::Int(whole_numeric(raw)?),
        Type::UUID => Value::Uuid(Uuid::from_slice(raw)?),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Value::Text(text(raw)?),
        Type::TIMESTAMPTZ => {
            let ms = i64::from_sql(ty, raw)?.div_euclid(1000);
            Value::Time(Timestamp::from_ms(ms.saturating_add(EPOCH_2000_MS)))
        }
        Type::JSON => Value::Json(text(raw)?),
        Type::JSONB => match raw.split_first() {
            Some((1, json)) => Value::Json(text(json)?),
            _ => return Err("unknown version of jsonb".into()),
        },
        // What functions such as pg_notify return.
        Type::VOID => Value::Null,
        _ => return Err(format!("columns of type {ty} are not understood").into()),
    })
}

fn text(raw: &[u8]) -> Result<String, BoxError> {
    Ok(std::str::from_utf8(raw)?.to_owned())
}

fn list(ty: &Type, raw: &[u8]) -> Result<Value, BoxError> {
    let cells = Vec::<Cell>::from_sql(ty, raw)?;
    let ids = matches!(ty.kind(), Kind::Array(element) if *element == Type::UUID);
    if ids {
        let id = |cell| match cell {
            Cell(Value::Uuid(id)) => Ok(id),
            _ => Err("a list of uuids holds something else"),
        };
        return Ok(Value::UuidList(cells.into_iter().map(id).collect::<Result<_, _>>()?));
    }
    let text = |cell| match cell {
        Cell(Value::Text(text)) => Ok(text),
        _ => Err("only lists of texts and uuids without NULL are understood"),
    };
    Ok(Value::TextList(cells.into_iter().map(text).collect::<Result<_, _>>()?))
}

/// A numeric without a fraction: groups of four decimal digits, the first weighing 10000^weight.
fn whole_numeric(raw: &[u8]) -> Result<i64, BoxError> {
    let word = |index: usize| -> Result<i16, BoxError> {
        let bytes = raw.get(2 * index..2 * index + 2).ok_or("numeric: too short")?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let (groups, weight, sign) = (word(0)?, word(1)?, word(2)? as u16);
    if !matches!(sign, 0x0000 | 0x4000) || groups > weight.saturating_add(1) {
        return Err("numeric: not a whole number".into());
    }
    let mut number: i64 = 0;
    for index in 0..=weight {
        let digits = if index < groups { word(4 + index as usize)? } else { 0 };
        let next = number.checked_mul(10_000).and_then(|n| n.checked_add(digits.into()));
        number = next.ok_or("numeric: too large")?;
    }
    Ok(if sign == 0x4000 { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(words: &[u16]) -> Result<i64, String> {
        let raw: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        whole_numeric(&raw).map_err(|e| e.to_string())
    }

    #[test]
    fn a_whole_numeric_is_an_integer() {
        assert_eq!(numeric(&[0, 0, 0, 0]), Ok(0));
        assert_eq!(numeric(&[1, 0, 0, 0, 42]), Ok(42));
        assert_eq!(numeric(&[1, 1, 0x4000, 0, 3]), Ok(-30_000));
        assert_eq!(numeric(&[2, 1, 0, 0, 1, 2345]), Ok(12_345));
    }

    #[test]
    fn a_fraction_or_a_giant_is_no_integer() {
        assert!(numeric(&[2, 0, 0, 1, 1, 5000]).is_err());
        assert!(numeric(&[1, 9, 0, 0, 9999]).is_err());
        assert!(numeric(&[0, 0, 0xC000, 0]).is_err());
        assert!(numeric(&[1, 0, 0]).is_err());
    }
}
