//! Label sets and the syntax rules of their keys and values.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::steps;

/// A label: key and value.
pub type Label = (Arc<str>, Arc<str>);

/// An immutable set of labels (or annotations), sorted by key. Clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Label>")]
pub struct Labels(Arc<[Label]>);

impl Labels {
    /// The set that `share` returns for the sorted labels, possibly an existing one.
    pub fn shared(labels: Vec<Label>, share: impl FnOnce(Vec<Label>) -> Arc<[Label]>) -> Self {
        Self(share(sorted(labels)))
    }

    /// Whether both share one allocation.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        steps::add(1);
        self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok().map(|i| &self.0[i].1)
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keys and values in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// The same as texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether every label of `self` is in `other` with the same value, as a `nodeSelector`
    /// requires.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        if self.len() <= FEW {
            return self.iter().all(|(key, value)| other.get(key) == Some(value));
        }
        // Both are sorted.
        let mut others = other.iter();
        self.iter().all(|(key, value)| others.find(|(other, _)| *other >= key) == Some((key, value)))
    }
}

/// Sorted by key; the first label of a key takes precedence.
fn sorted(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|a, b| a.0.cmp(&b.0));
    labels.dedup_by(|later, earlier| later.0 == earlier.0);
    labels
}

impl From<Vec<Label>> for Labels {
    fn from(labels: Vec<Label>) -> Self {
        Self(sorted(labels).into())
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        iter.into_iter().map(|(k, v)| (k.into(), v.into())).collect::<Vec<_>>().into()
    }
}

/// The number of labels up to which it is as quick to look each of them up.
const FEW: usize = 8;

/// The longest label value.
pub const MAX_LABEL_VALUE: usize = 63;

/// Whether `value` is a valid label value: at most 63 characters of `[-A-Za-z0-9_.]`, empty or with
/// an alphanumeric at both ends.
pub fn is_label_value(value: &str) -> bool {
    value.len() <= MAX_LABEL_VALUE && (value.is_empty() || is_name(value))
}

/// Whether `key` is a qualified name: an optional DNS subdomain and `/`, then a name of at most 63
/// characters.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_dns_subdomain) && name.len() <= MAX_LABEL_VALUE && is_name(name)
}

/// Whether the characters are valid in a label's name or value, regardless of the length.
pub(crate) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
        }
        _ => false,
    }
}

fn is_dns_subdomain(prefix: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    prefix.len() <= 253
        && prefix.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|b| lower(*b))
                && bytes.last().is_some_and(|b| lower(*b))
                && bytes.iter().all(|b| lower(*b) || *b == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_labels_are_a_subset_if_each_is_there() {
        let all = |count: usize| -> Labels { (0..count).map(|i| (format!("k{i:03}"), "v")).collect() };
        for count in [0, 1, FEW, FEW + 1, 50] {
            assert!(all(count).is_subset_of(&all(count)) && all(count).is_subset_of(&all(60)), "{count}");
            for i in 0..count {
                let missing: Arc<str> = format!("k{i:03}").into();
                let pairs = all(60);
                let others = pairs.iter().filter(|(key, _)| **key != missing);
                let other: Labels = others.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect();
                assert!(!all(count).is_subset_of(&other), "{count} without {i}");
            }
        }
        let other: Labels = all(60).iter().map(|(key, _)| (Arc::clone(key), Arc::from("w"))).collect();
        assert!(!all(50).is_subset_of(&other));
    }

    #[test]
    fn labels_are_sorted_and_found_by_key() {
        let labels: Labels = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(labels.get("a").map(|v| &**v), Some("1"));
        assert_eq!(labels.get("c"), None);
        assert_eq!(labels.iter().map(|(k, _)| &**k).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn label_syntax_follows_the_api_conventions() {
        for good in ["a", "app", "app.kubernetes.io/name", "A_b.c-9"] {
            assert!(is_label_key(good), "{good}");
        }
        for bad in ["", "/a", "a/", "-a", "A.io/x y", "UPPER.io/x", "a/b/c"] {
            assert!(!is_label_key(bad), "{bad}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_3-x"));
        assert!(!is_label_value("-x") && !is_label_value("a b") && !is_label_value(&"x".repeat(64)));
    }
}
