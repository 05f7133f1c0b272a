//! The baseline for comparing a new object: Go's zero value, with the fields that Go writes even
//! when empty.

use serde_json::{Value, json};

use crate::schema::{Schema, Shape, TypeId};

/// An empty object of a type; for custom resources, an empty map.
pub(in crate::patch) fn zero(type_id: Option<TypeId>) -> Value {
    type_id.map_or_else(|| json!({}), object)
}

fn object(type_id: TypeId) -> Value {
    let fields = Schema::get().get_type(type_id).fields.iter().filter(|field| !field.omit);
    fields
        .map(|field| {
            let value = if field.pointer { Value::Null } else { value(&field.shape) };
            (field.name.clone(), value)
        })
        .collect()
}

fn value(shape: &Shape) -> Value {
    match shape {
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
        Shape::Double => 0.0.into(),
        Shape::String => "".into(),
        Shape::Quantity => "0".into(),
        Shape::Object(type_id) => object(*type_id),
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any | Shape::List(_) | Shape::Map(_) => {
            Value::Null
        }
    }
}
