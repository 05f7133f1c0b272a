//! The verbs: what each does to the store.

mod create;
mod delete;
mod garbage;
mod list;
mod traits;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use delete::{DeleteOptions, Deleted};
pub(crate) use garbage::Fallout;
pub(crate) use list::{
    List, ListOptions, inconsistent_token, invalid_options, invalid_write_options, parse_version, too_large,
};
pub(crate) use update::{Part, Updated};

use crate::kinds::{Kind, Subresource};
use crate::object::{Object, key};
use crate::patch::managed::FieldManager;
use crate::random::Random;
use crate::registry::Registry;
use crate::status::{Cause, Result, Status};
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
    pub(crate) fallout: Fallout,
}

impl State {
    /// An object.
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<&Arc<Object>> {
        let table = self.store.table(&kind.table());
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
            type_id: crate::body::type_of(kind),
            status_apart: kind.has(Subresource::Status),
            now: self.now,
        }
    }
}

/// The text at a path of keys; empty when it is not there.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().fold(value, |value, key| &value[key]).as_str().unwrap_or_default()
}

/// What is wrong by two checks, each thing once.
fn united(mut causes: Vec<Cause>, more: Vec<Cause>) -> Vec<Cause> {
    for cause in more {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes
}

/// A time as objects have it: to the second.
pub(crate) fn timestamp(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}
