//! The types of fields, as server-side apply sees them.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::super::fields::{Scalar, Step};
use crate::schema::{MergeType, Schema, Shape, TypeId};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum TypeRef {
    /// What a field holds, and how it is merged.
    Field(&'static Shape, &'static MergeType),
    /// Objects of a type.
    Object(TypeId),
    /// What the value itself tells: lists are one field, maps are merged.
    Deduced,
    /// An object of a custom resource: its metadata has a type, the rest has none.
    Custom,
}

/// How a value is treated.
#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum Atom {
    Scalar(ScalarKind),
    List(ListType),
    Map(MapType),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum ScalarKind {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::patch) struct ListType {
    pub(super) element: TypeRef,
    pub(super) relation: Relation,
}

/// What items of a list are to each other.
#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum Relation {
    /// The list is one field.
    Atomic,
    /// Each is a field of its own, by its value.
    Set,
    /// Each is a field of its own, by the values of these.
    Keys(&'static [String]),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::patch) struct MapType {
    pub(super) fields: Fields,
    /// Whether the map is one field.
    pub(super) atomic: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fields {
    /// Those of a type and no others.
    Declared(TypeId),
    /// Any, of one type.
    Any(TypeRef),
    /// Those of every object, and any other.
    Custom,
}

static DEFAULT: MergeType = MergeType::Default;
static STRING: Shape = Shape::String;

impl TypeRef {
    /// Of a built-in kind's objects, or a custom resource's.
    pub(in crate::patch) fn of(type_id: Option<TypeId>) -> Self {
        type_id.map_or(Self::Custom, Self::Object)
    }

    pub(super) fn atom(self, value: Option<&Value>) -> Atom {
        match self {
            Self::Field(shape, merge) => Self::atom_of(shape, merge, value),
            Self::Object(type_id) => Self::object(type_id, false),
            Self::Custom => Atom::Map(MapType { fields: Fields::Custom, atomic: false }),
            Self::Deduced => match value {
                None | Some(Value::Null | Value::Object(_)) => {
                    Atom::Map(MapType { fields: Fields::Any(Self::Deduced), atomic: false })
                }
                Some(Value::Array(_)) => {
                    Atom::List(ListType { element: Self::Deduced, relation: Relation::Atomic })
                }
                Some(_) => Atom::Scalar(ScalarKind::Untyped),
            },
        }
    }

    pub(super) fn atom_of(shape: &'static Shape, merge: &'static MergeType, value: Option<&Value>) -> Atom {
        match shape {
            Shape::Bool => Atom::Scalar(ScalarKind::Boolean),
            Shape::Int32 | Shape::Int64 | Shape::Double => Atom::Scalar(ScalarKind::Numeric),
            Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => Atom::Scalar(ScalarKind::String),
            Shape::Quantity | Shape::IntOrString => Atom::Scalar(ScalarKind::Untyped),
            Shape::Any => Self::Deduced.atom(value),
            Shape::Object(type_id) => Self::object(*type_id, *merge == MergeType::Atomic),
            Shape::List(item) => {
                let relation = match merge {
                    MergeType::Default | MergeType::Atomic => Relation::Atomic,
                    MergeType::Set => Relation::Set,
                    MergeType::Map(keys) => Relation::Keys(keys),
                };
                Atom::List(ListType { element: Self::Field(item, &DEFAULT), relation })
            }
            Shape::Map(item) => {
                let fields = Fields::Any(Self::Field(item, &DEFAULT));
                Atom::Map(MapType { fields, atomic: *merge == MergeType::Atomic })
            }
        }
    }

    pub(super) fn object(type_id: TypeId, atomic: bool) -> Atom {
        let atomic = atomic || Schema::get().get_type(type_id).atomic;
        Atom::Map(MapType { fields: Fields::Declared(type_id), atomic })
    }
}

impl MapType {
    /// The type of a field that is declared.
    pub(super) fn declared(self, name: &str) -> Option<TypeRef> {
        static METADATA: LazyLock<Option<TypeId>> =
            LazyLock::new(|| Schema::get().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
        match self.fields {
            Fields::Declared(type_id) => {
                let field = Schema::get().get_type(type_id).field(name)?;
                Some(TypeRef::Field(&field.shape, &field.merge))
            }
            Fields::Any(_) => None,
            Fields::Custom => match name {
                "apiVersion" | "kind" => Some(TypeRef::Field(&STRING, &DEFAULT)),
                "metadata" => METADATA.map(TypeRef::Object),
                _ => None,
            },
        }
    }

    /// The type of any field; `None` where there is none of this name.
    pub(super) fn field(self, name: &str) -> Option<TypeRef> {
        self.declared(name).or(match self.fields {
            Fields::Declared(_) => None,
            Fields::Any(element) => Some(element),
            Fields::Custom => Some(TypeRef::Deduced),
        })
    }

    /// The same, for values that have been checked.
    pub(super) fn field_or_deduced(self, name: &str) -> TypeRef {
        self.field(name).unwrap_or(TypeRef::Deduced)
    }
}

impl ListType {
    /// What tells an item from the others.
    pub(super) fn step(self, item: &Value) -> Result<Step, String> {
        match (self.relation, item) {
            (Relation::Atomic, _) => Err("invalid indexing of non-associative list".to_owned()),
            (Relation::Set, Value::Object(_)) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            (Relation::Set, Value::Array(_)) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            (Relation::Set, Value::Null) => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            (Relation::Set, item) => Ok(Step::Item(Scalar(item.clone()))),
            (Relation::Keys(keys), Value::Object(fields)) => self.key_step(keys, fields),
            (Relation::Keys(_), Value::Null) => {
                Err("associative list with keys may not have a null element".to_owned())
            }
            (Relation::Keys(_), _) => {
                Err("associative list with keys may not have non-map elements".to_owned())
            }
        }
    }

    pub(super) fn key_step(self, keys: &[String], fields: &Map<String, Value>) -> Result<Step, String> {
        let value = |key: &String| fields.get(key).cloned().or_else(|| self.default(key));
        let mut found: Vec<(String, Scalar)> =
            keys.iter().filter_map(|key| Some((key.clone(), Scalar(value(key)?)))).collect();
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                 default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort();
        Ok(Step::Key(found))
    }

    /// What a key is that an item does not have, as a port's protocol.
    pub(super) fn default(self, key: &str) -> Option<Value> {
        let TypeRef::Field(Shape::Object(type_id), _) = self.element else { return None };
        Schema::get().get_type(*type_id).field(key)?.default.clone()
    }
}
