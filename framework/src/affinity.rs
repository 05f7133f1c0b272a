//! Node selectors, parsed once.
//!
//! The API server lets some terms through that nobody can evaluate (`Gt` with a word, a label value with a space). Such
//! a term is kept with the reason why: a required one matches nothing, a preferred one is an error when it is scored.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labels::{Labels, is_label_key, is_label_value};
use crate::node::NodeRecord;

/// The one field that `matchFields` knows.
pub const METADATA_NAME: &str = "metadata.name";

/// How a requirement compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than this.
    Gt(i64),
    /// The label is an integer less than this.
    Lt(i64),
}

/// One requirement on a label or a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label key or the field path.
    pub key: Arc<str>,
    /// The comparison.
    pub operator: Operator,
    /// The values of `In` and `NotIn`.
    pub values: Box<[Arc<str>]>,
}

impl Requirement {
    /// A requirement on a label, checked as upstream's `labels.NewRequirement` does; the error is the reason.
    pub fn label(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, String> {
        if !is_label_key(&key) {
            return Err(format!(
                "key: Invalid value: {key:?}: name part must be a qualified label name"
            ));
        }
        let parsed = match operator {
            "In" | "NotIn" if values.is_empty() => {
                return Err(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                        .into(),
                );
            }
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err(format!(
                    "values: Invalid value: {values:?}: values set must be empty for exists and does not exist"
                ));
            }
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" | "Lt" => {
                let [bound] = &values[..] else {
                    return Err(format!(
                        "values: Invalid value: {values:?}: for 'Gt', 'Lt' operators, exactly one value is required"
                    ));
                };
                let bound = bound.parse().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: {bound:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                })?;
                if operator == "Gt" {
                    Operator::Gt(bound)
                } else {
                    Operator::Lt(bound)
                }
            }
            other => {
                return Err(format!(
                    "operator: Unsupported value: {other:?}: supported values: \"DoesNotExist\", \"Exists\", \"Gt\", \"In\", \"Lt\", \"NotIn\""
                ));
            }
        };
        if let Some((i, value)) = values
            .iter()
            .enumerate()
            .find(|(_, value)| !is_label_value(value))
        {
            return Err(format!(
                "values[{i}][{key}]: Invalid value: {value:?}: not a valid label value"
            ));
        }
        Ok(Self {
            key,
            operator: parsed,
            values: values.into(),
        })
    }

    /// A requirement on a field: `In` or `NotIn` with exactly one value.
    pub fn field(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, String> {
        let operator = match operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            other => {
                return Err(format!(
                    "operator: Unsupported value: {other:?}: supported values: \"In\", \"NotIn\""
                ));
            }
        };
        if values.len() != 1 {
            return Err(format!(
                "values: Invalid value: {values:?}: must have one element"
            ));
        }
        Ok(Self {
            key,
            operator,
            values: values.into(),
        })
    }

    /// Whether these labels meet the requirement.
    pub fn matches_labels(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        match &self.operator {
            Operator::In => label.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => label.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt(bound) => integer(label).is_some_and(|value| value > *bound),
            Operator::Lt(bound) => integer(label).is_some_and(|value| value < *bound),
        }
    }

    fn matches_field(&self, node: &NodeRecord) -> bool {
        let field = if &*self.key == METADATA_NAME {
            &*node.name
        } else {
            ""
        };
        let found = self.values.iter().any(|value| &**value == field);
        found == (self.operator == Operator::In)
    }
}

fn integer(label: Option<&Arc<str>>) -> Option<i64> {
    label?.parse().ok()
}

/// One term of a node selector: all its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    pub match_expressions: Box<[Requirement]>,
    /// Requirements on the node's fields.
    pub match_fields: Box<[Requirement]>,
    /// Why the term cannot be evaluated, if it cannot.
    pub invalid: Option<Arc<str>>,
}

impl NodeSelectorTerm {
    /// Whether the term has no requirement at all. Such a term matches nothing.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty() && self.invalid.is_none()
    }

    /// Whether the node meets every requirement of a term that can be evaluated.
    pub fn matches(&self, node: &NodeRecord) -> bool {
        self.invalid.is_none()
            && !self.is_empty()
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches_labels(&node.labels))
            && self
                .match_fields
                .iter()
                .all(|requirement| requirement.matches_field(node))
    }
}

/// A requirement as the API has it, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRequirement {
    /// The label key or field path.
    pub key: Arc<str>,
    /// The operator's API name.
    pub operator: Arc<str>,
    /// The values.
    pub values: Vec<Arc<str>>,
}

impl NodeSelectorTerm {
    /// Parses a term. What cannot be evaluated is remembered in `invalid`, worded and located as upstream does
    /// (`matchExpressions[0].values[0]: Invalid value: …`).
    pub fn parse(expressions: Vec<RawRequirement>, fields: Vec<RawRequirement>) -> Self {
        let mut errors = Vec::new();
        let mut parse =
            |path, raws: Vec<RawRequirement>, parse_one: ParseRequirement| -> Box<[Requirement]> {
                let parsed = raws.into_iter().enumerate().filter_map(|(i, raw)| {
                    parse_one(raw.key, &raw.operator, raw.values)
                        .map_err(|reason| errors.push(format!("{path}[{i}].{reason}")))
                        .ok()
                });
                parsed.collect()
            };
        let match_expressions = parse("matchExpressions", expressions, Requirement::label);
        let match_fields = parse("matchFields", fields, Requirement::field);
        let invalid = match &errors[..] {
            [] => None,
            [only] => Some(Arc::from(&**only)),
            several => Some(Arc::from(format!("[{}]", several.join(", ")))),
        };
        Self {
            match_expressions,
            match_fields,
            invalid,
        }
    }
}

type ParseRequirement = fn(Arc<str>, &str, Vec<Arc<str>>) -> Result<Requirement, String>;

/// A term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// The weight, 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: NodeSelectorTerm,
}

/// The `nodeAffinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAffinity {
    /// Terms of which one must match. `Some` of nothing matches no node; `None` matches every node.
    pub required: Option<Box<[NodeSelectorTerm]>>,
    /// Terms that add their weight to the score.
    pub preferred: Box<[PreferredTerm]>,
}

impl NodeAffinity {
    /// Whether the required terms, if any, let the pod on this node.
    pub fn required_matches(&self, node: &NodeRecord) -> bool {
        self.required
            .as_deref()
            .is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    type Raw<'a> = (&'a str, &'a str, &'a [&'a str]);

    fn term(requirements: &[Raw<'_>]) -> NodeSelectorTerm {
        let parsed: Result<Vec<_>, _> = requirements
            .iter()
            .map(|(key, op, values)| {
                Requirement::label((*key).into(), op, values.iter().map(|v| Arc::from(*v)).collect())
            })
            .collect();
        match parsed {
            Ok(match_expressions) => NodeSelectorTerm {
                match_expressions: match_expressions.into(),
                ..Default::default()
            },
            Err(reason) => NodeSelectorTerm {
                invalid: Some(reason.into()),
                ..Default::default()
            },
        }
    }

    #[test]
    fn a_term_matches_when_all_its_requirements_do() {
        let node = node("n1").label("zone", "a").label("cores", "8").build();
        let cases: [(&str, &[Raw<'_>], bool); 12] = [
            ("In with the value", &[("zone", "In", &["a", "b"])], true),
            ("In without the value", &[("zone", "In", &["b"])], false),
            ("NotIn on an absent label", &[("rack", "NotIn", &["1"])], true),
            ("NotIn with the value", &[("zone", "NotIn", &["a"])], false),
            ("Exists", &[("zone", "Exists", &[])], true),
            ("DoesNotExist", &[("zone", "DoesNotExist", &[])], false),
            ("Gt below", &[("cores", "Gt", &["4"])], true),
            ("Gt equal", &[("cores", "Gt", &["8"])], false),
            ("Lt on a word", &[("zone", "Lt", &["8"])], false),
            (
                "one of two fails",
                &[("zone", "Exists", &[]), ("rack", "Exists", &[])],
                false,
            ),
            (
                "Gt with a word cannot be evaluated",
                &[("cores", "Gt", &["many"])],
                false,
            ),
            ("an empty term matches nothing", &[], false),
        ];
        for (name, requirements, expected) in cases {
            assert_eq!(term(requirements).matches(&node), expected, "{name}");
        }
    }

    #[test]
    fn required_terms_are_alternatives_and_none_means_anywhere() {
        let node = node("n1").label("zone", "a").build();
        let affinity = |required| NodeAffinity {
            required,
            ..Default::default()
        };
        assert!(affinity(None).required_matches(&node));
        assert!(!affinity(Some([].into())).required_matches(&node));
        let terms = [term(&[("zone", "In", &["b"])]), term(&[("zone", "In", &["a"])])];
        assert!(affinity(Some(terms.into())).required_matches(&node));
    }

    #[test]
    fn a_field_requirement_compares_the_name() {
        let field = |op, value: &str| NodeSelectorTerm {
            match_fields: [Requirement::field(METADATA_NAME.into(), op, vec![value.into()]).unwrap()].into(),
            ..Default::default()
        };
        let node = node("n1").build();
        assert!(field("In", "n1").matches(&node));
        assert!(!field("In", "n2").matches(&node));
        assert!(field("NotIn", "n2").matches(&node));
        assert!(Requirement::field(METADATA_NAME.into(), "In", vec![]).is_err());
    }
}
