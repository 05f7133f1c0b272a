//! What upstream's garbage collector and namespace controller do, done at once: dependents go with their owners, and
//! what is in a namespace with the namespace.

use std::sync::Arc;

use serde_json::Value;

use super::delete::DeleteOptions;
use super::{Writer, text};
use crate::kinds::Kind;
use crate::object::{Object, key};
use crate::store::ResourceKey;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl Writer<'_> {
    /// After an object has been marked as going: what its finalizers ask for.
    pub(super) fn marked(&mut self, kind: &Kind, object: &Arc<Object>) {
        if !self.collects {
            return;
        }
        if kind.resource == "namespaces" {
            self.empty_namespace(kind, &object.name);
            return;
        }
        let value = object.value(kind);
        let has = |finalizer: &str| {
            value["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == finalizer))
        };
        if has(ORPHAN) {
            for (table, key) in self.state.store.dependents(&object.uid) {
                self.release(&table, &key, &object.uid);
            }
            self.drop_finalizer(kind, object, ORPHAN);
        } else if has(FOREGROUND) {
            self.delete_dependents(&object.uid);
            if self.state.store.dependents(&object.uid).is_empty() {
                self.drop_finalizer(kind, object, FOREGROUND);
            }
        }
    }

    /// After an object has gone: its dependents follow, and who waited for it need not.
    pub(super) fn removed(&mut self, kind: &Kind, last: &Arc<Object>) {
        self.delete_dependents(&last.uid);
        let value = last.value(kind);
        let owners = value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        for owner in owners {
            self.owner_waits_less(&last.namespace, owner);
        }
        self.namespace_waits_less(&last.namespace);
    }

    fn owner_waits_less(&mut self, namespace: &str, owner: &Value) {
        let uid = text(owner, &["uid"]);
        if !self.state.store.dependents(uid).is_empty() {
            return;
        }
        let Some(kind) =
            self.state.registry.of(text(owner, &["apiVersion"]), text(owner, &["kind"])).cloned()
        else {
            return;
        };
        let namespace = if kind.namespaced { namespace } else { "" };
        let Ok(found) = self.state.get(&kind, namespace, text(owner, &["name"])).cloned() else { return };
        if &*found.uid == uid && found.value(&kind)["metadata"].get("deletionTimestamp").is_some() {
            self.drop_finalizer(&kind, &found, FOREGROUND);
        }
    }

    /// Deletes what has no other owner left.
    fn delete_dependents(&mut self, owner: &str) {
        for (table, key) in self.state.store.dependents(owner) {
            let Some(kind) = self.state.registry.stored(&table).cloned() else { continue };
            let Some(object) = self.state.store.table(&table).and_then(|table| table.get(&key)).cloned()
            else {
                continue;
            };
            if object.owners.len() > 1 {
                self.release(&table, &key, owner);
                continue;
            }
            // What cannot be deleted now is not in the way of the rest.
            let _ = self.delete(&kind, &object.namespace, &object.name, &DeleteOptions::default());
        }
    }

    /// Takes an owner off an object.
    fn release(&mut self, table: &ResourceKey, key: &str, owner: &str) {
        let Some(kind) = self.state.registry.stored(table).cloned() else { return };
        let Some(object) = self.state.store.table(table).and_then(|table| table.get(key)).cloned() else {
            return;
        };
        let mut value = object.value(&kind);
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|one| one["uid"] != *owner);
            if owners.is_empty()
                && let Some(metadata) = value["metadata"].as_object_mut()
            {
                metadata.remove("ownerReferences");
            }
        }
        self.keep(&kind, value);
    }

    fn drop_finalizer(&mut self, kind: &Kind, object: &Arc<Object>, finalizer: &str) {
        let mut value = object.value(kind);
        let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() else { return };
        let before = finalizers.len();
        finalizers.retain(|one| one != finalizer);
        if finalizers.len() == before {
            return;
        }
        if finalizers.is_empty()
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("finalizers");
        }
        self.keep(kind, value);
    }

    /// Deletes everything in a namespace, and then the namespace.
    fn empty_namespace(&mut self, namespaces: &Kind, namespace: &str) {
        for table in self.state.store.resources() {
            let Some(kind) = self.state.registry.stored(&table).cloned() else { continue };
            if kind.namespaced {
                self.remove_all(&kind, namespace);
            }
        }
        self.finish_namespace(namespaces, namespace);
    }

    /// Deletes all objects of a kind, in one namespace or in all.
    pub(super) fn remove_all(&mut self, kind: &Kind, namespace: &str) {
        let Some(table) = self.state.store.table(&kind.table()) else { return };
        let all: Vec<Arc<Object>> = table.range(namespace, None).cloned().collect();
        for object in all {
            let _ = self.delete(kind, &object.namespace, &object.name, &DeleteOptions::default());
        }
    }

    fn namespace_waits_less(&mut self, namespace: &str) {
        if namespace.is_empty() {
            return;
        }
        let Ok(kind) = self.state.registry.find("", "v1", "namespaces").cloned() else { return };
        let going = self.state.get(&kind, "", namespace).map(|found| found.value(&kind));
        if going.is_ok_and(|going| going["metadata"].get("deletionTimestamp").is_some()) {
            self.finish_namespace(&kind, namespace);
        }
    }

    /// Lets go of a namespace with nothing in it.
    fn finish_namespace(&mut self, kind: &Kind, namespace: &str) {
        let store = &self.state.store;
        let is_empty = |table: &ResourceKey| {
            let namespaced = self.state.registry.stored(table).is_some_and(|kind| kind.namespaced);
            let table = store.table(table).filter(|_| namespaced);
            table.is_none_or(|table| table.range(namespace, None).next().is_none())
        };
        if !store.resources().iter().all(is_empty) {
            return;
        }
        let namespaces = kind.table();
        let Some(found) = store.table(&namespaces).and_then(|table| table.get(&key("", namespace))).cloned()
        else {
            return;
        };
        let mut value = found.value(kind);
        if let Some(spec) = value["spec"].as_object_mut() {
            spec.remove("finalizers");
        }
        self.keep(kind, value);
    }
}
