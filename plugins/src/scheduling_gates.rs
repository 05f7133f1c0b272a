//! Gates pods with scheduling gates.

use std::sync::Arc;

use supercargo_framework::event::EventRegistration;
use supercargo_framework::plugin::{EnqueueExtensions, ExtensionPoints, PreEnqueuePlugin};
use supercargo_framework::{ActionType, EventResource, Plugin, PodInfo, QueueContext, Status};

/// The plugin's name.
pub const NAME: &str = "SchedulingGates";

#[derive(Default)]
pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().pre_enqueue(&self).enqueue_extensions(&self)
    }
}

impl PreEnqueuePlugin for SchedulingGates {
    fn pre_enqueue(&self, _: &QueueContext<'_>, pod: &PodInfo) -> Status {
        if pod.scheduling_gates.is_empty() {
            return Status::success();
        }
        let gates = pod.scheduling_gates.join(" ");
        Status::unresolvable(format!("waiting for scheduling gates: [{gates}]"))
    }
}

impl EnqueueExtensions for SchedulingGates {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let lifted = ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED;
        vec![EventRegistration::always(EventResource::TargetPod, lifted)]
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::event::QueueingHint;
    use supercargo_framework::testing::{pod, pod_updated};

    use rustc_hash::FxHashSet;
    use supercargo_framework::objects::Objects;

    use super::*;
    use crate::testing::driver;

    #[test]
    fn pods_with_scheduling_gates_are_gated() {
        let plugin = SchedulingGates;
        let (objects, preempting) = (Objects::default(), FxHashSet::default());
        let cx = QueueContext { objects: &objects, preempting: &preempting };
        assert_eq!(plugin.pre_enqueue(&cx, &pod("p").build()), Status::success());
        assert_eq!(
            plugin.pre_enqueue(&cx, &pod("p").gate("a").gate("example.com/b").build()),
            Status::unresolvable("waiting for scheduling gates: [a example.com/b]")
        );
    }

    #[test]
    fn only_removing_its_last_gate_wakes_the_pod() {
        let (gated, free) = (pod("p").gate("a").build(), pod("p").build());
        let change = pod_updated(gated.clone(), free);
        let lifted = ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED;
        let cases = [
            ("its own", EventResource::TargetPod, lifted, Some(Ok(QueueingHint::Queue))),
            ("another pod's", EventResource::UnscheduledPod, lifted, None),
            ("its labels", EventResource::TargetPod, ActionType::UPDATE_POD_LABEL, None),
        ];
        for (name, resource, action, expected) in cases {
            assert_eq!(driver(NAME).hint(resource, action, &gated, &change), expected, "{name}");
        }
    }
}
