//! Parsed label selectors.

use serde::{Deserialize, Serialize};

use crate::affinity::{RawRequirement, Requirement};
use crate::labels::Labels;

/// A label selector: all its requirements must hold. An empty selector matches everything.
///
/// An absent selector, which matches nothing, is represented by `Option::None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LabelSelector {
    requirements: Box<[Requirement]>,
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
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// A selector of valid requirements.
    pub fn new(requirements: impl Into<Box<[Requirement]>>) -> Self {
        Self { requirements: requirements.into() }
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether these labels meet every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches_labels(labels))
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
