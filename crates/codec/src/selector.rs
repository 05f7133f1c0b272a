//! Slim types of label and node selectors.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use supercargo_framework::affinity::{NodeSelectorTerm, RawRequirement};
use supercargo_framework::selector::LabelSelector;

use super::interners::Interners;
use super::json::{List, Obj, Pairs, Str};
use super::proto::message;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireLabelSelector<'a> {
    #[serde(borrow)]
    match_labels: Pairs<'a>,
    #[serde(borrow)]
    match_expressions: List<Obj<SelectorRequirement<'a>>>,
}

message!(WireLabelSelector { 1 => match_labels, 2 => match_expressions });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelector<'a> {
    #[serde(borrow)]
    pub(super) node_selector_terms: List<Obj<SelectorTerm<'a>>>,
}

impl NodeSelector<'_> {
    /// The API's selector, without empty fields.
    pub(super) fn raw(&self) -> Value {
        let list = |requirements: &[Obj<SelectorRequirement<'_>>]| -> Vec<Value> {
            requirements.iter().map(|requirement| requirement.raw()).collect()
        };
        let term = |term: &Obj<SelectorTerm<'_>>| -> Value {
            let lists = [("matchExpressions", &term.match_expressions), ("matchFields", &term.match_fields)];
            let set = lists.into_iter().filter(|(_, requirements)| !requirements.is_empty());
            set.map(|(field, requirements)| (field.to_owned(), list(requirements).into()))
                .collect::<Map<_, _>>()
                .into()
        };
        json!({ "nodeSelectorTerms": self.node_selector_terms.iter().map(term).collect::<Vec<_>>() })
    }
}

message!(NodeSelector { 1 => node_selector_terms });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectorTerm<'a> {
    #[serde(borrow)]
    pub(super) match_expressions: List<Obj<SelectorRequirement<'a>>>,
    #[serde(borrow)]
    pub(super) match_fields: List<Obj<SelectorRequirement<'a>>>,
}

message!(SelectorTerm { 1 => match_expressions, 2 => match_fields });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SelectorRequirement<'a> {
    #[serde(borrow)]
    key: Str<'a>,
    #[serde(borrow)]
    operator: Str<'a>,
    #[serde(borrow)]
    values: List<Str<'a>>,
}

impl SelectorRequirement<'_> {
    fn raw(&self) -> Value {
        let mut raw = json!({ "key": *self.key, "operator": *self.operator });
        if !self.values.is_empty() {
            raw["values"] = self.values.iter().map(|value| &**value).collect();
        }
        raw
    }
}

message!(SelectorRequirement { 1 => key, 2 => operator, 3 => values });

impl Interners {
    /// The selector, if any. The error is the reason why it is invalid.
    pub(super) fn label_selector(
        &mut self,
        selector: Option<&Obj<WireLabelSelector<'_>>>,
    ) -> Result<Option<LabelSelector>, String> {
        let parse = |selector: &Obj<WireLabelSelector<'_>>| {
            let exact = self.labels(selector.match_labels.iter());
            let expressions: Vec<_> =
                selector.match_expressions.iter().map(|raw| self.requirement(raw)).collect();
            LabelSelector::parse(&exact, expressions)
        };
        selector.map(parse).transpose()
    }

    /// The terms of a node selector, which are alternatives.
    pub(super) fn node_selector(&mut self, selector: &NodeSelector<'_>) -> Box<[NodeSelectorTerm]> {
        selector.node_selector_terms.iter().map(|term| self.node_selector_term(term)).collect()
    }

    pub(super) fn node_selector_term(&mut self, term: &SelectorTerm<'_>) -> NodeSelectorTerm {
        let mut raw = |requirements: &[Obj<SelectorRequirement<'_>>]| {
            requirements.iter().map(|r| self.requirement(r)).collect()
        };
        NodeSelectorTerm::parse(raw(&term.match_expressions), raw(&term.match_fields))
    }

    fn requirement(&mut self, requirement: &SelectorRequirement<'_>) -> RawRequirement {
        RawRequirement {
            key: self.text(&requirement.key),
            operator: self.text(&requirement.operator),
            values: requirement.values.iter().map(|value| self.text(value)).collect(),
        }
    }
}
