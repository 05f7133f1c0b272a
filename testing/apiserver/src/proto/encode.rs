//! Encodes JSON as messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::error::{ProtobufError, Result};
use super::wire;
use crate::schema::{Field, Schema, Shape, Type};

/// Encodes the fields of an object. Fields that the type or protobuf lacks (such as `kind`) are
/// skipped.
pub(super) fn message(one: &Type, object: &Value, out: &mut Vec<u8>) -> Result<()> {
    let Value::Object(fields) = object else { return Err(wrong_type(&one.name, object)) };
    for (name, value) in fields {
        let Some(field) = one.field(name) else { continue };
        if field.number == 0 || value.is_null() {
            continue;
        }
        if field.inside == 0 {
            content(field, value, out)?;
        } else {
            // Each field gets its own enclosing message; decoders merge them.
            wire::nested(field.inside, out, |out| content(field, value, out))?;
        }
    }
    Ok(())
}

fn content(field: &Field, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    let number = field.number;
    match (&field.shape, value) {
        (Shape::List(shape), Value::Array(items)) => {
            items.iter().try_for_each(|item| single(number, shape, item, field, out))
        }
        (Shape::Map(shape), Value::Object(entries)) => entries.iter().try_for_each(|(key, value)| {
            wire::nested(number, out, |out| {
                wire::bytes(1, key.as_bytes(), out);
                single(2, shape, value, field, out)
            })
        }),
        (shape, value) => single(number, shape, value, field, out),
    }
}

fn single(number: u32, shape: &Shape, value: &Value, field: &Field, out: &mut Vec<u8>) -> Result<()> {
    if value.is_null() {
        // An empty list item or map value; null fields are skipped earlier.
        null(number, shape, out);
        return Ok(());
    }
    let wrong_type = || wrong_type(&field.name, value);
    match shape {
        Shape::Bool => wire::integer(number, value.as_bool().ok_or_else(wrong_type)?.into(), out),
        Shape::Int32 | Shape::Int64 => wire::integer(number, value.as_i64().ok_or_else(wrong_type)?, out),
        Shape::Double => {
            wire::tag(number, wire::FIXED64, out);
            out.extend_from_slice(&value.as_f64().ok_or_else(wrong_type)?.to_le_bytes());
        }
        Shape::String => wire::bytes(number, value.as_str().ok_or_else(wrong_type)?.as_bytes(), out),
        Shape::Bytes => {
            let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(wrong_type)?;
            wire::bytes(number, &bytes, out);
        }
        Shape::Time | Shape::MicroTime => {
            let time =
                value.as_str().and_then(|text| text.parse::<Timestamp>().ok()).ok_or_else(wrong_type)?;
            // As Go's Unix: seconds are rounded down, nanoseconds never negative.
            let nanos = time.as_nanosecond().rem_euclid(1_000_000_000);
            let seconds = (time.as_nanosecond() - nanos) / 1_000_000_000;
            let small = |number: i128| i64::try_from(number).unwrap_or_default();
            return wire::nested(number, out, |out| {
                wire::integer(1, small(seconds), out);
                wire::integer(2, if *shape == Shape::Time { 0 } else { small(nanos) }, out);
                Ok(())
            });
        }
        Shape::Quantity => {
            let text = value.as_str().ok_or_else(wrong_type)?;
            return wire::nested(number, out, |out| {
                wire::bytes(1, text.as_bytes(), out);
                Ok(())
            });
        }
        Shape::IntOrString => {
            let (text, integer) = (value.as_str(), value.as_i64());
            if text.is_none() && integer.is_none() {
                return Err(wrong_type());
            }
            return wire::nested(number, out, |out| {
                wire::integer(1, text.is_some().into(), out);
                wire::integer(2, integer.unwrap_or_default(), out);
                wire::bytes(3, text.unwrap_or_default().as_bytes(), out);
                Ok(())
            });
        }
        Shape::Any => {
            let json = serde_json::to_vec(value)?;
            return wire::nested(number, out, |out| {
                wire::bytes(1, &json, out);
                Ok(())
            });
        }
        Shape::Object(id) => {
            return wire::nested(number, out, |out| message(Schema::get().get_type(*id), value, out));
        }
        // A list in a map (`extra` of users) is encoded as a message whose first field is the list.
        Shape::List(shape) => {
            let items = value.as_array().ok_or_else(wrong_type)?;
            return wire::nested(number, out, |out| {
                items.iter().try_for_each(|item| single(1, shape, item, field, out))
            });
        }
        // No API type nests maps in lists or in maps.
        Shape::Map(_) => return Err(wrong_type()),
    }
    Ok(())
}

fn null(number: u32, shape: &Shape, out: &mut Vec<u8>) {
    match shape {
        Shape::Bool | Shape::Int32 | Shape::Int64 => wire::integer(number, 0, out),
        Shape::Double => {
            wire::tag(number, wire::FIXED64, out);
            out.extend_from_slice(&[0; 8]);
        }
        // Empty text and empty messages have no bytes.
        _ => wire::bytes(number, &[], out),
    }
}

fn wrong_type(field: &str, value: &Value) -> ProtobufError {
    ProtobufError::WrongType { field: field.to_owned(), value: value.to_string() }
}
