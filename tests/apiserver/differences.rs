//! Differences between responses, and the closed list of intended ones.

use std::fmt::{self, Display, Formatter, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// One difference between two responses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The table or suite, a slash, and the request or command.
    pub(super) request: String,
    /// The place in the response, for example `body.metadata.labels`.
    pub(super) place: String,
    real: String,
    ours: String,
}

/// An intended difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    /// The requests; `*` matches anything.
    request: String,
    /// The place in the response; `*` matches anything.
    place: String,
    /// The reason.
    #[serde(rename = "why")]
    reason: String,
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { request, place, real, ours } = self;
        write!(f, "{request}\n    at {place}\n    real: {real}\n    ours: {ours}")
    }
}

impl Difference {
    /// Our response differs from the expected one.
    pub(super) fn unexpected(request: &str, what: String) -> Self {
        let real = "as expected".to_owned();
        Self { request: request.to_owned(), place: "expectation".to_owned(), real, ours: what }
    }
}

/// The differences between two responses to a request.
pub(super) fn between(request: &str, real: &Value, ours: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    if real["code"] == ours["code"] {
        compare(request, &mut String::new(), real, ours, &mut differences);
    } else {
        // The remaining items do not correspond.
        differences.push(Difference {
            request: request.to_owned(),
            place: "code".to_owned(),
            real: real.to_string(),
            ours: ours.to_string(),
        });
    }
    differences
}

fn compare(request: &str, place: &mut String, real: &Value, ours: &Value, into: &mut Vec<Difference>) {
    let length = place.len();
    match (real, ours) {
        (Value::Object(real), Value::Object(ours)) => {
            let only_ours = ours.keys().filter(|key| !real.contains_key(*key));
            for key in real.keys().chain(only_ours) {
                place.push_str(if place.is_empty() { "" } else { "." });
                place.push_str(key);
                let missing = Value::String("<nothing>".to_owned());
                let (real, ours) = (real.get(key).unwrap_or(&missing), ours.get(key).unwrap_or(&missing));
                compare(request, place, real, ours, into);
                place.truncate(length);
            }
        }
        (Value::Array(real), Value::Array(ours)) => {
            let missing = Value::String("<nothing>".to_owned());
            let same_length = real.len() == ours.len();
            for index in 0..real.len().max(ours.len()) {
                write!(place, "[{index}]").expect("writing to a String cannot fail");
                let (real, ours) = (real.get(index).unwrap_or(&missing), ours.get(index).unwrap_or(&missing));
                compare(request, place, real, ours, into);
                place.truncate(length);
                if !same_length && real != ours {
                    // The remaining items do not correspond.
                    break;
                }
            }
        }
        _ if real == ours => {}
        _ => into.push(Difference {
            request: request.to_owned(),
            place: place.clone(),
            real: real.to_string(),
            ours: ours.to_string(),
        }),
    }
}

/// Removes the intended differences. Reports entries of the file that match no difference.
pub(super) fn excuse(file: &Path, all: Vec<Difference>) -> Result<(Vec<Difference>, Vec<String>)> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let meant: Option<Vec<Meant>> =
        serde_saphyr::from_str(&text).with_context(|| format!("read {}", file.display()))?;
    let meant = meant.unwrap_or_default();
    let mut used = vec![false; meant.len()];
    let mut faults = Vec::new();
    for difference in all {
        let mut excused = false;
        for (meant, used) in meant.iter().zip(&mut used) {
            if matches(&meant.request, &difference.request) && matches(&meant.place, &difference.place) {
                (*used, excused) = (true, true);
            }
        }
        if !excused {
            faults.push(difference);
        }
    }
    let mut unused = Vec::new();
    for (Meant { request, place, reason }, used) in meant.iter().zip(used) {
        ensure!(reason.ends_with('.'), "{request}: `why` is not a sentence: {reason}");
        if !used {
            unused.push(format!("{request} at {place} does not differ any more: take it out of the list"));
        }
    }
    Ok((faults, unused))
}

/// Whether a text matches a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.into_iter().any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{between, matches};

    #[test]
    fn every_difference_is_reported() {
        let real = json!({"a": [{"b": 1}, {"b": 2}], "c": 1, "e": []});
        let ours = json!({"a": [{"b": 1}, {"b": 3}], "d": 1, "e": [1]});
        let places: Vec<String> = between("r", &real, &ours).into_iter().map(|one| one.place).collect();
        assert_eq!(places, ["a[1].b", "c", "e[0]", "d"]);
    }

    #[test]
    fn star_matches_anything() {
        assert!(
            matches("a/*", "a/b")
                && matches("*.x", "a[0].x")
                && matches("a*c*e", "abcde")
                && matches("*", "")
        );
        assert!(!matches("a/*", "b/a/") && !matches("a", "ab") && !matches("a*c", "acb"));
    }
}
