//! Functions of strings.

use super::code::Code;
use crate::eval_failure::{EvalFailure, Steps};
use crate::gofmt::short_escape;
use crate::value::{List, Outcome, Value};

/// A text may not grow longer, in bytes. The cost limit ends most uses of such a text.
const MAX_TEXT: usize = 64 << 20;

pub(super) fn code(overload: &str) -> Option<Code> {
    Some(match overload {
        "contains_string" => |args, _| both(args, |text, part| text.contains(part)),
        "ends_with_string" => |args, _| both(args, |text, part| text.ends_with(part)),
        "starts_with_string" => |args, _| both(args, |text, part| text.starts_with(part)),
        "string_char_at_int" => char_at,
        "string_index_of_string" | "string_index_of_string_int" => index_of,
        "string_last_index_of_string" | "string_last_index_of_string_int" => last_index_of,
        "string_lower_ascii" => |args, _| Ok(Value::string(&text(&args[0]).to_ascii_lowercase())),
        "string_upper_ascii" => |args, _| Ok(Value::string(&text(&args[0]).to_ascii_uppercase())),
        "string_replace_string_string" | "string_replace_string_string_int" => replace,
        "string_split_string" | "string_split_string_int" => split,
        "string_substring_int" | "string_substring_int_int" => substring,
        "string_trim" => |args, _| Ok(Value::string(text(&args[0]).trim_matches(is_space))),
        "string_format" => super::format::format,
        "strings_quote" => |args, _| Ok(Value::string(&quote(text(&args[0])))),
        "list_join" | "list_join_string" => join,
        _ => return None,
    })
}

/// The text of a string argument.
pub(super) fn text(value: &Value) -> &str {
    match value {
        Value::String(text) => text,
        _ => "",
    }
}

fn int(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

fn both(args: &[Value], test: fn(&str, &str) -> bool) -> Outcome {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(test(text, part))),
        _ => Err(EvalFailure::no_such_overload()),
    }
}

fn out_of_range(index: i64) -> EvalFailure {
    EvalFailure::error(format!("index out of range: {index}"))
}

fn char_at(args: &[Value], _: &mut Steps) -> Outcome {
    let index = int(args.get(1)).unwrap_or(0);
    let chars: Vec<char> = text(&args[0]).chars().collect();
    let at =
        usize::try_from(index).ok().filter(|at| *at <= chars.len()).ok_or_else(|| out_of_range(index))?;
    Ok(Value::string(&chars[at..].iter().take(1).collect::<String>()))
}

fn index_of(args: &[Value], steps: &mut Steps) -> Outcome {
    let offset = int(args.get(2)).unwrap_or(0);
    let from = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    let chars: Vec<char> = text(&args[0]).chars().collect();
    let part: Vec<char> = text(&args[1]).chars().collect();
    if part.is_empty() {
        return Ok(Value::Int(offset.min(chars.len() as i64)));
    }
    steps.take(product(&chars, &part))?;
    let found = (from..chars.len()).find(|at| chars[*at..].starts_with(&part));
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

/// The work of looking for one text in another.
fn product(chars: &[char], part: &[char]) -> u64 {
    (chars.len() as u64).saturating_mul(part.len() as u64) / 64
}

fn last_index_of(args: &[Value], steps: &mut Steps) -> Outcome {
    let chars: Vec<char> = text(&args[0]).chars().collect();
    let part: Vec<char> = text(&args[1]).chars().collect();
    let offset = match int(args.get(2)) {
        Some(offset) => offset,
        None if part.is_empty() => return Ok(Value::Int(chars.len() as i64)),
        None if text(&args[0]).len() < text(&args[1]).len() => return Ok(Value::Int(-1)),
        None => chars.len() as i64 - 1,
    };
    let from = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(Value::Int(offset.min(chars.len() as i64)));
    }
    if from >= chars.len() || part.len() > chars.len() {
        return Ok(Value::Int(-1));
    }
    steps.take(product(&chars, &part))?;
    let last = from.min(chars.len() - part.len());
    let found = (0..=last).rev().find(|at| chars[*at..].starts_with(&part));
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

/// Refuses to make a text too long.
pub(super) fn limit(len: usize) -> Result<(), EvalFailure> {
    if len > MAX_TEXT { Err(EvalFailure::halt("text too long")) } else { Ok(()) }
}

fn replace(args: &[Value], steps: &mut Steps) -> Outcome {
    let (whole, old, new) = (text(&args[0]), text(&args[1]), text(&args[2]));
    let most = usize::try_from(int(args.get(3)).unwrap_or(-1)).unwrap_or(usize::MAX);
    let count = whole.matches(old).count().min(most);
    let len = whole.len().saturating_add(count.saturating_mul(new.len()));
    limit(len)?;
    steps.take(len as u64 / 16)?;
    Ok(Value::string(&whole.replacen(old, new, most)))
}

fn split(args: &[Value], steps: &mut Steps) -> Outcome {
    let (whole, separator) = (text(&args[0]), text(&args[1]));
    let most = usize::try_from(int(args.get(2)).unwrap_or(-1)).unwrap_or(usize::MAX);
    steps.take(whole.len() as u64 / 4)?;
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    if separator.is_empty() {
        return Ok(Value::list(explode(whole, most)));
    }
    Ok(Value::list(whole.splitn(most, separator).map(Value::string).collect()))
}

/// The characters of a text; the last item is the rest.
fn explode(whole: &str, most: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut rest = whole;
    while let Some(first) = rest.chars().next() {
        if items.len() + 1 == most {
            items.push(Value::string(rest));
            break;
        }
        let (head, tail) = rest.split_at(first.len_utf8());
        items.push(Value::string(head));
        rest = tail;
    }
    items
}

fn substring(args: &[Value], _: &mut Steps) -> Outcome {
    let chars: Vec<char> = text(&args[0]).chars().collect();
    let start = int(args.get(1)).unwrap_or(0);
    let end = int(args.get(2));
    if let Some(end) = end
        && start > end
    {
        return Err(EvalFailure::error(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let at = |index: i64| {
        usize::try_from(index).ok().filter(|at| *at <= chars.len()).ok_or_else(|| out_of_range(index))
    };
    let start = at(start)?;
    let end = end.map_or(Ok(chars.len()), at)?;
    Ok(Value::string(&chars[start..end].iter().collect::<String>()))
}

/// Go's `unicode.IsSpace`.
fn is_space(c: char) -> bool {
    matches!(
        c,
        '\t'..='\r' | ' ' | '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}'
            | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}

fn join(args: &[Value], steps: &mut Steps) -> Outcome {
    let Value::List(list) = &args[0] else { return Err(EvalFailure::no_such_overload()) };
    let separator = args.get(1).map_or("", text);
    let mut out = String::new();
    for (index, item) in List::to_vec(list).iter().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        let Value::String(item) = item else {
            return Err(EvalFailure::error(format!("join: invalid input: {}", item.display())));
        };
        steps.take((item.len() + separator.len()) as u64 / 16 + 1)?;
        limit(out.len() + item.len() + separator.len())?;
        out.push_str(item);
    }
    Ok(Value::string(&out))
}
