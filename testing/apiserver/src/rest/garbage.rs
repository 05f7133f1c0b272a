//! Does the work of upstream's garbage collector and namespace controller at once: deleting an
//! owner deletes its dependents, and deleting a namespace its content.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::delete::{DeleteOptions, Propagation};
use super::writer::{Deletion, Writer};
use crate::json::text_in;
use crate::kinds::Kind;
use crate::object::{StoredObject, key};
use crate::status::Result;
use crate::store::ResourceKey;
use crate::strategy::meta::{FOREGROUND, ORPHAN};

impl Writer<'_> {
    /// Cascades a deletion, now or after the cascade that is already running.
    pub(super) fn follow(&mut self, event: Deletion) {
        if !self.collects {
            return;
        }
        self.cascade.pending.push_back(event);
        if std::mem::replace(&mut self.cascade.running, true) {
            return;
        }
        while let Some(event) = self.cascade.pending.pop_front() {
            match event {
                Deletion::Marked(table, key) => self.marked(&table, &key),
                Deletion::Removed(last) => self.removed(&last),
            }
        }
        self.cascade.running = false;
    }

    /// Handles the finalizers of a terminating object.
    fn marked(&mut self, table: &ResourceKey, key: &str) {
        let Some((kind, object, value)) = self.found(table, key) else { return };
        if kind.is_namespace() {
            self.empty_namespace(&kind, &object.name);
        } else if has_finalizer(&value, ORPHAN) {
            for (table, key) in self.dependents(&object.uid) {
                self.release(&table, &key, &object.uid);
            }
            self.drop_finalizer(table, key, ORPHAN);
        } else if has_finalizer(&value, FOREGROUND) {
            self.delete_dependents(&object.uid, true);
            self.finish_owner(table, key);
        }
        self.finish_group(table, key);
    }

    /// Cascades to the dependents of a removed object, and releases owners that waited for it.
    fn removed(&mut self, last: &StoredObject) {
        self.delete_dependents(&last.uid, false);
        for owner in last.owner_references() {
            if let Some((table, key)) = self.owner(&last.namespace, &owner) {
                self.finish_owner(&table, &key);
            }
        }
        self.namespace_waits_less(&last.namespace);
    }

    /// An object, if it still exists, with its kind and value.
    pub(super) fn found(
        &self,
        table: &ResourceKey,
        key: &str,
    ) -> Option<(Arc<Kind>, Arc<StoredObject>, Value)> {
        let kind = Arc::clone(self.state.registry.stored(table)?);
        let object = Arc::clone(self.state.store.table(table)?.get(key)?);
        let value = object.value(&kind);
        Some((kind, object, value))
    }

    fn dependents(&self, owner: &str) -> Vec<(ResourceKey, String)> {
        self.state.store.dependents(owner).cloned().collect()
    }

    /// The object that an owner reference refers to, if it still exists.
    fn owner(&self, namespace: &str, reference: &Value) -> Option<(ResourceKey, String)> {
        let of = |field| text_in(reference, &[field]);
        let kind = self.state.registry.of(of("apiVersion"), of("kind"))?;
        let namespace = if kind.namespaced { namespace } else { "" };
        let (table, key) = (kind.resource_key(), key(namespace, of("name")));
        let found = self.state.store.table(&table)?.get(&key)?;
        (*found.uid == *of("uid")).then_some((table, key))
    }

    /// Whether the referenced owner exists and does not wait for the deletion of its dependents.
    fn is_live_owner(&self, namespace: &str, reference: &Value) -> bool {
        let owner = self.owner(namespace, reference).and_then(|(table, key)| self.found(&table, &key));
        owner.is_some_and(|(_, _, owner)| !waits_for_dependents(&owner))
    }

    /// Releases an owner in foreground deletion once no blocking dependent is left.
    fn finish_owner(&mut self, table: &ResourceKey, key: &str) {
        let Some((_, owner, value)) = self.found(table, key) else { return };
        if !waits_for_dependents(&value) {
            return;
        }
        let waits_for = |(table, key): &(ResourceKey, String)| {
            self.found(table, key).is_some_and(|(_, _, dependent)| blocks(&dependent, &owner.uid))
        };
        if !self.state.store.dependents(&owner.uid).any(waits_for) {
            self.drop_finalizer(table, key, FOREGROUND);
        }
    }

    /// Deletes the dependents that have no other owner. While the owner waits, only those that
    /// block it.
    fn delete_dependents(&mut self, owner: &str, owner_waits: bool) {
        for (table, key) in self.dependents(owner) {
            let Some((kind, object, value)) = self.found(&table, &key) else { continue };
            if is_deleted(&value) || (owner_waits && !blocks(&value, owner)) {
                continue;
            }
            let mut others = references(&value).iter().filter(|one| one["uid"] != *owner);
            if others.any(|other| self.is_live_owner(&object.namespace, other)) {
                self.release(&table, &key, owner);
                continue;
            }
            let propagation = Some(self.propagation(&object, &value, owner_waits));
            let options = DeleteOptions { propagation, ..DeleteOptions::default() };
            // A failed deletion must not stop the others.
            let _ = self.delete(&kind, &object.namespace, &object.name, &options);
        }
    }

    /// The propagation policy for a dependent: according to its finalizers, or foreground if its
    /// owner is deleted in the foreground. A cycle of owners must be broken somewhere.
    fn propagation(&self, object: &StoredObject, value: &Value, owner_waits: bool) -> Propagation {
        let mut dependents = self.state.store.dependents(&object.uid).peekable();
        let closes_circle = |(table, key): &(ResourceKey, String)| {
            self.found(table, key).is_some_and(|(_, _, dependent)| waits_for_dependents(&dependent))
        };
        if owner_waits && dependents.peek().is_some() && !dependents.any(closes_circle) {
            Propagation::Foreground
        } else if has_finalizer(value, ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(value, FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    }

    /// Removes an owner from an object.
    fn release(&mut self, table: &ResourceKey, key: &str, owner: &str) {
        let Some((kind, _, mut value)) = self.found(table, key) else { return };
        retain(&mut value, "ownerReferences", |one| one["uid"] != *owner);
        self.keep(&kind, value);
    }

    /// Removes a finalizer, if the object has it.
    pub(super) fn drop_finalizer(&mut self, table: &ResourceKey, key: &str, finalizer: &str) {
        let Some((kind, _, mut value)) = self.found(table, key) else { return };
        if has_finalizer(&value, finalizer) {
            retain(&mut value, "finalizers", |one| one != finalizer);
            self.keep(&kind, value);
        }
    }

    /// Deletes everything in a namespace, then the namespace.
    fn empty_namespace(&mut self, namespaces: &Kind, namespace: &str) {
        for table in self.state.store.resources() {
            let Some(kind) = self.state.registry.stored(&table).cloned() else { continue };
            if kind.namespaced {
                self.delete_all(&kind, namespace);
            }
        }
        self.finish_namespace(namespaces, namespace);
    }

    /// Deletes all objects of a kind in a namespace.
    fn delete_all(&mut self, kind: &Kind, namespace: &str) {
        let Some(table) = self.state.store.table(&kind.resource_key()) else { return };
        let all: Vec<Arc<StoredObject>> = table.range(namespace, None).cloned().collect();
        let propagation = Some(Propagation::Background);
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        for object in all {
            // A failed deletion must not stop the others.
            let _ = self.delete(kind, &object.namespace, &object.name, &options);
        }
    }

    /// Deletes objects, except those that the cascade has already deleted.
    pub(crate) fn delete_each(
        &mut self,
        kind: &Kind,
        objects: &[Arc<StoredObject>],
        options: &DeleteOptions,
    ) -> Result<()> {
        for object in objects {
            match self.delete(kind, &object.namespace, &object.name, options) {
                // The cascade of another object has already deleted this one.
                Err(status) if status.code != StatusCode::NOT_FOUND => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    fn namespace_waits_less(&mut self, namespace: &str) {
        if namespace.is_empty() {
            return;
        }
        let Ok(kind) = self.state.registry.find("", "v1", "namespaces").cloned() else { return };
        let going = self.state.get(&kind, "", namespace).map(|found| found.value(&kind));
        if going.is_ok_and(|going| is_deleted(&going)) {
            self.finish_namespace(&kind, namespace);
        }
    }

    /// Releases a namespace if it is empty.
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
        let Some((_, _, mut value)) = self.found(&kind.resource_key(), namespace) else { return };
        if let Some(spec) = value["spec"].as_object_mut()
            && spec.remove("finalizers").is_some()
        {
            self.keep(kind, value);
        }
    }
}

fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

fn is_deleted(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == finalizer))
}

fn waits_for_dependents(object: &Value) -> bool {
    is_deleted(object) && has_finalizer(object, FOREGROUND)
}

/// Whether an owner in foreground deletion waits for this dependent.
fn blocks(dependent: &Value, owner: &str) -> bool {
    references(dependent).iter().any(|one| one["uid"] == *owner && one["blockOwnerDeletion"] == true)
}

/// Filters a list in the metadata; an empty list is removed.
fn retain(object: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(items) = metadata.get_mut(list).and_then(Value::as_array_mut) else { return };
    items.retain(keep);
    if items.is_empty() {
        metadata.remove(list);
    }
}
