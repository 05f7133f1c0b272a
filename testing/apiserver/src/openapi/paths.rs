//! Paths and their operations.

use serde_json::{Map, Value, json};

use super::Form;
use super::types::Components;
use crate::discovery::{response_kind, verbs};
use crate::kinds::{Kind, Subresource, Verbs};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

const OF_READS: &[(&str, &str)] = &[];
const OF_LISTS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const OF_WRITES: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const OF_PATCHES: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const OF_DELETES: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// Adds the paths of a kind.
pub(super) fn add(kind: &Kind, form: Form, components: &mut Components, paths: &mut Map<String, Value>) {
    let object = components.kind_reference(kind, false);
    let operations = Operations { kind, form, marker: marker(&kind.group, &kind.version, &kind.kind) };
    let root = kind.root();
    let collection = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.resource)
    } else {
        format!("{root}/{}", kind.resource)
    };
    let item = format!("{collection}/{{name}}");
    let post = operations.write("post", OF_WRITES, object.as_ref(), object.as_ref());
    if kind.verbs == Verbs::Create {
        paths.insert(collection, operations.path(false, [("post", post)]));
        return;
    }
    let list = components.kind_reference(kind, true);
    let options = components.add_delete_options(kind);
    let patch = components.add_patch();
    let listing = operations.read("list", OF_LISTS, list.as_ref());
    if kind.namespaced {
        let everywhere = json!({"get": listing});
        paths.insert(format!("{root}/{}", kind.resource), everywhere);
    }
    let mut whole_collection = operations.path(false, [("get", listing), ("post", post)]);
    if verbs(kind).contains(&"deletecollection") {
        whole_collection["delete"] = operations.write("deletecollection", OF_DELETES, options.as_ref(), None);
    }
    paths.insert(collection, whole_collection);
    let whole = [
        ("get", operations.read("get", OF_READS, object.as_ref())),
        ("put", operations.write("put", OF_WRITES, object.as_ref(), object.as_ref())),
        ("patch", operations.patch(&patch, object.as_ref())),
        ("delete", operations.write("delete", OF_DELETES, options.as_ref(), None)),
    ];
    paths.insert(item.clone(), operations.path(true, whole));
    for subresource in kind.subresources.iter().copied() {
        let path = operations.subresource(subresource, &patch, components);
        paths.insert(format!("{item}/{}", subresource.name()), path);
    }
}

fn marker(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// The operations on objects of one kind.
struct Operations<'a> {
    kind: &'a Kind,
    form: Form,
    marker: Value,
}

impl Operations<'_> {
    fn subresource(&self, subresource: Subresource, patch: &Value, components: &mut Components) -> Value {
        let (foreign, name) = response_kind(self.kind, subresource);
        let own = (&*self.kind.group, &*self.kind.version);
        let (group, version) = foreign.unwrap_or(own);
        let operations =
            Operations { kind: self.kind, form: self.form, marker: marker(group, version, name) };
        let object = if name == self.kind.kind && foreign.is_none() {
            components.kind_reference(self.kind, false)
        } else {
            components.add_named(group, version, name)
        };
        let object = object.as_ref();
        match subresource {
            Subresource::Binding | Subresource::Eviction | Subresource::Token => {
                operations.path(true, [("post", operations.write("post", OF_WRITES, object, object))])
            }
            Subresource::Finalize => {
                operations.path(true, [("put", operations.write("put", OF_WRITES, object, object))])
            }
            Subresource::Status
            | Subresource::Scale
            | Subresource::EphemeralContainers
            | Subresource::Resize => {
                let whole = [
                    ("get", operations.read("get", OF_READS, object)),
                    ("put", operations.write("put", OF_WRITES, object, object)),
                    ("patch", operations.patch(patch, object)),
                ];
                operations.path(true, whole)
            }
        }
    }

    /// A path with its path parameters.
    fn path<const N: usize>(&self, named: bool, operations: [(&str, Value); N]) -> Value {
        let mut path: Map<String, Value> =
            operations.into_iter().map(|(method, operation)| (method.to_owned(), operation)).collect();
        let places = [(named, "name"), (self.kind.namespaced, "namespace")];
        let parameters: Vec<Value> = places
            .into_iter()
            .filter(|(there, _)| *there)
            .map(|(_, name)| self.parameter("path", name, "string"))
            .collect();
        if !parameters.is_empty() {
            path.insert("parameters".to_owned(), parameters.into());
        }
        Value::Object(path)
    }

    fn read(&self, action: &str, parameters: &[(&str, &str)], answer: Option<&Value>) -> Value {
        self.operation(action, self.query(parameters), answer)
    }

    fn write(
        &self,
        action: &str,
        parameters: &[(&str, &str)],
        body: Option<&Value>,
        answer: Option<&Value>,
    ) -> Value {
        let mut operation = self.operation(action, self.query(parameters), answer);
        if let Some(body) = body {
            self.take(&mut operation, &["*/*"], body, !action.starts_with("delete"));
        }
        operation
    }

    fn patch(&self, patch: &Value, answer: Option<&Value>) -> Value {
        let mut operation = self.operation("patch", self.query(OF_PATCHES), answer);
        let types: &[&str] = if self.kind.custom {
            &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        } else {
            &[JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH]
        };
        self.take(&mut operation, types, patch, true);
        operation
    }

    fn operation(&self, action: &str, parameters: Vec<Value>, answer: Option<&Value>) -> Value {
        let mut ok = json!({"description": "OK"});
        if let Some(answer) = answer {
            match self.form {
                Form::V2 => ok["schema"] = answer.clone(),
                Form::V3 => ok["content"] = json!({JSON: {"schema": answer}}),
            }
        }
        json!({
            "parameters": parameters, "responses": {"200": ok},
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": self.marker,
        })
    }

    /// Describes the body of an operation.
    fn take(&self, operation: &mut Value, types: &[&str], body: &Value, required: bool) {
        match self.form {
            Form::V2 => {
                operation["consumes"] = json!(types);
                let body = json!({"in": "body", "name": "body", "required": required, "schema": body});
                if let Some(parameters) = operation["parameters"].as_array_mut() {
                    parameters.push(body);
                }
            }
            Form::V3 => {
                let content: Map<String, Value> =
                    types.iter().map(|one| ((*one).to_owned(), json!({"schema": body}))).collect();
                operation["requestBody"] = json!({"content": content});
                if required {
                    operation["requestBody"]["required"] = true.into();
                }
            }
        }
    }

    fn query(&self, parameters: &[(&str, &str)]) -> Vec<Value> {
        parameters.iter().map(|(name, kind)| self.parameter("query", name, kind)).collect()
    }

    fn parameter(&self, place: &str, name: &str, kind: &str) -> Value {
        let mut parameter = match self.form {
            Form::V2 => json!({"in": place, "name": name, "type": kind, "uniqueItems": true}),
            Form::V3 => json!({"in": place, "name": name, "schema": {"type": kind, "uniqueItems": true}}),
        };
        if place == "path" {
            parameter["required"] = true.into();
        }
        parameter
    }
}
