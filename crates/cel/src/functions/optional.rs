//! Optional values, and maps that folds make.

use super::code::Code;
use crate::eval_failure::{EvalFailure, Steps};
use crate::value::{MAX_NESTING, Outcome, Value};

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "optional_of" => |args, _| some(&args[0]),
        "optional_ofNonZeroValue" => |args, _| {
            if args[0].is_zero() { Ok(Value::Optional(None)) } else { some(&args[0]) }
        },
        "optional_none" => |_, _| Ok(Value::Optional(None)),
        "optional_value" => |args, _| match &args[0] {
            Value::Optional(Some(value)) => Ok((**value).clone()),
            _ => Err(EvalFailure::error("optional.none() dereference")),
        },
        "optional_hasValue" => |args, _| Ok(Value::Bool(matches!(&args[0], Value::Optional(Some(_))))),
        "optional_unwrap" | "optional_unwrapOpt" => unwrap,
        "@mapInsert_map_key_value" => |args, steps| match &args[0] {
            Value::Map(map) => map.insert(&args[1], &args[2], steps),
            _ => Err(EvalFailure::no_such_overload()),
        },
        "@mapInsert_map_map" => insert_all,
        _ => return None,
    })
}

pub(crate) fn some(value: &Value) -> Outcome {
    if value.nesting() >= MAX_NESTING {
        return Err(EvalFailure::halt("value nested too deeply"));
    }
    Ok(Value::some(value.clone()))
}

fn unwrap(args: &[Value], steps: &mut Steps) -> Outcome {
    let Value::List(list) = &args[0] else { return Err(EvalFailure::no_such_overload()) };
    steps.take(list.len() as u64)?;
    let mut values = Vec::new();
    for item in list.to_vec() {
        match item {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(EvalFailure::error(format!("value {} is not optional", other.display()))),
        }
    }
    Ok(Value::list(values))
}

fn insert_all(args: &[Value], steps: &mut Steps) -> Outcome {
    let (Value::Map(target), Value::Map(update)) = (&args[0], &args[1]) else {
        return Err(EvalFailure::no_such_overload());
    };
    let mut map = target.clone();
    for (key, value) in update.entries() {
        if let Value::Map(inserted) = map.insert(&key, &value, steps)? {
            map = inserted;
        }
    }
    Ok(Value::Map(map))
}
