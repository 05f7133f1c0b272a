//! The printer columns of CustomResourceDefinitions, with the subset of JSONPath that they use:
//! fields, indices, slices, `*` and comparing filters.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::{name, number, since, text};

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrinterColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Vec<JsonPathStep>,
}

#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Field(String),
    Slice(Option<i64>, Option<i64>),
    Index(i64),
    All,
    Filter { path: Vec<JsonPathStep>, comparison: Operator, value: Value },
    Exists(Vec<JsonPathStep>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl PrinterColumn {
    /// Parses a column; `None` if its path is invalid.
    pub(crate) fn parse(column: &Value) -> Option<Self> {
        let path = text(column, "/jsonPath");
        let own = text(column, "/description");
        let description = if own.is_empty() { format!("The value at {path}") } else { own.to_owned() };
        Some(Self {
            name: text(column, "/name").to_owned(),
            kind: text(column, "/type").to_owned(),
            format: text(column, "/format").to_owned(),
            description,
            priority: number(column, "/priority"),
            path: Parser { rest: path, depth: 0 }.path()?,
        })
    }

    /// The columns of a version; the age by default. As upstream, columns after an invalid path are
    /// dropped.
    pub(super) fn parse_all(columns: Option<&Value>) -> Vec<Self> {
        match columns.and_then(Value::as_array) {
            Some(columns) if !columns.is_empty() => columns.iter().map_while(Self::parse).collect(),
            _ => vec![Self {
                name: "Age".to_owned(),
                kind: "date".to_owned(),
                format: String::new(),
                description: String::new(),
                priority: 0,
                path: vec![
                    JsonPathStep::Field("metadata".to_owned()),
                    JsonPathStep::Field("creationTimestamp".to_owned()),
                ],
            }],
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = find(&self.path, object, object).first().copied() else { return Value::Null };
        match &*self.kind {
            "string" => match value {
                Value::String(_) => value.clone(),
                other => other.to_string().into(),
            },
            "integer" => match value.as_i64() {
                Some(number) => number.into(),
                None => value.as_f64().map_or(Value::Null, |number| (number.trunc() as i64).into()),
            },
            "number" if value.is_number() => value.clone(),
            "boolean" if value.is_boolean() => value.clone(),
            "date" => match value.as_str() {
                None => Value::Null,
                Some("") => since(None, now).into(),
                Some(text) => {
                    text.parse().map_or("<invalid>".into(), |then| Value::from(since(Some(then), now)))
                }
            },
            _ => Value::Null,
        }
    }
}

pub(super) fn cells(columns: &[PrinterColumn], object: &Value, now: Timestamp) -> Vec<Value> {
    std::iter::once(name(object)).chain(columns.iter().map(|column| column.cell(object, now))).collect()
}

/// All values at a path.
fn find<'a>(path: &[JsonPathStep], value: &'a Value, root: &'a Value) -> Vec<&'a Value> {
    path.iter().fold(vec![value], |found, step| {
        found.into_iter().flat_map(|value| step.follow(value, root)).collect()
    })
}

impl JsonPathStep {
    fn follow<'a>(&self, value: &'a Value, root: &'a Value) -> Vec<&'a Value> {
        let list = || value.as_array().map_or(&[][..], Vec::as_slice);
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                position(*index, list().len()).and_then(|at| list().get(at)).into_iter().collect()
            }
            Self::Slice(start, end) => {
                let bound = |at: Option<i64>, otherwise| {
                    at.map_or(otherwise, |at| position(at, list().len()).unwrap_or(0).min(list().len()))
                };
                list().get(bound(*start, 0)..bound(*end, list().len())).unwrap_or_default().iter().collect()
            }
            Self::All => match value {
                Value::Object(fields) => fields.values().collect(),
                _ => list().iter().collect(),
            },
            Self::Filter { path, comparison, value } => list()
                .iter()
                .filter(|item| {
                    find(path, item, root).first().is_some_and(|found| comparison.holds(found, value))
                })
                .collect(),
            Self::Exists(path) => list().iter().filter(|item| !find(path, item, root).is_empty()).collect(),
        }
    }
}

/// The position of an index in a list; negative indices count from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right)),
        };
        match self {
            Self::Equal => left == right || order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => left != right && !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// The nesting depth of filters.
    depth: u8,
}

/// The maximum nesting depth of filters, because paths are untrusted.
const DEEPEST: u8 = 8;

impl<'a> Parser<'a> {
    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Parses the whole text as a path.
    fn path(mut self) -> Option<Vec<JsonPathStep>> {
        if self.rest.is_empty() {
            return None;
        }
        self.take("$");
        let steps = self.steps()?;
        self.rest.is_empty().then_some(steps)
    }

    /// Parses as many steps as possible.
    fn steps(&mut self) -> Option<Vec<JsonPathStep>> {
        let mut steps = Vec::new();
        loop {
            if self.take("[") {
                steps.push(self.bracket()?);
            } else if self.take(".") {
                if self.take("*") {
                    steps.push(JsonPathStep::All);
                } else if !self.rest.starts_with('[') {
                    let field = self.field();
                    if !field.is_empty() {
                        steps.push(JsonPathStep::Field(field.into_owned()));
                    }
                }
            } else {
                return Some(steps);
            }
        }
    }

    /// A name up to the next step; a backslash escapes a character.
    fn field(&mut self) -> Cow<'a, str> {
        let mut escaped = false;
        let end = self.rest.find(|character: char| {
            let ends = !escaped
                && (matches!(character, '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>')
                    || character.is_whitespace());
            escaped = !escaped && character == '\\';
            ends
        });
        let (field, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if field.contains('\\') { field.replace('\\', "").into() } else { field.into() }
    }

    /// The content of brackets, after the opening one.
    fn bracket(&mut self) -> Option<JsonPathStep> {
        if self.take("?(") {
            let step = self.filter()?;
            return self.take(")]").then_some(step);
        }
        if let Some(name) = self.quoted() {
            return self.take("]").then_some(JsonPathStep::Field(name));
        }
        let (inside, rest) = self.rest.split_once(']')?;
        self.rest = rest;
        let bound = |text: &str| match text.trim() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        };
        match inside.trim() {
            "*" => Some(JsonPathStep::All),
            inside => match inside.split_once(':') {
                Some((start, end)) => Some(JsonPathStep::Slice(bound(start)?, bound(end)?)),
                None => inside.parse().ok().map(JsonPathStep::Index),
            },
        }
    }

    fn filter(&mut self) -> Option<JsonPathStep> {
        self.skip_space();
        if self.depth == DEEPEST || !self.take("@") {
            return None;
        }
        self.depth += 1;
        let path = self.steps()?;
        self.depth -= 1;
        self.skip_space();
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let Some(comparison) =
            operators.into_iter().find_map(|(sign, comparison)| self.take(sign).then_some(comparison))
        else {
            return Some(JsonPathStep::Exists(path));
        };
        self.skip_space();
        let value = match self.quoted() {
            Some(text) => Value::String(text),
            None => serde_json::from_str(&self.field_of_literal()).ok()?,
        };
        self.skip_space();
        Some(JsonPathStep::Filter { path, comparison, value })
    }

    /// A number or boolean in a filter.
    fn field_of_literal(&mut self) -> String {
        let end = self.rest.find([')', ' ']).unwrap_or(self.rest.len());
        let (literal, rest) = self.rest.split_at(end);
        self.rest = rest;
        literal.to_owned()
    }

    /// Text in single or double quotes.
    fn quoted(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text.replace('\\', ""))
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(kind: &str, path: &str, object: &Value) -> Value {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        PrinterColumn::parse(&json!({"name": "X", "type": kind, "jsonPath": path})).unwrap().cell(object, now)
    }

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "metadata": {"labels": {"example.com/tier": "gold"}},
            "spec": {"n": 3, "f": 2.75, "on": true, "list": ["a", "b", "c"], "map": {"k": "v"}, "text": "t"},
            "status": {"at": "2026-01-01T00:00:00Z", "bad": "yesterday", "none": null, "conditions": [
                {"type": "Ready", "status": "True", "n": 1}, {"type": "Done", "status": "False", "n": 2}]}});
        let cases = [
            ("string", ".spec.text", json!("t")),
            ("string", "$.spec.text", json!("t")),
            ("string", ".spec['text']", json!("t")),
            ("string", r".metadata.labels.example\.com/tier", json!("gold")),
            ("string", r#".metadata.labels["example.com/tier"]"#, json!("gold")),
            ("string", ".spec.list[0]", json!("a")),
            ("string", ".spec.list[-1]", json!("c")),
            ("string", ".spec.list[-1:]", json!("c")),
            ("string", ".spec.list[1:2]", json!("b")),
            ("string", ".spec.list[*]", json!("a")),
            ("string", ".spec.list", json!(r#"["a","b","c"]"#)),
            ("string", ".spec.map", json!(r#"{"k":"v"}"#)),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.on", json!("true")),
            ("string", ".spec.missing.more", Value::Null),
            ("string", ".spec.list[7]", Value::Null),
            ("string", r#".status.conditions[?(@.type=="Done")].status"#, json!("False")),
            ("string", ".status.conditions[?(@.type == 'Ready')].status", json!("True")),
            ("string", ".status.conditions[?(@.type!='Ready')].type", json!("Done")),
            ("string", ".status.conditions[?(@.n>1)].type", json!("Done")),
            ("string", ".status.conditions[?(@.missing)].type", Value::Null),
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.text", Value::Null),
            ("number", ".spec.f", json!(2.75)),
            ("boolean", ".spec.on", json!(true)),
            ("boolean", ".spec.n", Value::Null),
            ("date", ".status.at", json!("24h")),
            ("date", ".status.bad", json!("<invalid>")),
            ("date", ".spec.n", Value::Null),
        ];
        for (kind, path, expected) in cases {
            assert_eq!(cell(kind, path, &object), expected, "{kind} {path}");
        }
    }

    #[test]
    fn columns_after_an_invalid_path_are_dropped() {
        let columns = json!([
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "string", "jsonPath": ".b["},
            {"name": "C", "type": "string", "jsonPath": ".c"},
        ]);
        let names: Vec<String> =
            PrinterColumn::parse_all(Some(&columns)).into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["A"]);
        for path in ["", "a", ".a[", ".a[x]", ".a[?(b)]", ".a[?(@.b==)]"] {
            assert_eq!(
                PrinterColumn::parse(&json!({"name": "X", "type": "string", "jsonPath": path})),
                None,
                "{path}"
            );
        }
    }
}
