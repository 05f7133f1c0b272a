//! Lists in a strategic merge patch.

use serde_json::{Map, Value};

use super::types::{Fields, ListField};
use super::{
    BAD_ORDER, DIRECTIVE, SET_ORDER, directed, list_of_lists, merge_object, no_merge_key, not_a_list,
    not_an_object, unknown_directive, without_directives,
};
use crate::patch::errors::unknown;
use crate::patch::golang::Shown;
use crate::status::{Result, Status};

/// Merges the lists for which the patch sets an order. Returns the names of the fields it has
/// handled.
pub(super) fn merge_ordered<'p>(
    object: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    fields: Fields,
) -> Result<Vec<&'p str>> {
    let mut done = Vec::new();
    for (directive, order) in patch.iter().filter(|(name, _)| name.starts_with(SET_ORDER)) {
        let Value::Array(order) = order else { return Err(not_a_list(order)) };
        let name = directed(directive, SET_ORDER, BAD_ORDER)?;
        let change = patch.get(name).map(as_list).transpose()?;
        object.get(name).map(as_list).transpose()?;
        let field = fields.list(name)?;
        check_order(change.unwrap_or_default(), order, field.key)?;
        let current = match object.remove(name) {
            Some(Value::Array(current)) => Some(current),
            _ => None,
        };
        let Some(merged) = merge_before_order(current.as_deref(), change, field)? else { continue };
        let current = current.unwrap_or_default();
        uniform(&current, change.unwrap_or_default())?;
        let ordered = in_order(merged, order, &current, field.key)?;
        object.insert(name.to_owned(), Value::Array(ordered));
        if change.is_some() {
            done.push(name);
        }
    }
    Ok(done)
}

fn merge_before_order(
    current: Option<&[Value]>,
    change: Option<&[Value]>,
    field: ListField,
) -> Result<Option<Vec<Value>>> {
    match (current, change) {
        (None, None) => Ok(None),
        (Some(current), None) => Ok(Some(current.to_vec())),
        (None, Some(change)) => {
            Ok(Some(change.iter().filter_map(|item| without_directives(item, false)).collect()))
        }
        (Some(current), Some(change)) if field.merged => merge(current.to_vec(), change, field).map(Some),
        (Some(_), Some(change)) => Ok(Some(change.to_vec())),
    }
}

/// Merges a list whose type has the patch strategy `merge`.
pub(super) fn merge(current: Vec<Value>, change: &[Value], field: ListField) -> Result<Vec<Value>> {
    match uniform_or_empty(&current, change)? {
        None => Ok(current),
        Some(Value::Object(_)) => {
            let Some(key) = field.key else {
                return Err(unknown("cannot merge lists without merge key for struct"));
            };
            merge_objects(current, change, key, field)
        }
        Some(_) => {
            let mut merged: Vec<Value> = Vec::with_capacity(current.len() + change.len());
            for item in current.iter().chain(change) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            in_order(merged, change, &current, None)
        }
    }
}

/// The list without these values.
pub(super) fn delete(current: Vec<Value>, gone: &[Value], field: ListField) -> Result<Vec<Value>> {
    match uniform_or_empty(&current, gone)? {
        None => Ok(current),
        Some(Value::Object(_)) => merge(current, gone, field),
        Some(_) => Ok(current.into_iter().filter(|item| !gone.contains(item)).collect()),
    }
}

fn merge_objects(current: Vec<Value>, change: &[Value], key: &str, field: ListField) -> Result<Vec<Value>> {
    let mut server = current;
    let mut changed: Vec<Value> = Vec::with_capacity(change.len());
    let mut replace = false;
    for item in change {
        let fields = as_object(item)?;
        match fields.get(DIRECTIVE) {
            None => changed.push(item.clone()),
            Some(directive) if directive == "delete" => {
                let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                server.retain(|item| item.get(key) != Some(value));
            }
            Some(directive) if directive == "replace" => replace = true,
            Some(directive) if directive == "merge" => {
                return Err(unknown("merging lists cannot yet be specified in the patch"));
            }
            Some(directive) => return Err(unknown_directive(directive, fields)),
        }
    }
    if replace {
        (server, changed) = (changed, Vec::new());
    }
    let mut merged = server.clone();
    for item in &changed {
        let fields = as_object(item)?;
        let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        match merged.iter_mut().find(|item| item.get(key) == Some(value)) {
            Some(Value::Object(found)) => {
                *found = merge_object(std::mem::take(found), fields, field.fields)?;
            }
            _ => merged.push(item.clone()),
        }
    }
    in_order(merged, &changed, &server, Some(key))
}

/// Arranges the items in `order` accordingly and the others in the server's order, and merges the
/// two so that a server item comes before those that follow it there.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>> {
    if let Some(key) = key {
        for item in merged.iter().chain(order) {
            let fields = as_object(item)?;
            fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        }
    }
    let position = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_cached_key(|item| position(order, item));
    others.sort_by_cached_key(|item| position(server_order, item));

    let mut all = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let first = match (others.peek(), named.peek()) {
            (None, None) => return Ok(all),
            (Some(_), None) => &mut others,
            (Some(other), Some(one))
                if position(server_order, one)
                    .is_some_and(|one| position(server_order, other).is_some_and(|other| other < one)) =>
            {
                &mut others
            }
            _ => &mut named,
        };
        all.extend(first.next());
    }
}

/// Checks that the order contains the patch's items, in the same sequence.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut ordered = order.iter();
    for item in change.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        loop {
            let Some(candidate) = ordered.next() else {
                let (change, order) = (Shown::list(change), Shown::list(order));
                let message = format!(
                    "The order in patch list:\n{change}\n doesn't match {SET_ORDER} list:\n{order}\n"
                );
                return Err(unknown(message));
            };
            if let Some(key) = key {
                for item in [item, candidate] {
                    let fields = as_object(item)?;
                    fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                }
            }
            if same(item, candidate, key) {
                break;
            }
        }
    }
    Ok(())
}

fn same(one: &Value, other: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => one.get(key) == other.get(key),
        None => one == other,
    }
}

/// The first item of two lists whose items all have one type other than list; `None` if both are
/// empty.
fn uniform_or_empty<'a>(current: &'a [Value], change: &'a [Value]) -> Result<Option<&'a Value>> {
    if current.is_empty() && change.is_empty() { Ok(None) } else { uniform(current, change).map(Some) }
}

fn uniform<'a>(current: &'a [Value], change: &'a [Value]) -> Result<&'a Value> {
    use crate::patch::golang::type_name;
    let mut items = current.iter().chain(change);
    let first = items.next().ok_or_else(|| unknown("no elements in any of the given slices"))?;
    if first.is_array() {
        return Err(list_of_lists());
    }
    if first.is_null() || items.any(|item| type_name(item) != type_name(first)) {
        let (current, change) = (Shown::list(current), Shown::list(change));
        return Err(unknown(format!("list element types are not identical: [{current} {change}]")));
    }
    Ok(first)
}

fn as_list(value: &Value) -> Result<&[Value]> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(not_a_list(other)),
    }
}

fn as_object(value: &Value) -> std::result::Result<&Map<String, Value>, Status> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(not_an_object(other)),
    }
}
