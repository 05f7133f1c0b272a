//! Writes the completed configuration as a file, like kube-scheduler's `--write-config-to`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use supercargo_framework::Features;

use super::LeaderElectionConfig;
use super::default_args;
use super::file::{API_VERSION, KIND};
use super::leader_election::LOCK;
use super::points::ConfigPoint;
use super::profile_file::FileSet;
use super::yaml;
use crate::config::{ClientConnection, Config, ExtenderConfig, ExtenderTls, MediaType, ProfileConfig};
use supercargo_framework::go_duration;

impl Config {
    /// The configuration with all defaults as a KubeSchedulerConfiguration. It contains the TLS
    /// keys of extenders, if the file does.
    pub fn to_value(&self) -> Value {
        let percentage = self.percentage_of_nodes_to_score.unwrap_or(0);
        let mut all = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "parallelism": self.parallelism,
            "leaderElection": leader_election(&self.leader_election),
            "clientConnection": client_connection(&self.client_connection),
            "enableProfiling": self.enable_profiling,
            "enableContentionProfiling": self.enable_contention_profiling,
            "percentageOfNodesToScore": percentage,
            "podInitialBackoffSeconds": self.pod_initial_backoff.as_secs(),
            "podMaxBackoffSeconds": self.pod_max_backoff.as_secs(),
            "delayCacheUntilActive": self.delay_cache_until_active,
        });
        let profiles = self.profiles.iter().map(|found| profile(found, &self.features));
        all["profiles"] = profiles.collect();
        if !self.extenders.is_empty() {
            all["extenders"] = self.extenders.iter().map(extender).collect();
        }
        all
    }

    /// The same as YAML.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.to_value())
    }

    /// The same without the TLS settings of extenders, which can have a private key.
    pub fn to_yaml_without_keys(&self) -> String {
        yaml::write(&self.with_extenders(|extender| {
            extender.as_object_mut().map(|extender| extender.remove("tlsConfig"));
        }))
    }

    /// The content of `/configz`: `{"componentconfig": …}`, with keys redacted.
    pub fn configz(&self) -> Value {
        let config = self.with_extenders(|extender| {
            if let Some(key) = extender.pointer_mut("/tlsConfig/keyData") {
                *key = "REDACTED".into();
            }
        });
        json!({ "componentconfig": config })
    }

    /// The configuration with this change to each extender.
    fn with_extenders(&self, change: impl FnMut(&mut Value)) -> Value {
        let mut config = self.to_value();
        config["extenders"].as_array_mut().into_iter().flatten().for_each(change);
        config
    }
}

fn leader_election(election: &LeaderElectionConfig) -> Value {
    json!({
        "leaderElect": election.leader_elect,
        "leaseDuration": go_duration::format(election.lease_duration),
        "renewDeadline": go_duration::format(election.renew_deadline),
        "retryPeriod": go_duration::format(election.retry_period),
        "resourceLock": LOCK,
        "resourceName": election.resource_name,
        "resourceNamespace": election.resource_namespace,
    })
}

fn client_connection(connection: &ClientConnection) -> Value {
    let accepted: Vec<&str> = connection.accept_content_types.iter().copied().map(MediaType::name).collect();
    // The shortest decimal of the 32-bit float: `50` instead of `50.0`, and no extra digits.
    let qps = connection.qps.and_then(|qps| serde_json::from_str(&qps.to_string()).ok());
    json!({
        "kubeconfig": connection.kubeconfig.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        "acceptContentTypes": accepted.join(","),
        "contentType": connection.content_type.name(),
        "qps": qps.unwrap_or(Value::from(0)),
        "burst": connection.burst.unwrap_or(0),
    })
}

fn profile(profile: &ProfileConfig, features: &Features) -> Value {
    let enabled: BTreeSet<&str> = profile.sets.enabled().map(|plugin| &*plugin.name).collect();
    let args = enabled.into_iter().filter_map(|plugin| {
        let args = default_args::completed(plugin, profile.args.get(plugin), features)?;
        Some(json!({ "name": plugin, "args": args }))
    });
    let points = ConfigPoint::ALL.iter().map(|point| (point.name(), set(profile.sets.at(*point))));
    let mut all = json!({
        "schedulerName": &*profile.scheduler_name,
        "plugins": points.map(|(name, set)| (name.to_owned(), set)).collect::<Map<_, _>>(),
        "pluginConfig": args.collect::<Vec<_>>(),
    });
    if let Some(percentage) = profile.own_percentage {
        all["percentageOfNodesToScore"] = percentage.into();
    }
    all
}

fn set(set: &FileSet) -> Value {
    let enabled = set.enabled.iter().map(|plugin| json!({ "name": plugin.name, "weight": plugin.weight }));
    // Upstream writes the weight of disabled plugins, too.
    let disabled = set.disabled.iter().map(|name| json!({ "name": name, "weight": 0 }));
    let mut all = Map::new();
    insert(&mut all, "enabled", enabled.collect());
    insert(&mut all, "disabled", disabled.collect());
    Value::Object(all)
}

fn extender(extender: &ExtenderConfig) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default().into();
    let resources = extender.managed_resources.iter().map(
        |resource| json!({ "name": &*resource.name, "ignoredByScheduler": resource.ignored_by_scheduler }),
    );
    let mut all = Map::new();
    insert(&mut all, "urlPrefix", extender.url_prefix.clone().into());
    insert(&mut all, "filterVerb", text(&extender.filter_verb));
    insert(&mut all, "preemptVerb", text(&extender.preempt_verb));
    insert(&mut all, "prioritizeVerb", text(&extender.prioritize_verb));
    insert(&mut all, "bindVerb", text(&extender.bind_verb));
    insert(&mut all, "weight", extender.weight.into());
    insert(&mut all, "enableHTTPS", extender.enable_https.into());
    insert(&mut all, "tlsConfig", tls(&extender.tls));
    insert(&mut all, "httpTimeout", timeout(extender.http_timeout));
    insert(&mut all, "nodeCacheCapable", extender.node_cache_capable.into());
    insert(&mut all, "managedResources", resources.collect());
    insert(&mut all, "ignorable", extender.ignorable.into());
    Value::Object(all)
}

fn timeout(length: Duration) -> Value {
    go_duration::format(length).into()
}

fn tls(tls: &ExtenderTls) -> Value {
    let mut all = Map::new();
    insert(&mut all, "insecure", tls.insecure.into());
    for (field, text) in [
        ("serverName", &tls.server_name),
        ("certFile", &tls.cert_file),
        ("keyFile", &tls.key_file),
        ("caFile", &tls.ca_file),
        ("certData", &tls.cert_data),
        ("keyData", &tls.key_data),
        ("caData", &tls.ca_data),
    ] {
        insert(&mut all, field, text.clone().unwrap_or_default().into());
    }
    Value::Object(all)
}

/// Adds a value unless it is null, false, zero or empty.
fn insert(all: &mut Map<String, Value>, field: &str, value: Value) {
    let is_empty = match &value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    if !is_empty {
        all.insert(field.to_owned(), value);
    }
}
