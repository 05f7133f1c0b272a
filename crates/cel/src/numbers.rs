//! Arithmetic and comparisons between numbers of several types.

use std::cmp::Ordering;

use crate::eval_failure::EvalFailure;
use crate::value::Value;

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Whether two numbers are the same; NaN is like no number.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    matches!(compare(a, b), Some(Ok(Ordering::Equal)))
}

/// How numbers compare; nothing for values that are not numbers.
pub(crate) fn compare(a: &Value, b: &Value) -> Option<Result<Ordering, EvalFailure>> {
    let is_nan = |value: &Value| matches!(value, Value::Double(value) if value.is_nan());
    if is_nan(a) || (is_nan(b) && matches!(a, Value::Int(_) | Value::Uint(_) | Value::Double(_))) {
        return Some(Err(EvalFailure::error("NaN values cannot be ordered")));
    }
    Some(Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
        (Value::Int(a), Value::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Uint(a), Value::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (Value::Double(a), Value::Double(b)) => doubles(*a, *b),
        (Value::Double(a), Value::Int(b)) => double_int(*a, *b),
        (Value::Int(a), Value::Double(b)) => double_int(*b, *a).reverse(),
        (Value::Double(a), Value::Uint(b)) => double_uint(*a, *b),
        (Value::Uint(a), Value::Double(b)) => double_uint(*b, *a).reverse(),
        _ => return None,
    }))
}

fn doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn double_int(a: f64, b: i64) -> Ordering {
    if a < -TWO_TO_63 {
        Ordering::Less
    } else if a > TWO_TO_63 {
        Ordering::Greater
    } else {
        doubles(a, b as f64)
    }
}

fn double_uint(a: f64, b: u64) -> Ordering {
    if a < 0.0 {
        Ordering::Less
    } else if a > TWO_TO_64 {
        Ordering::Greater
    } else {
        doubles(a, b as f64)
    }
}

/// A double without its fraction, if that is an integer.
pub(crate) fn double_to_int(value: f64) -> Result<i64, EvalFailure> {
    if value.is_nan() || value <= -TWO_TO_63 || value >= TWO_TO_63 {
        return Err(EvalFailure::int_overflow());
    }
    Ok(value as i64)
}

pub(crate) fn double_to_uint(value: f64) -> Result<u64, EvalFailure> {
    if !(0.0..TWO_TO_64).contains(&value) {
        return Err(EvalFailure::uint_overflow());
    }
    Ok(value as u64)
}

/// The integer that a number is, if it is one: a key or an index.
#[allow(clippy::float_cmp)]
pub(crate) fn as_int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Uint(value) => i64::try_from(*value).ok(),
        Value::Double(value) => double_to_int(*value).ok().filter(|int| *int as f64 == *value),
        _ => None,
    }
}
