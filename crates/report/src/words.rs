//! Numbers and texts as people read them.

use std::fmt::Write as _;

use supercargo_framework::resource::names;

/// A number with a noun, as `2 pods`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// An amount of a resource as `kubectl describe node` shows it: CPU is in milli-cores.
pub fn quantity(resource: &str, amount: i64) -> String {
    match resource {
        names::CPU if amount % 1000 == 0 => decimal(amount / 1000),
        names::CPU => format!("{amount}m"),
        names::MEMORY | names::EPHEMERAL_STORAGE => binary(amount),
        _ if resource.starts_with(names::HUGE_PAGES_PREFIX) => binary(amount),
        _ => decimal(amount),
    }
}

/// The canonical text of a quantity in bytes.
fn binary(amount: i64) -> String {
    scaled(amount, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// The canonical text of a count.
fn decimal(amount: i64) -> String {
    scaled(amount, 1000, ["", "k", "M", "G", "T", "P", "E"])
}

/// The amount with the largest suffix that leaves an integer.
fn scaled(mut amount: i64, base: i64, suffixes: [&str; 7]) -> String {
    let mut scale = 0;
    while amount != 0 && amount % base == 0 && scale + 1 < suffixes.len() {
        amount /= base;
        scale += 1;
    }
    format!("{amount}{}", suffixes[scale])
}

/// Replaces what moves a terminal's cursor or hides text. Texts may come from strangers.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The same of JSON, without loss: such characters are in strings only, and are escaped there.
pub fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_printable(c) {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// Whether a terminal shows the character as itself: it is no control character, has a width, and
/// does not change the writing direction.
fn is_printable(c: char) -> bool {
    c == '\n'
        || !(c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{feff}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
                | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'))
}

/// Wraps a text to `columns`, between words if possible.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + rest.len() > columns {
            lines.push(String::new());
            length = 0;
        }
        while !rest.is_empty() {
            if length == columns {
                lines.push(String::new());
                length = 0;
            }
            if let Some(line) = lines.last_mut() {
                if length > 0 {
                    line.push(' ');
                    length += 1;
                }
                let fits = rest.len().min(columns - length);
                line.extend(rest.drain(..fits));
                length += fits;
            }
            if !rest.is_empty() {
                lines.push(String::new());
                length = 0;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_canonical() {
        let cases = [
            ("cpu", 1500, "1500m"),
            ("cpu", 4000, "4"),
            ("memory", 3 << 30, "3Gi"),
            ("example.com/gpu", 2, "2"),
        ];
        for (resource, amount, text) in cases {
            assert_eq!(quantity(resource, amount), text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_replaced_and_escaped_in_json() {
        let hostile = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{200b}\u{e0041}\nü漢";
        assert_eq!(printable(hostile), "a\u{fffd}]0;x\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}\nü漢");
        let json = serde_json::json!({ "text": hostile }).to_string();
        let shown = printable_json(&json);
        assert!(shown.chars().all(is_printable), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()["text"], hostile);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("0/3 nodes are available", 10), ["0/3 nodes", "are", "available"]);
        assert_eq!(wrap("a verylongword b", 4), ["a", "very", "long", "word", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_keep_all_letters(text in "[a-z ]{0,60}", columns in 0_usize..20) {
            let lines = wrap(&text, columns);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= columns.max(1)), "{:?}", lines);
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.join(" ")), letters(&text));
        }
    }
}
