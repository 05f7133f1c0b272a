//! Plugin arguments, decoded so that an error names the field at fault.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use supercargo_framework::Features;
use supercargo_framework::plugin::Plugin;
use supercargo_framework::registry::ArgsError;
use supercargo_framework::resource::names;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// Decodes the arguments of a plugin. `null` stands for none; `apiVersion` and `kind` may be given, but not wrong.
pub(crate) fn decode<T: DeserializeOwned>(plugin: &str, args: &Value) -> Result<T, ArgsError> {
    let mut fields = match args {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        other => {
            return Err(ArgsError::new(
                "",
                format!("must be an object with the fields of {plugin}Args, not {other}"),
            ));
        }
    };
    take_constant(&mut fields, "apiVersion", API_VERSION)?;
    take_constant(&mut fields, "kind", &format!("{plugin}Args"))?;
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let path = match error.path().to_string() {
            whole if whole == "." => String::new(),
            path => path,
        };
        ArgsError::new(path, error.into_inner().to_string())
    })
}

fn take_constant(fields: &mut Map<String, Value>, name: &str, expected: &str) -> Result<(), ArgsError> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(given)) if given == expected => Ok(()),
        Some(given) => Err(ArgsError::new(name, format!("must be {expected:?}, not {given}"))),
    }
}

/// No arguments at all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

/// Builds a plugin that has no arguments.
pub(crate) fn without_args<P: Plugin + Default>(
    args: &Value,
    _: &Features,
) -> Result<Arc<dyn Plugin>, ArgsError> {
    let plugin = P::default();
    decode::<NoArgs>(plugin.name(), args)?;
    Ok(Arc::new(plugin))
}

/// A resource and how much it weighs in a score.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceSpec {
    /// The resource's API name.
    pub(crate) name: String,
    /// The weight; 0, as upstream has it, stands for 1.
    #[serde(default)]
    pub(crate) weight: i64,
}

/// The resources with their default weights; CPU and memory when none are given.
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
    fn a_plugin_without_arguments_takes_only_its_type() {
        let good = [
            json!(null),
            json!({}),
            json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodePortsArgs"}),
        ];
        for args in good {
            assert_eq!(args_error("NodePorts", args.clone()), None, "{args}");
        }
        let bad = [
            (
                json!({"kind": "NodeAffinityArgs"}),
                "kind: must be \"NodePortsArgs\", not \"NodeAffinityArgs\"",
            ),
            (
                json!({"apiVersion": "v1"}),
                "apiVersion: must be \"kubescheduler.config.k8s.io/v1\", not \"v1\"",
            ),
            (json!([]), "must be an object with the fields of NodePortsArgs, not []"),
            (json!({"ports": 1}), "ports: unknown field `ports`, there are no fields"),
        ];
        for (args, message) in bad {
            assert_eq!(args_error("NodePorts", args.clone()).as_deref(), Some(message), "{args}");
        }
    }
}
