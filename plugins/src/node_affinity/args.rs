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
    key: Option<String>,
    operator: Option<String>,
    values: Option<Vec<String>>,
}

impl From<TermRequirement> for RawRequirement {
    /// Without a key or an operator, it gets a valid one: `first_missing` reports that later.
    fn from(requirement: TermRequirement) -> Self {
        let TermRequirement { key, operator, values } = requirement;
        let values = if operator.is_some() { values.unwrap_or_default() } else { vec!["x".to_owned()] };
        Self {
            key: key.map_or_else(|| "x".into(), Arc::from),
            operator: operator.map_or_else(|| "In".into(), Arc::from),
            values: values.into_iter().map(Arc::from).collect(),
        }
    }
}

impl Term {
    /// The path of the first requirement without a key or an operator, and the error.
    fn first_missing(&self) -> Option<(String, &'static str)> {
        let lists = [("matchExpressions", &self.match_expressions), ("matchFields", &self.match_fields)];
        lists.into_iter().find_map(|(field, list)| {
            list.iter().flatten().enumerate().find_map(|(i, requirement)| {
                let path = || format!("{field}[{i}]");
                match requirement {
                    TermRequirement { key: None, .. } => Some((path(), "missing field `key`")),
                    TermRequirement { operator: None, .. } => Some((path(), "missing field `operator`")),
                    _ => None,
                }
            })
        })
    }
}

impl AddedAffinity {
    /// The terms with their paths.
    fn terms(&self) -> impl Iterator<Item = (String, &Term)> {
        let required =
            self.required.iter().flat_map(|selector| selector.node_selector_terms.iter().flatten());
        let preferred = self.preferred.iter().flatten();
        let required = required.enumerate().map(|(i, term)| (required_path(i), term));
        required.chain(preferred.enumerate().map(|(i, it)| (preferred_path(i), &it.preference)))
    }
}

fn required_path(i: usize) -> String {
    format!("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]")
}

fn preferred_path(i: usize) -> String {
    format!("preferredDuringSchedulingIgnoredDuringExecution[{i}]")
}

impl From<Term> for NodeSelectorTerm {
    fn from(term: Term) -> Self {
        let raw = |list: Option<Vec<TermRequirement>>| {
            list.unwrap_or_default().into_iter().map(Into::into).collect()
        };
        Self::parse(raw(term.match_expressions), raw(term.match_fields))
    }
}

/// Decodes and validates the arguments. Fields that are missing are reported last: to find all
/// errors, the configuration removes what is rejected and asks again.
pub(super) fn parse(args: &Value) -> Result<NodeAffinity, ArgsError> {
    let args: Args = decode_args(args)?;
    let Some(added) = args.added_affinity else {
        return Ok(NodeAffinity::default());
    };
    let missing = added.terms().find_map(|(path, term)| {
        let (field, message) = term.first_missing()?;
        Some(ArgsError::new(format!("addedAffinity.{path}.{field}"), message))
    });
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
        check(term, &required_path(i))?;
    }
    for (i, preferred) in preferred.iter().enumerate().filter(|(_, term)| term.weight != 0) {
        check(&preferred.term, &preferred_path(i))?;
    }
    missing.map_or(Ok(NodeAffinity { required, preferred }), Err)
}

fn check(term: &NodeSelectorTerm, path: &str) -> Result<(), ArgsError> {
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
    fn what_is_wrong_is_reported_before_what_is_missing() {
        let path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
        let cases = [
            (json!({"matchExpressions": [{"key": "", "operator": "Is"}]}), "matchExpressions[0].operator: "),
            (json!({"matchExpressions": [{}, {"key": ""}]}), "matchExpressions[1].key: "),
            (json!({"matchExpressions": [{"operator": "In", "values": []}]}), "matchExpressions[0].values: "),
            (
                json!({"matchExpressions": [{"operator": "Exists"}]}),
                "matchExpressions[0]: missing field `key`",
            ),
            (json!({"matchFields": [{"key": "a"}]}), "matchFields[0]: missing field `operator`"),
        ];
        for (term, expected) in cases {
            let args = json!({"addedAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
            let error = args_error(NAME, args.clone()).unwrap_or_default();
            assert!(error.starts_with(&format!("{path}.{expected}")), "{args}: {error}");
        }
        let preferred = json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 0, "preference": {"matchFields": [{"key": "a"}]}}]}});
        assert!(args_error(NAME, preferred).is_some_and(|error| error.ends_with("missing field `operator`")));
    }

    #[test]
    fn preferred_terms_without_weight_are_ignored() {
        let args = json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}}]}});
        assert_eq!(args_error(NAME, args), None);
    }
}
