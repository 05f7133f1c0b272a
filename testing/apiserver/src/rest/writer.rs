//! The state of the server, and who writes it.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::{Kind, Subresource};
use crate::object::{StoredObject, key};
use crate::patch::managed::FieldManager;
use crate::random::Random;
use crate::registry::Registry;
use crate::schema::Schema;
use crate::status::{Result, Status};
use crate::store::{ResourceKey, Store};
use crate::strategy::Lookup;

/// All that the server knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) random: Random,
    /// For what is not kept: it must not change what is.
    pub(crate) dry_random: Random,
}

/// Who changes something, when, and how.
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) now: Timestamp,
    /// Nothing is kept; the answer is as if it were.
    pub(crate) dry_run: bool,
    /// Whether the change is an apply, which has seen to the owners of fields itself.
    pub(crate) applies: bool,
    /// The name under which fields are owned.
    pub(crate) manager: &'a str,
    /// Whether fields have owners even where nobody applies.
    pub(crate) managed_fields: bool,
    /// Whether what the garbage collector and the namespace controller do is done here.
    pub(crate) collects: bool,
    /// What is still to follow from deletions.
    pub(crate) cascade: Cascade,
}

/// What follows from deletions. It is done one after the other, not one within the other: chains of owners can be long.
#[derive(Default)]
pub(crate) struct Cascade {
    pub(super) pending: VecDeque<Deletion>,
    pub(super) running: bool,
}

/// A deletion that others follow from.
pub(super) enum Deletion {
    /// An object has been marked as going, and its finalizers may ask for something.
    Marked(ResourceKey, String),
    /// An object has gone.
    Removed(Arc<StoredObject>),
}

impl State {
    /// An object.
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<&Arc<StoredObject>> {
        let table = self.store.table(&kind.resource_key());
        let object = table.and_then(|table| table.get(&key(namespace, name)));
        object.ok_or_else(|| Status::not_found(kind, name))
    }
}

impl Lookup for State {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let table: ResourceKey = (group.into(), resource.into());
        let kind = self.registry.stored(&table)?;
        Some(self.store.table(&table)?.get(&key(namespace, name))?.value(kind))
    }

    // Without reading the whole object.
    fn labels(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        keys: &[&'static str],
    ) -> Vec<(&'static str, Value)> {
        let table = self.store.table(&(group.into(), resource.into()));
        let Some(object) = table.and_then(|table| table.get(&key(namespace, name))) else {
            return Vec::new();
        };
        let label = |key: &str| {
            let at = object.labels.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
            Some(Value::from(&*object.labels[at].1))
        };
        keys.iter().filter_map(|key| Some((*key, label(key)?))).collect()
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let key: ResourceKey = (group.into(), resource.into());
        let (Some(kind), Some(table)) = (self.registry.stored(&key), self.store.table(&key)) else {
            return Vec::new();
        };
        table.range(namespace, None).map(|object| object.value(kind)).collect()
    }
}

impl Writer<'_> {
    /// Where names and UIDs come from.
    pub(crate) fn random(&mut self) -> &mut Random {
        if self.dry_run { &mut self.state.dry_random } else { &mut self.state.random }
    }

    /// Who owns the fields that this writes.
    pub(crate) fn field_manager<'b>(
        &'b self,
        kind: &Kind,
        api_version: &'b str,
        subresource: &'b str,
    ) -> FieldManager<'b> {
        FieldManager {
            name: self.manager,
            api_version,
            subresource,
            type_id: Schema::get().of(kind),
            status_apart: kind.has(Subresource::Status),
            now: self.now,
        }
    }
}

/// A time as objects have it: to the second.
pub(crate) fn timestamp(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}
