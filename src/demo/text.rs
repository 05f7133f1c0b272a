//! Formatting of numbers and texts.

use std::time::Duration;

/// A number with a noun, as `2 pods`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// As `4.2 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// As `3 ms`, or `1.2 s`.
pub(crate) fn milliseconds(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "<1 ms".to_owned(),
        ms @ 1..1000 => format!("{ms} ms"),
        _ => seconds(duration),
    }
}

/// As `46 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Wraps a text to `columns`, between words if possible.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
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
    fn numbers_are_formatted_with_units() {
        assert_eq!(count(1, "pod"), "1 pod");
        assert_eq!(count(0, "pod"), "0 pods");
        assert_eq!(seconds(Duration::from_millis(4249)), "4.2 s");
        let took = [0, 3, 999, 1250].map(|ms| milliseconds(Duration::from_millis(ms)));
        assert_eq!(took, ["<1 ms", "3 ms", "999 ms", "1.2 s"]);
        assert_eq!(percent(0.456), "46 %");
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
