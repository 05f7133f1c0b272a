//! Node selectors, required node affinity, and tolerations of pods.

use serde_json::Value;

use crate::json::{entries, list, present, text, texts};

/// Whether a pod's node selector and required node affinity match a node.
pub(super) fn matches(spec: &Value, node: &str, labels: &Value) -> bool {
    let selected = entries(spec, "nodeSelector").all(|(key, value)| labels.get(key) == Some(value));
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    let required = required.filter(|required| !required.is_null());
    selected
        && required.is_none_or(|required| {
            list(required, "nodeSelectorTerms").iter().any(|term| term_matches(term, node, labels))
        })
}

/// An empty term matches nothing.
fn term_matches(term: &Value, node: &str, labels: &Value) -> bool {
    let (expressions, fields) = (list(term, "matchExpressions"), list(term, "matchFields"));
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|one| holds(one, present(labels, text(one, "key")).and_then(Value::as_str)))
        && fields.iter().all(|one| holds(one, (text(one, "key") == "metadata.name").then_some(node)))
}

fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let is_listed = || value.is_some_and(|value| texts(requirement, "values").any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = || texts(requirement, "values").next().and_then(number);
    let compares = |compare: fn(&i64, &i64) -> bool| {
        value.and_then(number).zip(bound()).is_some_and(|(value, bound)| compare(&value, &bound))
    };
    match text(requirement, "operator") {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compares(i64::gt),
        "Lt" => compares(i64::lt),
        _ => false,
    }
}

/// The first taint with one of the effects that no toleration covers.
pub(super) fn untolerated<'a>(
    taints: &'a [Value],
    tolerations: &[Value],
    effects: &[&str],
) -> Option<&'a Value> {
    let mut counted = taints.iter().filter(|taint| effects.contains(&text(taint, "effect")));
    counted.find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether a toleration covers a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
    (effect.is_empty() || effect == text(taint, "effect"))
        && (key.is_empty() || key == text(taint, "key"))
        && match text(toleration, "operator") {
            "" | "Equal" => text(toleration, "value") == text(taint, "value"),
            "Exists" => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requires(term: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        }}})
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        requires(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    }

    #[test]
    fn node_affinity_matches_labels_and_names() {
        let labels = json!({"zone": "a", "size": "8"});
        for (spec, expected) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a"}}), true),
            (json!({"nodeSelector": {"zone": "b"}}), false),
            (expression("zone", "In", &["a", "b"]), true),
            (expression("zone", "NotIn", &["a"]), false),
            (expression("other", "NotIn", &["a"]), true),
            (expression("zone", "Exists", &[]), true),
            (expression("zone", "DoesNotExist", &[]), false),
            (expression("size", "Gt", &["7"]), true),
            (expression("size", "Lt", &["8"]), false),
            (expression("zone", "Gt", &["7"]), false),
            (requires(json!({})), false),
            (
                requires(
                    json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
                ),
                true,
            ),
            (
                requires(
                    json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}),
                ),
                false,
            ),
        ] {
            assert_eq!(matches(&spec, "n", &labels), expected, "{spec}");
        }
    }

    #[test]
    fn toleration_covers_matching_taints() {
        let taints = [json!({"key": "a", "value": "1", "effect": "NoExecute"})];
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "value": "1"}), true),
            (json!({"key": "a", "value": "2"}), false),
            (json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"}), false),
        ] {
            let left = untolerated(&taints, std::slice::from_ref(&toleration), &["NoExecute"]);
            assert_eq!(left.is_none(), expected, "{toleration}");
        }
        assert!(untolerated(&taints, &[], &["NoSchedule"]).is_none());
    }
}
