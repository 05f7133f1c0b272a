//! Decodes messages to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde_json::{Map, Number, Value};

use super::error::{ProtobufError, Result};
use super::wire::{Datum, Fields, read_varint, text};
use crate::decode::time::{Precision, show};
use crate::schema::{Field, Schema, Shape, Type};

/// The maximum nesting of messages, which bounds recursive types.
const DEPTH: usize = 100;
const WRONG_TYPE: ProtobufError = ProtobufError::Broken("wrong wireType");

/// Decodes a message. Unknown fields are skipped.
pub(super) fn message(one: &Type, bytes: &[u8]) -> Result<Value> {
    let mut object = Map::new();
    fields(one, 0, bytes, &mut object, DEPTH)?;
    Ok(object.into())
}

/// Decodes the fields of a message into an object. `inside` is the number of the enclosing message
/// that JSON does not show.
fn fields(
    one: &Type,
    inside: u32,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::Broken("too deep"))?;
    for entry in Fields::of(bytes) {
        let (number, datum) = entry?;
        let known = |field: &&Field| field.number == number && field.inside == inside;
        if let Some(field) = one.fields.iter().find(known) {
            content(field, datum, object, depth)?;
        } else if inside == 0
            && let Datum::Bytes(inner) = datum
            && one.fields.iter().any(|field| field.inside == number)
        {
            fields(one, number, inner, object, depth)?;
        }
    }
    Ok(())
}

fn content(field: &Field, datum: Datum<'_>, object: &mut Map<String, Value>, depth: usize) -> Result<()> {
    match &field.shape {
        Shape::List(shape) => {
            if let Value::Array(items) = slot(object, field, || Value::Array(Vec::new())) {
                items_of(shape, datum, items, depth)?;
            }
        }
        Shape::Map(shape) => {
            let (key, value) = entry(shape, datum, depth)?;
            if let Value::Object(entries) = slot(object, field, || Value::Object(Map::new())) {
                entries.insert(key, value);
            }
        }
        Shape::Object(id) => {
            let Datum::Bytes(bytes) = datum else { return Err(WRONG_TYPE) };
            // Repeated occurrences of a message are merged.
            if let Value::Object(inner) = slot(object, field, || Value::Object(Map::new())) {
                fields(Schema::get().get_type(*id), 0, bytes, inner, depth)?;
            }
        }
        shape => {
            let value = single(shape, datum, depth)?;
            object.insert(field.name.clone(), value);
        }
    }
    Ok(())
}

fn slot<'a>(
    object: &'a mut Map<String, Value>,
    field: &Field,
    make: impl FnOnce() -> Value,
) -> &'a mut Value {
    object.entry(field.name.as_str()).or_insert_with(make)
}

/// Decodes one item, or packed numbers.
fn items_of(shape: &Shape, datum: Datum<'_>, items: &mut Vec<Value>, depth: usize) -> Result<()> {
    if let (Shape::Int32 | Shape::Int64 | Shape::Bool, Datum::Bytes(mut packed)) = (shape, datum) {
        while !packed.is_empty() {
            items.push(single(shape, Datum::Varint(read_varint(&mut packed)?), depth)?);
        }
        return Ok(());
    }
    items.push(single(shape, datum, depth)?);
    Ok(())
}

fn entry(shape: &Shape, datum: Datum<'_>, depth: usize) -> Result<(String, Value)> {
    let Datum::Bytes(bytes) = datum else { return Err(WRONG_TYPE) };
    let (mut key, mut value) = (String::new(), None);
    for field in Fields::of(bytes) {
        match field? {
            (1, Datum::Bytes(bytes)) => text(bytes)?.clone_into(&mut key),
            (2, datum) => value = Some(single(shape, datum, depth)?),
            _ => {}
        }
    }
    // The decoder of objects replaces it by an empty value of the shape.
    Ok((key, value.unwrap_or(Value::Null)))
}

fn single(shape: &Shape, datum: Datum<'_>, depth: usize) -> Result<Value> {
    Ok(match (shape, datum) {
        (Shape::Bool, Datum::Varint(number)) => (number != 0).into(),
        // Go keeps the low bits.
        #[expect(clippy::cast_possible_truncation)]
        (Shape::Int32, Datum::Varint(number)) => (number as i32).into(),
        (Shape::Int64, Datum::Varint(number)) => number.cast_signed().into(),
        (Shape::Double, Datum::Fixed(bits)) => Number::from_f64(f64::from_bits(bits)).into(),
        (Shape::String, Datum::Bytes(bytes)) => text(bytes)?.into(),
        (Shape::Bytes, Datum::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Shape::Time, Datum::Bytes(bytes)) => time(bytes, Precision::Seconds)?,
        (Shape::MicroTime, Datum::Bytes(bytes)) => time(bytes, Precision::Micros)?,
        (Shape::Quantity, Datum::Bytes(bytes)) => quantity(bytes)?,
        (Shape::IntOrString, Datum::Bytes(bytes)) => int_or_string(bytes)?,
        (Shape::Any, Datum::Bytes(bytes)) => match first_bytes(bytes)? {
            Some(json) if !json.is_empty() => serde_json::from_slice(json)?,
            _ => Value::Null,
        },
        (Shape::Object(id), Datum::Bytes(bytes)) => {
            let mut object = Map::new();
            fields(Schema::get().get_type(*id), 0, bytes, &mut object, depth)?;
            object.into()
        }
        (Shape::List(shape), Datum::Bytes(bytes)) => {
            let mut items = Vec::new();
            for field in Fields::of(bytes) {
                let (number, datum) = field?;
                if number == 1 {
                    items_of(shape, datum, &mut items, depth)?;
                }
            }
            items.into()
        }
        _ => return Err(WRONG_TYPE),
    })
}

/// The bytes of a message's first field.
fn first_bytes(message: &[u8]) -> Result<Option<&[u8]>> {
    let mut found = None;
    for field in Fields::of(message) {
        if let (1, Datum::Bytes(bytes)) = field? {
            found = Some(bytes);
        }
    }
    Ok(found)
}

fn quantity(bytes: &[u8]) -> Result<Value> {
    let written = first_bytes(bytes)?.map_or(Ok(""), text)?;
    Ok(if written.is_empty() { "0" } else { written }.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value> {
    let (mut is_text, mut integer, mut written) = (false, 0, "");
    for field in Fields::of(bytes) {
        match field? {
            (1, Datum::Varint(kind)) => is_text = kind == 1,
            (2, datum @ Datum::Varint(_)) => integer = single(&Shape::Int32, datum, 0)?.as_i64().unwrap_or(0),
            (3, Datum::Bytes(bytes)) => written = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { written.into() } else { integer.into() })
}

fn time(bytes: &[u8], precision: Precision) -> Result<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(bytes) {
        match field? {
            (1, Datum::Varint(number)) => seconds = number.cast_signed(),
            (2, Datum::Varint(number)) => nanos = i32::try_from(number.cast_signed()).unwrap_or(0),
            _ => {}
        }
    }
    // Go drops the fraction of a Time.
    let nanos = if precision == Precision::Seconds { 0 } else { nanos };
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Broken("a time out of range"))?;
    Ok(show(Offset::UTC.to_datetime(time), precision).into())
}
