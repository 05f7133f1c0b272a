//! Conversions between types, and the parts of times.

use super::code::Code;
use crate::eval_failure::{EvalFailure, Steps};
use crate::go_float;
use crate::gofmt;
use crate::numbers::{double_to_int, double_to_uint};
use crate::time::{Civil, Timestamp, parse_duration};
use crate::value::{Outcome, Value};

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "bool_to_bool"
        | "bytes_to_bytes"
        | "double_to_double"
        | "duration_to_duration"
        | "int64_to_int64"
        | "string_to_string"
        | "timestamp_to_timestamp"
        | "uint64_to_uint64" => |args, _| Ok(args[0].clone()),
        "string_to_bool" => |args, _| parse(args, "bool", bool_of),
        "string_to_bytes" => |args, _| Ok(Value::Bytes(text(args).as_bytes().into())),
        "int64_to_double" | "uint64_to_double" => to_double,
        "string_to_double" => {
            |args, _| parse(args, "double", |text| go_float::parse(text).map(Value::Double))
        }
        "string_to_duration" => to_duration,
        "double_to_int64" | "duration_to_int64" | "timestamp_to_int64" | "uint64_to_int64" => to_int,
        "string_to_int64" => |args, _| parse(args, "int", |text| text.parse().ok().map(Value::Int)),
        "double_to_uint64" | "int64_to_uint64" => to_uint,
        "string_to_uint64" => |args, _| parse(args, "uint", uint_of),
        "bool_to_string"
        | "bytes_to_string"
        | "double_to_string"
        | "duration_to_string"
        | "int64_to_string"
        | "timestamp_to_string"
        | "uint64_to_string"
        | "ip_to_string"
        | "cidr_to_string" => to_string,
        "int64_to_timestamp" | "string_to_timestamp" => to_timestamp,
        "duration_to_hours" => |args, _| duration_part(args, 3_600_000_000_000),
        "duration_to_minutes" => |args, _| duration_part(args, 60_000_000_000),
        "duration_to_seconds" => |args, _| duration_part(args, 1_000_000_000),
        "duration_to_milliseconds" => |args, _| match args[0] {
            Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000)),
            _ => Err(EvalFailure::no_such_overload()),
        },
        _ => return timestamp_code(overload),
    })
}

fn timestamp_code(overload: &str) -> Option<Code> {
    let part = overload.strip_prefix("timestamp_to_")?;
    let part = part.strip_suffix("_with_tz").or_else(|| part.strip_suffix("_tz")).unwrap_or(part);
    Some(match part {
        "year" => |args, _| timestamp_part(args, |civil, _| civil.year),
        "month" => |args, _| timestamp_part(args, |civil, _| civil.month - 1),
        "day_of_year" => |args, _| timestamp_part(args, |civil, _| civil.day_of_year),
        "day_of_month" => |args, _| timestamp_part(args, |civil, _| civil.day - 1),
        "day_of_month_1_based" => |args, _| timestamp_part(args, |civil, _| civil.day),
        "day_of_week" => |args, _| timestamp_part(args, |civil, _| civil.day_of_week),
        "hours" => |args, _| timestamp_part(args, |civil, _| civil.second_of_day / 3600),
        "minutes" => |args, _| timestamp_part(args, |civil, _| civil.second_of_day / 60 % 60),
        "seconds" => |args, _| timestamp_part(args, |civil, _| civil.second_of_day % 60),
        "milliseconds" => |args, _| timestamp_part(args, |_, nanos| i64::from(nanos / 1_000_000)),
        _ => return None,
    })
}

fn timestamp_part(args: &[Value], part: fn(&Civil, u32) -> i64) -> Outcome {
    let Value::Timestamp(at) = &args[0] else { return Err(EvalFailure::no_such_overload()) };
    let offset = match args.get(1) {
        Some(Value::String(zone)) => zone_offset(zone)?,
        _ => 0,
    };
    Ok(Value::Int(part(&at.civil(offset), at.nanos)))
}

/// Seconds east of UTC. Zones by name need a database, which this crate does not read.
fn zone_offset(zone: &str) -> Result<i64, EvalFailure> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(0),
            _ => Err(EvalFailure::error(format!("time zone {} is not supported", gofmt::quote(zone)))),
        };
    };
    let number = |text: &str| {
        let reason = if text.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit())
            && text.len() > 1
        {
            "value out of range"
        } else {
            "invalid syntax"
        };
        text.parse::<i64>().map_err(|_| {
            EvalFailure::error(format!("strconv.Atoi: parsing {}: {reason}", gofmt::quote(text)))
        })
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = if zone.starts_with('-') {
        hours.wrapping_mul(60).wrapping_sub(minutes)
    } else {
        hours.wrapping_mul(60).wrapping_add(minutes)
    };
    // An offset of more than a century is none.
    if total.abs() > 60 * 24 * 366 * 100 {
        return Err(EvalFailure::error(format!("time zone {} is not supported", gofmt::quote(zone))));
    }
    Ok(total * 60)
}

fn duration_part(args: &[Value], unit: i64) -> Outcome {
    let Value::Duration(nanos) = args[0] else { return Err(EvalFailure::no_such_overload()) };
    let value = (nanos / unit) as f64 + (nanos % unit) as f64 / unit as f64;
    Ok(Value::Int(value as i64))
}

fn text(args: &[Value]) -> &str {
    match &args[0] {
        Value::String(text) => text,
        _ => "",
    }
}

fn conversion_error(from: &str, to: &str) -> EvalFailure {
    EvalFailure::error(format!("type conversion error from '{from}' to '{to}'"))
}

fn parse(args: &[Value], to: &str, read: impl FnOnce(&str) -> Option<Value>) -> Outcome {
    read(text(args)).ok_or_else(|| conversion_error("string", to))
}

fn bool_of(text: &str) -> Option<Value> {
    Some(Value::Bool(match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => return None,
    }))
}

fn uint_of(text: &str) -> Option<Value> {
    text.parse().ok().filter(|_| !text.starts_with('+')).map(Value::Uint)
}

fn to_double(args: &[Value], _: &mut Steps) -> Outcome {
    match args[0] {
        Value::Int(value) => Ok(Value::Double(value as f64)),
        Value::Uint(value) => Ok(Value::Double(value as f64)),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn to_int(args: &[Value], _: &mut Steps) -> Outcome {
    Ok(Value::Int(match &args[0] {
        Value::Double(value) => double_to_int(*value)?,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(at) => at.seconds,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| EvalFailure::int_overflow())?,
        _ => return Err(EvalFailure::no_such_overload()),
    }))
}

fn to_uint(args: &[Value], _: &mut Steps) -> Outcome {
    Ok(Value::Uint(match args[0] {
        Value::Double(value) => double_to_uint(value)?,
        Value::Int(value) => u64::try_from(value).map_err(|_| EvalFailure::uint_overflow())?,
        _ => return Err(EvalFailure::no_such_overload()),
    }))
}

/// `string(value)`.
pub(super) fn to_string(args: &[Value], _: &mut Steps) -> Outcome {
    let text = match &args[0] {
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| EvalFailure::error("invalid UTF-8 in bytes, cannot convert to string"))?
            .to_string(),
        Value::Duration(nanos) => {
            let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
            format!("{}s", gofmt::fixed(seconds))
        }
        Value::Timestamp(at) => at.rfc3339(),
        other => other.display(),
    };
    Ok(Value::string(&text))
}

/// `duration(text)`.
pub(crate) fn to_duration(args: &[Value], _: &mut Steps) -> Outcome {
    parse(args, "google.protobuf.Duration", |text| parse_duration(text).map(Value::Duration))
}

/// `timestamp(text)` or `timestamp(seconds)`.
pub(crate) fn to_timestamp(args: &[Value], _: &mut Steps) -> Outcome {
    if let Value::Int(seconds) = args[0] {
        return Timestamp::at(seconds).map(Value::Timestamp);
    }
    match Timestamp::parse(text(args)) {
        Some(parsed) => parsed.map(Value::Timestamp),
        None => Err(conversion_error("string", "google.protobuf.Timestamp")),
    }
}
