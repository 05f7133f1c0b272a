//! Rules for literals that a checked expression must keep, as the environment demands.

use crate::ast::{Expr, ExprKind, Id};
use crate::checker::Checked;
use crate::eval_failure::Steps;
use crate::functions::{optimized, to_duration, to_timestamp};
use crate::parser::Places;
use crate::source::{Errors, Source};
use crate::types::Type;
use crate::value::Value;

/// Functions of upstream's environment that this crate does not have. Programs that call them do
/// not compile.
const UNSUPPORTED: &[&str] = &["format"];

/// Reports literals that break a rule, and calls of functions that are not there.
pub(crate) fn validate(
    source: &Source,
    places: &Places,
    root: &Expr,
    checked: &Checked,
    errors: &mut Errors,
) {
    let mut validator = Validator { source, places, checked, errors };
    validator.walk(root);
}

struct Validator<'a> {
    source: &'a Source,
    places: &'a Places,
    checked: &'a Checked,
    errors: &'a mut Errors,
}

impl Validator<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.errors.report(self.places.location(self.source, id), message);
    }

    fn walk(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Call(call) => {
                if UNSUPPORTED.contains(&&*call.function) {
                    self.report(expr.id, format!("function '{}' is not supported", call.function));
                }
                if let Some(Expr { id, kind: ExprKind::Literal(value) }) = call.args.first() {
                    self.check_literal(&call.function, *id, value);
                }
            }
            ExprKind::List(elements) => {
                let items: Vec<_> =
                    elements.iter().map(|element| (&element.value, element.optional)).collect();
                self.check_same_types(&items, true);
            }
            ExprKind::Map(entries) => {
                let keys: Vec<_> = entries.iter().map(|entry| (&entry.key, false)).collect();
                let values: Vec<_> = entries.iter().map(|entry| (&entry.value, entry.optional)).collect();
                self.check_same_types(&keys, false);
                self.check_same_types(&values, false);
            }
            _ => {}
        }
        for child in expr.children() {
            self.walk(child);
        }
    }

    fn check_literal(&mut self, function: &str, id: Id, value: &Value) {
        let args = std::slice::from_ref(value);
        let is_valid = match function {
            "duration" => to_duration(args, &mut Steps::default()).is_ok(),
            "timestamp" => to_timestamp(args, &mut Steps::default()).is_ok(),
            "matches" => match value {
                Value::String(pattern) => !matches!(
                    optimized(function, pattern),
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
