//! The owners of fields: reads and writes `metadata.managedFields`.

use std::collections::BTreeMap;
use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::errors::status;
use super::fields::{PathElement, Set, shown};
use super::typed::Comparison;
use crate::status::{Status, StatusCause};

/// The maximum number of separate update managers of an object.
const MAX_UPDATERS: usize = 10;

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for apply, whose entries do not depend on the version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The fields of an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owned {
    pub(super) fields: Set,
    pub(super) api_version: String,
    /// RFC 3339 in UTC, to the second.
    pub(super) time: Option<String>,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owners(pub(super) BTreeMap<Owner, Owned>);

/// A field that another manager owns.
#[derive(Debug)]
pub(super) struct Conflict {
    owner: Owner,
    pub(super) path: Vec<PathElement>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

impl Owner {
    fn of(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn update(manager: &str, api_version: &str, subresource: &str) -> Self {
        Self::of(manager, Operation::Update, api_version, subresource)
    }

    pub(super) fn apply(manager: &str, subresource: &str) -> Self {
        Self::of(manager, Operation::Apply, "", subresource)
    }
}

impl Owners {
    /// Parses the entries of an object.
    pub(super) fn of(object: Option<&Value>) -> Result<Self, String> {
        let entries = object.and_then(managed_fields).and_then(Value::as_array);
        entries
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, entry)| read(index, entry))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes the entries as `metadata.managedFields`.
    fn to_json(&self) -> Value {
        let mut entries: Vec<(&Owner, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(owner, owned)| {
            (owner.operation, &owned.time, &owner.manager, &owned.api_version, &owner.subresource)
        });
        entries.into_iter().map(|(owner, owned)| written(owner, owned)).collect()
    }

    /// Replaces the entries of an object.
    pub(super) fn write_to(&self, object: &mut Value) {
        if self.is_empty() {
            remove_managed_fields(object);
        } else if let Some(object) = object.as_object_mut() {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".to_owned(), self.to_json());
            }
        }
    }

    /// The changed or new fields that managers other than `actor` own.
    pub(super) fn conflicts(&self, comparison: &Comparison, actor: &Owner) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (owner, owned) in self.0.iter().filter(|(owner, _)| *owner != actor) {
            let changed = owned
                .fields
                .intersection(&comparison.modified)
                .union(&owned.fields.intersection(&comparison.added));
            conflicts.extend(changed.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }));
        }
        conflicts
    }

    /// Removes changed, new and removed fields from managers other than `actor`.
    pub(super) fn disown(&mut self, comparison: &Comparison, actor: Option<&Owner>) {
        self.0.retain(|owner, owned| {
            if Some(owner) != actor {
                owned.fields = owned
                    .fields
                    .difference(&comparison.modified)
                    .difference(&comparison.added)
                    .difference(&comparison.removed);
            }
            !owned.fields.is_empty()
        });
    }

    /// Merges the oldest update entries into one if there are too many.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<Owner> =
            self.0.keys().filter(|owner| owner.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by_key(|owner| (self.0.get(owner).and_then(|owned| owned.time.clone()), owner.clone()));
        let mut first: BTreeMap<String, Owner> = BTreeMap::new();
        for owner in updaters {
            if count <= MAX_UPDATERS {
                return;
            }
            let version = owner.api_version.clone();
            let Some(first) = first.get(&version) else {
                first.insert(version, owner);
                continue;
            };
            let Some(owned) = self.0.remove(&owner) else { continue };
            let bucket = Owner::update("ancient-changes", &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(oldest) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), oldest);
            }
            let joined = self.0.entry(bucket).or_default();
            joined.fields = std::mem::take(&mut joined.fields).union(&owned.fields);
            joined.api_version = owned.api_version;
            joined.time = owned.time;
            count -= 1;
        }
    }
}

/// 409, in upstream's words.
pub(super) fn conflict(conflicts: &[Conflict]) -> Status {
    let message = match conflicts {
        [one] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", one.owner, shown(&one.path))
        }
        conflicts => {
            let mut by_owner: BTreeMap<&Owner, Vec<String>> = BTreeMap::new();
            for conflict in conflicts {
                by_owner.entry(&conflict.owner).or_default().push(format!("- {}", shown(&conflict.path)));
            }
            let parts = by_owner
                .iter()
                .map(|(owner, paths)| format!("conflicts with {owner}:\n{}", paths.join("\n")));
            let parts: Vec<String> = parts.collect();
            format!("Apply failed with {} conflicts: {}", conflicts.len(), parts.join("\n"))
        }
    };
    let causes = conflicts.iter().map(|conflict| StatusCause {
        reason: "FieldManagerConflict",
        message: format!("conflict with {}", conflict.owner),
        field: shown(&conflict.path),
    });
    status(StatusCode::CONFLICT, "Conflict", message).because(causes.collect())
}

/// An object's `metadata.managedFields`.
pub(super) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|fields| !fields.is_null())
}

pub(super) fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn read(index: usize, entry: &Value) -> Result<(Owner, Owned), String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
    }
    let fields = match entry.get("fieldsV1") {
        Some(fields) => Set::from_json(fields)
            .ok_or_else(|| format!("error decoding set of managed fields entry {index}"))?,
        None => Set::default(),
    };
    let owner = Owner {
        manager: text("manager").to_owned(),
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
        subresource: text("subresource").to_owned(),
    };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((owner, Owned { fields, api_version: api_version.to_owned(), time }))
}

fn written(owner: &Owner, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    set("manager", owner.manager.as_str().into());
    set("operation", if owner.operation == Operation::Apply { "Apply" } else { "Update" }.into());
    set("apiVersion", owned.api_version.as_str().into());
    set("fieldsType", "FieldsV1".into());
    set("fieldsV1", owned.fields.to_json());
    if let Some(time) = &owned.time {
        set("time", time.as_str().into());
    }
    if !owner.subresource.is_empty() {
        set("subresource", owner.subresource.as_str().into());
    }
    Value::Object(entry)
}
