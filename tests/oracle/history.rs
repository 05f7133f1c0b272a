//! Histories: the input of both sides, step by step.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use supercargo_framework::{Feature, Features};

use super::extender;

/// A sequence of steps and its configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct History {
    /// The purpose of a scenario file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) about: String,
    /// A KubeSchedulerConfiguration.
    pub(super) config: Value,
    /// Feature gates with other values than the default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) steps: Vec<Step>,
}

/// A feature and its prerequisite.
const DEPENDENTS: [(&str, &str); 4] = [
    ("MatchLabelKeysInPodTopologySpread", "MatchLabelKeysInPodTopologySpreadSelectorMerge"),
    ("PodLevelResources", "PodLevelResourceManagers"),
    ("PodLevelResources", "PodLevelResourcesFixDefaulting"),
    ("PodLevelResources", "PodLevelResourcesFixKubeletQOSClass"),
];

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Step {
    /// Creates or replaces an object.
    Apply(Value),
    /// Deletes one.
    Delete(Reference),
    /// Advances time by this many seconds.
    Advance(u64),
    /// Schedules the next pod, if there is one.
    Schedule(bool),
}

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Reference {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Reference {
    /// The name of an object.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }

    pub(super) fn pod(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn pod_group(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "scheduling.k8s.io/v1beta1".to_owned(),
            kind: "PodGroup".to_owned(),
            ..Self::pod(namespace, name)
        }
    }

    /// `namespace/name`, or the name without a namespace.
    pub(super) fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key())
    }
}

/// A one-line description of the step.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(object) => write!(f, "apply {}", Reference::of(object)),
            Self::Delete(reference) => write!(f, "delete {reference}"),
            Self::Advance(seconds) => write!(f, "advance {seconds} s"),
            Self::Schedule(_) => f.write_str("schedule"),
        }
    }
}

impl History {
    /// The input line for upstream's program.
    pub(super) fn line(&self) -> String {
        // Upstream's opportunistic batching may choose other nodes, so it is off.
        let mut gates = BTreeMap::from([("OpportunisticBatching".to_owned(), false)]);
        gates.extend(self.feature_gates.clone());
        // Features of upstream with prerequisites.
        for (of, depends) in DEPENDENTS {
            if gates.get(of) == Some(&false) {
                gates.insert(depends.to_owned(), false);
            }
        }
        // Upstream's default leaves nodes out from 100 nodes on; ours does not.
        let mut config = self.config.clone();
        if let Some(config) = config.as_object_mut() {
            config.entry("percentageOfNodesToScore").or_insert(json!(100));
        }
        let extender = if self.has_extenders() { extender::address() } else { String::new() };
        json!({ "config": config, "featureGates": gates, "extender": extender, "steps": self.steps })
            .to_string()
    }

    /// Whether extenders take part.
    pub(super) fn has_extenders(&self) -> bool {
        self.config["extenders"].as_array().is_some_and(|extenders| !extenders.is_empty())
    }

    /// The enabled features.
    pub(super) fn features(&self) -> Result<Features> {
        let mut features = Features::default();
        for (name, on) in &self.feature_gates {
            let feature = Feature::ALL.iter().find(|feature| feature.name() == name);
            features = features.with(*feature.with_context(|| format!("there is no feature {name}"))?, *on);
        }
        Ok(features)
    }

    /// The text of a scenario file.
    pub(super) fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).context("write YAML")
    }

    /// Reads a scenario file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("read {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_round_trips_through_yaml() {
        let history = History {
            about: "A pod: with a colon, \"quotes\" and 1e3.".to_owned(),
            config: json!({"kind": "KubeSchedulerConfiguration"}),
            feature_gates: [("VolumeLimitScaling".to_owned(), true)].into(),
            steps: vec![
                Step::Apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
                    "labels": {"number": "1", "yes": "no", "empty": "", "exp": "1e3"}}})),
                Step::Advance(3),
                Step::Schedule(true),
                Step::Delete(Reference::pod("default", "a")),
            ],
        };
        let read: History = serde_saphyr::from_str(&history.to_yaml().unwrap()).unwrap();
        assert_eq!(read, history);
        let line: Value = serde_json::from_str(&history.line()).unwrap();
        assert_eq!(line["steps"][1], json!({"advance": 3}));
        assert_eq!(line["steps"][2], json!({"schedule": true}));
        assert_eq!(line["steps"][3]["delete"]["name"], "a");
    }
}
