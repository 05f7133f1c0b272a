//! Upstream's measure of an evaluation, unit by unit.
//!
//! Upstream adds up costs while it evaluates: an observer sees each step with its value, and keeps
//! values on a stack, where calls find their arguments by the identities of nodes. Whatever it does
//! not find there costs nothing. This follows it to the point, because the unit at which the limit
//! is exceeded is visible.

use smallvec::{SmallVec, smallvec};

use crate::ast::Id;
use crate::eval_failure::EvalFailure;
use crate::value::Value;

const NONE: u32 = u32::MAX;
const LIST_COST: u64 = 10;
const STRING_FACTOR: f64 = 0.1;
const REGEX_FACTOR: f64 = 0.25;

/// A value that a step had; nothing for an error.
pub(crate) type Seen = Option<Value>;

/// The costs of one evaluation.
pub(crate) struct Costs {
    pub(crate) total: u64,
    limit: u64,
    stack: SmallVec<[Entry; 8]>,
    /// The topmost entry of each node.
    tops: SmallVec<[u32; 32]>,
}

struct Entry {
    value: Seen,
    id: Id,
    /// The entry of this node below.
    below: u32,
}

impl Costs {
    /// For nodes with identities up to `last`.
    pub(crate) fn new(limit: u64, last: Id) -> Self {
        Self { total: 0, limit, stack: SmallVec::new(), tops: smallvec![NONE; last as usize + 1] }
    }

    pub(crate) fn add(&mut self, cost: u64) {
        self.total = self.total.wrapping_add(cost);
    }

    /// Records the value of a step, and ends the evaluation that costs too much.
    pub(crate) fn push(&mut self, value: Seen, id: Id) -> Result<(), EvalFailure> {
        let below = std::mem::replace(&mut self.tops[id as usize], self.stack.len() as u32);
        self.stack.push(Entry { value, id, below });
        if self.total > self.limit {
            return Err(EvalFailure::halt("operation cancelled: actual cost limit exceeded"));
        }
        Ok(())
    }

    fn truncate(&mut self, length: u32) {
        while self.stack.len() > length as usize {
            if let Some(entry) = self.stack.pop() {
                self.tops[entry.id as usize] = entry.below;
            }
        }
    }

    /// Drops the last value of a node, and all after it.
    pub(crate) fn drop_value(&mut self, id: Id) {
        let top = self.tops[id as usize];
        if top != NONE {
            self.truncate(top);
        }
    }

    /// Takes the values of arguments, if all are there.
    pub(crate) fn take(&mut self, ids: impl DoubleEndedIterator<Item = Id>) -> Option<SmallVec<[Seen; 3]>> {
        let mut values = SmallVec::new();
        for id in ids.rev() {
            let top = self.tops[id as usize];
            if top == NONE {
                return None;
            }
            values.push(self.stack[top as usize].value.take());
            self.truncate(top);
        }
        values.reverse();
        Some(values)
    }
}

fn size(value: Option<&Value>) -> u64 {
    value.and_then(Value::size).unwrap_or(1)
}

/// As [`size`], where an optional has the size of its value.
fn size_inside(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => size_inside(Some(inner)),
        value => size(value),
    }
}

fn part(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of a call.
pub(crate) fn call(
    function: &str,
    overload: Option<&str>,
    args: &[Seen],
    result: Option<&Value>,
) -> Result<u64, EvalFailure> {
    let arg = |index: usize| args.get(index).and_then(Option::as_ref);
    if let Some(overload) = overload
        && let Some(cost) = list_call(overload, args, result)?
    {
        return Ok(cost);
    }
    if let Some(cost) = kubernetes_call(function, overload, args, result) {
        return Ok(cost);
    }
    let (first, second) = (size_inside(arg(0)), size_inside(arg(1)));
    Ok(match overload.unwrap_or("") {
        "starts_with_string" | "ends_with_string" => part(second, STRING_FACTOR),
        "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => {
            part(first, STRING_FACTOR)
        }
        "in_list" => second,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => part(first.min(second), STRING_FACTOR),
        "add_string" | "add_bytes" => part(first + second, STRING_FACTOR),
        "matches" | "matches_string" => regex_cost(first, second),
        "contains_string" => part(first, STRING_FACTOR) * part(second, STRING_FACTOR),
        _ => 1,
    })
}

fn regex_cost(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * STRING_FACTOR).ceil() as u64;
    text * part(pattern, REGEX_FACTOR)
}

/// Functions that make or compare lists (cel-go's extensions).
fn list_call(overload: &str, args: &[Seen], result: Option<&Value>) -> Result<Option<u64>, EvalFailure> {
    let arg = |index: usize| args.get(index).and_then(Option::as_ref);
    let allocating = |factor: f64, size: u64| {
        let factor = if factor < 0.0 { 1.0 } else { factor };
        ((size as f64 * factor) as u64).saturating_add(1 + LIST_COST)
    };
    let compared = |value: Option<&Value>| {
        let Some(Value::List(list)) = value else { return Err(not_a_list(value)) };
        let is_text = matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_)));
        let size = list.len() as u64;
        Ok(allocating(if is_text { 2.0 + STRING_FACTOR } else { 2.0 }, size.saturating_mul(size)))
    };
    let sets = |factor: u64| 1 + size(arg(0)).saturating_mul(size(arg(1))).saturating_mul(factor);
    Ok(Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, size(result)),
        "list_flatten" => allocating(1.0, size(arg(0))),
        "list_flatten_int" => match arg(1) {
            Some(Value::Int(depth)) => allocating(*depth as f64, size(arg(0))),
            other => {
                let found = other.map_or("*types.Err", Value::go_type);
                let message = format!("interface conversion: ref.Val is {found}, not types.Int");
                return Err(EvalFailure::panic(&message));
            }
        },
        "list_distinct" => compared(arg(0))?,
        _ if overload.ends_with("_sort") => compared(arg(0))?,
        _ if overload.ends_with("_sortByAssociatedKeys") => compared(arg(1))?,
        "list_sets_contains_list" | "list_sets_intersects_list" => sets(1),
        "list_sets_equivalent_list" => sets(2),
        _ => return Ok(None),
    }))
}

/// Upstream panics where it finds no list.
fn not_a_list(value: Option<&Value>) -> EvalFailure {
    let has_add = matches!(
        value,
        Some(
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Timestamp(_)
                | Value::Duration(_)
        )
    );
    let found = value.map_or("*types.Err", Value::go_type);
    let missing = if has_add { "Contains" } else { "Add" };
    EvalFailure::panic(&format!(
        "interface conversion: {found} is not traits.Lister: missing method {missing}"
    ))
}

/// Functions of Kubernetes' libraries.
fn kubernetes_call(
    function: &str,
    overload: Option<&str>,
    args: &[Seen],
    result: Option<&Value>,
) -> Option<u64> {
    let arg = |index: usize| args.get(index).and_then(Option::as_ref);
    let first = size(arg(0));
    let traversal = part(first, STRING_FACTOR);
    Some(match function {
        "check" => 350_000,
        "serviceAccount"
        | "path"
        | "group"
        | "resource"
        | "subresource"
        | "namespace"
        | "name"
        | "allowed"
        | "reason"
        | "error"
        | "errored"
        | "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => 1,
        "fieldSelector" | "labelSelector" => {
            let length = size(arg(1));
            LIST_COST + part(length, STRING_FACTOR) + part(length, 0.5) * 50
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => traverse(arg(0)),
        "ip" if overload == Some("cidr_ip") => 1,
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" | "ip" => traversal,
        "replace" | "split" | "ip.isCanonical" => part(first, 2.0 * STRING_FACTOR),
        "join" => part(size(result), 2.0 * STRING_FACTOR),
        "find" | "findAll" => regex_cost(first, size(arg(1))),
        "validate" => match arg(0) {
            Some(Value::Format(format)) => regex_cost(size(arg(1)), format.pattern_length),
            _ => return None,
        },
        "containsIP" => {
            let other = if overload == Some("cidr_contains_ip_string") {
                part(size(arg(1)), STRING_FACTOR)
            } else {
                0
            };
            part(2 * first, STRING_FACTOR) + other
        }
        "containsCIDR" => {
            let is_text = overload == Some("cidr_contains_cidr_string");
            let other = if is_text { part(size(arg(1)), STRING_FACTOR) } else { 0 };
            part(2 * first, STRING_FACTOR) + traversal + 1 + other
        }
        "_==_"
            if matches!(
                arg(0),
                Some(
                    Value::Quantity { .. }
                        | Value::Ip(_)
                        | Value::Cidr(_)
                        | Value::Semver(_)
                        | Value::Url(_)
                        | Value::Format(_)
                )
            ) =>
        {
            1
        }
        _ => return None,
    })
}

fn traverse(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::String(text)) => (text.len() as f64 * STRING_FACTOR) as u64,
        Some(Value::Bytes(bytes)) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Some(Value::List(list)) => list.with(|items| items.iter().map(|item| traverse(Some(item))).sum()),
        Some(Value::Map(map)) => {
            map.entries().iter().map(|(key, value)| traverse(Some(key)) + traverse(Some(value))).sum()
        }
        _ => 1,
    }
}
