//! Rules for literals that a checked expression must keep, as the environment demands.

use crate::ast::{Call, Element, Expr, ExprKind, Id};
use crate::checker::Checked;
use crate::eval_failure::Steps;
use crate::format_string::{Broken, Clause, Piece, Pieces};
use crate::functions::{optimized, to_duration, to_timestamp};
use crate::parser::Places;
use crate::source::{Errors, Source};
use crate::types::Type;
use crate::value::Value;

/// Reports literals that break a rule.
pub(crate) fn validate(
    source: &Source,
    places: &Places,
    root: &Expr,
    checked: &Checked,
    errors: &mut Errors,
) {
    let mut validator = Validator { source, places, checked, errors, steps: Steps::default() };
    validator.walk(root, false);
}

struct Validator<'a> {
    source: &'a Source,
    places: &'a Places,
    checked: &'a Checked,
    errors: &'a mut Errors,
    /// What it may take to compile patterns.
    steps: Steps,
}

impl Validator<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.errors.report(self.places.location(self.source, id), message);
    }

    /// Within a call of `format`, elements may have several types.
    fn walk(&mut self, expr: &Expr, is_in_format: bool) {
        let mut is_format = false;
        match &expr.kind {
            ExprKind::Call(call) => {
                is_format = &*call.function == "format";
                if let Some(Expr { id, kind: ExprKind::Literal(value) }) = call.args.first() {
                    self.check_literal(&call.function, *id, value);
                }
            }
            ExprKind::List(elements) if !is_in_format => {
                let items: Vec<_> =
                    elements.iter().map(|element| (&element.value, element.optional)).collect();
                self.check_same_types(&items, true);
            }
            ExprKind::Map(entries) if !is_in_format => {
                let keys: Vec<_> = entries.iter().map(|entry| (&entry.key, false)).collect();
                let values: Vec<_> = entries.iter().map(|entry| (&entry.value, entry.optional)).collect();
                self.check_same_types(&keys, false);
                self.check_same_types(&values, false);
            }
            _ => {}
        }
        for child in expr.children() {
            self.walk(child, is_in_format || is_format);
        }
        // Upstream reports inner calls first; both errors may have one place.
        if let ExprKind::Call(call) = &expr.kind {
            self.check_format(expr.id, call);
        }
    }

    /// Checks a constant text with clauses, and the types of values for them.
    fn check_format(&mut self, id: Id, call: &Call) {
        if &*call.function == "format"
            && let Some(Expr { kind: ExprKind::Literal(Value::String(text)), .. }) = &call.target
            && let [Expr { kind: ExprKind::List(elements), .. }] = &call.args[..]
            && let Err((id, problem)) = self.check_clauses(id, text, elements)
        {
            self.report(id, problem);
        }
    }

    fn check_clauses(&self, id: Id, text: &str, elements: &[Element]) -> Result<(), (Id, String)> {
        let mut used = 0;
        for piece in Pieces::new(text) {
            let Piece::Clause(clause) = piece else { continue };
            let broken = |broken: Broken| (id, broken.text());
            if clause == Err(Broken::AtEnd) {
                return Err(broken(Broken::AtEnd));
            }
            let Some(element) = elements.get(used) else {
                return Err((id, format!("index {used} out of range")));
            };
            self.check_clause(clause.map_err(broken)?, &element.value)?;
            used += 1;
        }
        if elements.len() > used {
            let given = elements.len();
            let problem =
                format!("too many arguments supplied to string.format (expected {used}, got {given})");
            return Err((id, problem));
        }
        Ok(())
    }

    fn check_clause(&self, clause: Clause, value: &Expr) -> Result<(), (Id, String)> {
        let t = self.checked.type_of(value.id);
        if !clause.accepts(&t) {
            let mismatch = clause.mismatch(&t.name());
            return Err((value.id, format!("error during formatting: {mismatch}")));
        }
        match &value.kind {
            ExprKind::List(_) | ExprKind::Map(_) => {
                value.children().into_iter().try_for_each(|child| self.check_clause(clause, child))
            }
            _ => Ok(()),
        }
    }

    fn check_literal(&mut self, function: &str, id: Id, value: &Value) {
        let args = std::slice::from_ref(value);
        let is_valid = match function {
            "duration" => to_duration(args, &mut Steps::default()).is_ok(),
            "timestamp" => to_timestamp(args, &mut Steps::default()).is_ok(),
            "matches" => match value {
                Value::String(pattern) => !matches!(
                    optimized(function, pattern, &mut self.steps),
                    Some(Err(crate::eval_failure::EvalFailure::Error(_)))
                ),
                _ => true,
            },
            _ => true,
        };
        if !is_valid {
            self.report(id, format!("invalid {function} argument"));
        }
    }

    fn check_same_types(&mut self, items: &[(&Expr, bool)], ends_at_first: bool) {
        let mut first: Option<Type> = None;
        for (item, optional) in items {
            let mut t = self.checked.type_of(item.id);
            if *optional {
                match t.unwrap_optional() {
                    Some(inner) => t = inner.clone(),
                    None => {
                        self.report(item.id, "an optional element of unknown type is not supported".into());
                        return;
                    }
                }
            }
            match &first {
                None => first = Some(t),
                Some(first) if first.is_equivalent(&t) => {}
                Some(first) => {
                    let message = format!("expected type '{first}' but found '{t}'");
                    self.report(item.id, message);
                    if ends_at_first {
                        return;
                    }
                }
            }
        }
    }
}
