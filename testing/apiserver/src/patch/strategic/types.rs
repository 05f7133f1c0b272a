//! The schema's information about a field to merge, and upstream's errors if there is none.

use crate::schema::{Field, Schema, Shape, TypeId};
use crate::status::{Result, Status};

use super::super::errors::unknown;

/// The fields of a value to merge.
#[derive(Clone, Copy)]
pub(super) enum Fields {
    /// The fields of a type.
    Typed(TypeId),
    /// The fields of arbitrary JSON.
    Any,
    /// A map, or no object at all; the text is Go's word for its type.
    Not(&'static str),
}

/// A field that holds an object.
pub(super) struct ObjectField {
    pub(super) fields: Fields,
    /// Whether the patch replaces the current object.
    pub(super) replaced: bool,
}

/// A field that holds a list.
#[derive(Clone, Copy)]
pub(super) struct ListField {
    /// The fields of the items.
    pub(super) fields: Fields,
    /// Whether the patch's items are merged with the current ones.
    pub(super) merged: bool,
    pub(super) key: Option<&'static str>,
}

impl Fields {
    fn of_shape(shape: &Shape) -> Self {
        match shape {
            Shape::Object(type_id) => Self::Typed(*type_id),
            Shape::Map(_) => Self::Not("map"),
            Shape::List(_) | Shape::Bytes => Self::Not("slice"),
            Shape::Bool => Self::Not("bool"),
            Shape::Int32 => Self::Not("int32"),
            Shape::Int64 => Self::Not("int64"),
            Shape::Double => Self::Not("float64"),
            Shape::String => Self::Not("string"),
            Shape::Any | Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString => Self::Any,
        }
    }

    pub(super) fn object(self, name: &str) -> Result<ObjectField> {
        let field = self.field(name)?;
        // The only field with this tag upstream; the table cannot express it.
        let replaced = name == "selector" && self.is("io.k8s.api.policy.v1.PodDisruptionBudgetSpec");
        Ok(ObjectField { fields: Self::of_shape(&field.shape), replaced })
    }

    pub(super) fn list(self, name: &str) -> Result<ListField> {
        let field = self.field(name)?;
        let Shape::List(item) = &field.shape else {
            return Err(unknown("expected slice or array type, but got: struct"));
        };
        Ok(ListField {
            fields: Self::of_shape(item),
            merged: field.patch.merge,
            key: field.patch.merge_key.as_deref(),
        })
    }

    fn is(self, name: &str) -> bool {
        matches!(self, Self::Typed(type_id) if Schema::get().get_type(type_id).name == name)
    }

    fn field(self, name: &str) -> Result<&'static Field> {
        match self {
            Self::Typed(type_id) => {
                let owner = Schema::get().get_type(type_id);
                owner.field(name).ok_or_else(|| no_such_field(owner.go_name(), name))
            }
            Self::Any => Err(no_such_field("RawExtension", name)),
            Self::Not(what) => Err(unknown(format!(
                "merging an object in json but data type is not struct, instead is: {what}"
            ))),
        }
    }
}

fn no_such_field(owner: &str, name: &str) -> Status {
    unknown(format!("unable to find api field in struct {owner} for the json field {name:?}"))
}
