//! The state of the server, and the writer that changes it.

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

/// The whole state of the server.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) random: Random,
    /// The source of randomness for dry runs, which must not affect later writes.
    pub(crate) dry_random: Random,
}

/// Executes a write. Each verb is an `impl` block in a module of its own.
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) now: Timestamp,
    /// Whether to discard the change after computing the response.
    pub(crate) dry_run: bool,
    /// Whether the change is an apply, which has already updated the managed fields.
    pub(crate) applies: bool,
    /// The field manager of the write.
    pub(crate) manager: &'a str,
    /// Whether to record managed fields even before the first apply.
    pub(crate) managed_fields: bool,
    /// Whether to do the work of the garbage collector and the namespace controller.
    pub(crate) collects: bool,
    /// Whether the kinds of gang scheduling are served.
    pub(crate) pod_groups: bool,
    /// The pending cascade of deletions.
    pub(crate) cascade: Cascade,
}

/// A queue of deletions that may cascade. A queue, not recursion, because chains of owners can be
/// long.
#[derive(Default)]
pub(crate) struct Cascade {
    pub(super) pending: VecDeque<Deletion>,
    pub(super) running: bool,
}

/// A deletion that may cascade.
pub(super) enum Deletion {
    /// An object was marked as terminating; its finalizers may have to be handled.
    Marked(ResourceKey, String),
    /// An object was removed.
    Removed(Arc<StoredObject>),
}

impl State {
    /// Looks up an object.
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

    // Avoids parsing the whole object.
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
    /// The source of names and UIDs.
    pub(crate) fn random(&mut self) -> &mut Random {
        if self.dry_run { &mut self.state.dry_random } else { &mut self.state.random }
    }

    /// The field manager of this write.
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
