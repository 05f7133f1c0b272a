//! Operators, each one function for all its overloads.

use std::cmp::Ordering;

use super::code::Code;
use crate::eval_failure::{EvalFailure, Steps};
use crate::numbers::compare as compare_numbers;
use crate::value::{Outcome, Value};

type Accepts = fn(&Value) -> bool;

pub(super) fn single(name: &str) -> Option<(Accepts, Code)> {
    let any: Accepts = |_| true;
    Some(match name {
        "!_" => (any, not),
        "-_" => (is_negatable, negate),
        "_+_" => (is_addable, add),
        "_-_" => (is_subtractable, subtract),
        "_*_" => (is_number, multiply),
        "_/_" => (is_number, divide),
        "_%_" => (is_integer, modulo),
        "_<_" => (is_ordered, |args, _| Ok(Value::Bool(compare(args)?.is_lt()))),
        "_<=_" => (is_ordered, |args, _| Ok(Value::Bool(compare(args)?.is_le()))),
        "_>_" => (is_ordered, |args, _| Ok(Value::Bool(compare(args)?.is_gt()))),
        "_>=_" => (is_ordered, |args, _| Ok(Value::Bool(compare(args)?.is_ge()))),
        "@in" => (any, is_in),
        "size" => (has_size, |args, _| Ok(Value::Int(args[0].size().unwrap_or(0) as i64))),
        "type" => (any, |args, _| Ok(Value::Type(args[0].type_name().into()))),
        "dyn" => (any, |args, _| Ok(args[0].clone())),
        _ => return None,
    })
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn is_integer(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_))
}

fn is_negatable(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Duration(_))
}

fn is_subtractable(value: &Value) -> bool {
    is_number(value) || matches!(value, Value::Duration(_) | Value::Timestamp(_))
}

fn is_addable(value: &Value) -> bool {
    is_subtractable(value) || matches!(value, Value::String(_) | Value::Bytes(_) | Value::List(_))
}

fn has_size(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))
}

pub(super) fn is_ordered(value: &Value) -> bool {
    is_subtractable(value) || matches!(value, Value::Bool(_) | Value::String(_) | Value::Bytes(_))
}

/// Upstream's method `Compare`.
pub(super) fn order(a: &Value, b: &Value) -> Result<Ordering, EvalFailure> {
    if let Some(order) = compare_numbers(a, b) {
        return order;
    }
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => (a.seconds, a.nanos).cmp(&(b.seconds, b.nanos)),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn compare(args: &[Value]) -> Result<Ordering, EvalFailure> {
    order(&args[0], &args[1])
}

fn not(args: &[Value], _: &mut Steps) -> Outcome {
    match args[0] {
        Value::Bool(value) => Ok(Value::Bool(!value)),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn negate(args: &[Value], _: &mut Steps) -> Outcome {
    Ok(match args[0] {
        Value::Int(value) => Value::Int(value.checked_neg().ok_or_else(EvalFailure::int_overflow)?),
        Value::Duration(value) => Value::Duration(value.checked_neg().ok_or_else(EvalFailure::int_overflow)?),
        Value::Double(value) => Value::Double(-value),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

pub(super) fn add(args: &[Value], steps: &mut Steps) -> Outcome {
    Ok(match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_add(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_add(*b).ok_or_else(EvalFailure::uint_overflow)?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => {
            steps.take((a.len() + b.len()) as u64 / 8)?;
            Value::String([&**a, &**b].concat().into())
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            steps.take((a.len() + b.len()) as u64 / 8)?;
            Value::Bytes([&**a, &**b].concat().into())
        }
        (Value::List(a), Value::List(b)) => return a.concat(b, steps),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Duration(a), Value::Timestamp(b)) => Value::Timestamp(b.plus(*a)?),
        (Value::Timestamp(a), Value::Duration(b)) => Value::Timestamp(a.plus(*b)?),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn subtract(args: &[Value], _: &mut Steps) -> Outcome {
    Ok(match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_sub(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_sub(*b).ok_or_else(EvalFailure::uint_overflow)?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a - b),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_sub(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Timestamp(a), Value::Duration(b)) => {
            Value::Timestamp(a.plus(b.checked_neg().ok_or_else(EvalFailure::int_overflow)?)?)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => Value::Duration(a.minus(b)?),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn multiply(args: &[Value], _: &mut Steps) -> Outcome {
    Ok(match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_mul(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_mul(*b).ok_or_else(EvalFailure::uint_overflow)?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a * b),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn divide(args: &[Value], _: &mut Steps) -> Outcome {
    let by_zero = || EvalFailure::error("division by zero");
    Ok(match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_div(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a / b),
        (Value::Double(a), Value::Double(b)) => Value::Double(a / b),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn modulo(args: &[Value], _: &mut Steps) -> Outcome {
    let by_zero = || EvalFailure::error("modulus by zero");
    Ok(match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(a.checked_rem(*b).ok_or_else(EvalFailure::int_overflow)?)
        }
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a % b),
        _ => return Err(EvalFailure::no_such_overload()),
    })
}

fn is_in(args: &[Value], steps: &mut Steps) -> Outcome {
    match &args[1] {
        Value::List(list) => Ok(Value::Bool(super::list::contains(list, &args[0], steps)?)),
        Value::Map(map) => Ok(Value::Bool(map.get(&args[0])?.is_some())),
        _ => Err(EvalFailure::no_such_overload()),
    }
}
