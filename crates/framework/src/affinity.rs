//! Parsed node selectors.
//!
//! The API server admits some terms that cannot be evaluated (`Gt` with a word, a label value with
//! a space). Such a term keeps the error: a required term matches nothing, and scoring a preferred
//! one fails.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::errors::{self, few, quoted};
use crate::indexed::Indexed;
use crate::labels::{Labels, MAX_LABEL_VALUE, is_label_key, is_label_value, is_name};
use crate::node::NodeRecord;
use crate::selector_set::{Folds, MANY, SelectorSet};
use crate::steps;

/// The only field that `matchFields` supports.
pub const METADATA_NAME: &str = "metadata.name";

/// The operator of a requirement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label key or the field path.
    pub key: Arc<str>,
    /// The comparison.
    pub operator: Operator,
    /// The values of `In` and `NotIn`.
    pub values: Indexed<Arc<str>>,
}

impl Requirement {
    /// A requirement on a label, validated as by upstream's `labels.NewRequirement`. Each error
    /// starts with the field.
    pub fn label(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, Vec<String>> {
        let mut reasons = Vec::new();
        if !is_label_key(&key) {
            let key = quoted(&key);
            reasons.push(format!("key: Invalid value: {key}: name part must be a qualified label name"));
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
                let other = quoted(other);
                return Err(vec![format!(
                    "operator: Unsupported value: {other}: supported values: {supported}"
                )]);
            }
        };
        let faults = values.iter().enumerate().filter(|(_, value)| !is_label_value(value));
        reasons.extend(few(faults.map(|(i, value)| {
            let faults = label_value_faults(value);
            format!("values[{i}][{key}]: Invalid value: {}: {faults}", quoted(value))
        })));
        if reasons.is_empty() { Ok(Self { key, operator, values: values.into() }) } else { Err(reasons) }
    }

    /// A requirement on a field: `In` or `NotIn` with exactly one value.
    pub fn field(key: Arc<str>, operator: &str, values: Vec<Arc<str>>) -> Result<Self, Vec<String>> {
        let operator = match operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            other => {
                let (supported, other) = (r#""In", "NotIn""#, quoted(other));
                return Err(vec![format!(
                    "operator: Unsupported value: {other}: supported values: {supported}"
                )]);
            }
        };
        if values.len() == 1 {
            Ok(Self { key, operator, values: values.into() })
        } else {
            Err(vec![invalid_values(&values, "must have one element")])
        }
    }

    /// The requirement that the label has this value.
    pub fn equals(key: &Arc<str>, value: &Arc<str>) -> Self {
        Self { key: Arc::clone(key), operator: Operator::In, values: [Arc::clone(value)].into() }
    }

    /// Whether these labels meet the requirement.
    pub fn matches_labels(&self, labels: &Labels) -> bool {
        steps::add(1);
        let label = labels.get(&self.key);
        match &self.operator {
            Operator::In => label.is_some_and(|value| self.values.has(value)),
            Operator::NotIn => label.is_none_or(|value| !self.values.has(value)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Gt(bound) => integer(label).is_some_and(|value| value > *bound),
            Operator::Lt(bound) => integer(label).is_some_and(|value| value < *bound),
        }
    }

    fn matches_field(&self, node: &NodeRecord) -> bool {
        let field = if &*self.key == METADATA_NAME { &*node.name } else { "" };
        let found = self.values.has(field);
        found == (self.operator == Operator::In)
    }
}

/// The bound of `Gt` and `Lt`.
fn integer_bound(values: &[Arc<str>], reasons: &mut Vec<String>) -> i64 {
    if values.len() != 1 {
        reasons.push(invalid_values(values, "for 'Gt', 'Lt' operators, exactly one value is required"));
    }
    let faults = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
    reasons.extend(few(faults.map(|(i, value)| {
        let value = quoted(value);
        format!("values[{i}]: Invalid value: {value}: for 'Gt', 'Lt' operators, the value must be an integer")
    })));
    values.iter().rev().find_map(|value| value.parse().ok()).unwrap_or_default()
}

/// An error about a whole list of values, which upstream prints as compact JSON.
fn invalid_values(values: &[Arc<str>], detail: &str) -> String {
    let mut listed: Vec<_> = values.iter().take(errors::MOST).map(|value| quoted(value)).collect();
    listed.extend((values.len() > errors::MOST).then(|| "...".to_owned()));
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

    /// The errors of the term at a place of a list, with the path.
    pub fn errors_at(&self, list: &'static str, i: usize) -> impl Iterator<Item = String> {
        self.invalid.iter().map(move |error| format!("{list}[{i}].{error}"))
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
                        Err(reasons) if invalid.len() <= errors::MOST => {
                            invalid.extend(reasons.iter().map(|r| Arc::from(format!("{path}[{i}].{r}"))));
                        }
                        Err(_) => {}
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

/// A term in a list of them.
pub trait NodeTerm {
    /// The term.
    fn term(&self) -> &NodeSelectorTerm;
    /// Its weight.
    fn weight(&self) -> i64;
}

impl NodeTerm for NodeSelectorTerm {
    fn term(&self) -> &NodeSelectorTerm {
        self
    }

    /// Terms of a selector are alternatives.
    fn weight(&self) -> i64 {
        1
    }
}

impl NodeTerm for PreferredTerm {
    fn term(&self) -> &NodeSelectorTerm {
        &self.term
    }

    fn weight(&self) -> i64 {
        i64::from(self.weight)
    }
}

/// Terms in their API order. If they have more than [`MANY`] requirements, they are matched
/// together.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Vec<T>", bound(deserialize = "T: NodeTerm + Deserialize<'de>"))]
pub struct NodeTerms<T> {
    terms: Box<[T]>,
    has_invalid: bool,
    together: Option<Box<TermIndex>>,
}

/// Many terms.
#[derive(Clone, Debug)]
struct TermIndex {
    selectors: SelectorSet,
    /// The weight on a node without any label that the terms name.
    base: i64,
    weights: Folds<(), i64>,
}

impl TermIndex {
    fn new<T: NodeTerm>(terms: &[T]) -> Self {
        let selectors = SelectorSet::new(terms.iter().map(|it| it.term().requirements()));
        Self {
            base: selectors.by_default().map(|place| terms[place].weight()).sum(),
            selectors,
            weights: Folds::default(),
        }
    }

    /// The sum of the weights of the terms that match the node. Not inlined, so that the check of
    /// a few terms can be.
    #[inline(never)]
    fn weight<T: NodeTerm>(&self, terms: &[T], node: &NodeRecord) -> i64 {
        let touched = self.selectors.touched(node.labels.texts().chain([(NAME, &*node.name)]));
        self.selectors.fold((&self.weights, ()), &touched, self.base, |sum, place, matches| {
            *sum += if matches { terms[place].weight() } else { -terms[place].weight() };
        })
    }
}

/// The key of the node's name, as if it were a label. No label has this key.
const NAME: &str = "";

impl NodeSelectorTerm {
    /// The requirements by label; `None` if the term matches nothing.
    fn requirements(&self) -> Option<impl Iterator<Item = (Arc<str>, &Requirement)>> {
        // The API server admits no other field.
        let is_name = |field: &Requirement| &*field.key == METADATA_NAME;
        let can_match = self.invalid.is_empty() && !self.is_empty() && self.match_fields.iter().all(is_name);
        let expressions = self.match_expressions.iter().map(|it| (Arc::clone(&it.key), it));
        let fields = self.match_fields.iter().map(|it| (Arc::default(), it));
        can_match.then(|| expressions.chain(fields))
    }
}

impl<T: NodeTerm> NodeTerms<T> {
    /// A list of these terms.
    pub fn new(terms: impl Into<Box<[T]>>) -> Self {
        let terms = terms.into();
        let requirements = |it: &T| it.term().match_expressions.len() + it.term().match_fields.len();
        let is_many = terms.iter().map(requirements).sum::<usize>() > MANY;
        let together = is_many.then(|| Box::new(TermIndex::new(&terms)));
        let has_invalid = terms.iter().any(|it| !it.term().invalid.is_empty());
        Self { terms, has_invalid, together }
    }

    /// Whether any term is invalid.
    pub fn has_invalid(&self) -> bool {
        self.has_invalid
    }
}

impl NodeTerms<NodeSelectorTerm> {
    /// Whether any term matches the node.
    #[inline]
    pub fn any_matches(&self, node: &NodeRecord) -> bool {
        match &self.together {
            None => self.terms.iter().any(|term| term.matches(node)),
            Some(together) => together.weight(&self.terms, node) > 0,
        }
    }
}

impl NodeTerms<PreferredTerm> {
    /// The sum of the weights of the terms that match the node.
    #[inline]
    pub fn weight(&self, node: &NodeRecord) -> i64 {
        match &self.together {
            None => {
                let matching = self.terms.iter().filter(|preferred| preferred.term.matches(node));
                matching.map(NodeTerm::weight).sum()
            }
            Some(together) => together.weight(&self.terms, node),
        }
    }
}

impl<T> Default for NodeTerms<T> {
    fn default() -> Self {
        Self { terms: Box::default(), has_invalid: false, together: None }
    }
}

impl<T> Deref for NodeTerms<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.terms
    }
}

impl<T: NodeTerm> From<Vec<T>> for NodeTerms<T> {
    fn from(terms: Vec<T>) -> Self {
        Self::new(terms)
    }
}

impl<T: NodeTerm, const N: usize> From<[T; N]> for NodeTerms<T> {
    fn from(terms: [T; N]) -> Self {
        Self::new(terms)
    }
}

impl<T: NodeTerm> FromIterator<T> for NodeTerms<T> {
    fn from_iter<I: IntoIterator<Item = T>>(terms: I) -> Self {
        Self::new(Box::from_iter(terms))
    }
}

impl<T: PartialEq> PartialEq for NodeTerms<T> {
    fn eq(&self, other: &Self) -> bool {
        self.terms == other.terms
    }
}

impl<T: Eq> Eq for NodeTerms<T> {}

impl<T: Hash> Hash for NodeTerms<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.terms.hash(state);
    }
}

impl<T: Serialize> Serialize for NodeTerms<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.terms.serialize(serializer)
    }
}

/// The `nodeAffinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAffinity {
    /// Terms of which one must match. An empty list matches no node; `None` matches every node.
    pub required: Option<NodeTerms<NodeSelectorTerm>>,
    /// Terms that add their weight to the score.
    pub preferred: NodeTerms<PreferredTerm>,
}

impl NodeAffinity {
    /// Whether the required terms, if any, match this node.
    pub fn required_matches(&self, node: &NodeRecord) -> bool {
        self.required.as_ref().is_none_or(|terms| terms.any_matches(node))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample;

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

    fn any_term() -> impl Strategy<Value = NodeSelectorTerm> {
        let operator = sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"]);
        let expression = ("[a-c]", operator, vec("[0-3x]", 1..3)).prop_map(|(key, operator, values)| {
            let most = match operator {
                "In" | "NotIn" => 2,
                "Gt" | "Lt" => 1,
                _ => 0,
            };
            let values = values.into_iter().take(most).map(Arc::from).collect();
            RawRequirement { key: key.into(), operator: operator.into(), values }
        });
        let field = ("(In|NotIn)", "n[12]").prop_map(|(operator, name)| RawRequirement {
            key: METADATA_NAME.into(),
            operator: operator.into(),
            values: vec![name.into()],
        });
        (vec(expression, 0..3), vec(field, 0..2))
            .prop_map(|(expressions, fields)| NodeSelectorTerm::parse(expressions, fields))
    }

    proptest! {
        #[test]
        fn many_terms_match_as_one_after_the_other(
            terms in vec((any_term(), 1..4_i32), 0..60),
            labels in vec(("[a-d]", "[0-4x]"), 0..4),
            name in "n[1-3]",
        ) {
            let node = labels.iter().fold(node(&name), |node, (key, value)| node.label(key, value)).build();
            let matching = terms.iter().filter(|(term, _)| term.matches(&node));
            let weight: i64 = matching.map(|(_, weight)| i64::from(*weight)).sum();
            let required: NodeTerms<_> = terms.iter().map(|(term, _)| term.clone()).collect();
            prop_assert_eq!(required.any_matches(&node), weight > 0);
            let preferred: NodeTerms<PreferredTerm> =
                terms.into_iter().map(|(term, weight)| PreferredTerm { weight, term }).collect();
            prop_assert_eq!(preferred.weight(&node), weight);
        }
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
