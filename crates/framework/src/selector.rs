//! Parsed label selectors.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::affinity::{RawRequirement, Requirement};
use crate::labels::Labels;
use crate::selector_set::{MANY, SelectorSet};

/// A label selector: all its requirements must hold. An empty selector matches everything. Clones
/// share it.
///
/// An absent selector, which matches nothing, is represented by `Option::None`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Listed")]
pub struct LabelSelector {
    requirements: Arc<[Requirement]>,
    /// The same if there are many.
    #[serde(skip)]
    together: Option<Arc<SelectorSet>>,
}

/// A selector as it is recorded.
#[derive(Deserialize)]
struct Listed {
    requirements: Arc<[Requirement]>,
}

impl From<Listed> for LabelSelector {
    fn from(Listed { requirements }: Listed) -> Self {
        Self::new(requirements)
    }
}

impl LabelSelector {
    /// A selector of `matchLabels` and `matchExpressions`. The error is the reason why it is
    /// invalid.
    pub fn parse(
        match_labels: &Labels,
        expressions: impl IntoIterator<Item = RawRequirement>,
    ) -> Result<Self, String> {
        let exact = match_labels.iter().map(|(key, value)| RawRequirement {
            key: key.clone(),
            operator: "In".into(),
            values: vec![value.clone()],
        });
        let requirements = exact
            .chain(expressions)
            .map(|raw| match &*raw.operator {
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {
                    Requirement::label(raw.key, &raw.operator, raw.values)
                        .map_err(|reasons| reasons.join(", "))
                }
                other => Err(format!("{other:?} is not a valid label selector operator")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(requirements))
    }

    /// A selector of valid requirements.
    pub fn new(requirements: impl Into<Arc<[Requirement]>>) -> Self {
        let requirements = requirements.into();
        let by_label = || requirements.iter().map(|requirement| (Arc::clone(&requirement.key), requirement));
        let together = (requirements.len() > MANY).then(|| Arc::new(SelectorSet::new([Some(by_label())])));
        Self { requirements, together }
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether they are clones of one selector.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.requirements, &other.requirements)
    }

    /// Whether these labels meet every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        match &self.together {
            None => self.requirements.iter().all(|requirement| requirement.matches_labels(labels)),
            Some(together) => together.any_matches(labels),
        }
    }
}

/// Labels that pods must have, as a Service selects by them; none select nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Labels", into = "Labels")]
pub struct EqualitySelector {
    labels: Labels,
    selector: LabelSelector,
}

impl EqualitySelector {
    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The same as requirements.
    pub fn as_selector(&self) -> &LabelSelector {
        &self.selector
    }
}

impl From<Labels> for EqualitySelector {
    fn from(labels: Labels) -> Self {
        let requirements: Vec<_> =
            labels.iter().map(|(key, value)| Requirement::equals(key, value)).collect();
        Self { selector: LabelSelector::new(requirements), labels }
    }
}

impl From<EqualitySelector> for Labels {
    fn from(selector: EqualitySelector) -> Self {
        selector.labels
    }
}

impl PartialEq for LabelSelector {
    fn eq(&self, other: &Self) -> bool {
        self.requirements == other.requirements
    }
}

impl Eq for LabelSelector {}

impl PartialOrd for LabelSelector {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelSelector {
    fn cmp(&self, other: &Self) -> Ordering {
        self.requirements.cmp(&other.requirements)
    }
}

impl Hash for LabelSelector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.requirements.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(key: &str, operator: &str, values: &[&str]) -> RawRequirement {
        RawRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|value| (*value).into()).collect(),
        }
    }

    #[test]
    fn many_requirements_hold_together_or_not() {
        let absent = (0..2 * MANY).map(|i| raw(&format!("k{i}"), "DoesNotExist", &[]));
        let selector = LabelSelector::parse(&Labels::default(), absent).unwrap();
        let with = |key: &str| [(key, "x")].into_iter().collect::<Labels>();
        assert!(selector.matches(&Labels::default()) && selector.matches(&with("other")));
        assert!(!selector.matches(&with("k7")));
        let read: LabelSelector = serde_json::from_value(serde_json::to_value(&selector).unwrap()).unwrap();
        assert!(read == selector && !read.matches(&with("k7")));
    }

    #[test]
    fn every_requirement_must_hold() {
        let labels: Labels = [("app", "web")].into_iter().collect();
        let exact: Labels = [("app", "web")].into_iter().collect();
        let selector = |expressions| LabelSelector::parse(&exact, expressions).unwrap();
        assert!(selector(vec![]).matches(&labels));
        assert!(selector(vec![raw("tier", "DoesNotExist", &[])]).matches(&labels));
        assert!(!selector(vec![raw("tier", "In", &["x"])]).matches(&labels));
        assert!(LabelSelector::default().matches(&labels));
        assert!(LabelSelector::parse(&exact, [raw("app", "Gt", &["1"])]).is_err());
    }
}
