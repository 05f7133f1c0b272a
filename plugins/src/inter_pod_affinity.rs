//! Places pods near or away from other pods, by inter-pod affinity and anti-affinity.

mod args;
mod caching;
mod filtering;
mod hint;
mod scoring;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::caching::HintScope;
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, SignPlugin};
use supercargo_framework::pod_affinity::PodAffinity;
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{ActionType, Context, EventResource, Features, Plugin, PodInfo, SmallMap, Text};

use terms::affinity_of;

/// The plugin's name.
pub const NAME: &str = "InterPodAffinity";

struct InterPodAffinity {
    /// The weight of required affinity terms of existing pods (`hardPodAffinityWeight`).
    hard_pod_affinity_weight: i32,
    /// Whether preferences of existing pods are ignored for pods without preferences.
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

    /// Namespace selectors read namespaces.
    fn reads(&self) -> Vec<Text> {
        vec![resources::NAMESPACE]
    }
}

impl EnqueueExtensions for InterPodAffinity {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(
                EventResource::AssignedPod,
                ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::DELETE,
                hint::after_pod_change,
            )
            // Terms of the event's pod may match the labels of the waiting one.
            .scoped(HintScope::POD_AFFINITY | HintScope::NAMESPACE | HintScope::LABELS)
            .reading_labels_if(hint::reads_labels)
            .marked(hint::POD_MARKS),
            // Terms of other pods may no longer match its labels.
            EventRegistration::always(EventResource::TargetPod, ActionType::UPDATE_POD_LABEL),
            EventRegistration::hinted(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
                hint::after_node_change,
            )
            .scoped(HintScope::POD_AFFINITY)
            .marked(hint::NODE_MARKS),
        ]
    }
}

impl SignPlugin for InterPodAffinity {
    /// Signs the pod's terms, its namespace, and its labels with keys that any term refers to:
    /// terms of other pods match pods without affinity, too. Unlike upstream, always signs the
    /// namespace and these labels: required terms of existing pods match them even if their
    /// preferences are ignored.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        let own = affinity_of(pod);
        if own.is_some_and(|own| own.invalid.is_some()) {
            return Err(Unsignable);
        }
        let keys = cx.nodes().affinity_keys();
        let mut of_own: SmallMap<&str, ()> = SmallMap::default();
        for key in own.into_iter().flat_map(PodAffinity::label_keys) {
            of_own.insert(&**key, ());
        }
        signer.write(&own);
        signer.write(&pod.namespace);
        signer.write(&keys.epoch());
        for label in pod.labels.iter().filter(|(key, _)| keys.contains(key) || of_own.contains(&***key)) {
            signer.write(&Some(label));
        }
        signer.write(&None::<(&str, &str)>);
        Ok(())
    }
}
