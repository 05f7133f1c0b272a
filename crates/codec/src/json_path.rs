//! The path of a field in a JSON document, found without the document's type.
//!
//! A typed search, such as `serde_path_to_error`'s, would compile each decoder a second time.

use std::fmt::{self, Write};

/// The path of the last field in `read`, the part of a document that a parser read before it
/// failed. `.` for the whole document.
pub(super) fn last_field(read: &str) -> String {
    let mut path = Path::default();
    let mut rest = read;
    while let Some(byte) = rest.bytes().next() {
        let length = if byte == b'"' { string_length(rest) } else { 1 };
        // A character that is not ASCII is only valid in a string.
        let Some((token, after)) = rest.split_at_checked(length) else { break };
        path.read(token);
        rest = after;
    }
    path.to_string()
}

/// The length of the string that `text` begins with, including its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The objects and arrays that are open.
#[derive(Default)]
struct Path(Vec<Level>);

struct Level {
    /// The last key or index, if there is one.
    last: Option<Segment>,
    is_array: bool,
    /// Whether the next token begins a member or an element.
    is_between: bool,
}

enum Segment {
    Key(String),
    Index(usize),
}

impl Path {
    fn read(&mut self, token: &str) {
        match token {
            "}" | "]" => {
                self.0.pop();
            }
            "," => {
                if let Some(level) = self.0.last_mut() {
                    level.is_between = true;
                    if !level.is_array {
                        level.last = None;
                    }
                }
            }
            " " | "\t" | "\r" | "\n" | ":" => {}
            token => {
                self.begin(token);
                if let "{" | "[" = token {
                    self.0.push(Level { last: None, is_array: token == "[", is_between: true });
                }
            }
        }
    }

    /// Takes a key, or counts an element.
    fn begin(&mut self, token: &str) {
        let Some(level) = self.0.last_mut().filter(|level| level.is_between) else { return };
        level.is_between = false;
        level.last = Some(match level.last {
            _ if !level.is_array => {
                Segment::Key(serde_json::from_str(token).unwrap_or_else(|_| token.to_owned()))
            }
            Some(Segment::Index(index)) => Segment::Index(index + 1),
            _ => Segment::Index(0),
        });
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.0.iter().filter_map(|level| level.last.as_ref()).peekable();
        if segments.peek().is_none() {
            f.write_char('.')?;
        }
        let mut first = true;
        for segment in segments {
            match segment {
                Segment::Key(key) if first => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::last_field;

    #[test]
    fn the_last_field_is_the_one_that_the_text_ends_in() {
        let cases = [
            ("", "."),
            ("5", "."),
            ("[", "."),
            ("[[", "[0]"),
            ("{", "."),
            (r#"{"a": "#, "a"),
            (r#"{"a": {"b": [5, {"c": tr"#, "a.b[1].c"),
            (r#"{"a": {"b": []"#, "a.b"),
            (r#"{"a": {"b": [], "#, "a"),
            (r#"{"a": [{}, {}, "#, "a[1]"),
            (r#"{"a\"b": "x]}", "ü": "\\"#, "ü"),
            (r#"{"a": {}} ü"#, "."),
        ];
        for (read, expected) in cases {
            assert_eq!(last_field(read), expected, "{read}");
        }
    }

    /// Every field has a type that documents can miss.
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    #[allow(dead_code)]
    struct Tree {
        a: Vec<Tree>,
        b: Option<Box<Tree>>,
        c: i32,
        d: String,
        e: std::collections::BTreeMap<String, bool>,
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::json!(null)),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            "[a\"\\\\}{,:ü ]{0,3}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
                prop::collection::btree_map("[a-e]", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn fields_of_the_wrong_type_have_the_path_of_a_typed_search(value in value(), pretty in any::<bool>()) {
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let mut json = serde_json::Deserializer::from_str(&text);
            if let Err(error) = serde_path_to_error::deserialize::<_, Tree>(&mut json) {
                let expected = error.path().to_string();
                let error = error.into_inner();
                prop_assert_eq!(last_field(crate::error::read_before(&text, &error)), expected, "{}: {}", error, text);
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>(), json in "[\\[\\]{}\":,a1ü\\\\ ]{0,40}") {
            let _ = (last_field(&text), last_field(&json));
        }
    }
}
