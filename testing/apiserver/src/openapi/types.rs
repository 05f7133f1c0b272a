//! Types as JSON schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{CustomSchema, Form};
use crate::kinds::{Kind, Verbs};
use crate::schema::{Field, MergeType, Schema, Shape, Type, TypeId};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

/// The schemas of one document: the requested ones and all that they refer to.
pub(super) struct Components {
    form: Form,
    schemas: BTreeMap<String, Value>,
}

impl Components {
    pub(super) fn new(form: Form) -> Self {
        Self { form, schemas: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.schemas.into_iter().collect()
    }

    /// Adds the objects and lists of a kind.
    pub(super) fn add_kind(&mut self, kind: &Kind, custom: CustomSchema<'_>) {
        if kind.custom {
            self.add_custom(kind, custom);
            return;
        }
        self.add_named(&kind.group, &kind.version, &kind.kind);
        if kind.verbs == Verbs::All {
            self.add_named(&kind.group, &kind.version, &kind.list_kind());
        }
    }

    /// Adds a built-in type by group, version and kind, and returns a reference to it.
    pub(super) fn add_named(&mut self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let id = Schema::get().kind(&api_version, kind)?;
        let name = &Schema::get().get_type(id).name;
        self.add_type(id);
        self.mark(name, group, version, kind);
        Some(self.reference(name))
    }

    /// Adds the delete options, which exist in every group version.
    pub(super) fn add_delete_options(&mut self, kind: &Kind) -> Option<Value> {
        let reference = self.add_named("", "v1", "DeleteOptions")?;
        self.mark(&format!("{META}.DeleteOptions"), &kind.group, &kind.version, "DeleteOptions");
        Some(reference)
    }

    /// Adds a patch: an object of any shape.
    pub(super) fn add_patch(&mut self) -> Value {
        self.leaf(&format!("{META}.Patch"), json!({"type": "object"}))
    }

    /// A reference to the objects of a kind that has been added.
    pub(super) fn kind_reference(&self, kind: &Kind, list: bool) -> Option<Value> {
        let kind_name = if list { kind.list_kind() } else { kind.kind.to_string() };
        let name = if kind.custom {
            custom_name(kind, &kind_name)
        } else {
            let id = Schema::get().kind(&kind.api_version(), &kind_name)?;
            Schema::get().get_type(id).name.clone()
        };
        Some(self.reference(&name))
    }

    fn add_type(&mut self, id: TypeId) {
        let schema = Schema::get();
        let mut waiting = vec![id];
        while let Some(id) = waiting.pop() {
            let one = schema.get_type(id);
            if !self.schemas.contains_key(&one.name) {
                // Inserted first, so that recursive types end.
                self.schemas.insert(one.name.clone(), Value::Null);
                let object = self.object(one, &mut waiting);
                self.schemas.insert(one.name.clone(), object);
            }
        }
    }

    fn add_meta(&mut self, name: &str) -> Option<Value> {
        let name = format!("{META}.{name}");
        self.add_type(Schema::get().named(&name)?);
        Some(self.reference(&name))
    }

    fn object(&mut self, one: &Type, waiting: &mut Vec<TypeId>) -> Value {
        let properties: Map<String, Value> =
            one.fields.iter().map(|field| (field.name.clone(), self.property(one, field, waiting))).collect();
        let required: Vec<&str> =
            one.fields.iter().filter(|field| field.required).map(|field| &*field.name).collect();
        let mut object = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            object["required"] = required.into();
        }
        if one.atomic {
            object["x-kubernetes-map-type"] = "atomic".into();
        }
        object
    }

    fn property(&mut self, owner: &Type, field: &Field, waiting: &mut Vec<TypeId>) -> Value {
        let shape = match field.shape {
            Shape::Any => self.any(owner, field),
            ref shape => self.shape(shape, waiting),
        };
        let mut property = match shape {
            // v3 ignores keywords beside a reference.
            reference if self.form == Form::V3 && reference.get("$ref").is_some() => {
                json!({"allOf": [reference]})
            }
            other => other,
        };
        if let Some(default) = &field.default {
            property["default"] = default.clone();
        }
        merge_extensions(&mut property, field);
        patch_extensions(&mut property, field);
        property
    }

    fn shape(&mut self, shape: &Shape, waiting: &mut Vec<TypeId>) -> Value {
        match shape {
            Shape::Bool => json!({"type": "boolean"}),
            Shape::Int32 => json!({"type": "integer", "format": "int32"}),
            Shape::Int64 => json!({"type": "integer", "format": "int64"}),
            Shape::Double => json!({"type": "number", "format": "double"}),
            Shape::String => json!({"type": "string"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            Shape::Time => self.time("Time"),
            Shape::MicroTime => self.time("MicroTime"),
            Shape::Quantity => {
                let quantity = match self.form {
                    Form::V2 => json!({"type": "string"}),
                    Form::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                };
                self.leaf("io.k8s.apimachinery.pkg.api.resource.Quantity", quantity)
            }
            Shape::IntOrString => {
                let either = match self.form {
                    Form::V2 => json!({"type": "string", "format": "int-or-string"}),
                    Form::V3 => {
                        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
                    }
                };
                self.leaf("io.k8s.apimachinery.pkg.util.intstr.IntOrString", either)
            }
            Shape::Any => {
                self.leaf("io.k8s.apimachinery.pkg.runtime.RawExtension", json!({"type": "object"}))
            }
            Shape::Object(id) => {
                waiting.push(*id);
                self.reference(&Schema::get().get_type(*id).name)
            }
            Shape::List(item) => json!({"type": "array", "items": self.element(item, waiting)}),
            Shape::Map(value) => {
                json!({"type": "object", "additionalProperties": self.element(value, waiting)})
            }
        }
    }

    /// The schema of a list item or map value. It is never absent: Go's zero value is its default.
    fn element(&mut self, shape: &Shape, waiting: &mut Vec<TypeId>) -> Value {
        let mut element = self.shape(shape, waiting);
        let zero = match shape {
            Shape::String => json!(""),
            Shape::Int32 | Shape::Int64 | Shape::Double => json!(0),
            Shape::Bool => json!(false),
            Shape::Object(_) => json!({}),
            _ => return element,
        };
        if self.form == Form::V3 {
            if element.get("$ref").is_some() {
                element = json!({"allOf": [element]});
            }
            element["default"] = zero;
        }
        element
    }

    /// Any object; in the schemas of custom resources, any JSON.
    fn any(&mut self, owner: &Type, field: &Field) -> Value {
        if field.name == "fieldsV1" {
            self.leaf(&format!("{META}.FieldsV1"), json!({"type": "object"}))
        } else if owner.name.starts_with(APIEXTENSIONS) {
            self.leaf(&format!("{APIEXTENSIONS}.JSON"), json!({}))
        } else {
            self.raw_extension()
        }
    }

    fn raw_extension(&mut self) -> Value {
        self.leaf("io.k8s.apimachinery.pkg.runtime.RawExtension", json!({"type": "object"}))
    }

    fn time(&mut self, name: &str) -> Value {
        self.leaf(&format!("{META}.{name}"), json!({"type": "string", "format": "date-time"}))
    }

    /// A type without fields.
    fn leaf(&mut self, name: &str, schema: Value) -> Value {
        self.schemas.entry(name.to_owned()).or_insert(schema);
        self.reference(name)
    }

    fn reference(&self, name: &str) -> Value {
        let place = match self.form {
            Form::V2 => "definitions",
            Form::V3 => "components/schemas",
        };
        json!({"$ref": format!("#/{place}/{name}")})
    }

    /// Adds the group, version and kind to a schema.
    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let Some(Value::Object(schema)) = self.schemas.get_mut(name) else { return };
        let mark = json!({"group": group, "version": version, "kind": kind});
        if let Value::Array(marks) = schema.entry(GROUP_VERSION_KIND).or_insert_with(|| json!([]))
            && !marks.contains(&mark)
        {
            marks.push(mark);
        }
    }

    fn add_custom(&mut self, kind: &Kind, custom: CustomSchema<'_>) {
        let metadata = self.add_meta("ObjectMeta");
        let list_metadata = self.add_meta("ListMeta");
        let own = match custom(kind) {
            Some(Value::Object(schema)) => schema,
            _ => Map::from_iter([("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true))]),
        };
        let (name, list_name) = (custom_name(kind, &kind.kind), custom_name(kind, &kind.list_kind()));
        let object = self.with_type_and_metadata(own, metadata);
        self.schemas.insert(name.clone(), object);
        self.mark(&name, &kind.group, &kind.version, &kind.kind);
        let items = json!({"type": "array", "items": self.reference(&name)});
        let list = Map::from_iter([
            ("required".to_owned(), json!(["items"])),
            ("properties".to_owned(), json!({"items": items})),
        ]);
        let list = self.with_type_and_metadata(list, list_metadata);
        self.schemas.insert(list_name.clone(), list);
        self.mark(&list_name, &kind.group, &kind.version, &kind.list_kind());
    }

    /// Adds the fields that every kind has, overriding those of its own schema.
    fn with_type_and_metadata(&self, mut schema: Map<String, Value>, metadata: Option<Value>) -> Value {
        schema.insert("type".to_owned(), "object".into());
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if !properties.is_object() {
            *properties = json!({});
        }
        properties["apiVersion"] = json!({"type": "string"});
        properties["kind"] = json!({"type": "string"});
        if let Some(metadata) = metadata {
            properties["metadata"] = match self.form {
                Form::V2 => metadata,
                Form::V3 => json!({"allOf": [metadata]}),
            };
        }
        Value::Object(schema)
    }
}

/// Upstream's name of a custom resource's type: `com.example.v1.Widget`.
fn custom_name(kind: &Kind, name: &str) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([&*kind.version, name]);
    parts.join(".")
}

fn merge_extensions(property: &mut Value, field: &Field) {
    let is_list = matches!(field.shape, Shape::List(_));
    match &field.merge {
        MergeType::Default => {}
        MergeType::Atomic if is_list => property["x-kubernetes-list-type"] = "atomic".into(),
        // Atomic types carry the extension themselves.
        MergeType::Atomic => {
            if !matches!(field.shape, Shape::Object(id) if Schema::get().get_type(id).atomic) {
                property["x-kubernetes-map-type"] = "atomic".into();
            }
        }
        MergeType::Set => property["x-kubernetes-list-type"] = "set".into(),
        MergeType::Map(keys) => {
            property["x-kubernetes-list-type"] = "map".into();
            property["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
}

fn patch_extensions(property: &mut Value, field: &Field) {
    let strategies = [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys")];
    let strategies: Vec<&str> = strategies.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
    if !strategies.is_empty() {
        property["x-kubernetes-patch-strategy"] = strategies.join(",").into();
    }
    if let Some(key) = &field.patch.merge_key {
        property["x-kubernetes-patch-merge-key"] = key.as_str().into();
    }
}
