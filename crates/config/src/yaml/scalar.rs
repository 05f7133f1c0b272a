//! What a plain scalar means.

use serde_json::Number;

use super::Content;

/// The meaning of a plain scalar, or why it has none.
///
/// Booleans are those of YAML 1.1, as kube-scheduler reads them: `leaderElect: no` is false, and a name that
/// is written `no` is not a string.
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

/// The number that a scalar is, if it is one.
fn number(text: &str) -> Result<Option<Number>, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is not a number that JSON has"));
    }
    if let Some(number) = prefixed(text, unsigned) {
        return Ok(Some(number));
    }
    if unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "{text} is octal to some and decimal to others; write it without the leading 0, or in quotes"
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
    // Rust reads `inf` and `nan` too, but a first digit or dot is asked for above.
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
    // A second sign, as in `0x-1`, is none of ours.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i64::from_str_radix(digits, radix).ok()?;
    let value = if text.starts_with('-') { -magnitude } else { magnitude };
    Some(value.into())
}
