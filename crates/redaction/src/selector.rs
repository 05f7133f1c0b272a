//! Selectors of devices: CEL expressions.
//!
//! Only expressions that compare texts as a whole can be redacted. Every token is checked, and a
//! token that may look into a text is refused.

/// A token of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// The content of a text.
    Text(&'a str),
    Number(&'a str),
    Mark(&'a str),
}

use Token::{Mark, Number, Text, Word};

use crate::words::{is_amount, is_plain_version};

/// What a device has, by which expressions may ask.
const FIELDS: &[&str] = &["driver", "attributes", "capacity", "allowMultipleAllocations"];
/// Comparisons of amounts and versions.
const METHODS: &[&str] = &["isGreaterThan", "isLessThan", "compareTo"];
/// Functions, by their argument: a field, or a text that is an amount or a version.
const FUNCTIONS: &[&str] = &["has", "quantity", "semver"];
const MARKS: &[&str] =
    &["==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ".", ",", "?", ":", "-"];
/// The longest expression that the API admits, in bytes.
const LONGEST: usize = 10 * 1024;

/// The expression with other texts and names, or the part of it that may look into a text.
pub(crate) fn redacted(expression: &str, hide: &mut dyn FnMut(&str) -> String) -> Result<String, String> {
    let is_short = |text: &str| if text.len() > LONGEST { Err("its length".to_owned()) } else { Ok(()) };
    is_short(expression)?;
    let tokens = tokens(expression)?;
    let (mut text, mut is_listed) = (String::new(), false);
    for at in 0..tokens.len() {
        let place = Place { tokens: &tokens, at, is_listed };
        if at > 0 {
            text.push(' ');
        }
        text.push_str(&place.redacted(hide)?);
        is_listed = place.is_before_item();
    }
    is_short(&text)?;
    Ok(text)
}

fn tokens(expression: &str) -> Result<Vec<Token<'_>>, String> {
    let (mut tokens, mut rest) = (Vec::new(), expression.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '"' | '\'' => text(rest)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let word = run(rest, |c| c.is_ascii_alphanumeric() || c == '_');
                (Word(word), word.len())
            }
            '0'..='9' => {
                let number = run(rest, |c| c.is_ascii_alphanumeric() || c == '.');
                (Number(number), number.len())
            }
            _ => {
                let mark = MARKS.iter().find(|mark| rest.starts_with(**mark));
                let mark = mark.ok_or_else(|| format!("`{first}`"))?;
                (Mark(mark), mark.len())
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn run(text: &str, accepts: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|c| !accepts(c)).unwrap_or(text.len())]
}

/// A text without escapes, and its length with quotes.
fn text(rest: &str) -> Result<(Token<'_>, usize), String> {
    let quote = &rest[..1];
    let end = rest[1..].find(quote).ok_or("a text without an end")?;
    let content = &rest[1..=end];
    let is_plain = !content.contains(['\\', '\n', '\r', '"', '\'']);
    if is_plain { Ok((Text(content), content.len() + 2)) } else { Err("a text with an escape".to_owned()) }
}

fn checked(token: &str, is_safe: bool) -> Result<String, String> {
    if is_safe { Ok(token.to_owned()) } else { Err(format!("`{token}`")) }
}

/// A token among others.
struct Place<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// Whether only texts and commas are between this and `in [`.
    is_listed: bool,
}

impl<'a> Place<'a> {
    /// The token at this distance before.
    fn before(&self, distance: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at.checked_sub(distance)?).copied()
    }

    fn after(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).copied()
    }

    fn redacted(&self, hide: &mut dyn FnMut(&str) -> String) -> Result<String, String> {
        match self.tokens[self.at] {
            Word(word) if self.is_name_of_entry() => Ok(hide(word)),
            Word(word) => checked(word, self.is_known_word(word)),
            Number(number) => checked(number, number.parse::<f64>().is_ok()),
            Mark(mark) => checked(mark, self.is_safe_mark(mark)),
            Text(text) if self.is_measure() => {
                let is_number = is_amount(text) || is_plain_version(text);
                if is_number { Ok(format!("\"{text}\"")) } else { Err(format!("\"{text}\"")) }
            }
            Text(text) if self.is_whole() => Ok(format!("\"{}\"", hide(text))),
            Text(text) => Err(format!("\"{text}\"")),
        }
    }

    /// Whether this is the name in `device.attributes["domain"].name`.
    fn is_name_of_entry(&self) -> bool {
        let before = [7, 6, 5, 4, 3, 2, 1].map(|distance| self.before(distance));
        let [Some(device), Some(dot), Some(field), Some(open), Some(domain), Some(close), Some(last)] =
            before
        else {
            return false;
        };
        (device, dot, last) == (Word("device"), Mark("."), Mark("."))
            && matches!(field, Word("attributes" | "capacity"))
            && (open, close) == (Mark("["), Mark("]"))
            && matches!(domain, Text(_))
    }

    fn is_known_word(&self, word: &str) -> bool {
        if self.before(1) == Some(Mark(".")) {
            let is_of_device = self.before(2) == Some(Word("device")) && self.before(3) != Some(Mark("."));
            let is_call = self.after() == Some(Mark("("));
            return is_of_device && FIELDS.contains(&word) || is_call && METHODS.contains(&word);
        }
        match word {
            "true" | "false" => true,
            "device" => self.after() == Some(Mark(".")),
            "in" => self.after() == Some(Mark("[")),
            _ => FUNCTIONS.contains(&word) && self.after() == Some(Mark("(")),
        }
    }

    /// Numbers may be compared by size. The order of texts may change.
    fn is_safe_mark(&self, mark: &str) -> bool {
        let is_number = |token: Option<Token<'_>>| matches!(token, Some(Number(_)));
        match mark {
            "<" | ">" | "<=" | ">=" => {
                let is_negative = self.after() == Some(Mark("-"));
                is_number(self.before(1)) || is_number(self.after()) || is_negative
            }
            "-" => is_number(self.after()) && !is_number(self.before(1)),
            "." => matches!(self.after(), Some(Word(_))),
            "?" => !matches!(self.before(1), Some(Mark("." | "["))),
            _ => true,
        }
    }

    /// Whether this is the argument of `quantity` or `semver`.
    fn is_measure(&self) -> bool {
        self.before(1) == Some(Mark("("))
            && matches!(self.before(2), Some(Word("quantity" | "semver")))
            && self.after() == Some(Mark(")"))
    }

    /// Whether the text is used as a whole: it is compared, or is the domain of an attribute.
    fn is_whole(&self) -> bool {
        let is_equality = |token| matches!(token, Some(Mark("==" | "!=")));
        let is_ordering = |token| matches!(token, Some(Mark("<" | ">" | "<=" | ">=")));
        let (before, after) = (self.before(1), self.after());
        if is_ordering(before) || is_ordering(after) {
            return false;
        }
        let is_domain = before == Some(Mark("["))
            && matches!(self.before(2), Some(Word("attributes" | "capacity")))
            && after == Some(Mark("]"));
        is_domain
            || is_equality(before)
            || is_equality(after)
            || after == Some(Word("in"))
            || self.is_listed && matches!(self.after(), Some(Mark("," | "]")))
    }

    /// Whether the next token is in the list of `in [...]`.
    fn is_before_item(&self) -> bool {
        match self.tokens[self.at] {
            Mark("[") => self.before(1) == Some(Word("in")),
            Text(_) | Mark(",") => self.is_listed,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(expression: &str) -> Result<String, String> {
        redacted(expression, &mut |text| text.to_uppercase())
    }

    #[test]
    fn whole_texts_and_names_are_hidden() {
        for (expression, expected) in [
            ("true", "true"),
            (r#"device.driver == "a.b""#, r#"device . driver == "A.B""#),
            (r"!device.attributes['d'].broken", r#"! device . attributes [ "D" ] . BROKEN"#),
            (
                r#"has(device.attributes["d"].x) && device.attributes["d"].x in ["a", "b"]"#,
                r#"has ( device . attributes [ "D" ] . X ) && device . attributes [ "D" ] . X in [ "A" , "B" ]"#,
            ),
            (
                r#"device.capacity["d"].memory.isGreaterThan(quantity("80Gi"))"#,
                r#"device . capacity [ "D" ] . MEMORY . isGreaterThan ( quantity ( "80Gi" ) )"#,
            ),
            (
                r#"device.attributes["d"].v.compareTo(semver("1.2.3")) >= 0 || device.attributes["d"].n > -5"#,
                "device . attributes [ \"D\" ] . V . compareTo ( semver ( \"1.2.3\" ) ) >= 0 || \
                 device . attributes [ \"D\" ] . N > - 5",
            ),
        ] {
            assert_eq!(upper(expression).unwrap(), expected);
        }
    }

    /// Pseudonyms can be longer than texts, so that a long expression can be refused as well.
    #[test]
    fn a_long_expression_is_refused_or_redacted_at_once() {
        let list = |length: usize| format!("device.driver in [{}]", vec!["'a'"; length].join(","));
        assert!(upper(&list(1000)).is_ok());
        for length in [2000, 1_000_000] {
            assert_eq!(upper(&list(length)).unwrap_err(), "its length");
        }
    }

    #[test]
    fn what_may_look_into_a_text_is_refused() {
        for (expression, part) in [
            (r#"device.driver.startsWith("a")"#, "`startsWith`"),
            (r#"device.driver.matches("a.*")"#, "`matches`"),
            (r"size(device.driver) > 3", "`size`"),
            (r#"device.driver + "a" == "aa""#, "`+`"),
            (r#"device.driver < "b""#, "`<`"),
            (r"device.driver < device.driver", "`<`"),
            (r#"device.attributes["d"].?x.orValue("a") == "a""#, "`.`"),
            (r#""d" in device.attributes"#, "`in`"),
            (r"device.attributes.d.x == 1", "`d`"),
            (r#"device.attributes.exists(k, k == "d")"#, "`exists`"),
            (r#"semver("1.0.0-team").compareTo(semver("1.0.0")) == 0"#, "\"1.0.0-team\""),
            (r#"device.driver == "\x41""#, "a text with an escape"),
            (r#"device.driver == r"a""#, "`r`"),
            (r#"["a"][0] == device.driver"#, "\"a\""),
            ("device == device", "`device`"),
            ("true // secret", "`/`"),
        ] {
            assert_eq!(upper(expression).unwrap_err(), part, "{expression}");
        }
    }
}
