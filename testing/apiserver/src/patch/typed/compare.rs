//! Compares two objects field by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::types::{Atom, ListType, MapType, Relation, TypeRef};
use crate::patch::fields::{PathElement, Set};

/// The differences between two objects.
#[derive(Debug, Default)]
pub(in crate::patch) struct Comparison {
    pub(in crate::patch) added: Set,
    pub(in crate::patch) removed: Set,
    pub(in crate::patch) modified: Set,
}

/// Compares an old object with a new one.
pub(in crate::patch) fn compare(old: &Value, new: &Value, type_ref: TypeRef) -> Comparison {
    let mut comparison = Comparison::default();
    comparison.compare(Some(old), Some(new), type_ref, &mut Vec::new());
    comparison
}

impl Comparison {
    /// The comparison without these fields and those below them.
    pub(in crate::patch) fn without(&self, ignored: &Set) -> Self {
        Self {
            added: self.added.without(ignored),
            removed: self.removed.without(ignored),
            modified: self.modified.without(ignored),
        }
    }

    fn compare(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        type_ref: TypeRef,
        path: &mut Vec<PathElement>,
    ) {
        let atom = type_ref.atom(new.or(old));
        let old_atom = type_ref.atom(old.or(new));
        // A value whose type changed is compared as both types.
        let leaf = if std::mem::discriminant(&atom) == std::mem::discriminant(&old_atom) {
            self.compare_as(atom, old, new, path)
        } else {
            self.compare_as(old_atom, old, new, path);
            self.compare_as(atom, old, new, path)
        };
        if !leaf {
            match (old, new) {
                (None, _) => self.added.insert(path),
                (_, None) => self.removed.insert(path),
                _ => {}
            }
        }
    }

    /// Compares values as one type. Returns whether they are a single field.
    fn compare_as(
        &mut self,
        atom: Atom,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) -> bool {
        match atom {
            Atom::Scalar(_) => self.leaf(old, new, path),
            Atom::List(list) => {
                let (old_items, new_items) = (items(old), items(new));
                let empty = old_items.is_none_or(<[_]>::is_empty) && new_items.is_none_or(<[_]>::is_empty);
                if empty || matches!(list.relation, Relation::Atomic) {
                    return self.leaf(old, new, path);
                }
                self.compare_items(old_items.unwrap_or_default(), new_items.unwrap_or_default(), list, path);
                false
            }
            Atom::Map(map) => {
                let (old_fields, new_fields) =
                    (old.and_then(Value::as_object), new.and_then(Value::as_object));
                let empty = old_fields.is_none_or(Map::is_empty) && new_fields.is_none_or(Map::is_empty);
                if empty || map.atomic {
                    return self.leaf(old, new, path);
                }
                self.compare_fields(old_fields, new_fields, map, path);
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[PathElement]) -> bool {
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if old != new => self.modified.insert(path),
            _ => {}
        }
        true
    }

    fn compare_fields(
        &mut self,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        map: MapType,
        path: &mut Vec<PathElement>,
    ) {
        let was_there = |name: &String| old.is_some_and(|old| old.contains_key(name));
        for (name, value) in old.into_iter().flatten() {
            path.push(PathElement::field(name));
            let new = new.and_then(|new| new.get(name));
            self.compare(Some(value), new, map.field_or_deduced(name), path);
            path.pop();
        }
        for (name, value) in new.into_iter().flatten().filter(|(name, _)| !was_there(name)) {
            path.push(PathElement::field(name));
            self.compare(None, Some(value), map.field_or_deduced(name), path);
            path.pop();
        }
    }

    fn compare_items(&mut self, old: &[Value], new: &[Value], list: ListType, path: &mut Vec<PathElement>) {
        let mut all: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(step) = list.step(item) {
                all.entry(step).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(step) = list.step(item) {
                all.entry(step).or_default().1.push(item);
            }
        }
        for (step, (old, new)) in all {
            path.push(step);
            // Duplicate items are compared as a whole.
            match (old.as_slice(), new.as_slice()) {
                (old @ ([] | [_]), new @ ([] | [_])) => {
                    self.compare(old.first().copied(), new.first().copied(), list.element, path);
                }
                ([_, _, ..], [_, _, ..]) => {
                    if old != new {
                        self.modified.insert(path);
                    }
                }
                ([_, _, ..], new) => {
                    if let Some(new) = new.first() {
                        self.compare(None, Some(new), list.element, path);
                    }
                    self.removed.insert(path);
                }
                (old, _) => {
                    if let Some(old) = old.first() {
                        self.compare(Some(old), None, list.element, path);
                    }
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

fn items(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}
