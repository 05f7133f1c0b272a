//! Quantities, versions, and addresses of networks.

use std::cmp::Ordering;
use std::sync::Arc;

use super::code::Code;
use crate::eval_failure::EvalFailure;
use crate::net::{Cidr, Ip};
use crate::quantity::{Quantity, QuantityError};
use crate::semver::Version;
use crate::value::{Outcome, Value};

pub(super) fn code(overload: &str) -> Option<Code> {
    quantity_code(overload).or_else(|| semver_code(overload)).or_else(|| network_code(overload))
}

fn quantity_code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_to_quantity" => |args, _| {
            let quantity = Arc::new(Quantity::parse(text(&args[0])).map_err(fault)?);
            Ok(Value::Quantity { quantity, computed: false })
        },
        "is_quantity_string" => |args, _| match Quantity::parse(text(&args[0])) {
            Ok(_) => Ok(Value::Bool(true)),
            Err(QuantityError::Invalid(_)) => Ok(Value::Bool(false)),
            Err(error) => Err(fault(error)),
        },
        "quantity_sign" => |args, _| Ok(Value::Int(quantity(&args[0])?.sign())),
        "quantity_is_greater_than" => |args, _| Ok(Value::Bool(quantities(args)?.is_gt())),
        "quantity_is_less_than" => |args, _| Ok(Value::Bool(quantities(args)?.is_lt())),
        "quantity_compare_to" => |args, _| Ok(Value::Int(quantities(args)? as i64)),
        "quantity_get_float" => |args, _| Ok(Value::Double(quantity(&args[0])?.as_double())),
        "quantity_get_int" => |args, _| {
            let value = quantity(&args[0])?.as_int();
            value.map(Value::Int).ok_or_else(|| EvalFailure::error("cannot convert value to integer"))
        },
        "quantity_is_integer" => |args, _| Ok(Value::Bool(quantity(&args[0])?.as_int().is_some())),
        "quantity_add" | "quantity_add_int" => {
            |args, _| computed(quantity(&args[0])?.add(&operand(&args[1])?))
        }
        "quantity_sub" | "quantity_sub_int" => {
            |args, _| computed(quantity(&args[0])?.sub(&operand(&args[1])?))
        }
        _ => return None,
    })
}

fn semver_code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_to_semver" | "string_bool_to_semver" => |args, _| {
            read_version(args).map(|version| Value::Semver(Arc::new(version))).map_err(EvalFailure::error)
        },
        "is_semver_string" | "is_semver_string_bool" => |args, _| Ok(Value::Bool(read_version(args).is_ok())),
        "semver_is_greater_than" => |args, _| Ok(Value::Bool(versions(args)?.is_gt())),
        "semver_is_less_than" => |args, _| Ok(Value::Bool(versions(args)?.is_lt())),
        "semver_compare_to" => |args, _| Ok(Value::Int(versions(args)? as i64)),
        "semver_major" => |args, _| Ok(Value::Int(version(&args[0])?.numbers[0] as i64)),
        "semver_minor" => |args, _| Ok(Value::Int(version(&args[0])?.numbers[1] as i64)),
        "semver_patch" => |args, _| Ok(Value::Int(version(&args[0])?.numbers[2] as i64)),
        _ => return None,
    })
}

fn network_code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_to_ip" => |args, _| Ip::parse(text(&args[0])).map(Value::Ip).map_err(EvalFailure::error),
        "is_ip" => |args, _| Ok(Value::Bool(Ip::parse(text(&args[0])).is_ok())),
        "ip_is_canonical" => |args, _| {
            let ip = Ip::parse(text(&args[0])).map_err(EvalFailure::error)?;
            Ok(Value::Bool(ip.to_string() == text(&args[0])))
        },
        "ip_family" => |args, _| Ok(Value::Int(if ip(&args[0])?.0.is_ipv4() { 4 } else { 6 })),
        "ip_is_unspecified" => |args, _| Ok(Value::Bool(ip(&args[0])?.0.is_unspecified())),
        "ip_is_loopback" => |args, _| Ok(Value::Bool(ip(&args[0])?.0.is_loopback())),
        "ip_is_link_local_multicast" => |args, _| Ok(Value::Bool(ip(&args[0])?.is_link_local_multicast())),
        "ip_is_link_local_unicast" => |args, _| Ok(Value::Bool(ip(&args[0])?.is_link_local_unicast())),
        "ip_is_global_unicast" => |args, _| Ok(Value::Bool(ip(&args[0])?.is_global_unicast())),
        "string_to_cidr" => |args, _| read_cidr(text(&args[0])).map(Value::Cidr),
        "is_cidr" => |args, _| Ok(Value::Bool(Cidr::parse(text(&args[0])).is_ok())),
        // An address that cannot be read is no address, which upstream reports of the network.
        "cidr_contains_ip_string" => |args, _| {
            let ip = Ip::parse(text(&args[1])).map_err(|_| EvalFailure::no_such_overload())?;
            Ok(Value::Bool(cidr(&args[0])?.contains(ip)))
        },
        "cidr_contains_ip_ip" => |args, _| Ok(Value::Bool(cidr(&args[0])?.contains(ip(&args[1])?))),
        "cidr_contains_cidr_string" => {
            |args, _| Ok(Value::Bool(cidr(&args[0])?.contains_cidr(read_cidr(text(&args[1]))?)))
        }
        "cidr_contains_cidr" => |args, _| Ok(Value::Bool(cidr(&args[0])?.contains_cidr(cidr(&args[1])?))),
        "cidr_ip" => |args, _| Ok(Value::Ip(cidr(&args[0])?.ip)),
        "cidr_prefix_length" => |args, _| Ok(Value::Int(cidr(&args[0])?.bits.into())),
        "cidr_masked" => |args, _| Ok(Value::Cidr(cidr(&args[0])?.masked())),
        _ => return None,
    })
}

fn text(value: &Value) -> &str {
    match value {
        Value::String(text) => text,
        _ => "",
    }
}

fn fault(error: QuantityError) -> EvalFailure {
    match error {
        QuantityError::Invalid(message) => EvalFailure::error(message),
        QuantityError::TooLarge => EvalFailure::halt("quantity too large"),
    }
}

fn quantity(value: &Value) -> Result<&Quantity, EvalFailure> {
    match value {
        Value::Quantity { quantity, .. } => Ok(quantity),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn operand(value: &Value) -> Result<Quantity, EvalFailure> {
    match value {
        Value::Int(value) => Ok(Quantity::of(*value)),
        other => quantity(other).cloned(),
    }
}

fn computed(result: Result<Quantity, QuantityError>) -> Outcome {
    Ok(Value::Quantity { quantity: Arc::new(result.map_err(fault)?), computed: true })
}

fn quantities(args: &[Value]) -> Result<Ordering, EvalFailure> {
    Ok(quantity(&args[0])?.compare(quantity(&args[1])?))
}

fn version(value: &Value) -> Result<&Version, EvalFailure> {
    match value {
        Value::Semver(version) => Ok(version),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn versions(args: &[Value]) -> Result<Ordering, EvalFailure> {
    Ok(version(&args[0])?.compare(version(&args[1])?))
}

fn read_version(args: &[Value]) -> Result<Version, String> {
    match args.get(1) {
        Some(Value::Bool(true)) => Version::parse_normalized(text(&args[0])),
        _ => Version::parse(text(&args[0])),
    }
}

fn ip(value: &Value) -> Result<Ip, EvalFailure> {
    match value {
        Value::Ip(ip) => Ok(*ip),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn cidr(value: &Value) -> Result<Cidr, EvalFailure> {
    match value {
        Value::Cidr(cidr) => Ok(*cidr),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn read_cidr(text: &str) -> Result<Cidr, EvalFailure> {
    Cidr::parse(text).map_err(EvalFailure::error)
}
