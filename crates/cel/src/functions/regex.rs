//! Functions of regular expressions.

use std::sync::Arc;

use regex::Regex;

use super::Binding;
use super::code::Code;
use super::text::text;
use crate::eval_failure::{EvalFailure, Steps};
use crate::go_regex;
use crate::value::{Outcome, Value};

/// A function whose regular expression is known when the program is planned.
pub(crate) struct Pattern(Regex);

#[allow(clippy::type_complexity)]
pub(super) fn single(name: &str) -> Option<(fn(&Value) -> bool, Code)> {
    let is_text: fn(&Value) -> bool = |value| matches!(value, Value::String(_));
    (name == "matches").then_some((is_text, |args, steps| {
        let Value::String(pattern) = &args[1] else { return Err(EvalFailure::no_such_overload()) };
        let regex = compile_in(pattern, steps)?;
        Ok(Value::Bool(regex.is_match(text(&args[0]))))
    }))
}

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_find_string" => |args, steps| Ok(find(&illegal(text(&args[1]), steps)?, text(&args[0]))),
        "string_find_all_string" | "string_find_all_string_int" => {
            |args, steps| find_all(&illegal(text(&args[1]), steps)?, text(&args[0]), args.get(2))
        }
        _ => return None,
    })
}

/// The binding of a call with a constant pattern, or the error of the pattern.
pub(crate) fn optimized(name: &str, pattern: &str) -> Option<Result<Binding, EvalFailure>> {
    if !matches!(name, "matches" | "find" | "findAll") {
        return None;
    }
    Some(compile(pattern).map(|regex| Binding::Pattern(Arc::new(Pattern(regex)))))
}

/// The most states of a regular expression: counts of repetitions multiply to at most 1,000.
fn most_states(pattern: &str) -> usize {
    pattern.len() * if pattern.contains('{') { 1_000 } else { 1 }
}

/// What it takes to compile a regular expression, which costs nothing upstream.
fn compile_steps(pattern: &str) -> u64 {
    400 + 2 * most_states(pattern) as u64
}

/// The approximate size in bytes of a compiled regular expression, with what it keeps for searches.
pub(crate) fn pattern_bytes(pattern: &str) -> usize {
    2_048 + (32 * most_states(pattern)).min(2 * go_regex::MAX_SIZE)
}

/// Compiles during an evaluation.
fn compile_in(pattern: &str, steps: &mut Steps) -> Result<Regex, EvalFailure> {
    steps.take(compile_steps(pattern))?;
    compile(pattern)
}

fn compile(pattern: &str) -> Result<Regex, EvalFailure> {
    go_regex::compile(pattern).map_err(|error| match error {
        go_regex::RegexError::Invalid(message) => EvalFailure::error(message),
        go_regex::RegexError::Unsupported(message) => EvalFailure::halt(message),
    })
}

fn illegal(pattern: &str, steps: &mut Steps) -> Result<Regex, EvalFailure> {
    compile_in(pattern, steps).map_err(|fault| match fault {
        EvalFailure::Error(message) => EvalFailure::error(format!("Illegal regex: {message}")),
        halt @ EvalFailure::Halt(_) => halt,
    })
}

fn find(regex: &Regex, text: &str) -> Value {
    Value::string(regex.find(text).map_or("", |found| found.as_str()))
}

fn find_all(regex: &Regex, text: &str, most: Option<&Value>) -> Outcome {
    let most = match most {
        None => usize::MAX,
        Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
        Some(Value::Optional(Some(inner))) => return find_all(regex, text, Some(inner)),
        Some(_) => return Err(EvalFailure::no_such_overload()),
    };
    let found = regex.find_iter(text).take(most);
    Ok(Value::list(found.map(|found| Value::string(found.as_str())).collect()))
}

impl Pattern {
    pub(super) fn call(&self, name: &str, args: &[Value]) -> Outcome {
        let Some(text) = go_string(&args[0]) else { return Err(EvalFailure::no_such_overload()) };
        match name {
            "matches" => Ok(Value::Bool(self.0.is_match(text))),
            "find" => Ok(find(&self.0, text)),
            _ => find_all(&self.0, text, args.get(2)),
        }
    }
}

/// The Go string that a value holds: also the one in an optional, and the name of a type.
fn go_string(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) | Value::Type(text) => Some(text),
        Value::Optional(Some(inner)) => go_string(inner),
        _ => None,
    }
}
