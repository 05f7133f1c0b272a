//! The plugin's arguments.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use supercargo_framework::affinity::{NodeAffinity, RawRequirement};
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::{NodeSelectorTerm, NodeTerms, PreferredTerm};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    added_affinity: Option<AddedAffinity>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Selector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<Preferred>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    node_selector_terms: Option<Vec<Term>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Preferred {
    weight: i32,
    preference: Term,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Term {
    match_expressions: Option<Vec<TermRequirement>>,
    match_fields: Option<Vec<TermRequirement>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TermRequirement {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl From<TermRequirement> for RawRequirement {
    fn from(requirement: TermRequirement) -> Self {
        let values = requirement.values.unwrap_or_default();
        Self {
            key: requirement.key.into(),
            operator: requirement.operator.into(),
            values: values.into_iter().map(Arc::from).collect(),
        }
    }
}

impl From<Term> for NodeSelectorTerm {
    fn from(term: Term) -> Self {
        let raw = |list: Option<Vec<TermRequirement>>| {
            list.unwrap_or_default().into_iter().map(Into::into).collect()
        };
        Self::parse(raw(term.match_expressions), raw(term.match_fields))
    }
}

/// Decodes and validates the arguments.
pub(super) fn parse(args: &Value) -> Result<NodeAffinity, ArgsError> {
    let args: Args = decode_args(args)?;
    let Some(added) = args.added_affinity else {
        return Ok(NodeAffinity::default());
    };
    let required: Option<NodeTerms<NodeSelectorTerm>> = added.required.map(|selector| {
        let terms = selector.node_selector_terms.unwrap_or_default();
        terms.into_iter().map(Into::into).collect()
    });
    let preferred: NodeTerms<PreferredTerm> = added
        .preferred
        .unwrap_or_default()
        .into_iter()
        .map(|Preferred { weight, preference }| PreferredTerm { weight, term: preference.into() })
        .collect();
    for (i, term) in required.iter().flat_map(|terms| terms.iter()).enumerate() {
        check(term, format!("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]"))?;
    }
    for (i, preferred) in preferred.iter().enumerate().filter(|(_, term)| term.weight != 0) {
        check(&preferred.term, format!("preferredDuringSchedulingIgnoredDuringExecution[{i}]"))?;
    }
    Ok(NodeAffinity { required, preferred })
}

fn check(term: &NodeSelectorTerm, path: String) -> Result<(), ArgsError> {
    let Some(first) = term.invalid.first() else {
        return Ok(());
    };
    let (field, message) = first.split_once(": ").unwrap_or(("", first));
    Err(ArgsError::new(format!("addedAffinity.{path}.{field}"), message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::node_affinity::NAME;
    use crate::testing::args_error;

    #[test]
    fn valid_arguments_are_accepted() {
        let good = [
            json!({}),
            json!({"addedAffinity": null}),
            json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}),
            json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}}]}}),
        ];
        for args in good {
            assert_eq!(args_error(NAME, args.clone()), None, "{args}");
        }
    }

    #[test]
    fn invalid_added_affinity_terms_are_rejected_by_path() {
        let bad_term = || json!({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "cores", "operator": "Gt", "values": ["many"]}]});
        let bad = [
            (
                json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, bad_term()]}}}),
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[1].values[0]: Invalid value: \"many\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": bad_term()}]}}),
                "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].matchExpressions[1].values[0]: Invalid value: \"many\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                json!({"addedAffinity": {"required": {}}}),
                "addedAffinity.required: unknown field `required`, expected `requiredDuringSchedulingIgnoredDuringExecution` or `preferredDuringSchedulingIgnoredDuringExecution`",
            ),
        ];
        for (args, message) in bad {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), Some(message), "{args}");
        }
    }

    #[test]
    fn preferred_terms_without_weight_are_ignored() {
        let args = json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}}]}});
        assert_eq!(args_error(NAME, args), None);
    }
}
