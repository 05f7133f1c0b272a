//! Node selector terms that are matched against the labels of a node alone.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::affinity::{NodeSelectorTerm, Requirement};
use crate::labels::Labels;
use crate::selector_set::{MANY, SelectorSet};

/// Terms in their API order, of which one must match, as volumes have them. Same as upstream's node
/// affinity of volumes: requirements on fields are ignored, and a term without any requirement
/// matches nothing. More than [`MANY`] requirements are matched together.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "Vec<NodeSelectorTerm>", into = "Vec<NodeSelectorTerm>")]
pub struct LabelTerms {
    terms: Box<[NodeSelectorTerm]>,
    together: Option<Box<SelectorSet>>,
}

impl LabelTerms {
    /// Whether any term matches these labels.
    pub fn any_matches(&self, labels: &Labels) -> bool {
        match &self.together {
            None => self.terms.iter().any(|term| matches(term, labels)),
            Some(together) => together.any_matches(labels),
        }
    }
}

fn can_match(term: &NodeSelectorTerm) -> bool {
    term.invalid.is_empty() && !term.is_empty()
}

fn matches(term: &NodeSelectorTerm, labels: &Labels) -> bool {
    can_match(term) && term.match_expressions.iter().all(|requirement| requirement.matches_labels(labels))
}

/// The requirements by label; `None` if the term matches nothing.
fn requirements(term: &NodeSelectorTerm) -> Option<impl Iterator<Item = (Arc<str>, &Requirement)>> {
    can_match(term).then(|| term.match_expressions.iter().map(|it| (Arc::clone(&it.key), it)))
}

impl Deref for LabelTerms {
    type Target = [NodeSelectorTerm];

    fn deref(&self) -> &[NodeSelectorTerm] {
        &self.terms
    }
}

impl<T: Into<Box<[NodeSelectorTerm]>>> From<T> for LabelTerms {
    fn from(terms: T) -> Self {
        let terms = terms.into();
        let is_many = terms.iter().map(|term| term.match_expressions.len()).sum::<usize>() > MANY;
        let together = is_many.then(|| Box::new(SelectorSet::new(terms.iter().map(requirements))));
        Self { terms, together }
    }
}

impl From<LabelTerms> for Vec<NodeSelectorTerm> {
    fn from(terms: LabelTerms) -> Self {
        terms.terms.into()
    }
}

impl FromIterator<NodeSelectorTerm> for LabelTerms {
    fn from_iter<I: IntoIterator<Item = NodeSelectorTerm>>(terms: I) -> Self {
        Box::from_iter(terms).into()
    }
}

impl PartialEq for LabelTerms {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms
    }
}

impl Eq for LabelTerms {}

impl PartialOrd for LabelTerms {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelTerms {
    fn cmp(&self, other: &Self) -> Ordering {
        self.terms.cmp(&other.terms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::affinity::RawRequirement;

    const KEYS: [&str; 3] = ["zone", "rack", "kubernetes.io/hostname"];
    const VALUES: [&str; 4] = ["a", "b", "c", "2"];

    fn raw() -> impl Strategy<Value = RawRequirement> {
        let operator = select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]);
        (select(&KEYS[..]), operator, select(&VALUES[..])).prop_map(|(key, operator, value)| {
            let needs_value = !matches!(operator, "Exists" | "DoesNotExist");
            let values = needs_value.then(|| Arc::from(value)).into_iter().collect();
            RawRequirement { key: key.into(), operator: operator.into(), values }
        })
    }

    fn term() -> impl Strategy<Value = NodeSelectorTerm> {
        let name =
            RawRequirement { key: "metadata.name".into(), operator: "In".into(), values: vec!["n".into()] };
        let fields = select(vec![Vec::new(), Vec::new(), vec![name]]);
        (vec(raw(), 0..3), fields).prop_map(|(labels, fields)| NodeSelectorTerm::parse(labels, fields))
    }

    proptest! {
        #[test]
        fn many_terms_match_as_one_after_the_other(
            terms in vec(term(), 0..60),
            labels in vec((select(&KEYS[..]), select(&VALUES[..])), 0..4),
        ) {
            let labels: Labels = labels.into_iter().collect();
            let one_by_one = terms.iter().any(|term| matches(term, &labels));
            let all: LabelTerms = terms.into();
            prop_assert_eq!(all.any_matches(&labels), one_by_one);
        }
    }

    #[test]
    fn terms_keep_their_order_in_a_record() {
        let zone = |value: &str| {
            let values = vec![value.into()];
            let raw = RawRequirement { key: "zone".into(), operator: "In".into(), values };
            NodeSelectorTerm::parse(vec![raw], Vec::new())
        };
        let terms: LabelTerms = (0..40).rev().map(|i| zone(&i.to_string())).collect();
        let text = serde_json::to_string(&terms).unwrap();
        let read: LabelTerms = serde_json::from_str(&text).unwrap();
        assert_eq!(read, terms);
        assert!(read.together.is_some() && read.any_matches(&[("zone", "39")].into_iter().collect()));
    }
}
