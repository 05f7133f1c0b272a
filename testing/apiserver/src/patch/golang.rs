//! Values in Go's format, for error messages that clients see.

use std::fmt;

use serde_json::{Map, Value};

/// A value as `%v` formats it: `map[a:1 b:[x y]]`.
pub(super) struct Shown<'a>(Inner<'a>);

enum Inner<'a> {
    Value(&'a Value),
    Map(&'a Map<String, Value>),
    List(&'a [Value]),
}

impl<'a> Shown<'a> {
    pub(super) fn value(value: &'a Value) -> Self {
        Self(Inner::Value(value))
    }

    pub(super) fn map(map: &'a Map<String, Value>) -> Self {
        Self(Inner::Map(map))
    }

    pub(super) fn list(list: &'a [Value]) -> Self {
        Self(Inner::List(list))
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Inner::Map(map) | Inner::Value(Value::Object(map)) => {
                f.write_str("map[")?;
                for (i, (key, value)) in map.iter().enumerate() {
                    let space = if i > 0 { " " } else { "" };
                    write!(f, "{space}{key}:{}", Self::value(value))?;
                }
                f.write_str("]")
            }
            Inner::List(list) => write_list(f, list),
            Inner::Value(Value::Array(list)) => write_list(f, list),
            Inner::Value(Value::Null) => f.write_str("<nil>"),
            Inner::Value(Value::String(text)) => f.write_str(text),
            Inner::Value(value) => write!(f, "{value}"),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, list: &[Value]) -> fmt::Result {
    f.write_str("[")?;
    for (i, value) in list.iter().enumerate() {
        let space = if i > 0 { " " } else { "" };
        write!(f, "{space}{}", Shown::value(value))?;
    }
    f.write_str("]")
}

/// The type name of a value in the errors of Go's JSON decoder.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as `%#v` formats it.
pub(super) fn go_syntax(value: &Value) -> String {
    let all = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", all(items.iter().map(go_syntax).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", all(fields.collect()))
        }
        other => other.to_string(),
    }
}
