//! Normalises objects as the real server's decoder and storage do: no unknown fields, no empty
//! values, times and quantities in one form, and the fields that Go writes even when empty
//! (`status: {}`).
//!
//! Not represented: duplicate fields and field order in messages, because JSON is parsed into
//! sorted maps first; and year 1 in fields that distinguish it from an unset time, which Go shows
//! as null.

pub(crate) mod time;

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use serde_json::{Map, Number, Value};

use crate::kinds::Kind;
use crate::quantity;
use crate::schema::{Field, Schema, Shape, Type, TypeId};
use time::Precision;

/// A value that does not fit its field, in the words of Go's decoder: `json: cannot unmarshal
/// number into Go struct field PodSpec.spec.nodeName of type string`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TypeError(String);

impl TypeError {
    /// The message of upstream's 400 response.
    pub(crate) fn message(&self, version: &str, kind: &str) -> String {
        error_message(version, kind, self)
    }
}

/// How to treat unknown fields: the query's `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Reject the object.
    Strict,
}

impl FieldValidation {
    /// Parses the query's value; empty means the default. `None` for unsupported values.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "Ignore" => Some(Self::Ignore),
            "" | "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }

    /// Returns the warnings for the paths that [`decode`] reported, or the message of a 400
    /// response.
    pub(crate) fn act(self, unknown: &[String], version: &str, kind: &str) -> Result<Vec<String>, String> {
        let mut texts: Vec<String> = Vec::new();
        for path in unknown {
            texts.push(format!("unknown field {path:?}"));
        }
        match self {
            Self::Ignore => Ok(Vec::new()),
            Self::Warn => Ok(texts),
            Self::Strict if texts.is_empty() => Ok(texts),
            Self::Strict => {
                Err(error_message(version, kind, format_args!("strict decoding error: {}", texts.join(", "))))
            }
        }
    }
}

fn error_message(version: &str, kind: &str, why: impl fmt::Display) -> String {
    format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}")
}

/// Normalises an object of a type to the form that the real server stores. Unknown fields are
/// removed; their paths are returned. After an error the object is only partly normalised.
pub(crate) fn decode(id: TypeId, object: &mut Value) -> Result<Vec<String>, TypeError> {
    let mut decoder = Decoder { schema: Schema::get(), unknown: Vec::new(), wrong: None };
    let one = decoder.schema.get_type(id);
    match object {
        Value::Object(fields) => decoder.object(one, fields, None)?,
        Value::Null => *object = empty_object(one),
        other => {
            return Err(TypeError(format!(
                "json: cannot unmarshal {} into Go value of type {}",
                kind_of(other),
                short_name(one)
            )));
        }
    }
    decoder.wrong.map_or(Ok(decoder.unknown), Err)
}

/// Normalises an object of a kind. Of a custom object only the metadata has a type.
pub(crate) fn decode_kind(kind: &Kind, object: &mut Value) -> Result<Vec<String>, TypeError> {
    if let Some(type_id) = Schema::get().of(kind) {
        return decode(type_id, object);
    }
    let only_metadata = Schema::get().kind("meta.k8s.io/v1", "PartialObjectMetadata");
    let (Some(type_id), Some(metadata)) = (only_metadata, object.get_mut("metadata")) else {
        return Ok(Vec::new());
    };
    let mut partial = serde_json::json!({"metadata": metadata.take()});
    let unknown = decode(type_id, &mut partial)?;
    *metadata = partial["metadata"].take();
    Ok(unknown)
}

/// An empty object of a type: the fields that Go writes even when they are empty.
pub(crate) fn empty(id: TypeId) -> Value {
    empty_object(Schema::get().get_type(id))
}

/// The current position in the object.
#[derive(Clone, Copy)]
struct Path<'a> {
    before: Option<&'a Path<'a>>,
    step: PathStep<'a>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Field(&'a Field),
    Unknown(&'a str),
    Key(&'a str),
    Index(usize),
}

impl Path<'_> {
    /// The format of messages about unknown fields: `spec.containers[0].foo`.
    fn show(&self, out: &mut String) {
        if let Some(before) = self.before {
            before.show(out);
        }
        match self.step {
            PathStep::Field(Field { name, .. }) => dotted(out, name),
            PathStep::Unknown(name) | PathStep::Key(name) => dotted(out, name),
            // Writing to a String cannot fail.
            PathStep::Index(index) => _ = write!(out, "[{index}]"),
        }
    }

    /// The format of Go's messages about wrong types, without indices but with inlined structs:
    /// `spec.volumes.VolumeSource.hostPath`.
    fn show_go(&self, out: &mut String) {
        if let Some(before) = self.before {
            before.show_go(out);
        }
        if let PathStep::Field(field) = self.step {
            if let Some(within) = &field.within {
                dotted(out, within);
            }
            dotted(out, &field.name);
        }
    }
}

fn dotted(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}

/// A position in the object, with the expected type of its value.
#[derive(Clone, Copy)]
struct TypedField<'a> {
    owner: &'a Type,
    path: &'a Path<'a>,
    shape: &'a Shape,
    /// The Go type, if the shape does not determine it.
    go: Option<&'a str>,
}

impl TypedField<'_> {
    fn refuse(&self, value: &Value, go: &str) -> TypeError {
        let mut text = format!("json: cannot unmarshal {} into Go struct field ", kind_of(value));
        text.push_str(self.owner.go_name());
        let mut path = String::new();
        self.path.show_go(&mut path);
        // Writing to a String cannot fail.
        _ = write!(text, ".{path} of type {go}");
        TypeError(text)
    }

    fn wrong(&self, value: &Value) -> TypeError {
        self.refuse(value, &self.go.map_or_else(|| go_type(self.shape), str::to_owned))
    }

    /// Messages about numbers that do not fit quote the number.
    fn wrong_number(&self, number: &Number, go: &str) -> TypeError {
        let TypeError(text) = self.refuse(&Value::Null, go);
        TypeError(text.replacen("unmarshal null", &format!("unmarshal number {number}"), 1))
    }
}

/// Whether the value stays in the object.
type Kept = bool;

struct Decoder {
    schema: &'static Schema,
    unknown: Vec<String>,
    /// The first wrong type. Go's decoder continues after it, and reports it unless another error
    /// stops the decoder.
    wrong: Option<TypeError>,
}

impl Decoder {
    fn object(
        &mut self,
        one: &Type,
        fields: &mut Map<String, Value>,
        path: Option<&Path<'_>>,
    ) -> Result<(), TypeError> {
        let mut failure = None;
        fields.retain(|name, value| {
            if failure.is_some() {
                return true;
            }
            let Some(field) = one.field(name) else {
                let mut text = String::new();
                Path { before: path, step: PathStep::Unknown(name) }.show(&mut text);
                self.unknown.push(text);
                return false;
            };
            self.field(one, field, value, path).unwrap_or_else(|error| {
                failure = Some(error);
                true
            })
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        for field in one.always() {
            if !fields.contains_key(&field.name) {
                fields.insert(field.name.clone(), empty_field(field));
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        owner: &Type,
        field: &Field,
        value: &mut Value,
        before: Option<&Path<'_>>,
    ) -> Result<Kept, TypeError> {
        if value.is_null() {
            return Ok(false);
        }
        let path = Path { before, step: PathStep::Field(field) };
        let go = field.go.as_deref();
        self.value(TypedField { owner, path: &path, shape: &field.shape, go }, value)?;
        if value.is_null() {
            return Ok(false);
        }
        // The real server's storage drops values that protobuf does not distinguish from unset
        // ones.
        Ok(match &field.shape {
            Shape::List(_) | Shape::Map(_) => !is_empty(value),
            _ => field.pointer || !field.omit || !is_empty(value),
        })
    }

    fn value(&mut self, place: TypedField<'_>, value: &mut Value) -> Result<(), TypeError> {
        let TypedField { owner, path, shape, go } = place;
        match (shape, &mut *value) {
            (Shape::Any, _)
            | (Shape::Bool, Value::Bool(_))
            | (Shape::String, Value::String(_))
            | (Shape::Double, Value::Number(_)) => Ok(()),
            (Shape::Object(id), Value::Object(fields)) => {
                self.object(self.schema.get_type(*id), fields, Some(path))
            }
            (Shape::List(shape), Value::Array(items)) => {
                let go = go.and_then(|go| go.strip_prefix("[]"));
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path { before: Some(path), step: PathStep::Index(index) };
                    self.item(TypedField { owner, path: &path, shape, go }, item)?;
                }
                Ok(())
            }
            (Shape::Map(shape), Value::Object(entries)) => {
                let milli = go == Some("v1.ResourceList");
                let go = go.and_then(|go| go.strip_prefix("map[")?.split_once(']')).map(|(_, value)| value);
                for (key, entry) in entries.iter_mut() {
                    let path = Path { before: Some(path), step: PathStep::Key(key) };
                    if milli {
                        quantity(entry, true)?;
                    } else {
                        self.item(TypedField { owner, path: &path, shape, go }, entry)?;
                    }
                }
                Ok(())
            }
            (Shape::Int32, Value::Number(number)) => {
                if !fits_int32(number) {
                    self.wrong(|| place.wrong_number(number, "int32"));
                }
                Ok(())
            }
            (Shape::Int64, Value::Number(number)) => {
                if !number.is_i64() {
                    self.wrong(|| place.wrong_number(number, "int64"));
                }
                Ok(())
            }
            (Shape::IntOrString, other) => int_or_string(place, other),
            (Shape::Quantity, other) => quantity(other, false),
            (Shape::Time, other) => time(place, other, Precision::Seconds),
            (Shape::MicroTime, other) => time(place, other, Precision::Micros),
            (Shape::Bytes, Value::String(text)) => {
                if let Some(error) = not_base64(text) {
                    self.wrong(|| error);
                }
                Ok(())
            }
            (Shape::Bytes, Value::Array(items)) => {
                match items.iter().map(byte).collect::<Result<Vec<u8>, _>>() {
                    Ok(bytes) => *value = STANDARD.encode(bytes).into(),
                    Err(item) => self.wrong(|| place.refuse(item, "uint8")),
                }
                Ok(())
            }
            (_, other) => {
                self.wrong(|| place.wrong(other));
                Ok(())
            }
        }
    }

    fn wrong(&mut self, error: impl FnOnce() -> TypeError) {
        self.wrong.get_or_insert_with(error);
    }

    /// Decodes an item of a list or map; null becomes an empty value.
    fn item(&mut self, place: TypedField<'_>, value: &mut Value) -> Result<(), TypeError> {
        if value.is_null() {
            // Protobuf has a slot for an empty item, so null is lost.
            *value = match place.shape {
                Shape::List(_) => Value::Array(Vec::new()),
                Shape::Bytes => String::new().into(),
                shape => empty_value(shape),
            };
            return Ok(());
        }
        self.value(place, value)
    }
}

fn int_or_string(place: TypedField<'_>, value: &Value) -> Result<(), TypeError> {
    match value {
        Value::Number(number) if !fits_int32(number) => Err(place.wrong_number(number, "int32")),
        Value::String(_) | Value::Number(_) => Ok(()),
        other => Err(place.refuse(other, "int32")),
    }
}

fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}

fn quantity(value: &mut Value, milli: bool) -> Result<(), TypeError> {
    let written = match &*value {
        Value::String(text) => Cow::Borrowed(text.trim()),
        Value::Null => Cow::Borrowed("0"),
        other => Cow::Owned(other.to_string()),
    };
    let canonical = if milli { quantity::canonical_milli(&written) } else { quantity::canonical(&written) };
    let canonical = canonical.map_err(|error| TypeError(error.to_string()))?;
    if value.as_str() != Some(&canonical) {
        *value = Value::String(canonical.into_owned());
    }
    Ok(())
}

fn time(place: TypedField<'_>, value: &mut Value, precision: Precision) -> Result<(), TypeError> {
    let Value::String(text) = &*value else { return Err(place.refuse(value, "string")) };
    let normal = time::normalise(text, precision).map_err(TypeError)?;
    if normal.as_deref() != Some(text) {
        *value = normal.map_or(Value::Null, Value::String);
    }
    Ok(())
}

fn not_base64(text: &str) -> Option<TypeError> {
    let offset = match STANDARD.decode(text).err()? {
        DecodeError::InvalidByte(offset, _) | DecodeError::InvalidLastSymbol(offset, _) => offset,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
    };
    Some(TypeError(format!("illegal base64 data at input byte {offset}")))
}

/// Go also accepts numbers as bytes.
fn byte(value: &Value) -> Result<u8, &Value> {
    let number = if value.is_null() { Some(0) } else { value.as_u64() };
    number.and_then(|number| u8::try_from(number).ok()).ok_or(value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn empty_field(field: &Field) -> Value {
    if field.pointer { Value::Null } else { empty_value(&field.shape) }
}

fn empty_value(shape: &Shape) -> Value {
    match shape {
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => 0.into(),
        Shape::String => String::new().into(),
        Shape::Quantity => "0".into(),
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any | Shape::List(_) | Shape::Map(_) => {
            Value::Null
        }
        Shape::Object(id) => empty(*id),
    }
}

fn empty_object(one: &Type) -> Value {
    one.always().map(|field| (field.name.clone(), empty_field(field))).collect::<Map<_, _>>().into()
}

/// The name of a JSON value's type in the errors of Go's decoder.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "bool".to_owned(),
        Shape::Int32 => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::Double => "float64".to_owned(),
        Shape::String => "string".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::MicroTime => "v1.MicroTime".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Any => "runtime.RawExtension".to_owned(),
        Shape::Object(id) => short_name(Schema::get().get_type(*id)).to_owned(),
        Shape::List(item) => format!("[]{}", go_type(item)),
        Shape::Map(value) => format!("map[string]{}", go_type(value)),
    }
}

/// The type name with its package: `v1.PodSpec`.
fn short_name(one: &Type) -> &str {
    let package = one.name.len() - one.go_name().len();
    let start = one.name[..package].trim_end_matches('.').rfind('.').map_or(0, |dot| dot + 1);
    &one.name[start..]
}

#[cfg(test)]
mod tests;
