//! Texts of JSON values, and their pseudonyms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::selector::redacted;
use crate::words::{Words, is_amount, is_plain_version};

/// What stands for a message.
const MESSAGE: &str = "(redacted)";
/// A text is split at these, one after the other.
const SEPARATORS: &[&str] = &["/", ",", "__"];
/// Fields that have messages.
const MESSAGES: &[&str] = &["message", "error", "invalid", "unsupported", "Failed", "Woken", "GaveUp"];
/// Fields below which a text that can be a quantity is one.
const AMOUNTS: &[&str] = &["capacity", "counters", "consumed"];
/// Lists of texts that are sorted.
const SORTED_TEXTS: &[&str] = &["required_features", "declared_features", "disrupted_pods"];
/// Lists of items that are sorted by their first text, or by their name.
const SORTED_ITEMS: &[&str] = &["scalars", "attributes", "capacity", "counters", "consumed", "images"];

/// Why a text cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// This part of a selector of devices may look into a text, or is too long.
    Selector(String),
    /// The version has words, whose order decides.
    Version(String),
}

/// The texts of JSON values, which will get pseudonyms.
#[derive(Default)]
pub struct Texts {
    words: Words,
    /// Texts that stay.
    kept: BTreeSet<String>,
    /// Parts of texts.
    parts: BTreeSet<String>,
    /// Texts that are two others with a hyphen between them.
    joined: BTreeMap<String, (String, String)>,
    /// Values that are integers, by the key of their label or taint.
    integers: BTreeMap<String, BTreeSet<String>>,
    /// Keys whose values are compared by size.
    compared: BTreeSet<String>,
}

impl Texts {
    /// These texts, such as the names of plugins, stay.
    pub fn keeping(kept: impl IntoIterator<Item = String>) -> Self {
        Self { kept: kept.into_iter().collect(), ..Self::default() }
    }

    /// Notes the texts of a JSON value whose keys are the names of fields.
    pub fn note(&mut self, value: &Value) -> Result<(), Problem> {
        self.note_integers(value);
        let Self { words, parts, .. } = self;
        let mut note = |part: &str| {
            parts.insert(part.to_owned());
            part.to_owned()
        };
        let mut hide = |text: &str| split(text, words, &mut note);
        Walk { hide: &mut hide }.value(&mut value.clone(), "", false)
    }

    /// Notes that somebody joins two texts with a hyphen. Returns `false` if the result is that of
    /// two others, too.
    pub fn note_joined(&mut self, one: &str, other: &str) -> bool {
        let both = (one.to_owned(), other.to_owned());
        let known = self.joined.entry(format!("{one}-{other}")).or_insert_with(|| both.clone());
        *known == both
    }

    /// Notes which integers may be compared: values of labels and taints, and bounds.
    fn note_integers(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                if let [Value::String(key), Value::String(value)] = &items[..] {
                    self.note_integer(key, value);
                }
                for item in items {
                    self.note_integers(item);
                }
            }
            Value::Object(fields) => {
                if let Some(key) = fields.get("key").and_then(Value::as_str) {
                    let values = fields.get("values").and_then(Value::as_array);
                    let texts = fields.get("value").into_iter().chain(values.into_iter().flatten());
                    texts.filter_map(Value::as_str).for_each(|text| self.note_integer(key, text));
                    if fields.get("operator").is_some_and(is_comparison) {
                        self.compared.insert(key.to_owned());
                    }
                }
                fields.values().for_each(|field| self.note_integers(field));
            }
            _ => {}
        }
    }

    fn note_integer(&mut self, key: &str, value: &str) {
        if value.parse::<i64>().is_ok() {
            self.integers.entry(key.to_owned()).or_default().insert(value.to_owned());
        }
    }

    /// A pseudonym for each text. `hash` must depend on a secret.
    pub fn pseudonyms(self, hash: impl Fn(&str) -> u64) -> Pseudonyms {
        let Self { words, mut kept, parts, joined, mut integers, compared } = self;
        kept.extend(compared.iter().filter_map(|key| integers.remove(key)).flatten());
        let width = parts.len().to_string().len();
        let pseudonym = |rank: usize, part: &str| format!("p{rank:0width$}x{:06x}", hash(part) & 0xff_ffff);
        let numbered = parts.into_iter().enumerate();
        let parts = numbered.map(|(rank, part)| (pseudonym(rank, &part).into(), part));
        let parts = parts.map(|(pseudonym, part)| (part, pseudonym)).collect();
        Pseudonyms { words, kept, parts, joined }
    }
}

/// `Gt` or `Lt`, with or without its bound.
fn is_comparison(operator: &Value) -> bool {
    let is = |text: &str| matches!(text, "Gt" | "Lt");
    operator.as_str().is_some_and(is)
        || operator.as_object().is_some_and(|fields| fields.keys().any(|name| is(name)))
}

/// The pseudonyms of texts.
pub struct Pseudonyms {
    words: Words,
    kept: BTreeSet<String>,
    parts: BTreeMap<String, Arc<str>>,
    joined: BTreeMap<String, (String, String)>,
}

impl Pseudonyms {
    /// Replaces the texts of a value whose keys are the names of fields.
    pub fn replace(&self, value: &mut Value) -> Result<(), Problem> {
        let mut hide = |text: &str| self.text(text);
        Walk { hide: &mut hide }.value(value, "", false)
    }

    /// What stands for a text.
    pub fn text(&self, text: &str) -> String {
        split(text, &self.words, &mut |part| self.part(part))
    }

    fn part(&self, part: &str) -> String {
        if self.kept.contains(part) {
            return part.to_owned();
        }
        if let Some((one, other)) = self.joined.get(part) {
            return format!("{}-{}", self.text(one), self.text(other));
        }
        let pseudonym = self.parts.get(part).map_or(MESSAGE, |pseudonym| pseudonym);
        // Such domains belong to no extended resource.
        let domain = if part.ends_with("kubernetes.io") { ".kubernetes.io" } else { "" };
        format!("{pseudonym}{domain}")
    }
}

/// The text with other parts, unless it is known.
fn split(text: &str, words: &Words, part: &mut dyn FnMut(&str) -> String) -> String {
    fn join(
        text: &str,
        (words, separators): (&Words, &[&str]),
        part: &mut dyn FnMut(&str) -> String,
    ) -> String {
        if words.has(text) {
            return text.to_owned();
        }
        let Some((separator, rest)) = separators.split_first() else { return part(text) };
        let parts: Vec<_> = text.split(separator).map(|piece| join(piece, (words, rest), part)).collect();
        parts.join(separator)
    }
    join(text, (words, SEPARATORS), part)
}

/// Replaces the texts of a value.
struct Walk<'a> {
    hide: &'a mut dyn FnMut(&str) -> String,
}

impl Walk<'_> {
    /// `field` is the name of the innermost field around the value.
    fn value(&mut self, value: &mut Value, field: &str, has_amounts: bool) -> Result<(), Problem> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => *text = self.text(text, field, has_amounts)?,
            Value::Array(items) => {
                items.iter_mut().try_for_each(|item| self.value(item, field, has_amounts))?;
                if SORTED_TEXTS.contains(&field) {
                    items.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
                } else if SORTED_ITEMS.contains(&field) {
                    items.sort_by(|one, other| name_of_item(one).cmp(&name_of_item(other)));
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.value(value, name, has_amounts || AMOUNTS.contains(&&**name))?;
                }
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str, field: &str, has_amounts: bool) -> Result<String, Problem> {
        let is_version = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match field {
            _ if MESSAGES.contains(&field) && !text.is_empty() => Ok(MESSAGE.to_owned()),
            _ if has_amounts && is_amount(text) => Ok(text.to_owned()),
            "resource_version" if is_version(text) => Ok(text.to_owned()),
            "Version" if is_plain_version(text) => Ok(text.to_owned()),
            "Version" => Err(Problem::Version(text.to_owned())),
            "selectors" => redacted(text, self.hide).map_err(Problem::Selector),
            _ => Ok((self.hide)(text)),
        }
    }
}

/// What an item is sorted by. A list of texts, such as the images of a pod, stays as it is.
fn name_of_item(item: &Value) -> Option<&str> {
    item[0].as_str().or_else(|| item["name"].as_str())
}
