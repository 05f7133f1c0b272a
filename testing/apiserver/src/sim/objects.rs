//! Reads and writes objects for the simulation inside the server, where injected faults do not
//! apply.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::json::{text, text_at};
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::{DeleteOptions, Part, State, Writer};
use crate::server::Shared;
use crate::status::{Result, Status};
use crate::time::timestamp;

/// The server's objects, as seen by one simulated client.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    shared: Arc<Shared>,
    /// The field manager.
    manager: &'static str,
}

/// Identifies an object among those of its kind.
#[derive(Clone, Debug)]
pub(super) struct Identity<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Protects another object of the same name from being changed.
    pub(super) uid: &'a str,
}

impl<'a> Identity<'a> {
    /// The identity of an object in JSON.
    pub(super) fn of(object: &'a Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            namespace: text(metadata, "namespace"),
            name: text(metadata, "name"),
            uid: text(metadata, "uid"),
        }
    }
}

impl Objects {
    pub(super) fn new(shared: &Arc<Shared>, manager: &'static str) -> Self {
        Self { shared: Arc::clone(shared), manager }
    }

    /// The built-in kind of a resource.
    pub(super) fn kind(&self, group: &str, resource: &str) -> Option<Arc<Kind>> {
        let table = (group.into(), resource.into());
        self.shared.state.lock().registry.stored(&table).cloned()
    }

    /// The current time of the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        (self.shared.settings.clock)()
    }

    /// The current time in the format of the API.
    pub(super) fn stamp(&self) -> String {
        timestamp(self.now())
    }

    /// Runs a closure under the lock. It must be short.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.shared.state.lock())
    }

    /// Runs a write under the lock. It must be short.
    pub(super) fn write<R>(&self, act: impl FnOnce(&mut Writer<'_>) -> R) -> R {
        act(&mut self.shared.writer(&mut self.shared.state.lock(), self.manager))
    }

    pub(super) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<StoredObject>> {
        self.with(|state| state.get(kind, namespace, name).ok().cloned())
    }

    pub(super) fn create(&self, kind: &Kind, namespace: &str, object: Value) -> Result<Arc<StoredObject>> {
        self.write(|writer| writer.create(kind, namespace, object))
    }

    /// Changes an object in place.
    pub(super) fn update(
        &self,
        kind: &Kind,
        name: &Identity<'_>,
        part: Part,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<StoredObject>> {
        self.write(|writer| {
            writer.update(kind, name.namespace, name.name, part, |_, old| {
                if text_at(old, "/metadata/uid") != name.uid {
                    return Err(Status::not_found(kind, name.name));
                }
                let mut new = old.clone();
                change(&mut new);
                Ok(new)
            })
        })
    }

    /// Deletes an object, with its own grace period or the given one.
    pub(super) fn delete(&self, kind: &Kind, name: &Identity<'_>, grace: Option<i64>) -> Result<()> {
        let options = DeleteOptions { grace, uid: Some(name.uid.to_owned()), ..DeleteOptions::default() };
        self.write(|writer| writer.delete(kind, name.namespace, name.name, &options)).map(drop)
    }
}
