//! Whether devices can be used on a node.

use std::fmt::Write as _;

use serde_json::Value;
use supercargo_framework::NodeRecord;
use supercargo_framework::objects::{DeviceNodeSelector, DevicePlace};

/// Whether the place of devices includes a node. The error is upstream's about a selector that the
/// API server does not admit.
pub(crate) fn includes(place: &DevicePlace, node: &NodeRecord) -> Result<bool, String> {
    match place {
        DevicePlace::Node(name) => Ok(!name.is_empty() && *name == node.name),
        DevicePlace::AllNodes => Ok(true),
        DevicePlace::Selector(selector) => match invalid(selector) {
            None => Ok(selector.terms.any_matches(node)),
            Some(reason) => {
                Err(format!("failed to parse node selector {}: {reason}", go_string(&selector.raw)))
            }
        },
        DevicePlace::Unset | DevicePlace::PerDevice => Ok(false),
    }
}

fn invalid(selector: &DeviceNodeSelector) -> Option<String> {
    if !selector.terms.has_invalid() {
        return None;
    }
    let reasons: Vec<String> = selector
        .terms
        .iter()
        .enumerate()
        .flat_map(|(place, term)| term.invalid.iter().map(move |reason| format!("[{place}].{reason}")))
        .collect();
    match &reasons[..] {
        [] => None,
        [reason] => Some(reason.clone()),
        reasons => Some(format!("[{}]", reasons.join(", "))),
    }
}

/// The selector as Go prints it.
fn go_string(selector: &Value) -> String {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut terms = String::new();
    for term in items(&selector["nodeSelectorTerms"]) {
        let requirements = |name: &str| {
            let mut list = String::new();
            for requirement in items(&term[name]) {
                let values: Vec<String> = items(&requirement["values"]).iter().map(text).collect();
                let (key, operator) = (text(&requirement["key"]), text(&requirement["operator"]));
                let values = values.join(" ");
                let _ = write!(
                    list,
                    "NodeSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},"
                );
            }
            list
        };
        let (expressions, fields) = (requirements("matchExpressions"), requirements("matchFields"));
        let _ = write!(
            terms,
            "NodeSelectorTerm{{MatchExpressions:[]NodeSelectorRequirement{{{expressions}}},MatchFields:[]\
             NodeSelectorRequirement{{{fields}}},}},"
        );
    }
    format!("&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}")
}
