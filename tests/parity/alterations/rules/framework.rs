//! Permit, extenders and sampling of nodes. `tests/e2e/extenders.rs` compares the requests and
//! answers of extenders with kube-scheduler; here an answer must count.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_config::{Config, ExtenderConfig, ExtenderTls, PluginSet};
use supercargo_framework::plugin::{ExtensionPoints, Permit, PermitPlugin};
use supercargo_framework::{Context, CycleState, Plugin, PodInfo, Status};

use super::super::alteration::{Alteration, Change};
use super::alter;
use crate::support::Extender;

pub(super) fn all() -> Vec<Alteration> {
    [permit(), sampling(), extenders()].into_iter().flatten().collect()
}

/// A plugin with this result in Permit.
struct Guard(fn() -> Permit);

impl Plugin for Guard {
    fn name(&self) -> &'static str {
        "Guard"
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().permit(&self)
    }
}

impl PermitPlugin for Guard {
    fn permit(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo, _: &Arc<str>) -> Permit {
        (self.0)()
    }
}

/// Adds a Permit plugin to the profiles.
fn guard(plugins: &mut PluginSet, answer: fn() -> Permit) {
    plugins.instances.insert("Guard".to_owned(), Arc::new(Guard(answer)));
    plugins.permit.push("Guard".to_owned());
}

fn permit() -> Vec<Alteration> {
    vec![
        alter(
            "Permit: a plugin rejects pods",
            "a rejected pod is not bound (4.6)",
            Change::Plugins(|plugins| guard(plugins, || Permit::Reject(Status::unschedulable("no entry")))),
            &["node-resources-fit/exact-fit"],
        ),
        alter(
            "Permit: a plugin fails",
            "a pod is not bound after an error (4.6)",
            Change::Plugins(|plugins| guard(plugins, || Permit::Reject(Status::error("no guard")))),
            &["node-resources-fit/exact-fit"],
        ),
        alter(
            "Permit: a plugin makes pods wait without an answer",
            "a waiting pod is not bound before it is allowed, and is rejected after the timeout (4.6)",
            Change::Plugins(|plugins| guard(plugins, || Permit::Wait(Duration::from_secs(5)))),
            &["node-resources-fit/exact-fit"],
        ),
    ]
}

fn sampling() -> Vec<Alteration> {
    vec![alter(
        "sampling: one percent",
        "the profile limits the number of checked nodes (4.3)",
        Change::Config(|config| {
            for profile in &mut config.profiles {
                profile.percentage_of_nodes_to_score = Some(1);
            }
        }),
        &["scores/all-nodes-scored"],
    )]
}

/// An extender that answers every request. It runs until the process ends.
fn extender() -> &'static Extender {
    static EXTENDER: OnceLock<Extender> = OnceLock::new();
    EXTENDER.get_or_init(|| Extender::start(|verb, body| (200, answer(verb, body))))
}

fn answer(verb: &str, body: &Value) -> Value {
    match verb {
        "shun-b" => {
            let names = body["NodeNames"].as_array().into_iter().flatten();
            json!({
                "NodeNames": names.filter(|name| **name != json!("b")).collect::<Vec<_>>(),
                "FailedNodes": { "b": "not b" },
            })
        }
        "like-a" => json!([{ "Host": "a", "Score": 10 }]),
        _ => Value::Null,
    }
}

/// An extender with this URL.
fn extend(config: &mut Config, change: impl FnOnce(&mut ExtenderConfig)) {
    let mut extender = ExtenderConfig {
        url_prefix: extender().url(),
        filter_verb: None,
        preempt_verb: None,
        prioritize_verb: None,
        weight: 1,
        bind_verb: None,
        enable_https: false,
        tls: ExtenderTls::default(),
        // A timeout for a busy machine.
        http_timeout: Duration::from_mins(1),
        node_cache_capable: true,
        managed_resources: Vec::new(),
        ignorable: false,
    };
    change(&mut extender);
    config.extenders.push(extender);
}

fn extenders() -> Vec<Alteration> {
    vec![
        alter(
            "an extender: rejects a node",
            "a node that an extender rejects is infeasible (4.9)",
            Change::Config(|config| extend(config, |it| it.filter_verb = Some("shun-b".to_owned()))),
            &["scores/image-locality-default-tag"],
        ),
        alter(
            "an extender: prefers a node",
            "the scores of an extender count (4.9)",
            Change::Config(|config| extend(config, |it| it.prioritize_verb = Some("like-a".to_owned()))),
            &["scores/image-locality-maximum"],
        ),
        alter(
            "an extender: prefers a node with weight 50",
            "the scores of an extender are weighted (4.9)",
            Change::Config(|config| {
                extend(config, |it| {
                    it.prioritize_verb = Some("like-a".to_owned());
                    it.weight = 50;
                });
            }),
            &["scores/preferred-node-affinity-weight"],
        ),
        alter(
            "an extender: is unreachable",
            "an attempt fails with an extender that is not ignorable (4.9)",
            Change::Config(|config| {
                extend(config, |it| {
                    it.url_prefix = String::from("http://127.0.0.1:1");
                    it.filter_verb = Some("filter".to_owned());
                });
            }),
            &["node-resources-fit/exact-fit"],
        ),
    ]
}
