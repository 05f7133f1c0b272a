//! The set of an object's fields, and the removal of a set of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::types::{Atom, ListType, MapType, Relation, TypeRef};
use crate::patch::fields::{PathElement, Set};

/// Every field of an object.
pub(in crate::patch) fn field_set(value: &Value, type_ref: TypeRef) -> Set {
    let mut set = Set::default();
    collect(value, type_ref, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, type_ref: TypeRef, path: &mut Vec<PathElement>, set: &mut Set) {
    match type_ref.atom(Some(value)) {
        Atom::Scalar(_)
        | Atom::List(ListType { relation: Relation::Atomic, .. })
        | Atom::Map(MapType { atomic: true, .. }) => set.insert(path),
        Atom::List(list) => collect_items(value.as_array().map_or(&[], Vec::as_slice), list, path, set),
        Atom::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(PathElement::field(name));
                collect(value, map.field_or_deduced(name), path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || map.declared(name).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

fn collect_items(items: &[Value], list: ListType, path: &mut Vec<PathElement>, set: &mut Set) {
    let mut times: BTreeMap<PathElement, usize> = BTreeMap::new();
    let steps: Vec<(PathElement, &Value)> =
        items.iter().filter_map(|item| Some((list.step(item).ok()?, item))).collect();
    for (step, _) in &steps {
        *times.entry(step.clone()).or_default() += 1;
    }
    for (step, item) in steps {
        // Duplicate items are one field.
        let once = times.get(&step) == Some(&1);
        path.push(step);
        if once {
            collect(item, list.element, path, set);
        }
        set.insert(path);
        path.pop();
    }
}

/// Removes a set of fields from an object.
pub(in crate::patch) fn remove(value: &Value, gone: &Set, type_ref: TypeRef) -> Value {
    match (type_ref.atom(Some(value)), value) {
        (Atom::List(list), Value::Array(items)) if !matches!(list.relation, Relation::Atomic) => {
            let kept: Vec<Value> = items.iter().filter_map(|item| remove_item(item, gone, list)).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Atom::Map(map), Value::Object(fields)) if !map.atomic => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), remove_field(name, value, gone, map)?)))
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Atom::Scalar(_), value) => value.clone(),
        _ => Value::Null,
    }
}

fn remove_item(item: &Value, gone: &Set, list: ListType) -> Option<Value> {
    let Ok(step) = list.step(item) else { return Some(item.clone()) };
    remove_step(&step, item, gone, list.element)
}

fn remove_field(name: &str, value: &Value, gone: &Set, map: MapType) -> Option<Value> {
    remove_step(&PathElement::field(name), value, gone, map.field_or_deduced(name))
}

fn remove_step(step: &PathElement, value: &Value, gone: &Set, type_ref: TypeRef) -> Option<Value> {
    if gone.has_member(step) {
        return None;
    }
    Some(match gone.below(step) {
        Some(gone) => remove(value, gone, type_ref),
        None => value.clone(),
    })
}

/// Adds every declared field that has a descendant in the set.
pub(in crate::patch) fn with_named_fields(set: &Set, type_ref: TypeRef) -> Set {
    let mut all = Set::default();
    for member in set.members() {
        all.insert_member(member.clone());
    }
    for (step, below) in set.children() {
        let (declared, element) = match (step, type_ref.atom(None)) {
            (PathElement::Field(name), Atom::Map(map)) => {
                (map.declared(name).is_some(), map.field_or_deduced(name))
            }
            (PathElement::Key(_), Atom::List(list)) => (false, list.element),
            _ => (false, TypeRef::Deduced),
        };
        if declared {
            all.insert_member(step.clone());
        }
        all.insert_child(step.clone(), with_named_fields(below, element));
    }
    all
}
