//! Spreads pods over the domains of topology labels, such as zones and hosts.

mod args;
mod caching;
mod constraint;
mod default_selector;
mod filtering;
mod hint;
mod scoring;
mod spread;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use constraint::Constraint;
use serde_json::Value;
use supercargo_framework::caching::HintScope;
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::resources;
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, SignPlugin};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{ActionType, Context, EventResource, Feature, Features, Plugin, PodInfo, Text};

/// The plugin's name.
pub const NAME: &str = "PodTopologySpread";

struct PodTopologySpread {
    /// The default constraints, for pods without constraints; they have no selectors.
    defaults: Box<[TopologySpreadConstraint]>,
    /// Whether these are the system defaults. If so, a node without one of the topology labels is
    /// scored by the others.
    system_defaulted: bool,
    /// Whether `matchLabelKeys` are enabled.
    match_label_keys: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let args::Defaults { constraints, system } = args::parse(args)?;
    Ok(Arc::new(PodTopologySpread {
        defaults: constraints,
        system_defaulted: system,
        match_label_keys: features.enabled(Feature::MatchLabelKeysInPodTopologySpread),
    }))
}

impl Plugin for PodTopologySpread {
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

    /// Default constraints derive selectors from these kinds.
    fn reads(&self) -> Vec<Text> {
        if self.defaults.is_empty() {
            return Vec::new();
        }
        vec![
            resources::SERVICE,
            resources::REPLICATION_CONTROLLER,
            resources::REPLICA_SET,
            resources::STATEFUL_SET,
        ]
    }
}

impl PodTopologySpread {
    /// What hints read because of hard default constraints, which select by the pod's services and
    /// owner.
    fn scope_of_defaults(&self) -> HintScope {
        if self.defaults.iter().any(|constraint| constraint.hard) {
            HintScope::NAMESPACE | HintScope::LABELS | HintScope::CONTROLLER
        } else {
            HintScope::empty()
        }
    }
}

impl EnqueueExtensions for PodTopologySpread {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let (others, own) = (Arc::clone(&self), Arc::clone(&self));
        let by_default = self.scope_of_defaults();
        let labels = if by_default.is_empty() { HintScope::MATCH_LABELS } else { by_default };
        let constraints = HintScope::TOPOLOGY_SPREAD | labels;
        vec![
            EventRegistration::reading(
                EventResource::AssignedPod,
                ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::DELETE,
                move |cx, pod, change| others.after_pod_change(cx, pod, change),
            )
            .scoped(constraints | HintScope::NAMESPACE)
            .marked(hint::POD_MARKS),
            EventRegistration::reading(
                EventResource::TargetPod,
                ActionType::UPDATE_POD_LABEL | ActionType::UPDATE_POD_TOLERATION,
                move |cx, pod, change| own.after_own_update(cx, pod, change),
            )
            .scoped(constraints),
            EventRegistration::reading(
                EventResource::Node,
                ActionType::ADD
                    | ActionType::DELETE
                    | ActionType::UPDATE_NODE_LABEL
                    | ActionType::UPDATE_NODE_TAINT,
                move |cx, pod, change| self.after_node_change(cx, pod, change),
            )
            .scoped(HintScope::TOPOLOGY_SPREAD | by_default)
            .marked(hint::NODE_MARKS),
        ]
    }
}

impl SignPlugin for PodTopologySpread {
    /// Signs the effective constraints, whatever their source, and the parts of the pod that select
    /// the nodes that count.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        let sorts = self.all_constraints(cx, pod);
        signer.write(&sorts);
        if sorts.iter().all(Vec::is_empty) {
            return Ok(());
        }
        signer.write(&pod.namespace);
        signer.write(&self.requires_every_key(pod));
        let all = || sorts.iter().flatten();
        if all().any(Constraint::honors_affinity) {
            signer.write(&(&pod.spec.node_selector, &pod.spec.node_affinity));
        }
        if all().any(Constraint::honors_taints) {
            signer.write(&pod.spec.tolerations);
        }
        Ok(())
    }
}
