//! The types of the built-in kinds: their fields, how lists and maps are patched and merged, and
//! the protobuf encoding. One table feeds the decoder, strategic merge patch, server-side apply,
//! protobuf and OpenAPI.
//!
//! `testing/controlplane/schema` generates the table (`schema.json`) from the Go types of the API;
//! a test fails when it is stale. To regenerate it, in `testing/controlplane`: `go run ./schema >
//! ../../testing/apiserver/src/schema.json`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use crate::kinds::Kind;

const TABLE: &str = include_str!("schema.json");

/// All types.
#[derive(Debug)]
pub(crate) struct Schema {
    types: Vec<Type>,
    names: FxHashMap<String, TypeId>,
    kinds: FxHashMap<String, TypeId>,
}

/// Identifies a type, as an index into the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(pub u16);

/// An object type: a struct in Go, a message in protobuf.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name in OpenAPI: `io.k8s.api.core.v1.PodSpec`.
    pub name: String,
    /// The fields, in Go's order.
    pub fields: Vec<Field>,
    /// Whether server-side apply always treats its objects as atomic.
    pub atomic: bool,
    by_name: Vec<u16>,
    always: Vec<u16>,
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    /// The name in JSON: `nodeName`.
    pub name: String,
    /// The field number in protobuf; 0 for none.
    pub number: u32,
    /// The field number of the inlined struct that contains it, which JSON does not show; 0 for
    /// none.
    pub inside: u32,
    /// The inlined Go struct that contains it, as in messages about wrong types: `VolumeSource`.
    pub within: Option<String>,
    /// The shape of its values.
    pub shape: Shape,
    /// Whether Go distinguishes a missing value from an empty one.
    pub pointer: bool,
    /// Whether Go omits it when empty. Other fields are always written.
    pub omit: bool,
    /// The Go type in messages about wrong types, if the shape does not determine it:
    /// `v1.RestartPolicy`.
    pub go: Option<String>,
    /// Whether OpenAPI marks it as required.
    pub required: bool,
    /// The default in OpenAPI.
    pub default: Option<Value>,
    /// How a strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// How server-side apply treats it.
    pub merge: MergeType,
}

/// The shape of a field's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
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
    /// A number and a unit, for example `100m`.
    Quantity,
    /// A number or text.
    IntOrString,
    /// Any JSON (RawExtension, JSON, FieldsV1).
    Any,
    /// An object of a type.
    Object(TypeId),
    /// A list of values of one shape.
    List(Box<Shape>),
    /// A map from text to values of one shape.
    Map(Box<Shape>),
}

/// How a strategic merge patch treats a field, from Go's `patchStrategy` and `patchMergeKey` tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    /// Whether a list of objects is merged by `merge_key`, and one of scalars as a set, instead of
    /// being replaced.
    pub merge: bool,
    /// Whether keys that the patch omits are removed.
    pub retain_keys: bool,
    /// The field that identifies a list's items.
    pub merge_key: Option<String>,
}

/// How server-side apply treats a list, map or object, from `x-kubernetes-list-type` and related
/// extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MergeType {
    /// The default: maps and objects are merged by field, lists are atomic.
    #[default]
    Default,
    /// Replaced as a whole.
    Atomic,
    /// A list of unique scalars.
    Set,
    /// A list of objects that these fields identify.
    Map(Vec<String>),
}

impl Schema {
    /// The table.
    pub(crate) fn get() -> &'static Self {
        static SCHEMA: LazyLock<Schema> =
            LazyLock::new(|| Schema::parse(TABLE).expect("the table is compiled in, and a test parses it"));
        &SCHEMA
    }

    /// A type by its index.
    pub(crate) fn get_type(&self, id: TypeId) -> &Type {
        &self.types[usize::from(id.0)]
    }

    /// The type of a built-in kind's objects; `None` for custom resources.
    pub(crate) fn of(&self, kind: &Kind) -> Option<TypeId> {
        if kind.custom { None } else { self.kind(&kind.api_version(), &kind.kind) }
    }

    /// The type of a kind by its JSON names: served kinds, their lists, and other types of requests
    /// and responses (`v1` `Status`, `policy/v1` `Eviction`, `DeleteOptions` of any group, as
    /// upstream's clients send it).
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<TypeId> {
        let api_version = if kind == "DeleteOptions" { "v1" } else { api_version };
        self.kinds.get(&format!("{api_version} {kind}")).copied()
    }

    /// A type by its name in OpenAPI: `io.k8s.api.core.v1.PodSpec`.
    pub(crate) fn named(&self, name: &str) -> Option<TypeId> {
        self.names.get(name).copied()
    }

    /// Every type, ordered by name.
    #[cfg(test)]
    pub(crate) fn types(&self) -> impl ExactSizeIterator<Item = (TypeId, &Type)> {
        // `parse` rejects more than 65,536 types.
        #[expect(clippy::cast_possible_truncation)]
        self.types.iter().enumerate().map(|(index, one)| (TypeId(index as u16), one))
    }

    fn parse(text: &str) -> Result<Self, TableError> {
        let table: RawTable<'_> = serde_json::from_str(text)?;
        let mut names = FxHashMap::default();
        for (index, raw) in table.types.iter().enumerate() {
            let id = u16::try_from(index).map_err(|_| TableError::TooMany)?;
            names.insert(raw.name.to_owned(), TypeId(id));
        }
        let types = table.types.into_iter().map(|raw| raw.build(&names)).collect::<Result<_, _>>()?;
        let kinds = table.kinds.into_iter().map(|(kind, name)| Ok((kind.to_owned(), lookup(&names, name)?)));
        let kinds = kinds.collect::<Result<_, TableError>>()?;
        Ok(Self { types, names, kinds })
    }
}

impl Type {
    /// A field by its name in JSON.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|index| &self.fields[index])
    }

    /// The fields that Go writes even when they are empty.
    pub(crate) fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|index| &self.fields[usize::from(*index)])
    }

    /// The index in `fields` of a field, by its JSON name.
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        let field = |index: &u16| self.fields[usize::from(*index)].name.as_str();
        let found = self.by_name.binary_search_by(|index| field(index).cmp(name)).ok()?;
        Some(usize::from(self.by_name[found]))
    }

    /// The Go type's name: `PodSpec`.
    pub(crate) fn go_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("unknown type {0}")]
    NoType(String),
    #[error("too many types or fields")]
    TooMany,
    #[error("unknown shape {0} of {1}")]
    Unknown(&'static str, String),
}

#[derive(Deserialize)]
struct RawTable<'a> {
    #[serde(borrow)]
    kinds: FxHashMap<&'a str, &'a str>,
    types: Vec<RawType<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawType<'a> {
    name: &'a str,
    #[serde(default)]
    atomic: bool,
    fields: Vec<RawField<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawField<'a> {
    name: &'a str,
    #[serde(default)]
    number: u32,
    #[serde(default)]
    inside: u32,
    #[serde(default)]
    within: Option<&'a str>,
    shape: &'a str,
    #[serde(default)]
    go: Option<&'a str>,
    #[serde(default)]
    pointer: bool,
    #[serde(default)]
    omit: bool,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    default: Option<Value>,
    #[serde(default)]
    patch: &'a str,
    #[serde(default)]
    merge_key: Option<&'a str>,
    #[serde(default)]
    merge: &'a str,
    #[serde(default)]
    keys: Vec<&'a str>,
}

impl RawType<'_> {
    fn build(self, names: &FxHashMap<String, TypeId>) -> Result<Type, TableError> {
        let count = u16::try_from(self.fields.len()).map_err(|_| TableError::TooMany)?;
        let fields: Vec<Field> =
            self.fields.into_iter().map(|raw| raw.build(names)).collect::<Result<_, _>>()?;
        let mut by_name: Vec<u16> = (0..count).collect();
        by_name.sort_by(|a, b| fields[usize::from(*a)].name.cmp(&fields[usize::from(*b)].name));
        let always = (0..count).filter(|index| !fields[usize::from(*index)].omit).collect();
        Ok(Type { name: self.name.to_owned(), fields, atomic: self.atomic, by_name, always })
    }
}

impl RawField<'_> {
    fn build(self, names: &FxHashMap<String, TypeId>) -> Result<Field, TableError> {
        Ok(Field {
            name: self.name.to_owned(),
            number: self.number,
            inside: self.inside,
            within: self.within.map(str::to_owned),
            shape: shape(self.shape, names)?,
            pointer: self.pointer,
            omit: self.omit,
            go: self.go.map(str::to_owned),
            required: self.required,
            default: self.default,
            patch: PatchStrategy {
                merge: self.patch.split(',').any(|word| word == "merge"),
                retain_keys: self.patch.split(',').any(|word| word == "retainKeys"),
                merge_key: self.merge_key.map(str::to_owned),
            },
            merge: match self.merge {
                "" => MergeType::Default,
                "atomic" => MergeType::Atomic,
                "set" => MergeType::Set,
                "map" => MergeType::Map(self.keys.into_iter().map(str::to_owned).collect()),
                other => return Err(TableError::Unknown("merge", other.to_owned())),
            },
        })
    }
}

fn shape(text: &str, names: &FxHashMap<String, TypeId>) -> Result<Shape, TableError> {
    if let Some(item) = text.strip_prefix("[]") {
        return Ok(Shape::List(Box::new(shape(item, names)?)));
    }
    if let Some(value) = text.strip_prefix("{}") {
        return Ok(Shape::Map(Box::new(shape(value, names)?)));
    }
    Ok(match text {
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "double" => Shape::Double,
        "string" => Shape::String,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "any" => Shape::Any,
        name => Shape::Object(lookup(names, name)?),
    })
}

fn lookup(names: &FxHashMap<String, TypeId>, name: &str) -> Result<TypeId, TableError> {
    names.get(name).copied().ok_or_else(|| TableError::NoType(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::built_in;

    fn pod_spec() -> &'static Type {
        let schema = Schema::get();
        schema.get_type(schema.named("io.k8s.api.core.v1.PodSpec").unwrap())
    }

    #[test]
    fn every_built_in_kind_has_a_type_and_most_have_a_list() {
        let schema = Schema::get();
        for kind in built_in() {
            let id = schema.of(kind).unwrap_or_else(|| panic!("no type for {}", kind.qualified()));
            assert_eq!(schema.get_type(id).go_name(), kind.kind);
            let metadata = schema.get_type(id).field("metadata").map(|field| &field.shape);
            let expected = schema.named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap();
            assert_eq!(metadata, Some(&Shape::Object(expected)), "{}", kind.qualified());
            if kind.verbs == crate::kinds::Verbs::All {
                assert!(
                    schema.kind(&kind.api_version(), &kind.list_kind()).is_some(),
                    "{}",
                    kind.qualified()
                );
            }
        }
    }

    #[test]
    fn every_field_is_found_by_its_name() {
        for (id, one) in Schema::get().types() {
            assert_eq!(Schema::get().named(&one.name), Some(id));
            for field in &one.fields {
                assert!(std::ptr::eq(one.field(&field.name).unwrap(), field), "{} {}", one.name, field.name);
            }
            assert!(one.field("nothing").is_none());
        }
    }

    #[test]
    fn field_matches_its_go_tags() {
        let volumes = pod_spec().field("volumes").unwrap();
        assert_eq!(volumes.number, 1);
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
        assert_eq!(volumes.patch.merge_key.as_deref(), Some("name"));
        assert_eq!(volumes.merge, MergeType::Map(vec!["name".to_owned()]));
        assert_eq!(pod_spec().field("nodeSelector").unwrap().merge, MergeType::Atomic);
        assert_eq!(pod_spec().field("containers").unwrap().number, 2);
        assert!(pod_spec().field("containers").unwrap().required);
    }

    #[test]
    fn table_matches_the_go_types() {
        let Some(printed) = supercargo_controlplane::run_tool_or_skip("./schema", &[], &[]) else { return };
        let differs = printed.trim().lines().zip(TABLE.trim().lines()).find(|(new, old)| new != old);
        assert_eq!(differs, None, "run `go run ./schema` in testing/controlplane again");
        assert_eq!(printed.trim().lines().count(), TABLE.trim().lines().count());
    }

    #[test]
    fn custom_resources_have_no_type() {
        let pods = built_in().iter().find(|kind| kind.resource == "pods").unwrap();
        assert_eq!(Schema::get().of(&Kind { custom: true, ..pods.clone() }), None);
        assert_eq!(Schema::get().kind("example.com/v1", "Pod"), None);
    }

    #[test]
    fn every_group_has_delete_options() {
        let core = Schema::get().kind("v1", "DeleteOptions");
        assert!(core.is_some());
        assert_eq!(Schema::get().kind("apps/v1", "DeleteOptions"), core);
    }
}
