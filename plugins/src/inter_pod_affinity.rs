//! Keeps pods together, or apart, as they ask for.

mod args;
mod caching;
mod filtering;
mod hint;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod properties;
mod scoring;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, SignPlugin};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{ActionType, Context, EventResource, Features, Plugin, PodInfo, Text};

use terms::affinity_of;

/// The plugin's name.
pub const NAME: &str = "InterPodAffinity";

struct InterPodAffinity {
    /// What a required affinity term of a pod that is there weighs for the pods that it wants near.
    hard_pod_affinity_weight: i32,
    /// Whether a pod without preferences of its own is not scored by those of others.
    ignores_preferences_of_others: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    Ok(Arc::new(args::parse(args)?))
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .pre_score(&self)
            .score(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&self)
    }

    /// What namespace selectors are matched with.
    fn reads(&self) -> Vec<Text> {
        vec![resources::NAMESPACE]
    }
}

impl EnqueueExtensions for InterPodAffinity {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(
                EventResource::Pod,
                ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::DELETE,
                hint::after_pod_change,
            ),
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
                hint::after_node_change,
            ),
        ]
    }
}

impl SignPlugin for InterPodAffinity {
    /// The pod's own terms, and what it is to terms, its own and those of others: its namespace, and those of its labels
    /// that any of them names. Pods without affinity are spoken of as well. Upstream leaves the namespace out, and the
    /// labels too when preferences of others do not count, although required terms still do.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        let own = affinity_of(pod);
        if own.is_some_and(|own| own.invalid.is_some()) {
            return Err(Unsignable);
        }
        let keys = cx.nodes().affinity_keys();
        let is_named = |key: &str| {
            keys.contains(key) || own.is_some_and(|own| own.label_keys().any(|known| **known == *key))
        };
        signer.write(&own);
        signer.write(&pod.namespace);
        signer.write(&keys.epoch());
        for label in pod.labels.iter().filter(|(key, _)| is_named(key)) {
            signer.write(&Some(label));
        }
        signer.write(&None::<(&str, &str)>);
        Ok(())
    }
}
