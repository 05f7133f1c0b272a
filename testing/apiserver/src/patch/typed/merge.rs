//! Merges an applied configuration into an object: its fields win, and associative lists are
//! joined.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::types::{Atom, ListType, MapType, Relation, TypeRef};
use crate::patch::fields::PathElement;

/// Merges `config` into `live`. Both must be valid.
pub(in crate::patch) fn merge(live: &Value, config: &Value, type_ref: TypeRef) -> Value {
    merge_values(Some(live), Some(config), type_ref).unwrap_or(Value::Null)
}

fn merge_values(live: Option<&Value>, config: Option<&Value>, type_ref: TypeRef) -> Option<Value> {
    let Some(given) = config else { return live.cloned() };
    match type_ref.atom(Some(given)) {
        Atom::Scalar(_) => Some(given.clone()),
        Atom::List(list) => {
            let (live, config) = (live.and_then(Value::as_array), given.as_array());
            let empty = live.is_none_or(Vec::is_empty) && config.is_none_or(Vec::is_empty);
            if empty || matches!(list.relation, Relation::Atomic) {
                return Some(given.clone());
            }
            merge_items(live.map_or(&[], Vec::as_slice), config.map_or(&[], Vec::as_slice), list)
        }
        Atom::Map(map) => {
            let (live, config) = (live.and_then(Value::as_object), given.as_object());
            let empty = live.is_none_or(Map::is_empty) && config.is_none_or(Map::is_empty);
            if empty || map.atomic {
                return Some(given.clone());
            }
            merge_fields(live, config, map)
        }
    }
}

fn merge_fields(
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
    map: MapType,
) -> Option<Value> {
    let mut merged = live.cloned().unwrap_or_default();
    for (name, value) in config.into_iter().flatten() {
        let live = live.and_then(|live| live.get(name));
        match merge_values(live, Some(value), map.field_or_deduced(name)) {
            Some(value) => drop(merged.insert(name.clone(), value)),
            None => drop(merged.remove(name)),
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Joins the items: those of the config in its order, the others at their positions in the live
/// list.
fn merge_items(live: &[Value], config: &[Value], list: ListType) -> Option<Value> {
    let (live, config) = (with_steps(live, list), with_steps(config, list));
    let mut in_live: BTreeMap<&PathElement, &Value> = BTreeMap::new();
    for (step, item) in &live {
        // A duplicate item has no single value to merge with.
        in_live.entry(step).and_modify(|item| *item = &Value::Null).or_insert(item);
    }
    let in_config: BTreeSet<&PathElement> = config.iter().map(|(step, _)| step).collect();
    let mut shared: VecDeque<&PathElement> =
        config.iter().map(|(step, _)| step).filter(|step| in_live.contains_key(step)).collect();
    let mut next_shared = shared.pop_front();

    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut i, mut j) = (0, 0);
    while i < live.len() || j < config.len() {
        let from_live = live.get(i).map(|(step, _)| step);
        let from_config = config.get(j).map(|(step, _)| step);
        if let (Some(step), Some(other)) = (from_live, from_config)
            && step != other
            && in_config.contains(step)
            && next_shared.is_some_and(|next| next != step)
        {
            // It is merged when the config reaches it.
            i += 1;
            continue;
        }
        if let Some(step) = from_live
            && from_config != Some(step)
        {
            if !in_config.contains(step) {
                merged.push(live[i].1.clone());
                i += 1;
                continue;
            }
            if done.contains(step) {
                i += 1;
            }
        }
        let Some(step) = from_config else { continue };
        done.insert(step);
        merged.extend(merge_values(in_live.get(step).copied(), Some(config[j].1), list.element));
        if from_live == Some(step) {
            i += 1;
        }
        j += 1;
        if next_shared == Some(step) {
            next_shared = shared.pop_front();
        }
    }
    (!merged.is_empty()).then_some(Value::Array(merged))
}

fn with_steps(items: &[Value], list: ListType) -> Vec<(PathElement, &Value)> {
    items.iter().filter_map(|item| Some((list.step(item).ok()?, item))).collect()
}
