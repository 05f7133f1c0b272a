//! The configuration with other names.

use std::collections::BTreeSet;

use serde_json::Value;
use thiserror::Error;

use crate::config::Config;
use crate::yaml;

/// A plugin that is not in the tree has arguments. Nobody else knows what they say.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the arguments of plugin {0} cannot be redacted")]
pub struct UnknownArgs(String);

/// Plugins whose arguments are only numbers and durations.
const WITHOUT_NAMES: &[&str] =
    &["DefaultPreemption", "DynamicResources", "InterPodAffinity", "VolumeBinding"];
/// Plugins whose arguments name labels, nodes or resources.
const WITH_NAMES: &[&str] =
    &["NodeAffinity", "NodeResourcesBalancedAllocation", "NodeResourcesFit", "PodTopologySpread"];

impl Config {
    /// The configuration as YAML, for decisions only: `hide` replaces scheduler names, arguments of
    /// plugins, and resources of extenders. Addresses and files are left out.
    pub fn to_redacted_yaml(&self, hide: &mut dyn FnMut(Value) -> Value) -> Result<String, UnknownArgs> {
        let mut config = self.to_value();
        for field in ["leaderElection", "clientConnection"] {
            config.as_object_mut().map(|fields| fields.remove(field));
        }
        for profile in list(&mut config, "profiles") {
            replace(profile, "schedulerName", hide);
            for plugin in list(profile, "pluginConfig") {
                redact_args(plugin, hide)?;
            }
        }
        for (number, extender) in list(&mut config, "extenders").iter_mut().enumerate() {
            extender["urlPrefix"] = format!("http://extender-{number}.invalid").into();
            let fields = extender.as_object_mut().into_iter().flatten();
            for (name, verb) in fields.filter(|(name, _)| name.ends_with("Verb")) {
                *verb = name.clone().into();
            }
            extender.as_object_mut().map(|fields| fields.remove("tlsConfig"));
            for resource in list(extender, "managedResources") {
                replace(resource, "name", hide);
            }
        }
        Ok(yaml::write(&config))
    }

    /// The names of all enabled plugins.
    pub fn plugin_names(&self) -> BTreeSet<String> {
        self.profiles.iter().flat_map(|profile| profile.plugins.instances.keys().cloned()).collect()
    }
}

fn redact_args(plugin: &mut Value, hide: &mut dyn FnMut(Value) -> Value) -> Result<(), UnknownArgs> {
    let name = plugin["name"].as_str().unwrap_or_default();
    if WITHOUT_NAMES.contains(&name) {
        return Ok(());
    }
    if !WITH_NAMES.contains(&name) {
        return Err(UnknownArgs(name.to_owned()));
    }
    for (field, value) in plugin["args"].as_object_mut().into_iter().flatten() {
        if !matches!(&**field, "apiVersion" | "kind") {
            *value = hide(value.take());
        }
    }
    Ok(())
}

/// The items of a list; none if it is absent.
fn list<'a>(value: &'a mut Value, field: &str) -> &'a mut [Value] {
    value.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

fn replace(value: &mut Value, field: &str, hide: &mut dyn FnMut(Value) -> Value) {
    if let Some(found) = value.get_mut(field) {
        *found = hide(found.take());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Catalog;

    const TEXT: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceNamespace: marker-1}
clientConnection: {kubeconfig: /marker-2}
profiles:
- schedulerName: marker-3
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [marker-4.com/x]}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: marker-5, operator: In, values: [marker-6]}]}]
extenders:
- urlPrefix: https://marker-7/x
  filterVerb: marker-8
  managedResources: [{name: marker-9.com/x}]
";

    /// Replaces markers in all texts of a value.
    fn hidden(value: Value) -> Value {
        serde_json::from_str(&value.to_string().replace("marker", "hidden")).unwrap()
    }

    #[test]
    fn no_name_is_left_and_the_file_is_valid() {
        let catalog = Catalog::in_tree();
        let config = Config::parse("config", TEXT, &catalog).unwrap();
        let redacted = config.to_redacted_yaml(&mut hidden).unwrap();
        assert!(!redacted.contains("marker"), "{redacted}");
        let again = Config::parse("config", &redacted, &catalog).unwrap();
        assert_eq!(&*again.profiles[0].scheduler_name, "hidden-3");
        assert_eq!(again.profiles[0].args["NodeResourcesFit"]["ignoredResources"], json!(["hidden-4.com/x"]));
        assert_eq!(again.extenders[0].filter_verb.as_deref(), Some("filterVerb"));
        assert_eq!(again.extenders[0].bind_verb, None);
        assert_eq!(&*again.extenders[0].managed_resources[0].name, "hidden-9.com/x");
    }

    #[test]
    fn the_default_configuration_stays_the_same_for_decisions() {
        let catalog = Catalog::in_tree();
        let config = Config::default_with(&catalog).unwrap();
        let again = config.to_redacted_yaml(&mut |value| value).unwrap();
        let again = Config::parse("config", &again, &catalog).unwrap();
        assert_eq!(again.to_value()["profiles"], config.to_value()["profiles"]);
    }
}
