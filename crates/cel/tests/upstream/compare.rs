//! Whether both sides say the same.

use std::fmt;

use supercargo_cel::Program;

use super::question::{Answer, Question};

/// What differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Equal for differences with the same cause, as far as that can be told.
    pub kind: String,
    ours: String,
    theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  ours:   {}\n  theirs: {}", self.ours, self.theirs)
    }
}

/// What this crate does not have, by design: see the documentation of the crate.
const UNSUPPORTED: &[&str] = &[
    "is not supported",
    "are not supported",
    "regular expression too large",
    "macros expand to more than",
    "the type has too many parts",
    "expression longer than",
];
/// The same for evaluations.
const LIMITS: &[&str] = &[
    "is not supported",
    "regular expression too large",
    "too many comparisons and copies",
    "value nested too deeply",
    "quantity too large",
    "list too long",
    "text too long",
    "list that contains itself",
];

/// Whether a part of the answers is not compared, by design.
pub fn is_left_out(question: &Question, answer: &Answer) -> bool {
    let refuses = |refusals: &[&str], error: &str| refusals.iter().any(|text| error.contains(text));
    match Program::compile(&question.expression) {
        Ok(program) => question.devices.iter().any(|device| {
            let answer = device.device(program.reads()).map(|device| program.matches_with_cost(&device).0);
            let error = answer.map(|answer| answer.err().map(|error| error.to_string()));
            error.unwrap_or_else(Some).is_some_and(|error| refuses(LIMITS, &error))
        }),
        Err(error) => {
            let (ours, theirs) = (error.to_string(), &answer.compile_error);
            refuses(UNSUPPORTED, &ours) || is_syntax(&ours) && is_syntax(theirs) && ours != *theirs
        }
    }
}

/// Compares the answers to a question.
pub fn compare(question: &Question, answer: &Answer) -> Option<Difference> {
    let program = match Program::compile(&question.expression) {
        Ok(program) => program,
        Err(error) => return compare_errors(&error.to_string(), answer),
    };
    if !answer.compile_error.is_empty() || !answer.compile_panic.is_empty() {
        let theirs = format!("{}{}", answer.compile_error, answer.compile_panic);
        return differ("compiles: ", &theirs, "compiles", &theirs);
    }
    for (device, theirs) in question.devices.iter().zip(&answer.evaluations) {
        let (ours, cost) = match device.device(program.reads()) {
            Ok(device) => {
                let (result, cost) = program.matches_with_cost(&device);
                (result.map_err(|error| error.to_string()), Some(cost))
            }
            Err(error) => (Err(error), None),
        };
        let text = match &ours {
            Ok(is_match) => format!("{is_match}, cost {cost:?}"),
            Err(error) if LIMITS.iter().any(|limit| error.contains(limit)) => continue,
            Err(error) => format!("{error}, cost {cost:?}"),
        };
        let theirs = match theirs.error.as_str() {
            "" => format!("{}, cost {:?}", theirs.is_match, theirs.cost),
            error => format!("{error}, cost {:?}", theirs.cost),
        };
        if text != theirs {
            return differ("evaluates: ", &(text.clone() + " / " + &theirs), &text, &theirs);
        }
    }
    None
}

fn compare_errors(ours: &str, answer: &Answer) -> Option<Difference> {
    if UNSUPPORTED.iter().any(|text| ours.contains(text)) {
        return None;
    }
    if !answer.compile_panic.is_empty() {
        // Upstream's process would end.
        let panic = format!("program instantiation failed: internal error: {}", answer.compile_panic);
        return if ours == panic { None } else { differ("panics: ", &panic, ours, &panic) };
    }
    if without_variables(ours) == without_variables(&answer.compile_error)
        || is_syntax(ours) && is_syntax(&answer.compile_error)
    {
        return None;
    }
    let theirs = if answer.compile_error.is_empty() { "compiles" } else { &answer.compile_error };
    differ("does not compile: ", &format!("{ours} / {theirs}"), ours, theirs)
}

/// The text without numbers of type variables: upstream counts them in the random order of a map.
fn without_variables(text: &str) -> String {
    let mut parts = text.split("_var");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out += "_var";
        out += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

fn is_syntax(error: &str) -> bool {
    error.contains("Syntax error")
}

/// A difference; its kind is the text without numbers, names in quotes and lines of source.
fn differ(prefix: &str, text: &str, ours: &str, theirs: &str) -> Option<Difference> {
    let mut kind = String::from(prefix);
    let mut is_quoted = false;
    for line in text.lines().filter(|line| !line.starts_with(" | ")) {
        for c in line.chars() {
            match c {
                '\'' | '"' | '`' => is_quoted = !is_quoted,
                _ if is_quoted || c.is_ascii_digit() => {}
                _ => kind.push(c),
            }
        }
        is_quoted = false;
    }
    Some(Difference { kind, ours: ours.into(), theirs: theirs.into() })
}
