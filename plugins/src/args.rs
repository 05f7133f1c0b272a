//! Arguments that several plugins have.

use serde::Deserialize;
use supercargo_framework::resource::names;

/// A resource with its weight in a score.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceSpec {
    /// The resource's API name.
    pub(crate) name: String,
    /// The weight. 0 means 1, as upstream.
    #[serde(default)]
    pub(crate) weight: i64,
}

/// The resources, with the default weight where it is 0; CPU and memory if there are none.
pub(crate) fn resources_or_default(resources: Option<Vec<ResourceSpec>>) -> Vec<ResourceSpec> {
    let given = resources.unwrap_or_default();
    if given.is_empty() {
        return [names::CPU, names::MEMORY]
            .map(|name| ResourceSpec { name: name.to_owned(), weight: 1 })
            .into();
    }
    given
        .into_iter()
        .map(|spec| match spec.weight {
            0 => ResourceSpec { weight: 1, ..spec },
            _ => spec,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::args_error;

    #[test]
    fn a_plugin_without_arguments_rejects_every_field() {
        assert_eq!(args_error("NodePorts", json!(null)), None);
        assert_eq!(args_error("NodePorts", json!({})), None);
        let bad = [
            (json!([]), "must be an object, not []"),
            (json!({"ports": 1}), "ports: unknown field `ports`, there are no fields"),
        ];
        for (args, message) in bad {
            assert_eq!(args_error("NodePorts", args.clone()).as_deref(), Some(message), "{args}");
        }
    }
}
