//! Rejects pods with constraints that no plugin evaluates yet. Upstream has no such plugin.
//!
//! A pending pod with a clear reason is better than a pod on the wrong node.

use std::sync::Arc;

use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::Stateless;
use supercargo_framework::event::{EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{ActionType, Context, CycleState, EventResource, Plugin, PodInfo, Status};

use supercargo_framework::hint;

/// The plugin's name.
pub const NAME: &str = "UnsupportedConstraints";

#[derive(Default)]
pub(crate) struct UnsupportedConstraints;

impl Plugin for UnsupportedConstraints {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for UnsupportedConstraints {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let unsupported = pod.spec.unsupported();
        if unsupported.is_empty() {
            return PreFilter::Skip;
        }
        let fields = unsupported.join(", ");
        PreFilter::Reject(Status::unresolvable(format!("supercargo does not evaluate {fields} yet")))
    }
}

impl EnqueueExtensions for UnsupportedConstraints {
    /// Only an update of the pod itself can help, and no single kind of update shows that a
    /// constraint was removed.
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let updated = EventRegistration::hinted(EventResource::TargetPod, ActionType::UPDATE, |_, change| {
            Ok(QueueingHint::queue_if(hint::new_pod(change)?.spec.unsupported().is_empty()))
        });
        vec![updated.scoped(HintScope::empty())]
    }
}

impl SignPlugin for UnsupportedConstraints {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(pod.spec.unsupported());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::RareSpec;
    use supercargo_framework::testing::{node, node_info, pod, pod_updated};

    use super::*;
    use crate::testing::driver;

    fn constrained(name: &str, fields: &[&str]) -> PodInfo {
        let unsupported = fields.iter().map(|field| Arc::from(*field)).collect();
        let rare = RareSpec { unsupported, ..RareSpec::default() };
        pod(name).with_spec(|spec| spec.rare = rare.boxed()).build()
    }

    #[test]
    fn every_unsupported_constraint_rejects_the_pod() {
        let cases: [(&[&str], Status); 3] = [
            (&[], Status::success()),
            (&["spec.x"], Status::unresolvable("supercargo does not evaluate spec.x yet")),
            (
                &["spec.topologySpreadConstraints[0].labelSelector", "spec.x"],
                Status::unresolvable(
                    "supercargo does not evaluate spec.topologySpreadConstraints[0].labelSelector, spec.x yet",
                ),
            ),
        ];
        let node = node_info(node("n").build(), []);
        for (fields, expected) in cases {
            assert_eq!(driver(NAME).filter(&constrained("p", fields), &node), expected);
        }
        assert!(matches!(driver(NAME).pre_filter(&constrained("p", &[])), PreFilter::Skip));
    }

    #[test]
    fn only_updates_that_drop_the_constraint_wake_the_pod() {
        let waiting = constrained("p", &["spec.topologySpreadConstraints[0].labelSelector"]);
        let cases = [
            ("freed", constrained("p", &[]), QueueingHint::Queue),
            ("still constrained", constrained("p", &["x"]), QueueingHint::Skip),
        ];
        for (name, new, expected) in cases {
            for action in [ActionType::UPDATE, ActionType::UPDATE_POD_LABEL] {
                let change = pod_updated(waiting.clone(), new.clone());
                let hint = driver(NAME).hint(EventResource::TargetPod, action, &waiting, &change);
                assert_eq!(hint, Some(Ok(expected)), "{name}");
            }
        }
    }
}
