//! Values to PostgreSQL's binary form, by the type that the prepared statement asks for.
//!
//! Invariant: what does not fit its type is refused here, before anything is sent.
//!
//! Absent: floats, bytes, dates and composite types; no statement of ours takes them.

use crate::error::{Error, Result};
use crate::tx::Call;
use crate::value::Value;
use bytes::{BufMut, BytesMut};
use std::fmt;
use tokio_postgres::Statement;
use tokio_postgres::types::{IsNull, Kind, ToSql, Type};

/// Milliseconds from 1970 to 2000, where PostgreSQL's time begins.
pub(super) const EPOCH_2000_MS: i64 = 946_684_800_000;

/// A parameter in its final form; `None` is NULL.
pub(super) struct Encoded(Option<BytesMut>);

impl fmt::Debug for Encoded {
    /// Says nothing: the driver prints parameters at its debug level, and payloads are private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        Ok(match &self.0 {
            Some(bytes) => {
                out.extend_from_slice(bytes);
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
}

/// All parameters of a call: the shared ones as they are, each position of the items as one array.
pub(super) fn encode_call(call: &Call<'_>, statement: &Statement) -> Result<Vec<Encoded>> {
    let name = call.statement.name;
    let types = statement.params();
    let shared = call.shared.len();
    let item_count = call.items.as_ref().map_or(0, Vec::len);
    let positions = match &call.items {
        None => 0,
        Some(items) => items.first().map_or(types.len().saturating_sub(shared), Vec::len),
    };
    let even = call.items.iter().flatten().all(|item| item.len() == positions);
    if shared + positions != types.len() || !even {
        return Err(Error::Internal {
            operation: name.into(),
            detail: format!(
                "the statement takes {} parameters, not {shared} and {positions} an item",
                types.len()
            ),
        });
    }
    let at = |index: usize, why: String| Error::Data(format!("{name}: ${}: {why}", index + 1));
    let mut parameters = Vec::with_capacity(types.len());
    for (index, value) in call.shared.iter().enumerate() {
        let encoded = encode(value, &types[index]).map_err(|why| at(index, why))?;
        parameters.push(encoded);
    }
    let items = call.items.as_deref().unwrap_or_default();
    let is_null = |item: &Vec<Value>, position: usize| matches!(item[position], Value::Null);
    // What no item has goes as NULL and not as a list of nothing, which the server would unpack
    // element by element. `unnest` fills it up to its longest neighbour, so one must be full.
    let has_full = (0..positions).any(|at| !items.iter().any(|item| is_null(item, at)));
    for position in 0..positions {
        let index = shared + position;
        if has_full && item_count > 0 && items.iter().all(|item| is_null(item, position)) {
            parameters.push(Encoded(None));
            continue;
        }
        let values = items.iter().map(|item| &item[position]);
        let bytes =
            array(values, item_count, &types[index], scalar).map_err(|why| at(index, why))?;
        parameters.push(Encoded(Some(bytes)));
    }
    Ok(parameters)
}

/// One value as the given type.
pub(super) fn encode(value: &Value, ty: &Type) -> Result<Encoded, String> {
    if let Kind::Domain(base) = ty.kind() {
        return encode(value, base);
    }
    let bytes = match value {
        Value::Null => return Ok(Encoded(None)),
        Value::TextList(texts) => array(texts.iter(), texts.len(), ty, |text, element, out| {
            put_text(text, element, out).map(|()| true)
        })?,
        Value::UuidList(ids) => array(ids.iter(), ids.len(), ty, |id, element, out| {
            put_uuid(id, element, out).map(|()| true)
        })?,
        _ => {
            let mut out = BytesMut::new();
            scalar(value, ty, &mut out)?;
            out
        }
    };
    Ok(Encoded(Some(bytes)))
}

/// A one-dimensional array; `put` writes one element and says `false` for NULL.
fn array<'a, T: 'a>(
    values: impl Iterator<Item = &'a T>,
    count: usize,
    ty: &Type,
    put: impl Fn(&T, &Type, &mut BytesMut) -> Result<bool, String>,
) -> Result<BytesMut, String> {
    let Kind::Array(element) = ty.kind() else {
        return Err(format!("a list cannot be stored as {ty}"));
    };
    let count = i32::try_from(count).map_err(|_| "the list is too long".to_owned())?;
    let mut out = BytesMut::with_capacity(20 + 20 * count as usize);
    out.put_i32(i32::from(count > 0));
    out.put_i32(0);
    out.put_u32(element.oid());
    if count > 0 {
        out.put_i32(count);
        out.put_i32(1);
    }
    let mut has_null = false;
    for value in values {
        let start = out.len();
        out.put_i32(-1);
        if put(value, element, &mut out)? {
            let written = i32::try_from(out.len() - start - 4);
            let length = written.map_err(|_| "the value is too long".to_owned())?;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        } else {
            has_null = true;
        }
    }
    out[4..8].copy_from_slice(&i32::from(has_null).to_be_bytes());
    Ok(out)
}

/// Writes a single value; `false` for NULL, which writes nothing.
fn scalar(value: &Value, ty: &Type, out: &mut BytesMut) -> Result<bool, String> {
    if let Kind::Domain(base) = ty.kind() {
        return scalar(value, base, out);
    }
    match value {
        Value::Null => return Ok(false),
        Value::Bool(b) if *ty == Type::BOOL => out.put_u8(u8::from(*b)),
        Value::Int(i) => put_int(*i, ty, out)?,
        Value::Text(text) => put_text(text, ty, out)?,
        Value::Uuid(id) => put_uuid(id, ty, out)?,
        Value::Time(time) if *ty == Type::TIMESTAMPTZ => {
            // Timestamps lie between the years 1970 and 9999: this cannot overflow.
            out.put_i64((time.as_ms() - EPOCH_2000_MS) * 1000);
        }
        Value::Json(text) if *ty == Type::JSONB => {
            // The version of the binary form, then the text.
            out.put_u8(1);
            put_bytes(text, out)?;
        }
        Value::Json(text) if *ty == Type::JSON => put_bytes(text, out)?,
        Value::Bool(_) => return Err(format!("a truth value cannot be stored as {ty}")),
        Value::Time(_) => return Err(format!("a time cannot be stored as {ty}")),
        Value::Json(_) => return Err(format!("JSON cannot be stored as {ty}")),
        Value::TextList(_) | Value::UuidList(_) => {
            return Err("a list cannot be part of an item".into());
        }
    }
    Ok(true)
}

fn put_int(value: i64, ty: &Type, out: &mut BytesMut) -> Result<(), String> {
    let range = |_| format!("{value} does not fit {ty}");
    match *ty {
        Type::INT8 => out.put_i64(value),
        Type::INT4 => out.put_i32(value.try_into().map_err(range)?),
        Type::INT2 => out.put_i16(value.try_into().map_err(range)?),
        Type::OID => out.put_u32(value.try_into().map_err(range)?),
        Type::XID8 => out.put_u64(value.try_into().map_err(range)?),
        // What `$1 * interval '1 millisecond'` infers; integers up to 2^53 are exact there.
        Type::FLOAT8 if value.unsigned_abs() <= 1 << 53 => out.put_f64(value as f64),
        _ => return Err(format!("the integer {value} cannot be stored as {ty}")),
    }
    Ok(())
}

fn put_text(text: &str, ty: &Type, out: &mut BytesMut) -> Result<(), String> {
    let textual = matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME);
    if !textual && !matches!(ty.kind(), Kind::Enum(_)) {
        return Err(format!("text cannot be stored as {ty}"));
    }
    put_bytes(text, out)
}

fn put_bytes(text: &str, out: &mut BytesMut) -> Result<(), String> {
    if text.contains('\0') {
        return Err("the text contains a NUL character".into());
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_uuid(id: &uuid::Uuid, ty: &Type, out: &mut BytesMut) -> Result<(), String> {
    if *ty != Type::UUID {
        return Err(format!("a uuid cannot be stored as {ty}"));
    }
    out.extend_from_slice(id.as_bytes());
    Ok(())
}
