//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`.

use crate::object::StoredObject;
use crate::status::{Result, Status};
use crate::strategy::Strategy;

/// Terms that must all match.
#[derive(Debug, Default)]
pub(super) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, PartialEq)]
struct Term {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Name,
    Namespace,
    /// The index among the selectable fields of the kind.
    Own(usize),
}

impl FieldSelector {
    pub(super) fn parse(text: &str, strategy: &dyn Strategy, custom: bool) -> Result<Self> {
        let mut terms = Vec::new();
        for term in split(text) {
            if !term.is_empty() {
                terms.push(Term::parse(text, term, strategy, custom)?);
            }
        }
        Ok(Self { terms })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) fn matches(&self, object: &StoredObject) -> bool {
        self.terms.iter().all(|term| (term.value == term.field.of(object)) == term.equal)
    }
}

impl Term {
    fn parse(whole: &str, term: &str, strategy: &dyn Strategy, custom: bool) -> Result<Self> {
        let found = term.char_indices().find_map(|(at, _)| {
            let operators = ["!=", "==", "="];
            operators
                .into_iter()
                .find(|operator| term[at..].starts_with(operator))
                .map(|operator| (at, operator))
        });
        let Some((at, operator)) = found else {
            let message = format!("invalid selector: '{whole}'; can't understand '{term}'");
            return Err(Status::bad_request(message));
        };
        let field = Field::parse(&term[..at], strategy, custom)?;
        let value = unescape(&term[at + operator.len()..])?;
        Ok(Self { field, value, equal: operator != "!=" })
    }
}

impl Field {
    fn parse(name: &str, strategy: &dyn Strategy, custom: bool) -> Result<Self> {
        match name {
            "metadata.name" => return Ok(Self::Name),
            "metadata.namespace" => return Ok(Self::Namespace),
            _ => {}
        }
        let own = strategy.selectable_fields();
        own.iter().position(|field| *field == name).map(Self::Own).ok_or_else(|| {
            Status::bad_request(if own.is_empty() && !custom {
                format!(
                    "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {name}")
            })
        })
    }

    fn of(self, object: &StoredObject) -> &str {
        match self {
            Self::Name => &object.name,
            Self::Namespace => &object.namespace,
            Self::Own(at) => &object.fields[at].1,
        }
    }
}

/// Splits at commas that no backslash precedes.
fn split(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Result<String> {
    let mut value = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(letter @ ('\\' | ',' | '=')) => value.push(letter),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(Status::bad_request(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(Status::bad_request(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(letter)
                )));
            }
            letter => value.push(letter),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct Phases;

    impl Strategy for Phases {
        fn selectable_fields(&self) -> &'static [&'static str] {
            &["status.phase"]
        }

        fn field(&self, object: &Value, _name: &str) -> String {
            object["status"]["phase"].as_str().unwrap_or_default().to_owned()
        }
    }

    struct Plain;

    impl Strategy for Plain {}

    #[test]
    fn field_selectors_match_fields() {
        let value = json!({"metadata": {"name": "a,b", "namespace": "n"}, "status": {"phase": "Running"}});
        let configmaps = crate::kinds::built_in().iter().find(|kind| kind.resource == "configmaps").unwrap();
        let mut object = StoredObject::new(configmaps, value, 1);
        object.fields = [("status.phase", "Running".into())].into();
        for (selector, expected) in [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase==Running,metadata.namespace=n", true),
            ("status.phase!=Failed,status.phase!=Succeeded", true),
            ("status.phase!=Running", false),
            ("metadata.name=a\\,b", true),
            ("metadata.name=a", false),
        ] {
            assert_eq!(
                FieldSelector::parse(selector, &Phases, false).unwrap().matches(&object),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn unsupported_field_selectors_have_upstream_errors() {
        let refused = |text: &str, strategy: &dyn Strategy| {
            FieldSelector::parse(text, strategy, false).unwrap_err().message
        };
        assert_eq!(refused("spec.x=1", &Phases), "field label not supported: spec.x");
        assert_eq!(
            refused("spec.x=1", &Plain),
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(refused("a", &Plain), "invalid selector: 'a'; can't understand 'a'");
        assert_eq!(
            refused("metadata.name=a=b", &Plain),
            "invalid field selector: unescaped character in value: 61"
        );
    }
}
