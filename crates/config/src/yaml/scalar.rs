//! Resolves plain scalars.

use serde_json::Number;

use super::Content;

/// The value of a plain scalar, or why it is invalid.
///
/// Booleans follow YAML 1.1, as in kube-scheduler: `leaderElect: no` is false, and an unquoted name
/// `no` is not a string.
pub(super) fn resolve(text: &str) -> Result<Content, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            Content::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            Content::Bool(false)
        }
        _ => match number(text)? {
            Some(number) => Content::Number(number),
            None => Content::String(text.to_owned()),
        },
    })
}

/// Parses a number, if the scalar is one.
fn number(text: &str) -> Result<Option<Number>, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is not a JSON number"));
    }
    if let Some(number) = prefixed(text, unsigned) {
        return Ok(Some(number));
    }
    if unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "{text} is ambiguous (octal or decimal); write it without the leading 0, or in quotes"
        ));
    }
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Ok(None);
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(Some(integer.into()));
    }
    if let Ok(integer) = text.parse::<u64>() {
        return Ok(Some(integer.into()));
    }
    // Rust also parses `inf` and `nan`, but the check above requires a leading digit or dot.
    match text.parse::<f64>() {
        Ok(float) => match Number::from_f64(float) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{text} is too large")),
        },
        Err(_) => Ok(None),
    }
}

/// Hexadecimal, octal and binary integers.
fn prefixed(text: &str, unsigned: &str) -> Option<Number> {
    let radix = match unsigned.get(..2)? {
        "0x" | "0X" => 16,
        "0o" | "0O" => 8,
        "0b" | "0B" => 2,
        _ => return None,
    };
    let digits = unsigned.get(2..)?;
    // Reject a second sign, as in `0x-1`.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i64::from_str_radix(digits, radix).ok()?;
    let value = if text.starts_with('-') { -magnitude } else { magnitude };
    Some(value.into())
}
