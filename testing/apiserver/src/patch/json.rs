//! JSON patch, RFC 6902, with the deviations of upstream's library: negative indices count from the
//! end, `replace` and `copy` treat a missing field as null, and text before the first slash of a
//! path is ignored.

use http::StatusCode;
use serde_json::{Map, Value};

use super::errors::{cannot_unmarshal, decode, rejected, status};
use crate::depth;
use crate::status::{Result, Status};

/// The maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that a patch may copy.
const MAX_COPIED: usize = 3 << 20;

/// One operation. As upstream, missing parts are only reported when it is applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

pub(super) fn parse(body: &[u8]) -> Result<Vec<Operation>> {
    let bad = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let operations = match decode(body).map_err(bad)? {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => return Err(bad(cannot_unmarshal(&other, "value of type []handlers.jsonPatchOp"))),
    };
    let count = operations.len();
    let operations: Vec<Operation> =
        operations.into_iter().map(Operation::read).collect::<std::result::Result<_, _>>().map_err(bad)?;
    if count > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        );
        return Err(status(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
    }
    Ok(operations)
}

pub(super) fn apply(operations: &[Operation], current: &Value) -> Result<Value> {
    let mut object = current.clone();
    let mut copied = 0;
    for operation in operations {
        operation.apply(&mut object, &mut copied).ok_or_else(rejected)?;
    }
    Ok(object)
}

impl Operation {
    fn read(operation: Value) -> std::result::Result<Self, String> {
        let mut fields = match operation {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => return Err(cannot_unmarshal(&other, "value of type handlers.jsonPatchOp")),
        };
        let mut text = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                let field = format!("struct field jsonPatchOp.{name} of type string");
                Err(cannot_unmarshal(&other, &field))
            }
        };
        let (op, path, from) = (text("op")?, text("path")?, text("from")?);
        Ok(Self { op, path, from, value: fields.remove("value").unwrap_or_default() })
    }

    /// Applies the operation; `None` if it fails. `copied` counts the copied bytes, because
    /// repeated copies grow exponentially.
    fn apply(&self, object: &mut Value, copied: &mut usize) -> Option<()> {
        match self.op.as_deref()? {
            "add" => self.add(object, self.value.clone()),
            "remove" => PatchTarget::find(object, self.path.as_deref()?)?.remove().map(drop),
            "replace" => self.replace(object),
            "test" => self.test(object),
            "copy" => {
                let value = PatchTarget::find(object, self.from.as_deref()?)?.get()?.clone();
                *copied += value.to_string().len();
                if *copied > MAX_COPIED { None } else { self.add(object, value) }
            }
            "move" => {
                let value = PatchTarget::find(object, self.from.as_deref()?)?.remove()?;
                self.add(object, value)
            }
            _ => None,
        }
    }

    fn add(&self, object: &mut Value, value: Value) -> Option<()> {
        let path = self.path.as_deref()?;
        let levels = depth::DEEPEST.checked_sub(path.matches('/').count())?;
        if !depth::is_within(&value, levels) {
            return None;
        }
        PatchTarget::find(object, path)?.add(value)
    }

    fn replace(&self, object: &mut Value) -> Option<()> {
        let path = self.path.as_deref()?;
        if path.is_empty() {
            if !matches!(self.value, Value::Object(_) | Value::Array(_)) {
                return None;
            }
            *object = self.value.clone();
            return Some(());
        }
        PatchTarget::find(object, path)?.set(self.value.clone())
    }

    fn test(&self, object: &mut Value) -> Option<()> {
        let path = self.path.as_deref()?;
        let equal = if path.is_empty() {
            *object == self.value
        } else {
            *PatchTarget::find(object, path)?.get()? == self.value
        };
        equal.then_some(())
    }
}

/// The last step of a path: an existing or possible position.
enum PatchTarget<'a> {
    Field(&'a mut Map<String, Value>, String),
    Item(&'a mut Vec<Value>, String),
}

impl<'a> PatchTarget<'a> {
    fn find(object: &'a mut Value, path: &str) -> Option<Self> {
        let (_, path) = path.split_once('/')?;
        let (parents, last) =
            path.rsplit_once('/').map_or((None, path), |(parents, last)| (Some(parents), last));
        let mut container = object;
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            container = match container {
                Value::Object(fields) => fields.get_mut(&unescaped(part))?,
                Value::Array(items) => {
                    let index = existing(&unescaped(part), items.len())?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
        }
        match container {
            Value::Object(fields) => Some(Self::Field(fields, unescaped(last))),
            Value::Array(items) => Some(Self::Item(items, unescaped(last))),
            _ => None,
        }
    }

    fn get(&self) -> Option<&Value> {
        match self {
            Self::Field(fields, name) => Some(fields.get(name).unwrap_or(&Value::Null)),
            Self::Item(items, index) => items.get(existing(index, items.len())?),
        }
    }

    fn add(self, value: Value) -> Option<()> {
        match self {
            Self::Field(fields, name) => drop(fields.insert(name, value)),
            Self::Item(items, index) if index == "-" => items.push(value),
            Self::Item(items, index) => {
                let index = existing(&index, items.len() + 1)?;
                items.insert(index, value);
            }
        }
        Some(())
    }

    fn set(self, value: Value) -> Option<()> {
        match self {
            Self::Field(fields, name) => drop(fields.insert(name, value)),
            Self::Item(items, index) => {
                let index = existing(&index, items.len())?;
                items[index] = value;
            }
        }
        Some(())
    }

    fn remove(self) -> Option<Value> {
        match self {
            Self::Field(fields, name) => fields.remove(&name),
            Self::Item(items, index) => {
                let index = existing(&index, items.len())?;
                Some(items.remove(index))
            }
        }
    }
}

/// The index of an existing item; negative indices count from the end.
fn existing(index: &str, len: usize) -> Option<usize> {
    let index: i64 = index.parse().ok()?;
    let index = if index < 0 { index.checked_add(i64::try_from(len).ok()?)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn unescaped(part: &str) -> String {
    if part.contains('~') { part.replace("~1", "/").replace("~0", "~") } else { part.to_owned() }
}
