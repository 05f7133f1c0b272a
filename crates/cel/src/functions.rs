//! The functions of the environment: which code runs for which overload.

mod code;
mod convert;
mod format;
mod list;
mod operators;
mod optional;
mod regex;
mod text;
mod units;
mod url;

use std::sync::Arc;

use crate::declarations::{Overload, function};
use crate::eval_failure::{EvalFailure, Steps};
use crate::types::Type;
use crate::value::{Outcome, Value};

use self::code::Code;
pub(crate) use self::convert::{to_duration, to_timestamp};
pub(crate) use self::optional::some;
pub(crate) use self::regex::{Pattern, optimized, pattern_bytes};

/// What a call runs.
#[derive(Clone)]
pub(crate) enum Binding {
    /// One piece of code for all overloads, for values that can be the first argument.
    Single(fn(&Value) -> bool, Code),
    /// The first overload that fits the arguments.
    Overloads(Vec<(&'static Overload, Code)>),
    /// A function of a regular expression that is known.
    Pattern(Arc<Pattern>),
    /// Always the same value.
    Constant(Value),
}

/// Finds the code of a call: of its overload if only one is possible.
pub(crate) fn bind(name: &str, overload: Option<&'static Overload>) -> Option<Binding> {
    if let Some((accepts, code)) =
        operators::single(name).or_else(|| list::single(name)).or_else(|| regex::single(name))
    {
        return Some(Binding::Single(accepts, code));
    }
    if let Some(value) = name.strip_prefix("format.").and_then(url::constant) {
        return Some(Binding::Constant(value));
    }
    let candidates: Vec<_> = match overload {
        Some(overload) => vec![overload],
        None => function(name)?.overloads.iter().collect(),
    };
    Some(Binding::Overloads(candidates.into_iter().filter_map(|o| Some((o, code(o.id)?))).collect()))
}

fn code(overload: &str) -> Option<Code> {
    convert::code(overload)
        .or_else(|| text::code(overload))
        .or_else(|| list::code(overload))
        .or_else(|| optional::code(overload))
        .or_else(|| regex::code(overload))
        .or_else(|| units::code(overload))
        .or_else(|| url::code(overload))
        // No value has the types of these: they never fit.
        .or_else(|| is_declared(overload).then_some((|_, _| Err(EvalFailure::no_such_overload())) as Code))
}

fn is_declared(overload: &str) -> bool {
    let prefixes = ["authorizer_", "groupcheck_", "resourcecheck_", "pathcheck_", "decision_"];
    prefixes.iter().any(|prefix| overload.starts_with(prefix))
}

impl Binding {
    /// Calls it with arguments that are not errors.
    pub(crate) fn call(&self, name: &str, args: &[Value], steps: &mut Steps) -> Outcome {
        steps.take(work(args))?;
        match self {
            Self::Single(accepts, code) => match args.first() {
                Some(first) if accepts(first) => code(args, steps),
                Some(Value::String(_) | Value::Timestamp(_) | Value::Duration(_)) => {
                    Err(EvalFailure::no_such_overload())
                }
                _ => Err(EvalFailure::error(format!("no such overload: {name}"))),
            },
            Self::Overloads(candidates) => {
                let unguarded = matches!(name, "contains" | "startsWith" | "endsWith" | "flatten");
                let fits = |overload: &Overload| {
                    overload.args.len() == args.len()
                        && (unguarded || overload.args.iter().zip(args).all(|(t, arg)| accepts(t, arg)))
                };
                match candidates.iter().find(|(overload, _)| fits(overload)) {
                    Some((_, code)) => code(args, steps),
                    None => Err(no_overload(name, args)),
                }
            }
            Self::Pattern(pattern) => pattern.call(name, args, steps),
            Self::Constant(value) => Ok(value.clone()),
        }
    }
}

/// A measure of the work with arguments that their cost may not show.
fn work(args: &[Value]) -> u64 {
    let of = |arg: &Value| match arg {
        Value::String(text) => text.len() as u64 / 32,
        Value::Bytes(bytes) => bytes.len() as u64 / 32,
        Value::List(list) => list.len() as u64 / 4,
        Value::Map(map) => map.len() as u64 / 4,
        _ => 0,
    };
    1 + args.iter().map(of).sum::<u64>()
}

fn no_overload(name: &str, args: &[Value]) -> EvalFailure {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    EvalFailure::error(format!("no such overload: {name}({})", types.join(", ")))
}

/// Whether a value may be an argument of a type. Of lists and maps only the first element counts,
/// as upstream has it.
fn accepts(t: &Type, value: &Value) -> bool {
    match (t, value) {
        (Type::Dyn | Type::Param(_) | Type::Var(_), _) => true,
        (Type::List(element), Value::List(list)) => list.get(0).is_none_or(|first| accepts(element, &first)),
        (Type::Map(entry), Value::Map(map)) => {
            map.first().is_none_or(|(key, value)| accepts(&entry.0, &key) && accepts(&entry.1, &value))
        }
        (Type::List(_) | Type::Map(_), _) => false,
        _ => t.name() == value.type_name(),
    }
}
