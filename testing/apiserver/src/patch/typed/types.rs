//! The types of fields in server-side apply.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::super::fields::{PathElement, Scalar};
use crate::schema::{MergeType, Schema, Shape, TypeId};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum TypeRef {
    /// A field, with its merge strategy.
    Field(&'static Shape, &'static MergeType),
    /// An object of a type.
    Object(TypeId),
    /// Deduced from the value: lists are atomic, maps are merged.
    Deduced,
    /// A custom object: only the metadata has a type.
    Custom,
}

/// How server-side apply treats a value.
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

/// How the items of a list are related.
#[derive(Clone, Copy, Debug)]
pub(in crate::patch) enum Relation {
    /// The list is a single field.
    Atomic,
    /// Each item is a field, identified by its value.
    Set,
    /// Each item is a field, identified by the values of these keys.
    Keys(&'static [String]),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::patch) struct MapType {
    pub(super) fields: Fields,
    /// Whether the map is a single field.
    pub(super) atomic: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fields {
    /// Only the fields of a type.
    Declared(TypeId),
    /// Any fields, of one type.
    Any(TypeRef),
    /// The fields of every object, and any others.
    Custom,
}

static DEFAULT: MergeType = MergeType::Default;
static STRING: Shape = Shape::String;

impl TypeRef {
    /// The type of a built-in kind's objects, or of custom objects.
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
    /// The type of a declared field.
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

    /// The type of any field; `None` if it does not exist.
    pub(super) fn field(self, name: &str) -> Option<TypeRef> {
        self.declared(name).or(match self.fields {
            Fields::Declared(_) => None,
            Fields::Any(element) => Some(element),
            Fields::Custom => Some(TypeRef::Deduced),
        })
    }

    /// The type of a field in a validated value.
    pub(super) fn field_or_deduced(self, name: &str) -> TypeRef {
        self.field(name).unwrap_or(TypeRef::Deduced)
    }
}

impl ListType {
    /// The step that identifies an item.
    pub(super) fn step(self, item: &Value) -> Result<PathElement, String> {
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
            (Relation::Set, item) => Ok(PathElement::Item(Scalar(item.clone()))),
            (Relation::Keys(keys), Value::Object(fields)) => self.key_step(keys, fields),
            (Relation::Keys(_), Value::Null) => {
                Err("associative list with keys may not have a null element".to_owned())
            }
            (Relation::Keys(_), _) => {
                Err("associative list with keys may not have non-map elements".to_owned())
            }
        }
    }

    pub(super) fn key_step(
        self,
        keys: &[String],
        fields: &Map<String, Value>,
    ) -> Result<PathElement, String> {
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
        Ok(PathElement::Key(found))
    }

    /// The default of a key that an item lacks, such as a port's protocol.
    pub(super) fn default(self, key: &str) -> Option<Value> {
        let TypeRef::Field(Shape::Object(type_id), _) = self.element else { return None };
        Schema::get().get_type(*type_id).field(key)?.default.clone()
    }
}
