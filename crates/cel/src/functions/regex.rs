//! Functions of regular expressions.

use std::sync::Arc;

use supercargo_go_regex::{self as go_regex, Regex};

use super::Binding;
use super::code::Code;
use super::text::text;
use crate::eval_failure::{EvalFailure, Steps};
use crate::value::{Outcome, Value};

/// A regular expression.
pub(crate) struct Pattern {
    regex: Regex,
    /// About how many states it has.
    states: u64,
}

#[allow(clippy::type_complexity)]
pub(super) fn single(name: &str) -> Option<(fn(&Value) -> bool, Code)> {
    let is_text: fn(&Value) -> bool = |value| matches!(value, Value::String(_));
    (name == "matches").then_some((is_text, |args, steps| {
        let Value::String(pattern) = &args[1] else { return Err(EvalFailure::no_such_overload()) };
        compile_in(pattern, steps)?.matches(text(&args[0]), steps)
    }))
}

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "string_find_string" => |args, steps| illegal(text(&args[1]), steps)?.find(text(&args[0]), steps),
        "string_find_all_string" | "string_find_all_string_int" => {
            |args, steps| illegal(text(&args[1]), steps)?.find_all(text(&args[0]), args.get(2), steps)
        }
        _ => return None,
    })
}

/// The binding of a call with a constant pattern, or the error of the pattern.
pub(crate) fn optimized(
    name: &str,
    pattern: &str,
    steps: &mut Steps,
) -> Option<Result<Binding, EvalFailure>> {
    if !matches!(name, "matches" | "find" | "findAll") {
        return None;
    }
    let compiled = compile_in(pattern, steps);
    // Upstream has no such limit.
    let compiled = compiled.map_err(|failure| match failure {
        EvalFailure::Halt(_) => EvalFailure::halt("regular expression too large"),
        error @ EvalFailure::Error(_) => error,
    });
    Some(compiled.map(|pattern| Binding::Pattern(Arc::new(pattern))))
}

/// The most states of a regular expression: counts of repetitions multiply to at most 1,000, and a
/// class of Unicode has hundreds.
fn most_states(pattern: &str) -> usize {
    let has_many = pattern.contains('{') || pattern.contains("\\p") || pattern.contains("\\P");
    pattern.len() * if has_many { 1_000 } else { 1 }
}

/// What it takes to compile a regular expression, which costs nothing upstream.
fn compile_steps(pattern: &str) -> u64 {
    400 + 2 * most_states(pattern) as u64
}

/// The approximate size in bytes of a compiled regular expression, with what it keeps for searches.
pub(crate) fn pattern_bytes(pattern: &str) -> usize {
    2_048 + (32 * most_states(pattern)).min(2 * go_regex::MAX_SIZE)
}

/// The characters that the machine looks up in one step when it ignores case.
const FOLDED_PER_STEP: u64 = 4;

fn compile_in(pattern: &str, steps: &mut Steps) -> Result<Pattern, EvalFailure> {
    let failure = |error| match error {
        go_regex::RegexError::Invalid(message) => EvalFailure::error(message),
        go_regex::RegexError::Unsupported(message) => EvalFailure::halt(message),
    };
    steps.take(compile_steps(pattern))?;
    let translated = go_regex::translate(pattern).map_err(failure)?;
    steps.take(translated.folded / FOLDED_PER_STEP)?;
    let regex = translated.compile().map_err(failure)?;
    Ok(Pattern { regex, states: pattern.len() as u64 * u64::from(translated.repeats) })
}

fn illegal(pattern: &str, steps: &mut Steps) -> Result<Pattern, EvalFailure> {
    compile_in(pattern, steps).map_err(|fault| match fault {
        EvalFailure::Error(message) => EvalFailure::error(format!("Illegal regex: {message}")),
        halt @ EvalFailure::Halt(_) => halt,
    })
}

/// The states that a search visits in one step.
const STATES_PER_STEP: u64 = 4;

impl Pattern {
    /// Takes what a search in a text may take: it may visit every state at every byte. Its cost
    /// counts the pattern as it is written, without repetitions.
    fn spend(&self, text: &str, steps: &mut Steps) -> Result<(), EvalFailure> {
        steps.take((text.len() as u64).saturating_mul(self.states) / STATES_PER_STEP)
    }

    fn matches(&self, text: &str, steps: &mut Steps) -> Outcome {
        self.spend(text, steps)?;
        Ok(Value::Bool(self.regex.is_match(text)))
    }

    fn find(&self, text: &str, steps: &mut Steps) -> Outcome {
        self.spend(text, steps)?;
        Ok(Value::string(self.regex.find(text).map_or("", |found| found.as_str())))
    }

    fn find_all(&self, text: &str, most: Option<&Value>, steps: &mut Steps) -> Outcome {
        let most = match most {
            None => usize::MAX,
            Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
            Some(Value::Optional(Some(inner))) => return self.find_all(text, Some(inner), steps),
            Some(_) => return Err(EvalFailure::no_such_overload()),
        };
        self.spend(text, steps)?;
        let mut all = Vec::new();
        for found in self.regex.find_iter(text).take(most) {
            all.push(Value::string(found.as_str()));
            // The next search may read all of the rest.
            self.spend(&text[found.end()..], steps)?;
        }
        Ok(Value::list(all))
    }

    pub(super) fn call(&self, name: &str, args: &[Value], steps: &mut Steps) -> Outcome {
        let Some(text) = go_string(&args[0]) else { return Err(EvalFailure::no_such_overload()) };
        match name {
            "matches" => self.matches(text, steps),
            "find" => self.find(text, steps),
            _ => self.find_all(text, args.get(2), steps),
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
