//! Creates objects.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::groups::is_over;
use super::writer::Writer;
use crate::depth;
use crate::json::text_in;
use crate::kinds::Kind;
use crate::object::{StoredObject, key};
use crate::patch::managed::record_update;
use crate::status::{Result, Status, StatusCause};
use crate::strategy::{self, pod::disabled};
use crate::time::timestamp;

/// The number of attempts to generate a free name.
const NAME_ATTEMPTS: usize = 8;
/// The maximum length of a generated name's prefix.
const LONGEST_PREFIX: usize = 58;

impl Writer<'_> {
    /// Creates an object in a namespace, which is `""` for cluster-scoped kinds.
    pub(crate) fn create(
        &mut self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
    ) -> Result<Arc<StoredObject>> {
        depth::check(&object)?;
        self.begin(kind, namespace, &mut object)?;
        let strategy = strategy::of(kind);
        if kind.is_converted() {
            strategy::event::to_core(&mut object);
        }
        self.check_namespace(kind, namespace, &object)?;
        if !(self.pod_groups || kind.custom) {
            disabled::drop_group(&mut object, &Value::Null);
        }
        strategy.default(&mut object);
        let managed = self.managed_by_creator(kind, &object);
        strategy.admit(&mut object, &*self.state)?;
        let generate = text_in(&object, &["metadata", "generateName"]).to_owned();
        let generates = text_in(&object, &["metadata", "name"]).is_empty() && !generate.is_empty();
        if generates {
            self.generate_name(kind, namespace, &generate, &mut object)?;
        }
        strategy.prepare_for_create(&mut object);
        strategy.stamp_new(&mut object, &timestamp(self.now));
        if kind.is_definition() {
            strategy::crd::establish(&mut object, &timestamp(self.now));
        }
        let metadata = strategy::meta::validate_new(&object, kind.namespaced, strategy);
        let causes = StatusCause::union(metadata, strategy.validate(&object));
        let name = text_in(&object, &["metadata", "name"]).to_owned();
        if !causes.is_empty() {
            return Err(Status::invalid(kind, &name, causes));
        }
        if self.exists(kind, namespace, &name) {
            return Err(Status::already_exists(kind, &name));
        }
        if let Some(managed) = managed {
            object["metadata"]["managedFields"] = managed;
        }
        let object = Arc::new(StoredObject::new(kind, object, self.state.store.next_version()));
        if !self.dry_run {
            self.state.store.put(&kind.resource_key(), Arc::clone(&object));
            self.kept(kind, &object);
        }
        Ok(object)
    }

    /// The managed fields of a new object, if they are recorded. As upstream, no one manages what
    /// admission sets.
    fn managed_by_creator(&self, kind: &Kind, object: &Value) -> Option<Value> {
        if !self.managed_fields || self.applies {
            return None;
        }
        let mut object = object.clone();
        strategy::of(kind).prepare_for_create(&mut object);
        record_update(&self.field_manager(kind, &kind.api_version(), ""), None, &mut object);
        object["metadata"]["managedFields"].is_array().then(|| object["metadata"]["managedFields"].take())
    }

    /// Sets the system fields of the metadata.
    fn begin(&mut self, kind: &Kind, namespace: &str, object: &mut Value) -> Result<()> {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let given = text_in(object, &["metadata", "namespace"]);
        if !given.is_empty() && given != namespace {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
        if !text_in(object, &["metadata", "resourceVersion"]).is_empty() {
            // Upstream's storage returns this error without a better code.
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::unknown(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        let uid = self.random().uid();
        let Some(metadata) = object["metadata"].as_object_mut() else { return Ok(()) };
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        for system in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(system);
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), timestamp(self.now).into());
        if strategy::of(kind).has_generation() || kind.custom {
            metadata.insert("generation".to_owned(), 1.into());
        }
        Ok(())
    }

    fn exists(&self, kind: &Kind, namespace: &str, name: &str) -> bool {
        let table = self.state.store.table(&kind.resource_key());
        table.is_some_and(|table| table.get(&key(namespace, name)).is_some())
    }

    fn generate_name(
        &mut self,
        kind: &Kind,
        namespace: &str,
        prefix: &str,
        object: &mut Value,
    ) -> Result<()> {
        let end = prefix.char_indices().nth(LONGEST_PREFIX).map_or(prefix.len(), |(at, _)| at);
        let mut name = String::new();
        for _ in 0..NAME_ATTEMPTS {
            name = format!("{}{}", &prefix[..end], self.random().suffix());
            if !self.exists(kind, namespace, &name) {
                object["metadata"]["name"] = name.into();
                return Ok(());
            }
        }
        Err(Status::already_exists(kind, &name))
    }

    /// Rejects creation in a namespace that is missing or terminating.
    fn check_namespace(&self, kind: &Kind, namespace: &str, object: &Value) -> Result<()> {
        if namespace.is_empty() {
            return Ok(());
        }
        let namespaces = self.state.registry.find("", "v1", "namespaces")?;
        if !self.state.get(namespaces, "", namespace)?.deleting {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = StatusCause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        let name = text_in(object, &["metadata", "name"]);
        Err(Status::forbidden(kind, name, why).because(vec![cause]))
    }

    /// Applies the side effects of a new or changed object.
    pub(super) fn kept(&mut self, kind: &Kind, object: &StoredObject) {
        if kind.is_definition() {
            self.define(&object.value(kind));
        }
        if is_over(kind, object) {
            self.release_group(kind, object);
        }
    }

    /// Serves the kinds of a CustomResourceDefinition.
    pub(super) fn define(&mut self, definition: &Value) {
        self.state.registry.define(definition);
        let table = (
            text_in(definition, &["spec", "group"]).into(),
            text_in(definition, &["spec", "names", "plural"]).into(),
        );
        self.state.store.add_table(table);
    }
}
