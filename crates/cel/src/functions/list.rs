//! Functions of lists.

use std::cmp::Ordering;

use super::code::Code;
use super::operators::{add, is_ordered, order};
use crate::eval_failure::{EvalFailure, Steps};
use crate::value::{List, Outcome, Value};

/// The greatest number of elements that upstream sorts in a stable way. More, with equal keys, are
/// not handled.
const STABLE: usize = 12;

#[allow(clippy::type_complexity)]
pub(super) fn single(name: &str) -> Option<(fn(&Value) -> bool, Code)> {
    let is_list: fn(&Value) -> bool = |value| matches!(value, Value::List(_));
    Some(match name {
        "sort" => (is_list, |args, steps| sort(list(&args[0])?, list(&args[0])?, steps)),
        "@sortByAssociatedKeys" => (is_list, |args, steps| sort(list(&args[0])?, list(&args[1])?, steps)),
        _ => return None,
    })
}

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "list_last" => |args, _| Ok(optional(list(&args[0])?.with(|items| items.last().cloned()))),
        "list_first" => |args, _| Ok(optional(list(&args[0])?.get(0))),
        "list_slice" => slice,
        "list_flatten" => |args, steps| flatten_list(args, 1, "", steps),
        "list_flatten_int" => |args, steps| match args[1] {
            Value::Int(depth) => flatten_list(args, depth, "int", steps),
            _ => {
                let types = (args[0].verbose_type(), args[1].verbose_type());
                Err(EvalFailure::error(format!("no such overload: {}.flatten({})", types.0, types.1)))
            }
        },
        "lists_range" => range,
        "list_reverse" => |args, _| {
            let mut items = list(&args[0])?.to_vec();
            items.reverse();
            Ok(Value::list(items))
        },
        "list_distinct" => distinct,
        "list_a_index_of_int" => |args, steps| position(args, false, steps),
        "list_a_last_index_of_int" => |args, steps| position(args, true, steps),
        "list_includes_dyn_dyn" => includes,
        "list_sets_contains_list" => |args, steps| Ok(Value::Bool(contains_all(&args[0], &args[1], steps)?)),
        "list_sets_equivalent_list" => |args, steps| {
            let both = contains_all(&args[0], &args[1], steps)? && contains_all(&args[1], &args[0], steps)?;
            Ok(Value::Bool(both))
        },
        "list_sets_intersects_list" => intersects,
        _ if overload.ends_with("_is_sorted_bool") => is_sorted,
        _ if overload.starts_with("list_") && overload.contains("_max_") => {
            |args, _| extreme(args, "max", Ordering::Less)
        }
        _ if overload.starts_with("list_") && overload.contains("_min_") => {
            |args, _| extreme(args, "min", Ordering::Greater)
        }
        "list_int_sum_int" => |args, steps| sum(args, Value::Int(0), steps),
        "list_uint_sum_uint" => |args, steps| sum(args, Value::Uint(0), steps),
        "list_double_sum_double" => |args, steps| sum(args, Value::Double(0.0), steps),
        "list_duration_sum_duration" => |args, steps| sum(args, Value::Duration(0), steps),
        _ => return None,
    })
}

fn list(value: &Value) -> Result<&List, EvalFailure> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn optional(value: Option<Value>) -> Value {
    value.map_or(Value::Optional(None), Value::some)
}

/// Whether an element is equal to a value.
pub(super) fn contains(list: &List, value: &Value, steps: &mut Steps) -> Result<bool, EvalFailure> {
    for item in list.to_vec() {
        if value.is(&item, steps)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all(all: &Value, some: &Value, steps: &mut Steps) -> Result<bool, EvalFailure> {
    let all = list(all)?;
    for item in list(some)?.to_vec() {
        if !contains(all, &item, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(args: &[Value], steps: &mut Steps) -> Outcome {
    let other = list(&args[1])?;
    for item in list(&args[0])?.to_vec() {
        if contains(other, &item, steps)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn includes(args: &[Value], steps: &mut Steps) -> Outcome {
    let Value::List(items) = &args[0] else {
        return Ok(Value::Bool(args[0].is(&args[1], steps)?));
    };
    for item in items.to_vec() {
        if item.is(&args[1], steps)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn position(args: &[Value], from_end: bool, steps: &mut Steps) -> Outcome {
    let items = list(&args[0])?.to_vec();
    let mut indices: Vec<usize> = (0..items.len()).collect();
    if from_end {
        indices.reverse();
    }
    for index in indices {
        if items[index].is(&args[1], steps)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn slice(args: &[Value], _: &mut Steps) -> Outcome {
    let (Value::Int(start), Value::Int(end)) = (&args[1], &args[2]) else {
        return Err(EvalFailure::no_such_overload());
    };
    let items = list(&args[0])?;
    let fail = |reason: String| Err(EvalFailure::error(format!("cannot slice({start}, {end}), {reason}")));
    if *start < 0 || *end < 0 {
        return fail("negative indexes not supported".into());
    }
    if start > end {
        return fail("start index must be less than or equal to end index".into());
    }
    if (items.len() as i64) < *end {
        return fail(format!("list is length {}", items.len()));
    }
    Ok(Value::list(items.with(|items| items[*start as usize..*end as usize].to_vec())))
}

fn flatten_list(args: &[Value], depth: i64, other: &str, steps: &mut Steps) -> Outcome {
    let Value::List(items) = &args[0] else {
        let t = args[0].verbose_type();
        return Err(EvalFailure::error(format!("no such overload: {t}.flatten({other})")));
    };
    if depth < 0 {
        return Err(EvalFailure::error("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten(items, depth, &mut flat, steps)?;
    Ok(Value::list(flat))
}

fn flatten(items: &List, depth: i64, flat: &mut Vec<Value>, steps: &mut Steps) -> Result<(), EvalFailure> {
    for item in items.to_vec() {
        steps.take(1)?;
        match &item {
            Value::List(inner) if depth > 0 => flatten(inner, depth - 1, flat, steps)?,
            _ => flat.push(item),
        }
    }
    Ok(())
}

fn range(args: &[Value], _: &mut Steps) -> Outcome {
    const MOST: i64 = 1_000_000;
    let Value::Int(count) = args[0] else { return Err(EvalFailure::no_such_overload()) };
    if count < 0 {
        return Err(EvalFailure::error(format!("lists.range: size must be non-negative, got {count}")));
    }
    if count > MOST {
        let message = format!("lists.range: size {count} exceeds maximum allowed ({MOST})");
        return Err(EvalFailure::error(message));
    }
    Ok(Value::list((0..count).map(Value::Int).collect()))
}

fn distinct(args: &[Value], steps: &mut Steps) -> Outcome {
    let mut unique: Vec<Value> = Vec::new();
    for item in list(&args[0])?.to_vec() {
        let mut seen = false;
        for other in &unique {
            if item.is(other, steps)? {
                seen = true;
                break;
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn is_sorted(args: &[Value], _: &mut Steps) -> Outcome {
    let items = list(&args[0])?.to_vec();
    for (index, item) in items.iter().enumerate() {
        if !is_ordered(item) {
            return Err(EvalFailure::no_such_overload());
        }
        if index > 0 && matches!(order(&items[index - 1], item), Ok(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(args: &[Value], zero: Value, steps: &mut Steps) -> Outcome {
    let mut total = zero;
    for item in list(&args[0])?.to_vec() {
        let is_addable =
            is_ordered(&item) && !matches!(item, Value::Bool(_)) || matches!(item, Value::List(_));
        if !is_addable {
            return Err(EvalFailure::no_such_overload());
        }
        total = add(&[total, item], steps)?;
    }
    Ok(total)
}

/// The largest or smallest element: the next one replaces the best so far when that is `worse`.
fn extreme(args: &[Value], name: &str, worse: Ordering) -> Outcome {
    let mut best: Option<Value> = None;
    for item in list(&args[0])?.to_vec() {
        if !is_ordered(&item) {
            return Err(EvalFailure::no_such_overload());
        }
        let replaces = best.as_ref().is_none_or(|best| order(best, &item).is_ok_and(|order| order == worse));
        if replaces {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalFailure::error(format!("{name} called on empty list")))
}

fn sort(items: &List, keys: &List, steps: &mut Steps) -> Outcome {
    if items.len() != keys.len() {
        return Err(EvalFailure::error(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            items.len(),
            keys.len()
        )));
    }
    let (values, keys) = (items.to_vec(), keys.to_vec());
    let Some(first) = keys.first() else { return Ok(Value::List(items.clone())) };
    if !is_ordered(first) {
        return Err(EvalFailure::error("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(EvalFailure::error("list elements must have the same type"));
    }
    if keys.iter().any(|key| matches!(key, Value::Double(key) if key.is_nan())) {
        return Err(EvalFailure::halt("sorting of NaN is not supported"));
    }
    steps.take(keys.len() as u64 * 20)?;
    let mut order_of: Vec<usize> = (0..keys.len()).collect();
    order_of.sort_by(|a, b| order(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    if keys.len() > STABLE {
        for pair in order_of.windows(2) {
            let same_key = order(&keys[pair[0]], &keys[pair[1]]).is_ok_and(Ordering::is_eq);
            if same_key && !values[pair[0]].is(&values[pair[1]], steps)? {
                return Err(EvalFailure::halt("sorting of many elements with equal keys is not supported"));
            }
        }
    }
    Ok(Value::list(order_of.into_iter().map(|index| values[index].clone()).collect()))
}
