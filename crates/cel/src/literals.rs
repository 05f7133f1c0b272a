//! Literals: numbers, and strings and bytes without their quotes and escape sequences.

const INVALID: &str = "unable to unescape string";
const INVALID_OCTAL: &str = "unable to unescape octal sequence in string";
const INVALID_CODE_POINT: &str = "invalid unicode code point";

/// The content of a literal, quotes and a leading `r` included. Errors are upstream's.
pub(crate) fn unescape(literal: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let text = literal.replace("\r\n", "\n").replace('\r', "\n");
    let is_raw = text.starts_with(['r', 'R']);
    let quoted = if is_raw { &text[1..] } else { &text[..] };
    let is_long = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let margin = if is_long { 3 } else { 1 };
    if quoted.len() < 2 * margin {
        return Err(INVALID);
    }
    let content = &quoted[margin..quoted.len() - margin];
    if is_raw || !content.contains('\\') {
        return Ok(content.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            escape(&mut rest, is_bytes, &mut out)?;
        } else {
            push(&mut out, c);
        }
    }
    Ok(out)
}

fn escape(rest: &mut std::str::Chars<'_>, is_bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let c = rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
    match c {
        'a' => out.push(7),
        'b' => out.push(8),
        'f' => out.push(12),
        'n' => out.push(b'\n'),
        'r' => out.push(b'\r'),
        't' => out.push(b'\t'),
        'v' => out.push(11),
        '\\' | '\'' | '"' | '`' | '?' => push(out, c),
        'x' | 'X' => code(digits(rest, 0, 2, 16, INVALID)?, is_bytes, out)?,
        'u' | 'U' if is_bytes => return Err(INVALID),
        'u' => code(digits(rest, 0, 4, 16, INVALID)?, false, out)?,
        'U' => code(digits(rest, 0, 8, 16, INVALID)?, false, out)?,
        '0'..='3' => {
            let first = c.to_digit(8).unwrap_or(0);
            code(digits(rest, first, 2, 8, INVALID_OCTAL)?, is_bytes, out)?;
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

fn digits(
    rest: &mut std::str::Chars<'_>,
    first: u32,
    count: usize,
    radix: u32,
    error: &'static str,
) -> Result<u32, &'static str> {
    let mut value = first;
    for _ in 0..count {
        let digit = rest.next().and_then(|c| c.to_digit(radix)).ok_or(error)?;
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    Ok(value)
}

fn code(value: u32, is_bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if is_bytes {
        out.push(value as u8);
    } else {
        push(out, char::from_u32(value).ok_or(INVALID_CODE_POINT)?);
    }
    Ok(())
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// An integer, unless it does not fit.
pub(crate) fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(&format!("{sign}{digits}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

/// An unsigned integer with its suffix.
pub(crate) fn unsigned(text: &str) -> Option<u64> {
    let digits = &text[..text.len() - 1];
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// A number that is finite.
pub(crate) fn double(sign: &str, text: &str) -> Option<f64> {
    format!("{sign}{text}").parse().ok().filter(|value: &f64| value.is_finite())
}
