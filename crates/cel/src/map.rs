//! Maps, whose keys are what Go's maps accept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::eval_failure::{EvalFailure, Steps};
use crate::numbers;
use crate::value::{Outcome, Value};

/// A map. One that a fold adds up in grows in place, as upstream's does.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    entries: Arc<Entries>,
    /// A device's domains: a lookup of an unknown one finds an empty map.
    has_default: bool,
}

type Table = BTreeMap<Key, (Value, Value)>;

#[derive(Debug)]
enum Entries {
    /// With texts for keys, sorted.
    Named(Box<[(Arc<str>, Value)]>),
    /// Sorted by key.
    Fixed(Box<[(Key, (Value, Value))]>),
    Growing(Mutex<Table>),
}

/// A key by which Go finds an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    String(Arc<str>),
    Type(Arc<str>),
    Timestamp(i64, u32),
    Duration(i64),
    Text(&'static str, String),
    /// A value that is only the same as itself.
    Address(usize),
}

impl Key {
    fn of(value: &Value) -> Result<Option<Self>, EvalFailure> {
        Ok(Some(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) if value.is_nan() => return Ok(None),
            // Both zeros are one key.
            Value::Double(value) => Self::Double((value + 0.0).to_bits()),
            Value::String(text) => Self::String(text.clone()),
            Value::Type(name) => Self::Type(name.clone()),
            Value::Timestamp(at) => Self::Timestamp(at.seconds, at.nanos),
            Value::Duration(nanos) => Self::Duration(*nanos),
            Value::Ip(ip) => Self::Text("ip", ip.to_string()),
            Value::Cidr(cidr) => Self::Text("cidr", cidr.to_string()),
            Value::List(list) => Self::Address(list.address()),
            Value::Map(map) => Self::Address(Arc::as_ptr(&map.entries).cast::<()>() as usize),
            Value::Optional(None) => Self::Address(0),
            Value::Optional(Some(value)) => Self::Address(Arc::as_ptr(value).cast::<()>() as usize),
            Value::Quantity { quantity, .. } => Self::Address(Arc::as_ptr(quantity).cast::<()>() as usize),
            Value::Url(url) => Self::Address(Arc::as_ptr(url).cast::<()>() as usize),
            Value::Bytes(_) | Value::Semver(_) | Value::Format(_) => return Err(unhashable(value)),
        }))
    }
}

/// Go's panic for a key that it cannot hash.
fn unhashable(value: &Value) -> EvalFailure {
    EvalFailure::panic(&format!("runtime error: hash of unhashable type {}", value.go_type()))
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Map {
    pub(crate) fn new(entries: Vec<(Value, Value)>) -> Result<Self, EvalFailure> {
        let mut table = Table::new();
        for (key, value) in entries {
            if let Some(at) = Key::of(&key)? {
                table.insert(at, (key, value));
            }
        }
        Ok(Self { entries: Arc::new(Entries::Fixed(table.into_iter().collect())), has_default: false })
    }

    /// A map with names for keys, which are sorted.
    pub(crate) fn of_strings(entries: impl IntoIterator<Item = (Arc<str>, Value)>) -> Self {
        Self { entries: Arc::new(Entries::Named(entries.into_iter().collect())), has_default: false }
    }

    pub(crate) fn growing() -> Self {
        Self { entries: Arc::new(Entries::Growing(Mutex::default())), has_default: false }
    }

    pub(crate) fn with_default(self) -> Self {
        Self { has_default: true, ..self }
    }

    pub(crate) fn has_default(&self) -> bool {
        self.has_default
    }

    /// Reads the keys and values, in the order of keys.
    fn each<T>(&self, read: impl FnOnce(&mut dyn Iterator<Item = (Value, Value)>) -> T) -> T {
        match &*self.entries {
            Entries::Named(entries) => {
                read(&mut entries.iter().map(|(name, value)| (Value::String(name.clone()), value.clone())))
            }
            Entries::Fixed(entries) => read(&mut entries.iter().map(|(_, entry)| entry.clone())),
            Entries::Growing(table) => read(&mut lock(table).values().cloned()),
        }
    }

    fn at(&self, key: &Key) -> Option<Value> {
        match (&*self.entries, key) {
            (Entries::Named(entries), Key::String(name)) => {
                let place = entries.binary_search_by(|(known, _)| known.cmp(name)).ok()?;
                Some(entries[place].1.clone())
            }
            (Entries::Named(_), _) => None,
            (Entries::Fixed(entries), _) => {
                let place = entries.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
                Some(entries[place].1.1.clone())
            }
            (Entries::Growing(table), _) => {
                let table = lock(table);
                table.get(key).map(|(_, value)| value.clone())
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &*self.entries {
            Entries::Named(entries) => entries.len(),
            Entries::Fixed(entries) => entries.len(),
            Entries::Growing(table) => lock(table).len(),
        }
    }

    /// How many values are in one another; this walks over the map.
    pub(crate) fn nesting(&self) -> u16 {
        let nesting = |(key, value): (Value, Value)| key.nesting().max(value.nesting());
        self.each(|entries| entries.map(nesting).max()).unwrap_or(0).saturating_add(1)
    }

    pub(crate) fn first(&self) -> Option<(Value, Value)> {
        self.each(|entries| entries.next())
    }

    pub(crate) fn entries(&self) -> Vec<(Value, Value)> {
        self.each(|entries| entries.collect())
    }

    /// What upstream makes of the map of a fold that ends.
    pub(crate) fn settled(&self) -> Self {
        match &*self.entries {
            Entries::Named(_) | Entries::Fixed(_) => self.clone(),
            Entries::Growing(table) => {
                let table = lock(table).clone();
                Self {
                    entries: Arc::new(Entries::Fixed(table.into_iter().collect())),
                    has_default: self.has_default,
                }
            }
        }
    }

    /// An entry that the map has, where numbers of other types stand for the same key.
    pub(crate) fn get(&self, key: &Value) -> Result<Option<Value>, EvalFailure> {
        if self.len() == 0 {
            return Ok(None);
        }
        if let Some(exact) = Key::of(key)?
            && let Some(value) = self.at(&exact)
        {
            return Ok(Some(value));
        }
        let int = numbers::as_int(key);
        let uint = match key {
            Value::Int(value) => u64::try_from(*value).ok(),
            Value::Double(value) => {
                numbers::double_to_uint(*value).ok().filter(|uint| numbers::equal(&Value::Uint(*uint), key))
            }
            _ => None,
        };
        Ok(match key {
            Value::Int(_) | Value::Uint(_) | Value::Double(_) => int
                .and_then(|int| self.at(&Key::Int(int)))
                .or_else(|| uint.and_then(|uint| self.at(&Key::Uint(uint)))),
            _ => None,
        })
    }

    /// Whether Go's map has this very key.
    pub(crate) fn has_exactly(&self, key: &Value) -> Result<bool, EvalFailure> {
        let key = Key::of(key)?;
        Ok(key.is_some_and(|key| self.at(&key).is_some()))
    }

    /// As [`get`](Self::get), with the default of a device's domains.
    pub(crate) fn find(&self, key: &Value) -> Result<Option<Value>, EvalFailure> {
        let found = self.get(key)?;
        if found.is_none() && self.has_default {
            return Ok(Some(Value::Map(Self::of_strings([]))));
        }
        Ok(found)
    }

    /// The map with one entry more.
    pub(crate) fn insert(&self, key: &Value, value: &Value, steps: &mut Steps) -> Outcome {
        if self.get(key)?.is_some() {
            return Err(EvalFailure::error(format!("insert failed: key {} already exists", key.display())));
        }
        let at = Key::of(key)?;
        if let Entries::Growing(table) = &*self.entries {
            if let Some(at) = at {
                let entry = (key.clone(), value.clone());
                lock(table).insert(at, entry);
            }
            return Ok(Value::Map(self.clone()));
        }
        steps.take(self.len() as u64 + 1)?;
        let mut entries = self.entries();
        entries.push((key.clone(), value.clone()));
        Ok(Value::Map(Self::new(entries)?))
    }

    pub(crate) fn equal(&self, other: &Self, steps: &mut Steps) -> Result<bool, EvalFailure> {
        if self.len() != other.len() {
            return Ok(false);
        }
        steps.take(self.len() as u64)?;
        for (key, value) in self.entries() {
            let Some(found) = other.find(&key)? else { return Ok(false) };
            match value.equal(&found, steps) {
                Ok(false) => return Ok(false),
                Err(halt @ EvalFailure::Halt(_)) => return Err(halt),
                Ok(true) | Err(EvalFailure::Error(_)) => {}
            }
        }
        Ok(true)
    }
}
