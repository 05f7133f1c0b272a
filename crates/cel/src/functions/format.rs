//! The function `format` of strings.

use std::fmt::Write as _;

use super::convert::to_string;
use super::text::limit;
use crate::eval_failure::{EvalFailure, Steps};
use crate::format_string::{Clause, Piece, Pieces};
use crate::gofmt::{english_fixed, english_scientific, quote};
use crate::value::{Outcome, Value};

/// The digits of a fraction, and the width, without another number.
const DEFAULT_PRECISION: i64 = 6;

/// A text that grows within limits.
struct Output<'a> {
    text: String,
    steps: &'a mut Steps,
}

type Written = Result<(), EvalFailure>;

pub(super) fn format(args: &[Value], steps: &mut Steps) -> Outcome {
    let (Value::String(text), Value::List(list)) = (&args[0], &args[1]) else {
        return Err(EvalFailure::no_such_overload());
    };
    let items = list.to_vec();
    let mut output = Output { text: String::new(), steps };
    let mut index = 0;
    for piece in Pieces::new(text) {
        let clause = match piece {
            Piece::Text(text) => {
                output.push(text)?;
                continue;
            }
            Piece::Clause(clause) => clause,
        };
        let Some(item) = items.get(index) else {
            return Err(EvalFailure::error(format!("index {index} out of range")));
        };
        let clause = clause.map_err(|broken| EvalFailure::error(broken.text()))?;
        output.clause(clause, item).map_err(|failure| match failure {
            EvalFailure::Error(reason) => EvalFailure::error(format!("error during formatting: {reason}")),
            halt @ EvalFailure::Halt(_) => halt,
        })?;
        index += 1;
    }
    Ok(Value::string(&output.text))
}

impl Output<'_> {
    fn push(&mut self, text: &str) -> Written {
        self.steps.take(1 + text.len() as u64 / 16)?;
        limit(self.text.len() + text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    fn clause(&mut self, clause: Clause, value: &Value) -> Written {
        let text = match (clause, value) {
            (Clause::String, value) => return self.string(value),
            (Clause::Hex { upper }, Value::String(_) | Value::Bytes(_)) => return self.hex(value, upper),
            (Clause::Decimal, Value::Int(_) | Value::Uint(_)) => value.display(),
            (Clause::Fixed(precision), value) if let Some(double) = double(value) => {
                english_fixed(double, precision.unwrap_or(DEFAULT_PRECISION))
            }
            (Clause::Scientific(precision), value) if let Some(double) = double(value) => {
                english_scientific(double, precision.unwrap_or(DEFAULT_PRECISION))
            }
            (Clause::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
            (clause, Value::Int(value)) if let Some(digits) = digits(clause, value.unsigned_abs()) => {
                format!("{}{digits}", if *value < 0 { "-" } else { "" })
            }
            (clause, Value::Uint(value)) if let Some(digits) = digits(clause, *value) => digits,
            _ => return Err(EvalFailure::error(clause.mismatch(value.type_name()))),
        };
        self.push(&text)
    }

    /// The bytes of a value in hexadecimal digits.
    fn hex(&mut self, value: &Value, upper: bool) -> Written {
        let bytes = match value {
            Value::String(text) => text.as_bytes(),
            Value::Bytes(bytes) => bytes,
            _ => return Err(EvalFailure::no_such_overload()),
        };
        limit(self.text.len() + 2 * bytes.len())?;
        self.steps.take(1 + bytes.len() as u64 / 4)?;
        for byte in bytes {
            let _ = if upper { write!(self.text, "{byte:02X}") } else { write!(self.text, "{byte:02x}") };
        }
        Ok(())
    }

    fn string(&mut self, value: &Value) -> Written {
        match value {
            Value::List(_) | Value::Map(_) => self.element(value),
            Value::Null => self.push("null"),
            value => {
                let text = self.plain(value)?;
                self.push(&text)
            }
        }
    }

    /// The text of a value that is not a list or map.
    fn plain(&mut self, value: &Value) -> Result<String, EvalFailure> {
        match value {
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Type(_)
            | Value::Timestamp(_)
            | Value::Duration(_) => {}
            value => return Err(EvalFailure::error(Clause::String.mismatch(value.type_name()))),
        }
        match to_string(std::slice::from_ref(value), self.steps) {
            Ok(text) => Ok(text.display()),
            Err(EvalFailure::Error(reason)) => {
                let reason = quote(&reason);
                Err(EvalFailure::error(format!("could not convert argument {reason} to string")))
            }
            Err(halt) => Err(halt),
        }
    }

    /// A value within a list or map, mostly as it is written in an expression.
    fn element(&mut self, value: &Value) -> Written {
        let text = match value {
            Value::List(list) => return self.list(&list.to_vec()),
            Value::Map(map) => return self.map(&map.entries()),
            Value::Bool(_) | Value::Null | Value::Type(_) | Value::Int(_) | Value::Uint(_) => {
                return self.string(value);
            }
            Value::String(text) => quote(text),
            Value::Bytes(_) => format!("b{}", quote(&self.plain(value)?)),
            Value::Timestamp(_) => format!("timestamp({})", quote(&self.plain(value)?)),
            Value::Duration(_) => format!("duration({})", quote(&self.plain(value)?)),
            Value::Double(value) if value.is_finite() => format!("{value:.6}"),
            Value::Double(_) => quote(&value.display()),
            value => {
                let found = value.type_name();
                return Err(EvalFailure::error(format!("no formatting function for {found}")));
            }
        };
        self.push(&text)
    }

    fn list(&mut self, items: &[Value]) -> Written {
        self.push("[")?;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.push(", ")?;
            }
            self.element(item)?;
        }
        self.push("]")
    }

    /// A map in the order of the texts of its keys.
    fn map(&mut self, entries: &[(Value, Value)]) -> Written {
        let mut texts = Vec::with_capacity(entries.len());
        let mut size = 0;
        for (key, value) in entries {
            if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                let found = key.type_name();
                return Err(EvalFailure::error(format!(
                    "no formatting function for map key of type {found}"
                )));
            }
            let (key, value) = (self.apart(key)?, self.apart(value)?);
            size += key.len() + value.len();
            limit(size)?;
            texts.push((key, value));
        }
        texts.sort();
        self.push("{")?;
        for (index, (key, value)) in texts.iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" })?;
            self.push(key)?;
            self.push(":")?;
            self.push(value)?;
        }
        self.push("}")
    }

    /// The text of an element by itself.
    fn apart(&mut self, value: &Value) -> Result<String, EvalFailure> {
        let mut output = Output { text: String::new(), steps: self.steps };
        output.element(value)?;
        Ok(output.text)
    }
}

/// The digits of a whole number, if the clause is for one.
fn digits(clause: Clause, value: u64) -> Option<String> {
    Some(match clause {
        Clause::Binary => format!("{value:b}"),
        Clause::Octal => format!("{value:o}"),
        Clause::Hex { upper: true } => format!("{value:X}"),
        Clause::Hex { upper: false } => format!("{value:x}"),
        _ => return None,
    })
}

/// A double, which some texts stand for.
fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}
