//! The scale subresource: replicas in the form of `autoscaling/v1`.

use serde_json::{Map, Value, json};

use super::path::Path;
use crate::json::{entries, int, list, present, text, texts};
use crate::status::{Result, Status};

/// The JSON pointers to a kind's replica counts.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    /// The desired number.
    pub spec_replicas: String,
    /// The current number.
    pub status_replicas: String,
    /// The selector, as text or as a label selector; empty for none.
    pub selector: String,
}

impl ScalePaths {
    /// The paths of built-in kinds.
    pub(crate) fn built_in() -> Self {
        let [spec_replicas, status_replicas, selector] =
            ["/spec/replicas", "/status/replicas", "/spec/selector"].map(str::to_owned);
        Self { spec_replicas, status_replicas, selector }
    }

    /// The paths of a CustomResourceDefinition's version, if it has a scale.
    pub(crate) fn of_version(version: &Value) -> Option<Self> {
        let scale = present(&version["subresources"], "scale")?;
        Some(Self {
            spec_replicas: pointer(text(scale, "specReplicasPath")),
            status_replicas: pointer(text(scale, "statusReplicasPath")),
            selector: pointer(text(scale, "labelSelectorPath")),
        })
    }
}

/// Converts `.spec.replicas` to `/spec/replicas`.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// The scale of an object.
pub(crate) fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let selector = if paths.selector.is_empty() { None } else { object.pointer(&paths.selector) };
    let mut spec = json!({});
    let wanted = number(&paths.spec_replicas);
    if wanted != 0 {
        spec["replicas"] = wanted.into();
    }
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = selector.map(selector_text).unwrap_or_default();
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let metadata: Map<String, Value> = ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"]
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone())))
        .collect();
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Sets the number of replicas from a scale. The caller checks the version and stores the object.
pub(crate) fn set_scale(object: &mut Value, scale: &Value, paths: &ScalePaths) -> Result<()> {
    let replicas = scale.get("spec").and_then(|spec| int(spec, "replicas")).unwrap_or_default();
    if replicas < 0 {
        let path = Path::root("spec");
        let cause = path.child("replicas").invalid(replicas, super::checks::NOT_NEGATIVE);
        let name = text(&scale["metadata"], "name");
        return Err(Status::invalid_of("autoscaling", "Scale", name, vec![cause]));
    }
    let mut place = &mut *object;
    let mut steps = paths.spec_replicas.split('/').filter(|step| !step.is_empty()).peekable();
    while let Some(step) = steps.next() {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[step];
        if steps.peek().is_none() {
            *place = replicas.into();
        }
    }
    Ok(())
}

/// A selector in text form: `a=b,c in (d,e),!f`.
pub(crate) fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let is_labels =
        present(selector, "matchLabels").is_none() && present(selector, "matchExpressions").is_none();
    let wrapped;
    let selector = if is_labels {
        // The selectors of replication controllers have only labels.
        wrapped = json!({"matchLabels": selector});
        &wrapped
    } else {
        selector
    };
    let equal = entries(selector, "matchLabels")
        .map(|(key, value)| (key.to_owned(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let expressions = list(selector, "matchExpressions").iter().map(|expression| {
        let key = text(expression, "key");
        let mut values: Vec<&str> = texts(expression, "values").collect();
        values.sort_unstable();
        let values = values.join(",");
        let written = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key.to_owned(), written)
    });
    let mut requirements: Vec<(String, String)> = equal.chain(expressions).collect();
    requirements.sort_by(|left, right| left.0.cmp(&right.0));
    let requirements: Vec<String> = requirements.into_iter().map(|(_, written)| written).collect();
    requirements.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_shows_desired_and_current_replicas() {
        let deployment = json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {
                "matchLabels": {"b": "c", "a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"},
                    {"key": "a", "operator": "Exists"}],
            }},
            "status": {"replicas": 2},
        });
        let scale = scale_of(&deployment, &ScalePaths::built_in());
        assert_eq!(
            scale,
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b,a,b=c,c in (x,y),!d"},
            })
        );
    }

    #[test]
    fn scale_is_set_at_the_path_of_the_definition() {
        let version = json!({"subresources": {"scale": {
            "specReplicasPath": ".spec.size.replicas", "statusReplicasPath": ".status.replicas",
        }}});
        let paths = ScalePaths::of_version(&version).unwrap();
        let mut object = json!({"metadata": {}});
        set_scale(&mut object, &json!({"spec": {"replicas": 4}}), &paths).unwrap();
        assert_eq!(object["spec"], json!({"size": {"replicas": 4}}));
        let scale = json!({"metadata": {"name": "d"}, "spec": {"replicas": -1}});
        let refused = set_scale(&mut object, &scale, &paths).unwrap_err();
        let expected = "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(refused.message, expected);
    }
}
