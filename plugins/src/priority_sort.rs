//! Orders activeQ: higher priority first, then earlier timestamp.

use std::sync::Arc;

use supercargo_framework::Plugin;
use supercargo_framework::plugin::{ExtensionPoints, QueueSortPlugin, Queued};

/// The plugin's name.
pub const NAME: &str = "PrioritySort";

#[derive(Default)]
pub(crate) struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().queue_sort(&self)
    }
}

impl QueueSortPlugin for PrioritySort {
    fn less(&self, a: Queued<'_>, b: Queued<'_>) -> bool {
        (b.pod.priority, a.timestamp) < (a.pod.priority, b.timestamp)
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::pod;

    use super::*;

    #[test]
    fn priority_precedes_age_and_less_is_irreflexive() {
        let cases = [
            ("a higher priority wins though it came later", (2, 9), (1, 1), true),
            ("a lower priority loses though it came earlier", (1, 1), (2, 9), false),
            ("a negative priority is below none", (-1, 1), (0, 9), false),
            ("of equals the earlier wins", (1, 1), (1, 2), true),
            ("of equals the later loses", (1, 2), (1, 1), false),
            ("equal in both is not less", (1, 1), (1, 1), false),
        ];
        for (name, a, b, expected) in cases {
            let (pod_a, pod_b) = (pod("a").priority(a.0).build(), pod("b").priority(b.0).build());
            let queued = |pod, seconds| Queued { pod, timestamp: Timestamp(seconds) };
            assert_eq!(PrioritySort.less(queued(&pod_a, a.1), queued(&pod_b, b.1)), expected, "{name}");
        }
    }
}
