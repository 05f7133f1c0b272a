//! Parsed node selectors.
//!
//! The API server admits some terms that cannot be evaluated (`Gt` with a word, a label value with
//! a space). Such a term keeps the error: a required term matches nothing, and scoring a preferred
//! one fails.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labels::{Labels, MAX_LABEL_VALUE, is_label_key, is_label_value, is_name};
use crate::node::NodeRecord;

/// The only field that `matchFields` supports.
pub const METADATA_NAME: &str = "metadata.name";

/// The operator of a requirement.
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
    /// A requirement on a label, validated as by upstream's `labels.NewRequirement`. Each error
    /// starts with the field.
    pub fn label(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, Vec<String>> {
        let mut reasons = Vec::new();
        if !is_label_key(&key) {
            reasons.push(format!("key: Invalid value: {key:?}: name part must be a qualified label name"));
        }
        let operator = match operator {
            "In" | "NotIn" => {
                if values.is_empty() {
                    reasons.push(invalid_values(
                        &values,
                        "for 'in', 'notin' operators, values set can't be empty",
                    ));
                }
                if operator == "In" { Operator::In } else { Operator::NotIn }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    reasons.push(invalid_values(
                        &values,
                        "values set must be empty for exists and does not exist",
                    ));
                }
                if operator == "Exists" { Operator::Exists } else { Operator::DoesNotExist }
            }
            "Gt" | "Lt" => {
                let bound = integer_bound(&values, &mut reasons);
                if operator == "Gt" { Operator::Gt(bound) } else { Operator::Lt(bound) }
            }
            other => {
                let supported = r#""In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt""#;
                // As upstream, an unknown operator is the only error reported.
                return Err(vec![format!(
                    "operator: Unsupported value: {other:?}: supported values: {supported}"
                )]);
            }
        };
        for (i, value) in values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
            reasons
                .push(format!("values[{i}][{key}]: Invalid value: {value:?}: {}", label_value_faults(value)));
        }
        if reasons.is_empty() { Ok(Self { key, operator, values: values.into() }) } else { Err(reasons) }
    }

    /// A requirement on a field: `In` or `NotIn` with exactly one value.
    pub fn field(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, Vec<String>> {
        let operator = match operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            other => {
                let supported = r#""In", "NotIn""#;
                return Err(vec![format!(
                    "operator: Unsupported value: {other:?}: supported values: {supported}"
                )]);
            }
        };
        if values.len() == 1 {
            Ok(Self { key, operator, values: values.into() })
        } else {
            Err(vec![invalid_values(&values, "must have one element")])
        }
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
        let field = if &*self.key == METADATA_NAME { &*node.name } else { "" };
        let found = self.values.iter().any(|value| &**value == field);
        found == (self.operator == Operator::In)
    }
}

/// The bound of `Gt` and `Lt`.
fn integer_bound(values: &[Arc<str>], reasons: &mut Vec<String>) -> i64 {
    if values.len() != 1 {
        reasons.push(invalid_values(values, "for 'Gt', 'Lt' operators, exactly one value is required"));
    }
    let mut bound = 0;
    for (i, value) in values.iter().enumerate() {
        match value.parse() {
            Ok(value) => bound = value,
            Err(_) => reasons.push(format!(
                "values[{i}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )),
        }
    }
    bound
}

/// An error about a whole list of values, which upstream prints as compact JSON.
fn invalid_values(values: &[Arc<str>], detail: &str) -> String {
    let listed: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("values: Invalid value: [{}]: {detail}", listed.join(","))
}

/// The errors of a label value, in the API's words.
fn label_value_faults(value: &str) -> String {
    let mut faults = Vec::new();
    if value.len() > MAX_LABEL_VALUE {
        faults.push("must be no more than 63 characters");
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
    }
    faults.join("; ")
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
    /// The errors of a term that cannot be evaluated; empty otherwise.
    pub invalid: Box<[Arc<str>]>,
}

impl NodeSelectorTerm {
    /// Whether the term has no requirement. Such a term matches nothing.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty() && self.invalid.is_empty()
    }

    /// Whether the node meets every requirement. A term that cannot be evaluated matches nothing.
    pub fn matches(&self, node: &NodeRecord) -> bool {
        self.invalid.is_empty()
            && !self.is_empty()
            && self.match_expressions.iter().all(|requirement| requirement.matches_labels(&node.labels))
            && self.match_fields.iter().all(|requirement| requirement.matches_field(node))
    }
}

/// A requirement of the API object, not yet validated.
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
    /// Parses a term. Errors go to `invalid`, with upstream's text and path
    /// (`matchExpressions[0].values[0]: Invalid value: …`).
    pub fn parse(expressions: Vec<RawRequirement>, fields: Vec<RawRequirement>) -> Self {
        let mut invalid: Vec<Arc<str>> = Vec::new();
        let mut parse =
            |path, raws: Vec<RawRequirement>, parse_one: ParseRequirement| -> Box<[Requirement]> {
                let mut parsed = Vec::with_capacity(raws.len());
                for (i, raw) in raws.into_iter().enumerate() {
                    match parse_one(raw.key, &raw.operator, raw.values) {
                        Ok(requirement) => parsed.push(requirement),
                        Err(reasons) => {
                            invalid.extend(reasons.iter().map(|r| Arc::from(format!("{path}[{i}].{r}"))));
                        }
                    }
                }
                parsed.into()
            };
        let match_expressions = parse("matchExpressions", expressions, Requirement::label);
        let match_fields = parse("matchFields", fields, Requirement::field);
        Self { match_expressions, match_fields, invalid: invalid.into() }
    }
}

type ParseRequirement = fn(Arc<str>, &str, Vec<Arc<str>>) -> Result<Requirement, Vec<String>>;

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
    /// Terms of which one must match. An empty list matches no node; `None` matches every node.
    pub required: Option<Box<[NodeSelectorTerm]>>,
    /// Terms that add their weight to the score.
    pub preferred: Box<[PreferredTerm]>,
}

impl NodeAffinity {
    /// Whether the required terms, if any, match this node.
    pub fn required_matches(&self, node: &NodeRecord) -> bool {
        self.required.as_deref().is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    type Raw<'a> = (&'a str, &'a str, &'a [&'a str]);

    fn term(requirements: &[Raw<'_>]) -> NodeSelectorTerm {
        let raw = |(key, operator, values): &Raw<'_>| RawRequirement {
            key: (*key).into(),
            operator: (*operator).into(),
            values: values.iter().map(|v| Arc::from(*v)).collect(),
        };
        NodeSelectorTerm::parse(requirements.iter().map(raw).collect(), vec![])
    }

    #[test]
    fn invalid_terms_have_upstreams_errors() {
        let cases: [(Raw<'_>, &[&str]); 4] = [
            (
                ("k", "Gt", &["abc"]),
                &[
                    "matchExpressions[0].values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
                ],
            ),
            (
                ("k", "Exists", &["a", "b"]),
                &[
                    "matchExpressions[0].values: Invalid value: [\"a\",\"b\"]: values set must be empty for exists and does not exist",
                ],
            ),
            (
                ("k", "In", &["a b"]),
                &[concat!(
                    "matchExpressions[0].values[0][k]: Invalid value: \"a b\": a valid label must be an empty string or ",
                    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric ",
                    "character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is ",
                    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                )],
            ),
            (
                ("k", "Like", &[]),
                &[
                    "matchExpressions[0].operator: Unsupported value: \"Like\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"",
                ],
            ),
        ];
        for (raw, expected) in cases {
            let term = term(&[raw]);
            assert_eq!(term.invalid.iter().map(|r| &**r).collect::<Vec<_>>(), expected);
        }
        assert_eq!(term(&[("k", "Gt", &["a b"])]).invalid.len(), 2, "all errors of a requirement are listed");
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
            ("one of two fails", &[("zone", "Exists", &[]), ("rack", "Exists", &[])], false),
            ("Gt with a word cannot be evaluated", &[("cores", "Gt", &["many"])], false),
            ("an empty term matches nothing", &[], false),
        ];
        for (name, requirements, expected) in cases {
            assert_eq!(term(requirements).matches(&node), expected, "{name}");
        }
    }

    #[test]
    fn required_terms_are_alternatives_and_none_matches_all() {
        let node = node("n1").label("zone", "a").build();
        let affinity = |required| NodeAffinity { required, ..Default::default() };
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
