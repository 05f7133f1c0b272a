//! Writes YAML that YAML 1.1 and 1.2 parsers read alike, including `no` and `010`.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Content, scalar};
use supercargo_framework::go_duration;

/// Writes a tree as YAML, with a final line break. Fields keep the order of the tree. All other
/// characters than those of ASCII that a terminal shows are escaped.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Writes a value at the current position. Its further lines are indented by `indent`.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                begin_line(index, indent, out);
                out.push_str(&text(key));
                out.push(':');
                match value {
                    Value::Object(fields) if !fields.is_empty() => nested(value, indent + 2, out),
                    Value::Array(items) if !items.is_empty() => nested(value, indent, out),
                    _ => {
                        out.push(' ');
                        block(value, indent, out);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                begin_line(index, indent, out);
                out.push_str("- ");
                block(item, indent + 2, out);
            }
        }
        Value::String(value) => line(&text(value), out),
        // Other values have JSON's syntax.
        value => line(&value.to_string(), out),
    }
}

/// Writes a value on separate lines.
fn nested(value: &Value, indent: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    block(value, indent, out);
}

/// The first field or item continues the current line.
fn begin_line(index: usize, indent: usize, out: &mut String) {
    if index > 0 {
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

fn line(text: &str, out: &mut String) {
    out.push_str(text);
    out.push('\n');
}

/// A string, quoted if it could be read as something else.
fn text(text: &str) -> String {
    let is_harmless = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let is_plain = text.chars().all(is_harmless)
        && (begins_well || go_duration::parse(text).is_some())
        && matches!(scalar::resolve(text), Ok(Content::String(_)));
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        // Writing to a string cannot fail.
        let _ = match letter {
            '"' | '\\' => write!(out, "\\{letter}"),
            ' '..='~' => write!(out, "{letter}"),
            '\n' => write!(out, "\\n"),
            letter if (letter as u32) < 0x100 => write!(out, "\\x{:02x}", letter as u32),
            letter if (letter as u32) < 0x1_0000 => write!(out, "\\u{:04x}", letter as u32),
            letter => write!(out, "\\U{:08x}", letter as u32),
        };
    }
    out.push('"');
    out
}
