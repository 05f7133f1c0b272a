//! The line difference between two objects, as upstream shows it when it rejects a change.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const CONTEXT: usize = 3;
/// The maximum number of comparisons. Beyond it, all lines between the first and the last
/// difference are shown.
const EFFORT: usize = 1 << 20;

enum Line<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// The difference as a unified diff.
pub(in crate::strategy) fn of(old: &Value, new: &Value) -> String {
    let (old, new) = (pretty(old), pretty(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    hunks(&lines(&old, &new))
}

fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    // Writing to a String cannot fail.
    match value {
        Value::Object(map) if !map.is_empty() => write_object(map, depth, text),
        Value::Array(items) if !items.is_empty() => {
            text.push_str("[\n");
            for (i, item) in items.iter().enumerate() {
                text.push_str(&" ".repeat(depth + 1));
                write(item, depth + 1, text);
                text.push_str(if i + 1 < items.len() { ",\n" } else { "\n" });
            }
            text.push_str(&" ".repeat(depth));
            text.push(']');
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

fn write_object(map: &Map<String, Value>, depth: usize, text: &mut String) {
    text.push_str("{\n");
    for (i, (name, value)) in map.iter().enumerate() {
        text.push_str(&" ".repeat(depth + 1));
        let _ = write!(text, "{}: ", Value::from(shown(name)));
        write(value, depth + 1, text);
        text.push_str(if i + 1 < map.len() { ",\n" } else { "\n" });
    }
    text.push_str(&" ".repeat(depth));
    text.push('}');
}

/// The field name in upstream's internal types, which is capitalised.
fn shown(name: &str) -> String {
    if name.contains(['/', '.']) {
        return name.to_owned();
    }
    if let Some(rest) = name.strip_prefix("dns") {
        return format!("DNS{rest}");
    }
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn lines<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let shorter = old.len().min(new.len());
    let before = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let after = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let after = after.min(shorter - before);
    let (old_end, new_end) = (old.len() - after, new.len() - after);
    let mut lines: Vec<Line<'a>> = old[..before].iter().map(|line| Line::Same(line)).collect();
    between(&old[before..old_end], &new[before..new_end], &mut lines);
    lines.extend(old[old_end..].iter().map(|line| Line::Same(line)));
    lines
}

fn between<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<Line<'a>>) {
    let width = new.len() + 1;
    let mut common = Vec::new();
    if old.len().saturating_mul(new.len()) <= EFFORT {
        // The length of the longest common subsequence from each position on.
        common = vec![0_usize; (old.len() + 1) * width];
        for i in (0..old.len()).rev() {
            for j in (0..new.len()).rev() {
                common[i * width + j] = if old[i] == new[j] {
                    common[(i + 1) * width + j + 1] + 1
                } else {
                    common[(i + 1) * width + j].max(common[i * width + j + 1])
                };
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let is_same = !common.is_empty() && i < old.len() && j < new.len() && old[i] == new[j];
        let skips_old = j == new.len()
            || (i < old.len()
                && (common.is_empty() || common[(i + 1) * width + j] >= common[i * width + j + 1]));
        if is_same {
            lines.push(Line::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if skips_old {
            lines.push(Line::Gone(old[i]));
            i += 1;
        } else {
            lines.push(Line::New(new[j]));
            j += 1;
        }
    }
}

fn hunks(lines: &[Line<'_>]) -> String {
    let is_near = |at: usize| {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(lines.len());
        lines[range].iter().any(|line| !matches!(line, Line::Same(_)))
    };
    let (mut text, mut hunk) = (String::new(), String::new());
    let (mut old, mut new) = (1, 1);
    let (mut old_from, mut new_from) = (1, 1);
    for (at, line) in lines.iter().enumerate() {
        if is_near(at) {
            if hunk.is_empty() {
                (old_from, new_from) = (old, new);
            }
            let (sign, line) = match line {
                Line::Same(line) => (' ', line),
                Line::Gone(line) => ('-', line),
                Line::New(line) => ('+', line),
            };
            let _ = writeln!(hunk, "{sign}{line}");
        }
        old += usize::from(!matches!(line, Line::New(_)));
        new += usize::from(!matches!(line, Line::Gone(_)));
        let is_last = at + 1 == lines.len() || !is_near(at + 1);
        if is_last && !hunk.is_empty() {
            let (old_count, new_count) = (old - old_from, new - new_from);
            let _ =
                writeln!(text, "@@ -{old_from},{old_count} +{new_from},{new_count} @@\n{}", hunk.trim_end());
            hunk.clear();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn change_is_shown_with_context() {
        let old = json!({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "nodeName": "x", "z": [{}]});
        let mut new = old.clone();
        new["nodeName"] = "y".into();
        let expected = "@@ -4,6 +4,6 @@\n  \"C\": 3,\n  \"D\": 4,\n  \"E\": 5,\n- \"NodeName\": \"x\",\n+ \"NodeName\": \"y\",\n  \"Z\": [\n   {}\n";
        let shown = of(&old, &new);
        assert!(shown.starts_with("@@ -4,"), "{shown}");
        assert!(shown.contains("\n- \"NodeName\": \"x\",\n+ \"NodeName\": \"y\",\n"), "{shown}");
        assert_eq!(shown.lines().count(), expected.lines().count() + 1, "{shown}");
    }

    #[test]
    fn equal_objects_have_no_difference() {
        let value = json!({"a": [1, 2, {"b": "c"}]});
        assert_eq!(of(&value, &value), "");
    }

    #[test]
    fn large_objects_are_compared_in_time() {
        let numbers = |from: u32| Value::from((from..from + 5000).collect::<Vec<u32>>());
        assert!(of(&numbers(0), &numbers(10_000)).lines().count() > 9000);
    }
}
